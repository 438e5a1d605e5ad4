// fork with a readers-writer lock held by the forking thread, and waiters for it in the parent, none of whom
// exists in the child. It leaves the lock, takes it again, and hands it over between threads of its own;
// grandchildren do the same; the parent goes on untouched. On glibc's code a child cannot give back what its
// parent wrote (it goes by thread ids), nor use what its parent's threads wait for: there it makes the lock
// anew, as programs do.
#include "rwlock.h"

enum { WAITERS = 4, THREADS = 4, ROUNDS = 400 };

static pthread_rwlock_t l;
static const struct rwlock_kind *kind;
static int glibcs;
static long counter;
static volatile pid_t ids[WAITERS];

static void *adds(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_rwlock_wrlock(&l));
        long v = counter;
        if (i % 50 == 0) sched_yield();
        counter = v + 1;
        OK(pthread_rwlock_unlock(&l));
        OK(pthread_rwlock_rdlock(&l));
        v = counter;
        if (i % 50 == 0) sched_yield();
        CHECK(v == counter, "a writer inside with a reader");
        OK(pthread_rwlock_unlock(&l));
    }
    return unused;
}

static void use_in_child(int writes, int waiters) {
    STAGE("child: still held");
    if (glibcs && (writes || waiters)) {
        make_rwlock(&l, kind);
    } else {
        if (writes) CALL(pthread_rwlock_rdlock(&l), EDEADLK);
        CALL(pthread_rwlock_trywrlock(&l), EBUSY);
        STAGE("child: unlock");
        OK(pthread_rwlock_unlock(&l));
    }
    STAGE("child: lock again");
    struct timespec soon = after_ms(CLOCK_REALTIME, 10000);
    OK(pthread_rwlock_trywrlock(&l));
    CALL(pthread_rwlock_wrlock(&l), EDEADLK);
    OK(pthread_rwlock_unlock(&l));
    IN_AND_OUT(pthread_rwlock_timedrdlock(&l, &soon), &l);
    IN_AND_OUT(pthread_rwlock_wrlock(&l), &l);
    STAGE("child: its own threads");
    counter = 0;
    crowd(THREADS, adds);
    CHECK(counter == THREADS * ROUNDS, "%ld of %d additions", counter, THREADS * ROUNDS);
}

static void *waits(void *number) {
    long i = (long)number;
    announce(&ids[i]);
    struct timespec far = far_away(CLOCK_REALTIME);
    if (i % 2) OK(pthread_rwlock_wrlock(&l));
    else OK(pthread_rwlock_timedwrlock(&l, &far));
    counter++;
    OK(pthread_rwlock_unlock(&l));
    return NULL;
}

static void fork_holding(int writes, int waiters, int untold) {
    STAGE("parent: set up");
    make_rwlock(&l, kind);
    memset((void *)ids, 0, sizeof ids);
    counter = 0;
    pthread_t threads[WAITERS];
    if (writes) OK(pthread_rwlock_wrlock(&l));
    else OK(pthread_rwlock_rdlock(&l));
    for (long i = 0; i < waiters; i++) threads[i] = spawn(waits, (void *)i);
    for (int i = 0; i < waiters; i++) await_asleep(&ids[i]);
    STAGE("parent: fork");
    // Without the handlers of pthread_atfork nobody is told.
    pid_t child = untold ? _Fork() : fork();
    SYS(child);
    if (child == 0) {
        alarm(20);
        pid_t grandchild = fork_limited(15);
        use_in_child(writes, waiters);
        if (grandchild != 0) await_child(grandchild);
        _exit(0);
    }
    STAGE("parent: goes on");
    OK(pthread_rwlock_unlock(&l));
    for (int i = 0; i < waiters; i++) join(threads[i]);
    CHECK(counter == waiters, "%ld of %d waiters had the lock", counter, waiters);
    STAGE("parent: the child's end");
    await_child(child);
    IN_AND_OUT(pthread_rwlock_trywrlock(&l), &l);
    OK(pthread_rwlock_destroy(&l));
}

// fork from a thread that is not the first: the child's first thread is that one.
static void *forks(void *unused) {
    fork_holding(0, WAITERS, 0);
    fork_holding(1, WAITERS, 0);
    return unused;
}

int main(void) {
    limit_seconds(60);
    glibcs = private_ones_are_glibcs();
    for (int k = 0; k < RWLOCK_KINDS; k++) {
        kind = &rwlock_kinds[k];
        if (kind->shared || kind->make == RW_NULL) continue;
        CASE(kind->name);
        for (int writes = 0; writes < 2; writes++) {
            fork_holding(writes, 0, 0);
            fork_holding(writes, 1, 0);
            fork_holding(writes, WAITERS, 0);
            fork_holding(writes, WAITERS, 1);
        }
        join(spawn(forks, NULL));
    }
    return 0;
}
