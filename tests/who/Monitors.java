/** Two threads that take two monitors in opposite orders. */
final class Monitors {
    private static final Object first = new Object();
    private static final Object second = new Object();
    private static final java.util.concurrent.CyclicBarrier both = new java.util.concurrent.CyclicBarrier(2);

    private static void take(Object one, Object other) {
        synchronized (one) {
            try {
                both.await();
            } catch (Exception error) {
                throw new AssertionError(error);
            }
            synchronized (other) {
                System.out.println("never");
            }
        }
    }

    public static void main(String[] args) {
        new Thread(() -> take(first, second), "taker-1").start();
        new Thread(() -> take(second, first), "taker-2").start();
        System.out.println("ready");
    }
}
