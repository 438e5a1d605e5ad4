// fork with locks held by the forking thread, and waiters for them queued in the parent: the child owns what
// the forking thread owned, and none of the waiters exists there. It unlocks, locks again, hands over between
// threads of its own; grandchildren do the same; the parent goes on untouched.
#include "check.h"

enum { WAITERS = 4, THREADS = 4 };

static pthread_mutex_t m;
static pthread_cond_t c;
static long counter;
static volatile pid_t ids[WAITERS];
static const struct mutex_kind *kind;

static void *adds(void *unused) {
    for (int i = 0; i < 500; i++) {
        OK(pthread_mutex_lock(&m));
        long v = counter;
        if (i % 50 == 0) sched_yield();
        counter = v + 1;
        OK(pthread_mutex_unlock(&m));
    }
    return unused;
}

static int turn;
static void *takes_turns(void *number) {
    OK(pthread_mutex_lock(&m));
    for (int i = 0; i < 50; i++) {
        while (turn % 2 != (int)(long)number) OK(pthread_cond_wait(&c, &m));
        turn++;
        OK(pthread_cond_signal(&c));
    }
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *elsewhere(void *unused) {
    return (void *)(long)pthread_mutex_trylock(&m);
}

// In a child, with the mutex as the parent's forking thread held it, `levels` deep.
static void use_in_child(int levels, int generation) {
    STAGE(generation == 1 ? "child: still held" : "grandchild: still held");
    long result = (long)join(spawn(elsewhere, NULL));
    CHECK(result == EBUSY, "trylock in another thread of the child: got %ld, expected EBUSY", result);
    STAGE(generation == 1 ? "child: unlock" : "grandchild: unlock");
    int owned = kind->type == PTHREAD_MUTEX_RECURSIVE || kind->type == PTHREAD_MUTEX_ERRORCHECK;
    for (int i = 0; i < levels; i++) {
        errno = ERRNO_SENTINEL;
        int unlocked = pthread_mutex_unlock(&m);
        CHECK(errno == ERRNO_SENTINEL, "unlock changed errno");
        // POSIX: the child's thread is the forking thread's replica, so that it may unlock. glibc compares
        // thread ids and refuses (EPERM) where it knows an owner; programs then make the mutex anew, and that
        // has to work.
        if (unlocked == EPERM && owned) {
            make_mutex(&m, kind);
            break;
        }
        CHECK(unlocked == 0, "unlock: got %d (%s)", unlocked, strerror(unlocked));
    }
    if (owned) CALL(pthread_mutex_unlock(&m), EPERM);
    STAGE(generation == 1 ? "child: lock again" : "grandchild: lock again");
    struct timespec soon = after_ms(CLOCK_REALTIME, 10000);
    IN_AND_OUT(pthread_mutex_trylock(&m), &m);
    IN_AND_OUT(pthread_mutex_timedlock(&m, &soon), &m);
    IN_AND_OUT(pthread_mutex_lock(&m), &m);
    STAGE(generation == 1 ? "child: its own threads" : "grandchild: its own threads");
    counter = 0;
    crowd(THREADS, adds);
    CHECK(counter == THREADS * 500, "%ld of %d additions", counter, THREADS * 500);
    // A condition variable on which the parent's threads may have waited has to be made anew.
    OK(pthread_cond_init(&c, NULL));
    turn = 0;
    crowd(2, takes_turns);
    CHECK(turn == 100, "%d turns", turn);
    OK(pthread_cond_destroy(&c));
}

static void *waits(void *number) {
    long i = (long)number;
    announce(&ids[i]);
    struct timespec far = far_away(CLOCK_REALTIME);
    if (i % 2) OK(pthread_mutex_lock(&m));
    else OK(pthread_mutex_timedlock(&m, &far));
    counter++;
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static volatile int waiting_on_cond, told;
static void *waits_on_cond(void *unused) {
    OK(pthread_mutex_lock(&m));
    waiting_on_cond = 1;
    while (!told) OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    return unused;
}

// Without the handlers of pthread_atfork, so that nobody is told.
static pid_t fork_untold(unsigned seconds) {
    pid_t child = _Fork();
    SYS(child);
    if (child == 0) alarm(seconds);
    return child;
}

static void fork_holding(int waiters, int on_cond, int untold) {
    int levels = kind->type == PTHREAD_MUTEX_RECURSIVE ? 3 : 1;
    STAGE("parent: set up");
    make_mutex(&m, kind);
    OK(pthread_cond_init(&c, NULL));
    memset((void *)ids, 0, sizeof ids);
    counter = waiting_on_cond = told = 0;
    pthread_t threads[WAITERS], cond_waiter = 0;
    if (on_cond) {
        cond_waiter = spawn(waits_on_cond, NULL);
        while (!waiting_on_cond) sched_yield();
    }
    for (int i = 0; i < levels; i++) OK(pthread_mutex_lock(&m));
    for (long i = 0; i < waiters; i++) threads[i] = spawn(waits, (void *)i);
    for (int i = 0; i < waiters; i++) await_asleep(&ids[i]);
    STAGE("parent: fork");
    pid_t child = untold ? fork_untold(20) : fork_limited(20);
    if (child == 0) {
        pid_t grandchild = fork_limited(15);
        use_in_child(levels, grandchild == 0 ? 2 : 1);
        if (grandchild != 0) await_child(grandchild);
        _exit(0);
    }
    STAGE("parent: goes on");
    for (int i = 1; i < levels; i++) OK(pthread_mutex_unlock(&m));
    CALL(pthread_mutex_destroy(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < waiters; i++) join(threads[i]);
    if (on_cond) {
        OK(pthread_mutex_lock(&m));
        told = 1;
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        join(cond_waiter);
    }
    CHECK(counter == waiters, "%ld of %d waiters had the mutex", counter, waiters);
    STAGE("parent: the child's end");
    await_child(child);
    OK(pthread_cond_destroy(&c));
    OK(pthread_mutex_destroy(&m));
}

// fork from a thread that is not the first, with the mutex held by it: the child's first thread is that one.
static void *forks(void *unused) {
    fork_holding(WAITERS, 1, 0);
    return unused;
}

int main(void) {
    limit_seconds(40);
    for (int k = 0; k < MUTEX_KINDS; k++) {
        kind = &mutex_kinds[k];
        if (kind->make != MAKE_STATIC) continue;
        CASE(kind->name);
        fork_holding(0, 0, 0);
        fork_holding(1, 0, 0);
        fork_holding(WAITERS, 0, 0);
        fork_holding(WAITERS, 1, 0);
        fork_holding(WAITERS, 0, 1);
        join(spawn(forks, NULL));
    }
    CASE("");
    STAGE("unlocked ones work on in the child");
    for (int k = 0; k < MUTEX_KINDS; k++) {
        kind = &mutex_kinds[k];
        make_mutex(&m, kind);
        IN_AND_OUT(pthread_mutex_lock(&m), &m);
        IN_CHILD(20) {
            OK(pthread_mutex_lock(&m));
            if (kind->type == PTHREAD_MUTEX_ERRORCHECK) CALL(pthread_mutex_lock(&m), EDEADLK);
            if (kind->type == PTHREAD_MUTEX_RECURSIVE) OK(pthread_mutex_lock(&m));
            long result = (long)join(spawn(elsewhere, NULL));
            CHECK(result == EBUSY, "trylock elsewhere: %ld", result);
            OK(pthread_mutex_unlock(&m));
            if (kind->type == PTHREAD_MUTEX_RECURSIVE) OK(pthread_mutex_unlock(&m));
            OK(pthread_mutex_destroy(&m));
        }
    }
    return 0;
}
