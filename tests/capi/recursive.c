// poundlock_recursive_mutex_t: depth, whose it is, exclusion; and waits on a condition variable with it.
#include "check.h"
#include <sys/resource.h>

enum { THREADS = 4, ROUNDS = 10000 };

static poundlock_recursive_mutex_t mutex = POUNDLOCK_RECURSIVE_MUTEX_INITIALIZER;
static poundlock_cond_t cond = POUNDLOCK_COND_INITIALIZER;
static long counter;
static int state;

static void *try_busy(void *unused) {
    CALL(poundlock_recursive_mutex_trylock(&mutex), EBUSY);
    CALL(poundlock_recursive_mutex_unlock(&mutex), EPERM);
    CALL(poundlock_cond_wait_recursive(&cond, &mutex), EPERM);
    GIVES_UP(poundlock_recursive_mutex_clocklock, &mutex);
    return unused;
}

static void *try_free(void *unused) {
    OK(poundlock_recursive_mutex_trylock(&mutex));
    OK(poundlock_recursive_mutex_unlock(&mutex));
    return unused;
}

static void *count(void *unused) {
    struct timespec far = far_away(CLOCK_REALTIME);
    for (int i = 0; i < ROUNDS; i++) {
        OK(poundlock_recursive_mutex_lock(&mutex));
        OK(poundlock_recursive_mutex_clocklock(&mutex, CLOCK_REALTIME, &far));
        counter++;
        OK(poundlock_recursive_mutex_unlock(&mutex));
        OK(poundlock_recursive_mutex_trylock(&mutex));
        OK(poundlock_recursive_mutex_unlock(&mutex));
        OK(poundlock_recursive_mutex_unlock(&mutex));
    }
    return unused;
}

// The first locks of a process that can map nothing: it is known whose they are all the same.
static void without_memory(void) {
    STAGE("without memory");
    pid_t child = fork_limited(20);
    if (child == 0) {
        struct rlimit none = {4096, 4096};
        SYS(setrlimit(RLIMIT_AS, &none));
        OK(poundlock_recursive_mutex_lock(&mutex));
        OK(poundlock_recursive_mutex_lock(&mutex));
        OK(poundlock_recursive_mutex_unlock(&mutex));
        OK(poundlock_recursive_mutex_unlock(&mutex));
        CALL(poundlock_recursive_mutex_unlock(&mutex), EPERM);
        _exit(0);
    }
    await_child(child);
}

static void depth(void) {
    STAGE("depth");
    CALL(poundlock_recursive_mutex_unlock(&mutex), EPERM);
    for (int i = 0; i < 3; i++) OK(poundlock_recursive_mutex_lock(&mutex));
    CALL(poundlock_recursive_mutex_destroy(&mutex), EBUSY);
    for (int i = 0; i < 3; i++) {
        join(spawn(try_busy, NULL));
        OK(poundlock_recursive_mutex_unlock(&mutex));
    }
    CALL(poundlock_recursive_mutex_unlock(&mutex), EPERM);
    join(spawn(try_free, NULL));
    // As if it had been locked so often: the depth is the last word.
    OK(poundlock_recursive_mutex_lock(&mutex));
    mutex._words[6] = UINT32_MAX - 1;
    OK(poundlock_recursive_mutex_trylock(&mutex));
    struct timespec far = far_away(CLOCK_MONOTONIC);
    CALL(poundlock_recursive_mutex_lock(&mutex), EAGAIN);
    CALL(poundlock_recursive_mutex_trylock(&mutex), EAGAIN);
    CALL(poundlock_recursive_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &far), EAGAIN);
    mutex._words[6] = 1;
    OK(poundlock_recursive_mutex_unlock(&mutex));
    OK(poundlock_recursive_mutex_destroy(&mutex));
    memset(&mutex, 0xa5, sizeof mutex);
    OK(poundlock_recursive_mutex_init(&mutex));
    join(spawn(try_free, NULL));
}

static void *answer(void *unused) {
    OK(poundlock_recursive_mutex_lock(&mutex));
    state = 1;
    OK(poundlock_cond_broadcast(&cond));
    while (state != 2) OK(poundlock_cond_wait_recursive(&cond, &mutex));
    OK(poundlock_recursive_mutex_unlock(&mutex));
    return unused;
}

static void waits(void) {
    STAGE("waits");
    CALL(poundlock_cond_wait_recursive(&cond, &mutex), EPERM);
    OK(poundlock_recursive_mutex_lock(&mutex));
    OK(poundlock_recursive_mutex_lock(&mutex));
    CALL(poundlock_cond_wait_recursive(&cond, &mutex), EPERM);
    OK(poundlock_recursive_mutex_unlock(&mutex));
    GIVES_UP(poundlock_cond_clockwait_recursive, &cond, &mutex);
    pthread_t thread = spawn(answer, NULL);
    while (state != 1) OK(poundlock_cond_wait_recursive(&cond, &mutex));
    state = 2;
    OK(poundlock_cond_signal(&cond));
    OK(poundlock_recursive_mutex_unlock(&mutex));
    join(thread);
    OK(poundlock_cond_destroy(&cond));
}

int main(void) {
    limit_seconds(LIMIT);
    without_memory();
    depth();
    waits();
    STAGE("exclusion");
    crowd(THREADS, count);
    CHECK(counter == (long)THREADS * ROUNDS, "%ld", counter);
    return 0;
}
