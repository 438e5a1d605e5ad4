// A program built with a sanitizer, whose runtime wraps the lock calls: the locks work, and ThreadSanitizer,
// which has to see every one of them, reports nothing. With an argument the program has a bug on purpose,
// which the runtime has to find: race (two threads write with nothing between them) or overflow (a write
// behind a block of memory).
#include "check.h"

enum { THREADS = 4, ROUNDS = 500 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t s;
static long under_mutex, under_recursive, under_rwlock, under_spinlock, racy;
static int turn, cleaned;

static void *works(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 == 0)
            while (pthread_mutex_trylock(&m) != 0) sched_yield();
        else OK(pthread_mutex_lock(&m));
        under_mutex++;
        OK(pthread_mutex_unlock(&m));
        OK(pthread_mutex_lock(&recursive));
        OK(pthread_mutex_lock(&recursive));
        under_recursive++;
        OK(pthread_mutex_unlock(&recursive));
        OK(pthread_mutex_unlock(&recursive));
        OK(pthread_rwlock_wrlock(&l));
        under_rwlock++;
        OK(pthread_rwlock_unlock(&l));
        OK(pthread_rwlock_rdlock(&l));
        CHECK(under_rwlock > 0, "nothing written");
        OK(pthread_rwlock_unlock(&l));
        OK(pthread_spin_lock(&s));
        under_spinlock++;
        OK(pthread_spin_unlock(&s));
    }
    OK(pthread_mutex_lock(&m));
    struct timespec far = far_away(CLOCK_REALTIME);
    while (turn != (int)(long)number)
        if (turn % 2) OK(pthread_cond_wait(&c, &m));
        else OK(pthread_cond_timedwait(&c, &m, &far));
    turn++;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void unlocks(void *unused) {
    cleaned++;
    OK(pthread_mutex_unlock(&m));
}

static volatile int waiting;
static void *waits_for_ever(void *unused) {
    OK(pthread_mutex_lock(&m));
    pthread_cleanup_push(unlocks, NULL);
    waiting = 1;
    for (;;) pthread_cond_wait(&c, &m);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *races(void *unused) {
    racy++;
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(100);
    OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    crowd(THREADS, works);
    long all = THREADS * ROUNDS;
    CHECK(under_mutex == all && under_recursive == all && under_rwlock == all && under_spinlock == all,
          "lost additions: %ld, %ld, %ld, %ld of %ld", under_mutex, under_recursive, under_rwlock,
          under_spinlock, all);
    STAGE("time-outs");
    OK(pthread_mutex_lock(&m));
    struct timespec soon = after_ms(CLOCK_REALTIME, 50);
    CALL(pthread_cond_timedwait(&c, &m, &soon), ETIMEDOUT);
    CHECK(reached(CLOCK_REALTIME, soon), "timed out early");
    OK(pthread_mutex_unlock(&m));
    STAGE("cancellation");
    pthread_t thread = spawn(waits_for_ever, NULL);
    for (int seen = 0; !seen;) {
        OK(pthread_mutex_lock(&m));
        seen = waiting;
        OK(pthread_mutex_unlock(&m));
    }
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED && cleaned == 1, "not cancelled");
    STAGE("a child");
    IN_CHILD(60) {
        IN_AND_OUT(pthread_mutex_lock(&m), &m);
    }
    if (argc > 1 && strcmp(argv[1], "race") == 0) {
        crowd(2, races);
    }
    if (argc > 1 && strcmp(argv[1], "overflow") == 0) {
        volatile char *block = malloc(10);
        block[argc + 8] = 1;
    }
    return 0;
}
