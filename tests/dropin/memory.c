// No memory beyond the objects themselves: a million mutexes and as many condition variables, each used, and
// some thousands contended, add nothing to what the process has resident. Argument, if any: how many.
#include "check.h"
#include <malloc.h>

static long resident_kib(void) {
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "open: %s", strerror(errno));
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK(length > 0, "read: %s", strerror(errno));
    text[length] = 0;
    long total, resident;
    CHECK(sscanf(text, "%ld %ld", &total, &resident) == 2, "statm: %s", text);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static pthread_mutex_t *mutexes;
static pthread_cond_t *conds;
static volatile long turn;
enum { CONTENDED = 3000 };

// Two threads pass through the same mutexes, waiting for each other in each.
static void *passes(void *number) {
    long me = (long)number;
    for (long i = 0; i < CONTENDED; i++) {
        OK(pthread_mutex_lock(&mutexes[i * 7]));
        turn = turn + 1;
        if (i % 8 == me) sched_yield();
        OK(pthread_mutex_unlock(&mutexes[i * 7]));
        struct timespec soon = after_us(CLOCK_MONOTONIC, 10);
        if (i % 16 == 0) {
            OK(pthread_mutex_lock(&mutexes[i * 7]));
            int result = pthread_cond_clockwait(&conds[i * 7], &mutexes[i * 7], CLOCK_MONOTONIC, &soon);
            CHECK(result == 0 || result == ETIMEDOUT, "clockwait: %d", result);
            OK(pthread_mutex_unlock(&mutexes[i * 7]));
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(60);
    long n = argc > 1 ? atol(argv[1]) : 1000000;
    STAGE("set up");
    mutexes = (pthread_mutex_t *)malloc((size_t)n * sizeof *mutexes);
    conds = (pthread_cond_t *)malloc((size_t)n * sizeof *conds);
    CHECK(mutexes != NULL && conds != NULL, "out of memory");
    memset(mutexes, 0x11, (size_t)n * sizeof *mutexes);
    memset(conds, 0x11, (size_t)n * sizeof *conds);
    // What the first use of a lock, a thread and a wait needs once.
    for (long i = 0; i < CONTENDED * 7; i++) {
        OK(pthread_mutex_init(&mutexes[i], NULL));
        OK(pthread_cond_init(&conds[i], NULL));
    }
    for (int i = 0; i < 2; i++) {
        crowd(2, passes);
    }
    long before = resident_kib();
    STAGE("a million of each");
    for (long i = 0; i < n; i++) {
        OK(pthread_mutex_init(&mutexes[i], NULL));
        IN_AND_OUT(pthread_mutex_lock(&mutexes[i]), &mutexes[i]);
        OK(pthread_cond_init(&conds[i], NULL));
        OK(pthread_cond_signal(&conds[i]));
    }
    crowd(2, passes);
    struct timespec past = in_the_past();
    for (long i = 0; i < n; i += 16) {
        OK(pthread_mutex_lock(&mutexes[i]));
        CALL(pthread_cond_timedwait(&conds[i], &mutexes[i], &past), ETIMEDOUT);
        OK(pthread_mutex_unlock(&mutexes[i]));
    }
    long after = resident_kib();
    // A single byte for each would be two thousand KiB; arenas of the two threads are a few dozen.
    CHECK(after - before < 1000, "%ld mutexes and condition variables cost %ld KiB", n, after - before);
    STAGE("destroyed");
    for (long i = 0; i < n; i++) {
        OK(pthread_mutex_destroy(&mutexes[i]));
        OK(pthread_cond_destroy(&conds[i]));
    }
    return 0;
}
