/* The monitor of `poundlock torture --semaphores`: see arrays.h. */
#define _GNU_SOURCE
#include "arrays.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct books *books;

static pid_t monitor;
static uint64_t random_state, looks;

enum { LOOK_MS = 2, LOOKS_A_TICK = TICK_MS / LOOK_MS, QUIET_LOOKS = 200 };

static const char *const deed_text[DEEDS] = {
    [AT_NOTHING] = "between operations",
    [AT_SEMOP] = "in semop",
    [AT_TIMED] = "in semtimedop",
    [AT_TRYING] = "in semop with IPC_NOWAIT",
    [INSIDE] = "holding",
    [AT_CONTROL] = "in semctl",
    [AT_CHILD] = "waiting for a forked child",
    [AT_SLEEPERS] = "waiting for its sleepers",
    [PARKED] = "parked",
};

static void describe_lane(char *into, size_t room, const struct lane *lane) {
    unsigned what = atomic_load(&lane->deed);
    int of = atomic_load(&lane->of);
    char on[32] = "";
    if (of >= 0) snprintf(on, sizeof on, " on semaphore %d", of);
    uint64_t ticks = atomic_load(&books->tick) - atomic_load(&lane->since);
    snprintf(into, room, "%s%s for %.1f s", what < DEEDS ? deed_text[what] : "?", on,
             (double)ticks * TICK_MS / 1000.0);
}

static void dump_lanes(void) {
    for (unsigned s = 0; s < books->seats; s++)
        for (unsigned i = 0; i < LANES; i++) {
            struct seat *seat = &books->seat[s];
            if (atomic_load(&seat->pid) == 0 || !atomic_load(&seat->lane[i].present)) continue;
            char text[128];
            describe_lane(text, sizeof text, &seat->lane[i]);
            say("thread %u of process %u (pid %d%s): %s", i, s, atomic_load(&seat->pid),
                atomic_load(&seat->doomed) ? ", doomed" : "", text);
        }
    for (unsigned i = 0; i < LEDGER; i++)
        say("array: semaphore %u is %d, last used by %d; %d wait for more, %d for zero", i,
            semctl(books->id, (int)i, GETVAL), semctl(books->id, (int)i, GETPID),
            semctl(books->id, (int)i, GETNCNT), semctl(books->id, (int)i, GETZCNT));
}

/* Whether a process may have ended with this status. */
static bool may_end_so(const struct seat *seat, int status) {
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return (atomic_load(&seat->doomed) && (killed || ended)) || (atomic_load(&seat->leaving) && ended);
}

/* In place of what has failed before. */
static void describe_end(unsigned s, int status) {
    atomic_store(&books->failing, 1);
    if (WIFSIGNALED(status))
        snprintf(books->failure, sizeof books->failure, "process %u died of signal %d", s, WTERMSIG(status));
    else
        snprintf(books->failure, sizeof books->failure, "process %u ended early, with status %d", s,
                 WEXITSTATUS(status));
    atomic_store(&books->failed, 1);
}

static void let_all_go_on(void);

static _Noreturn void report_failure(void) {
    /* Whoever fails writes at once; but it may die at it. */
    for (unsigned i = 0; i < 1000 && !atomic_load(&books->failed); i++) sleep_us(1000);
    let_all_go_on();
    /* What others see of a crash comes of it, perhaps before it can be waited for. */
    for (unsigned i = 0; i < 100; i++, sleep_us(1000)) {
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            for (unsigned s = 0; s < books->seats; s++)
                if (atomic_load(&books->seat[s].pid) == pid && !may_end_so(&books->seat[s], status)) {
                    describe_end(s, status);
                    i = 100;
                }
    }
    say("violation %s",
        atomic_load(&books->failed) ? books->failure : "a process died while it reported one");
    /* Reading the array may hang: the watchdog has the line, and waits no longer than its patience. */
    dump_lanes();
    say("end");
    halt();
}

_Noreturn void broken(const char *format, ...) {
    if (atomic_exchange(&books->failing, 1) == 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(books->failure, sizeof books->failure, format, args);
        va_end(args);
        atomic_store(&books->failed, 1);
    }
    if (getpid() == monitor) report_failure();
    halt();
}

static void initial_values(unsigned short *value) {
    memset(value, 0, semaphores() * sizeof *value);
    for (unsigned i = 0; i < LOCKS; i++) value[i] = 1;
    value[PERMITS] = ALL_PERMITS;
    for (unsigned i = 0; i < ACCOUNTS; i++) value[ACCOUNT + i] = OPENING_BALANCE;
}

/* What holds at every moment. */
void check_sums(const unsigned short *value) {
    unsigned sum = 0;
    for (unsigned i = 0; i < ACCOUNTS; i++) sum += value[ACCOUNT + i];
    BROKEN_IF(sum != ACCOUNTS * OPENING_BALANCE,
              "the accounts' sum is %u instead of %u: an operation was done by half", sum,
              ACCOUNTS * OPENING_BALANCE);
    for (unsigned i = 0; i < LOCKS; i++)
        BROKEN_IF(value[i] > 1, "lock %u is %u: it was given back twice", i, value[i]);
    BROKEN_IF(value[PERMITS] > ALL_PERMITS, "there are %u permits of %u", value[PERMITS], ALL_PERMITS);
}

/* What a call that cannot fail returned. */
static int sure(const char *call, int rc) {
    BROKEN_IF(rc < 0, "%s failed with %s", call, error_name(errno));
    return rc;
}

static int value_of(unsigned num, int command) {
    return sure("semctl", semctl(books->id, (int)num, command));
}

/* Nobody acts: the books must balance. `ledgers`: those of living lanes are looked at as well. */
static void audit(bool ledgers) {
    unsigned short value[LEDGER + MAX_SEATS * LANES], right[LEDGER + MAX_SEATS * LANES];
    sure("GETALL", semctl(books->id, 0, GETALL, (union semun){.array = value}));
    check_sums(value);
    initial_values(right);
    for (unsigned i = 0; i < LOCKS; i++)
        BROKEN_IF(value[i] != 1, "nobody holds lock %u, but its value is %u", i, value[i]);
    BROKEN_IF(value[PERMITS] != ALL_PERMITS, "nobody has a permit, but there are %u of %u", value[PERMITS],
              ALL_PERMITS);
    BROKEN_IF(value[BUSY] != 0, "nobody is busy, but %u are said to be", value[BUSY]);
    for (unsigned i = 0; i < LEDGER; i++)
        BROKEN_IF(value_of(i, GETNCNT) != 0 || value_of(i, GETZCNT) != 0,
                  "nobody sleeps, but %d and %d are said to on semaphore %u", value_of(i, GETNCNT),
                  value_of(i, GETZCNT), i);
    for (unsigned s = 0; ledgers && s < books->seats; s++)
        for (unsigned i = 0; i < LANES; i++) {
            uint64_t moves = books->seat[s].lane[i].moves;
            BROKEN_IF(value[LEDGER + s * LANES + i] != moves,
                      "thread %u of process %u made %lu moves, but its ledger says %u", i, s,
                      (unsigned long)moves, value[LEDGER + s * LANES + i]);
        }
}

static void sit_down(unsigned s) {
    struct seat *seat = &books->seat[s];
    atomic_fetch_add(&seat->life, 1);
    atomic_store(&seat->doomed, 0);
    atomic_store(&seat->leaving, 0);
    atomic_store(&seat->stops, 0);
    seat->resume = 0;
    for (unsigned i = 0; i < LANES; i++) {
        struct lane *lane = &seat->lane[i];
        atomic_store(&lane->present, i == 0);
        atomic_store(&lane->tid, 0);
        atomic_store(&lane->deed, AT_NOTHING);
        atomic_store(&lane->since, atomic_load(&books->tick));
        lane->moves = 0;
        lane->moving = 0;
    }
    seat->lane[0].random = mix(books->seed ^ mix((uint64_t)s << 32 | atomic_load(&seat->life)));
    pid_t pid = sure("torture itself: fork", fork());
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != monitor) _exit(0);
        work(s);
    }
    atomic_store(&seat->pid, pid);
}

static void go_on(struct seat *seat) {
    kill(atomic_load(&seat->pid), SIGCONT);
    atomic_fetch_add(&seat->stops, 1);
    seat->resume = 0;
}

/* Before the monitor uses the array: one that was stopped in an operation may keep it from that, and only the
 * monitor lets it go on. */
static void let_all_go_on(void) {
    for (unsigned s = 0; s < books->seats; s++)
        if (books->seat[s].resume != 0) go_on(&books->seat[s]);
}

/* A process is gone: what it left behind is checked and cleared up. */
static void settle(unsigned s, int status) {
    struct seat *seat = &books->seat[s];
    seat->resume = 0;
    let_all_go_on();
    if (!may_end_so(seat, status)) {
        for (unsigned i = 0; i < 1000 && atomic_load(&books->failing) && !atomic_load(&books->failed); i++)
            sleep_us(1000); /* somebody else is writing */
        describe_end(s, status);
        report_failure();
    }
    for (unsigned i = 0; i < LANES; i++) {
        unsigned num = LEDGER + s * LANES + i;
        uint64_t noted = (uint64_t)value_of(num, GETVAL), moves = seat->lane[i].moves;
        BROKEN_IF(noted < moves || noted > moves + seat->lane[i].moving,
                  "thread %u of process %u, now dead, made %lu moves%s, but its ledger says %lu", i, s,
                  (unsigned long)moves, seat->lane[i].moving ? " or one more" : "", (unsigned long)noted);
        sure("SETVAL", semctl(books->id, (int)num, SETVAL, (union semun){.val = 0}));
        seat->lane[i].moves = 0;
        seat->lane[i].moving = 0;
        atomic_store(&seat->lane[i].present, 0);
        int own = semget(books->key + 1 + (key_t)(s * LANES + i), 0, 0);
        if (own >= 0) sure("removing an array that a dead process left", semctl(own, 0, IPC_RMID));
    }
    atomic_store(&seat->pid, 0);
}

static void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (unsigned s = 0; s < books->seats; s++)
            if (atomic_load(&books->seat[s].pid) == pid) settle(s, status);
    /* Any other was the child of a worker that died before it. */
}

/* Children of dead workers come to us, and are about to be killed. */
static bool are_there_orphans(void) {
    char name[64], text[8192];
    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)monitor);
    FILE *file = fopen(name, "re");
    BROKEN_IF(!file, "torture itself: %s: %s", name, error_name(errno));
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    unsigned children = 0, seated = 0;
    for (char *at = text, *end; (void)strtol(at, &end, 10), end != at; at = end) children++;
    for (unsigned s = 0; s < books->seats; s++) seated += atomic_load(&books->seat[s].pid) != 0;
    return children > seated;
}

/* Kills, stops and signals. */
static void disturb(void) {
    for (unsigned s = 0; s < books->seats; s++) {
        struct seat *seat = &books->seat[s];
        if (atomic_load(&seat->pid) == 0)
            sit_down(s);
        else if (seat->resume != 0 && looks >= seat->resume)
            go_on(seat);
    }
    struct seat *seat = &books->seat[below(books->seats)];
    pid_t pid = atomic_load(&seat->pid);
    switch (below(100)) {
    case 0:
        atomic_store(&seat->doomed, 1);
        kill(pid, SIGKILL);
        break;
    case 1:
    case 2:
        if (seat->resume == 0) {
            atomic_fetch_add(&seat->stops, 1);
            kill(pid, SIGSTOP);
            seat->resume = looks + 1 + below(20);
        }
        break;
    case 3 ... 25: {
        /* To a thread: of one sent to the process, other threads may be interrupted than the one whose
         * handler runs. */
        pid_t tid = atomic_load(&seat->lane[below(LANES)].tid);
        if (tid != 0) syscall(SYS_tgkill, pid, tid, SIGUSR1);
        break;
    }
    }
}

/* Whether all are parked, and nobody is about to die. */
static bool is_quiet(void) {
    for (unsigned s = 0; s < books->seats; s++) {
        struct seat *seat = &books->seat[s];
        if (atomic_load(&seat->pid) == 0) continue;
        if (atomic_load(&seat->doomed)) return false;
        for (unsigned i = 0; i < LANES; i++)
            if (atomic_load(&seat->lane[i].present) && atomic_load(&seat->lane[i].deed) != PARKED)
                return false;
    }
    return !are_there_orphans();
}

static uint64_t entries(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < LOCKS; i++) sum += books->critical[i].second;
    return sum;
}

/* Once a tick: who has been at one thing for too long? */
static void look_for_hangs(void) {
    static uint64_t last_beats, last_progress;
    uint64_t tick = atomic_load(&books->tick), beats = 0;
    for (unsigned s = 0; s < books->seats; s++)
        for (unsigned i = 0; i < LANES; i++) {
            struct lane *lane = &books->seat[s].lane[i];
            beats += atomic_load(&lane->beats);
            if (atomic_load(&books->seat[s].pid) == 0 || !atomic_load(&lane->present) ||
                atomic_load(&lane->deed) == PARKED)
                continue;
            if (tick > atomic_load(&lane->since) + 2 * books->patience) {
                char text[128];
                describe_lane(text, sizeof text, lane);
                broken("thread %u of process %u hung: it is %s", i, s, text);
            }
        }
    if (beats != last_beats) {
        last_beats = beats;
        last_progress = tick;
    } else if (tick > last_progress + books->patience && !atomic_load(&books->quiet)) {
        broken("no progress by any thread for %.1f s", (double)books->patience * TICK_MS / 1000.0);
    }
}

static void watch_arrays(uint64_t milliseconds) {
    uint64_t quiet_since = 0, audits = 0;
    for (looks = 1;; looks++) {
        sleep_us(LOOK_MS * 1000);
        reap();
        if (atomic_load(&books->failing)) report_failure();
        if (looks % LOOKS_A_TICK == 0) {
            uint64_t tick = atomic_fetch_add(&books->tick, 1) + 1;
            say("beat %lu %lu", (unsigned long)(looks * LOOK_MS), (unsigned long)entries());
            look_for_hangs();
            BROKEN_IF(quiet_since != 0 && tick > quiet_since + 2 * books->patience,
                      "the threads did not come to rest in %.1f s",
                      2.0 * (double)books->patience * TICK_MS / 1000.0);
        }
        if (quiet_since == 0) {
            disturb();
            if (looks % QUIET_LOOKS == 0) {
                let_all_go_on();
                atomic_store(&books->quiet, 1);
                quiet_since = atomic_load(&books->tick) + 1;
            }
        } else if (is_quiet()) {
            audit(true);
            audits++;
            quiet_since = 0;
            if (looks * LOOK_MS >= milliseconds) break;
            /* Kills of those that hold nothing, too. */
            if (below(2)) {
                struct seat *seat = &books->seat[below(books->seats)];
                if (atomic_load(&seat->pid) != 0) {
                    atomic_store(&seat->doomed, 1);
                    kill(atomic_load(&seat->pid), SIGKILL);
                }
            }
            atomic_store(&books->quiet, 0);
        }
    }
    atomic_store(&books->stopping, 1);
    for (uint64_t waited = 0;; waited++) {
        sleep_us(LOOK_MS * 1000);
        reap();
        if (atomic_load(&books->failing)) report_failure();
        unsigned left = 0;
        for (unsigned s = 0; s < books->seats; s++) left += atomic_load(&books->seat[s].pid) != 0;
        if (left == 0 && !are_there_orphans()) break;
        if (waited % LOOKS_A_TICK == 0)
            say("beat %lu %lu", (unsigned long)(looks * LOOK_MS), (unsigned long)entries());
        BROKEN_IF(waited / LOOKS_A_TICK > 2 * books->patience, "%u processes did not end", left);
    }
    audit(true);
    say("count %lu times that the books were balanced in silence", (unsigned long)audits + 1);
}

static const char *const array_symbols[] = {"semget", "semop", "semtimedop", "semctl", NULL};

/* Everything; returns only if nothing was violated. The keys from `key` on are ours. */
void poundlock_torture_arrays(const struct plan *plan) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* the watchdog's end is ours */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    check_symbols(plan->library, array_symbols);
    block_pesterers(NULL); /* workers unblock them once they have a handler */
    books = mmap(NULL, sizeof *books, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VIOLATION_IF(books == MAP_FAILED, "torture itself: out of memory");
    monitor = getpid();
    random_state = books->seed = plan->seed;
    dice = &random_state;
    books->key = plan->key;
    books->ours = plan->library != NULL;
    books->seats = plan->threads > MAX_SEATS ? MAX_SEATS : plan->threads;
    books->patience = plan->patience_ms / TICK_MS;
    books->id = sure("semget", semget(plan->key, (int)semaphores(), IPC_CREAT | IPC_EXCL | 0600));
    VIOLATION_IF(plan->library && !(books->id & 1 << 30), "torture itself: the array is the kernel's");
    unsigned short value[LEDGER + MAX_SEATS * LANES];
    initial_values(value);
    sure("SETALL", semctl(books->id, 0, SETALL, (union semun){.array = value}));
    watch_arrays(plan->milliseconds);
    sure("IPC_RMID", semctl(books->id, 0, IPC_RMID));
    BROKEN_IF(semop(books->id, &(struct sembuf){0, 1, 0}, 1) != -1 || (errno != EINVAL && errno != EIDRM),
              "the array is still there after its removal");
    for (unsigned i = 0; i < LOCKS; i++) say("lock %lu lock %u", (unsigned long)books->critical[i].second, i);
    for (unsigned c = 0; c < ARRAY_COUNTER_COUNT; c++) {
        static const char *const text[] = {
#define X(name, text) text,
            ARRAY_COUNTERS(X)
#undef X
        };
        uint64_t sum = 0;
        for (unsigned s = 0; s < books->seats; s++)
            for (unsigned i = 0; i < LANES; i++) sum += atomic_load(&books->seat[s].lane[i].did[c]);
        say("count %lu %s", (unsigned long)sum, text[c]);
    }
    uint64_t lives = 0;
    for (unsigned s = 0; s < books->seats; s++) lives += atomic_load(&books->seat[s].life);
    say("count %lu processes started", (unsigned long)lives);
    say("done");
}
