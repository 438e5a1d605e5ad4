/* Signals without SA_RESTART, at any moment, whose handlers take a lock by trylock, nested in each other. */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* The locks that handlers take. Workers take them too: pick_lock() finds the first, which is an ordinary one. */
static struct lock *handlers_own, *shared_with_workers;

static void take(struct lock *lock)
{
    char number[16];
    enum what what = atomic_load_explicit(&self->what, memory_order_relaxed);
    const char *name = atomic_load_explicit(&self->name, memory_order_relaxed);
    const void *object = atomic_load_explicit(&self->object, memory_order_relaxed);
    size_t size = atomic_load_explicit(&self->object_size, memory_order_relaxed);
    uint64_t since = atomic_load_explicit(&self->since, memory_order_relaxed);
    uint64_t beats = atomic_load_explicit(&self->beats, memory_order_relaxed);

    doing_lock(TRYING, lock);
    int rc = lock->kind->trylock(lock->cell->object);
    if (rc == 0) {
        enter(lock);
        atomic_fetch_add_explicit(&self->handler_entries[lock->index], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&self->handler_did[1], 1, memory_order_relaxed);
        spin(50);
        leave(lock);
        rc = lock->kind->unlock(lock->cell->object);
        if (rc != 0)
            violation("unlock of %s in a signal handler returned %s", lock->name, error_name(rc, number));
    } else if (rc != EBUSY) {
        violation("trylock of %s in a signal handler returned %s", lock->name, error_name(rc, number));
    }
    /* As before: being interrupted is no progress. */
    doing(what, name, object, size);
    atomic_store_explicit(&self->since, since, memory_order_relaxed);
    atomic_store_explicit(&self->beats, beats, memory_order_relaxed);
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    int before, error = errno;
    if (!self || child_note)
        return;
    /* Inside a cancellation point glibc may have made this thread cancellable at any instruction; a critical section
     * is no place for that. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    atomic_fetch_add_explicit(&self->handler_did[0], 1, memory_order_relaxed);
    (void)info;
    take(signal == SIGUSR1 ? handlers_own : shared_with_workers);
    uint64_t random = atomic_fetch_add_explicit(&self->handler_random, 0x9e3779b97f4a7c15u, memory_order_relaxed);
    random = mix(random + world.seed + self->number);
    enum what what = atomic_load_explicit(&self->what, memory_order_relaxed);
    bool in_call = what == LOCKING || what == TRYING || what == TIMED_LOCKING || what == UNLOCKING || what == WAITING ||
                   what == TIMED_WAITING || what == CANCELLABLE_WAITING || what == SIGNALLING || what == BROADCASTING;
    if (in_call && random >> 60 < 4)
        step_interrupted(context, random);
    errno = error;
    pthread_setcancelstate(before, NULL);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    char doing_what[256] = "outside of any worker";
    (void)context;
    struct sigaction fall_back = {.sa_handler = SIG_DFL};
    sigaction(signal, &fall_back, NULL); /* a fault in here ends the process, and the watchdog says so */
    if (self)
        describe(doing_what, sizeof doing_what, self);
    const char *name = signal == SIGSEGV  ? "SIGSEGV"
                       : signal == SIGBUS ? "SIGBUS"
                       : signal == SIGILL ? "SIGILL"
                       : signal == SIGFPE ? "SIGFPE"
                                          : "SIGABRT";
    violation("%s at address %p in thread %d, which was %s", name,
              signal == SIGABRT ? NULL : info->si_addr, self ? (int)self->number : -1, doing_what);
}

void make_handlers(void)
{
    handlers_own = &world.lock[world.lock_count];
    handlers_own->index = world.lock_count++;
    make_lock(handlers_own, "normal", "signal handlers' own");
    shared_with_workers = &world.lock[0];

    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigfillset(&fault.sa_mask);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
        sigaction(faults[i], &fault, NULL);
}

/* The warden's: the slot's thread has been created and not joined, so that its id is valid. */
void pester(const struct slot *slot, uint64_t random)
{
    pthread_kill(slot->thread, random & 1 ? SIGUSR1 : SIGUSR2);
}

uint64_t handler_entries(unsigned lock)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < world.slots; i++)
        sum += atomic_load(&world.slot[i].handler_entries[lock]);
    return sum;
}
