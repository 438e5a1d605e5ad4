// Three threads sleep in futex calls of their own until standard input ends, as those of a language do that
// has locks of its own.
#include <linux/futex.h>

static int word;

static long futex(int operation, int value) {
    // Not through `syscall`, which may be watched.
    long result, number = SYS_futex;
#if defined(__x86_64__)
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(&word), "S"((long)operation), "d"((long)value), "r"(timeout)
                     : "rcx", "r11", "memory");
#else
    result = syscall(number, &word, operation, value, NULL);
#endif
    return result;
}

static void *waiter(void *unused) {
    while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0) futex(FUTEX_WAIT_PRIVATE, 0);
    return unused;
}

int main(void) {
    pthread_t threads[3];
    char byte;
    for (int i = 0; i < 3; i++) threads[i] = spawn(waiter, NULL);
    while (read(0, &byte, 1) > 0) {
    }
    __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
    futex(FUTEX_WAKE_PRIVATE, INT_MAX);
    for (int i = 0; i < 3; i++) join(threads[i]);
    return 0;
}
