/*
 * poundlock torture: the part that runs inside the process under test.
 *
 * It is C because cancellation is: pthread_cleanup_push is a macro, and the forced unwinding that follows
 * pthread_cancel and pthread_exit must pass through no Rust frame. It calls the pthread and C11 symbols as
 * any program does; which locks stand behind them is decided by what was preloaded.
 *
 * Threads:
 *   main     the monitor (body.c): keeps the clock, looks for threads that make no progress, audits at the
 *            end. It takes none of the locks under test until every other thread is gone.
 *   warden   creates and joins the workers, cancels them, sends them signals. Takes none of the locks either.
 *   feeder   keeps the condition variables' waiters supplied, and calls in their debts (condvars.c).
 *   workers  everything else, one slot each.
 *
 * How a further kind of lock is added: a row in `kinds` (subjects.c), whose `call` does what `enum operation`
 * asks for, and whose traits say which of these there are. Actions call locks through ask() alone.
 */
#ifndef POUNDLOCK_TORTURE_H
#define POUNDLOCK_TORTURE_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MAX_SLOTS 4096u
#define MAX_LOCKS 48u
#define OBJECT_BYTES 64u
#define TICK_MS 50u

/* What the command asks for: Rust's `Plan`. `library` is part of the name of the one that must serve the
 * symbols, or NULL. */
struct plan {
    const char *library;
    unsigned threads, spinners, shared_spinners;
    bool reads_once;
    int key;
    uint64_t milliseconds, patience_ms, seed;
};
void poundlock_torture_body(const struct plan *plan);
void poundlock_torture_arrays(const struct plan *plan);

/* ---- subjects.c: what is tortured ---- */

enum trait {
    RECURSIVE = 1 << 0,       /* the owner may lock again */
    CHECKS_OWNER = 1 << 1,    /* unlock by another thread is EPERM */
    ERRORCHECK = 1 << 2,      /* relock by the owner is EDEADLK */
    FORKS = 1 << 3,           /* a forked child may go on with the lock its forking thread held */
    FREEABLE = 1 << 4,        /* may be destroyed and unmapped as soon as the last unlock let go of it */
    C11 = 1 << 5,             /* results other than success and time-out carry no error number */
    KERNEL_DEADLINE = 1 << 6, /* the kernel judges deadlines: one before 1970 is EINVAL */
    SPINS = 1 << 7,           /* a spinlock: no condition variable, no deadlines; waiters may keep CPUs */
    SHARED = 1 << 8,          /* process-shared: a spinlock of this sort stays glibc's */
    SHARES = 1 << 9,          /* a readers-writer lock: LOCK is its writer's, READ a reader's */
    AGAIN = 1 << 10,          /* a reader may read again, whoever waits */
    LOOKS = 1 << 11,          /* of poundlock-core: a reader may become the writer, and the writer a reader */
    TIMED = 1 << 12,          /* has a timedlock */
    CLOCKED = 1 << 13,        /* ... and a clocklock */
};

/* What is asked of a lock, in the order of `rwlocks.rs`. A reader that may become the writer looks. */
enum operation {
    READ, TRY_READ, LEAVE_READ, LOCK, TRYLOCK, UNLOCK, LOOK, TRY_LOOK, LEAVE_LOOK, UPGRADE, TRY_UPGRADE,
    WRITE_TO_READ, WRITE_TO_LOOK, LOOK_TO_READ, DESTROY
};

/* A deadline, and when the wait for it began. */
struct until {
    bool clocked; /* the call that takes a clock, rather than the one that has its own */
    clockid_t clock;
    struct timespec deadline;
    int64_t remaining_ns, monotonic_ns;
};

/* A kind of lock. Every call returns 0 or an error number; without a deadline (NULL) it waits for ever. */
struct kind {
    const char *name;
    unsigned traits;
    size_t size;
    int (*init)(const struct kind *kind, void *object);
    int (*call)(const struct kind *kind, void *object, enum operation operation, const struct until *until);
    const void *from; /* a static initialiser */
    int type, protocol, robust; /* attributes */
};

enum cond_operation { WAIT, SIGNAL, BROADCAST, DESTROY_COND };

/* A kind of condition variable. `clock` is the one that timedwait goes by. */
struct cond_kind {
    const char *name;
    clockid_t clock;
    size_t size;
    int (*init)(const struct cond_kind *kind, void *object);
    int (*call)(void *object, enum cond_operation operation, void *lock, const struct until *until);
    bool clockwait; /* there is one */
    int shared;
};

extern const struct kind kinds[];
extern const unsigned kind_count;
extern const char *const symbols[];
const struct kind *kind_named(const char *name);
const struct cond_kind *cond_kind_named(const char *name);
/* Whether glibc's code runs pthread's readers-writer locks. */
bool rwlocks_are_glibcs(void);
bool reads_again(const struct kind *kind);
/* Whether a forked child may go on with such a lock that its forking thread held. */
bool survives_fork(const struct kind *kind);

/* ---- check.c: the checker ---- */

#define GUARD_WORDS 8u
#define GUARD 0x5bd1e995a5c39f17u

/* An object under test between guard words: a lock may not write past its size. */
struct cell {
    uint64_t before[GUARD_WORDS];
    _Alignas(16) unsigned char object[OBJECT_BYTES];
    uint64_t after[GUARD_WORDS];
};

/*
 * A lock and what it protects. `first`, `second` and `entries` are deliberately not atomic: the lock under
 * test is all that orders them. Outside a critical section first == second.
 */
struct lock {
    const struct kind *kind;
    const char *name;
    unsigned index;
    struct cell *cell;
    volatile uint64_t first;
    volatile uint32_t owner; /* slot number + 1, 0 when free */
    char apart[64];          /* the two witnesses lie in different cache lines */
    volatile uint64_t second;
    volatile uint64_t entries;
    _Atomic unsigned waiting; /* let_in() */
    _Atomic unsigned sharers;
    unsigned step; /* permille of its unlocks that are stopped at a random instruction, if not 0 */
    bool passing;  /* it may be unmapped at any time: only its users may look at it */
};

enum what {
    STARTING, THINKING, LOCKING, TRYING, TIMED_LOCKING, HOLDING, UNLOCKING, WAITING, TIMED_WAITING,
    CANCELLABLE_WAITING,
    SIGNALLING, BROADCASTING, DESTROYING, FORKING, AWAITING_CHILD, JOINING, CREATING, CHECKING_RESULTS,
    WATCHING, EXITING, WHATS
};

#define COUNTERS(X) \
    X(LOCK, "lock") X(TRY_OK, "trylock, acquired") X(TRY_BUSY, "trylock, busy") \
    X(TIMED_OK, "timedlock and clocklock, acquired") X(TIMED_OUT, "timedlock and clocklock, timed out") \
    X(TIMED_PAST, "timedlock and clocklock, deadline already passed") X(RECURSION, "recursive acquisitions") \
    X(NESTED, "two locks held together") X(SLEPT, "sleeps while holding") \
    X(MISUSE, "misuse answered with the right error") X(RESULTS, "rounds of single-threaded results") \
    X(WAIT, "condition waits, woken") X(WAIT_TIMED_OUT, "condition waits, timed out") \
    X(WAIT_SPURIOUS, "condition waits, woken with no signal outstanding") \
    X(SIGNAL, "signals to a waiter") X(SIGNAL_NOBODY, "signals to nobody") X(BROADCAST, "broadcasts") \
    X(QUIET, "times that all signals owed were called in") \
    X(CANCEL, "threads cancelled in a condition wait") \
    X(EXIT_HOLDING, "threads exited from inside a critical section") X(THREADS, "threads started") \
    X(UNMAPPED, "mutexes unmapped right after the last unlock") \
    X(POISONED, "mutexes overwritten right after the last unlock") \
    X(SPIN_UNMAPPED, "spinlocks unmapped right after the last unlock") \
    X(SPIN_POISONED, "spinlocks overwritten right after the last unlock") \
    X(SHARED_UNMAPPED, "readers-writer locks unmapped right after the last unlock") \
    X(SHARED_POISONED, "readers-writer locks overwritten right after the last unlock") \
    X(SHARE, "locks taken as a reader") X(SHARE_AGAIN, "locks taken again by a reader") \
    X(SHARE_TIMED_OUT, "timed calls of readers and of those that upgrade, timed out") \
    X(UPGRADE, "upgrades from a reader to the writer") X(UPGRADE_FAILED, "upgrades given up") \
    X(DOWNGRADE, "downgrades") \
    X(COND_UNMAPPED, "condition variables unmapped right after the broadcast") \
    X(HANDLER, "signal handlers run") X(HANDLER_LOCKED, "locks taken in a signal handler") \
    X(HANDLER_SPUN, "spinlocks waited for in a signal handler") \
    X(LADDER, "times that two threads waited for five spinlocks, one inside the other") \
    X(SPIN_FULL, "spinlocks left alone, as enough threads waited") \
    X(STEPPED, "calls stopped at a random instruction") \
    X(FORK, "forks by a thread that holds locks") X(FORK_SPIN, "forks by a thread that holds a spinlock") \
    X(FORK_THREADS, "forked children that went multi-threaded") \
    X(VFORK, "vforks by a thread that holds a lock") X(SPAWN, "posix_spawns by a thread that holds a lock") \
    X(DESTRUCTOR, "locks taken in a thread-specific destructor")

enum counter {
#define X(name, text) DID_##name,
    COUNTERS(X)
#undef X
    COUNTER_COUNT
};

/* One worker (or the warden, or the feeder) and what is known of it. The monitor reads the atomics at any
 * time. */
struct slot {
    unsigned number;
    pthread_t thread;
    _Atomic int phase;        /* enum phase */
    _Atomic int cancellable;  /* is waiting, or about to, with cancellation enabled */
    _Atomic int tid;
    _Atomic unsigned what;    /* enum what */
    _Atomic(const char *) name;
    _Atomic(const void *) object;
    _Atomic size_t object_size;
    _Atomic uint64_t since;   /* tick at which `what` began */
    _Atomic uint64_t beats;   /* goes up with every change of `what` */
    bool cancel_sent;         /* the warden's */
    bool pestered;            /* the warden's: a signal may wake who was forgotten, so some get none */
    uint64_t generation;
    uint64_t random;
    uint64_t lives;           /* actions left before the thread ends */
    volatile unsigned steps, pause_us; /* stepping.c */
    uint64_t did[COUNTER_COUNT];
    uint64_t entries[MAX_LOCKS];
    _Atomic uint64_t handler_random;
    _Atomic uint64_t handler_did[3]; /* DID_HANDLER, _LOCKED, _SPUN: a handler may nest on itself */
    _Atomic uint64_t handler_entries[MAX_LOCKS];
};

enum phase { EMPTY, RUNNING, LEAVING };

/* A tenth of a second or so with a character of its own. */
struct epoch {
    uint16_t hot;          /* the lock that most go for; also picks a pool */
    uint16_t hot_permille;
    uint8_t hold, think;   /* how long */
    uint8_t mix;           /* of actions */
    uint8_t step;          /* permille of calls that are stopped at a random instruction */
};

struct world {
    uint64_t seed;
    unsigned threads;      /* workers; slots [0, threads) */
    unsigned slots;        /* workers, warden and feeder */
    uint64_t patience;     /* ticks */
    bool rwlocks_are_glibcs, reads_once; /* see sharing.c */
    unsigned spinners, shared_spinners; /* that may wait at once for a private spinlock, a shared one */
    struct slot *slot;
    struct lock lock[MAX_LOCKS];
    unsigned lock_count;
    unsigned ordinary;     /* locks [0, ordinary) are for any action; the rest belong to somebody */
    _Atomic uint64_t tick; /* the monitor's clock: stands while the machine or the monitor does */
    _Atomic int stopping;  /* workers: finish */
    _Atomic int workers_gone;
    _Atomic(struct epoch) epoch;
    struct note *notes;    /* one a slot, shared with forked children */
};

/* Where a forked child says what it does and what went wrong. */
struct note {
    volatile char step[64];
    char text[512];
    volatile uint64_t crowds;
};

extern struct world world;
extern _Thread_local struct slot *self;
extern struct note *child_note; /* set in a forked child */
/* The calling thread is that one's. */
void become(struct slot *slot);

/* The first caller's line is reported; nobody who calls comes back. */
_Noreturn void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define VIOLATION_IF(condition, ...) do if (condition) violation(__VA_ARGS__); while (0)
extern _Atomic int violated;
_Noreturn void halt(void);
static inline void halt_if_violated(void) {
    if (atomic_load_explicit(&violated, memory_order_relaxed)) halt();
}
void describe(char *into, size_t room, const struct slot *slot);
void dump_threads(void);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For at most two at a time. */
const char *error_name(int error);
void expect(const char *call, const char *name, int rc, int expected);
static inline void expect_zero(const char *call, const char *name, int rc) { expect(call, name, rc, 0); }
void check_symbols(const char *library, const char *const symbols[]);

static inline void did(enum counter counter) { self->did[counter]++; }

void step_end(void);

static inline void doing(enum what what, const char *name, const void *object, size_t size) {
    if (self->steps > 0) step_end();
    atomic_store_explicit(&self->name, name, memory_order_relaxed);
    atomic_store_explicit(&self->object, object, memory_order_relaxed);
    atomic_store_explicit(&self->object_size, size, memory_order_relaxed);
    atomic_store_explicit(&self->what, what, memory_order_relaxed);
    atomic_store_explicit(&self->since, atomic_load_explicit(&world.tick, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&self->beats, atomic_load_explicit(&self->beats, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}
static inline void doing_lock(enum what what, const struct lock *lock) {
    doing(what, lock->name, lock->passing ? NULL : lock->cell->object, lock->kind->size);
}

struct cell *new_cell(void);
void check_guards(const struct cell *cell, const char *name);
/* One more of the world's locks. */
struct lock *new_lock(const char *kind, const char *name);

/* enter: right after the lock was acquired for the first time. leave: right before it is let go of. */
void enter(struct lock *lock);
static inline void enter_counted(struct lock *lock) {
    enter(lock);
    self->entries[lock->index]++;
    doing_lock(HOLDING, lock);
}
void leave(struct lock *lock);
/* The lock must be held, by this thread, after enter(). */
void must_hold(const struct lock *lock, const char *when);

/* ---- sharing.c ---- */

/* As enter and leave, for those who share the lock. What the one returns is for the others. */
uint64_t enter_shared(struct lock *lock);
void must_share(const struct lock *lock, uint64_t entries, const char *when);
void leave_shared(struct lock *lock, uint64_t entries);
void act_share(void);

/* ---- random choices: reproducible for each slot and generation from the seed ---- */

uint64_t mix(uint64_t x);
/* The state of the calling thread's. */
extern _Thread_local uint64_t *dice;
static inline uint64_t draw(void) {
    *dice += 0x9e3779b97f4a7c15u;
    return mix(*dice);
}
static inline unsigned below(unsigned n) { return (unsigned)((draw() >> 33) % n); }
static inline bool once_in(unsigned n) { return below(n) == 0; }
static inline bool chance(unsigned permille) { return below(1000) < permille; }

/* ---- mutexes.c ---- */

enum how { BY_LOCK, BY_TRYLOCK, BY_TIMEDLOCK, BY_CLOCKLOCK, BY_WHATEVER };

/* The call, and nothing else. */
static inline int plain_call(const struct lock *lock, enum operation operation, const struct until *until) {
    return lock->kind->call(lock->kind, lock->cell->object, operation, until);
}
/* The call, and what a worker does around each: it says what it is about, may be stopped in the middle, and
 * finds `errno` as it was. `call` names it in a report. */
int ask(struct lock *lock, enum operation operation, const char *call, const struct until *until);
/* The same, of a call that must succeed. */
void must(struct lock *lock, enum operation operation, const char *call);
/* The same with a deadline; false if that has passed. */
bool ask_until(struct lock *lock, enum operation operation, const char *call, const struct until *until);
/* Acquires, checks the result, enters. False: busy or timed out. `patient`: only deadlines far away. */
bool acquire(struct lock *lock, enum how how, bool patient);
/* Whether the caller may wait for the lock now: for a spinlock whose waiters keep their CPUs only a few may
 * at a time. If so, let_out() once it is acquired. */
bool let_in(struct lock *lock);
void let_out(struct lock *lock);
void release(struct lock *lock);
void hold(void);
void think(void);
void spin(unsigned turns);
void sleep_us(unsigned microseconds);
int64_t now_ns(clockid_t clock);
struct lock *pick_lock(void);
static inline struct epoch epoch(void) { return atomic_load_explicit(&world.epoch, memory_order_relaxed); }
/* For a call that begins now. */
struct until until_after(clockid_t clock, int64_t ns);
struct until until_at(clockid_t clock, struct timespec deadline);
static inline struct until never(void) { return until_after(CLOCK_REALTIME, 3600000000000ll); }
/* A time-out was reported: the deadline must have passed. */
void must_have_timed_out(const struct until *until, const char *call, const char *name);
/* `errno` is not these calls' to touch: set before, compared after. */
void errno_arm(void);
void errno_check(const char *call, const char *name);

void act_plain(void);
void act_nested(void);
void act_misuse(void);
void act_results(void);

/* ---- body.c ---- */

/* A thread with a small stack: 0 or an error number. */
int create(pthread_t *thread, void *(*main)(void *), void *arg);

/* ---- stepping.c ---- */

void make_stepping(void);
/* Between the two, with this chance, the thread is stopped at some instruction; or, from a handler, in what
 * it interrupted. Only in calls on the objects under test: elsewhere the trap may be blocked. */
void step_begin(unsigned permille);
void step_interrupted(void *context, uint64_t random);

/* A call on what is under test, which is stopped in the middle with this chance. */
#define STEPPED(permille, call) (step_begin(permille), stepped(call))
static inline int stepped(int rc) {
    step_end();
    return rc;
}

/* The same, by the epoch's chance; and the call leaves errno alone. */
#define CALLED(what, name, call) (errno_arm(), step_begin(epoch().step), called(what, name, call))
static inline int called(const char *what, const char *name, int rc) {
    step_end();
    errno_check(what, name);
    return rc;
}

/* ---- condvars.c ---- */

void make_pools(void);
void act_consume(void);
void act_consume_timed(void);
void act_consume_cancellable(void);
void act_produce(void);
void act_meeting(void);
void *feeder_main(void *slot);
void audit_pools(void);

/* ---- ephemeral.c ---- */

void act_ephemeral(void);
void drain_ephemeral(void);

/* ---- processes.c ---- */

void make_notes(void);
void act_fork(void);
void act_vfork(void);
void act_spawn(void);

/* ---- signals.c ---- */

void make_handlers(void);
sigset_t pesterers(void);
void block_pesterers(sigset_t *before);
void block_all_but_faults(sigset_t *before);
void act_ladder(void);
void pester(const struct slot *slot, uint64_t random);
uint64_t handler_entries(unsigned lock);

#endif
