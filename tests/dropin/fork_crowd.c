// Many threads fork at the same time, each with locks held that the others wait for, from a process that
// grows to hundreds of children which all live at once; each child unlocks what its thread held, uses every
// lock with threads of its own, and waits until all are there. Arguments: rounds, and children that each
// thread starts in a round.
//
// The storm of the Open POSIX suite (stress/threads/fork: one thread forks as long as it can) takes no lock
// of ours at all, and ends when the kernel has no more processes to give. Of 20,000 children that live at
// once each costs 60 us of CPU time in the parent and 137 in the child natively, and 80 and 185 under `run`
// with every lock (AMD EPYC, 2 CPUs): thirteen page faults more, which a library in the process costs
// (jemalloc's costs 45). The whole took 4 to 12 s natively and 5 to 10 s under `run`, as the machine was more
// or less busy.
#include "check.h"

enum { THREADS = 8 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t s;
static long under_m, under_recursive, under_l, under_s;
static int each, turn;
// Shared with the children: they are there, and may go.
static sem_t *there, *may_go;

static void adds(int times) {
    for (int i = 0; i < times; i++) {
        OK(pthread_mutex_lock(&recursive));
        OK(pthread_mutex_lock(&recursive));
        under_recursive++;
        OK(pthread_mutex_unlock(&recursive));
        OK(pthread_mutex_unlock(&recursive));
        IN_AND_OUT(pthread_rwlock_rdlock(&l), &l);
        OK(pthread_rwlock_wrlock(&l));
        under_l++;
        OK(pthread_rwlock_unlock(&l));
        OK(pthread_spin_lock(&s));
        under_s++;
        OK(pthread_spin_unlock(&s));
        OK(pthread_mutex_lock(&m));
        under_m++;
        OK(pthread_mutex_unlock(&m));
    }
}

static void *takes_turns(void *number) {
    adds(5);
    OK(pthread_mutex_lock(&m));
    for (int i = 0; i < 5; i++) {
        while (turn % 2 != (int)(long)number) OK(pthread_cond_wait(&c, &m));
        turn++;
        OK(pthread_cond_broadcast(&c));
    }
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

// The thread that forked held `m` alone: what lies under the other locks may be in the middle of a change by
// another thread, which holds them, and does not exist here.
static void child(int number) {
    STAGE("in a child");
    under_m++;
    OK(pthread_mutex_unlock(&m));
    static const pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    memcpy(&recursive, &fresh, sizeof fresh);
    OK(pthread_rwlock_init(&l, NULL));
    OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    // Nobody waits here for what the parent's threads wait for.
    OK(pthread_cond_init(&c, NULL));
    adds(3);
    if (number % 4 == 0) {
        turn = 0;
        crowd(2, takes_turns);
        CHECK(turn == 10, "%d turns", turn);
    }
    SYS(sem_post(there));
    sem_down(may_go);
    exit(0);
}

static pid_t *children;
static int started;

static void *forks(void *unused) {
    for (int i = 0; i < each; i++) {
        adds(20);
        OK(pthread_mutex_lock(&m));
        int number = started++;
        children[number] = fork_limited(100);
        if (children[number] == 0) child(number);
        under_m++;
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

int main(int argc, char **argv) {
    limit_seconds(100);
    int rounds = argc > 1 ? atoi(argv[1]) : 3;
    each = argc > 2 ? atoi(argv[2]) : 25;
    sem_t *shared = mmap(NULL, 2 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED, "mmap: %s", strerror(errno));
    there = shared;
    may_go = shared + 1;
    SYS(sem_init(there, 1, 0));
    SYS(sem_init(may_go, 1, 0));
    OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    children = calloc(THREADS * (size_t)each, sizeof *children);
    for (int round = 1; round <= rounds; round++) {
        STAGE("fork");
        started = 0;
        crowd(THREADS, forks);
        STAGE("await that all children are there");
        int all = THREADS * each;
        CHECK(started == all, "%d children, %d wanted", started, all);
        for (int i = 0; i < all; i++) sem_down(there);
        STAGE("await the children");
        for (int i = 0; i < all; i++) SYS(sem_post(may_go));
        for (int i = 0; i < all; i++) await_child(children[i]);
        CHECK(under_m == 21L * all * round, "%ld additions, %ld wanted", under_m, 21L * all * round);
        long wanted = 20L * all * round;
        CHECK(under_recursive == wanted && under_l == wanted && under_s == wanted,
              "%ld, %ld and %ld additions, %ld wanted", under_recursive, under_l, under_s, wanted);
    }
    return 0;
}
