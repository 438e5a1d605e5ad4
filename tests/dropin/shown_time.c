// A library shows the program times of its own (libfaketime): waits have to last as long as the program asks
// for. How long they last is measured by the system call, which shows the kernel's time. Arguments: which
// waits, all, or those that libfaketime itself knows (known), or none but plain locks, for a clock that
// stands still (still).
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER, monotonic;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static const char *which;

static double kernels_time(void) {
    struct timespec t;
    MUST((int)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t));
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Less than what is asked for by what libfaketime loses when it calculates.
#define LASTS(call)                                                                                          \
    do {                                                                                                     \
        double begin = kernels_time();                                                                       \
        CALL(call, ETIMEDOUT);                                                                               \
        double took = kernels_time() - begin;                                                                \
        CHECK(took > 0.29, "%s: timed out after %.3f s, asked for 0.3", #call, took);                        \
    } while (0)

static struct timespec soon;
static const struct timespec *in(clockid_t clock) {
    soon = after_ms(clock, 300);
    return &soon;
}

static void *waits(void *unused) {
    STAGE("a mutex that is held");
    LASTS(pthread_mutex_timedlock(&m, in(CLOCK_REALTIME)));
    LASTS(pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, in(CLOCK_MONOTONIC)));
    STAGE("a readers-writer lock that is held");
    LASTS(pthread_rwlock_timedrdlock(&l, in(CLOCK_REALTIME)));
    LASTS(pthread_rwlock_clockwrlock(&l, CLOCK_MONOTONIC, in(CLOCK_MONOTONIC)));
    STAGE("a mutex, until a time that has passed");
    struct timespec past = in_the_past();
    CALL(pthread_mutex_timedlock(&m, &past), ETIMEDOUT);
    return NULL;
}

static long sum;
static void *adds(void *unused) {
    for (int i = 0; i < 20000; i++) {
        OK(pthread_mutex_lock(&m));
        sum++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(60);
    CHECK(argc == 2, "usage: shown_time all|known|still");
    which = argv[1];
    crowd(4, adds);
    CHECK(sum == 80000, "%ld of 80000 additions", sum);
    if (strcmp(which, "still") == 0) return 0;
    STAGE("the program is shown another time");
    struct timespec kernels, shown = now(CLOCK_REALTIME);
    MUST((int)syscall(SYS_clock_gettime, CLOCK_REALTIME, &kernels));
    CHECK(labs(shown.tv_sec - kernels.tv_sec) > 86400, "libfaketime has no effect");
    STAGE("a condition variable");
    OK(pthread_mutex_lock(&m));
    LASTS(pthread_cond_timedwait(&c, &m, in(CLOCK_REALTIME)));
    struct timespec past = in_the_past();
    CALL(pthread_cond_timedwait(&c, &m, &past), ETIMEDOUT);
    if (strcmp(which, "all") == 0) {
        pthread_condattr_t attribute;
        OK(pthread_condattr_init(&attribute));
        OK(pthread_condattr_setclock(&attribute, CLOCK_MONOTONIC));
        OK(pthread_cond_init(&monotonic, &attribute));
        LASTS(pthread_cond_timedwait(&monotonic, &m, in(CLOCK_MONOTONIC)));
        LASTS(pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, in(CLOCK_MONOTONIC)));
        OK(pthread_rwlock_wrlock(&l));
        join(spawn(waits, NULL));
        OK(pthread_rwlock_unlock(&l));
    }
    OK(pthread_mutex_unlock(&m));
    return 0;
}
