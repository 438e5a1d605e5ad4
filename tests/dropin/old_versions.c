// A program linked long ago: it asks for GLIBC_2.2.5 of what has newer versions today, and for the names with
// leading underscores. What it locks by those is locked for all, and the other way round.
#include "check.h"

#if defined __x86_64__
#define OLD(alias, name) __asm__(".symver " #alias ", " #name "@GLIBC_2.2.5")
OLD(old_trylock, pthread_mutex_trylock);
OLD(old_timedlock, pthread_mutex_timedlock);
OLD(old_cond_init, pthread_cond_init);
OLD(old_cond_destroy, pthread_cond_destroy);
OLD(old_cond_wait, pthread_cond_wait);
OLD(old_cond_timedwait, pthread_cond_timedwait);
OLD(old_cond_signal, pthread_cond_signal);
OLD(old_cond_broadcast, pthread_cond_broadcast);
OLD(under_init, __pthread_mutex_init);
OLD(under_destroy, __pthread_mutex_destroy);
OLD(under_lock, __pthread_mutex_lock);
OLD(under_trylock, __pthread_mutex_trylock);
OLD(under_unlock, __pthread_mutex_unlock);
int old_trylock(pthread_mutex_t *);
int old_timedlock(pthread_mutex_t *, const struct timespec *);
int old_cond_init(pthread_cond_t *, const pthread_condattr_t *);
int old_cond_destroy(pthread_cond_t *);
int old_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int old_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int old_cond_signal(pthread_cond_t *);
int old_cond_broadcast(pthread_cond_t *);
int under_init(pthread_mutex_t *, const pthread_mutexattr_t *);
int under_destroy(pthread_mutex_t *);
int under_lock(pthread_mutex_t *);
int under_trylock(pthread_mutex_t *);
int under_unlock(pthread_mutex_t *);

static pthread_mutex_t m;
static pthread_cond_t c;
static volatile long first, second;
static int turn;

static void *adds(void *number) {
    for (int i = 0; i < 4000; i++) {
        struct timespec far = far_away(CLOCK_REALTIME);
        switch ((i + (int)(long)number) % 5) {
        case 0: OK(pthread_mutex_lock(&m)); break;
        case 1: OK(under_lock(&m)); break;
        case 2: OK(old_timedlock(&m, &far)); break;
        case 3:
            for (int result; (result = old_trylock(&m)) != 0; sched_yield())
                CHECK(result == EBUSY, "trylock: %d", result);
            break;
        default:
            for (int result; (result = under_trylock(&m)) != 0; sched_yield())
                CHECK(result == EBUSY, "trylock: %d", result);
        }
        ALONE(first, second, if (i % 64 == 0) sched_yield());
        if (i % 2) OK(pthread_mutex_unlock(&m));
        else OK(under_unlock(&m));
    }
    return NULL;
}

static void *takes_turns(void *number) {
    int me = (int)(long)number;
    OK(under_lock(&m));
    for (int i = 0; i < 300; i++) {
        struct timespec far = far_away(CLOCK_REALTIME);
        while (turn % 2 != me)
            if (i % 2) OK(old_cond_wait(&c, &m));
            else OK(old_cond_timedwait(&c, &m, &far));
        turn++;
        if (i % 3) OK(old_cond_signal(&c));
        else OK(old_cond_broadcast(&c));
    }
    OK(under_unlock(&m));
    return NULL;
}

static void *elsewhere(void *unused) {
    struct timespec past = in_the_past();
    CALL(pthread_mutex_trylock(&m), EBUSY);
    CALL(old_trylock(&m), EBUSY);
    CALL(under_trylock(&m), EBUSY);
    CALL(old_timedlock(&m, &past), ETIMEDOUT);
    return NULL;
}

int main(void) {
    limit_seconds(20);
    for (int round = 0; round < 2; round++) {
        STAGE(round ? "made by the old names" : "static");
        // A static initialiser of old was all zeroes, as today's.
        memset(&m, 0, sizeof m);
        memset(&c, 0, sizeof c);
        if (round) {
            OK(under_init(&m, NULL));
            OK(old_cond_init(&c, NULL));
        }
        OK(under_lock(&m));
        join(spawn(elsewhere, NULL));
        CALL(under_destroy(&m), EBUSY);
        struct timespec past = in_the_past();
        CALL(old_cond_timedwait(&c, &m, &past), ETIMEDOUT);
        OK(under_unlock(&m));
        first = second = 0;
        crowd(4, adds);
        CHECK(first == 16000, "%ld of 16000 additions", first);
        turn = 0;
        crowd(2, takes_turns);
        OK(old_cond_destroy(&c));
        OK(under_destroy(&m));
    }
    return 0;
}
#else
int main(void) { return 0; }
#endif
