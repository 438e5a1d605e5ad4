/** Threads that wait for a monitor, and sum up by themselves how long. Arguments: how often each takes it. */
final class Contended {
    private static final Object busy = new Object();
    private static final java.util.concurrent.atomic.AtomicLong waited = new java.util.concurrent.atomic.AtomicLong();

    private static void work(int rounds) {
        long sum = 0;
        for (int round = 0; round < rounds; round++) {
            long begin = System.nanoTime();
            synchronized (busy) {
                sum += System.nanoTime() - begin;
                try {
                    Thread.sleep(1);
                } catch (InterruptedException error) {
                    throw new AssertionError(error);
                }
            }
        }
        waited.addAndGet(sum);
    }

    public static void main(String[] args) throws InterruptedException {
        int rounds = Integer.parseInt(args[0]);
        Thread[] threads = new Thread[4];
        for (int n = 0; n < threads.length; n++) {
            threads[n] = new Thread(() -> work(rounds), "worker-" + n);
            threads[n].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(waited);
    }
}
