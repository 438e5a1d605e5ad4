/* What the workers of `poundlock torture --semaphores` do: see arrays.h. */
#define _GNU_SOURCE
#include "arrays.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static _Thread_local struct lane *me;
static struct seat *mine;
static unsigned my_seat, my_life;

enum { SENTINEL = 4242 };

static void act_as(struct lane *lane) {
    me = lane;
    dice = &lane->random;
}

static void count(enum array_counter counter) {
    atomic_fetch_add_explicit(&me->did[counter], 1, memory_order_relaxed);
}

static void deed(enum deed what, int of) {
    atomic_store_explicit(&me->of, of, memory_order_relaxed);
    atomic_store_explicit(&me->since, atomic_load_explicit(&books->tick, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&me->deed, what, memory_order_relaxed);
    atomic_fetch_add_explicit(&me->beats, 1, memory_order_relaxed);
}

static unsigned lane_number(void) { return (unsigned)(me - mine->lane); }
static unsigned ledger(void) { return LEDGER + my_seat * LANES + lane_number(); }

/* ---- one operation, every result of which is checked ---- */

enum mode { FOR_EVER, AT_ONCE, FOR_A_WHILE };

/* Of one that returned EAGAIN. */
static void must_have_lasted(unsigned num, int64_t began, int64_t timeout) {
    int64_t after = now_ns(CLOCK_MONOTONIC) - began;
    BROKEN_IF(after < timeout, "an operation on semaphore %u timed out after %ld ns of %ld", num, (long)after,
              (long)timeout);
}

/* Of one that returned what is no answer to it. */
static _Noreturn void wrong(unsigned num, int error) {
    if (error == EINTR) broken("an operation on semaphore %u was interrupted, but no signal came", num);
    broken("an operation on semaphore %u failed with %s", num, error_name(error));
}

/* 0, EAGAIN or EINTR, if that is a right answer. */
static int attempt(int id, struct sembuf *op, unsigned n, enum mode mode) {
    int64_t timeout = mode == FOR_A_WHILE ? (int64_t)(1 + below(40)) * (once_in(4) ? 1000000 : 50000) : 0;
    struct timespec t = {timeout / 1000000000, timeout % 1000000000};
    for (unsigned i = 0; mode == AT_ONCE && i < n; i++) op[i].sem_flg |= IPC_NOWAIT;
    uint64_t handled = atomic_load(&me->handled);
    unsigned stops = atomic_load(&mine->stops);
    int64_t began = now_ns(CLOCK_MONOTONIC);
    deed(mode == AT_ONCE ? AT_TRYING : mode == FOR_A_WHILE ? AT_TIMED : AT_SEMOP, op->sem_num);
    errno = SENTINEL;
    int rc = mode == FOR_A_WHILE ? semtimedop(id, op, n, &t) : semop(id, op, n);
    int error = errno;
    deed(AT_NOTHING, -1);
    if (rc == 0) {
        BROKEN_IF(error != SENTINEL, "an operation on semaphore %u that succeeded changed errno to %s",
                  op->sem_num, error_name(error));
        return 0;
    }
    BROKEN_IF(rc != -1, "an operation on semaphore %u returned %d", op->sem_num, rc);
    switch (error) {
    case EAGAIN:
        BROKEN_IF(mode == FOR_EVER, "an operation on semaphore %u failed with EAGAIN, but may wait for ever",
                  op->sem_num);
        if (mode == FOR_A_WHILE) {
            must_have_lasted(op->sem_num, began, timeout);
            count(ARRAY_RAN_OUT);
        }
        return EAGAIN;
    case EINTR:
        /* After a stop and continue it may be interrupted without a handler. */
        if (mode != AT_ONCE &&
            (atomic_load(&me->handled) != handled || stops % 2 || atomic_load(&mine->stops) != stops)) {
            count(ARRAY_INTERRUPTED);
            return EINTR;
        }
    }
    wrong(op->sem_num, error);
}

/* One that can always be done at once. */
static void must_do(struct sembuf *op, unsigned n) {
    deed(AT_SEMOP, op->sem_num);
    BROKEN_IF(semop(books->id, op, n) != 0, "giving back semaphore %u failed with %s", op->sem_num,
              error_name(errno));
    deed(AT_NOTHING, -1);
}

static int control(int id, unsigned num, int command, union semun argument) {
    deed(AT_CONTROL, (int)num);
    int rc = semctl(id, (int)num, command, argument);
    BROKEN_IF(rc < 0, "semctl %d of semaphore %u failed with %s", command, num, error_name(errno));
    deed(AT_NOTHING, -1);
    return rc;
}

static int get(int id, unsigned num, int command) { return control(id, num, command, (union semun){0}); }

static struct sembuf by(unsigned num, int change) {
    return (struct sembuf){(unsigned short)num, (short)change, SEM_UNDO};
}

/* ---- critical sections ---- */

static uint64_t my_mark(void) { return ((uint64_t)my_life << 32 | my_seat << 4 | lane_number()) + 1; }

static bool is_doomed(uint64_t mark) {
    const struct seat *seat = &books->seat[(mark - 1) >> 4 & (MAX_SEATS - 1)];
    /* In this order: the next process there has another life before it is not doomed. */
    return atomic_load(&seat->doomed) || atomic_load(&seat->life) != (unsigned)((mark - 1) >> 32);
}

static void come_in(unsigned lock) {
    struct critical *section = &books->critical[lock];
    uint64_t left = atomic_exchange(&section->mark, my_mark());
    BROKEN_IF(left != 0 && !is_doomed(left),
              "mutual exclusion: lock %u was granted while thread %lu of process %lu holds it", lock,
              (unsigned long)((left - 1) & 15), (unsigned long)((left - 1) >> 4 & (MAX_SEATS - 1)));
    BROKEN_IF(section->first != section->second && (left == 0 || section->first != section->second + 1),
              "mutual exclusion: lock %u was granted in the middle of another critical section", lock);
    section->second = section->first;
    section->first = section->first + 1;
}

static void must_be_in(unsigned lock, const char *when) {
    struct critical *section = &books->critical[lock];
    BROKEN_IF(atomic_load(&section->mark) != my_mark() || section->first != section->second + 1,
              "mutual exclusion: %s, somebody else is inside lock %u", when, lock);
}

static void go_out(unsigned lock) {
    struct critical *section = &books->critical[lock];
    must_be_in(lock, "on leaving");
    section->second = section->first;
    atomic_store(&section->mark, 0);
}

/* The process ends here and now, whatever it holds. */
static _Noreturn void end_suddenly(void) {
    atomic_store(&mine->doomed, 1);
    count(ARRAY_EXITED);
    switch (below(3)) {
    case 0: exit(0);
    case 1: _exit(0);
    default:
        kill(getpid(), SIGKILL);
        for (;;) pause();
    }
}

static void stay(void) {
    deed(INSIDE, -1);
    switch (below(8)) {
    case 0: sleep_us(1 + below(200)); break;
    case 1: sched_yield(); break;
    default:
        for (volatile unsigned turn = below(500); turn > 0; turn--) {
        }
    }
    if (once_in(400)) end_suddenly();
}

/* While the lock is held nobody else can have changed it. */
static void check_last(unsigned lock) {
    int pid = get(books->id, lock, GETPID);
    BROKEN_IF(pid != getpid(), "lock %u is held, but its last operation is said to be process %d's", lock,
              pid);
    int value = get(books->id, lock, GETVAL);
    BROKEN_IF(value != 0, "lock %u is held, but its value is %d", lock, value);
}

/* Takes all of these at once, looks whether it is alone inside the locks among them, and gives everything
 * back: at once, or one by one. */
static void take(struct sembuf *op, unsigned n, enum mode mode, enum array_counter counter) {
    int rc = attempt(books->id, op, n, mode);
    if (rc == EAGAIN && counter == ARRAY_TAKEN) count(ARRAY_BUSY_LOCK);
    if (rc != 0) return;
    for (unsigned i = 0; i < n; i++)
        if (op[i].sem_num < LOCKS) come_in(op[i].sem_num);
    count(counter);
    stay();
    if (counter == ARRAY_TAKEN && once_in(16)) check_last(op->sem_num);
    struct sembuf back[3];
    unsigned given = 0;
    for (unsigned i = n; i-- > 0;) {
        if (op[i].sem_num < LOCKS) go_out(op[i].sem_num);
        if (op[i].sem_op != 0) back[given++] = by(op[i].sem_num, -op[i].sem_op);
    }
    if (given == 0) return;
    if (once_in(2)) {
        must_do(back, given);
        return;
    }
    for (unsigned i = 0; i < given; i++)
        for (int left = abs(back[i].sem_op); left > 0; left--) {
            struct sembuf one = by(back[i].sem_num, back[i].sem_op > 0 ? 1 : -1);
            must_do(&one, 1);
        }
}

static void act_lock(void) {
    take((struct sembuf[]){by(below(LOCKS), -1)}, 1, (enum mode)below(3), ARRAY_TAKEN);
}

static void act_permit(void) {
    take((struct sembuf[]){by(PERMITS, -1 - (int)below(3))}, 1, (enum mode)below(3), ARRAY_PERMIT);
}

static void act_together(void) {
    struct sembuf op[3] = {by(BUSY, 1), by(below(LOCKS), -1), by(PERMITS, -1 - (int)below(3))};
    take(op, 3, (enum mode)below(3), ARRAY_TOGETHER);
}

/* Not for ever: who needs two at once may starve among those who need one. */
static void act_two(void) {
    unsigned one = below(LOCKS - 1), other = one + 1 + below(LOCKS - 1 - one);
    take((struct sembuf[]){by(other, -1), by(one, -1)}, 2, 1 + below(2), ARRAY_TWO);
}

static void act_zero(void) {
    take((struct sembuf[]){{BUSY, 0, 0}, by(BUSY, 1)}, 1 + below(2), 1 + below(2), ARRAY_ZERO);
}

static void act_move(void) {
    if (me->moves >= MOVES) return;
    unsigned from = below(ACCOUNTS), n = 0;
    int amount = 1 + (int)below(once_in(4) ? 1000 : 50);
    struct sembuf op[1 + ACCOUNTS];
    op[n++] = (struct sembuf){(unsigned short)ledger(), 1, 0};
    op[n++] = (struct sembuf){(unsigned short)(ACCOUNT + from), (short)-amount, 0};
    if (once_in(4)) {
        /* To all others: more operations than a sleeper's record holds by itself. */
        op[1].sem_op = (short)-((ACCOUNTS - 1) * (amount % 100 + 1));
        for (unsigned to = 0; to < ACCOUNTS; to++)
            if (to != from)
                op[n++] = (struct sembuf){(unsigned short)(ACCOUNT + to), (short)(amount % 100 + 1), 0};
    } else {
        unsigned to = (from + 1 + below(ACCOUNTS - 1)) % ACCOUNTS;
        op[n++] = (struct sembuf){(unsigned short)(ACCOUNT + to), (short)amount, 0};
    }
    me->moving = 1;
    /* An account may stay empty: not for ever. */
    if (attempt(books->id, op, n, 1 + below(2)) == 0) {
        me->moves = me->moves + 1;
        count(ARRAY_MOVED);
        if (n > 3) count(ARRAY_SPREAD);
    }
    me->moving = 0;
}

static void act_look(void) {
    unsigned short value[LEDGER + MAX_SEATS * LANES];
    control(books->id, 0, GETALL, (union semun){.array = value});
    check_sums(value);
    BROKEN_IF(value[ledger()] != me->moves, "a thread made %lu moves, but its ledger says %u",
              (unsigned long)me->moves, value[ledger()]);
    count(ARRAY_LOOKED);
}

/* ---- children ---- */

/* In a child of fork: it goes with the thread that made it, and says nothing in its name. */
static void become_child(pid_t parent) {
    static struct lane unseen;
    unseen.random = me->random ^ (uint64_t)getpid() << 32;
    act_as(&unseen);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
}

/* What wait_for says, where it should not be. */
static _Noreturn void child_ended(int ended, const char *whose) {
    if (ended < 0) broken("a %s died of signal %d", whose, -ended);
    broken("a %s ended with status %d", whose, ended);
}

/* As long as the parent lives: an orphan finds its array removed, and is about to be killed. */
static _Noreturn void child_broken(pid_t parent, const char *what, int error) {
    if (getppid() != parent) _exit(0);
    broken("%s failed with %s", what, error_name(error));
}

static pid_t fork_child(void) {
    deed(AT_CHILD, -1);
    pid_t child = fork();
    BROKEN_IF(child < 0, "torture itself: fork failed with %s", error_name(errno));
    return child;
}

/* How it ended: its exit status, or minus the signal. */
static int wait_for(pid_t child, enum deed what) {
    int status;
    deed(what, -1);
    while (waitpid(child, &status, 0) != child)
        BROKEN_IF(errno != EINTR, "torture itself: waitpid failed with %s", error_name(errno));
    deed(AT_NOTHING, -1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A child has no adjustments of its parent's: its end must not release the parent's lock. Its own are its
 * own, and are made good whichever way it ends. */
static void act_fork_holding(void) {
    unsigned lock = below(LOCKS), how = below(8);
    struct sembuf op = by(lock, -1);
    if (attempt(books->id, &op, 1, AT_ONCE) != 0) return;
    come_in(lock);
    count(ARRAY_FORKED_HOLDING);
    pid_t parent = getpid(), child = fork_child();
    if (child == 0) {
        become_child(parent);
        op = by(lock, -1);
        op.sem_flg |= IPC_NOWAIT;
        if (semop(books->id, &op, 1) == 0) {
            /* Unless the parent is dying: what it did is undone before anybody can see that it has gone. */
            BROKEN_IF(!atomic_load(&mine->doomed) && getppid() == parent,
                      "mutual exclusion: a forked child was granted lock %u, which its parent holds", lock);
            _exit(0);
        }
        op = by(PERMITS, -1);
        op.sem_flg |= IPC_NOWAIT;
        if (semop(books->id, &op, 1) != 0) {
            if (errno == EAGAIN) _exit(1);
            child_broken(parent, "taking a permit in a forked child", errno);
        }
        if (how == 0) {
            char id[16];
            snprintf(id, sizeof id, "%d", books->id);
            execl("/proc/self/exe", "poundlock", "torture-executed", id, once_in(2) ? "give" : "keep",
                  (char *)NULL);
            child_broken(parent, "torture itself: exec", errno);
        }
        if (how < 4) kill(getpid(), SIGKILL);
        if (how < 6) exit(0);
        _exit(0);
    }
    int ended = wait_for(child, AT_CHILD);
    if (ended == -SIGKILL)
        count(ARRAY_CHILD_KILLED);
    else if (ended == 0)
        count(how == 0 ? ARRAY_EXECUTED : ARRAY_CHILD_DIED);
    else if (ended != 1)
        child_ended(ended, "forked child");
    must_be_in(lock, "after a forked child's end");
    check_last(lock);
    go_out(lock);
    op = by(lock, 1);
    must_do(&op, 1);
}

int poundlock_torture_executed(int id, int give_back) {
    struct sembuf op = by(PERMITS, 1);
    return give_back && semop(id, &op, 1) != 0 ? 2 : 0;
}

/* ---- sleepers on an array of their own ---- */

enum { MOST_SLEEPERS = 6, COUNTED = 0, ALSO, NOUGHT };

/* Waits until as many are asleep as there should be. */
static void await_sleepers(int id, int on_counted, int on_nought) {
    deed(AT_SLEEPERS, -1);
    while (semctl(id, COUNTED, GETNCNT) != on_counted || semctl(id, NOUGHT, GETZCNT) != on_nought)
        sleep_us(200);
    deed(AT_NOTHING, -1);
}

static _Noreturn void sleeper(pid_t parent, int id, unsigned kind, int expected) {
    become_child(parent);
    struct sembuf op[2] = {{COUNTED, -1, 0}, by(ALSO, -1)};
    struct timespec long_time = {100000, 0};
    if (kind == 2) op[0] = (struct sembuf){NOUGHT, 0, 0};
    int64_t began = now_ns(CLOCK_MONOTONIC);
    int rc = kind == 3 ? semtimedop(id, op, 1, &long_time) : semop(id, op, kind == 1 ? 2 : 1);
    int error = rc == 0 ? 0 : errno;
    if (error == expected || getppid() != parent) _exit(0);
    if (error == EAGAIN && kind == 3) must_have_lasted(COUNTED, began, long_time.tv_sec * 1000000000);
    if (error != 0 && error != EIDRM && error != EINVAL) wrong(op->sem_num, error);
    broken("a sleeper was woken with %s instead of %s", error_name(error), error_name(expected));
}

static void expect_value(int id, unsigned num, int value, const char *after) {
    int found = get(id, num, GETVAL);
    BROKEN_IF(found != value, "%s, semaphore %u of an array of our own is %d instead of %d", after, num,
              found, value);
}

static void act_sleepers(void) {
    key_t key = books->key + 1 + (key_t)(my_seat * LANES + lane_number());
    int id = semget(key, 3, IPC_CREAT | IPC_EXCL | 0600);
    BROKEN_IF(id < 0, "a new array could not be made: %s", error_name(errno));
    BROKEN_IF(semget(key, 3, IPC_CREAT | IPC_EXCL | 0600) != -1 || errno != EEXIST,
              "an array was made twice under one key, or that failed with %s", error_name(errno));
    BROKEN_IF(semget(key, 0, 0) != id, "a key did not lead to its array");
    unsigned short initial[3] = {0, 1, 1};
    control(id, 0, SETALL, (union semun){.array = initial});

    unsigned how = below(3), n = 2 + below(MOST_SLEEPERS - 1);
    unsigned kind[MOST_SLEEPERS];
    pid_t child[MOST_SLEEPERS], parent = getpid();
    int counted = 0, nought = 0;
    for (unsigned i = 0; i < n; i++) {
        kind[i] = below(4);
        *(kind[i] == 2 ? &nought : &counted) += 1;
        child[i] = fork_child();
        if (child[i] == 0) sleeper(parent, id, kind[i], how == 0 ? EIDRM : 0);
        count(ARRAY_SLEEPERS);
    }
    await_sleepers(id, counted, nought);

    if (how == 0) {
        get(id, 0, IPC_RMID);
        BROKEN_IF(semctl(id, 0, GETVAL) != -1 || (errno != EINVAL && errno != EIDRM),
                  "an array that was removed is still there");
        count(ARRAY_REMOVED);
    } else if (how == 1) {
        /* More than enough for all, at one stroke. */
        unsigned short plenty[3] = {(unsigned short)(n + 3), (unsigned short)(n + 1), 0};
        control(id, 0, SETALL, (union semun){.array = plenty});
        count(ARRAY_REPLACED);
    }
    unsigned killed = MOST_SLEEPERS;
    if (how == 2) {
        killed = below(n);
        kill(child[killed], SIGKILL);
        BROKEN_IF(wait_for(child[killed], AT_SLEEPERS) != -SIGKILL,
                  "a sleeper that was killed had been woken by nobody");
        *(kind[killed] == 2 ? &nought : &counted) -= 1;
        await_sleepers(id, counted, nought); /* it is not counted any more */
        /* One for each that is left, one after the other: none may go to the dead. */
        for (int i = 0; i < counted; i++) {
            struct sembuf one = {COUNTED, 1, 0};
            BROKEN_IF(semop(id, &one, 1) != 0, "adding to an array of our own failed with %s",
                      error_name(errno));
        }
        control(id, NOUGHT, SETVAL, (union semun){.val = 0});
        count(ARRAY_SLEEPER_KILLED);
    }
    for (unsigned i = 0; i < n; i++) {
        int ended = i == killed ? 0 : wait_for(child[i], AT_SLEEPERS);
        if (ended != 0) child_ended(ended, "sleeper");
    }
    if (how == 0) return;
    /* What the second kind took of ALSO is given back by its end. */
    expect_value(id, COUNTED, how == 1 ? (int)n + 3 - counted : 0, "after its sleepers' end");
    expect_value(id, ALSO, how == 1 ? (int)n + 1 : 1, "after its sleepers' end");
    expect_value(id, NOUGHT, 0, "after its sleepers' end");
    BROKEN_IF(get(id, COUNTED, GETNCNT) != 0 || get(id, NOUGHT, GETZCNT) != 0,
              "an array whose sleepers are gone counts some");
    get(id, 0, IPC_RMID);
}

/* ---- a worker's life ---- */

/* From now on the process is killed at some instruction within a millisecond or so. */
static void light_fuse(void) {
    static _Atomic int lit;
    if (atomic_exchange(&lit, 1)) return;
    atomic_store(&mine->doomed, 1);
    count(ARRAY_FUSE);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value = {0, 1 + (long)below(once_in(2) ? 20000 : 1000000)}};
    BROKEN_IF(timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0,
              "torture itself: no timer: %s", error_name(errno));
}

static void act(void) {
    static const struct {
        void (*act)(void);
        unsigned weight;
    } actions[] = {
        {act_lock, 300}, {act_permit, 150}, {act_together, 120},   {act_two, 80},     {act_move, 220},
        {act_zero, 60},  {act_look, 40},    {act_fork_holding, 4}, {act_sleepers, 2},
    };
    if (once_in(600)) light_fuse();
    unsigned sum = 0, which = 0;
    for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++) sum += actions[i].weight;
    for (unsigned drawn = below(sum); drawn >= actions[which].weight; which++) drawn -= actions[which].weight;
    actions[which].act();
    if (once_in(4)) sleep_us(1 + below(300));
}

static void park(void) {
    deed(PARKED, -1);
    while (atomic_load(&books->quiet) && !atomic_load(&books->stopping)) sleep_us(500);
    deed(AT_NOTHING, -1);
}

static void *thread_main(void *lane) {
    act_as(lane);
    atomic_store(&me->tid, (int)syscall(SYS_gettid));
    for (unsigned lives = 20 + below(400); lives > 0 && !atomic_load(&books->stopping); lives--) {
        if (atomic_load(&books->quiet)) park();
        act();
    }
    count(ARRAY_THREAD_ENDED);
    atomic_store(&me->tid, 0);
    atomic_store(&me->present, 0);
    atomic_store(&me->over, 1);
    return NULL;
}

static void start_thread(struct lane *lane, pthread_t *thread) {
    lane->random = draw();
    atomic_store(&lane->over, 0);
    atomic_store(&lane->deed, AT_NOTHING);
    atomic_store(&lane->since, atomic_load(&books->tick));
    atomic_store(&lane->present, 1);
    BROKEN_IF(create(thread, thread_main, lane) != 0, "torture itself: no thread could be created");
}

/* In the middle of anything that the thread does, an operation on the same array included. Ours may then
 * refuse what the kernel's never does: the thread itself holds the array's lock. */
static void operate_in_handler(void) {
    struct sembuf op = by(PERMITS, -1);
    op.sem_flg |= IPC_NOWAIT;
    if (semop(books->id, &op, 1) != 0) {
        if (errno == EINTR && books->ours)
            count(ARRAY_HANDLER_REFUSED);
        else if (errno != EAGAIN)
            broken("an operation in a signal handler failed with %s", error_name(errno));
        return;
    }
    op = by(PERMITS, 1);
    BROKEN_IF(semop(books->id, &op, 1) != 0, "giving back in a signal handler failed with %s",
              error_name(errno));
    count(ARRAY_HANDLER);
}

static void poked(int signal) {
    (void)signal;
    int error = errno;
    if (me && atomic_fetch_add_explicit(&me->handled, 1, memory_order_relaxed) % 2) operate_in_handler();
    errno = error;
}

void work(unsigned seat) {
    my_seat = seat;
    mine = &books->seat[seat];
    my_life = atomic_load(&mine->life);
    act_as(&mine->lane[0]);
    /* semop is never begun again, whatever the flags say. */
    struct sigaction action = {.sa_handler = poked, .sa_flags = once_in(2) ? SA_RESTART : 0};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t pokes = pesterers();
    pthread_sigmask(SIG_UNBLOCK, &pokes, NULL);
    atomic_store(&me->tid, getpid());

    unsigned threads = below(LANES);
    pthread_t thread[LANES];
    for (unsigned i = 1; i <= threads; i++) start_thread(&mine->lane[i], &thread[i]);
    while (!atomic_load(&books->stopping)) {
        if (atomic_load(&books->quiet)) park();
        act();
        for (unsigned i = 1; i <= threads; i++)
            if (atomic_load(&mine->lane[i].over)) {
                pthread_join(thread[i], NULL);
                start_thread(&mine->lane[i], &thread[i]);
            }
        if (threads > 0 && once_in(1000)) {
            /* The others go on without it; with the last of them the process ends. Not by pthread_exit, which
             * would unwind into Rust. */
            count(ARRAY_LEADER_LEFT);
            atomic_store(&mine->leaving, 1);
            atomic_store(&me->present, 0);
            syscall(SYS_exit, 0);
        }
    }
    for (unsigned i = 1; i <= threads; i++) pthread_join(thread[i], NULL);
    atomic_store(&mine->leaving, 1);
    atomic_store(&me->present, 0);
    exit(0);
}
