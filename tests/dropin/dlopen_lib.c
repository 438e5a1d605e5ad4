// Loaded by dlopen.c: locks in its constructor and destructor, and on objects that the program shares with
// it.
#include "check.h"

static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER, checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t own_cond = PTHREAD_COND_INITIALIZER;
static int ready;

// Every call that an interposer hands on to glibc, by a thread for which the constructor waits: dlopen holds
// the dynamic linker's lock meanwhile, so nothing may be left that has to be looked up.
static void foreign_calls(void) {
    pthread_mutex_t inherits, recursive;
    pthread_cond_t shared;
    pthread_mutexattr_t attribute;
    pthread_condattr_t cond_attribute;
    struct timespec past = in_the_past();
    OK(pthread_mutexattr_init(&attribute));
    OK(pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_RECURSIVE));
    OK(pthread_mutex_init(&recursive, &attribute));
    OK(pthread_mutexattr_setprotocol(&attribute, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutex_init(&inherits, &attribute));
    OK(pthread_condattr_init(&cond_attribute));
    OK(pthread_condattr_setpshared(&cond_attribute, PTHREAD_PROCESS_SHARED));
    OK(pthread_cond_init(&shared, &cond_attribute));
    for (int i = 0; i < 2; i++) {
        pthread_mutex_t *m = i ? &inherits : &recursive;
        OK(pthread_mutex_lock(m));
        OK(pthread_mutex_trylock(m));
        OK(pthread_mutex_timedlock(m, &past));
        OK(pthread_mutex_clocklock(m, i ? CLOCK_REALTIME : CLOCK_MONOTONIC, &past));
        for (int level = 0; level < 3; level++) OK(pthread_mutex_unlock(m));
        CALL(pthread_cond_timedwait(&shared, m, &past), ETIMEDOUT);
        CALL(pthread_cond_clockwait(&shared, m, CLOCK_MONOTONIC, &past), ETIMEDOUT);
        OK(pthread_cond_signal(&shared));
        OK(pthread_cond_broadcast(&shared));
        OK(pthread_mutex_unlock(m));
        OK(pthread_mutex_destroy(m));
    }
    OK(pthread_cond_destroy(&shared));
}

static void *tells(void *unused) {
    foreign_calls();
    OK(pthread_mutex_lock(&own));
    ready = 1;
    OK(pthread_cond_signal(&own_cond));
    OK(pthread_mutex_unlock(&own));
    return unused;
}

static void use_own(void) {
    OK(pthread_mutex_lock(&checked));
    CALL(pthread_mutex_lock(&checked), EDEADLK);
    OK(pthread_mutex_unlock(&checked));
    ready = 0;
    OK(pthread_mutex_lock(&own));
    pthread_t thread = spawn(tells, NULL);
    while (!ready) OK(pthread_cond_wait(&own_cond, &own));
    OK(pthread_mutex_unlock(&own));
    join(thread);
}

__attribute__((constructor)) static void constructor(void) { use_own(); }
__attribute__((destructor)) static void destructor(void) { use_own(); }

// Called through dlsym.
int library_lock(pthread_mutex_t *m);
int library_trylock(pthread_mutex_t *m);
int library_unlock(pthread_mutex_t *m);
int library_wait(pthread_cond_t *c, pthread_mutex_t *m);
int library_signal(pthread_cond_t *c);
int library_lock(pthread_mutex_t *m) { return pthread_mutex_lock(m); }
int library_trylock(pthread_mutex_t *m) { return pthread_mutex_trylock(m); }
int library_unlock(pthread_mutex_t *m) { return pthread_mutex_unlock(m); }
int library_wait(pthread_cond_t *c, pthread_mutex_t *m) { return pthread_cond_wait(c, m); }
int library_signal(pthread_cond_t *c) { return pthread_cond_signal(c); }
