// Four threads take turns at a lock of the program's own, which sleeps by the `syscall` instruction, until standard
// input ends. No function of the C library is on the way, nor in a static program, so it builds with any C library.
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT 128 /* FUTEX_WAIT_PRIVATE */
#define WAKE 129 /* FUTEX_WAKE_PRIVATE */

static int own_word;
static int over;

static long futex(int *word, int operation, int value) {
#if defined(__x86_64__)
    long result;
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"((long)SYS_futex), "D"(word), "S"((long)operation), "d"((long)value), "r"(timeout)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_futex;
    register long first __asm__("x0") = (long)word;
    register long second __asm__("x1") = operation, third __asm__("x2") = value, fourth __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(first) : "r"(number), "r"(second), "r"(third), "r"(fourth) : "memory");
    return first;
#else
    return syscall(SYS_futex, word, operation, value, NULL);
#endif
}

__attribute__((noinline)) static void enter(void) {
    int free = 0;
    if (__atomic_compare_exchange_n(&own_word, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) return;
    while (__atomic_exchange_n(&own_word, 2, __ATOMIC_ACQUIRE)) futex(&own_word, WAIT, 2);
}

__attribute__((noinline)) static void leave(void) {
    if (__atomic_exchange_n(&own_word, 0, __ATOMIC_RELEASE) == 2) futex(&own_word, WAKE, 1);
}

static void *work(void *unused) {
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        enter();
        usleep(1000);
        leave();
    }
    return unused;
}

int main(void) {
    pthread_t threads[4];
    char byte;
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL)) abort();
    }
    while (read(0, &byte, 1) > 0) {
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    return 0;
}
