package bank;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;

/**
 * Threads that transfer money, journal what they do, and count it in a map. The totals at the end can only be one way.
 * Garbage is made on purpose: the collector's threads use the virtual machine's own pthread locks.
 */
public final class Main {
    private static final int THREADS = 8;
    private static final int TRANSFERS = 4_000;
    private static final int ACCOUNTS = 10;
    private static final long OPENING_BALANCE = 1_000;

    private final Account[] accounts = new Account[ACCOUNTS];
    private final Journal journal = new Journal();
    private final ConcurrentHashMap<Integer, LongAdder> touched = new ConcurrentHashMap<>();
    private final AtomicLong waitedInVain = new AtomicLong();

    private Main() {
        for (int i = 0; i < ACCOUNTS; i++) {
            accounts[i] = new Account(i, OPENING_BALANCE);
        }
    }

    private void transfer(int seed, CountDownLatch start) throws InterruptedException {
        Random random = new Random(seed);
        start.countDown();
        start.await();
        for (int i = 0; i < TRANSFERS; i++) {
            Account from = accounts[random.nextInt(ACCOUNTS)];
            Account to = accounts[random.nextInt(ACCOUNTS)];
            long amount = 1 + random.nextInt(300);
            if (from.withdraw(amount, 2)) {
                to.deposit(amount);
            } else {
                waitedInVain.incrementAndGet();
            }
            touched.computeIfAbsent(from.number, n -> new LongAdder()).increment();
            touched.computeIfAbsent(to.number, n -> new LongAdder()).increment();
            journal.write(amount);
            byte[] garbage = new byte[4096 + random.nextInt(4096)];
            garbage[0] = 1;
        }
    }

    private long[] readJournal() throws InterruptedException {
        long count = 0;
        long sum = 0;
        for (Long entry; (entry = journal.read()) != null; count++) {
            sum += entry;
        }
        return new long[] {count, sum};
    }

    private void run() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(THREADS + 2);
        CountDownLatch start = new CountDownLatch(THREADS);
        List<Future<?>> writers = new ArrayList<>();
        List<Future<long[]>> readers = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            int seed = i;
            writers.add(pool.submit(() -> {
                transfer(seed, start);
                return null;
            }));
        }
        for (int i = 0; i < 2; i++) {
            readers.add(pool.submit(this::readJournal));
        }
        for (Future<?> writer : writers) {
            writer.get();
        }
        journal.close();
        long entries = 0;
        long sum = 0;
        for (Future<long[]> reader : readers) {
            entries += reader.get()[0];
            sum += reader.get()[1];
        }
        pool.shutdown();
        if (!pool.awaitTermination(5, TimeUnit.MINUTES)) {
            throw new IllegalStateException("the pool did not end");
        }
        System.gc();

        long money = 0;
        for (Account account : accounts) {
            money += account.balance();
        }
        long touches = touched.values().stream().mapToLong(LongAdder::sum).sum();
        System.out.println("money " + money);
        System.out.println("journal " + entries + " " + sum);
        System.out.println("touches " + touches);
        System.out.println("threads " + shortLivedThreads());
    }

    /** Threads that start, meet once in a monitor and end: creation and exit take locks of the virtual machine. */
    private static int shortLivedThreads() throws InterruptedException {
        Object monitor = new Object();
        int[] count = {0};
        for (int wave = 0; wave < 20; wave++) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 25; i++) {
                Thread thread = new Thread(() -> {
                    synchronized (monitor) {
                        count[0]++;
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        return count[0];
    }

    public static void main(String[] args) throws Exception {
        new Main().run();
    }
}
