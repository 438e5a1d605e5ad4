/*
 * poundlock torture --semaphores: semaphore arrays under many processes, some of which die.
 *
 * Processes:
 *   monitor  (arrays.c) forks the workers, signals, stops and kills them, looks for threads that make no
 *            progress, and calls for silence now and then to audit the books. Holds nothing.
 *   workers  (array_actions.c) one seat each, with up to LANES threads, a lane each. They act on one array
 *            that all share and on arrays of their own.
 *   children of workers: sleepers on such an array; others that die, or become another program, with a
 *   permit.
 *
 * What the books say of the shared array:
 *   locks     1 when free, taken and released with SEM_UNDO. Who enters finds nobody inside, but for a mark
 *             that a process left which was doomed: killed, or about to end by itself.
 *   permits   taken and given back with SEM_UNDO, in every combination with a lock.
 *   busy      counted up and down with SEM_UNDO, waited for to be zero.
 *   accounts  amounts move between them, all or nothing, never undone: their sum stays, whoever is killed
 *             when.
 *   ledgers   each move also adds 1 to its lane's ledger: so the array itself says whether the last move of a
 *             lane that died was made, and the lane says how many it knows of.
 * In silence all locks are 1, all permits are there, nobody is busy or asleep, the sum is right and every
 * ledger is that of its lane.
 */
#ifndef POUNDLOCK_TORTURE_ARRAYS_H
#define POUNDLOCK_TORTURE_ARRAYS_H

#include "torture.h"

#include <sys/sem.h>

#define MAX_SEATS 256u
#define LANES 3u

enum {
    LOCKS = 4,
    PERMITS = LOCKS,
    BUSY,
    ACCOUNT,
    ACCOUNTS = 8,
    LEDGER = ACCOUNT + ACCOUNTS, /* one a lane */

    ALL_PERMITS = 12,
    OPENING_BALANCE = 1000,
    MOVES = 20000, /* of one lane in a life: a semaphore holds 32767 */
};

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

enum deed {
    AT_NOTHING,
    AT_SEMOP,
    AT_TIMED,
    AT_TRYING,
    INSIDE,
    AT_CONTROL,
    AT_CHILD,
    AT_SLEEPERS,
    PARKED,
    DEEDS
};

#define ARRAY_COUNTERS(X) \
    X(TAKEN, "locks taken") X(BUSY_LOCK, "locks tried and found busy") X(RAN_OUT, "waits that timed out") \
    X(INTERRUPTED, "waits interrupted by a signal") X(PERMIT, "permits taken") \
    X(TOGETHER, "a lock and permits, at once") \
    X(TWO, "two locks at once") X(MOVED, "amounts moved, all or nothing") \
    X(SPREAD, "amounts spread by nine operations at once") \
    X(ZERO, "waits for zero") \
    X(LOOKED, "sums checked at one moment") X(SLEEPERS, "sleepers on an array of their own") \
    X(REMOVED, "arrays removed under their sleepers") X(REPLACED, "values set under sleepers") \
    X(SLEEPER_KILLED, "sleepers killed, and the next one served") \
    X(FORKED_HOLDING, "forks by a thread that holds a lock") \
    X(CHILD_DIED, "children that died with a permit") X(CHILD_KILLED, "children killed with a permit") \
    X(EXECUTED, "children that became another program with a permit") X(THREAD_ENDED, "threads ended") \
    X(HANDLER, "permits taken in a signal handler") \
    X(HANDLER_REFUSED, "operations of a signal handler refused, as its thread was at one") \
    X(LEADER_LEFT, "main threads ended before their process") \
    X(EXITED, "processes ended inside a critical section") \
    X(FUSE, "processes killed at a random instruction")

enum array_counter {
#define X(name, text) ARRAY_##name,
    ARRAY_COUNTERS(X)
#undef X
    ARRAY_COUNTER_COUNT
};

/* What is known of a thread of a worker. Shared by all processes. */
struct lane {
    _Atomic int present;      /* a thread acts for it */
    _Atomic int over;         /* it has ended, and is to be joined */
    _Atomic int tid;          /* to be signalled; 0: not now */
    _Atomic unsigned deed;    /* enum deed */
    _Atomic int of;           /* semaphore, or -1 */
    _Atomic uint64_t since;   /* tick */
    _Atomic uint64_t beats;
    _Atomic uint64_t handled; /* signal handlers run */
    uint64_t random;
    volatile uint64_t moves;  /* that it knows of */
    volatile unsigned moving; /* one more may have been made */
    _Atomic uint64_t did[ARRAY_COUNTER_COUNT];
};

struct seat {
    _Atomic int pid;          /* 0: nobody */
    _Atomic unsigned life;    /* goes up with each process that takes the seat */
    _Atomic int doomed;       /* killed, about to be, or about to end with something in hand */
    _Atomic int leaving;      /* will end with nothing in hand */
    _Atomic unsigned stops;   /* odd while it may be stopped */
    uint64_t resume;          /* the monitor's: the look at which it goes on */
    struct lane lane[LANES];
};

struct critical {
    _Atomic uint64_t mark;    /* who is inside: life, seat and lane; 0: nobody */
    volatile uint64_t first, second;
    char apart[40];
};

struct books {
    uint64_t seed;
    key_t key;                /* of the shared array; those of the lanes follow */
    int id;
    bool ours;
    unsigned seats;
    uint64_t patience;        /* ticks */
    _Atomic uint64_t tick;
    _Atomic int quiet, stopping;
    _Atomic int failing, failed;
    char failure[600];
    struct critical critical[LOCKS];
    struct seat seat[MAX_SEATS];
};

extern struct books *books;

void work(unsigned seat);
_Noreturn void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define BROKEN_IF(condition, ...) do if (condition) broken(__VA_ARGS__); while (0)
void check_sums(const unsigned short *value);

static inline unsigned semaphores(void) { return LEDGER + books->seats * LANES; }

/* After exec: see the "children that became another program". */
int poundlock_torture_executed(int id, int give_back);

#endif
