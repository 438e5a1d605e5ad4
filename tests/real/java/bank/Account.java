package bank;

/** Money under the object's own monitor. */
final class Account {
    final int number;
    private long balance;

    Account(int number, long balance) {
        this.number = number;
        this.balance = balance;
    }

    synchronized long balance() {
        return balance;
    }

    synchronized void deposit(long amount) {
        balance += amount;
        notifyAll();
    }

    /** Waits until the account holds {@code amount}; false if that has not come true after {@code millis}. */
    synchronized boolean withdraw(long amount, long millis) throws InterruptedException {
        long end = System.nanoTime() + millis * 1_000_000;
        while (balance < amount) {
            long left = (end - System.nanoTime()) / 1_000_000;
            if (left <= 0) {
                return false;
            }
            wait(left);
        }
        balance -= amount;
        return true;
    }
}
