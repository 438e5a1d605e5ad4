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

static void dispose(struct parcel *parcel) {
    const struct kind *kind = parcel->lock.kind;
    unsigned sort = kind->traits & SPINS ? 1 : kind->traits & SHARES ? 2 : 0;
    must(&parcel->lock, DESTROY, "destroy");
    if (chance(500)) {
        static const enum counter poisoned[] = {DID_POISONED, DID_SPIN_POISONED, DID_SHARED_POISONED};
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
        did(poisoned[sort]);
    } else {
        static const enum counter unmapped[] = {DID_UNMAPPED, DID_SPIN_UNMAPPED, DID_SHARED_UNMAPPED};
        did(unmapped[sort]);
    }
    VIOLATION_IF(munmap(parcel, PAGE) != 0, "torture itself: munmap failed");
    doing(THINKING, NULL, NULL, 0);
}

/* Unless this is the last reference, the page may be gone when it returns. */
static void unlock_parcel(struct parcel *parcel) {
    leave(&parcel->lock);
    must(&parcel->lock, UNLOCK, "unlock");
    doing(THINKING, NULL, NULL, 0);
}

/* The lock is held. Gives one reference up, unlocks, and disposes of the mutex if it was the last. */
static void drop(struct parcel *parcel) {
    bool last = --parcel->references == 0;
    unlock_parcel(parcel);
    if (last) dispose(parcel);
}

static void lock_parcel(struct parcel *parcel) {
    struct lock *lock = &parcel->lock;
    struct until until = never();
    int rc = EBUSY;
    unsigned way = below(4);
    if (way == 0) rc = ask(lock, TRYLOCK, "trylock", NULL);
    if (way == 1 && lock->kind->traits & TIMED) rc = ask(lock, LOCK, "timedlock", &until);
    if (rc == EBUSY) rc = ask(lock, LOCK, "lock", NULL);
    expect_zero("lock", lock->name, rc);
    doing_lock(HOLDING, lock);
    enter(lock);
}

/* A reference given up by a reader, who may be on its way out still when the last one has been in as the
 * writer, alone. */
static void drop_shared(struct parcel *parcel) {
    struct lock *lock = &parcel->lock;
    must(lock, READ, "rdlock");
    uint64_t entries = enter_shared(lock);
    spin(below(100));
    leave_shared(lock, entries);
    bool last = __atomic_sub_fetch(&parcel->references, 1, __ATOMIC_RELAXED) == 0;
    must(lock, LEAVE_READ, "unlock");
    doing(THINKING, NULL, NULL, 0);
    if (!last) return;
    lock_parcel(parcel);
    unlock_parcel(parcel);
    dispose(parcel);
}

/* A young mutex has paths of its own (a first sleeper, a first time-out), which one that has lived a while
 * does not take any more: so some are used more than once before they go. */
static void use(struct parcel *parcel) {
    struct lock *lock = &parcel->lock;
    for (unsigned i = chance(400) ? below(12) : 0; i > 0; i--) {
        if (lock->kind->traits & TIMED && chance(300)) {
            struct until soon = until_after(CLOCK_REALTIME, below(100000));
            if (!ask_until(lock, LOCK, "timedlock", &soon)) continue;
            enter(lock);
        } else {
            lock_parcel(parcel);
        }
        if (chance(20))
            sleep_us(below(100));
        else
            spin(below(chance(100) ? 2000 : 100));
        unlock_parcel(parcel);
    }
    if (lock->kind->traits & SHARES && chance(600)) {
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
    const struct kind *kind;
    do kind = &kinds[below(kind_count)];
    while (!(kind->traits & FREEABLE));
    parcel->lock = (struct lock){
        .kind = kind, .name = kind->name, .cell = &parcel->cell, .step = 150, .passing = true};
    expect_zero("init", kind->name, kind->init(kind, parcel->cell.object));
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
        sleep_us(below(100));
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
