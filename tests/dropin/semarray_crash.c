// Processes that operate on arrays at random and are killed at random moments, thousands of times; after each
// kill, what the arrays hold has to be what it would be had the dead one stopped between two calls.
//
//     semarray_crash KILLS TEAMS SEED
//
// A team is a parent and its workers, with arrays of its own. Every operation keeps something that is known
// from outside:
//
// * Tokens move between semaphores, without SEM_UNDO: their sum stays.
// * Other semaphores change with SEM_UNDO only: each is what it was at first, and what the living have done
//   to it. Among them are locks, taken by going down from 1 and by raising from 0.
// * In another array, set as a whole or changed by 500 operations in one call, all semaphores are always
//   equal.
// * A few keys are made, used and removed all the time: what is found there can be used, and what is not can
//   be made.
//
// After a kill the workers are asked to pause between two calls. Those that sleep in one go on sleeping; none
// of them may have what it waits for, and the arrays count them exactly.
#include "semarray.h"

enum { WORKERS = 5, TOKENS = 4, WALKS = 4, LOCKS = 2, SEMAPHORES = TOKENS + WALKS + LOCKS + 1 };
enum { FIRST_WALK = TOKENS, FIRST_LOCK = TOKENS + WALKS, GATE = FIRST_LOCK + LOCKS };
enum { TOKEN_SUM = 12, WALK_START = 1000, EVEN = 500, KEYS = 3, MOST_OPS = 4 };
// Seconds in which all workers have come to a pause, unless one is stuck.
enum { PATIENCE = 30 };

enum doing { BETWEEN, IN_CALL, PAUSED };

struct worker {
    volatile int doing, timed, on_main;
    volatile unsigned calls;
    volatile int count;
    struct sembuf ops[MOST_OPS];
    // What it has done to each semaphore that it changes with SEM_UNDO only.
    volatile int net[SEMAPHORES];
};

struct team {
    volatile int pause;
    volatile int holder[LOCKS + 1];
    struct worker workers[WORKERS];
};

static struct team *team;
static int array, even;
static key_t keys;
static int me;
static unsigned long long state;

static unsigned below(unsigned bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % bound);
}

// ---- a worker ----

static void pause_if_asked(struct worker *w) {
    if (!team->pause) return;
    __atomic_store_n(&w->doing, PAUSED, __ATOMIC_RELEASE);
    while (__atomic_load_n(&team->pause, __ATOMIC_ACQUIRE)) usleep(50);
    __atomic_store_n(&w->doing, BETWEEN, __ATOMIC_RELEASE);
}

// Announces the call, makes it, and takes down what it did. 1 if it was done.
static int call(struct worker *w, int count, const struct sembuf *ops, int how) {
    pause_if_asked(w);
    for (int i = 0; i < count; i++) {
        w->ops[i] = ops[i];
        if (how == 0) w->ops[i].sem_flg |= IPC_NOWAIT;
    }
    w->count = count;
    w->timed = how == 1;
    w->on_main = 1;
    w->calls++;
    __atomic_store_n(&w->doing, IN_CALL, __ATOMIC_RELEASE);
    struct timespec t = {0, (long)below(1500) * 1000};
    int result = how == 1 ? semtimedop(array, w->ops, (size_t)count, &t) : semop(array, w->ops,
                                                                                 (size_t)count);
    if (result == 0) {
        for (int i = 0; i < count; i++)
            if (w->ops[i].sem_flg & SEM_UNDO) w->net[w->ops[i].sem_num] += w->ops[i].sem_op;
    } else {
        CHECK(errno == EAGAIN && how != 2, "semop: %s", strerror(errno));
    }
    __atomic_store_n(&w->doing, BETWEEN, __ATOMIC_RELEASE);
    return result == 0;
}

// 0: not at all, 1: for a while, 2: until it can go on.
static int patience(void) {
    unsigned r = below(10);
    return r < 3 ? 0 : r < 6 ? 1 : 2;
}

static void transfer(struct worker *w) {
    int from = (int)below(TOKENS), to = (int)below(TOKENS), also = (int)below(TOKENS), n = 1 + (int)below(3);
    struct sembuf two[] = {op(from, -n, 0), op(to, n, 0)};
    struct sembuf three[] = {op(from, -1, 0), op(also, -1, 0), op(to, 2, 0)};
    struct sembuf four[] = {op(from, -1, 0), op(GATE, 0, 0), op(FIRST_WALK + to, 1, SEM_UNDO), op(to, 1, 0)};
    switch (below(4)) {
    case 0:
    case 1: call(w, 2, two, patience()); break;
    case 2: call(w, 3, three, patience()); break;
    default: call(w, 4, four, patience());
    }
}

static void walk(struct worker *w) {
    int one = FIRST_WALK + (int)below(WALKS), other = FIRST_WALK + (int)below(WALKS), n = 1 + (int)below(9);
    // Back, if it has gone far.
    if (w->net[one] > 60) n = -n;
    struct sembuf ops[] = {op(one, n, SEM_UNDO), op(other, w->net[other] < -60 ? n : -n, SEM_UNDO)};
    call(w, 1 + (int)below(2), ops, patience());
}

static void hold(int which) {
    team->holder[which] = me + 1;
    for (unsigned turns = below(60); turns-- > 0;) {
        if (turns % 16 == 0) sched_yield();
        CHECK(team->holder[which] == me + 1, "two hold lock %d at once", which);
    }
}

static void lock(struct worker *w) {
    int which = (int)below(LOCKS);
    struct sembuf take[] = {op(FIRST_LOCK + which, -1, SEM_UNDO), op(FIRST_WALK, 1, SEM_UNDO)};
    struct sembuf give[] = {op(FIRST_LOCK + which, 1, SEM_UNDO), op(FIRST_WALK, -1, SEM_UNDO)};
    int count = 1 + (int)below(2);
    if (!call(w, count, take, patience())) return;
    hold(which);
    call(w, count, give, 2);
}

static void gate(struct worker *w) {
    struct sembuf take[] = {op(GATE, 0, 0), op(GATE, 1, SEM_UNDO)}, give = op(GATE, -1, SEM_UNDO),
    look = op(GATE, 0, 0);
    if (below(3) == 0) {
        call(w, 1, &look, patience());
        return;
    }
    if (!call(w, 2, take, patience())) return;
    hold(LOCKS);
    call(w, 1, &give, 2);
}

static void check_even(const char *when) {
    unsigned short values[EVEN];
    OK(semctl(even, 0, GETALL, values));
    for (int i = 1; i < EVEN; i++)
        CHECK(values[i] == values[0], "%s: semaphore 0 is %d, and %d is %d", when, values[0], i, values[i]);
}

static void evenly(struct worker *w) {
    static struct sembuf ops[EVEN];
    pause_if_asked(w);
    unsigned what = below(8);
    if (what == 0) {
        check_even("in a worker");
    } else if (what < 3) {
        unsigned short values[EVEN];
        unsigned to = 200 + below(1000);
        for (int i = 0; i < EVEN; i++) values[i] = (unsigned short)to;
        OK(semctl(even, 0, SETALL, values));
    } else {
        int flags = IPC_NOWAIT | (what < 6 ? SEM_UNDO : 0), by = below(2) ? 1 : -1;
        for (int i = 0; i < EVEN; i++) ops[i] = op(i, by, flags);
        CHECK(semop(even, ops, EVEN) == 0 || errno == EAGAIN || errno == ERANGE, "semop: %s",
              strerror(errno));
    }
}

static void by_key(struct worker *w) {
    pause_if_asked(w);
    key_t key = keys + (int)below(KEYS);
    int id = semget(key, 2, 0600 | IPC_CREAT);
    CHECK(id != -1, "semget: %s", strerror(errno));
    struct sembuf ops[] = {op(0, 1, SEM_UNDO), op(1, 1, 0), op(1, -1, 0)};
    if (semop(id, ops, 3) == -1) {
        CHECK(errno == EINVAL || errno == EIDRM, "semop: %s", strerror(errno));
        return;
    }
    if (below(2) && semctl(id, 0, IPC_RMID) == -1)
        CHECK(errno == EINVAL || errno == EIDRM, "IPC_RMID: %s", strerror(errno));
}

__attribute__((noreturn)) static void work(struct worker *w) {
    STAGE("in a worker");
    for (;;) {
        unsigned what = below(20);
        if (what < 6)
            transfer(w);
        else if (what < 10)
            walk(w);
        else if (what < 13)
            lock(w);
        else if (what < 15)
            gate(w);
        else if (what < 18)
            evenly(w);
        else
            by_key(w);
    }
}

// ---- its parent ----

static pid_t processes[WORKERS];
static unsigned kills;

static void start(int which) {
    struct worker *w = &team->workers[which];
    memset((void *)w, 0, sizeof *w);
    unsigned long long its = state + (unsigned)which * 0x9e3779b97f4a7c15ull;
    below(2);
    processes[which] = fork();
    SYS(processes[which]);
    if (processes[which] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == 1) _exit(0);
        signal(SIGALRM, SIG_DFL);
        me = which;
        state = its;
        work(w);
    }
}

static int initial(int num) {
    return num < TOKENS ? TOKEN_SUM / TOKENS : num < FIRST_LOCK ? WALK_START : num < GATE ? 1 : 0;
}

// Whether the worker's call could be done on these values.
static int could_go_on(const struct worker *w, const unsigned short values[SEMAPHORES]) {
    int v[SEMAPHORES];
    for (int i = 0; i < SEMAPHORES; i++) v[i] = values[i];
    for (int i = 0; i < w->count; i++) {
        struct sembuf o = w->ops[i];
        if (o.sem_op == 0 ? v[o.sem_num] != 0 : v[o.sem_num] + o.sem_op < 0) return 0;
        v[o.sem_num] += o.sem_op;
    }
    return 1;
}

static int count_sleepers(void) {
    int sum = 0;
    for (int i = 0; i < SEMAPHORES; i++) sum += semctl(array, i, GETNCNT) + semctl(array, i, GETZCNT);
    return sum;
}

static void remove_everything(void) {
    remove_own_arrays();
    for (int i = 0; own_arrays.maker == getpid() && i < KEYS; i++) {
        int id = semget(keys + i, 0, 0);
        if (id != -1) semctl(id, 0, IPC_RMID);
    }
}

static void report(const char *why) {
    char text[2000];
    int at = 0;
    unsigned short values[SEMAPHORES];
    semctl(array, 0, GETALL, values);
    for (int i = 0; i < SEMAPHORES; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %d:%d(%d+%d)", i, values[i],
                       semctl(array, i, GETNCNT),
                       semctl(array, i, GETZCNT));
    for (int i = 0; i < WORKERS; i++) {
        struct worker *w = &team->workers[i];
        at += snprintf(text + at, sizeof text - (size_t)at, "; worker %d (%d) is %s", i, (int)processes[i],
                       w->doing == PAUSED ? "paused" : w->doing == BETWEEN ? "between calls" : "in a call:");
        for (int o = 0; w->doing == IN_CALL && o < w->count; o++)
            at += snprintf(text + at, sizeof text - (size_t)at, " (%d,%+d)", w->ops[o].sem_num,
                           w->ops[o].sem_op);
        at += snprintf(text + at, sizeof text - (size_t)at, " net");
        for (int i = FIRST_WALK; i < SEMAPHORES; i++)
            at += snprintf(text + at, sizeof text - (size_t)at, " %d", w->net[i]);
    }
    dprintf(2, "after %u kills, %s: semaphores%s\n", kills, why, text);
    remove_everything();
    _exit(1);
}

// Until each worker is paused or sleeps.
static void come_to_rest(void) {
    struct timespec limit = after_ms(CLOCK_MONOTONIC, PATIENCE * 1000L);
    __atomic_store_n(&team->pause, 1, __ATOMIC_RELEASE);
    unsigned before = 0;
    for (int turn = 0, agreed = 0;; turn++) {
        int calling = 0, busy = 0;
        unsigned calls = 0;
        for (int i = 0; i < WORKERS; i++) {
            struct worker *w = &team->workers[i];
            int doing = __atomic_load_n(&w->doing, __ATOMIC_ACQUIRE);
            calling += doing == IN_CALL;
            busy += doing == BETWEEN || (doing == IN_CALL && w->timed);
            calls += w->calls;
        }
        if (busy == 0 && (calling == 0 || count_sleepers() == calling)) {
            if (agreed && calls == before) return;
            agreed = 1;
            before = calls;
            continue;
        }
        agreed = 0;
        if (turn % 64 == 63 && reached(CLOCK_MONOTONIC, limit)) report("a worker is stuck");
        if (turn < 100)
            sched_yield();
        else
            usleep(100);
    }
}

static void check(void) {
    unsigned short values[SEMAPHORES];
    OK(semctl(array, 0, GETALL, values));
    int sum = 0;
    for (int i = 0; i < TOKENS; i++) sum += values[i];
    if (sum != TOKEN_SUM) report("tokens were lost or made");
    for (int i = FIRST_WALK; i < SEMAPHORES; i++) {
        int want = initial(i);
        for (int w = 0; w < WORKERS; w++) want += team->workers[w].net[i];
        if (values[i] != want) report("an adjustment was lost, or done twice");
    }
    int asleep = 0;
    for (int i = 0; i < WORKERS; i++) {
        if (team->workers[i].doing != IN_CALL) continue;
        asleep++;
        if (could_go_on(&team->workers[i], values)) report("a sleeper has what it waits for");
    }
    if (count_sleepers() != asleep) report("sleepers are not counted right");
    check_even("between two calls");
    for (int i = 0; i < KEYS; i++) {
        int id = semget(keys + i, 2, 0600);
        if (id == -1) {
            CHECK(errno == ENOENT, "semget: %s", strerror(errno));
            continue;
        }
        GIVES(value(id, 1), 0);
        CHECK(value(id, 0) <= WORKERS * 1000, "a value of %d", value(id, 0));
    }
}

static void resume(void) { __atomic_store_n(&team->pause, 0, __ATOMIC_RELEASE); }

static void lead_team(unsigned wanted, unsigned seed) {
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    for (int i = 0; i < 10; i++) below(2);
    team = shared_memory(sizeof *team);
    keys = own_key(0);
    array = new_array(SEMAPHORES);
    even = new_array(EVEN);
    at_failure = remove_everything;
    for (int i = 0; i < SEMAPHORES; i++) set(array, i, initial(i));
    for (int i = 0; i < WORKERS; i++) start(i);
    while (kills < wanted) {
        // A while that is sometimes shorter than a call, and sometimes many calls.
        unsigned us = below(8) == 0 ? below(3000) : below(250);
        struct timespec until = after_us(CLOCK_MONOTONIC, us);
        while (!reached(CLOCK_MONOTONIC, until)) sched_yield();
        int victims = below(6) != 0 ? 1 : 1 + (int)below(WORKERS), dead[WORKERS] = {0};
        for (int i = 0; i < victims; i++) dead[below(WORKERS)] = 1;
        for (int i = 0; i < WORKERS; i++)
            if (dead[i]) SYS(kill(processes[i], SIGKILL));
        for (int i = 0; i < WORKERS; i++) {
            if (!dead[i]) continue;
            int status;
            while (waitpid(processes[i], &status, 0) == -1)
                CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
            // A worker that found something wrong has said so.
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "a worker ended with status %x",
                  status);
            memset((void *)&team->workers[i], 0, sizeof team->workers[i]);
            // No other worker: not even one that pauses.
            team->workers[i].doing = PAUSED;
            kills++;
        }
        come_to_rest();
        check();
        resume();
        for (int i = 0; i < WORKERS; i++)
            if (dead[i]) start(i);
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        CHECK(ended == 0, "a worker ended with status %x", status);
    }
    STAGE("the end");
    for (int i = 0; i < WORKERS; i++) {
        kill_child(processes[i], SIGKILL);
        memset((void *)&team->workers[i], 0, sizeof team->workers[i]);
    }
    check();
    for (int i = FIRST_WALK; i < SEMAPHORES; i++) GIVES(value(array, i), initial(i));
    remove_array(array);
    remove_array(even);
    for (int i = 0; i < KEYS; i++) {
        int id = semget(keys + i, 0, 0);
        if (id == -1) continue;
        GIVES(value(id, 0), 0);
        remove_array(id);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 4, "usage: semarray_crash KILLS TEAMS SEED");
    unsigned wanted = (unsigned)atoi(argv[1]), teams = (unsigned)atoi(argv[2]),
        seed = (unsigned)atoi(argv[3]);
    limit_seconds(30 + wanted / 50);
    pid_t parents[16];
    CHECK(teams >= 1 && teams <= 16, "1 to 16 teams");
    for (unsigned i = 0; i < teams; i++) {
        parents[i] = fork_tied(30 + wanted / 50);
        if (parents[i] == 0) {
            lead_team((wanted + teams - 1) / teams, seed + i);
            exit(0);
        }
    }
    for (unsigned i = 0; i < teams; i++) await_child(parents[i]);
    return 0;
}
