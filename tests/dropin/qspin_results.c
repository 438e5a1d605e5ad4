// Results of every call on a spinlock: private and process-shared, made from garbage, in bytes with
// neighbours, by one thread and by two; and words that glibc made, which a program that was not preloaded may
// have left in its memory.
#include "check.h"

struct place {
    unsigned char before[12];
    pthread_spinlock_t lock;
    unsigned char after[12];
};

static void fill(struct place *p) { memset(p, 0xa5, sizeof *p); }

static void untouched(const struct place *p) {
    for (unsigned i = 0; i < sizeof p->before; i++)
        CHECK(p->before[i] == 0xa5 && p->after[i] == 0xa5, "a byte beside the lock was written");
}

static void *trylock(void *lock) {
    errno = ERRNO_SENTINEL;
    int result = pthread_spin_trylock((pthread_spinlock_t *)lock);
    CHECK(errno == ERRNO_SENTINEL, "trylock changed errno to %d", errno);
    if (result == 0) OK(pthread_spin_unlock((pthread_spinlock_t *)lock));
    return (void *)(long)result;
}

static void *lock_and_unlock(void *lock) {
    OK(pthread_spin_lock((pthread_spinlock_t *)lock));
    OK(pthread_spin_unlock((pthread_spinlock_t *)lock));
    return NULL;
}

static void elsewhere(pthread_spinlock_t *lock, int want) {
    long got = (long)join(spawn(trylock, (void *)lock));
    CHECK(got == want, "trylock in another thread: got %ld, expected %d", got, want);
}

static void one_life(pthread_spinlock_t *lock) {
    for (int i = 0; i < 3; i++) {
        if (i == 1) OK(pthread_spin_trylock(lock));
        else OK(pthread_spin_lock(lock));
        CALL(pthread_spin_trylock(lock), EBUSY);
        CALL(pthread_spin_trylock(lock), EBUSY);
        elsewhere(lock, EBUSY);
        // Somebody waits; who it is does not matter to the results.
        pthread_t waiter = spawn(lock_and_unlock, (void *)lock);
        sched_yield();
        CALL(pthread_spin_trylock(lock), EBUSY);
        OK(pthread_spin_unlock(lock));
        join(waiter);
        elsewhere(lock, 0);
    }
}

// --- exclusion

enum { THREADS = 3, ROUNDS = 1500 };
static pthread_spinlock_t *contended;
static volatile long first, second;

static void *adds(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        if ((i + (long)number) % 4 == 0)
            for (int result; (result = pthread_spin_trylock(contended)) != 0;) {
                CHECK(result == EBUSY, "trylock: %d", result);
                sched_yield();
            }
        else
            OK(pthread_spin_lock(contended));
        ALONE(first, second, for (volatile int spin = 0; spin < i % 32; spin++) continue);
        OK(pthread_spin_unlock(contended));
    }
    return NULL;
}

static void exclusion(pthread_spinlock_t *lock) {
    contended = lock;
    first = second = 0;
    crowd(THREADS, adds);
    CHECK(first == THREADS * ROUNDS && second == first, "%ld of %d rounds", first, THREADS * ROUNDS);
}

int main(void) {
    limit_seconds(60);
    static const int shared[] = {PTHREAD_PROCESS_PRIVATE, PTHREAD_PROCESS_SHARED};
    for (int s = 0; s < 2; s++) {
        CASE(s ? "process-shared" : "private");
        struct place place;
        fill(&place);
        STAGE("from garbage");
        for (int life = 0; life < 3; life++) {
            OK(pthread_spin_init(&place.lock, shared[s]));
            one_life(&place.lock);
            OK(pthread_spin_destroy(&place.lock));
        }
        STAGE("exclusion");
        OK(pthread_spin_init(&place.lock, shared[s]));
        exclusion(&place.lock);
        // One that has been contended all the time has the results of a young one, and can be moved while it
        // is free.
        STAGE("after contention");
        one_life(&place.lock);
        struct place other;
        fill(&other);
        memcpy((void *)&other.lock, (const void *)&place.lock, sizeof other.lock);
        OK(pthread_spin_destroy(&place.lock));
        one_life(&other.lock);
        exclusion(&other.lock);
        OK(pthread_spin_destroy(&other.lock));
        untouched(&place);
        untouched(&other);
        STAGE("made anew while it was held");
        OK(pthread_spin_init(&place.lock, shared[s]));
        OK(pthread_spin_lock(&place.lock));
        OK(pthread_spin_init(&place.lock, shared[!s]));
        one_life(&place.lock);
        OK(pthread_spin_destroy(&place.lock));
        untouched(&place);
    }
#if defined(__x86_64__) || defined(__i386__)
    // glibc's own words on these machines: 1 is free, 0 is held, and below it more have tried.
    CASE("glibc's words");
    struct place place;
    fill(&place);
    STAGE("free");
    place.lock = 1;
    one_life(&place.lock);
    exclusion(&place.lock);
    OK(pthread_spin_destroy(&place.lock));
    STAGE("held");
    static const int held[] = {0, -1, -300, -30000};
    for (unsigned i = 0; i < sizeof held / sizeof held[0]; i++) {
        place.lock = held[i];
        CALL(pthread_spin_trylock(&place.lock), EBUSY);
        elsewhere(&place.lock, EBUSY);
        pthread_t waiter = spawn(lock_and_unlock, (void *)&place.lock);
        sched_yield();
        OK(pthread_spin_unlock(&place.lock));
        join(waiter);
        one_life(&place.lock);
        OK(pthread_spin_destroy(&place.lock));
    }
    untouched(&place);
#endif
    return 0;
}
