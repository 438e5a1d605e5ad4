/* Ends of things in an order that is allowed: locks destroyed by another thread than the one that used them,
 * condition variables with waiters that have been woken and are on their way, barriers whose last waiters have
 * not returned yet; threads that give back what they hold while they end; and a process that ends at once. */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_barrier_t meet;
    int waiting, go;
};

static void *use(void *argument) {
    struct shared *shared = argument;
    CHECK(pthread_mutex_lock(&shared->mutex), 0);
    CHECK(pthread_mutex_unlock(&shared->mutex), 0);
    return NULL;
}

static void destroyed_after_a_join(void) {
    struct shared *shared = calloc(1, sizeof *shared);
    pthread_mutex_init(&shared->mutex, NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use, shared), 0);
    CHECK(pthread_join(thread, NULL), 0);
    CHECK(pthread_mutex_destroy(&shared->mutex), 0);
    free(shared);
}

static void *wait_for_it(void *argument) {
    struct shared *shared = argument;
    pthread_mutex_lock(&shared->mutex);
    shared->waiting++;
    while (!shared->go)
        pthread_cond_wait(&shared->changed, &shared->mutex);
    shared->waiting--;
    pthread_mutex_unlock(&shared->mutex);
    return NULL;
}

static void condition_with_woken_waiters(void) {
    struct shared shared = {.waiting = 0};
    pthread_mutex_init(&shared.mutex, NULL);
    pthread_cond_init(&shared.changed, NULL);
    pthread_t threads[4];
    for (int n = 0; n < 4; n++)
        CHECK(pthread_create(&threads[n], NULL, wait_for_it, &shared), 0);
    for (int all = 0; !all;) {
        pthread_mutex_lock(&shared.mutex);
        all = shared.waiting == 4;
        if (all) {
            shared.go = 1;
            pthread_cond_broadcast(&shared.changed);
            /* All have been woken, and none has the mutex. */
            CHECK(pthread_cond_destroy(&shared.changed), 0);
        }
        pthread_mutex_unlock(&shared.mutex);
    }
    for (int n = 0; n < 4; n++)
        CHECK(pthread_join(threads[n], NULL), 0);
    CHECK(pthread_mutex_destroy(&shared.mutex), 0);
}

static void *meet(void *argument) {
    struct shared *shared = argument;
    if (pthread_barrier_wait(&shared->meet) == PTHREAD_BARRIER_SERIAL_THREAD)
        CHECK(pthread_barrier_destroy(&shared->meet), 0);
    return NULL;
}

static void barrier_by_the_last_one(void) {
    struct shared shared;
    for (int round = 0; round < 50; round++) {
        pthread_barrier_init(&shared.meet, NULL, 3);
        pthread_t threads[2];
        for (int n = 0; n < 2; n++)
            CHECK(pthread_create(&threads[n], NULL, meet, &shared), 0);
        meet(&shared);
        for (int n = 0; n < 2; n++)
            CHECK(pthread_join(threads[n], NULL), 0);
    }
}

static void give_back(void *mutex) {
    pthread_mutex_unlock(mutex);
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;

static void *end_in_between(void *unused) {
    (void)unused;
    pthread_mutex_lock(&held);
    pthread_cleanup_push(give_back, &held);
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_for_ever(void *unused) {
    (void)unused;
    pthread_mutex_lock(&held);
    pthread_cleanup_push(give_back, &held);
    for (;;)
        pthread_cond_wait(&never, &held);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *leave_it_to_the_key(void *unused) {
    (void)unused;
    pthread_setspecific(key, &held);
    pthread_mutex_lock(&held);
    return NULL;
}

static void threads_that_clean_up(void) {
    pthread_t thread;
    CHECK(pthread_key_create(&key, give_back), 0);
    void *(*const ways[])(void *) = {end_in_between, wait_for_ever, leave_it_to_the_key};
    for (int way = 0; way < 3; way++) {
        CHECK(pthread_create(&thread, NULL, ways[way], NULL), 0);
        if (way == 1)
            CHECK(pthread_cancel(thread), 0);
        CHECK(pthread_join(thread, NULL), 0);
    }
}

static int ready;

static void *hold(void *unused) {
    (void)unused;
    static pthread_mutex_t others = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&others);
    pthread_mutex_lock(&held);
    ready = 1;
    pthread_cond_signal(&never);
    pthread_mutex_unlock(&held);
    for (;;)
        pause();
    return NULL;
}

int main(void) {
    destroyed_after_a_join();
    condition_with_woken_waiters();
    barrier_by_the_last_one();
    threads_that_clean_up();
    pthread_t thread;
    pthread_mutex_lock(&held);
    CHECK(pthread_create(&thread, NULL, hold, NULL), 0);
    while (!ready)
        pthread_cond_wait(&never, &held);
    /* With a lock of ours and one of another thread's in their hands. */
    exit(failures());
}
