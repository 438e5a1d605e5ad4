package bank;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** A bounded queue of entries on a {@link ReentrantLock} and two conditions, with timed waits on one side. */
final class Journal {
    private static final int CAPACITY = 16;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition notFull = lock.newCondition();
    private final Condition notEmpty = lock.newCondition();
    private final ArrayDeque<Long> entries = new ArrayDeque<>();
    private boolean closed;

    void write(long entry) throws InterruptedException {
        lock.lock();
        try {
            while (entries.size() == CAPACITY) {
                notFull.await();
            }
            entries.add(entry);
            notEmpty.signal();
        } finally {
            lock.unlock();
        }
    }

    /** The next entry, or null once the journal is closed and empty. */
    Long read() throws InterruptedException {
        lock.lock();
        try {
            while (entries.isEmpty()) {
                if (closed) {
                    return null;
                }
                notEmpty.await(1, TimeUnit.MILLISECONDS);
            }
            Long entry = entries.remove();
            notFull.signal();
            return entry;
        } finally {
            lock.unlock();
        }
    }

    void close() {
        lock.lock();
        try {
            closed = true;
            notEmpty.signalAll();
        } finally {
            lock.unlock();
        }
    }
}
