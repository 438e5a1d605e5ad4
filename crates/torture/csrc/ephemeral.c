/*
 * Mutexes, spinlocks and readers-writer locks that are destroyed and unmapped right after the last unlock.
 *
 * Each lies in a page of its own beside a reference count that it protects. Whoever brings the count to 0
 * destroys it, while the thread that unlocked just before may still be inside unlock: from the store that
 * released the lock on, that thread may not read the page (unmapped: a fault) nor write to it (overwritten
 * with a pattern: compared later).
 */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define PATTERN 0xa7

struct parcel {
    struct cell cell;
    struct lock lock; /* its witnesses */
    uint64_t references;
};
_Static_assert(sizeof(struct parcel) <= PAGE, "a parcel is a page");

/* References on their way to somebody. */
#define BOXES 4
static _Atomic(struct parcel *) box[BOXES];

static void dispose(struct parcel *parcel, const struct kind *kind) {
    void *object = parcel->cell.object;
    doing(DESTROYING, kind->name, NULL, 0);
    int rc = kind->destroy(object);
    expect_zero("destroy", kind->name, rc);
    if (chance(500)) {
        unsigned char *bytes = (unsigned char *)parcel;
        memset(bytes, PATTERN, PAGE);
        atomic_signal_fence(memory_order_seq_cst);
        if (chance(500))
            sched_yield();
        else
            spin(below(2000));
        for (unsigned i = 0; i < PAGE; i++)
            VIOLATION_IF(((volatile unsigned char *)bytes)[i] != PATTERN,
                         "a lock (%s) was written to after its last unlock and destroy: byte %ld became %02x",
                         kind->name, (long)i - (long)offsetof(struct parcel, cell.object), bytes[i]);
        did(kind->traits & SPINS    ? DID_SPIN_POISONED
            : kind->traits & SHARES ? DID_SHARED_POISONED
                                    : DID_POISONED);
    } else {
        did(kind->traits & SPINS    ? DID_SPIN_UNMAPPED
            : kind->traits & SHARES ? DID_SHARED_UNMAPPED
                                    : DID_UNMAPPED);
    }
    VIOLATION_IF(munmap(parcel, PAGE) != 0, "torture itself: munmap failed");
    doing(THINKING, NULL, NULL, 0);
}

/* The lock is held. Gives one reference up, unlocks, and disposes of the mutex if it was the last. */
static void drop(struct parcel *parcel) {
    struct lock *lock = &parcel->lock;
    const struct kind *kind = lock->kind;
    void *object = parcel->cell.object;
    bool last = --parcel->references == 0;
    leave(lock);
    doing(UNLOCKING, kind->name, NULL, 0);
    int rc = STEPPED(150, kind->unlock(object));
    /* Unless this was the last reference, the page may be gone. */
    expect_zero("unlock", kind->name, rc);
    doing(THINKING, NULL, NULL, 0);
    if (last) dispose(parcel, kind);
}

static void lock_parcel(struct parcel *parcel) {
    const struct kind *kind = parcel->lock.kind;
    void *object = parcel->cell.object;
    int rc = EBUSY;
    /* The reference keeps the page there, but the monitor has none: no bytes. */
    doing(LOCKING, kind->name, NULL, 0);
    switch (below(4)) {
    case 0: rc = kind->trylock(object); break;
    case 1:
        if (kind->timedlock) {
            struct timespec deadline = deadline_after(CLOCK_REALTIME, 3600 * 1000000000ll);
            rc = kind->timedlock(object, &deadline);
        }
        break;
    }
    if (rc == EBUSY) {
        rc = STEPPED(10, kind->lock(object));
    }
    expect_zero("lock", kind->name, rc);
    doing(HOLDING, kind->name, NULL, 0);
    enter(&parcel->lock);
}

/* A reference given up by a reader, who may be on its way out still when the last one has been in as the
 * writer, alone. */
static void drop_shared(struct parcel *parcel) {
    struct lock *lock = &parcel->lock;
    const struct kind *kind = lock->kind;
    void *object = parcel->cell.object;
    doing(LOCKING, kind->name, NULL, 0);
    int rc = lock->sharing->lock(object);
    expect_zero("rdlock", kind->name, rc);
    uint64_t entries = enter_shared(lock);
    spin(below(100));
    leave_shared(lock, entries);
    bool last = __atomic_sub_fetch(&parcel->references, 1, __ATOMIC_RELAXED) == 0;
    doing(UNLOCKING, kind->name, NULL, 0);
    rc = STEPPED(150, lock->sharing->unlock(object));
    expect_zero("unlock", kind->name, rc);
    doing(THINKING, NULL, NULL, 0);
    if (!last) return;
    lock_parcel(parcel);
    leave(lock);
    expect_zero("unlock", kind->name, kind->unlock(object));
    dispose(parcel, kind);
}

/* A young mutex has paths of its own (a first sleeper, a first time-out), which one that has lived a while
 * does not take any more: so some are used more than once before they go. */
static void use(struct parcel *parcel) {
    struct lock *lock = &parcel->lock;
    for (unsigned i = chance(400) ? below(12) : 0; i > 0; i--) {
        if (lock->kind->timedlock && chance(300)) {
            struct timespec soon = deadline_after(CLOCK_REALTIME, below(100000));
            doing(TIMED_LOCKING, lock->kind->name, NULL, 0);
            int rc = lock->kind->timedlock(parcel->cell.object, &soon);
            if (rc == ETIMEDOUT) continue;
            expect_zero("timedlock", lock->kind->name, rc);
            enter(lock);
        } else {
            lock_parcel(parcel);
        }
        if (chance(20))
            nap(below(100));
        else
            spin(below(chance(100) ? 2000 : 100));
        leave(lock);
        doing(UNLOCKING, lock->kind->name, NULL, 0);
        int rc = STEPPED(30, lock->kind->unlock(parcel->cell.object));
        expect_zero("unlock", lock->kind->name, rc);
    }
    if (lock->sharing && chance(600)) {
        drop_shared(parcel);
        return;
    }
    lock_parcel(parcel);
    spin(below(100));
    drop(parcel);
}

static void send(void) {
    struct parcel *parcel = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (parcel == MAP_FAILED) return;
    do parcel->lock.kind = kind_at(below(kind_count()));
    while (!(parcel->lock.kind->traits & FREEABLE));
    parcel->lock.name = parcel->lock.kind->name;
    parcel->lock.sharing = sharing_of(parcel->lock.kind);
    parcel->lock.cell = &parcel->cell;
    int rc = parcel->lock.kind->init(parcel->cell.object);
    expect_zero("init", parcel->lock.kind->name, rc);
    unsigned others = 1 + below(3);
    parcel->references = 1 + others;
    /* The others come upon a lock that is held, wait for it, and are woken by the unlock that must not look
     * back. */
    lock_parcel(parcel);
    struct parcel *returned[3];
    unsigned count = 0;
    for (unsigned i = 0; i < others; i++) {
        struct parcel *previous = atomic_exchange(&box[below(BOXES)], parcel);
        if (previous) returned[count++] = previous;
    }
    if (chance(300))
        nap(below(100));
    else
        spin(below(1000));
    /* What came back out of a box is used after our own lock is let go of; if it is our own, so are we. */
    drop(parcel);
    for (unsigned i = 0; i < count; i++) use(returned[i]);
}

void act_ephemeral(void) {
    struct parcel *parcel = atomic_exchange(&box[below(BOXES)], NULL);
    if (parcel)
        use(parcel);
    else
        send();
}

void drain_ephemeral(void) {
    for (unsigned i = 0; i < BOXES; i++) {
        struct parcel *parcel = atomic_exchange(&box[i], NULL);
        if (parcel) use(parcel);
    }
}
