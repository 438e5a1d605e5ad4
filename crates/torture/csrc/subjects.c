/* The table of what is tortured. */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <string.h>
#include <threads.h>

/* ---- pthread mutexes: one set of calls, many ways to initialise ---- */

static int m_lock(void *m) { return pthread_mutex_lock(m); }
static int m_trylock(void *m) { return pthread_mutex_trylock(m); }
static int m_timedlock(void *m, const struct timespec *t) { return pthread_mutex_timedlock(m, t); }
static int m_clocklock(void *m, clockid_t c, const struct timespec *t) {
    return pthread_mutex_clocklock(m, c, t);
}
static int m_unlock(void *m) { return pthread_mutex_unlock(m); }
static int m_destroy(void *m) { return pthread_mutex_destroy(m); }

static int copy_initialiser(void *m, const pthread_mutex_t *from) {
    memcpy(m, from, sizeof *from);
    return 0;
}
static int init_static(void *m) {
    static const pthread_mutex_t from = PTHREAD_MUTEX_INITIALIZER;
    return copy_initialiser(m, &from);
}
static int init_static_recursive(void *m) {
    static const pthread_mutex_t from = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    return copy_initialiser(m, &from);
}
static int init_static_errorcheck(void *m) {
    static const pthread_mutex_t from = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    return copy_initialiser(m, &from);
}
static int init_static_adaptive(void *m) {
    static const pthread_mutex_t from = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    return copy_initialiser(m, &from);
}
static int init_null(void *m) { return pthread_mutex_init(m, NULL); }

static int init_attr(void *m, int type, int protocol, int robust, int shared) {
    pthread_mutexattr_t attr;
    int rc = pthread_mutexattr_init(&attr);
    if (rc == 0) rc = pthread_mutexattr_settype(&attr, type);
    if (rc == 0) rc = pthread_mutexattr_setprotocol(&attr, protocol);
    if (rc == 0) rc = pthread_mutexattr_setrobust(&attr, robust);
    if (rc == 0) rc = pthread_mutexattr_setpshared(&attr, shared);
    if (rc == 0) rc = pthread_mutex_init(m, &attr);
    pthread_mutexattr_destroy(&attr);
    return rc;
}
#define INIT(name, type, protocol, robust, shared)                                                           \
    static int name(void *m) { return init_attr(m, type, protocol, robust, shared); }
#define INIT_TYPE(name, type)                                                                                \
    INIT(name, type, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_PRIVATE)
INIT_TYPE(init_normal, PTHREAD_MUTEX_NORMAL)
INIT_TYPE(init_recursive, PTHREAD_MUTEX_RECURSIVE)
INIT_TYPE(init_errorcheck, PTHREAD_MUTEX_ERRORCHECK)
INIT_TYPE(init_adaptive, PTHREAD_MUTEX_ADAPTIVE_NP)
INIT(init_inherit, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_PRIVATE)
INIT(init_robust, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_PRIVATE)
INIT(init_shared, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_SHARED)

#define PTHREAD_CALLS m_lock, m_trylock, m_timedlock, m_clocklock, m_unlock, m_destroy
#define MUTEX sizeof(pthread_mutex_t)

/* ---- C11 mutexes ---- */

static int from_c11(int rc) {
    switch (rc) {
    case thrd_success: return 0;
    case thrd_busy: return EBUSY;
    case thrd_timedout: return ETIMEDOUT;
    case thrd_nomem: return ENOMEM;
    default: return EINVAL;
    }
}
static int c_plain(void *m) { return from_c11(mtx_init(m, mtx_plain)); }
static int c_timed(void *m) { return from_c11(mtx_init(m, mtx_timed)); }
static int c_recursive(void *m) { return from_c11(mtx_init(m, mtx_timed | mtx_recursive)); }
static int c_lock(void *m) { return from_c11(mtx_lock(m)); }
static int c_trylock(void *m) { return from_c11(mtx_trylock(m)); }
static int c_timedlock(void *m, const struct timespec *t) { return from_c11(mtx_timedlock(m, t)); }
static int c_unlock(void *m) { return from_c11(mtx_unlock(m)); }
static int c_destroy(void *m) {
    mtx_destroy(m);
    return 0;
}
#define C11_MUTEX sizeof(mtx_t)

/* ---- spinlocks ---- */

static int s_private(void *s) { return pthread_spin_init(s, PTHREAD_PROCESS_PRIVATE); }
static int s_shared(void *s) { return pthread_spin_init(s, PTHREAD_PROCESS_SHARED); }
static int s_lock(void *s) { return pthread_spin_lock(s); }
static int s_trylock(void *s) { return pthread_spin_trylock(s); }
static int s_unlock(void *s) { return pthread_spin_unlock(s); }
static int s_destroy(void *s) { return pthread_spin_destroy(s); }
#define SPIN_CALLS s_lock, s_trylock, NULL, NULL, s_unlock, s_destroy
#define SPIN sizeof(pthread_spinlock_t)

static const struct kind kinds[] = {
    {"static", FORKS | FREEABLE, MUTEX, init_static, PTHREAD_CALLS},
    {"default", FORKS | FREEABLE, MUTEX, init_null, PTHREAD_CALLS},
    {"normal", FORKS | FREEABLE, MUTEX, init_normal, PTHREAD_CALLS},
    {"recursive", RECURSIVE | CHECKS_OWNER | FORKS | FREEABLE, MUTEX, init_recursive, PTHREAD_CALLS},
    {"static recursive", RECURSIVE | CHECKS_OWNER | FORKS | FREEABLE, MUTEX, init_static_recursive,
     PTHREAD_CALLS},
    {"errorcheck", ERRORCHECK | CHECKS_OWNER | FORKS | FREEABLE, MUTEX, init_errorcheck, PTHREAD_CALLS},
    {"static errorcheck", ERRORCHECK | CHECKS_OWNER | FORKS | FREEABLE, MUTEX, init_static_errorcheck,
     PTHREAD_CALLS},
    {"adaptive", FORKS | FREEABLE, MUTEX, init_adaptive, PTHREAD_CALLS},
    {"static adaptive", FORKS | FREEABLE, MUTEX, init_static_adaptive, PTHREAD_CALLS},
    {"C11 plain", C11 | FORKS | FREEABLE, C11_MUTEX, c_plain, c_lock, c_trylock, NULL, NULL, c_unlock,
     c_destroy},
    {"C11 timed", C11 | FORKS | FREEABLE, C11_MUTEX, c_timed, c_lock, c_trylock, c_timedlock, NULL, c_unlock,
     c_destroy},
    {"C11 recursive", C11 | RECURSIVE | FORKS | FREEABLE, C11_MUTEX, c_recursive, c_lock, c_trylock,
     c_timedlock, NULL, c_unlock, c_destroy},
    /* Not Poundlock's to replace: these must reach glibc whole. Their owner is a kernel thread id or a list
     * of the thread's, which a forked child does not inherit; robust unlocks touch the list after the
     * release. */
    {"priority-inheriting", CHECKS_OWNER | KERNEL_DEADLINE, MUTEX, init_inherit, m_lock, m_trylock,
     m_timedlock, NULL, m_unlock, m_destroy},
    {"robust", CHECKS_OWNER, MUTEX, init_robust, PTHREAD_CALLS},
    {"process-shared", FORKS, MUTEX, init_shared, PTHREAD_CALLS},
    /* Twice, so that one is waited for and held inside the other. */
    {"spin", SPINS | FORKS | FREEABLE, SPIN, s_private, SPIN_CALLS},
    {"another spin", SPINS | FORKS | FREEABLE, SPIN, s_private, SPIN_CALLS},
    {"process-shared spin", SPINS | SHARED | FORKS | FREEABLE, SPIN, s_shared, SPIN_CALLS},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* These, and after them the readers-writer locks. */
unsigned kind_count(void) { return KINDS + sharing_kinds; }
const struct kind *kind_at(unsigned number) {
    return number < KINDS ? &kinds[number] : sharing_kind(number - KINDS);
}

/* ---- condition variables ---- */

static int v_wait(void *c, void *m) { return pthread_cond_wait(c, m); }
static int v_timedwait(void *c, void *m, const struct timespec *t) { return pthread_cond_timedwait(c, m, t); }
static int v_clockwait(void *c, void *m, clockid_t k, const struct timespec *t) {
    return pthread_cond_clockwait(c, m, k, t);
}
static int v_signal(void *c) { return pthread_cond_signal(c); }
static int v_broadcast(void *c) { return pthread_cond_broadcast(c); }
static int v_destroy(void *c) { return pthread_cond_destroy(c); }
static int v_static(void *c) {
    static const pthread_cond_t from = PTHREAD_COND_INITIALIZER;
    memcpy(c, &from, sizeof from);
    return 0;
}
static int v_attr(void *c, clockid_t clock, int shared) {
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc == 0) rc = pthread_condattr_setclock(&attr, clock);
    if (rc == 0) rc = pthread_condattr_setpshared(&attr, shared);
    if (rc == 0) rc = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return rc;
}
static int v_null(void *c) { return pthread_cond_init(c, NULL); }
static int v_monotonic(void *c) { return v_attr(c, CLOCK_MONOTONIC, PTHREAD_PROCESS_PRIVATE); }
static int v_shared(void *c) { return v_attr(c, CLOCK_REALTIME, PTHREAD_PROCESS_SHARED); }

static int d_init(void *c) { return from_c11(cnd_init(c)); }
static int d_wait(void *c, void *m) { return from_c11(cnd_wait(c, m)); }
static int d_timedwait(void *c, void *m, const struct timespec *t) {
    return from_c11(cnd_timedwait(c, m, t));
}
static int d_signal(void *c) { return from_c11(cnd_signal(c)); }
static int d_broadcast(void *c) { return from_c11(cnd_broadcast(c)); }
static int d_destroy(void *c) {
    cnd_destroy(c);
    return 0;
}

#define COND_CALLS v_wait, v_timedwait, v_clockwait, v_signal, v_broadcast, v_destroy
#define COND sizeof(pthread_cond_t)

const struct cond_kind cond_kinds[] = {
    {"static", CLOCK_REALTIME, COND, v_static, COND_CALLS},
    {"default", CLOCK_REALTIME, COND, v_null, COND_CALLS},
    {"monotonic", CLOCK_MONOTONIC, COND, v_monotonic, COND_CALLS},
    {"process-shared", CLOCK_REALTIME, COND, v_shared, COND_CALLS},
    {"C11", CLOCK_REALTIME, sizeof(cnd_t), d_init, d_wait, d_timedwait, NULL, d_signal, d_broadcast,
     d_destroy},
    {NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

/* The calls above, as symbols: what a program binds to by name. */
const char *const symbols[] = {
    "pthread_mutex_init",
    "pthread_mutex_destroy",
    "pthread_mutex_lock",
    "pthread_mutex_trylock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_mutex_unlock",
    "pthread_cond_init",
    "pthread_cond_destroy",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "pthread_cond_signal",
    "pthread_cond_broadcast",
    "mtx_init",
    "mtx_destroy",
    "mtx_lock",
    "mtx_trylock",
    "mtx_timedlock",
    "mtx_unlock",
    "cnd_init",
    "cnd_destroy",
    "cnd_wait",
    "cnd_timedwait",
    "cnd_signal",
    "cnd_broadcast",
    "pthread_rwlock_init",
    "pthread_rwlock_destroy",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_tryrdlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_trywrlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockwrlock",
    "pthread_rwlock_unlock",
    "pthread_spin_init",
    "pthread_spin_destroy",
    "pthread_spin_lock",
    "pthread_spin_trylock",
    "pthread_spin_unlock",
    NULL,
};

const struct kind *kind_named(const char *name) {
    for (unsigned i = 0; i < kind_count(); i++)
        if (strcmp(kind_at(i)->name, name) == 0) return kind_at(i);
    violation("torture itself: no kind of lock is named %s", name);
}

const struct cond_kind *cond_kind_named(const char *name) {
    for (const struct cond_kind *kind = cond_kinds; kind->name; kind++)
        if (strcmp(kind->name, name) == 0) return kind;
    violation("torture itself: no kind of condition variable is named %s", name);
}

_Static_assert(MUTEX <= OBJECT_BYTES && COND <= OBJECT_BYTES && C11_MUTEX <= OBJECT_BYTES &&
                   SPIN <= OBJECT_BYTES,
               "objects fit their cells");
