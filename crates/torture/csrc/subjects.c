/* The tables of what is tortured, and how each operation is asked of it. */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

static int from_initialiser(const struct kind *kind, void *object) {
    memcpy(object, kind->from, kind->size);
    return 0;
}

static int pshared(const struct kind *kind) {
    return kind->traits & SHARED ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE;
}

/* ---- pthread mutexes: one set of calls, many ways to initialise ---- */

static int m_default(const struct kind *kind, void *m) {
    (void)kind;
    return pthread_mutex_init(m, NULL);
}
static int m_init(const struct kind *kind, void *m) {
    pthread_mutexattr_t attr;
    int rc = pthread_mutexattr_init(&attr);
    if (rc == 0) rc = pthread_mutexattr_settype(&attr, kind->type);
    if (rc == 0) rc = pthread_mutexattr_setprotocol(&attr, kind->protocol);
    if (rc == 0) rc = pthread_mutexattr_setrobust(&attr, kind->robust);
    if (rc == 0) rc = pthread_mutexattr_setpshared(&attr, pshared(kind));
    if (rc == 0) rc = pthread_mutex_init(m, &attr);
    pthread_mutexattr_destroy(&attr);
    return rc;
}
static int m_call(const struct kind *kind, void *m, enum operation operation, const struct until *until) {
    (void)kind;
    switch (operation) {
    case LOCK:
        if (!until) return pthread_mutex_lock(m);
        if (!until->clocked) return pthread_mutex_timedlock(m, &until->deadline);
        return pthread_mutex_clocklock(m, until->clock, &until->deadline);
    case TRYLOCK: return pthread_mutex_trylock(m);
    case UNLOCK: return pthread_mutex_unlock(m);
    case DESTROY: return pthread_mutex_destroy(m);
    default: return ENOTSUP;
    }
}

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
static int c_init(const struct kind *kind, void *m) { return from_c11(mtx_init(m, kind->type)); }
static int c_call(const struct kind *kind, void *m, enum operation operation, const struct until *until) {
    (void)kind;
    switch (operation) {
    case LOCK: return from_c11(until ? mtx_timedlock(m, &until->deadline) : mtx_lock(m));
    case TRYLOCK: return from_c11(mtx_trylock(m));
    case UNLOCK: return from_c11(mtx_unlock(m));
    case DESTROY: mtx_destroy(m); return 0;
    default: return ENOTSUP;
    }
}

/* ---- spinlocks ---- */

static int s_init(const struct kind *kind, void *s) { return pthread_spin_init(s, pshared(kind)); }
static int s_call(const struct kind *kind, void *s, enum operation operation, const struct until *until) {
    (void)kind, (void)until;
    switch (operation) {
    case LOCK: return pthread_spin_lock(s);
    case TRYLOCK: return pthread_spin_trylock(s);
    case UNLOCK: return pthread_spin_unlock(s);
    case DESTROY: return pthread_spin_destroy(s);
    default: return ENOTSUP;
    }
}

/* ---- readers-writer locks: pthread's by kind; and poundlock-core's, linked into this program and not
 * preloaded, for what pthread has no calls for: each policy, downgrades, and a reader that may become the
 * writer ---- */

static int r_default(const struct kind *kind, void *l) {
    (void)kind;
    return pthread_rwlock_init(l, NULL);
}
static int r_init(const struct kind *kind, void *l) {
    pthread_rwlockattr_t attr;
    int rc = pthread_rwlockattr_init(&attr);
    if (rc == 0) rc = pthread_rwlockattr_setkind_np(&attr, kind->type);
    if (rc == 0) rc = pthread_rwlockattr_setpshared(&attr, pshared(kind));
    if (rc == 0) rc = pthread_rwlock_init(l, &attr);
    pthread_rwlockattr_destroy(&attr);
    return rc;
}
static int r_call(const struct kind *kind, void *l, enum operation operation, const struct until *until) {
    (void)kind;
    switch (operation) {
    case READ:
        if (!until) return pthread_rwlock_rdlock(l);
        if (!until->clocked) return pthread_rwlock_timedrdlock(l, &until->deadline);
        return pthread_rwlock_clockrdlock(l, until->clock, &until->deadline);
    case TRY_READ: return pthread_rwlock_tryrdlock(l);
    case LOCK:
        if (!until) return pthread_rwlock_wrlock(l);
        if (!until->clocked) return pthread_rwlock_timedwrlock(l, &until->deadline);
        return pthread_rwlock_clockwrlock(l, until->clock, &until->deadline);
    case TRYLOCK: return pthread_rwlock_trywrlock(l);
    case LEAVE_READ:
    case UNLOCK: return pthread_rwlock_unlock(l);
    case DESTROY: return pthread_rwlock_destroy(l);
    default: return ENOTSUP;
    }
}

/* `rwlocks.rs`: 0 or an error number; the deadline may be NULL. */
int poundlock_torture_rwlock(void *lock, unsigned policy, unsigned operation, clockid_t clock,
                             const struct timespec *deadline);

static int p_init(const struct kind *kind, void *l) {
    memset(l, 0, kind->size);
    return 0;
}
static int p_call(const struct kind *kind, void *l, enum operation operation, const struct until *until) {
    return poundlock_torture_rwlock(l, (unsigned)kind->type, operation, until ? until->clock : 0,
                                    until ? &until->deadline : NULL);
}

/* Whether glibc's code runs pthread's: a forked child cannot give back what its parent wrote then, as it goes
 * by thread ids. */
bool rwlocks_are_glibcs(void) {
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_rwlock_wrlock(&lock);
    bool result = lock.__data.__cur_writer == (int)syscall(SYS_gettid);
    pthread_rwlock_unlock(&lock);
    return result;
}

bool reads_again(const struct kind *kind) {
    /* Run on phase-fair locks a thread must not read twice, whatever pthread's kind. */
    return kind->traits & AGAIN && (kind->traits & LOOKS || !world.reads_once);
}

bool survives_fork(const struct kind *kind) {
    bool glibcs = world.rwlocks_are_glibcs && kind->traits & SHARES && !(kind->traits & LOOKS);
    return kind->traits & FORKS && !glibcs;
}

/* ---- the table ---- */

#define OURS (FORKS | FREEABLE)
#define UNTIL (TIMED | CLOCKED)
#define OWNED (ERRORCHECK | CHECKS_OWNER)
#define READERS (SHARES | OURS | UNTIL)
#define MUTEX(by) sizeof(pthread_mutex_t), .init = by, .call = m_call
#define STATIC(...) MUTEX(from_initialiser), .from = &(const pthread_mutex_t)__VA_ARGS__
#define C11_MUTEX sizeof(mtx_t), .init = c_init, .call = c_call
#define SPIN sizeof(pthread_spinlock_t), .init = s_init, .call = s_call
#define RWLOCK(by) sizeof(pthread_rwlock_t), .init = by, .call = r_call
#define OF_CORE 32, .init = p_init, .call = p_call

const struct kind kinds[] = {
    {"static", OURS | UNTIL, STATIC(PTHREAD_MUTEX_INITIALIZER)},
    {"default", OURS | UNTIL, MUTEX(m_default)},
    {"normal", OURS | UNTIL, MUTEX(m_init), .type = PTHREAD_MUTEX_NORMAL},
    {"recursive", RECURSIVE | CHECKS_OWNER | OURS | UNTIL, MUTEX(m_init), .type = PTHREAD_MUTEX_RECURSIVE},
    {"static recursive", RECURSIVE | CHECKS_OWNER | OURS | UNTIL,
     STATIC(PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP)},
    {"errorcheck", OWNED | OURS | UNTIL, MUTEX(m_init), .type = PTHREAD_MUTEX_ERRORCHECK},
    {"static errorcheck", OWNED | OURS | UNTIL, STATIC(PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP)},
    {"adaptive", OURS | UNTIL, MUTEX(m_init), .type = PTHREAD_MUTEX_ADAPTIVE_NP},
    {"static adaptive", OURS | UNTIL, STATIC(PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP)},
    {"C11 plain", C11 | OURS, C11_MUTEX, .type = mtx_plain},
    {"C11 timed", C11 | OURS | TIMED, C11_MUTEX, .type = mtx_timed},
    {"C11 recursive", C11 | RECURSIVE | OURS | TIMED, C11_MUTEX, .type = mtx_timed | mtx_recursive},
    /* Not Poundlock's to replace: these must reach glibc whole. Their owner is a kernel thread id or a list
     * of the thread's, which a forked child does not inherit; robust unlocks touch the list after the
     * release. */
    {"priority-inheriting", CHECKS_OWNER | KERNEL_DEADLINE | TIMED, MUTEX(m_init),
     .protocol = PTHREAD_PRIO_INHERIT},
    {"robust", CHECKS_OWNER | UNTIL, MUTEX(m_init), .robust = PTHREAD_MUTEX_ROBUST},
    {"process-shared", SHARED | FORKS | UNTIL, MUTEX(m_init)},
    /* Twice, so that one is waited for and held inside the other. */
    {"spin", SPINS | OURS, SPIN},
    {"another spin", SPINS | OURS, SPIN},
    {"process-shared spin", SPINS | SHARED | OURS, SPIN},
    {"rwlock", READERS | ERRORCHECK | AGAIN, RWLOCK(r_default)},
    {"static rwlock", READERS | ERRORCHECK | AGAIN, RWLOCK(from_initialiser),
     .from = &(const pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER},
    {"rwlock preferring writers", READERS | ERRORCHECK, RWLOCK(r_init),
     .type = PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP},
    /* glibc's in any case. */
    {"process-shared rwlock", SHARES | UNTIL | ERRORCHECK | AGAIN | SHARED, RWLOCK(r_init)},
    /* The type is the policy. */
    {"rwlock of the core, phase_fair", READERS | LOOKS, OF_CORE, .type = 0},
    {"rwlock of the core, reader_preferring", READERS | LOOKS | AGAIN, OF_CORE, .type = 1},
    {"rwlock of the core, writer_preferring", READERS | LOOKS, OF_CORE, .type = 2},
};
const unsigned kind_count = sizeof kinds / sizeof *kinds;
_Static_assert(sizeof(pthread_mutex_t) <= OBJECT_BYTES && sizeof(pthread_rwlock_t) <= OBJECT_BYTES &&
                   sizeof(mtx_t) <= OBJECT_BYTES && sizeof(pthread_cond_t) <= OBJECT_BYTES,
               "objects fit their cells");

const struct kind *kind_named(const char *name) {
    for (unsigned i = 0; i < kind_count; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    violation("torture itself: no kind of lock is named %s", name);
}

/* ---- condition variables ---- */

static int v_static(const struct cond_kind *kind, void *c) {
    static const pthread_cond_t from = PTHREAD_COND_INITIALIZER;
    (void)kind;
    memcpy(c, &from, sizeof from);
    return 0;
}
static int v_default(const struct cond_kind *kind, void *c) {
    (void)kind;
    return pthread_cond_init(c, NULL);
}
static int v_init(const struct cond_kind *kind, void *c) {
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc == 0) rc = pthread_condattr_setclock(&attr, kind->clock);
    if (rc == 0) rc = pthread_condattr_setpshared(&attr, kind->shared);
    if (rc == 0) rc = pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
    return rc;
}
static int v_call(void *c, enum cond_operation operation, void *m, const struct until *until) {
    switch (operation) {
    case WAIT:
        if (!until) return pthread_cond_wait(c, m);
        if (!until->clocked) return pthread_cond_timedwait(c, m, &until->deadline);
        return pthread_cond_clockwait(c, m, until->clock, &until->deadline);
    case SIGNAL: return pthread_cond_signal(c);
    case BROADCAST: return pthread_cond_broadcast(c);
    default: return pthread_cond_destroy(c);
    }
}

static int d_init(const struct cond_kind *kind, void *c) {
    (void)kind;
    return from_c11(cnd_init(c));
}
static int d_call(void *c, enum cond_operation operation, void *m, const struct until *until) {
    switch (operation) {
    case WAIT: return from_c11(until ? cnd_timedwait(c, m, &until->deadline) : cnd_wait(c, m));
    case SIGNAL: return from_c11(cnd_signal(c));
    case BROADCAST: return from_c11(cnd_broadcast(c));
    default: cnd_destroy(c); return 0;
    }
}

static const struct cond_kind cond_kinds[] = {
    {"static", CLOCK_REALTIME, sizeof(pthread_cond_t), v_static, v_call, .clockwait = true},
    {"default", CLOCK_REALTIME, sizeof(pthread_cond_t), v_default, v_call, .clockwait = true},
    {"monotonic", CLOCK_MONOTONIC, sizeof(pthread_cond_t), v_init, v_call, .clockwait = true},
    {"process-shared", CLOCK_REALTIME, sizeof(pthread_cond_t), v_init, v_call, .clockwait = true,
     .shared = PTHREAD_PROCESS_SHARED},
    {"C11", CLOCK_REALTIME, sizeof(cnd_t), d_init, d_call, .clockwait = false},
};

const struct cond_kind *cond_kind_named(const char *name) {
    for (unsigned i = 0; i < sizeof cond_kinds / sizeof *cond_kinds; i++)
        if (strcmp(cond_kinds[i].name, name) == 0) return &cond_kinds[i];
    violation("torture itself: no kind of condition variable is named %s", name);
}

/* The calls above, as symbols: what a program binds to by name. */
const char *const symbols[] = {
    "pthread_mutex_init", "pthread_mutex_destroy", "pthread_mutex_lock", "pthread_mutex_trylock",
    "pthread_mutex_timedlock", "pthread_mutex_clocklock", "pthread_mutex_unlock", "pthread_cond_init",
    "pthread_cond_destroy", "pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait",
    "pthread_cond_signal", "pthread_cond_broadcast", "mtx_init", "mtx_destroy", "mtx_lock", "mtx_trylock",
    "mtx_timedlock", "mtx_unlock", "cnd_init", "cnd_destroy", "cnd_wait", "cnd_timedwait", "cnd_signal",
    "cnd_broadcast", "pthread_rwlock_init", "pthread_rwlock_destroy", "pthread_rwlock_rdlock",
    "pthread_rwlock_tryrdlock", "pthread_rwlock_timedrdlock", "pthread_rwlock_clockrdlock",
    "pthread_rwlock_wrlock", "pthread_rwlock_trywrlock", "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockwrlock", "pthread_rwlock_unlock", "pthread_spin_init", "pthread_spin_destroy",
    "pthread_spin_lock", "pthread_spin_trylock", "pthread_spin_unlock", NULL};
