// Libraries that are wrong on purpose, on glibc's locks: compiled with the name of one of these bugs.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

// The definition that comes after this library's; by version, as glibc before 2.36 answers with its oldest condition
// variables to those who name none. What is not found is put into words, in memory, which may change errno.
#define NEXT(name)                                                                                           \
    static __typeof__(&name) next;                                                                           \
    if (next == NULL) {                                                                                      \
        int before = errno;                                                                                  \
        if ((*(void **)&next = dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.2")) == NULL)                             \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                                       \
        errno = before;                                                                                      \
    }

#ifdef ERRNO // a lock that leaves its trace in errno
int pthread_mutex_lock(pthread_mutex_t *m) {
    NEXT(pthread_mutex_lock);
    int result = next(m);
    errno = EAGAIN;
    return result;
}
#endif

#ifdef TRYLOCK // a trylock that does not look at the state that lock uses
int pthread_mutex_trylock(pthread_mutex_t *m) { return 0; }
#endif

#ifdef TOUCH // an unlock that looks at the mutex once more after it has released it
int pthread_mutex_unlock(pthread_mutex_t *m) {
    NEXT(pthread_mutex_unlock);
    int result = next(m);
    for (volatile int i = 0; i < 50; i++) continue;
    return result + 0 * *(volatile int *)m;
}
#endif

#ifdef HERD // a signal that wakes everybody, though POSIX permits it now and then
int pthread_cond_signal(pthread_cond_t *c) { return pthread_cond_broadcast(c); }
#endif

#ifdef MEMORY // a signal that nobody waited for ends a later wait
static int remembered;

int pthread_cond_signal(pthread_cond_t *c) {
    NEXT(pthread_cond_signal);
    __atomic_store_n(&remembered, 1, __ATOMIC_SEQ_CST);
    return next(c);
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *t) {
    NEXT(pthread_cond_clockwait);
    return __atomic_exchange_n(&remembered, 0, __ATOMIC_SEQ_CST) ? 0 : next(c, m, clock, t);
}
#endif

#ifdef QSPIN // a spinlock that lets a waiter in after it has looked a few times
int pthread_spin_lock(pthread_spinlock_t *s) {
    for (int i = 0; i < 10; i++)
        if (pthread_spin_trylock(s) == 0) return 0;
    return 0;
}
#endif

#ifdef RWLOCK // every so often a timed call lets a writer in beside whoever is inside
static __thread int beside;
static unsigned calls;

int pthread_rwlock_timedwrlock(pthread_rwlock_t *l, const struct timespec *t) {
    NEXT(pthread_rwlock_timedwrlock);
    beside = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 16 == 0;
    return beside ? 0 : next(l, t);
}

int pthread_rwlock_unlock(pthread_rwlock_t *l) {
    NEXT(pthread_rwlock_unlock);
    if (beside) return beside = 0;
    return next(l);
}
#endif
