// poundlock_mutex_t: exclusion, results, deadlines, hand-over, and where it may lie.
#include "check.h"

#include <assert.h>

static_assert(sizeof(poundlock_mutex_t) <= sizeof(pthread_mutex_t), "no larger than pthread's");
static_assert(sizeof(poundlock_recursive_mutex_t) <= sizeof(pthread_mutex_t), "no larger than pthread's");
static_assert(sizeof(poundlock_spinlock_t) <= sizeof(pthread_spinlock_t), "no larger than pthread's");
static_assert(sizeof(poundlock_cond_t) <= sizeof(pthread_cond_t), "no larger than pthread's");
static_assert(sizeof(poundlock_rwlock_t) <= sizeof(pthread_rwlock_t), "no larger than pthread's");

enum { THREADS = 4, ROUNDS = 20000 };

static poundlock_mutex_t mutex = POUNDLOCK_MUTEX_INITIALIZER;
static long counter;
static volatile pid_t waiter;

// Before main, in a program in which nothing has been initialised.
__attribute__((constructor)) static void early(void) {
    if (poundlock_mutex_lock(&mutex) != 0) abort();
    counter = 1;
    if (poundlock_mutex_unlock(&mutex) != 0) abort();
}

static void *count(void *unused) {
    (void)unused;
    struct timespec far = far_away(CLOCK_MONOTONIC);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 == 0) {
            OK(poundlock_mutex_lock(&mutex));
        } else if (i % 3 == 1) {
            OK(poundlock_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &far));
        } else {
            for (int result; (result = poundlock_mutex_trylock(&mutex)) != 0; sched_yield())
                CHECK(result == EBUSY, "trylock: %d", result);
        }
        counter++;
        OK(poundlock_mutex_unlock(&mutex));
    }
    return NULL;
}

static void *try_busy(void *unused) {
    CALL(poundlock_mutex_trylock(&mutex), EBUSY);
    GIVES_UP(poundlock_mutex_clocklock, &mutex);
    return unused;
}

static void *wait_for_it(void *unused) {
    announce(&waiter);
    OK(poundlock_mutex_lock(&mutex));
    OK(poundlock_mutex_unlock(&mutex));
    // It was no cancellation point; this is one.
    pthread_testcancel();
    return unused;
}

static void results(void) {
    STAGE("results");
    OK(poundlock_mutex_trylock(&mutex));
    CALL(poundlock_mutex_destroy(&mutex), EBUSY);
    CALL(poundlock_mutex_trylock(&mutex), EBUSY);
    join(spawn(try_busy, NULL));
    OK(poundlock_mutex_unlock(&mutex));
    // A free mutex is locked whatever the time, unless it is none.
    for (int i = 0; i < CLOCKS; i++) {
        struct timespec past = in_the_past();
        OK(poundlock_mutex_clocklock(&mutex, clocks[i], &past));
        OK(poundlock_mutex_unlock(&mutex));
    }
    REFUSES(poundlock_mutex_clocklock, &mutex);
    OK(poundlock_mutex_destroy(&mutex));
}

static void memory(void) {
    STAGE("memory");
    poundlock_mutex_t *fresh = (poundlock_mutex_t *)malloc(sizeof *fresh);
    memset(fresh, 0xa5, sizeof *fresh);
    OK(poundlock_mutex_init(fresh));
    OK(poundlock_mutex_lock(fresh));
    OK(poundlock_mutex_unlock(fresh));
    // Copied while it is free.
    poundlock_mutex_t copy = *fresh;
    free(fresh);
    OK(poundlock_mutex_trylock(&copy));
    OK(poundlock_mutex_unlock(&copy));
    poundlock_mutex_t *zero = (poundlock_mutex_t *)calloc(1, sizeof *zero);
    OK(poundlock_mutex_trylock(zero));
    OK(poundlock_mutex_unlock(zero));
    OK(poundlock_mutex_destroy(zero));
    free(zero);
}

static void handed_over(void) {
    STAGE("a sleeper is woken, and not cancelled");
    OK(poundlock_mutex_lock(&mutex));
    pthread_t thread = spawn(wait_for_it, NULL);
    await_asleep(&waiter);
    MUST(pthread_cancel(thread));
    OK(poundlock_mutex_unlock(&mutex));
    CHECK(join(thread) == PTHREAD_CANCELED, "the request was lost");
    OK(poundlock_mutex_trylock(&mutex));
    OK(poundlock_mutex_unlock(&mutex));
}

int main(void) {
    limit_seconds(LIMIT);
    CHECK(counter == 1, "the constructor did not run");
    results();
    memory();
    handed_over();
    STAGE("exclusion");
    crowd(THREADS, count);
    CHECK(counter == 1 + (long)THREADS * ROUNDS, "lost %ld of %ld", 1 + (long)THREADS * ROUNDS - counter,
          1 + (long)THREADS * ROUNDS);
    return 0;
}
