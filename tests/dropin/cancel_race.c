// Cancellation that races with a signal. POSIX: a waiter that is cancelled takes no signal with it while
// another thread waits. So one signal, sent while one of two waiters is being cancelled, reaches one of them
// for certain.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER, back = PTHREAD_COND_INITIALIZER;
static int waiting, tokens, taken_by_first, taken_by_second, stop;
static volatile int timed;

static void unlock(void *unused) {
    waiting--;
    OK(pthread_mutex_unlock(&m));
}

static int wait_once(void) {
    struct timespec far = far_away(CLOCK_MONOTONIC);
    return timed ? pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &far) : pthread_cond_wait(&c, &m);
}

// The one that is cancelled: a token, or the cancellation.
static void *first(void *unused) {
    OK(pthread_mutex_lock(&m));
    waiting++;
    pthread_cleanup_push(unlock, NULL);
    OK(pthread_cond_signal(&back));
    while (tokens == 0) OK(wait_once());
    tokens--;
    taken_by_first++;
    OK(pthread_cond_signal(&back));
    pthread_cleanup_pop(1);
    return unused;
}

static void *second(void *unused) {
    OK(pthread_mutex_lock(&m));
    while (!stop) {
        waiting++;
        OK(pthread_cond_signal(&back));
        while (tokens == 0 && !stop) OK(wait_once());
        waiting--;
        if (stop) break;
        tokens--;
        taken_by_second++;
        OK(pthread_cond_signal(&back));
    }
    OK(pthread_mutex_unlock(&m));
    return unused;
}

static volatile int go;

struct order {
    pthread_t target;
    int delay;
};

static void *cancels(void *argument) {
    struct order *order = (struct order *)argument;
    while (!go) continue;
    for (volatile int i = 0; i < order->delay; i++) continue;
    MUST(pthread_cancel(order->target));
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(60);
    int rounds = argc > 1 ? atoi(argv[1]) : 4000, cancelled = 0;
    STAGE("a signal beside a cancellation");
    pthread_t b = spawn(second, NULL);
    for (int i = 0; i < rounds; i++) {
        timed = i % 3 == 0;
        taken_by_first = taken_by_second = 0;
        pthread_t a = spawn(first, NULL), canceller = 0;
        OK(pthread_mutex_lock(&m));
        while (waiting < 2) OK(pthread_cond_wait(&back, &m));
        struct order order = {a, i * 13 % 400};
        go = 0;
        if (i % 4 == 0) canceller = spawn(cancels, &order);
        tokens = 1;
        // Before, after, or at the same time as the cancellation; with the mutex held or not.
        switch (i % 4) {
        case 0:
            go = 1;
            OK(pthread_cond_signal(&c));
            OK(pthread_mutex_unlock(&m));
            break;
        case 1:
            OK(pthread_mutex_unlock(&m));
            OK(pthread_cond_signal(&c));
            MUST(pthread_cancel(a));
            break;
        case 2:
            OK(pthread_mutex_unlock(&m));
            MUST(pthread_cancel(a));
            OK(pthread_cond_signal(&c));
            break;
        default:
            OK(pthread_cond_signal(&c));
            MUST(pthread_cancel(a));
            OK(pthread_mutex_unlock(&m));
            break;
        }
        OK(pthread_mutex_lock(&m));
        // A lost signal leaves the second waiter asleep here, for ever.
        while (taken_by_first + taken_by_second == 0) OK(pthread_cond_wait(&back, &m));
        CHECK(taken_by_first + taken_by_second == 1 && tokens == 0, "%d + %d tokens taken of one",
              taken_by_first,
              taken_by_second);
        OK(pthread_mutex_unlock(&m));
        if (i % 4 == 0) join(canceller);
        cancelled += join(a) == PTHREAD_CANCELED;
    }
    CHECK(cancelled > 0, "no cancellation won in %d rounds", rounds);
    OK(pthread_mutex_lock(&m));
    stop = 1;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    join(b);
    OK(pthread_cond_destroy(&c));
    OK(pthread_cond_destroy(&back));
    OK(pthread_mutex_destroy(&m));
    return 0;
}
