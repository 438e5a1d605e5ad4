// Three threads sleep in futex calls until standard input ends, as those of a language do that has locks of its
// own. With the argument "signal" one of them sleeps at a word of a condition variable, as inside
// pthread_cond_signal, with a mutex for which the others wait.
#include <linux/futex.h>

static int own_word;
static int *word = &own_word;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int held;

static long futex(int operation, int value) {
    // Not through `syscall`, which may be watched.
#if defined(__x86_64__)
    long result, number = SYS_futex;
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(word), "S"((long)operation), "d"((long)value), "r"(timeout)
                     : "rcx", "r11", "memory");
#else
    register long number __asm__("x8") = SYS_futex, result __asm__("x0") = (long)word;
    register long second __asm__("x1") = operation, third __asm__("x2") = value, timeout __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(number), "r"(second), "r"(third), "r"(timeout) : "memory");
#endif
    return result;
}

static void *waiter(void *unused) {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) futex(FUTEX_WAIT_PRIVATE, 0);
    return unused;
}

static void *signaller(void *unused) {
    MUST(pthread_mutex_lock(&lock));
    MUST(pthread_cond_signal(&cond));
    __atomic_store_n(&held, 1, __ATOMIC_RELEASE);
    waiter(NULL);
    MUST(pthread_mutex_unlock(&lock));
    return unused;
}

static void *locker(void *unused) {
    while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE)) usleep(200);
    MUST(pthread_mutex_lock(&lock));
    MUST(pthread_mutex_unlock(&lock));
    return unused;
}

int main(int argc, char **argv) {
    int signals = argc > 1 && !strcmp(argv[1], "signal");
    pthread_t threads[3];
    char byte;
    // Where glibc counts those who have yet to leave a group of waiters.
    if (signals) word = (int *)(void *)((char *)&cond + 16);
    for (int i = 0; i < 3; i++) threads[i] = spawn(!signals ? waiter : i == 0 ? signaller : locker, NULL);
    while (read(0, &byte, 1) > 0) {
    }
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    futex(FUTEX_WAKE_PRIVATE, INT_MAX);
    for (int i = 0; i < 3; i++) join(threads[i]);
    return 0;
}
