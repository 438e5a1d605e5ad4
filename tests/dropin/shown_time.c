// A library shows the program times of its own (libfaketime): waits have to last as long as the program asks
// for. How long they last is measured by the system call, which shows the kernel's time. Arguments: which
// waits, all, or those that libfaketime itself knows (known), or none but plain locks, for a clock that
// stands still (still).
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER, second = PTHREAD_COND_INITIALIZER, monotonic;
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

static const struct timespec *in(clockid_t clock) {
    static __thread struct timespec soon;
    soon = after_ms(clock, 300);
    return &soon;
}

// All of them at once, each with a mutex of its own; `m` and `l` are held.
enum { KNOWN_WAITS = 1, WAITS = 7 };

static void *waits(void *number) {
    struct timespec past = in_the_past();
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    OK(pthread_mutex_lock(&own));
    switch ((long)number) {
    case 0:
        LASTS(pthread_cond_timedwait(&c, &own, in(CLOCK_REALTIME)));
        CALL(pthread_cond_timedwait(&c, &own, &past), ETIMEDOUT);
        break;
    case 1: LASTS(pthread_cond_timedwait(&monotonic, &own, in(CLOCK_MONOTONIC))); break;
    case 2: LASTS(pthread_cond_clockwait(&second, &own, CLOCK_MONOTONIC, in(CLOCK_MONOTONIC))); break;
    case 3: LASTS(pthread_mutex_timedlock(&m, in(CLOCK_REALTIME))); break;
    case 4: LASTS(pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, in(CLOCK_MONOTONIC))); break;
    case 5: LASTS(pthread_rwlock_timedrdlock(&l, in(CLOCK_REALTIME))); break;
    default: LASTS(pthread_rwlock_clockwrlock(&l, CLOCK_MONOTONIC, in(CLOCK_MONOTONIC)));
    }
    OK(pthread_mutex_unlock(&own));
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
    pthread_condattr_t attribute;
    OK(pthread_condattr_init(&attribute));
    OK(pthread_condattr_setclock(&attribute, CLOCK_MONOTONIC));
    OK(pthread_cond_init(&monotonic, &attribute));
    OK(pthread_mutex_lock(&m));
    OK(pthread_rwlock_wrlock(&l));
    STAGE("waits");
    crowd(strcmp(which, "all") == 0 ? WAITS : KNOWN_WAITS, waits);
    if (strcmp(which, "all") == 0) {
        STAGE("a mutex, until a time that has passed");
        struct timespec past = in_the_past();
        CALL(pthread_mutex_timedlock(&m, &past), ETIMEDOUT);
    }
    OK(pthread_rwlock_unlock(&l));
    OK(pthread_mutex_unlock(&m));
    return 0;
}
