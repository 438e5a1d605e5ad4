import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;

/** Six tellers share one monitor; an auditor sleeps inside it. Prints what the JVM's own accounting says of each thread. */
public class Bank {
    static final Object audit = new Object();
    static final StringBuilder log = new StringBuilder();

    static void logLine(int number) {
        synchronized (audit) {
            for (int k = 0; k < 40; k++) log.append(number);
            if (log.length() > 100_000) log.setLength(0);
        }
    }

    static void nap() throws InterruptedException {
        synchronized (audit) {
            Thread.sleep(2);
        }
    }

    interface Step {
        void run() throws InterruptedException;
    }

    /** What the JVM says of the calling thread, as it ends. */
    static void report(ThreadMXBean bean, long begin) {
        ThreadInfo info = bean.getThreadInfo(Thread.currentThread().getId());
        System.out.printf("%s: blocked at monitors %d ms of %d ms%n", info.getThreadName(), info.getBlockedTime(),
            (System.nanoTime() - begin) / 1_000_000);
    }

    static Thread start(String name, long end, ThreadMXBean bean, Step step) {
        Thread thread = new Thread(() -> {
            long begin = System.nanoTime();
            try {
                while (System.nanoTime() < end) step.run();
            } catch (InterruptedException interrupted) {
                return;
            }
            report(bean, begin);
        }, name);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        ThreadMXBean bean = ManagementFactory.getThreadMXBean();
        bean.setThreadContentionMonitoringEnabled(true);
        long end = System.nanoTime() + Integer.parseInt(arguments[0]) * 1_000_000_000L;
        Thread[] threads = new Thread[7];
        int[] counts = new int[6];
        for (int teller = 0; teller < 6; teller++) {
            int own = teller;
            threads[teller] = start("teller-" + own, end, bean, () -> logLine(counts[own]++));
        }
        threads[6] = start("auditor", end, bean, () -> {
            nap();
            Thread.sleep(5);
        });
        for (Thread thread : threads) thread.join();
    }
}
