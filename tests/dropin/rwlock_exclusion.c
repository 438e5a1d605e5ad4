// Readers share and writers exclude, between every call that takes a readers-writer lock. A call that escapes
// to another implementation than its sisters breaks that at once. Each kind; more threads than CPUs; and
// somebody shares.
#include "rwlock.h"

enum { THREADS = 8, ROUNDS = 2500, WAYS = 8 };

static pthread_rwlock_t l;
// Written by the writer alone; each half checks the other, so that a second one, or a reader beside it,
// shows.
static volatile long first, second;
static int readers, writers;
static pthread_barrier_t barrier;

static int take(int way, int writes, unsigned tries) {
    struct timespec real = after_us(CLOCK_REALTIME, tries % 200),
    mono = after_us(CLOCK_MONOTONIC, tries % 200);
    struct timespec far = far_away(CLOCK_REALTIME);
    switch (way) {
    case 0: return writes ? pthread_rwlock_trywrlock(&l) : pthread_rwlock_tryrdlock(&l);
    case 1: return writes ? pthread_rwlock_timedwrlock(&l, &real) : pthread_rwlock_timedrdlock(&l, &real);
    case 2:
        return writes ? pthread_rwlock_clockwrlock(&l, CLOCK_MONOTONIC, &mono)
                      : pthread_rwlock_clockrdlock(&l, CLOCK_MONOTONIC, &mono);
    case 3: return writes ? pthread_rwlock_timedwrlock(&l, &far) : pthread_rwlock_timedrdlock(&l, &far);
    default: return writes ? pthread_rwlock_wrlock(&l) : pthread_rwlock_rdlock(&l);
    }
}

static void *worker(void *number) {
    unsigned random = 2654435761u * (unsigned)((long)number + 1);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        int way = (int)(random >> 8) % WAYS, writes = random >> 28 < 4;
        for (unsigned tries = 0;; tries++) {
            int result = take(way, writes, tries);
            if (result == 0) break;
            CHECK(result == EBUSY || result == ETIMEDOUT, "way %d: got %d (%s)", way, result,
                  strerror(result));
            CHECK(way < 3, "way %d: got %d (%s)", way, result, strerror(result));
            if (tries % 16 == 15) sched_yield();
        }
        if (writes) {
            CHECK(__atomic_add_fetch(&writers, 1, __ATOMIC_RELAXED) == 1, "two writers inside");
            CHECK(__atomic_load_n(&readers, __ATOMIC_RELAXED) == 0, "a reader inside with the writer");
            long v = first;
            CHECK(v == second, "two writers inside");
            first = v + 1;
            if (i % 64 == 0) sched_yield();
            second = v + 1;
            __atomic_sub_fetch(&writers, 1, __ATOMIC_RELAXED);
        } else {
            __atomic_add_fetch(&readers, 1, __ATOMIC_RELAXED);
            CHECK(__atomic_load_n(&writers, __ATOMIC_RELAXED) == 0, "a writer inside with a reader");
            long v = first;
            if (i % 64 == 0) sched_yield();
            CHECK(v == second && v == first, "a writer inside with a reader");
            __atomic_sub_fetch(&readers, 1, __ATOMIC_RELAXED);
        }
        OK(pthread_rwlock_unlock(&l));
    }
    return number;
}

// All of them are inside at once, or none gets out.
static pthread_barrier_t inside;
static void *shares(void *unused) {
    OK(pthread_rwlock_rdlock(&l));
    pthread_barrier_wait(&inside);
    OK(pthread_rwlock_unlock(&l));
    return unused;
}

int main(void) {
    limit_seconds(100);
    for (int k = 0; k < RWLOCK_KINDS; k++) {
        CASE(rwlock_kinds[k].name);
        make_rwlock(&l, &rwlock_kinds[k]);
        STAGE("exclusion");
        pthread_barrier_init(&barrier, NULL, THREADS);
        crowd(THREADS, worker);
        CHECK(first == second && readers == 0 && writers == 0, "somebody is still inside");
        STAGE("sharing");
        pthread_barrier_init(&inside, NULL, THREADS);
        crowd(THREADS, shares);
        IN_AND_OUT(pthread_rwlock_trywrlock(&l), &l);
        OK(pthread_rwlock_destroy(&l));
    }
    return 0;
}
