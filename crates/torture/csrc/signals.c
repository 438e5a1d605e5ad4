/*
 * Signals without SA_RESTART, at any moment, whose handlers take a lock by trylock, nested in each other; or
 * wait for a spinlock, which is allowed if nobody can hold it who waits for what was interrupted.
 */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* The locks that handlers take. Workers take them too: pick_lock() finds the first, an ordinary one. */
static struct lock *handlers_own, *shared_with_workers;

/* One that handlers wait for, whatever they interrupted. It is taken nowhere else and with the signals
 * blocked, so its holder waits for nothing. */
static struct lock *handlers_spin;

/* Not the trap's (stepping.c): a thread that is stepped while it is blocked dies of it. */
sigset_t pesterers(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    return set;
}

void block_pesterers(sigset_t *before) {
    sigset_t set = pesterers();
    pthread_sigmask(SIG_BLOCK, &set, before);
}

/* What on_fault() tells of. Never blocked where locks are called: a fault of a thread that blocks its signal
 * ends the process before anybody has told. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

void block_all_but_faults(sigset_t *before) {
    sigset_t set;
    sigfillset(&set);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

/* Inside the lock, in a handler that counts such entries by `counter`; and out of it. */
static void pass_in_handler(struct lock *lock, enum counter counter, unsigned turns) {
    enter(lock);
    atomic_fetch_add_explicit(&self->handler_entries[lock->index], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->handler_did[counter - DID_HANDLER], 1, memory_order_relaxed);
    spin(turns);
    leave(lock);
    expect_zero("unlock in a signal handler", lock->name, plain_call(lock, UNLOCK, NULL));
}

static void take(struct lock *lock) {
    doing_lock(TRYING, lock);
    int rc = plain_call(lock, TRYLOCK, NULL);
    if (rc == 0) pass_in_handler(lock, DID_HANDLER_LOCKED, 50);
    else expect("trylock in a signal handler", lock->name, rc, EBUSY);
}

static void spin_in_handler(struct lock *lock) {
    sigset_t before;
    if (!let_in(lock)) return;
    block_pesterers(&before);
    doing_lock(LOCKING, lock);
    expect_zero("lock in a signal handler", lock->name, plain_call(lock, LOCK, NULL));
    let_out(lock);
    pass_in_handler(lock, DID_HANDLER_SPUN, 100);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Leaves what the thread is said to do as it was: being interrupted is no progress. */
static void aside(void (*act)(struct lock *), struct lock *lock) {
    enum what what = atomic_load_explicit(&self->what, memory_order_relaxed);
    const char *name = atomic_load_explicit(&self->name, memory_order_relaxed);
    const void *object = atomic_load_explicit(&self->object, memory_order_relaxed);
    size_t size = atomic_load_explicit(&self->object_size, memory_order_relaxed);
    uint64_t since = atomic_load_explicit(&self->since, memory_order_relaxed);
    uint64_t beats = atomic_load_explicit(&self->beats, memory_order_relaxed);
    act(lock);
    doing(what, name, object, size);
    atomic_store_explicit(&self->since, since, memory_order_relaxed);
    atomic_store_explicit(&self->beats, beats, memory_order_relaxed);
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    int before, error = errno;
    if (!self || child_note) return;
    /* Inside a cancellation point glibc may have made this thread cancellable at any instruction; a critical
     * section is no place for that. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    atomic_fetch_add_explicit(&self->handler_did[0], 1, memory_order_relaxed);
    (void)info;
    aside(take, signal == SIGUSR1 ? handlers_own : shared_with_workers);
    uint64_t random =
        atomic_fetch_add_explicit(&self->handler_random, 0x9e3779b97f4a7c15u, memory_order_relaxed);
    random = mix(random + world.seed + self->number);
    if ((random >> 32 & 3) == 0) aside(spin_in_handler, handlers_spin);
    enum what what = atomic_load_explicit(&self->what, memory_order_relaxed);
    bool in_call = what == LOCKING || what == TRYING || what == TIMED_LOCKING || what == UNLOCKING ||
                   what == WAITING || what == TIMED_WAITING || what == CANCELLABLE_WAITING ||
                   what == SIGNALLING || what == BROADCASTING;
    if (in_call && random >> 60 < 4) step_interrupted(context, random);
    errno = error;
    pthread_setcancelstate(before, NULL);
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    static _Thread_local bool again;
    char doing_what[256] = "outside of any worker";
    (void)context;
    if (again) {
        /* A fault in here ends the process, and the watchdog says so. One of another thread must not: it would end
         * this one before it has told. */
        struct sigaction fall_back = {.sa_handler = SIG_DFL};
        sigaction(signal, &fall_back, NULL);
        return;
    }
    again = true;
    if (self) describe(doing_what, sizeof doing_what, self);
    const char *name = signal == SIGSEGV  ? "SIGSEGV"
                       : signal == SIGBUS ? "SIGBUS"
                       : signal == SIGILL ? "SIGILL"
                       : signal == SIGFPE ? "SIGFPE"
                                          : "SIGABRT";
    violation("%s at address %p in thread %d, which was %s", name, signal == SIGABRT ? NULL : info->si_addr,
              self ? (int)self->number : -1, doing_what);
}

/* ---- the ladder: a wait in a handler, which interrupted a wait in a handler, which ... ---- */

/*
 * Two climbers wait for the first rung's lock; the thread that holds all of them interrupts each wait by a
 * signal whose handler waits for the next rung's. So that this cannot deadlock, a rung's lock is taken in
 * that rung's handler only, with the signals of this and of lower rungs blocked: who holds it waits, if at
 * all, for a higher one. A thread has nodes to queue with for four waits; there are five rungs.
 */
#define RUNGS 5
#define CLIMBERS 2
static struct lock *rungs[RUNGS];

struct climber {
    struct slot slot;
    pthread_t thread;
    _Atomic unsigned rung; /* waits that it has begun */
};

static int rung_signal(unsigned rung) { return SIGRTMIN + (int)rung; }

static void climb(unsigned rung) {
    struct climber *me = (struct climber *)self;
    struct lock *lock = rungs[rung];
    unsigned turns =
        20 * (unsigned)(lock->index + me->slot.number) % 300; /* who was interrupted may be drawing */
    atomic_store(&me->rung, rung + 1);
    doing_lock(LOCKING, lock);
    errno_arm();
    expect_zero("lock, perhaps inside others,", lock->name, plain_call(lock, LOCK, NULL));
    errno_check("lock", lock->name);
    enter_counted(lock);
    spin(turns);
    leave(lock);
    expect_zero("unlock, perhaps inside others,", lock->name, plain_call(lock, UNLOCK, NULL));
    errno_check("unlock", lock->name);
}

static void on_rung(int signal) {
    int error = errno;
    climb((unsigned)(signal - SIGRTMIN));
    errno = error;
}

static void *climber_main(void *arg) {
    struct climber *me = arg;
    become(&me->slot);
    climb(0);
    return NULL;
}

static void make_ladder(void) {
    static const char *const names[RUNGS] = {"rung 1", "rung 2", "rung 3", "rung 4", "rung 5"};
    for (unsigned i = 0; i < RUNGS; i++) {
        rungs[i] = new_lock("spin", names[i]);
        if (i == 0) continue;
        struct sigaction action = {.sa_handler = on_rung};
        sigemptyset(&action.sa_mask);
        for (unsigned j = 1; j <= i; j++) sigaddset(&action.sa_mask, rung_signal(j));
        sigaction(rung_signal(i), &action, NULL);
    }
}

/* Some waits are found before they spin, some spinning, some halted. */
static void let_time_pass(void) {
    if (chance(300))
        sched_yield();
    else if (chance(500))
        spin(below(4000));
    else
        sleep_us(below(300));
}

void act_ladder(void) {
    static atomic_flag busy = ATOMIC_FLAG_INIT;
    static struct climber climbers[CLIMBERS];
    if (atomic_flag_test_and_set(&busy)) return;
    sigset_t before;
    block_pesterers(&before);
    for (unsigned i = 0; i < RUNGS; i++)
        VIOLATION_IF(!acquire(rungs[i], BY_LOCK, true), "torture itself: a rung is taken");
    unsigned count = 0;
    for (; count < CLIMBERS; count++) {
        struct climber *climber = &climbers[count];
        memset(climber, 0, sizeof *climber);
        climber->slot.number = MAX_SLOTS + count;
        climber->slot.random = draw();
        if (create(&climber->thread, climber_main, climber) != 0) break; /* no room now */
    }
    for (unsigned rung = 1; rung <= RUNGS; rung++) {
        for (unsigned i = 0; i < count; i++) {
            doing(WATCHING, rungs[rung - 1]->name, NULL, 0);
            while (atomic_load(&climbers[i].rung) < rung) {
                halt_if_violated();
                sched_yield();
            }
        }
        let_time_pass();
        for (unsigned i = 0; i < count && rung < RUNGS; i++)
            pthread_kill(climbers[i].thread, rung_signal(rung));
    }
    /* From above, as nested waits come to an end; or the lowest first, and all of them are on their way at
     * once. */
    bool upwards = chance(300);
    for (unsigned i = 0; i < RUNGS; i++) {
        release(rungs[upwards ? i : RUNGS - 1 - i]);
        if (!upwards) let_time_pass();
    }
    doing(JOINING, "those who wait for five spinlocks", NULL, 0);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(climbers[i].thread, NULL);
        for (unsigned j = 0; j < RUNGS; j++)
            self->entries[rungs[j]->index] += climbers[i].slot.entries[rungs[j]->index];
    }
    if (count == CLIMBERS) did(DID_LADDER);
    doing(THINKING, NULL, NULL, 0);
    atomic_flag_clear(&busy);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void make_handlers(void) {
    handlers_own = new_lock("normal", "signal handlers' own");
    shared_with_workers = &world.lock[0];
    handlers_spin = new_lock("spin", "signal handlers' spin");
    make_ladder();

    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigfillset(&fault.sa_mask);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) sigaction(faults[i], &fault, NULL);
}

/* The warden's: the slot's thread has been created and not joined, so that its id is valid. */
void pester(const struct slot *slot, uint64_t random) {
    pthread_kill(slot->thread, random & 1 ? SIGUSR1 : SIGUSR2);
}

uint64_t handler_entries(unsigned lock) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < world.slots; i++) sum += atomic_load(&world.slot[i].handler_entries[lock]);
    return sum;
}
