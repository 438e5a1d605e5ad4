// A library that wraps lock calls, counts them, and passes each on to the next definition, for which it asks
// by version, as the runtimes of sanitizers and libfaketime do. WHICH is its name, for those who ask it what
// it has seen.
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#if defined __x86_64__
#define FIRST "GLIBC_2.2.5"
#define COND "GLIBC_2.3.2"
#else
#define FIRST "GLIBC_2.17"
#define COND "GLIBC_2.17"
#endif

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

static unsigned long calls;
unsigned long PASTE(WHICH, _calls)(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

// What this library finds by asking for the next one.
void *PASTE(WHICH, _next)(const char *name, const char *version) { return dlvsym(RTLD_NEXT, name, version); }

#define WRAP(name, version, parameters, arguments)                                                           \
    int name parameters {                                                                                    \
        static int(*next) parameters;                                                                        \
        if (next == NULL) *(void **)&next = dlvsym(RTLD_NEXT, #name, version);                               \
        __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);                                                     \
        return next arguments;                                                                               \
    }

WRAP(pthread_mutex_lock, FIRST, (pthread_mutex_t * m), (m))
WRAP(pthread_mutex_trylock, FIRST, (pthread_mutex_t * m), (m))
WRAP(pthread_mutex_timedlock, FIRST, (pthread_mutex_t * m, const struct timespec *t), (m, t))
WRAP(pthread_mutex_unlock, FIRST, (pthread_mutex_t * m), (m))
WRAP(pthread_mutex_destroy, FIRST, (pthread_mutex_t * m), (m))
WRAP(pthread_cond_wait, COND, (pthread_cond_t * c, pthread_mutex_t *m), (c, m))
WRAP(pthread_cond_timedwait, COND, (pthread_cond_t * c, pthread_mutex_t *m, const struct timespec *t),
     (c, m, t))
WRAP(pthread_cond_signal, COND, (pthread_cond_t * c), (c))
WRAP(pthread_cond_broadcast, COND, (pthread_cond_t * c), (c))
WRAP(pthread_rwlock_rdlock, FIRST, (pthread_rwlock_t * l), (l))
WRAP(pthread_rwlock_wrlock, FIRST, (pthread_rwlock_t * l), (l))
WRAP(pthread_rwlock_unlock, FIRST, (pthread_rwlock_t * l), (l))
WRAP(pthread_spin_lock, FIRST, (pthread_spinlock_t * l), (l))
WRAP(pthread_spin_unlock, FIRST, (pthread_spinlock_t * l), (l))
