/* Locks alone: every way to acquire one, nested, recursive, misused. */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <threads.h>

#define SECOND 1000000000ll
#define ERRNO_BEFORE 0x7e57

void errno_arm(void) { errno = ERRNO_BEFORE; }
void errno_check(const char *call, const char *name) {
    VIOLATION_IF(errno != ERRNO_BEFORE, "%s of %s changed errno to %s", call, name,
                 error_name(errno));
}

int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

struct until until_at(clockid_t clock, struct timespec deadline) {
    int64_t at = (int64_t)deadline.tv_sec * SECOND + deadline.tv_nsec;
    return (struct until){false, clock, deadline, at - now_ns(clock), now_ns(CLOCK_MONOTONIC)};
}

struct until until_after(clockid_t clock, int64_t ns) {
    int64_t at = now_ns(clock) + ns;
    return until_at(clock, (struct timespec){.tv_sec = at / SECOND, .tv_nsec = at % SECOND});
}

void must_have_timed_out(const struct until *until, const char *call, const char *name) {
    int64_t at = (int64_t)until->deadline.tv_sec * SECOND + until->deadline.tv_nsec;
    int64_t early = at - now_ns(until->clock);
    int64_t waited = now_ns(CLOCK_MONOTONIC) - until->monotonic_ns;
    /* The real-time clock may have been set back meanwhile: then the other clock must agree, slewing allowed
     * for. */
    VIOLATION_IF(early > 0 &&
                     (until->clock == CLOCK_MONOTONIC || waited + waited / 100 < until->remaining_ns),
                 "%s of %s timed out %lld ns before its deadline", call, name, (long long)early);
}

void spin(unsigned turns) {
    for (unsigned i = 0; i < turns; i++)
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

void sleep_us(unsigned microseconds) {
    struct timespec t = {microseconds / 1000000, (long)(microseconds % 1000000) * 1000};
    nanosleep(&t, NULL); /* a signal may cut it short: so be it */
}

/* Thresholds in permille for: nothing, a short spin, a long spin, a yield; what remains is a sleep. */
static const unsigned profiles[][4] = {
    {500, 850, 950, 990}, {900, 990, 995, 999},   {100, 300, 800, 980},
    {400, 600, 700, 850}, {300, 900, 1000, 1000}, {1000, 1000, 1000, 1000},
};
#define PROFILES (sizeof profiles / sizeof *profiles)

static bool pass_time(const unsigned profile[4]) {
    unsigned r = below(1000);
    if (r < profile[0]) return false;
    if (r < profile[1])
        spin(below(40));
    else if (r < profile[2])
        spin(below(1500));
    else if (r < profile[3])
        sched_yield();
    else {
        sleep_us(1 + below(below(20) == 0 ? 3000 : 300));
        return true;
    }
    return false;
}

void hold(void) {
    if (pass_time(profiles[epoch().hold % PROFILES])) did(DID_SLEPT);
}

void think(void) { pass_time(profiles[epoch().think % PROFILES]); }

struct lock *pick_lock(void) {
    struct epoch now = epoch();
    return &world.lock[chance(now.hot_permille) ? now.hot % world.ordinary : below(world.ordinary)];
}

/* A deadline long gone, just gone, soon, or (patient) one that never comes. */
static struct until some_deadline(clockid_t clock, bool patient, bool before_1970) {
    if (patient) return until_after(clock, 3600 * SECOND);
    switch (below(8)) {
    case 0: return until_at(clock, (struct timespec){0, 0});
    case 1: return until_at(clock, (struct timespec){before_1970 ? -1 : 0, 0});
    case 2: return until_after(clock, -1);
    case 3: return until_after(clock, 3600 * SECOND);
    default:
        return until_after(clock, below(epoch().hot % 4 == 0 ? 20000000
                                        : below(4) == 0      ? 3000000
                                                             : 100000));
    }
}

static enum what what_of(enum operation operation, const struct until *until) {
    static const enum what whats[] = {
        [READ] = LOCKING,       [LOCK] = LOCKING,       [LOOK] = LOCKING,    [UPGRADE] = LOCKING,
        [TRY_READ] = TRYING,    [TRYLOCK] = TRYING,     [TRY_LOOK] = TRYING, [TRY_UPGRADE] = TRYING,
        [DESTROY] = DESTROYING,
    };
    enum what what = whats[operation];
    return what == LOCKING && until ? TIMED_LOCKING : what ? what : UNLOCKING;
}

int ask(struct lock *lock, enum operation operation, const char *call, const struct until *until) {
    /* Not from the lock's own memory: that may be gone afterwards. */
    const char *name = lock->name;
    doing_lock(what_of(operation, until), lock);
    errno_arm();
    bool leaves = lock->step && (operation == UNLOCK || operation == LEAVE_READ);
    step_begin(leaves ? lock->step : epoch().step);
    int rc = plain_call(lock, operation, until);
    step_end();
    errno_check(call, name);
    return rc;
}

void must(struct lock *lock, enum operation operation, const char *call) {
    const char *name = lock->name;
    expect_zero(call, name, ask(lock, operation, call, NULL));
}

bool ask_until(struct lock *lock, enum operation operation, const char *call, const struct until *until) {
    int rc = ask(lock, operation, call, until);
    if (rc == ETIMEDOUT) {
        must_have_timed_out(until, call, lock->name);
        return false;
    }
    expect_zero(call, lock->name, rc);
    return true;
}

static bool acquire_timed(struct lock *lock, bool clocked, bool patient) {
    clockid_t clock = clocked && chance(600) ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    struct until until = some_deadline(clock, patient, !(lock->kind->traits & KERNEL_DEADLINE));
    until.clocked = clocked;
    bool acquired = ask_until(lock, LOCK, clocked ? "clocklock" : "timedlock", &until);
    if (until.remaining_ns <= 0) did(DID_TIMED_PAST);
    did(acquired ? DID_TIMED_OK : DID_TIMED_OUT);
    return acquired;
}

bool let_in(struct lock *lock) {
    if (!(lock->kind->traits & SPINS)) return true;
    unsigned limit = lock->kind->traits & SHARED ? world.shared_spinners : world.spinners;
    if (atomic_fetch_add(&lock->waiting, 1) < limit) return true;
    atomic_fetch_sub(&lock->waiting, 1);
    return false;
}

void let_out(struct lock *lock) {
    if (lock->kind->traits & SPINS) atomic_fetch_sub(&lock->waiting, 1);
}

bool acquire(struct lock *lock, enum how how, bool patient) {
    unsigned traits = lock->kind->traits;
    if (how == BY_WHATEVER) {
        unsigned r = below(100);
        how = r < 60 ? BY_LOCK : r < 72 ? BY_TRYLOCK : r < 86 ? BY_TIMEDLOCK : BY_CLOCKLOCK;
        if (patient && how == BY_TRYLOCK) how = BY_LOCK;
    }
    if (how >= BY_TIMEDLOCK && !(traits & (how == BY_TIMEDLOCK ? TIMED : CLOCKED))) how = BY_LOCK;
    if (how == BY_LOCK) {
        if (!let_in(lock)) {
            did(DID_SPIN_FULL);
            return false;
        }
        must(lock, LOCK, "lock");
        let_out(lock);
        did(DID_LOCK);
    } else if (how == BY_TRYLOCK) {
        int rc = ask(lock, TRYLOCK, "trylock", NULL);
        if (rc == EBUSY) {
            did(DID_TRY_BUSY);
            return false;
        }
        expect_zero("trylock", lock->name, rc);
        did(DID_TRY_OK);
    } else if (!acquire_timed(lock, how == BY_CLOCKLOCK, patient)) {
        return false;
    }
    enter_counted(lock);
    return true;
}

void release(struct lock *lock) {
    leave(lock);
    must(lock, UNLOCK, "unlock");
    doing(THINKING, NULL, NULL, 0);
}

/* What the owner gets when it asks again. */
static void ask_again(struct lock *lock) {
    if (lock->kind->traits & RECURSIVE) return;
    expect("trylock by the owner", lock->name, plain_call(lock, TRYLOCK, NULL), EBUSY);
    if (lock->kind->traits & ERRORCHECK) {
        struct until until = never();
        expect("lock by the owner", lock->name, plain_call(lock, LOCK, NULL), EDEADLK);
        expect("timedlock by the owner", lock->name, plain_call(lock, LOCK, &until), EDEADLK);
    }
    did(DID_MISUSE);
}

static void go_deeper(struct lock *lock) {
    unsigned depth = chance(50) ? 1 + below(200) : 1 + below(4);
    struct until past = until_at(CLOCK_REALTIME, (struct timespec){0, 0});
    for (unsigned i = 0; i < depth; i++) {
        unsigned way = below(lock->kind->traits & TIMED ? 3 : 2);
        int rc = plain_call(lock, way == 1 ? TRYLOCK : LOCK, way == 2 ? &past : NULL);
        expect_zero("lock by the owner", lock->name, rc);
        must_hold(lock, "deeper in recursion");
    }
    self->did[DID_RECURSION] += depth;
    if (depth < 10) hold();
    for (unsigned i = 0; i < depth; i++) {
        must_hold(lock, "coming out of recursion");
        must(lock, UNLOCK, "unlock");
    }
    doing_lock(HOLDING, lock);
    must_hold(lock, "after recursion");
}

static void let_go(void *lock) {
    must_hold(lock, "in a cleanup handler on exit");
    release(lock);
    did(DID_EXIT_HOLDING);
}

/* The thread ends inside its critical section; its cleanup handler unlocks. */
static __attribute__((noinline)) void exit_holding(struct lock *lock) {
    pthread_cleanup_push(let_go, lock);
    pthread_exit(NULL);
    pthread_cleanup_pop(0);
}

void act_plain(void) {
    struct lock *lock = pick_lock();
    if (!acquire(lock, BY_WHATEVER, false)) return;
    if ((lock->kind->traits & RECURSIVE) && chance(300))
        go_deeper(lock);
    else if (chance(10))
        ask_again(lock);
    hold();
    if (self->lives == 0 && chance(100) && !atomic_load_explicit(&world.stopping, memory_order_relaxed))
        exit_holding(lock);
    release(lock);
}

/* Two locks at once: in the order of their indices if it may block for good, in any order otherwise. */
void act_nested(void) {
    struct lock *outer = pick_lock(), *inner = &world.lock[below(world.ordinary)];
    if (outer == inner || !acquire(outer, BY_WHATEVER, false)) return;
    hold();
    enum how how = inner->index > outer->index ? BY_WHATEVER : BY_TRYLOCK;
    if (acquire(inner, how, false)) {
        hold();
        must_hold(outer, "with a second lock held");
        did(DID_NESTED);
        if (chance(500)) {
            release(outer);
            hold();
            release(inner);
            return;
        }
        release(inner);
    }
    release(outer);
}

/* An unlock by a thread that does not hold the lock, which others are using at this moment. */
void act_misuse(void) {
    struct lock *lock = pick_lock();
    if (!(lock->kind->traits & CHECKS_OWNER)) return;
    doing_lock(UNLOCKING, lock);
    expect("unlock by a thread that does not hold it", lock->name, plain_call(lock, UNLOCK, NULL), EPERM);
    did(DID_MISUSE);
    doing(THINKING, NULL, NULL, 0);
}

/* Signals to nobody must not be remembered: a wait that comes later sleeps until its deadline. */
static void check_signal_memory(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    expect("init", "condition variable", pthread_cond_init(&cond, NULL), 0);
    expect("lock", "mutex", pthread_mutex_lock(&mutex), 0);
    /* A wake-up without cause is allowed now and then: not after each of four such signals, with nobody else
     * about. */
    unsigned woken = 0;
    for (int i = 0; i < 4; i++) {
        for (unsigned signals = 1 + below(3); signals > 0; signals--)
            expect("signal", "condition variable", pthread_cond_signal(&cond), 0);
        if (chance(300)) expect("broadcast", "condition variable", pthread_cond_broadcast(&cond), 0);
        struct until until = until_after(CLOCK_REALTIME, 300000);
        int rc = pthread_cond_timedwait(&cond, &mutex, &until.deadline);
        if (rc == ETIMEDOUT) {
            must_have_timed_out(&until, "timedwait", "a private condition variable");
            break;
        }
        expect("timedwait", "condition variable", rc, 0);
        woken++;
    }
    VIOLATION_IF(
        woken == 4,
        "a signal to nobody was remembered: four times, a wait that began after it returned at once");
    struct timespec past = {0, 0};
    expect("timedwait with a deadline long gone", "condition variable",
           pthread_cond_timedwait(&cond, &mutex, &past), ETIMEDOUT);
    expect("unlock", "mutex", pthread_mutex_unlock(&mutex), 0);
    expect("destroy", "condition variable", pthread_cond_destroy(&cond), 0);
    expect("destroy", "mutex", pthread_mutex_destroy(&mutex), 0);
}

/* What one thread alone gets from an object of its own, every kind in turn. */
void act_results(void) {
    unsigned char object[OBJECT_BYTES] __attribute__((aligned(16)));
    const struct kind *kind = &kinds[below(kind_count)];
    unsigned traits = kind->traits;
    const char *name = kind->name;
    sigset_t before;
    doing(CHECKING_RESULTS, name, NULL, 0);
    block_all_but_faults(&before);
    memset(object, 0xee, sizeof object);
    expect("init", name, kind->init(kind, object), 0);
#define GIVES(result, what, operation, until) \
    expect(what, name, kind->call(kind, object, operation, until), result)
    for (unsigned round = 0; round < 3; round++) {
        struct until past = until_at(CLOCK_REALTIME, (struct timespec){0, 0});
        struct until bad = until_at(CLOCK_REALTIME, (struct timespec){0, SECOND});
        errno_arm();
        if (round == 0)
            GIVES(0, "lock", LOCK, NULL);
        else if (round == 1 || !(traits & TIMED))
            GIVES(0, "trylock", TRYLOCK, NULL);
        else
            GIVES(0, "timedlock of a free lock, deadline long gone", LOCK, &past);
        if (traits & RECURSIVE) {
            GIVES(0, "second lock", LOCK, NULL);
            GIVES(0, "third trylock", TRYLOCK, NULL);
            GIVES(0, "unlock", UNLOCK, NULL);
            GIVES(0, "unlock", UNLOCK, NULL);
        } else {
            GIVES(EBUSY, "trylock by the owner", TRYLOCK, NULL);
            if (traits & ERRORCHECK) GIVES(EDEADLK, "lock by the owner", LOCK, NULL);
        }
        /* A normal lock's owner that asks again with a deadline waits for it. */
        if (!(traits & (RECURSIVE | ERRORCHECK | CHECKS_OWNER)) && traits & TIMED) {
            struct until soon = until_after(CLOCK_REALTIME, 50000);
            GIVES(ETIMEDOUT, "timedlock by the owner", LOCK, &soon);
            if (!(traits & C11)) GIVES(EINVAL, "timedlock by the owner with 10^9 nanoseconds", LOCK, &bad);
            if (traits & CLOCKED) {
                soon = until_after(CLOCK_MONOTONIC, 50000);
                soon.clocked = true;
                GIVES(ETIMEDOUT, "clocklock by the owner", LOCK, &soon);
                soon.clock = CLOCK_PROCESS_CPUTIME_ID;
                GIVES(EINVAL, "clocklock on a clock that cannot be waited for", LOCK, &soon);
            }
        }
        GIVES(0, "unlock", UNLOCK, NULL);
        if (traits & CHECKS_OWNER) GIVES(EPERM, "second unlock", UNLOCK, NULL);
        errno_check("a call", name);
    }
    GIVES(0, "destroy", DESTROY, NULL);
    if (chance(300)) check_signal_memory();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    did(DID_RESULTS);
    doing(THINKING, NULL, NULL, 0);
}
