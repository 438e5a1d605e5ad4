/*
 * Readers-writer locks: the sides that several may hold at once. What a writer does is in `kinds`, and goes
 * through every action that mutexes go through.
 *
 * pthread's are tried by kind. Beside them stand those of poundlock-core, linked into this program and not
 * preloaded, for what pthread has no calls for: each policy, downgrades, and a reader that may become the
 * writer.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SECOND 1000000000ll

/* ---- pthread's ---- */

static int r_lock(void *l) { return pthread_rwlock_rdlock(l); }
static int r_trylock(void *l) { return pthread_rwlock_tryrdlock(l); }
static int r_timedlock(void *l, const struct timespec *t) { return pthread_rwlock_timedrdlock(l, t); }
static int r_clocklock(void *l, clockid_t c, const struct timespec *t) {
    return pthread_rwlock_clockrdlock(l, c, t);
}
static int r_unlock(void *l) { return pthread_rwlock_unlock(l); }

#define NO_LOOKS NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
#define PTHREAD_SHARING(again) {again, r_lock, r_trylock, r_timedlock, r_clocklock, r_unlock, NO_LOOKS}
static const struct sharing reading_on = PTHREAD_SHARING(true), reading_once = PTHREAD_SHARING(false);

/* ---- poundlock-core's: `torture/rwlocks.rs` ---- */

enum operation {
    READ,
    TRY_READ,
    LEAVE_READ,
    WRITE,
    TRY_WRITE,
    LEAVE_WRITE,
    LOOK,
    TRY_LOOK,
    LEAVE_LOOK,
    UPGRADE,
    TRY_UPGRADE,
    WRITE_TO_READ,
    WRITE_TO_LOOK,
    LOOK_TO_READ,
    DESTROY
};
/* 0 or an error number; the deadline may be NULL. */
int poundlock_torture_rwlock(void *lock, unsigned policy, unsigned operation, clockid_t clock,
                             const struct timespec *deadline);

static int core_init(void *l) {
    memset(l, 0, 32);
    return 0;
}
#define CALL(name, policy, operation) \
    static int name(void *l) { return poundlock_torture_rwlock(l, policy, operation, 0, NULL); }
#define TIMED(name, policy, operation) \
    static int name(void *l, const struct timespec *t) { \
        return poundlock_torture_rwlock(l, policy, operation, CLOCK_REALTIME, t); \
    }
#define CLOCKED(name, policy, operation) \
    static int name(void *l, clockid_t c, const struct timespec *t) { \
        return poundlock_torture_rwlock(l, policy, operation, c, t); \
    }
#define CORE(prefix, policy, again) \
    CALL(prefix##_read, policy, READ) CALL(prefix##_try_read, policy, TRY_READ) \
    TIMED(prefix##_timed_read, policy, READ) CLOCKED(prefix##_clock_read, policy, READ) \
    CALL(prefix##_leave_read, policy, LEAVE_READ) \
    CALL(prefix##_write, policy, WRITE) CALL(prefix##_try_write, policy, TRY_WRITE) \
    TIMED(prefix##_timed_write, policy, WRITE) CLOCKED(prefix##_clock_write, policy, WRITE) \
    CALL(prefix##_leave_write, policy, LEAVE_WRITE) \
    CALL(prefix##_look, policy, LOOK) CALL(prefix##_try_look, policy, TRY_LOOK) \
    CLOCKED(prefix##_clock_look, policy, LOOK) CALL(prefix##_leave_look, policy, LEAVE_LOOK) \
    CALL(prefix##_upgrade, policy, UPGRADE) CALL(prefix##_try_upgrade, policy, TRY_UPGRADE) \
    CLOCKED(prefix##_clock_upgrade, policy, UPGRADE) \
    CALL(prefix##_write_to_read, policy, WRITE_TO_READ) CALL(prefix##_write_to_look, policy, WRITE_TO_LOOK) \
    CALL(prefix##_look_to_read, policy, LOOK_TO_READ) CALL(prefix##_destroy, policy, DESTROY) \
    static const struct sharing prefix##_sharing = { \
        again, prefix##_read, prefix##_try_read, prefix##_timed_read, prefix##_clock_read, \
        prefix##_leave_read, \
        prefix##_write_to_read, prefix##_write_to_look, prefix##_look, prefix##_try_look, \
        prefix##_clock_look, \
        prefix##_leave_look, prefix##_look_to_read, prefix##_upgrade, prefix##_try_upgrade, \
        prefix##_clock_upgrade}; \
    static const struct kind prefix##_kind = { \
        "rwlock of the core, " #prefix, SHARES | FORKS | FREEABLE, 32, core_init, prefix##_write, \
        prefix##_try_write, \
        prefix##_timed_write, prefix##_clock_write, prefix##_leave_write, prefix##_destroy};
CORE(phase_fair, 0, false)
CORE(reader_preferring, 1, true)
CORE(writer_preferring, 2, false)

/* ---- the table ---- */

static int w_static(void *l) {
    static const pthread_rwlock_t from = PTHREAD_RWLOCK_INITIALIZER;
    memcpy(l, &from, sizeof from);
    return 0;
}
static int w_init(void *l, int preference, int shared) {
    pthread_rwlockattr_t attr;
    int rc = pthread_rwlockattr_init(&attr);
    if (rc == 0) rc = pthread_rwlockattr_setkind_np(&attr, preference);
    if (rc == 0) rc = pthread_rwlockattr_setpshared(&attr, shared);
    if (rc == 0) rc = pthread_rwlock_init(l, &attr);
    pthread_rwlockattr_destroy(&attr);
    return rc;
}
static int w_default(void *l) { return pthread_rwlock_init(l, NULL); }
static int w_writers(void *l) {
    return w_init(l, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, PTHREAD_PROCESS_PRIVATE);
}
static int w_shared(void *l) { return w_init(l, PTHREAD_RWLOCK_DEFAULT_NP, PTHREAD_PROCESS_SHARED); }
static int w_lock(void *l) { return pthread_rwlock_wrlock(l); }
static int w_trylock(void *l) { return pthread_rwlock_trywrlock(l); }
static int w_timedlock(void *l, const struct timespec *t) { return pthread_rwlock_timedwrlock(l, t); }
static int w_clocklock(void *l, clockid_t c, const struct timespec *t) {
    return pthread_rwlock_clockwrlock(l, c, t);
}
static int w_destroy(void *l) { return pthread_rwlock_destroy(l); }

#define RWLOCK sizeof(pthread_rwlock_t)
#define WRITER_CALLS w_lock, w_trylock, w_timedlock, w_clocklock, r_unlock, w_destroy
static const struct kind of_pthread[] = {
    {"rwlock", SHARES | ERRORCHECK | FORKS | FREEABLE, RWLOCK, w_default, WRITER_CALLS},
    {"static rwlock", SHARES | ERRORCHECK | FORKS | FREEABLE, RWLOCK, w_static, WRITER_CALLS},
    {"rwlock preferring writers", SHARES | ERRORCHECK | FORKS | FREEABLE, RWLOCK, w_writers, WRITER_CALLS},
    /* glibc's in any case. */
    {"process-shared rwlock", SHARES | ERRORCHECK, RWLOCK, w_shared, WRITER_CALLS},
};
_Static_assert(RWLOCK <= OBJECT_BYTES, "objects fit their cells");

static const struct {
    const struct kind *kind;
    const struct sharing *sharing;
} table[] = {
    {&of_pthread[0], &reading_on},
    {&of_pthread[1], &reading_on},
    {&of_pthread[2], &reading_once},
    {&of_pthread[3], &reading_on},
    {&phase_fair_kind, &phase_fair_sharing},
    {&reader_preferring_kind, &reader_preferring_sharing},
    {&writer_preferring_kind, &writer_preferring_sharing},
};
const unsigned sharing_kinds = sizeof table / sizeof *table;

const struct kind *sharing_kind(unsigned number) { return table[number].kind; }

const struct sharing *sharing_of(const struct kind *kind) {
    for (unsigned i = 0; i < sharing_kinds; i++)
        if (table[i].kind == kind)
            /* Run on phase-fair locks a thread must not read twice, whatever the kind. */
            return table[i].sharing == &reading_on && world.reads_once ? &reading_once : table[i].sharing;
    return NULL;
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

bool survives_fork(const struct kind *kind) {
    bool of_pthread = kind->traits & SHARES && !sharing_of(kind)->look;
    return kind->traits & FORKS && !(of_pthread && world.rwlocks_are_glibcs);
}

/* ---- the checker, for those who share ---- */

uint64_t enter_shared(struct lock *lock) {
    atomic_fetch_add_explicit(&lock->sharers, 1, memory_order_relaxed);
    uint32_t owner = lock->owner;
    VIOLATION_IF(owner != 0, "exclusion: thread %u reads %s while thread %u holds it", self->number,
                 lock->name, owner - 1);
    VIOLATION_IF(lock->first != lock->second,
                 "exclusion: thread %u reads %s in the middle of a critical section (%lu of %lu)",
                 self->number, lock->name, (unsigned long)lock->second, (unsigned long)lock->first);
    return lock->entries;
}

void must_share(const struct lock *lock, uint64_t entries, const char *when) {
    VIOLATION_IF(lock->owner != 0 || lock->entries != entries || lock->first != lock->second,
                 "exclusion: %s, thread %u reads %s, but a critical section ran (%lu, %lu; thread %d)", when,
                 self->number, lock->name, (unsigned long)entries, (unsigned long)lock->entries,
                 (int)lock->owner - 1);
}

void leave_shared(struct lock *lock, uint64_t entries) {
    must_share(lock, entries, "on leaving");
    atomic_fetch_sub_explicit(&lock->sharers, 1, memory_order_relaxed);
}

/* ---- actions ---- */

static int call(const char *name, struct lock *lock, enum what what, int (*operation)(void *)) {
    doing_lock(what, lock);
    int rc = CALLED(name, lock->name, operation(lock->cell->object));
    return rc;
}

static void must(const char *name, struct lock *lock, enum what what, int (*operation)(void *)) {
    int rc = call(name, lock, what, operation);
    expect_zero(name, lock->name, rc);
}

/* With a deadline, near or never; false: it passed. */
static bool timed(const char *name, struct lock *lock,
                  int (*operation)(void *, clockid_t, const struct timespec *)) {
    clockid_t clock = chance(500) ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    struct timespec deadline = chance(200) ? deadline_after(clock, 3600 * SECOND)
                                           : deadline_after(clock, below(below(4) == 0 ? 3000000 : 100000));
    struct wait_began began = wait_begins(clock, deadline);
    doing_lock(TIMED_LOCKING, lock);
    int rc = CALLED(name, lock->name, operation(lock->cell->object, clock, &deadline));
    if (rc == ETIMEDOUT) {
        must_have_timed_out(&began, name, lock->name);
        did(DID_SHARE_TIMED_OUT);
        return false;
    }
    expect_zero(name, lock->name, rc);
    return true;
}

/* By any of three ways, of which two may fail. */
static bool gets(const char *name, struct lock *lock, int (*always)(void *), int (*at_once)(void *),
                 int (*until)(void *, clockid_t, const struct timespec *)) {
    int rc;
    switch (below(8)) {
    case 0:
        rc = call(name, lock, TRYING, at_once);
        if (rc != 0 && rc != EBUSY) expect_zero(name, lock->name, rc);
        return rc == 0;
    case 1:
    case 2: return timed(name, lock, until);
    default: must(name, lock, LOCKING, always); return true;
    }
}

static void read_on(struct lock *lock, uint64_t entries) {
    doing_lock(HOLDING, lock);
    hold();
    must_share(lock, entries, "inside");
    /* Whoever waits meanwhile. */
    for (unsigned depth = lock->sharing->again && chance(200) ? 1 + below(3) : 0; depth > 0; depth--) {
        struct timespec past = {0, 0};
        int rc = chance(500) ? lock->sharing->lock(lock->cell->object)
                             : lock->sharing->timedlock(lock->cell->object, &past);
        expect_zero("rdlock by a reader", lock->name, rc);
        must_share(lock, entries, "twice inside");
        hold();
        expect_zero("unlock by a reader", lock->name, lock->sharing->unlock(lock->cell->object));
        did(DID_SHARE_AGAIN);
    }
    leave_shared(lock, entries);
    must("unlock by a reader", lock, UNLOCKING, lock->sharing->unlock);
}

static void write_on(struct lock *lock);

/* The caller is the reader that may become the writer. */
static void look_on(struct lock *lock, uint64_t entries) {
    const struct sharing *sharing = lock->sharing;
    doing_lock(HOLDING, lock);
    hold();
    unsigned next = below(4);
    if (next == 0) {
        leave_shared(lock, entries);
        must("leaving as the upgradable reader", lock, UNLOCKING, sharing->leave_look);
    } else if (next == 1) {
        must_share(lock, entries, "before it stays as a reader");
        must("staying as a reader", lock, UNLOCKING, sharing->look_to_read);
        did(DID_DOWNGRADE);
        read_on(lock, entries);
    } else {
        leave_shared(lock, entries);
        bool upgraded = gets("upgrade", lock, sharing->upgrade, sharing->try_upgrade, sharing->clock_upgrade);
        if (!upgraded) {
            VIOLATION_IF(enter_shared(lock) != entries,
                         "exclusion: somebody wrote to %s while thread %u tried to upgrade", lock->name,
                         self->number);
            leave_shared(lock, entries);
            must("leaving as the upgradable reader", lock, UNLOCKING, sharing->leave_look);
            did(DID_UPGRADE_FAILED);
        } else {
            VIOLATION_IF(lock->entries != entries,
                         "exclusion: somebody wrote to %s before thread %u, which upgraded", lock->name,
                         self->number);
            did(DID_UPGRADE);
            enter(lock);
            self->entries[lock->index]++;
            write_on(lock);
        }
    }
    doing(THINKING, NULL, NULL, 0);
}

/* The caller is the writer, and stays on as a reader, or leaves. */
static void write_on(struct lock *lock) {
    doing_lock(HOLDING, lock);
    hold();
    uint64_t entries = lock->entries;
    unsigned next = below(3);
    leave(lock);
    if (next == 0) {
        must("unlock by the writer", lock, UNLOCKING, lock->kind->unlock);
        return;
    }
    must("downgrade", lock, UNLOCKING,
         next == 1 ? lock->sharing->write_to_read : lock->sharing->write_to_look);
    did(DID_DOWNGRADE);
    VIOLATION_IF(enter_shared(lock) != entries,
                 "exclusion: somebody wrote to %s before thread %u, which stayed as a reader", lock->name,
                 self->number);
    if (next == 1)
        read_on(lock, entries);
    else
        look_on(lock, entries);
}

void act_share(void) {
    struct lock *lock = pick_lock();
    /* Most are not shared: then one of those that are. */
    while (!lock->sharing) lock = &world.lock[below(world.ordinary)];
    const struct sharing *sharing = lock->sharing;
    if (!sharing->look || chance(700)) {
        if (gets("rdlock", lock, sharing->lock, sharing->trylock, sharing->clocklock)) {
            did(DID_SHARE);
            read_on(lock, enter_shared(lock));
        }
    } else if (chance(500)) {
        if (gets("the upgradable reader's lock", lock, sharing->look, sharing->try_look,
                 sharing->clock_look)) {
            did(DID_SHARE);
            look_on(lock, enter_shared(lock));
        }
    } else if (acquire(lock, BY_WHATEVER, false)) {
        write_on(lock);
    }
    doing(THINKING, NULL, NULL, 0);
}
