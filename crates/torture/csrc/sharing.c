/*
 * Readers-writer locks: the sides that several may hold at once. What a writer does goes through every action
 * that mutexes go through.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>

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

/* With a deadline, near or never; false: it passed. */
static bool timed(struct lock *lock, enum operation operation, const char *call) {
    clockid_t clock = chance(500) ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    struct until until = chance(200) ? until_after(clock, 3600000000000ll)
                                     : until_after(clock, below(below(4) == 0 ? 3000000 : 100000));
    until.clocked = true;
    bool in_time = ask_until(lock, operation, call, &until);
    if (!in_time) did(DID_SHARE_TIMED_OUT);
    return in_time;
}

/* By any of three ways, of which two may fail. */
static bool gets(struct lock *lock, enum operation operation, enum operation at_once, const char *call) {
    switch (below(8)) {
    case 0: {
        int rc = ask(lock, at_once, call, NULL);
        if (rc != EBUSY) expect_zero(call, lock->name, rc);
        return rc == 0;
    }
    case 1:
    case 2: return timed(lock, operation, call);
    default: must(lock, operation, call); return true;
    }
}

static void read_on(struct lock *lock, uint64_t entries) {
    doing_lock(HOLDING, lock);
    hold();
    must_share(lock, entries, "inside");
    /* Whoever waits meanwhile. */
    for (unsigned depth = reads_again(lock->kind) && chance(200) ? 1 + below(3) : 0; depth > 0; depth--) {
        struct until past = until_at(CLOCK_REALTIME, (struct timespec){0, 0});
        int rc = plain_call(lock, READ, chance(500) ? NULL : &past);
        expect_zero("rdlock by a reader", lock->name, rc);
        must_share(lock, entries, "twice inside");
        hold();
        expect_zero("unlock by a reader", lock->name, plain_call(lock, LEAVE_READ, NULL));
        did(DID_SHARE_AGAIN);
    }
    leave_shared(lock, entries);
    must(lock, LEAVE_READ, "unlock by a reader");
}

static void write_on(struct lock *lock);

/* The caller is the reader that may become the writer. */
static void look_on(struct lock *lock, uint64_t entries) {
    doing_lock(HOLDING, lock);
    hold();
    unsigned next = below(4);
    if (next == 0) {
        leave_shared(lock, entries);
        must(lock, LEAVE_LOOK, "leaving as the upgradable reader");
    } else if (next == 1) {
        must_share(lock, entries, "before it stays as a reader");
        must(lock, LOOK_TO_READ, "staying as a reader");
        did(DID_DOWNGRADE);
        read_on(lock, entries);
    } else {
        leave_shared(lock, entries);
        if (!gets(lock, UPGRADE, TRY_UPGRADE, "upgrade")) {
            VIOLATION_IF(enter_shared(lock) != entries,
                         "exclusion: somebody wrote to %s while thread %u tried to upgrade", lock->name,
                         self->number);
            leave_shared(lock, entries);
            must(lock, LEAVE_LOOK, "leaving as the upgradable reader");
            did(DID_UPGRADE_FAILED);
        } else {
            VIOLATION_IF(lock->entries != entries,
                         "exclusion: somebody wrote to %s before thread %u, which upgraded", lock->name,
                         self->number);
            did(DID_UPGRADE);
            enter_counted(lock);
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
        must(lock, UNLOCK, "unlock by the writer");
        return;
    }
    must(lock, next == 1 ? WRITE_TO_READ : WRITE_TO_LOOK, "downgrade");
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
    while (!(lock->kind->traits & SHARES)) lock = &world.lock[below(world.ordinary)];
    if (!(lock->kind->traits & LOOKS) || chance(700)) {
        if (gets(lock, READ, TRY_READ, "rdlock")) {
            did(DID_SHARE);
            read_on(lock, enter_shared(lock));
        }
    } else if (chance(500)) {
        if (gets(lock, LOOK, TRY_LOOK, "the upgradable reader's lock")) {
            did(DID_SHARE);
            look_on(lock, enter_shared(lock));
        }
    } else if (acquire(lock, BY_WHATEVER, false)) {
        write_on(lock);
    }
    doing(THINKING, NULL, NULL, 0);
}
