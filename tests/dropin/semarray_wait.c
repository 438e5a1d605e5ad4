// Sleepers, in threads of one process: who goes on when, in which order, all or nothing; what GETNCNT,
// GETZCNT and GETPID say of them; time-outs; signals; the removal of the array under them.
#include "semarray.h"

enum { CROWD = 250 };

// One call in a thread of its own.
struct sleeper {
    int id, count;
    struct sembuf ops[4];
    struct timespec *limit;
    volatile pid_t thread;
    volatile int done;
    int result, error;
    pthread_t handle;
};

static int turn;

static void *sleeper_main(void *argument) {
    struct sleeper *s = argument;
    announce(&s->thread);
    errno = ERRNO_SENTINEL;
    s->result = semtimedop(s->id, s->ops, (size_t)s->count, s->limit);
    s->error = errno;
    __atomic_store_n(&s->done, 1 + __atomic_fetch_add(&turn, 1, __ATOMIC_ACQ_REL), __ATOMIC_RELEASE);
    return NULL;
}

static void start(struct sleeper *s, int id, int count, const struct sembuf *ops) {
    memset(s, 0, sizeof *s);
    s->id = id;
    s->count = count;
    memcpy(s->ops, ops, sizeof *ops * (size_t)count);
    s->handle = spawn(sleeper_main, s);
}

// ... and sleeps then: so many for the semaphore to grow, and so many for it to be zero.
static void asleep(struct sleeper *s, int id, int count, const struct sembuf *ops, int num, int growth,
                   int zero) {
    start(s, id, count, ops);
    await_sleepers(id, num, growth, zero);
}

static void start_one(struct sleeper *s, int id, int num, int by, int flags) {
    struct sembuf one = op(num, by, flags);
    start(s, id, 1, &one);
}

static void asleep_one(struct sleeper *s, int id, int num, int by, int growth, int zero) {
    start_one(s, id, num, by, 0);
    await_sleepers(id, num, growth, zero);
}

// It ends, with success or this error.
static void ends(struct sleeper *s, int error) {
    join(s->handle);
    if (error == 0)
        CHECK(s->result == 0 && s->error == ERRNO_SENTINEL, "a sleeper got %d, errno %d", s->result,
              s->error);
    else
        CHECK(s->result == -1 && s->error == error, "a sleeper got %d (%s), expected %s", s->result,
              strerror(s->error),
              strerror(error));
}

static void sleeps(struct sleeper *s) { CHECK(!s->done, "a sleeper went on that may not"); }

static void growth(void) {
    STAGE("wait for growth");
    int id = new_array(2);
    struct sleeper a, b;
    asleep_one(&a, id, 0, -3, 1, 0);
    OK(change(id, 0, 2, 0));
    OK(change(id, 1, 5, 0));
    await_sleepers(id, 0, 1, 0);
    sleeps(&a);
    GIVES(value(id, 0), 2);
    OK(change(id, 0, 1, 0));
    // The sleeper's operation was done by then, though its thread may not have run yet.
    GIVES(value(id, 0), 0);
    GIVES(semctl(id, 0, GETNCNT), 0);
    ends(&a, 0);

    // One that needs less is not held up by one that needs more.
    asleep_one(&a, id, 0, -3, 1, 0);
    asleep_one(&b, id, 0, -1, 2, 0);
    OK(change(id, 0, 1, 0));
    ends(&b, 0);
    sleeps(&a);
    await_sleepers(id, 0, 1, 0);
    // ... nor is one that does not have to sleep at all.
    OK(change(id, 0, 2, 0));
    OK(change(id, 0, -1, IPC_NOWAIT));
    OK(change(id, 0, 2, 0));
    ends(&a, 0);
    GIVES(value(id, 0), 0);

    STAGE("SETVAL and SETALL wake");
    start_one(&a, id, 0, -1, 0);
    start_one(&b, id, 1, -7, 0);
    await_sleepers(id, 0, 1, 0);
    await_sleepers(id, 1, 1, 0);
    set(id, 0, 1);
    ends(&a, 0);
    GIVES(value(id, 0), 0);
    sleeps(&b);
    unsigned short all[2] = {0, 9};
    OK(semctl(id, 0, SETALL, all));
    ends(&b, 0);
    GIVES(value(id, 1), 2);
    remove_array(id);
}

static void zero(void) {
    STAGE("wait for zero");
    int id = new_array(2);
    struct sleeper a, b, c;
    OK(change(id, 0, 2, 0));
    asleep_one(&a, id, 0, 0, 0, 1);
    OK(change(id, 0, -1, 0));
    await_sleepers(id, 0, 0, 1);
    sleeps(&a);
    OK(change(id, 0, -1, 0));
    GIVES(semctl(id, 0, GETZCNT), 0);
    ends(&a, 0);

    // All that wait for zero see it before anybody who would raise the value again.
    OK(change(id, 0, 1, 0));
    start_one(&a, id, 0, 0, 0);
    asleep_one(&b, id, 0, 0, 0, 2);
    struct sembuf zero_then_up[] = {op(0, 0, 0), op(0, 1, 0)};
    asleep(&c, id, 2, zero_then_up, 0, 0, 3);
    OK(change(id, 0, -1, 0));
    ends(&a, 0);
    ends(&b, 0);
    ends(&c, 0);
    GIVES(value(id, 0), 1);
    // Two that wait for zero and raise it exclude each other: a lock.
    start(&a, id, 2, zero_then_up);
    asleep(&b, id, 2, zero_then_up, 0, 0, 2);
    OK(change(id, 0, -1, 0));
    await_sleepers(id, 0, 0, 1);
    GIVES(value(id, 0), 1);
    OK(change(id, 0, -1, 0));
    ends(&a, 0);
    ends(&b, 0);
    set(id, 0, 3);
    asleep_one(&a, id, 0, 0, 0, 1);
    set(id, 0, 0);
    ends(&a, 0);
    // A sleeper that brings the value to zero wakes those who wait for that.
    asleep_one(&a, id, 1, -2, 1, 0);
    OK(change(id, 1, 1, 0));
    asleep_one(&b, id, 1, 0, 1, 1);
    OK(change(id, 1, 1, 0));
    ends(&a, 0);
    ends(&b, 0);
    remove_array(id);
}

static void together(void) {
    STAGE("several operations at once");
    int id = new_array(4);
    struct sleeper a, b;
    struct sembuf both[] = {op(0, -1, 0), op(1, -1, 0)};
    asleep(&a, id, 2, both, 0, 1, 0);
    GIVES(semctl(id, 1, GETNCNT), 0);
    OK(change(id, 1, 1, 0));
    await_sleepers(id, 0, 1, 0);
    GIVES(value(id, 1), 1);
    OK(change(id, 1, -1, IPC_NOWAIT));
    // It has the first and waits for the second: it has taken nothing.
    OK(change(id, 0, 1, 0));
    await_sleepers(id, 1, 1, 0);
    GIVES(semctl(id, 0, GETNCNT), 0);
    GIVES(value(id, 0), 1);
    OK(change(id, 0, -1, IPC_NOWAIT));
    await_sleepers(id, 0, 1, 0);
    sleeps(&a);
    struct sembuf give[] = {op(0, 1, 0), op(1, 1, 0)};
    OK(semop(id, give, 2));
    ends(&a, 0);
    GIVES(value(id, 0), 0);
    GIVES(value(id, 1), 0);

    // In the order in which they were written, on one semaphore too.
    struct sembuf down_up[] = {op(2, -1, IPC_NOWAIT), op(2, 1, 0)},
        up_down[] = {op(2, 1, 0), op(2, -1, IPC_NOWAIT)};
    REFUSED(semop(id, down_up, 2), EAGAIN);
    OK(semop(id, up_down, 2));
    struct sembuf up_zero[] = {op(2, 1, 0), op(2, 0, IPC_NOWAIT)},
        turn_back[] = {op(2, 1, 0), op(2, -1, 0), op(2, 0, 0)};
    REFUSED(semop(id, up_zero, 2), EAGAIN);
    OK(semop(id, turn_back, 3));
    GIVES(value(id, 2), 0);
    struct sembuf twice[] = {op(3, -2, 0), op(3, -2, 0)};
    asleep(&a, id, 2, twice, 3, 1, 0);
    OK(change(id, 3, 3, 0));
    await_sleepers(id, 3, 1, 0);
    GIVES(value(id, 3), 3);
    sleeps(&a);
    OK(change(id, 3, 1, 0));
    ends(&a, 0);

    STAGE("a chain of sleepers");
    // Each lets the next one go on, by what it adds.
    struct sembuf first[] = {op(0, -1, 0), op(1, 1, 0)}, next[] = {op(1, -1, 0), op(2, 1, 0)};
    asleep(&a, id, 2, next, 1, 1, 0);
    asleep(&b, id, 2, first, 0, 1, 0);
    struct sleeper c;
    asleep_one(&c, id, 2, -1, 1, 0);
    OK(change(id, 0, 1, 0));
    ends(&b, 0);
    ends(&a, 0);
    ends(&c, 0);
    for (int i = 0; i < 4; i++) GIVES(value(id, i), 0);

    STAGE("a sleeper whose turn it is, refused");
    // Once it has what it waits for, its next operation is not to wait, or goes too far.
    struct sembuf then_not[] = {op(0, -1, 0), op(1, -1, IPC_NOWAIT)};
    asleep(&a, id, 2, then_not, 0, 1, 0);
    OK(change(id, 0, 1, 0));
    ends(&a, EAGAIN);
    GIVES(value(id, 0), 1);
    set(id, 0, 0);
    set(id, 1, MOST_VALUE);
    struct sembuf then_far[] = {op(0, -1, 0), op(1, 1, 0)};
    asleep(&a, id, 2, then_far, 0, 1, 0);
    OK(change(id, 0, 1, 0));
    ends(&a, ERANGE);
    GIVES(value(id, 0), 1);
    GIVES(value(id, 1), MOST_VALUE);
    remove_array(id);
}

// Those that can go on do so in the order of their arrival.
static void order(void) {
    STAGE("first come, first served");
    enum { QUEUE = 20 };
    static struct sleeper s[QUEUE];
    int id = new_array(2);
    for (int several = 0; several < 2; several++) {
        struct sembuf ops[] = {op(0, -1, 0), op(1, 1, 0)};
        for (int i = 0; i < QUEUE; i++) {
            asleep(&s[i], id, 1 + several, ops, 0, i + 1, 0);
        }
        for (int i = 0; i < QUEUE; i++) {
            OK(change(id, 0, 1, 0));
            ends(&s[i], 0);
            for (int j = i + 1; j < QUEUE; j++) sleeps(&s[j]);
        }
    }
    GIVES(value(id, 1), QUEUE);
    // Of different kinds, too: one, two, one, ... operations.
    for (int i = 0; i < QUEUE; i++) {
        struct sembuf ops[] = {op(0, -1, 0), op(1, 1, 0)};
        asleep(&s[i], id, 1 + i % 2, ops, 0, i + 1, 0);
    }
    for (int i = 0; i < QUEUE; i++) {
        OK(change(id, 0, 1, 0));
        ends(&s[i], 0);
        for (int j = i + 1; j < QUEUE; j++) sleeps(&s[j]);
    }
    // A number for some of them goes to the first ones that it suffices for.
    const int wants[] = {3, 2, 4, 1};
    for (int i = 0; i < 4; i++) {
        asleep_one(&s[i], id, 0, -wants[i], i + 1, 0);
    }
    OK(change(id, 0, 6, 0));
    ends(&s[0], 0);
    ends(&s[1], 0);
    ends(&s[3], 0);
    sleeps(&s[2]);
    await_sleepers(id, 0, 1, 0);
    OK(change(id, 0, 4, 0));
    ends(&s[2], 0);
    remove_array(id);
}

static void limits(void) {
    STAGE("time-outs");
    int id = new_array(1);
    struct timespec t;
    const long waits[] = {0, 1, 3, 30};
    for (int i = 0; i < 4; i++) {
        for (int kind = 0; kind < 2; kind++) {
            set(id, 0, kind);
            struct sembuf one = op(0, kind ? 0 : -1, SEM_UNDO);
            t = ms(waits[i]);
            struct timespec until = after_ms(CLOCK_MONOTONIC, waits[i]);
            REFUSED(semtimedop(id, &one, 1, &t), EAGAIN);
            CHECK(reached(CLOCK_MONOTONIC, until), "a wait of %ld ms ended too early", waits[i]);
            CHECK(t.tv_sec == 0 && t.tv_nsec == waits[i] * 1000000, "the time was changed");
            GIVES(semctl(id, 0, GETNCNT) + semctl(id, 0, GETZCNT), 0);
        }
    }
    set(id, 0, 0);
    struct sleeper s;
    memset(&s, 0, sizeof s);
    struct timespec hour = {3600, 0}, ages = {(time_t)1 << 60, 0};
    for (int i = 0; i < 2; i++) {
        s.done = 0;
        s.id = id;
        s.count = 1;
        s.ops[0] = op(0, -1, 0);
        s.limit = i ? &ages : &hour;
        s.handle = spawn(sleeper_main, &s);
        await_sleepers(id, 0, 1, 0);
        OK(change(id, 0, 1, 0));
        ends(&s, 0);
    }
    // Those behind one that ran out of time are served all the same.
    struct sleeper behind;
    t = ms(20);
    s.done = 0;
    s.limit = &t;
    s.handle = spawn(sleeper_main, &s);
    start_one(&behind, id, 0, -1, 0);
    ends(&s, EAGAIN);
    await_sleepers(id, 0, 1, 0);
    OK(change(id, 0, 1, 0));
    ends(&behind, 0);
    GIVES(value(id, 0), 0);
    remove_array(id);
}

static volatile sig_atomic_t handled;

static void handler(int signal_number) {
    int saved = errno;
    handled++;
    errno = saved;
}

static void signals(void) {
    STAGE("signals");
    int id = new_array(2);
    struct timespec hour = {3600, 0};
    for (int i = 0; i < 12; i++) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = handler;
        // The call is never restarted, whatever was asked for.
        action.sa_flags = i % 2 ? SA_RESTART : 0;
        SYS(sigaction(SIGUSR1, &action, NULL));
        struct sleeper s;
        memset(&s, 0, sizeof s);
        s.id = id;
        s.count = i / 2 % 2 ? 2 : 1;
        set(id, 1, 1);
        set(id, 0, i % 3 == 0 ? 1 : 0);
        s.ops[0] = op(0, i % 3 == 0 ? 0 : -1, SEM_UNDO);
        s.ops[1] = op(1, 1, 0);
        s.limit = i / 4 % 2 ? &hour : NULL;
        s.handle = spawn(sleeper_main, &s);
        await_sleepers(id, 0, i % 3 != 0, i % 3 == 0);
        await_task_asleep(getpid(), s.thread);
        // A signal that comes while a sleeper on our arrays looks about does not end the wait: the next one
        // does.
        int before = handled, sent = 0;
        while (__atomic_load_n(&s.done, __ATOMIC_ACQUIRE) == 0) {
            MUST(pthread_kill(s.handle, SIGUSR1));
            sent++;
            for (int look = 0; look < 100 && __atomic_load_n(&s.done, __ATOMIC_ACQUIRE) == 0; look++)
                usleep(200);
        }
        ends(&s, EINTR);
        CHECK(handled > before && handled <= before + sent, "%d of %d signals were handled",
              handled - before, sent);
        GIVES(semctl(id, 0, GETNCNT) + semctl(id, 0, GETZCNT), 0);
        GIVES(value(id, 1), 1);
    }
    STAGE("signals without a handler");
    // One that is ignored, or blocked, interrupts nothing.
    signal(SIGUSR2, SIG_IGN);
    struct sleeper s;
    set(id, 0, 0);
    asleep_one(&s, id, 0, -1, 1, 0);
    await_task_asleep(getpid(), s.thread);
    MUST(pthread_kill(s.handle, SIGUSR2));
    SYS(kill(getpid(), SIGCONT));
    await_task_asleep(getpid(), s.thread);
    await_sleepers(id, 0, 1, 0);
    sleeps(&s);
    OK(change(id, 0, 1, 0));
    ends(&s, 0);
    remove_array(id);
}

static void removal(void) {
    STAGE("removal");
    enum { SLEEPERS = 30 };
    static struct sleeper s[SLEEPERS];
    struct timespec hour = {3600, 0};
    int id = new_array(3);
    set(id, 1, 1);
    for (int i = 0; i < SLEEPERS; i++) {
        memset(&s[i], 0, sizeof s[i]);
        s[i].id = id;
        s[i].count = 1 + i % 2;
        s[i].ops[0] = i % 3 == 0 ? op(0, -1, SEM_UNDO) : i % 3 == 1 ? op(1, 0, 0) : op(2, -5, 0);
        s[i].ops[1] = op(0, i % 4 == 1 ? 1 : -1, 0);
        s[i].limit = i % 5 == 0 ? &hour : NULL;
        s[i].handle = spawn(sleeper_main, &s[i]);
    }
    await_sleepers(id, 0, SLEEPERS / 3, 0);
    await_sleepers(id, 1, 0, SLEEPERS / 3);
    await_sleepers(id, 2, SLEEPERS / 3, 0);
    remove_array(id);
    for (int i = 0; i < SLEEPERS; i++) ends(&s[i], EIDRM);
    REFUSED(change(id, 0, 1, 0), EINVAL);
    REFUSED(semctl(id, 0, IPC_RMID), EINVAL);
}

static void pids(void) {
    STAGE("GETPID of a sleeper");
    int id = new_array(2);
    pid_t child = fork_limited(60);
    if (child == 0) {
        struct sembuf ops[] = {op(0, -1, 0), op(1, 1, 0)};
        OK(semop(id, ops, 2));
        _exit(0);
    }
    await_sleepers(id, 0, 1, 0);
    GIVES(semctl(id, 0, GETPID), 0);
    OK(change(id, 0, 1, 0));
    // It was the sleeper who changed the values last, though we did it for it.
    GIVES(semctl(id, 0, GETPID), (int)child);
    GIVES(semctl(id, 1, GETPID), (int)child);
    await_child(child);
    GIVES(semctl(id, 1, GETPID), (int)child);
    remove_array(id);
}

// Many threads, each on its own semaphore, woken by few calls; then all on one semaphore, as a lock.
static struct sleeper crowd_sleepers[CROWD];
static int crowd_id;
static long counter;

static void *crowd_main(void *argument) {
    long me = (long)argument;
    for (int i = 0; i < 40; i++) OK(change(crowd_id, (int)me, -1, 0));
    for (int i = 0; i < 20; i++) {
        OK(change(crowd_id, CROWD, -1, i % 2 ? SEM_UNDO : 0));
        long v = counter;
        if (i % 7 == 0) sched_yield();
        counter = v + 1;
        OK(change(crowd_id, CROWD, 1, i % 2 ? SEM_UNDO : 0));
    }
    return NULL;
}

static void a_crowd(void) {
    STAGE("a crowd");
    crowd_id = new_array(CROWD + 1);
    counter = 0;
    set(crowd_id, CROWD, 1);
    for (long i = 0; i < CROWD; i++) crowd_sleepers[i].handle = spawn(crowd_main, (void *)i);
    for (int round = 0; round < 40; round++) {
        for (int first = 0; first < CROWD; first += 64) {
            struct sembuf ops[64];
            int count = CROWD - first < 64 ? CROWD - first : 64;
            for (int i = 0; i < count; i++) ops[i] = op(first + i, 1, 0);
            OK(semop(crowd_id, ops, (size_t)count));
        }
    }
    for (int i = 0; i < CROWD; i++) join(crowd_sleepers[i].handle);
    CHECK(counter == CROWD * 20L, "%ld turns, expected %ld: two had the lock at once", counter, CROWD * 20L);
    for (int i = 0; i < CROWD; i++) GIVES(value(crowd_id, i), 0);
    GIVES(value(crowd_id, CROWD), 1);
    STAGE("a crowd at one semaphore");
    for (int i = 0; i < CROWD; i++) start_one(&crowd_sleepers[i], crowd_id, 0, -1, 0);
    await_sleepers(crowd_id, 0, CROWD, 0);
    OK(change(crowd_id, 0, CROWD - 1, 0));
    await_sleepers(crowd_id, 0, 1, 0);
    remove_array(crowd_id);
    int removed = 0;
    for (int i = 0; i < CROWD; i++) {
        join(crowd_sleepers[i].handle);
        removed += crowd_sleepers[i].error == EIDRM;
        CHECK(crowd_sleepers[i].result == 0 || crowd_sleepers[i].error == EIDRM, "a sleeper got %s",
              strerror(crowd_sleepers[i].error));
    }
    CHECK(removed == 1, "%d found the array removed", removed);
}

int main(void) {
    limit_seconds(60);
    growth();
    zero();
    together();
    order();
    limits();
    signals();
    removal();
    pids();
    a_crowd();
    return 0;
}
