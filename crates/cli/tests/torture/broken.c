/*
 * A library that is preloaded to break glibc's locks in one way, named by the variable BROKEN: the checker of
 * `poundlock torture` must notice each.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *broken = "";
static pid_t first_process;
static _Atomic unsigned long calls;

static int (*real_init)(pthread_mutex_t *, const pthread_mutexattr_t *);
static int (*real_lock)(pthread_mutex_t *);
static int (*real_trylock)(pthread_mutex_t *);
static int (*real_timedlock)(pthread_mutex_t *, const struct timespec *);
static int (*real_unlock)(pthread_mutex_t *);
static int (*real_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_signal)(pthread_cond_t *);
static int (*real_broadcast)(pthread_cond_t *);
static int (*real_spin_init)(pthread_spinlock_t *, int);
static int (*real_spin_lock)(pthread_spinlock_t *);
static int (*real_spin_trylock)(pthread_spinlock_t *);
static int (*real_spin_unlock)(pthread_spinlock_t *);
static int (*real_rdlock)(pthread_rwlock_t *);
static int (*real_tryrdlock)(pthread_rwlock_t *);
static int (*real_clockrdlock)(pthread_rwlock_t *, clockid_t, const struct timespec *);
static int (*real_wrlock)(pthread_rwlock_t *);
static int (*real_trywrlock)(pthread_rwlock_t *);
static int (*real_rwunlock)(pthread_rwlock_t *);

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("BROKEN");
    broken = name ? name : "";
    first_process = getpid();
    *(void **)&real_init = dlsym(RTLD_NEXT, "pthread_mutex_init");
    *(void **)&real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    *(void **)&real_trylock = dlsym(RTLD_NEXT, "pthread_mutex_trylock");
    *(void **)&real_timedlock = dlsym(RTLD_NEXT, "pthread_mutex_timedlock");
    *(void **)&real_unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    *(void **)&real_wait = dlsym(RTLD_NEXT, "pthread_cond_wait");
    *(void **)&real_timedwait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    *(void **)&real_signal = dlsym(RTLD_NEXT, "pthread_cond_signal");
    *(void **)&real_broadcast = dlsym(RTLD_NEXT, "pthread_cond_broadcast");
    *(void **)&real_spin_init = dlsym(RTLD_NEXT, "pthread_spin_init");
    *(void **)&real_spin_lock = dlsym(RTLD_NEXT, "pthread_spin_lock");
    *(void **)&real_spin_trylock = dlsym(RTLD_NEXT, "pthread_spin_trylock");
    *(void **)&real_spin_unlock = dlsym(RTLD_NEXT, "pthread_spin_unlock");
    *(void **)&real_rdlock = dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
    *(void **)&real_tryrdlock = dlsym(RTLD_NEXT, "pthread_rwlock_tryrdlock");
    *(void **)&real_clockrdlock = dlsym(RTLD_NEXT, "pthread_rwlock_clockrdlock");
    *(void **)&real_wrlock = dlsym(RTLD_NEXT, "pthread_rwlock_wrlock");
    *(void **)&real_trywrlock = dlsym(RTLD_NEXT, "pthread_rwlock_trywrlock");
    *(void **)&real_rwunlock = dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
}

static void linger(void)
{
    for (volatile int i = 0; i < 200; i++) {
    }
}

static int is(const char *how) { return strcmp(broken, how) == 0; }
static int every(unsigned long n) { return atomic_fetch_add(&calls, 1) % n == n - 1; }

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
    int rc = real_init(m, a);
    if (is("too-big"))
        memset(m + 1, 0, 8);
    return rc;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    if (is("two-in") && every(1000) && real_trylock(m) != 0)
        return 0;
    if (is("never-served") && every(2000))
        for (;;)
            pause();
    if (is("crash") && every(2000))
        *(volatile int *)16 = 1;
    if (is("stops") && every(2000))
        kill(getpid(), SIGSTOP);
    if (is("ends") && every(2000))
        _exit(0);
    if (is("prints") && every(2000)) {
        static const char line[] = "locks: contention seen\n";
        if (write(STDOUT_FILENO, line, sizeof line - 1) < 0)
            _exit(1);
    }
    if (is("eintr") && every(2000))
        return EINTR;
    return real_lock(m);
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
    int rc = real_trylock(m);
    return rc == EBUSY && is("trylock-lies") && every(50) ? 0 : rc;
}

int pthread_mutex_timedlock(pthread_mutex_t *m, const struct timespec *t)
{
    int rc = real_trylock(m);
    if (rc == EBUSY && is("timed-early"))
        return ETIMEDOUT;
    return rc == EBUSY ? real_timedlock(m, t) : rc;
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    if (is("unlock-forgotten") && every(2000))
        return 0;
    if (is("child-keeps-lock") && getpid() != first_process)
        return 0;
    int rc = real_unlock(m);
    if (rc == EPERM && is("anybody-unlocks"))
        return 0;
    if (is("late-write")) {
        linger();
        ((volatile char *)m)[35]++;
    }
    if (is("late-read")) {
        linger();
        (void)((volatile char *)m)[35];
    }
    if (is("errno") && every(100))
        errno = EAGAIN;
    return rc;
}

/* Remembered signals and sleepers, by address: collisions matter to nobody who is broken on purpose. */
static _Atomic long remembered[4096], asleep[4096];
static unsigned place(pthread_cond_t *c) { return (unsigned)((uintptr_t)c / 16 % 4096); }

static void let_go(void *m) { real_unlock(m); }

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    int rc;
    if (is("cancelled-without-mutex")) {
        pthread_cleanup_push(let_go, m);
        rc = real_wait(c, m);
        pthread_cleanup_pop(0);
        return rc;
    }
    atomic_fetch_add(&asleep[place(c)], 1);
    rc = real_wait(c, m);
    atomic_fetch_sub(&asleep[place(c)], 1);
    return rc;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
    if (is("timedwait-without-mutex") && every(200)) {
        real_unlock(m);
        return ETIMEDOUT;
    }
    if (is("remembers") && atomic_load(&remembered[place(c)]) > 0) {
        atomic_fetch_sub(&remembered[place(c)], 1);
        return 0;
    }
    atomic_fetch_add(&asleep[place(c)], 1);
    int rc = real_timedwait(c, m, t);
    atomic_fetch_sub(&asleep[place(c)], 1);
    return rc;
}

int pthread_cond_signal(pthread_cond_t *c)
{
    if (is("signal-lost") && every(1000))
        return 0;
    if (is("remembers") && atomic_load(&asleep[place(c)]) == 0)
        atomic_fetch_add(&remembered[place(c)], 1);
    return real_signal(c);
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
    return is("broadcast-wakes-one") ? real_signal(c) : real_broadcast(c);
}

/* ---- spinlocks ---- */

int pthread_spin_init(pthread_spinlock_t *s, int shared)
{
    int rc = real_spin_init(s, shared);
    if (is("spin-too-big"))
        s[1] = 0;
    return rc;
}

/* Waits of the calling thread, one inside the other. */
static _Thread_local volatile int depth;

int pthread_spin_lock(pthread_spinlock_t *s)
{
    if (is("spin-two-in") && every(500) && real_spin_trylock(s) != 0)
        return 0;
    if (is("spin-never-served")) {
        if (real_spin_trylock(s) == 0)
            return 0;
        if (every(100))
            for (;;)
                pause();
    }
    /* As a lock would be whose waiters have no more than four nodes, and that did not mind. */
    if (is("spin-fifth-level")) {
        int rc = ++depth == 5 ? 0 : real_spin_lock(s);
        depth--;
        return rc;
    }
    return real_spin_lock(s);
}

int pthread_spin_trylock(pthread_spinlock_t *s)
{
    int rc = real_spin_trylock(s);
    return rc == EBUSY && is("spin-trylock-lies") && every(50) ? 0 : rc;
}

int pthread_spin_unlock(pthread_spinlock_t *s)
{
    if (is("spin-unlock-forgotten") && every(2000))
        return 0;
    if (is("spin-child-keeps-lock") && getpid() != first_process)
        return 0;
    int rc = real_spin_unlock(s);
    if (is("spin-late-write")) {
        linger();
        ((volatile int *)s)[1]++;
    }
    if (is("spin-late-read")) {
        linger();
        (void)*(volatile int *)s;
    }
    if (is("spin-errno") && every(100))
        errno = EAGAIN;
    return rc;
}

/* ---- readers-writer locks ---- */

int pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
    if (is("rw-reader-beside-writer") && every(200)) {
        real_tryrdlock(l);
        return 0;
    }
    /* Who reads again waits for a writer that waits for it. */
    if (is("rw-keeps-readers-out") && !l->__data.__shared)
        l->__data.__flags = PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
    return real_rdlock(l);
}

int pthread_rwlock_clockrdlock(pthread_rwlock_t *l, clockid_t c, const struct timespec *t)
{
    int rc = real_tryrdlock(l);
    if (rc == EBUSY && is("rw-timed-early"))
        return ETIMEDOUT;
    return rc == EBUSY ? real_clockrdlock(l, c, t) : rc;
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
    if (is("rw-writer-beside-readers") && every(200)) {
        real_trywrlock(l);
        return 0;
    }
    if (is("rw-never-served")) {
        if (real_trywrlock(l) == 0)
            return 0;
        if (every(100))
            for (;;)
                pause();
    }
    return real_wrlock(l);
}

int pthread_rwlock_unlock(pthread_rwlock_t *l)
{
    if (is("rw-unlock-forgotten") && every(2000))
        return 0;
    int rc = real_rwunlock(l);
    if (is("rw-late-write")) {
        linger();
        ((volatile int *)l)[13]++;
    }
    return rc;
}
