// Wrong on purpose: a signal that nobody waited for ends a later wait.
#include <dlfcn.h>
#include <pthread.h>

static int remembered;

int pthread_cond_signal(pthread_cond_t *c) {
    int (*signal)(pthread_cond_t *) = (int (*)(pthread_cond_t *))dlsym(RTLD_NEXT, "pthread_cond_signal");
    __atomic_store_n(&remembered, 1, __ATOMIC_SEQ_CST);
    return signal(c);
}

int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
                           const struct timespec *time) {
    int (*wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) =
        (int (*)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *))dlsym(
            RTLD_NEXT, "pthread_cond_clockwait");
    if (__atomic_exchange_n(&remembered, 0, __ATOMIC_SEQ_CST)) return 0;
    return wait(c, m, clock, time);
}
