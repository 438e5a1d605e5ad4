/* fork, vfork and posix_spawn by threads that hold locks. */
#define _GNU_SOURCE
#include "torture.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void make_notes(void) {
    world.notes = mmap(NULL, sizeof(struct note) * world.slots, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VIOLATION_IF(world.notes == MAP_FAILED, "torture itself: out of memory");
}

/* ---- in the child ---- */

static void step(const char *what, const char *name) {
    char text[sizeof child_note->step];
    snprintf(text, sizeof text, "%s %s", what, name);
    for (unsigned i = 0; i < sizeof text; i++) child_note->step[i] = text[i];
}

/* The lock is free: goes through a life of it. */
static void live(struct lock *lock) {
    unsigned traits = lock->kind->traits;
    for (unsigned round = 0; round < 3; round++) {
        struct until until = never();
        bool timed = round == 2 && traits & TIMED;
        step("locking", lock->name);
        int rc = plain_call(lock, round == 0 || timed ? LOCK : TRYLOCK, timed ? &until : NULL);
        expect_zero(round == 0 ? "lock" : timed ? "timedlock" : "trylock", lock->name, rc);
        enter(lock);
        if (!(traits & RECURSIVE))
            expect("trylock by the owner", lock->name, plain_call(lock, TRYLOCK, NULL), EBUSY);
        if (!(traits & (RECURSIVE | ERRORCHECK)) && traits & TIMED) {
            until = until_after(CLOCK_REALTIME, 200000);
            step("waiting for a deadline on", lock->name);
            expect("timedlock by the owner", lock->name, plain_call(lock, LOCK, &until), ETIMEDOUT);
        }
        leave(lock);
        step("unlocking", lock->name);
        expect_zero("unlock", lock->name, plain_call(lock, UNLOCK, NULL));
    }
}

struct crowd {
    struct lock *lock;
    pthread_cond_t cond;
    unsigned arrived, wanted, rounds;
    unsigned number;
};

static void *crowd_main(void *arg) {
    struct crowd *crowd = arg;
    struct slot mine = {0};
    become(&mine);
    struct lock *lock = crowd->lock;
    mine.number = MAX_SLOTS + __atomic_fetch_add(&crowd->number, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < crowd->rounds; i++) {
        expect_zero("lock", lock->name, plain_call(lock, LOCK, NULL));
        enter(lock);
        spin(i % 16);
        leave(lock);
        expect_zero("unlock", lock->name, plain_call(lock, UNLOCK, NULL));
    }
    /* A barrier on a condition variable that is as new as the process. */
    if (!(lock->kind->traits & (C11 | SPINS | SHARES))) {
        expect_zero("lock", lock->name, plain_call(lock, LOCK, NULL));
        if (++crowd->arrived == crowd->wanted)
            expect("broadcast", lock->name, pthread_cond_broadcast(&crowd->cond), 0);
        while (crowd->arrived < crowd->wanted)
            expect("wait", lock->name, pthread_cond_wait(&crowd->cond, (void *)lock->cell->object), 0);
        expect_zero("unlock", lock->name, plain_call(lock, UNLOCK, NULL));
    }
    return NULL;
}

/* The child goes multi-threaded itself: its threads fight over the lock that was held across the fork. */
static void crowd_around(struct lock *lock) {
    struct crowd crowd = {.lock = lock, .cond = PTHREAD_COND_INITIALIZER, .wanted = 3, .rounds = 200};
    unsigned limit = lock->kind->traits & SHARED ? world.shared_spinners : world.spinners;
    /* Where waiters keep their CPUs from the holder: see torture.rs. */
    if (lock->kind->traits & SPINS && limit < MAX_SLOTS) crowd.rounds = 20;
    pthread_t thread[3];
    uint64_t before = lock->entries;
    step("in three threads on", lock->name);
    for (unsigned i = 0; i < 3; i++)
        if (pthread_create(&thread[i], NULL, crowd_main, &crowd) != 0) {
            if (i == 0) return;
            _exit(0); /* no room for threads: not what is tested */
        }
    for (unsigned i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    child_note->crowds++;
    VIOLATION_IF(lock->entries != before + 3 * crowd.rounds, "%s was acquired %u times, but %lu were counted",
                 lock->name, 3 * crowd.rounds, (unsigned long)(lock->entries - before));
}

/* The lock was held by the thread that forked: goes on with it, to its unlock and beyond. */
static void go_on(struct lock *lock) {
    const struct kind *kind = lock->kind;
    must_hold(lock, "in a forked child");
    step("unlocking, held across the fork,", lock->name);
    leave(lock);
    int rc = plain_call(lock, UNLOCK, NULL);
    /* glibc knows the owner by its thread id, which is another in the child: there, only a new init helps. */
    bool stranger = kind->traits & C11 ? kind->traits & RECURSIVE && rc == EINVAL
                                       : kind->traits & CHECKS_OWNER && rc == EPERM;
    if (stranger)
        expect("init", lock->name, kind->init(kind, lock->cell->object), 0);
    else
        expect("unlock of a lock held across the fork", lock->name, rc, 0);
    live(lock);
}

/* A grandchild, forked with the lock held once more. */
static void fork_again(struct lock *lock) {
    step("locking, before a second fork,", lock->name);
    expect_zero("lock", lock->name, plain_call(lock, LOCK, NULL));
    enter(lock);
    pid_t pid = fork();
    if (pid == 0) {
        go_on(lock);
        _exit(0);
    }
    int status = 0;
    if (pid > 0) {
        step("waiting for its own child on", lock->name);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        VIOLATION_IF(WIFSIGNALED(status), "a child of a forked child died of signal %d", WTERMSIG(status));
        if (WEXITSTATUS(status) != 0) _exit(WEXITSTATUS(status)); /* its note says why */
    }
    leave(lock);
    expect_zero("unlock", lock->name, plain_call(lock, UNLOCK, NULL));
}

static _Noreturn void child_main(struct lock **held, unsigned count, struct note *note, pid_t parent) {
    child_note = note;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    while (count > 0) {
        struct lock *lock = held[--count];
        go_on(lock);
        if (chance(250)) crowd_around(lock);
        if (chance(50)) fork_again(lock);
    }
    _exit(0);
}

/* ---- in the parent ---- */

static void await_child(pid_t pid, const char *how, const struct note *note) {
    uint64_t began = atomic_load(&world.tick);
    int status;
    doing(AWAITING_CHILD, how, NULL, 0);
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) break;
        VIOLATION_IF(got < 0 && errno != EINTR, "torture itself: waitpid failed");
        if (atomic_load(&world.tick) - began > world.patience) {
            char step[sizeof note->step] = "starting";
            for (unsigned i = 0; note && i < sizeof step; i++) step[i] = note->step[i];
            step[sizeof step - 1] = 0;
            violation("a child of %s hung for %.1f s: process %d, %s", how,
                      (double)world.patience * TICK_MS / 1000, (int)pid, step);
        }
        sleep_us(300);
    }
    VIOLATION_IF(WIFEXITED(status) && WEXITSTATUS(status) == 3 && note && note->text[0],
                 "in a forked child: %s", note->text);
    VIOLATION_IF(WIFSIGNALED(status), "a child of %s died of signal %d while %s", how, WTERMSIG(status),
                 note ? (const char *)note->step : "?");
    VIOLATION_IF(!WIFEXITED(status) || WEXITSTATUS(status) != 0, "a child of %s ended with status %#x", how,
                 (unsigned)status);
}

void act_fork(void) {
    struct lock *held[2];
    unsigned count = 0, one = below(world.ordinary), other = below(world.ordinary), spins = 0;
    struct note *note = &world.notes[self->number];
    /* In the order of their indices. */
    for (unsigned i = one < other ? one : other, last = one ^ other ^ i;; i = last) {
        struct lock *lock = &world.lock[i];
        if (survives_fork(lock->kind) && acquire(lock, BY_WHATEVER, true)) {
            held[count++] = lock;
            spins |= lock->kind->traits & SPINS;
        }
        if (i == last) break;
    }
    if (spins) did(DID_FORK_SPIN);
    memset(note, 0, sizeof *note);
    /* A handler that waited for a lock in the child, whose holder exists in the parent only, would wait for
     * ever. */
    sigset_t before;
    block_pesterers(&before);
    doing(FORKING, count ? held[0]->name : NULL, NULL, 0);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) child_main(held, count, note, parent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (unsigned i = 0; i < count; i++) must_hold(held[i], "after fork, in the parent,");
    while (count > 0) release(held[--count]);
    if (pid < 0) return; /* the machine's limit, not the locks' fault */
    did(DID_FORK);
    await_child(pid, "fork", note);
    self->did[DID_FORK_THREADS] += note->crowds;
    doing(THINKING, NULL, NULL, 0);
}

/* The child runs in our memory while we stand still, and leaves no trace in the locks. */
void act_vfork(void) {
    struct lock *lock = pick_lock();
    if (!acquire(lock, BY_WHATEVER, true)) return;
    doing(FORKING, "vfork", NULL, 0);
    sigset_t before;
    block_all_but_faults(&before);
    pid_t pid = vfork();
    if (pid == 0) _exit(0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    must_hold(lock, "after vfork");
    release(lock);
    if (pid < 0) return;
    did(DID_VFORK);
    await_child(pid, "vfork", NULL);
    doing(THINKING, NULL, NULL, 0);
}

/* Another program, which gets the same locks by its environment, started while we hold one. */
void act_spawn(void) {
    struct lock *lock = pick_lock();
    if (!acquire(lock, BY_WHATEVER, true)) return;
    char *argv[] = {"true", NULL};
    pid_t pid;
    doing(FORKING, "posix_spawn", NULL, 0);
    posix_spawnattr_t attr;
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    int rc = posix_spawnp(&pid, "true", NULL, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    must_hold(lock, "after posix_spawn");
    release(lock);
    if (rc != 0) return; /* no such program, or no room: nothing of the locks' */
    did(DID_SPAWN);
    await_child(pid, "posix_spawn", NULL);
    doing(THINKING, NULL, NULL, 0);
}
