// A random program of semaphore calls, which follows from its seed, and a trace of all that can be seen of
// it: run on the kernel's semaphores and on others, it prints the same.
//
//     semarray_differ FIRST COUNT [STEPS]
//
// Several processes of several threads each, and this one, work on two arrays. They act one at a time: a step
// is over when all calls have either returned or sleep in an array, as GETNCNT and GETZCNT say; then come its
// results, in the order of the threads, and the state of the arrays. Steps are operations of all kinds,
// settings, removals, signals, deaths, ends in order, ends of threads (the first one's too), and execs.
//
// Unlike the other programs here it writes to standard output. It exits with 1 if a step does not come to an
// end.
#include "semarray.h"
#include <poll.h>

enum { PROCESSES = 3, THREADS = 3, WORKERS = PROCESSES * THREADS, ARRAYS = 2, MOST_OPS = 5 };
// Seconds within which a step comes to rest.
enum { PATIENCE = 20 };

static const int sizes[ARRAYS] = {3, 4};

enum kind { OPERATE, SET_ONE, SET_ALL, REMOVE, EXIT, UNDERSCORE_EXIT, THREAD_EXIT, EXEC };

// One write to a pipe, and so never torn.
struct command {
    enum kind kind;
    int id, count;
    struct sembuf ops[MOST_OPS];
    int timed;
    struct timespec limit;
    unsigned short values[4];
};

struct reply {
    int worker, hello, result, error;
    pid_t thread;
};

// ---- the workers ----

// Commands and replies come through descriptors of these numbers, in an executed program too.
enum { COMMANDS = 100, REPLIES = 90 };

struct worker {
    int number, commands;
};

static struct worker workers[WORKERS];
// This program: /proc/self/exe is no more once the first thread has ended.
static char self[4096];

static void reply(const struct worker *w, int hello, int result, int error) {
    struct reply r = {w->number, hello, result, error, thread_id()};
    CHECK(write(REPLIES, &r, sizeof r) == sizeof r, "write: %s", strerror(errno));
}

static void *worker_main(void *argument);

static void nothing(int signal_number) { (void)signal_number; }

static int execute(const struct worker *w, struct command *c) {
    switch (c->kind) {
    case OPERATE:
        return c->timed ? semtimedop(c->id, c->ops, (size_t)c->count, &c->limit) : semop(c->id, c->ops,
                                                                                         (size_t)c->count);
    case SET_ONE: return semctl(c->id, c->ops[0].sem_num, SETVAL, (int)c->ops[0].sem_op);
    case SET_ALL: return semctl(c->id, 0, SETALL, c->values);
    case REMOVE: return semctl(c->id, 0, IPC_RMID);
    case EXIT: exit(0);
    case UNDERSCORE_EXIT: _exit(0);
    case THREAD_EXIT:
        // The next one says hello.
        MUST(pthread_detach(spawn(worker_main, (void *)w)));
        pthread_exit(NULL);
    case EXEC: {
        char number[16];
        snprintf(number, sizeof number, "%d", w->number / THREADS);
        char *arguments[] = {"semarray_differ", "process", number, NULL};
        execv(self, arguments);
        FAIL("exec: %s", strerror(errno));
    }
    }
    return -2;
}

static void *worker_main(void *argument) {
    const struct worker *w = argument;
    reply(w, 1, 0, 0);
    for (;;) {
        struct command c;
        ssize_t got;
        // Its orders come when it is idle, and then no signal does.
        while ((got = read(w->commands, &c, sizeof c)) == -1)
            CHECK(errno == EINTR, "read: %s", strerror(errno));
        if (got == 0) exit(0);
        CHECK(got == sizeof c, "a torn command");
        errno = 0;
        int result = execute(w, &c);
        reply(w, 0, result, errno);
    }
}

__attribute__((noreturn)) static void process_main(int process) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == 1) exit(0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = nothing;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < WORKERS; i++) workers[i] = (struct worker){i, COMMANDS + i};
    for (int i = 1; i < THREADS; i++) MUST(pthread_detach(spawn(worker_main,
                                                                &workers[process * THREADS + i])));
    worker_main(&workers[process * THREADS]);
    exit(0);
}

// ---- the program ----

static unsigned long long state;

static unsigned below(unsigned bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % bound);
}

static int chance(unsigned percent) { return below(100) < percent; }

static unsigned seed, step;
static int ids[ARRAYS], command_pipes[WORKERS], replies_read;
static pid_t processes[PROCESSES], threads[WORKERS];
enum doing { IDLE, CALLING, RETURNING /* sure to return, with nobody's help */ };
static enum doing doing[WORKERS];
static struct reply results[WORKERS];
static int has_result[WORKERS], hello[WORKERS];

// Whether the process's program has made a call. Before that, nothing tells the library's other users that it
// has replaced another, once its first thread has ended: the only case that is left out.
static int has_called[PROCESSES];

// Who a process id belongs to, as the trace names it.
enum { KNOWN = 400 };
static struct {
    pid_t id;
    int process;
} known[KNOWN];
static int known_count;

static void know(pid_t id, int process) {
    known[known_count % KNOWN].id = id;
    known[known_count++ % KNOWN].process = process;
}

static void print_pid(pid_t id) {
    if (id == 0) {
        printf(" -");
        return;
    }
    if (id == getpid()) {
        printf(" main");
        return;
    }
    for (int i = known_count; i-- > 0 && i >= known_count - KNOWN;) {
        if (known[i % KNOWN].id == id) {
            printf(" p%d#%d", known[i % KNOWN].process, i);
            return;
        }
    }
    printf(" stranger");
}

static const char *error_name(int error) {
    switch (error) {
    case EAGAIN: return "EAGAIN";
    case EFBIG: return "EFBIG";
    case EIDRM: return "EIDRM";
    case EINTR: return "EINTR";
    case EINVAL: return "EINVAL";
    case ERANGE: return "ERANGE";
    case EACCES: return "EACCES";
    case ENOMEM: return "ENOMEM";
    case ENOSPC: return "ENOSPC";
    default: return strerror(error);
    }
}

static void print_result(int result, int error) {
    if (result == -1)
        printf("%s", error_name(error));
    else
        printf("%d", result);
}

static void take_replies(void) {
    struct reply r;
    ssize_t got;
    while ((got = read(replies_read, &r, sizeof r)) == sizeof r) {
        threads[r.worker] = r.thread;
        if (r.hello) {
            hello[r.worker] = 1;
            continue;
        }
        results[r.worker] = r;
        has_result[r.worker] = 1;
        doing[r.worker] = IDLE;
    }
    CHECK(got == -1 && errno == EAGAIN, "the replies' pipe: %s", strerror(errno));
}

// How many sleep, and where: counts of both kinds a semaphore.
static int sleepers(int where[ARRAYS * 8]) {
    int sum = 0, at = 0;
    for (int a = 0; a < ARRAYS; a++) {
        for (int i = 0; i < sizes[a]; i++) {
            int n = semctl(ids[a], i, GETNCNT), z = semctl(ids[a], i, GETZCNT);
            where[at++] = n;
            where[at++] = z;
            sum += (n > 0 ? n : 0) + (z > 0 ? z : 0);
        }
    }
    return sum;
}

static void stuck(const char *why) {
    printf("STUCK: %s after %d s\n", why, PATIENCE);
    int where[ARRAYS * 8];
    printf("%d sleep, by the array's count; calls are in progress in:", sleepers(where));
    for (int w = 0; w < WORKERS; w++)
        if (doing[w] != IDLE) printf(" %d.%d", w / THREADS, w % THREADS);
    printf("\n");
    fflush(stdout);
    remove_own_arrays();
    _exit(1);
}

static void pause_for(int turn) {
    if (turn < 30)
        sched_yield();
    else
        usleep(turn < 300 ? 50 : 1000);
}

// Whether every thread in a call that may sleep does so, in the kernel.
static int all_asleep(void) {
    for (int w = 0; w < WORKERS; w++) {
        if (doing[w] == IDLE) continue;
        if (!task_sleeps(processes[w / THREADS], threads[w])) return 0;
    }
    return 1;
}

// Until every call has returned or sleeps. The counts of one look are not of one moment: it takes two that
// agree, and nobody's return between them.
static void come_to_rest(void) {
    struct timespec limit = after_ms(CLOCK_MONOTONIC, PATIENCE * 1000L);
    int before[ARRAYS * 8], now_[ARRAYS * 8], agreed = 0;
    for (int turn = 0;; turn++) {
        take_replies();
        int outstanding = 0, returning = 0;
        for (int w = 0; w < WORKERS; w++) {
            outstanding += doing[w] != IDLE;
            returning += doing[w] == RETURNING;
        }
        if (outstanding == 0) return;
        memset(now_, 0, sizeof now_);
        if (returning == 0 && sleepers(now_) == outstanding && all_asleep()) {
            if (agreed && memcmp(before, now_, sizeof now_) == 0) return;
            memcpy(before, now_, sizeof now_);
            agreed = 1;
            continue;
        }
        agreed = 0;
        if (turn % 64 == 63 && reached(CLOCK_MONOTONIC, limit)) stuck("no rest");
        pause_for(turn);
    }
}

static void await_hello(int first, int count) {
    struct timespec limit = after_ms(CLOCK_MONOTONIC, PATIENCE * 1000L);
    for (int turn = 0;; turn++) {
        take_replies();
        int there = 0;
        for (int w = first; w < first + count; w++) there += hello[w];
        if (there == count) return;
        if (turn % 64 == 63 && reached(CLOCK_MONOTONIC, limit)) stuck("no hello");
        pause_for(turn);
    }
}

static void start_process(int p) {
    memset(&hello[p * THREADS], 0, sizeof hello[0] * THREADS);
    fflush(stdout);
    has_called[p] = 1;
    processes[p] = fork();
    SYS(processes[p]);
    if (processes[p] == 0) process_main(p);
    know(processes[p], p);
    await_hello(p * THREADS, THREADS);
}

static void process_ended(int p) {
    int status;
    while (waitpid(processes[p], &status, 0) == -1) CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
    take_replies();
    for (int w = p * THREADS; w < (p + 1) * THREADS; w++) {
        doing[w] = IDLE;
        has_result[w] = 0;
    }
}

static void make_array(int a) {
    ids[a] = new_array(sizes[a]);
    unsigned short start[4];
    for (int i = 0; i < 4; i++) start[i] = (unsigned short)below(3);
    OK(semctl(ids[a], 0, SETALL, start));
}

static void print_state(void) {
    for (int w = 0; w < WORKERS; w++) {
        if (!has_result[w]) continue;
        printf("    %d.%d returns ", w / THREADS, w % THREADS);
        print_result(results[w].result, results[w].error);
        printf("\n");
        has_result[w] = 0;
    }
    for (int a = 0; a < ARRAYS; a++) {
        unsigned short values[4];
        printf("    array %d:", a);
        if (semctl(ids[a], 0, GETALL, values) == -1) {
            printf(" %s\n", error_name(errno));
            continue;
        }
        for (int i = 0; i < sizes[a]; i++) {
            printf(" %d", values[i]);
            CHECK(value(ids[a], i) == values[i], "GETVAL and GETALL differ");
        }
        printf(" |");
        for (int i = 0; i < sizes[a]; i++)
            printf(" %d+%d", semctl(ids[a], i, GETNCNT), semctl(ids[a], i, GETZCNT));
        printf(" |");
        for (int i = 0; i < sizes[a]; i++) print_pid(semctl(ids[a], i, GETPID));
        printf("\n");
    }
}

static void random_ops(struct command *c, int a) {
    unsigned size = below(100);
    c->count = size < 55 ? 1 : size < 80 ? 2 : size < 92 ? 3 : size < 98 ? 4 : 5;
    static const short usual[] = {-2, -1, -1, -1, -1, 0, 0, 1, 1, 1, 1, 2};
    static const short great[] = {-32767, -30000, 20000, 30000, 32767, 32766, -32768};
    for (int i = 0; i < c->count; i++) {
        short by = chance(2) ? great[below(7)] : usual[below(12)];
        int num = (int)below((unsigned)sizes[a]);
        if (chance(1)) num = sizes[a];
        c->ops[i] = op(num, by, (chance(22) ? IPC_NOWAIT : 0) | (chance(40) ? SEM_UNDO : 0));
    }
}

static void print_ops(const struct command *c) {
    for (int i = 0; i < c->count; i++)
        printf(" (%d,%+d%s%s)", c->ops[i].sem_num, c->ops[i].sem_op,
               c->ops[i].sem_flg & SEM_UNDO ? ",undo" : "",
               c->ops[i].sem_flg & IPC_NOWAIT ? ",nowait" : "");
}

static int pick(enum doing what) {
    int found[WORKERS], count = 0;
    for (int w = 0; w < WORKERS; w++)
        if (doing[w] == what) found[count++] = w;
    return count == 0 ? -1 : found[below((unsigned)count)];
}

static void send(int w, const struct command *c, enum doing what) {
    doing[w] = what;
    has_called[w / THREADS] |= c->kind <= REMOVE;
    CHECK(write(command_pipes[w], c, sizeof *c) == sizeof *c, "write: %s", strerror(errno));
}

// A call of this process's own, or of a worker's: what sets something never sleeps.
static void act(int w, struct command *c) {
    if (w >= 0) {
        send(w, c, RETURNING);
        return;
    }
    errno = 0;
    int result = execute(NULL, c);
    printf("    main returns ");
    print_result(result, errno);
    printf("\n");
}

static void print_who(int w) {
    if (w < 0)
        printf("main");
    else
        printf("%d.%d", w / THREADS, w % THREADS);
}

static void one_step(void) {
    int a = (int)below(ARRAYS), w = pick(IDLE), sleeper = pick(CALLING);
    unsigned what = below(100);
    struct command c;
    memset(&c, 0, sizeof c);
    c.id = ids[a];
    printf("%u.%u: ", seed, step);
    if (what < 62 && w >= 0) {
        c.kind = OPERATE;
        random_ops(&c, a);
        unsigned timed = below(10);
        c.timed = timed < 3;
        c.limit = timed == 0 ? (struct timespec){3600, 0} : timed == 1 ? ms(1) : ms(0);
        print_who(w);
        printf(" operates on %d:%s", a, "");
        print_ops(&c);
        printf("%s\n",
               !c.timed ? "" : timed == 0 ? " for an hour" : timed == 1 ? " for a millisecond" : " now");
        send(w, &c, timed == 1 || timed == 2 ? RETURNING : CALLING);
    } else if (what < 71) {
        c.kind = OPERATE;
        random_ops(&c, a);
        for (int i = 0; i < c.count; i++) c.ops[i].sem_flg |= IPC_NOWAIT;
        printf("main operates on %d:", a);
        print_ops(&c);
        printf("\n");
        act(-1, &c);
    } else if (what < 76) {
        c.kind = SET_ONE;
        c.ops[0] = op((int)below((unsigned)sizes[a]), chance(5) ? 32767 : (int)below(4), 0);
        if (chance(50)) w = -1;
        print_who(w);
        printf(" sets %d of %d to %d\n", c.ops[0].sem_num, a, c.ops[0].sem_op);
        act(w, &c);
    } else if (what < 78) {
        c.kind = SET_ALL;
        if (chance(50)) w = -1;
        print_who(w);
        printf(" sets all of %d to", a);
        for (int i = 0; i < sizes[a]; i++) {
            c.values[i] = chance(3) ? 32768 : (unsigned short)below(4);
            printf(" %d", c.values[i]);
        }
        printf("\n");
        act(w, &c);
    } else if (what < 84) {
        int p = (int)below(PROCESSES);
        printf("%d is killed\n", p);
        SYS(kill(processes[p], SIGKILL));
        process_ended(p);
        come_to_rest();
        print_state();
        start_process(p);
        return;
    } else if (what < 88 && w >= 0) {
        int p = w / THREADS;
        c.kind = chance(50) ? EXIT : UNDERSCORE_EXIT;
        printf("%d %s\n", p, c.kind == EXIT ? "exits" : "_exits");
        send(w, &c, RETURNING);
        process_ended(p);
        come_to_rest();
        print_state();
        start_process(p);
        return;
    } else if (what < 91 && w >= 0 && (has_called[w / THREADS] || w % THREADS != 0)) {
        c.kind = THREAD_EXIT;
        print_who(w);
        printf(" ends its thread\n");
        hello[w] = 0;
        send(w, &c, IDLE);
        await_hello(w, 1);
    } else if (what < 93 && w >= 0) {
        int p = w / THREADS;
        c.kind = EXEC;
        print_who(w);
        printf(" execs\n");
        memset(&hello[p * THREADS], 0, sizeof hello[0] * THREADS);
        send(w, &c, IDLE);
        await_hello(p * THREADS, THREADS);
        for (int i = p * THREADS; i < (p + 1) * THREADS; i++) doing[i] = IDLE;
        has_called[p] = 0;
    } else if (what < 98 && sleeper >= 0) {
        print_who(sleeper);
        printf(" gets a signal\n");
        struct timespec limit = after_ms(CLOCK_MONOTONIC, PATIENCE * 1000L);
        // A sleeper that looks whether it is still to sleep, just then, takes the signal without being
        // interrupted by it: the next one finds it asleep.
        while (doing[sleeper] != IDLE) {
            await_task_asleep(processes[sleeper / THREADS], threads[sleeper]);
            SYS(syscall(SYS_tgkill, processes[sleeper / THREADS], threads[sleeper], SIGUSR1));
            struct timespec again = after_ms(CLOCK_MONOTONIC, 200);
            for (int turn = 0; doing[sleeper] != IDLE && !reached(CLOCK_MONOTONIC, again); turn++) {
                take_replies();
                pause_for(turn);
            }
            if (reached(CLOCK_MONOTONIC, limit)) stuck("not interrupted");
        }
    } else if (what < 99) {
        c.kind = REMOVE;
        if (chance(50)) w = -1;
        print_who(w);
        printf(" removes %d\n", a);
        // Whoever sleeps there comes back, and nobody's help is needed.
        act(w, &c);
        come_to_rest();
        print_state();
        make_array(a);
        return;
    } else {
        printf("nothing\n");
    }
    come_to_rest();
    print_state();
}

int main(int argc, char **argv) {
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "readlink: %s", strerror(errno));
    if (argc == 3 && strcmp(argv[1], "process") == 0) process_main(atoi(argv[2]));
    CHECK(argc == 3 || argc == 4, "usage: semarray_differ FIRST COUNT [STEPS]");
    unsigned first = (unsigned)atoi(argv[1]), count = (unsigned)atoi(argv[2]);
    unsigned steps = argc == 4 ? (unsigned)atoi(argv[3]) : 60;
    int ends[2];
    SYS(pipe(ends));
    SYS(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    replies_read = ends[0];
    SYS(dup2(ends[1], REPLIES));
    close(ends[1]);
    for (int w = 0; w < WORKERS; w++) {
        SYS(pipe(ends));
        SYS(dup2(ends[0], COMMANDS + w));
        close(ends[0]);
        command_pipes[w] = ends[1];
    }
    for (seed = first; seed < first + count; seed++) {
        state = seed * 0x9e3779b97f4a7c15ull + 1;
        for (int i = 0; i < 10; i++) below(2);
        known_count = 0;
        for (int a = 0; a < ARRAYS; a++) make_array(a);
        for (int p = 0; p < PROCESSES; p++) start_process(p);
        printf("seed %u\n", seed);
        for (step = 0; step < steps; step++) one_step();
        // The end: all that still sleep are woken by the removal.
        for (int a = 0; a < ARRAYS; a++) remove_array(ids[a]);
        come_to_rest();
        print_state();
        for (int p = 0; p < PROCESSES; p++) {
            SYS(kill(processes[p], SIGKILL));
            process_ended(p);
        }
        CHECK(fflush(stdout) == 0, "standard output");
    }
    return 0;
}
