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
    char number[16];
    VIOLATION_IF(errno != ERRNO_BEFORE, "%s of %s changed errno to %s", call, name,
                 error_name(errno, number));
}

static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

struct timespec deadline_after(clockid_t clock, int64_t ns) {
    int64_t at = now_ns(clock) + ns;
    return (struct timespec){.tv_sec = at / SECOND, .tv_nsec = at % SECOND};
}

struct wait_began wait_begins(clockid_t clock, struct timespec deadline) {
    int64_t at = (int64_t)deadline.tv_sec * SECOND + deadline.tv_nsec;
    return (struct wait_began){clock, deadline, at - now_ns(clock), now_ns(CLOCK_MONOTONIC)};
}

void must_have_timed_out(const struct wait_began *began, const char *call, const char *name) {
    int64_t at = (int64_t)began->deadline.tv_sec * SECOND + began->deadline.tv_nsec;
    int64_t early = at - now_ns(began->clock);
    int64_t waited = now_ns(CLOCK_MONOTONIC) - began->monotonic_ns;
    /* The real-time clock may have been set back meanwhile: then the other clock must agree, slewing allowed
     * for. */
    VIOLATION_IF(early > 0 &&
                     (began->clock == CLOCK_MONOTONIC || waited + waited / 100 < began->remaining_ns),
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

void nap(unsigned microseconds) {
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
        nap(1 + below(below(20) == 0 ? 3000 : 300));
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
static struct timespec some_deadline(clockid_t clock, bool patient, bool before_1970) {
    if (patient) return deadline_after(clock, 3600 * SECOND);
    switch (below(8)) {
    case 0: return (struct timespec){0, 0};
    case 1: return (struct timespec){before_1970 ? -1 : 0, 0};
    case 2: return deadline_after(clock, -1);
    case 3: return deadline_after(clock, 3600 * SECOND);
    default:
        return deadline_after(clock, below(epoch().hot % 4 == 0 ? 20000000
                                           : below(4) == 0      ? 3000000
                                                                : 100000));
    }
}

static bool acquire_timed(struct lock *lock, enum how how, bool patient) {
    const char *call = how == BY_TIMEDLOCK ? "timedlock" : "clocklock";
    clockid_t clock = how == BY_CLOCKLOCK && chance(600) ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    struct timespec deadline = some_deadline(clock, patient, !(lock->kind->traits & KERNEL_DEADLINE));
    struct wait_began began = wait_begins(clock, deadline);
    doing_lock(TIMED_LOCKING, lock);
    int rc = CALLED(call, lock->name,
                    how == BY_TIMEDLOCK ? lock->kind->timedlock(lock->cell->object, &deadline)
                                        : lock->kind->clocklock(lock->cell->object, clock, &deadline));
    if (began.remaining_ns <= 0) did(DID_TIMED_PAST);
    if (rc == ETIMEDOUT) {
        must_have_timed_out(&began, call, lock->name);
        did(DID_TIMED_OUT);
        return false;
    }
    expect_zero(call, lock->name, rc);
    did(DID_TIMED_OK);
    return true;
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
    const struct kind *kind = lock->kind;
    if (how == BY_WHATEVER) {
        unsigned r = below(100);
        how = r < 60 ? BY_LOCK : r < 72 ? BY_TRYLOCK : r < 86 ? BY_TIMEDLOCK : BY_CLOCKLOCK;
        if (patient && how == BY_TRYLOCK) how = BY_LOCK;
    }
    if ((how == BY_TIMEDLOCK && !kind->timedlock) || (how == BY_CLOCKLOCK && !kind->clocklock)) how = BY_LOCK;
    if (how == BY_LOCK) {
        if (!let_in(lock)) {
            did(DID_SPIN_FULL);
            return false;
        }
        doing_lock(LOCKING, lock);
        int rc = CALLED("lock", lock->name, kind->lock(lock->cell->object));
        expect_zero("lock", lock->name, rc);
        let_out(lock);
        did(DID_LOCK);
    } else if (how == BY_TRYLOCK) {
        doing_lock(TRYING, lock);
        int rc = CALLED("trylock", lock->name, kind->trylock(lock->cell->object));
        if (rc == EBUSY) {
            did(DID_TRY_BUSY);
            return false;
        }
        expect_zero("trylock", lock->name, rc);
        did(DID_TRY_OK);
    } else if (!acquire_timed(lock, how, patient)) {
        return false;
    }
    enter(lock);
    self->entries[lock->index]++;
    doing_lock(HOLDING, lock);
    return true;
}

static void unlock_once(struct lock *lock) {
    /* Not the lock's name through the lock's memory: it may be gone by now. */
    int rc = CALLED("unlock", "a lock", lock->kind->unlock(lock->cell->object));
    expect_zero("unlock", lock->name, rc);
}

void release(struct lock *lock) {
    doing_lock(UNLOCKING, lock);
    leave(lock);
    unlock_once(lock);
    doing(THINKING, NULL, NULL, 0);
}

/* What the owner gets when it asks again. */
static void ask_again(struct lock *lock) {
    const struct kind *kind = lock->kind;
    void *object = lock->cell->object;
    if (kind->traits & RECURSIVE) return;
    expect("trylock by the owner", lock->name, kind->trylock(object), EBUSY);
    if (kind->traits & ERRORCHECK) {
        expect("lock by the owner", lock->name, kind->lock(object), EDEADLK);
        struct timespec deadline = deadline_after(CLOCK_REALTIME, 3600 * SECOND);
        expect("timedlock by the owner", lock->name, kind->timedlock(object, &deadline), EDEADLK);
    }
    did(DID_MISUSE);
}

static void go_deeper(struct lock *lock) {
    unsigned depth = chance(50) ? 1 + below(200) : 1 + below(4);
    for (unsigned i = 0; i < depth; i++) {
        struct timespec past = {0, 0};
        int rc;
        switch (below(lock->kind->timedlock ? 3 : 2)) {
        case 0: rc = lock->kind->lock(lock->cell->object); break;
        case 1: rc = lock->kind->trylock(lock->cell->object); break;
        default: rc = lock->kind->timedlock(lock->cell->object, &past);
        }
        expect_zero("lock by the owner", lock->name, rc);
        must_hold(lock, "deeper in recursion");
    }
    self->did[DID_RECURSION] += depth;
    if (depth < 10) hold();
    for (unsigned i = 0; i < depth; i++) {
        must_hold(lock, "coming out of recursion");
        unlock_once(lock);
    }
    must_hold(lock, "after recursion");
}

struct exit_holding {
    struct lock *lock;
};
static void let_go(void *arg) {
    struct exit_holding *held = arg;
    must_hold(held->lock, "in a cleanup handler on exit");
    release(held->lock);
    did(DID_EXIT_HOLDING);
}

/* The thread ends inside its critical section; its cleanup handler unlocks. */
static __attribute__((noinline)) void exit_holding(struct lock *lock) {
    struct exit_holding held = {lock};
    pthread_cleanup_push(let_go, &held);
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
    expect("unlock by a thread that does not hold it", lock->name, lock->kind->unlock(lock->cell->object),
           EPERM);
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
        struct timespec deadline = deadline_after(CLOCK_REALTIME, 300000);
        struct wait_began began = wait_begins(CLOCK_REALTIME, deadline);
        int rc = pthread_cond_timedwait(&cond, &mutex, &deadline);
        if (rc == ETIMEDOUT) {
            must_have_timed_out(&began, "timedwait", "a private condition variable");
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
    const struct kind *kind = kind_at(below(kind_count()));
    const char *name = kind->name;
    sigset_t all, before;
    doing(CHECKING_RESULTS, name, NULL, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    memset(object, 0xee, sizeof object);
    expect("init", name, kind->init(object), 0);
    for (unsigned round = 0; round < 3; round++) {
        struct timespec past = {0, 0}, bad = {0, SECOND};
        errno_arm();
        if (round == 0)
            expect("lock", name, kind->lock(object), 0);
        else if (round == 1 || !kind->timedlock)
            expect("trylock", name, kind->trylock(object), 0);
        else
            expect("timedlock of a free lock, deadline long gone", name, kind->timedlock(object, &past), 0);
        if (kind->traits & RECURSIVE) {
            expect("second lock", name, kind->lock(object), 0);
            expect("third trylock", name, kind->trylock(object), 0);
            expect("unlock", name, kind->unlock(object), 0);
            expect("unlock", name, kind->unlock(object), 0);
        } else {
            expect("trylock by the owner", name, kind->trylock(object), EBUSY);
            if (kind->traits & ERRORCHECK) expect("lock by the owner", name, kind->lock(object), EDEADLK);
        }
        /* A normal lock's owner that asks again with a deadline waits for it. */
        if (!(kind->traits & (RECURSIVE | ERRORCHECK | CHECKS_OWNER)) && kind->timedlock) {
            struct timespec soon = deadline_after(CLOCK_REALTIME, 50000);
            expect("timedlock by the owner", name, kind->timedlock(object, &soon), ETIMEDOUT);
            if (!(kind->traits & C11))
                expect("timedlock by the owner with 10^9 nanoseconds", name, kind->timedlock(object, &bad),
                       EINVAL);
            if (kind->clocklock) {
                soon = deadline_after(CLOCK_MONOTONIC, 50000);
                expect("clocklock by the owner", name, kind->clocklock(object, CLOCK_MONOTONIC, &soon),
                       ETIMEDOUT);
                expect("clocklock on a clock that cannot be waited for", name,
                       kind->clocklock(object, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
            }
        }
        expect("unlock", name, kind->unlock(object), 0);
        if (kind->traits & CHECKS_OWNER) expect("second unlock", name, kind->unlock(object), EPERM);
        errno_check("a call", name);
    }
    expect("destroy", name, kind->destroy(object), 0);
    if (chance(300)) check_signal_memory();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    did(DID_RESULTS);
    doing(THINKING, NULL, NULL, 0);
}
