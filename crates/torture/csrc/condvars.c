/*
 * Condition variables: pools of tokens with an account of what each signal owes, and meetings whose condition
 * variable is destroyed and unmapped right after the broadcast.
 *
 * A signal that is given while a thread is blocked must bring at least one blocked thread back. To see that
 * one did, each pool keeps, under its mutex:
 *   blocked   threads inside a wait on the condition variable
 *   owed_min  threads that must still come back for signals given so far
 *   owed_max  threads that may still come back for them
 * A signal counts (both go up) only if blocked > owed_max, that is, if somebody is asleep for certain. A
 * return with 0 pays both. A time-out pays owed_min alone: POSIX lets a timed-out waiter swallow the signal
 * it was given at the same moment. A cancelled waiter may not swallow a signal that others could use: it pays
 * only what nobody else can be owed. Others who could certainly have used it are the `elders`, those who have
 * been blocked since before owed_min last left 0; somebody who began to wait later may have come after the
 * cancelled waiter had passed its signal on to nobody. Nothing is owed to threads that are not there.
 * Wake-ups without cause are allowed, and can hide a loss but never fake one. Signals that somebody who timed
 * out or was cancelled may have taken along leave owed_min below owed_max: those who are left may never come
 * back for them. Where that is everybody, only the feeder's broadcast gets them back. Now and then the feeder
 * declares the pool quiet with the signals it gives: nobody signals, and nobody but the waiters that come
 * back so much as touches the mutex (which might set right what went wrong), until owed_min is down to 0. If
 * that takes longer than half the patience, a wake-up was lost.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define SECOND 1000000000ll

struct pool {
    const char *name;
    bool brief; /* waits may time out; elsewhere deadlines are far away, and nobody comes back for them */
    struct lock *lock;
    const struct cond_kind *kind;
    struct cell *cell;
    /* under the lock */
    uint64_t tokens, produced, consumed;
    uint64_t blocked, owed_min, owed_max;
    uint64_t period; /* goes up when owed_min leaves 0 */
    uint64_t elders; /* of the blocked, those from before the period */
    uint64_t quiet_since;
    _Atomic int quiet; /* set and reset by the feeder; those who see it stay away even from the mutex */
};

static const struct {
    const char *name, *mutex, *cond;
    bool brief;
} pool_kinds[] = {
    {"pool static", "static", "static", false},
    {"pool errorcheck", "errorcheck", "monotonic", false},
    {"pool recursive", "recursive", "default", false},
    {"pool adaptive", "adaptive", "default", false},
    {"pool C11", "C11 timed", "C11", false},
    {"pool brief", "normal", "default", true},
    {"pool brief monotonic", "errorcheck", "monotonic", true},
    {"pool priority-inheriting", "priority-inheriting", "static", false},
    {"pool process-shared", "process-shared", "process-shared", false},
};
#define POOLS (sizeof pool_kinds / sizeof *pool_kinds)
static struct pool pools[POOLS];

/* A meeting's mutex stays; its condition variable comes and goes. */
struct meeting {
    struct lock *lock;
    const struct cond_kind *kind;
    void *cond; /* NULL while nobody hosts */
    uint64_t held;
};
#define MEETINGS 2
static struct meeting meetings[MEETINGS];

void make_pools(void) {
    for (unsigned i = 0; i < POOLS; i++) {
        struct pool *pool = &pools[i];
        pool->name = pool_kinds[i].name;
        pool->brief = pool_kinds[i].brief;
        pool->kind = cond_kind_named(pool_kinds[i].cond);
        pool->lock = new_lock(pool_kinds[i].mutex, pool_kinds[i].name);
        pool->cell = new_cell();
        expect_zero("init", pool->name, pool->kind->init(pool->kind, pool->cell->object));
    }
    static const char *const names[MEETINGS][3] = {{"meeting", "default", "default"},
                                                   {"meeting errorcheck", "errorcheck", "monotonic"}};
    for (unsigned i = 0; i < MEETINGS; i++) {
        meetings[i].lock = new_lock(names[i][1], names[i][0]);
        meetings[i].kind = cond_kind_named(names[i][2]);
    }
}

/* ---- the account ---- */

/* Before a signal: whoever is blocked now is an elder if this one opens a period. */
static void open_period(struct pool *pool) {
    if (pool->owed_min == 0) {
        pool->period++;
        pool->elders = pool->blocked;
    }
}

/* A thread that began to wait in `period` comes back. */
static void come_back(struct pool *pool, uint64_t period) {
    pool->blocked--;
    if (period < pool->period) pool->elders--;
    if (pool->owed_min > pool->blocked) pool->owed_min = pool->blocked;
    if (pool->owed_max > pool->blocked) pool->owed_max = pool->blocked;
}

/* Gives one signal, or a broadcast. The lock is held; with `outside` it is let go of first, else it is held
 * on return. */
static void give(struct pool *pool, bool all, bool outside) {
    const char *call = all ? "broadcast" : "signal";
    enum cond_operation operation = all ? BROADCAST : SIGNAL;
    void *cond = pool->cell->object;
    open_period(pool);
    pool->owed_min = all ? pool->blocked : pool->owed_min + 1;
    pool->owed_max = all ? pool->blocked : pool->owed_max + 1;
    if (outside) release(pool->lock);
    doing(all ? BROADCASTING : SIGNALLING, pool->name, cond, pool->kind->size);
    expect_zero(call, pool->name, CALLED(call, pool->name, pool->kind->call(cond, operation, NULL, NULL)));
    did(all ? DID_BROADCAST : DID_SIGNAL);
    doing(outside ? THINKING : HOLDING, pool->name, NULL, 0);
}

static void give_and_release(struct pool *pool, bool all, bool outside) {
    give(pool, all, outside);
    if (!outside) release(pool->lock);
}

/* ---- waiting ---- */

struct waiting {
    struct pool *pool;
    uint64_t period;
    _Atomic int inside; /* in the call that is a cancellation point */
};

/* Cleanup handler of a cancelled waiter: it holds the mutex again. */
static void cancelled(void *arg) {
    struct waiting *waiting = arg;
    struct pool *pool = waiting->pool;
    struct lock *lock = pool->lock;
    VIOLATION_IF(!waiting->inside, "thread %u was cancelled outside of pthread_cond_wait, in %s",
                 self->number, pool->name);
    enter_counted(lock);
    int rc = plain_call(lock, TRYLOCK, NULL);
    if (lock->kind->traits & RECURSIVE) {
        expect_zero("trylock by a cancelled waiter, which holds it,", lock->name, rc);
        expect_zero("unlock by a cancelled waiter", lock->name, plain_call(lock, UNLOCK, NULL));
    } else if (rc != EBUSY) {
        violation("trylock of %s by a cancelled waiter, which must hold it, returned %s", lock->name,
                  error_name(rc));
    }
    step_end();
    come_back(pool, waiting->period);
    if (pool->owed_min > pool->elders) pool->owed_min = pool->elders;
    did(DID_CANCEL);
    release(lock);
}

/* One wait. The lock is held before and after; what it returned is checked and accounted for. */
static int wait_once(struct pool *pool, bool cancellable) {
    struct lock *lock = pool->lock;
    void *cond = pool->cell->object, *mutex = lock->cell->object;
    const struct cond_kind *kind = pool->kind;
    struct waiting waiting = {pool, pool->period, 0};
    struct until deadline;
    /* 0: without a deadline; 2: with a clock. */
    unsigned way = pool->brief ? 1 + below(kind->clockwait ? 2 : 1) : below(kind->clockwait ? 3 : 2);
    clockid_t clock = way == 2 && chance(500) ? CLOCK_MONOTONIC : way == 2 ? CLOCK_REALTIME : kind->clock;
    int rc;

    if (way != 0) {
        int64_t ahead = 3600 * SECOND;
        if (pool->brief) ahead = chance(100) ? -1 : (int64_t)below(chance(200) ? 5000000 : 500000);
        deadline = until_after(clock, ahead);
        deadline.clocked = way == 2;
    }
    const struct until *const until = way != 0 ? &deadline : NULL;
    pool->blocked++;
    doing(cancellable ? CANCELLABLE_WAITING : way ? TIMED_WAITING : WAITING, pool->name, cond, kind->size);
    leave(lock);
    if (cancellable) {
        pthread_cleanup_push(cancelled, &waiting);
        atomic_store(&self->cancellable, 1);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
        waiting.inside = 1;
        rc = STEPPED(epoch().step, kind->call(cond, WAIT, mutex, until));
        waiting.inside = 0;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
        atomic_store(&self->cancellable, 0);
        pthread_cleanup_pop(0);
    } else {
        rc = CALLED("wait", pool->name, kind->call(cond, WAIT, mutex, until));
    }
    enter_counted(lock);

    if (rc == ETIMEDOUT && way != 0) {
        must_have_timed_out(until, "timed wait", pool->name);
        if (pool->owed_min > 0) pool->owed_min--;
        did(DID_WAIT_TIMED_OUT);
    } else if (rc != 0) {
        violation("%s on %s returned %s", way ? "timed wait" : "wait", pool->name, error_name(rc));
    } else {
        if (pool->owed_max > 0)
            pool->owed_max--;
        else
            did(DID_WAIT_SPURIOUS);
        if (pool->owed_min > 0) pool->owed_min--;
        did(DID_WAIT);
    }
    come_back(pool, waiting.period);
    return rc;
}

/* One that is not quiet, or NULL. */
static struct pool *pick_pool(bool brief) {
    for (unsigned tries = 0; tries < 20; tries++) {
        struct epoch now = epoch();
        struct pool *pool = &pools[chance(now.hot_permille / 2) ? now.hot % POOLS : below(POOLS)];
        if (pool->brief == brief && !atomic_load_explicit(&pool->quiet, memory_order_relaxed)) return pool;
    }
    return NULL;
}

static void consume(struct pool *pool, bool cancellable, unsigned tries) {
    if (!pool || !acquire(pool->lock, BY_WHATEVER, true)) return;
    while (pool->tokens == 0 && tries-- > 0 && !atomic_load_explicit(&world.stopping, memory_order_relaxed))
        wait_once(pool, cancellable);
    if (pool->tokens > 0) {
        pool->tokens--;
        pool->consumed++;
    }
    release(pool->lock);
}

void act_consume(void) { consume(pick_pool(false), false, 1000); }
void act_consume_timed(void) { consume(pick_pool(true), false, 2); }
void act_consume_cancellable(void) { consume(pick_pool(chance(100)), true, 10); }

void act_produce(void) {
    struct pool *pool = pick_pool(chance(250));
    if (!pool || !acquire(pool->lock, BY_WHATEVER, true)) return;
    bool outside = chance(500);
    if (atomic_load(&pool->quiet) || pool->tokens > world.threads) {
        release(pool->lock);
    } else if (pool->blocked > pool->owed_max) {
        pool->tokens++;
        pool->produced++;
        give_and_release(pool, false, outside);
    } else if (pool->blocked == 0 && chance(200)) {
        /* A signal that nobody waits for: no later waiter may come back for it. Nothing is owed. */
        give(pool, false, false);
        pool->owed_min = pool->owed_max = 0;
        self->did[DID_SIGNAL]--;
        did(DID_SIGNAL_NOBODY);
        release(pool->lock);
    } else {
        pool->tokens++;
        pool->produced++;
        release(pool->lock);
    }
}

/* ---- the feeder ---- */

/* Still quiet? Looks without the mutex. */
static bool still_quiet(struct pool *pool) {
    if (!atomic_load(&pool->quiet)) return false;
    uint64_t owed = __atomic_load_n(&pool->owed_min, __ATOMIC_RELAXED);
    if (owed == 0) {
        atomic_store(&pool->quiet, 0);
        did(DID_QUIET);
        return false;
    }
    VIOLATION_IF(
        atomic_load(&world.tick) - pool->quiet_since > world.patience / 2,
        "lost wake-up: %s owes %lu of %lu waiters their return for signals given more than %.1f s ago",
        pool->name, (unsigned long)owed, (unsigned long)__atomic_load_n(&pool->blocked, __ATOMIC_RELAXED),
        (double)(world.patience / 2) * TICK_MS / 1000);
    return true;
}

static void feed(struct pool *pool, bool stopping) {
    if (still_quiet(pool)) return;
    bool quiet = chance(stopping ? 500 : 150), outside = chance(500);
    if (quiet) {
        pool->quiet_since = atomic_load(&world.tick);
        atomic_store(&pool->quiet, 1);
    }
    acquire(pool->lock, BY_LOCK, true);
    uint64_t asleep = pool->blocked - pool->owed_max;
    bool doubtful = asleep == 0 && pool->owed_min < pool->blocked;
    if (asleep == 0 && !doubtful) {
        release(pool->lock);
    } else if (stopping || doubtful || chance(150)) {
        uint64_t extra = below((unsigned)asleep + 1);
        pool->tokens += extra;
        pool->produced += extra;
        give_and_release(pool, true, outside);
    } else {
        unsigned some = chance(500) ? 1 : 1 + below((unsigned)asleep);
        pool->tokens += some;
        pool->produced += some;
        for (unsigned i = 1; i < some; i++) give(pool, false, false);
        give_and_release(pool, false, outside);
    }
}

void *feeder_main(void *slot) {
    become(slot);
    while (!atomic_load(&world.workers_gone)) {
        bool stopping = atomic_load(&world.stopping);
        halt_if_violated();
        for (unsigned i = 0; i < POOLS; i++) feed(&pools[i], stopping);
        doing(THINKING, NULL, NULL, 0);
        sleep_us(200 + below(1500));
    }
    doing(EXITING, NULL, NULL, 0);
    return NULL;
}

/* Nobody is left: every token made was consumed or is still there, and nothing is owed to anybody. */
void audit_pools(void) {
    for (unsigned i = 0; i < POOLS; i++) {
        struct pool *pool = &pools[i];
        VIOLATION_IF(pool->produced != pool->consumed + pool->tokens,
                     "%s: %lu tokens were made, but %lu consumed and %lu are left", pool->name,
                     (unsigned long)pool->produced, (unsigned long)pool->consumed,
                     (unsigned long)pool->tokens);
        VIOLATION_IF(pool->blocked != 0, "%s: %lu threads ended without leaving their wait", pool->name,
                     (unsigned long)pool->blocked);
        check_guards(pool->cell, pool->name);
        expect_zero("destroy", pool->name, pool->kind->call(pool->cell->object, DESTROY_COND, NULL, NULL));
    }
    for (unsigned i = 0; i < MEETINGS; i++)
        VIOLATION_IF(meetings[i].cond, "%s was left open", meetings[i].lock->name);
}

/* ---- meetings ---- */

static void host(struct meeting *meeting) {
    struct lock *lock = meeting->lock;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        release(lock);
        return;
    }
    void *cond = (char *)page + 16 * below(100);
    expect_zero("init", lock->name, meeting->kind->init(meeting->kind, cond));
    meeting->cond = cond;
    release(lock);
    sleep_us(below(400));
    VIOLATION_IF(!acquire(lock, BY_WHATEVER, true), "torture itself: %s could not be closed", lock->name);
    meeting->cond = NULL;
    meeting->held++;
    doing(BROADCASTING, lock->name, NULL, 0);
    expect_zero("broadcast", lock->name, meeting->kind->call(cond, BROADCAST, NULL, NULL));
    did(DID_BROADCAST);
    /* Every waiter has been unblocked: POSIX allows the condition variable to be destroyed at once. */
    bool under_lock = chance(300);
    if (!under_lock) release(lock);
    doing(DESTROYING, lock->name, NULL, 0);
    expect_zero("destroy", lock->name, meeting->kind->call(cond, DESTROY_COND, NULL, NULL));
    VIOLATION_IF(munmap(page, 4096) != 0, "torture itself: munmap failed");
    did(DID_COND_UNMAPPED);
    if (under_lock) release(lock);
    doing(THINKING, NULL, NULL, 0);
}

void act_meeting(void) {
    struct meeting *meeting = &meetings[below(MEETINGS)];
    struct lock *lock = meeting->lock;
    if (!acquire(lock, BY_WHATEVER, true)) return;
    void *cond = meeting->cond;
    if (!cond) {
        host(meeting);
        return;
    }
    uint64_t held = meeting->held;
    while (meeting->held == held) {
        /* The object's bytes are not named: it may be unmapped when the monitor looks. */
        doing(WAITING, lock->name, NULL, 0);
        bool timed = chance(400);
        struct until until = until_after(meeting->kind->clock, timed ? below(400000) : 0);
        leave(lock);
        int rc = STEPPED(30, meeting->kind->call(cond, WAIT, lock->cell->object, timed ? &until : NULL));
        enter_counted(lock);
        if (timed && rc == ETIMEDOUT)
            did(DID_WAIT_TIMED_OUT);
        else {
            expect_zero("wait", lock->name, rc);
            did(DID_WAIT);
        }
    }
    release(lock);
}
