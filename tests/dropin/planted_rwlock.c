// Wrong on purpose: every so often a timed call lets a writer in beside whoever is inside.
#include <dlfcn.h>
#include <pthread.h>

static __thread int beside;
static unsigned calls;

int pthread_rwlock_timedwrlock(pthread_rwlock_t *l, const struct timespec *t) {
    static int (*real)(pthread_rwlock_t *, const struct timespec *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_rwlock_timedwrlock");
    beside = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 16 == 0;
    return beside ? 0 : real(l, t);
}

int pthread_rwlock_unlock(pthread_rwlock_t *l) {
    static int (*real)(pthread_rwlock_t *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
    if (beside) return beside = 0;
    return real(l);
}
