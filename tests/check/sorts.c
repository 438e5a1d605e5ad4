/* Locks of every sort and state that are what they should be: statically initialised of each kind, in zeroed
 * memory, copied while nobody has them, taken again where that is allowed or refused with an error, and
 * condition variables that change their mutex between two waits. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t readers = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t writers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void mutexes(void) {
    pthread_mutex_t *const all[] = {&plain, &recursive, &checking, &adaptive};
    for (int round = 0; round < 3; round++)
        for (int n = 0; n < 4; n++) {
            CHECK(pthread_mutex_lock(all[n]), 0);
            CHECK(pthread_mutex_unlock(all[n]), 0);
        }
    CHECK(pthread_mutex_lock(&recursive), 0);
    CHECK(pthread_mutex_lock(&recursive), 0);
    CHECK(pthread_mutex_trylock(&recursive), 0);
    CHECK(pthread_mutex_unlock(&recursive), 0);
    CHECK(pthread_mutex_unlock(&recursive), 0);
    CHECK(pthread_mutex_unlock(&recursive), 0);
    CHECK(pthread_mutex_lock(&checking), 0);
    CHECK(pthread_mutex_lock(&checking), EDEADLK);
    CHECK(pthread_mutex_trylock(&checking), EBUSY);
    CHECK(pthread_mutex_unlock(&checking), 0);
    CHECK(pthread_mutex_lock(&plain), 0);
    CHECK(pthread_mutex_trylock(&plain), EBUSY);
    CHECK(pthread_mutex_unlock(&plain), 0);
    static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT};
    for (int n = 0; n < 2; n++) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setprotocol(&attributes, protocols[n]);
        pthread_mutex_t mutex;
        memset(&mutex, 0xa5, sizeof mutex);
        CHECK(pthread_mutex_init(&mutex, &attributes), 0);
        CHECK(pthread_mutex_lock(&mutex), 0);
        CHECK(pthread_mutex_unlock(&mutex), 0);
        CHECK(pthread_mutex_destroy(&mutex), 0);
        memset(&mutex, 0, sizeof mutex);
        CHECK(pthread_mutex_lock(&mutex), 0);
        CHECK(pthread_mutex_unlock(&mutex), 0);
        pthread_mutexattr_destroy(&attributes);
    }
}

static void *try_to_write(void *lock) {
    CHECK(pthread_rwlock_trywrlock(lock), EBUSY);
    return NULL;
}

static void rwlocks(void) {
    CHECK(pthread_rwlock_rdlock(&readers), 0);
    CHECK(pthread_rwlock_rdlock(&readers), 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, try_to_write, &readers), 0);
    CHECK(pthread_join(thread, NULL), 0);
    CHECK(pthread_rwlock_unlock(&readers), 0);
    CHECK(pthread_rwlock_unlock(&readers), 0);
    CHECK(pthread_rwlock_wrlock(&readers), 0);
    CHECK(pthread_rwlock_unlock(&readers), 0);
    CHECK(pthread_rwlock_rdlock(&writers), 0);
    CHECK(pthread_rwlock_tryrdlock(&writers), 0);
    CHECK(pthread_rwlock_unlock(&writers), 0);
    CHECK(pthread_rwlock_unlock(&writers), 0);
    CHECK(pthread_rwlock_destroy(&writers), 0);
    writers = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    CHECK(pthread_rwlock_wrlock(&writers), 0);
    CHECK(pthread_rwlock_unlock(&writers), 0);
    CHECK(pthread_rwlock_destroy(&writers), 0);
    CHECK(pthread_rwlock_init(&writers, NULL), 0);
    CHECK(pthread_rwlock_rdlock(&writers), 0);
    CHECK(pthread_rwlock_unlock(&writers), 0);
}

/* Copies are other locks. */
static void copies(void) {
    struct { int number; pthread_mutex_t mutex; pthread_rwlock_t table; pthread_cond_t changed; } one, other;
    memset(&one, 0, sizeof one);
    CHECK(pthread_mutex_lock(&one.mutex), 0);
    CHECK(pthread_cond_signal(&one.changed), 0);
    CHECK(pthread_mutex_unlock(&one.mutex), 0);
    CHECK(pthread_rwlock_wrlock(&one.table), 0);
    CHECK(pthread_rwlock_unlock(&one.table), 0);
    for (int round = 0; round < 3; round++) {
        memcpy(&other, &one, sizeof one);
        CHECK(pthread_mutex_lock(&one.mutex), 0);
        CHECK(pthread_mutex_lock(&other.mutex), 0);
        CHECK(pthread_rwlock_rdlock(&other.table), 0);
        CHECK(pthread_cond_broadcast(&other.changed), 0);
        CHECK(pthread_rwlock_unlock(&other.table), 0);
        CHECK(pthread_mutex_unlock(&other.mutex), 0);
        CHECK(pthread_mutex_unlock(&one.mutex), 0);
        memcpy(&one, &other, sizeof one);
    }
}

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void wait_a_moment(pthread_mutex_t *mutex) {
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += 1000000;
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    CHECK(pthread_mutex_lock(mutex), 0);
    int result = pthread_cond_timedwait(&changed, mutex, &when);
    CHECK(result == 0 || result == ETIMEDOUT, 1);
    CHECK(pthread_mutex_unlock(mutex), 0);
}

static int waiting, go;

static void *wait_for_it(void *mutex) {
    CHECK(pthread_mutex_lock(mutex), 0);
    waiting = 1;
    while (!go)
        pthread_cond_wait(&changed, mutex);
    go = 0;
    CHECK(pthread_mutex_unlock(mutex), 0);
    return NULL;
}

/* One mutex at a time, and another one after it: from the signal on the waiter no longer counts. */
static void conditions(void) {
    pthread_mutex_t *const all[] = {&plain, &recursive, &checking, &adaptive};
    for (int n = 0; n < 4; n++)
        wait_a_moment(all[n]);
    for (int n = 0; n < 4; n++) {
        pthread_t thread;
        waiting = 0;
        CHECK(pthread_create(&thread, NULL, wait_for_it, all[n]), 0);
        for (int there = 0; !there;) {
            pthread_mutex_lock(all[n]);
            there = waiting;
            if (there) {
                go = 1;
                pthread_cond_signal(&changed);
                /* Its mutex is ours still, so it cannot have returned. */
                wait_a_moment(all[(n + 1) % 4]);
            }
            pthread_mutex_unlock(all[n]);
        }
        CHECK(pthread_join(thread, NULL), 0);
    }
    CHECK(pthread_cond_destroy(&changed), 0);
    CHECK(pthread_cond_init(&changed, NULL), 0);
    wait_a_moment(&plain);
}

int main(void) {
    mutexes();
    rwlocks();
    copies();
    conditions();
    return failures();
}
