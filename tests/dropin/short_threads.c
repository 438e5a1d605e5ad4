// Twenty thousand threads that live for a moment, each with locks of its own and contended ones. Whatever an
// implementation knows its threads by comes round again many times; a newcomer owns nothing that a dead
// thread held.
#include "check.h"

enum { BATCH = 8 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, r = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                       e = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, a = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long by_m, by_r, by_e, by_a, gone;

static void *lives_shortly(void *number) {
    long i = (long)number;
    OK(pthread_mutex_lock(&m));
    by_m++;
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_lock(&r));
    OK(pthread_mutex_lock(&r));
    by_r++;
    if (i % 4 == 0) sched_yield();
    OK(pthread_mutex_unlock(&r));
    OK(pthread_mutex_unlock(&r));
    OK(pthread_mutex_lock(&e));
    CALL(pthread_mutex_lock(&e), EDEADLK);
    by_e++;
    OK(pthread_mutex_unlock(&e));
    CALL(pthread_mutex_unlock(&e), EPERM);
    OK(pthread_mutex_lock(&a));
    by_a++;
    OK(pthread_mutex_unlock(&a));
    OK(pthread_mutex_lock(&m));
    gone++;
    OK(pthread_cond_signal(&c));
    OK(pthread_mutex_unlock(&m));
    if (i % 2) pthread_exit(NULL);
    return NULL;
}

static void *dies_holding(void *mutex) {
    OK(pthread_mutex_lock((pthread_mutex_t *)mutex));
    return NULL;
}

// A mutex whose owner has ended stays taken, and nobody is its owner: not the next thread with its stack
// either.
static void *meets_the_dead(void *mutex) {
    pthread_mutex_t *dead = (pthread_mutex_t *)mutex;
    struct timespec soon = after_us(CLOCK_MONOTONIC, 50);
    CALL(pthread_mutex_trylock(dead), EBUSY);
    CALL(pthread_mutex_unlock(dead), EPERM);
    CALL(pthread_mutex_clocklock(dead, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(90);
    long threads = argc > 1 ? atol(argv[1]) : 20000;
    STAGE("owners that ended");
    static pthread_mutex_t dead[2];
    make_mutex(&dead[0], &mutex_kinds[4]);
    make_mutex(&dead[1], &mutex_kinds[6]);
    for (int k = 0; k < 2; k++) {
        CASE(k ? "errorcheck" : "recursive");
        join(spawn(dies_holding, &dead[k]));
        for (int i = 0; i < 300; i++) join(spawn(meets_the_dead, &dead[k]));
        CALL(pthread_mutex_destroy(&dead[k]), EBUSY);
    }
    CASE("");
    STAGE("many short threads, joined");
    long started = 0;
    while (started < threads / 2) {
        pthread_t batch[BATCH];
        for (int i = 0; i < BATCH; i++) batch[i] = spawn(lives_shortly, (void *)started++);
        for (int i = 0; i < BATCH; i++) join(batch[i]);
    }
    STAGE("many short threads, detached");
    pthread_attr_t detached;
    MUST(pthread_attr_init(&detached));
    MUST(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    for (; started < threads; started++) {
        OK(pthread_mutex_lock(&m));
        while (started - gone >= BATCH) OK(pthread_cond_wait(&c, &m));
        OK(pthread_mutex_unlock(&m));
        pthread_t thread;
        MUST(pthread_create(&thread, &detached, lives_shortly, (void *)started));
    }
    OK(pthread_mutex_lock(&m));
    while (gone < started) OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    CHECK(by_m == started && by_r == started && by_e == started && by_a == started, "%ld %ld %ld %ld of %ld",
          by_m, by_r,
          by_e, by_a, started);
    STAGE("and the dead still own what they held");
    for (int k = 0; k < 2; k++) join(spawn(meets_the_dead, &dead[k]));
    return 0;
}
