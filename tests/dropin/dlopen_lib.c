// Loaded by dlopen.c: locks in its constructor and destructor, and on objects that the program shares with it.
#include "check.h"

static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER, checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t own_cond = PTHREAD_COND_INITIALIZER;
static int ready;

static void *tells(void *unused) {
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
