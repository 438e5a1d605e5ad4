// A child that was forked while threads used locks: what nobody held is free, what the forking thread held is
// the child's.
#include "check.h"

enum { FORKS = 20, CROWD = 3 };

static poundlock_mutex_t mutex = POUNDLOCK_MUTEX_INITIALIZER, busy = POUNDLOCK_MUTEX_INITIALIZER;
static poundlock_recursive_mutex_t recursive = POUNDLOCK_RECURSIVE_MUTEX_INITIALIZER;
static poundlock_spinlock_t spinlock = POUNDLOCK_SPINLOCK_INITIALIZER;
static poundlock_rwlock_t rwlock = POUNDLOCK_RWLOCK_INITIALIZER;
static poundlock_cond_t cond = POUNDLOCK_COND_INITIALIZER;
static int done, child_turn;

// Keeps the locks contended, so that their queues name threads that a child does not have.
static void *use(void *unused) {
    while (!get(&done)) {
        OK(poundlock_mutex_lock(&mutex));
        OK(poundlock_mutex_unlock(&mutex));
        OK(poundlock_recursive_mutex_lock(&recursive));
        OK(poundlock_recursive_mutex_unlock(&recursive));
        OK(poundlock_rwlock_wrlock(&rwlock));
        OK(poundlock_rwlock_wrunlock(&rwlock));
        OK(poundlock_spinlock_lock(&spinlock));
        OK(poundlock_spinlock_unlock(&spinlock));
        struct timespec soon = after_us(CLOCK_MONOTONIC, 50);
        OK(poundlock_mutex_lock(&busy));
        int result = poundlock_cond_clockwait(&cond, &busy, CLOCK_MONOTONIC, &soon);
        CHECK(result == 0 || result == ETIMEDOUT, "clockwait: %d", result);
        OK(poundlock_mutex_unlock(&busy));
    }
    return unused;
}

static void *in_child(void *unused) {
    OK(poundlock_recursive_mutex_lock(&recursive));
    OK(poundlock_recursive_mutex_unlock(&recursive));
    OK(poundlock_rwlock_rdlock(&rwlock));
    OK(poundlock_rwlock_rdunlock(&rwlock));
    OK(poundlock_spinlock_lock(&spinlock));
    OK(poundlock_spinlock_unlock(&spinlock));
    OK(poundlock_mutex_lock(&mutex));
    child_turn = 1;
    OK(poundlock_cond_signal(&cond));
    OK(poundlock_mutex_unlock(&mutex));
    return unused;
}

int main(void) {
    limit_seconds(LIMIT);
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++) threads[i] = spawn(use, NULL);
    for (int i = 0; i < FORKS; i++) {
        STAGE("the forking thread holds all");
        OK(poundlock_mutex_lock(&mutex));
        OK(poundlock_recursive_mutex_lock(&recursive));
        OK(poundlock_rwlock_wrlock(&rwlock));
        OK(poundlock_spinlock_lock(&spinlock));
        pid_t child = fork_limited(20);
        OK(poundlock_spinlock_unlock(&spinlock));
        OK(poundlock_rwlock_wrunlock(&rwlock));
        OK(poundlock_recursive_mutex_unlock(&recursive));
        if (child == 0) {
            STAGE("in the child");
            // It still has the mutex, and waits under it for a thread of its own.
            pthread_t thread = spawn(in_child, NULL);
            while (!child_turn) OK(poundlock_cond_wait(&cond, &mutex));
            OK(poundlock_mutex_unlock(&mutex));
            join(thread);
            _exit(0);
        }
        OK(poundlock_mutex_unlock(&mutex));
        await_child(child);
    }
    set(&done, 1);
    for (int i = 0; i < CROWD; i++) join(threads[i]);
    return 0;
}
