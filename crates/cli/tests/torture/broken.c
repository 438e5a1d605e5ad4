/*
 * A library that is preloaded to break the C library's locks, or the kernel's semaphore arrays, in one way,
 * named by the variable BROKEN: `poundlock torture` must notice each.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <unistd.h>

/* Those that are replaced here, each as real_ and its name. */
#define REPLACED(X) \
    X(pthread_mutex_init) X(pthread_mutex_lock) X(pthread_mutex_trylock) X(pthread_mutex_timedlock) \
    X(pthread_mutex_unlock) X(pthread_cond_wait) X(pthread_cond_timedwait) X(pthread_cond_signal) \
    X(pthread_cond_broadcast) X(pthread_spin_init) X(pthread_spin_lock) X(pthread_spin_trylock) \
    X(pthread_spin_unlock) X(pthread_rwlock_rdlock) X(pthread_rwlock_tryrdlock) \
    X(pthread_rwlock_clockrdlock) X(pthread_rwlock_wrlock) X(pthread_rwlock_trywrlock) \
    X(pthread_rwlock_unlock) X(semop) X(semtimedop) X(semctl)
#define X(name) static __typeof__(name) *real_##name;
REPLACED(X)
#undef X

static const char *broken = "";
static pid_t first_process;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("BROKEN");
    broken = name ? name : "";
    first_process = getpid();
#define X(name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name);
    REPLACED(X)
#undef X
}

/* Whether it is broken in this way; and only at every nth call that asks so. */
static int is(const char *how) { return strcmp(broken, how) == 0; }
static int rarely(const char *how, unsigned long n) {
    static _Atomic unsigned long calls;
    return is(how) && atomic_fetch_add(&calls, 1) % n == n - 1;
}

static void crash(void) { *(volatile int *)16 = 1; }
static void hang(void) {
    for (;;) pause();
}

/* Writes to the byte of a lock that may be gone by now, or reads it. Where torture cannot stop a thread at any
 * instruction, others are let by in between: else it may take hours to meet them there. */
static void touch_late(const char *write, const char *read, volatile void *lock, unsigned at) {
    volatile char *byte = (volatile char *)lock + at;
    if (!is(write) && !(read && is(read))) return;
    for (volatile int i = 0; i < 200; i++) {
    }
#ifndef __x86_64__
    sched_yield();
#endif
    char seen = *byte;
    if (is(write)) *byte = (char)(seen + 1);
}

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
    int rc = real_pthread_mutex_init(m, a);
    if (is("too-big")) memset(m + 1, 0, 8);
    return rc;
}

int pthread_mutex_lock(pthread_mutex_t *m) {
    if (rarely("two-in", 1000) && real_pthread_mutex_trylock(m) != 0) return 0;
    if (rarely("never-served", 2000)) hang();
    if (rarely("crash", 2000)) crash();
    if (is("crash-while-signals-are-blocked")) {
        sigset_t blocked;
        if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGTERM)) crash();
    }
    if (rarely("stops", 2000)) kill(getpid(), SIGSTOP);
    if (rarely("ends", 2000)) _exit(0);
    if (rarely("prints", 2000)) {
        static const char line[] = "locks: contention seen\n";
        if (write(STDOUT_FILENO, line, sizeof line - 1) < 0) _exit(1);
    }
    if (rarely("eintr", 2000)) return EINTR;
    return real_pthread_mutex_lock(m);
}

int pthread_mutex_trylock(pthread_mutex_t *m) {
    int rc = real_pthread_mutex_trylock(m);
    return rc == EBUSY && rarely("trylock-lies", 50) ? 0 : rc;
}

int pthread_mutex_timedlock(pthread_mutex_t *m, const struct timespec *t) {
    int rc = real_pthread_mutex_trylock(m);
    if (rc == EBUSY && is("timed-early")) return ETIMEDOUT;
    return rc == EBUSY ? real_pthread_mutex_timedlock(m, t) : rc;
}

int pthread_mutex_unlock(pthread_mutex_t *m) {
    if (rarely("unlock-forgotten", 2000)) return 0;
    if (is("child-keeps-lock") && getpid() != first_process) return 0;
    int rc = real_pthread_mutex_unlock(m);
    if (rc == EPERM && is("anybody-unlocks")) return 0;
    touch_late("late-write", "late-read", m, 35);
    if (rarely("errno", 100)) errno = EAGAIN;
    return rc;
}

/* Remembered signals and sleepers, by address: collisions matter to nobody who is broken on purpose. */
static _Atomic long remembered[4096], asleep[4096];
static unsigned place(pthread_cond_t *c) { return (unsigned)((uintptr_t)c / 16 % 4096); }

static void let_go(void *m) { real_pthread_mutex_unlock(m); }

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
    int rc;
    if (is("cancelled-without-mutex")) {
        pthread_cleanup_push(let_go, m);
        rc = real_pthread_cond_wait(c, m);
        pthread_cleanup_pop(0);
        return rc;
    }
    atomic_fetch_add(&asleep[place(c)], 1);
    rc = real_pthread_cond_wait(c, m);
    atomic_fetch_sub(&asleep[place(c)], 1);
    return rc;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t) {
    if (rarely("timedwait-without-mutex", 200)) {
        real_pthread_mutex_unlock(m);
        return ETIMEDOUT;
    }
    if (is("remembers") && atomic_load(&remembered[place(c)]) > 0) {
        atomic_fetch_sub(&remembered[place(c)], 1);
        return 0;
    }
    atomic_fetch_add(&asleep[place(c)], 1);
    int rc = real_pthread_cond_timedwait(c, m, t);
    atomic_fetch_sub(&asleep[place(c)], 1);
    return rc;
}

int pthread_cond_signal(pthread_cond_t *c) {
    if (rarely("signal-lost", 1000)) return 0;
    if (is("remembers") && atomic_load(&asleep[place(c)]) == 0) atomic_fetch_add(&remembered[place(c)], 1);
    return real_pthread_cond_signal(c);
}

int pthread_cond_broadcast(pthread_cond_t *c) {
    return is("broadcast-wakes-one") ? real_pthread_cond_signal(c) : real_pthread_cond_broadcast(c);
}

/* ---- spinlocks ---- */

int pthread_spin_init(pthread_spinlock_t *s, int shared) {
    int rc = real_pthread_spin_init(s, shared);
    if (is("spin-too-big")) s[1] = 0;
    return rc;
}

/* Waits of the calling thread, one inside the other. */
static _Thread_local volatile int depth;

int pthread_spin_lock(pthread_spinlock_t *s) {
    if (rarely("spin-two-in", 500) && real_pthread_spin_trylock(s) != 0) return 0;
    if (is("spin-never-served")) {
        if (real_pthread_spin_trylock(s) == 0) return 0;
        if (rarely("spin-never-served", 100)) hang();
    }
    /* As a lock would be whose waiters have no more than four nodes, and that did not mind. */
    if (is("spin-fifth-level")) {
        int rc = ++depth == 5 ? 0 : real_pthread_spin_lock(s);
        depth--;
        return rc;
    }
    return real_pthread_spin_lock(s);
}

int pthread_spin_trylock(pthread_spinlock_t *s) {
    int rc = real_pthread_spin_trylock(s);
    return rc == EBUSY && rarely("spin-trylock-lies", 50) ? 0 : rc;
}

int pthread_spin_unlock(pthread_spinlock_t *s) {
    if (rarely("spin-unlock-forgotten", 2000)) return 0;
    if (is("spin-child-keeps-lock") && getpid() != first_process) return 0;
    int rc = real_pthread_spin_unlock(s);
    touch_late("spin-late-write", "spin-late-read", s, 4);
    if (rarely("spin-errno", 100)) errno = EAGAIN;
    return rc;
}

/* ---- readers-writer locks ---- */

int pthread_rwlock_rdlock(pthread_rwlock_t *l) {
    if (rarely("rw-reader-beside-writer", 200)) {
        real_pthread_rwlock_tryrdlock(l);
        return 0;
    }
    /* Who reads again waits for a writer that waits for it. */
    if (is("rw-keeps-readers-out") && !l->__data.__shared)
        l->__data.__flags = PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
    return real_pthread_rwlock_rdlock(l);
}

int pthread_rwlock_clockrdlock(pthread_rwlock_t *l, clockid_t c, const struct timespec *t) {
    int rc = real_pthread_rwlock_tryrdlock(l);
    if (rc == EBUSY && is("rw-timed-early")) return ETIMEDOUT;
    return rc == EBUSY ? real_pthread_rwlock_clockrdlock(l, c, t) : rc;
}

int pthread_rwlock_wrlock(pthread_rwlock_t *l) {
    if (rarely("rw-writer-beside-readers", 200)) {
        real_pthread_rwlock_trywrlock(l);
        return 0;
    }
    if (is("rw-never-served")) {
        if (real_pthread_rwlock_trywrlock(l) == 0) return 0;
        if (rarely("rw-never-served", 100)) hang();
    }
    return real_pthread_rwlock_wrlock(l);
}

int pthread_rwlock_unlock(pthread_rwlock_t *l) {
    if (rarely("rw-unlock-forgotten", 2000)) return 0;
    int rc = real_pthread_rwlock_unlock(l);
    touch_late("rw-late-write", NULL, l, 52);
    return rc;
}

/* ---- semaphore arrays ---- */

/* A lock taken, with SEM_UNDO; and given back. */
static int takes(const struct sembuf *op, size_t n) { return n == 1 && op->sem_num < 4 && op->sem_op == -1; }
static int gives(const struct sembuf *op, size_t n) { return n == 1 && op->sem_num < 4 && op->sem_op == 1; }

static int fails(int error) {
    errno = error;
    return -1;
}

int semtimedop(int id, struct sembuf *op, size_t n, const struct timespec *t) {
    if (takes(op, n) && rarely("sem-two-in", 100)) return 0;
    if (gives(op, n) && rarely("sem-gives-twice", 100)) real_semop(id, op, n);
    if (gives(op, n) && rarely("sem-forgets-to-give", 100)) return 0;
    if (is("sem-forgets-to-undo"))
        for (size_t i = 0; i < n; i++) op[i].sem_flg &= ~SEM_UNDO;
    if (n == 3 && op->sem_flg == IPC_NOWAIT && rarely("sem-by-halves", 20)) {
        /* Each by itself, up to the first that would have to wait. */
        for (size_t i = 0; i < n; i++)
            if (real_semop(id, &op[i], 1) != 0) return -1;
        return 0;
    }
    if (n == 3 && op->sem_flg == 0 && rarely("sem-lies-about-a-move", 100)) return 0;
    if (takes(op, n) && !t && !(op->sem_flg & IPC_NOWAIT) && rarely("sem-never-served", 40)) hang();
    if (t && rarely("sem-timed-early", 100)) return fails(EAGAIN);
    if (!(op->sem_flg & IPC_NOWAIT) && takes(op, n) && rarely("sem-eintr", 100)) return fails(EINTR);
    if (rarely("sem-efbig", 300)) return fails(EFBIG);
    if (rarely("sem-crash", 300)) crash();
    if (rarely("sem-ends", 300)) _exit(0);
    int rc = t ? real_semtimedop(id, op, n, t) : real_semop(id, op, n);
    if (rc == 0 && rarely("sem-errno", 100)) errno = ENOENT;
    if (rc != 0 && errno == EIDRM && is("sem-removal-unseen")) return 0;
    return rc;
}

int semop(int id, struct sembuf *op, size_t n) { return semtimedop(id, op, n, NULL); }

int semctl(int id, int num, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    int rc = real_semctl(id, num, command, argument);
    if (command == GETALL && rc == 0 && rarely("sem-torn-values", 50)) ((unsigned short *)argument)[6] += 1;
    if (command == GETPID && is("sem-wrong-process")) return 1;
    if (command == GETNCNT && num == 0 && rc == 0 && rarely("sem-counts-the-dead", 20)) return 1;
    return rc;
}
