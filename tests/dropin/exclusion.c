// Mutual exclusion between every call that takes a mutex: lock, trylock, both timed ones, C11's, the way back
// from a condition variable, and recursive use. A call that escapes to another implementation than its
// sisters breaks it at once. Each type; more threads than CPUs.
#include "check.h"

enum { THREADS = 8, ROUNDS = 4000, WAYS = 10 };

static pthread_mutex_t m;
static pthread_cond_t c;
// Written by the holder alone; each half checks the other, so that a second holder shows.
static volatile long first, second;
static volatile int inside;
static pthread_barrier_t barrier;
static const struct mutex_kind *kind;

static void take(int way) {
    int result;
    for (unsigned tries = 0;; tries++) {
        struct timespec t;
        switch (way) {
        case 0: OK(pthread_mutex_lock(&m)); return;
        case 1: result = pthread_mutex_trylock(&m); break;
        case 2: t = after_us(CLOCK_REALTIME, tries % 200); result = pthread_mutex_timedlock(&m, &t); break;
        case 3: t = after_us(CLOCK_MONOTONIC, tries % 200);
            result = pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &t); break;
        case 4: t = far_away(CLOCK_REALTIME); OK(pthread_mutex_clocklock(&m, CLOCK_REALTIME, &t)); return;
        case 5: CHECK(mtx_lock((mtx_t *)&m) == thrd_success, "mtx_lock"); return;
        case 6: result = mtx_trylock((mtx_t *)&m) == thrd_success ? 0 : EBUSY; break;
        case 7: t = after_us(CLOCK_REALTIME, 50);
            result = mtx_timedlock((mtx_t *)&m, &t) == thrd_success ? 0 : EBUSY; break;
        case 8:
            // Out and in again through the condition variable.
            OK(pthread_mutex_lock(&m));
            t = after_us(CLOCK_REALTIME, 20);
            result = pthread_cond_timedwait(&c, &m, &t);
            CHECK(result == 0 || result == ETIMEDOUT, "timedwait: %d", result);
            return;
        default:
            OK(pthread_mutex_lock(&m));
            t = after_us(CLOCK_MONOTONIC, 20);
            result = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &t);
            CHECK(result == 0 || result == ETIMEDOUT, "clockwait: %d", result);
            return;
        }
        if (result == 0) return;
        CHECK(result == EBUSY || result == ETIMEDOUT, "way %d: got %d (%s)", way, result, strerror(result));
        if (tries % 16 == 15) sched_yield();
    }
}

static void *worker(void *number) {
    long id = (long)number, done = 0;
    unsigned random = 2654435761u * (unsigned)(id + 1);
    pthread_barrier_wait(&barrier);
    while (done < ROUNDS) {
        random = random * 1664525u + 1013904223u;
        // Waiting ways are dear: one round in sixteen.
        int way = (int)(random >> 8) % (random >> 28 == 0 ? WAYS : WAYS - 2);
        take(way);
        CHECK(inside == 0, "way %d: taken while thread %d is inside", way, inside);
        inside = (int)id + 1;
        long value = first;
        CHECK(value == second, "way %d: the halves differ: %ld and %ld", way, value, second);
        first = value + 1;
        if (kind->type == PTHREAD_MUTEX_RECURSIVE && random & 0x40) {
            take(way % 8);
            OK(pthread_mutex_unlock(&m));
        }
        if (random >> 24 == 7) sched_yield();
        second = value + 1;
        CHECK(inside == (int)id + 1, "way %d: thread %d came in as well", way, inside);
        inside = 0;
        if (random & 0x80) OK(pthread_cond_signal(&c));
        if (random & 0x100) OK(pthread_mutex_unlock(&m));
        else CHECK(mtx_unlock((mtx_t *)&m) == thrd_success, "mtx_unlock");
        done++;
    }
    return NULL;
}

int main(void) {
    limit_seconds(60);
    STAGE("exclusion");
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int k = 0; k < MUTEX_KINDS; k++) {
        if (mutex_kinds[k].make == MAKE_NULL || mutex_kinds[k].make == MAKE_PLAIN_ATTRIBUTE) continue;
        kind = &mutex_kinds[k];
        CASE(kind->name);
        make_mutex(&m, kind);
        OK(pthread_cond_init(&c, NULL));
        first = second = 0;
        crowd(THREADS, worker);
        CHECK(first == (long)THREADS * ROUNDS && second == first, "%ld of %ld rounds counted", first,
              (long)THREADS * ROUNDS);
        OK(pthread_cond_destroy(&c));
        OK(pthread_mutex_destroy(&m));
    }
    return 0;
}
