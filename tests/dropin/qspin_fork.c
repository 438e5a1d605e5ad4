// fork with a spinlock held by the forking thread and waiters of all sorts in the parent: the child owns the
// lock, and none of the waiters exists there, whatever the word says of them. It unlocks, locks, lets its own
// threads contend; grandchildren do the same; the parent goes on untouched. And handlers of pthread_atfork
// that take one.
#include "check.h"

enum { WAITERS = 3, THREADS = 3, ROUNDS = 20 };

static pthread_spinlock_t lock;
static volatile long first, second;
static volatile pid_t ids[WAITERS];

static void *adds(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_spin_lock(&lock));
        ALONE(first, second, if (i % 10 == 0) sched_yield());
        OK(pthread_spin_unlock(&lock));
    }
    return unused;
}

static void *elsewhere(void *unused) {
    return (void *)(long)pthread_spin_trylock(&lock);
}

static void contend(void) {
    first = second = 0;
    crowd(THREADS, adds);
    CHECK(first == THREADS * ROUNDS, "%ld of %d additions", first, THREADS * ROUNDS);
}

// In a child: the lock is held, as the forking thread held it.
static void use_in_child(int generation, int way) {
    STAGE(generation == 1 ? "child: still held" : "grandchild: still held");
    CALL(pthread_spin_trylock(&lock), EBUSY);
    CHECK((long)join(spawn(elsewhere, NULL)) == EBUSY, "another thread could take it");
    STAGE(generation == 1 ? "child: contended while held" : "grandchild: contended while held");
    // Its own waiters come upon what the parent's have left in the word.
    pthread_t waiters[THREADS];
    first = second = 0;
    if (way == 1)
        for (int i = 0; i < THREADS; i++) waiters[i] = spawn(adds, NULL);
    sched_yield();
    OK(pthread_spin_unlock(&lock));
    if (way == 1)
        for (int i = 0; i < THREADS; i++) join(waiters[i]);
    STAGE(generation == 1 ? "child: lock again" : "grandchild: lock again");
    // Nobody is there to wait for it: it is free.
    IN_AND_OUT(pthread_spin_trylock(&lock), &lock);
    IN_AND_OUT(pthread_spin_lock(&lock), &lock);
    STAGE(generation == 1 ? "child: its own threads" : "grandchild: its own threads");
    contend();
}

static void *waits(void *number) {
    announce(&ids[(long)number]);
    OK(pthread_spin_lock(&lock));
    long v = first;
    first = v + 1;
    OK(pthread_spin_unlock(&lock));
    return NULL;
}

// Waits until the lock's word says that somebody waits, and stays the same for a while. A form without a
// queue says nothing: there it is enough that the waiters are on their way.
static void await_waiters(int word) {
    const volatile int *seen = (const volatile int *)&lock;
    int last = *seen, same = 0;
    for (int i = 0; i < 2000 && (same < 20 || (last == word && i < 50)); i++) {
        usleep(200);
        int now = *seen;
        same = now == last ? same + 1 : 0;
        last = now;
    }
}

static void fork_holding(int waiters, int way, int untold) {
    STAGE("parent: set up");
    OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    memset((void *)ids, 0, sizeof ids);
    // One that is young, or one with a past.
    if (way == 2) contend();
    first = second = 0;
    pthread_t threads[WAITERS];
    OK(pthread_spin_lock(&lock));
    int word = *(volatile int *)&lock;
    for (long i = 0; i < waiters; i++) {
        threads[i] = spawn(waits, (void *)i);
        while (ids[i] == 0) usleep(100);
    }
    if (waiters) await_waiters(word);
    STAGE("parent: fork");
    pid_t child = untold ? _Fork() : fork();
    SYS(child);
    if (child == 0) {
        alarm(40);
        pid_t grandchild = fork_limited(30);
        if (grandchild != 0) await_child(grandchild);
        use_in_child(grandchild == 0 ? 2 : 1, way);
        _exit(0);
    }
    STAGE("parent: goes on");
    CALL(pthread_spin_trylock(&lock), EBUSY);
    OK(pthread_spin_unlock(&lock));
    for (int i = 0; i < waiters; i++) join(threads[i]);
    CHECK(first == waiters, "%ld of %d waiters had the lock", first, waiters);
    STAGE("parent: the child's end");
    await_child(child);
    contend();
    OK(pthread_spin_destroy(&lock));
}

static void *forks(void *unused) {
    fork_holding(WAITERS, 0, 0);
    return unused;
}

// --- handlers
// -------------------------------------------------------------------------------------------------------

static pthread_spinlock_t handled;
static volatile int stop, in_child, using_handlers;
static long passes;

static void prepare(void) {
    if (using_handlers) OK(pthread_spin_lock(&handled));
}
static void parent(void) {
    if (using_handlers) OK(pthread_spin_unlock(&handled));
}
static void child(void) {
    if (!using_handlers) return;
    OK(pthread_spin_unlock(&handled));
    IN_AND_OUT(pthread_spin_lock(&handled), &handled);
    in_child = 1;
}

static void *hammers(void *unused) {
    while (!stop) {
        OK(pthread_spin_lock(&handled));
        passes++;
        OK(pthread_spin_unlock(&handled));
        if (passes % 16 == 0) sched_yield();
    }
    return unused;
}

static void *passes_on(void *unused) {
    for (int i = 0; i < 20; i++) {
        OK(pthread_spin_lock(&handled));
        passes++;
        OK(pthread_spin_unlock(&handled));
    }
    return unused;
}

static void handlers(void) {
    STAGE("handlers of pthread_atfork");
    OK(pthread_spin_init(&handled, PTHREAD_PROCESS_PRIVATE));
    using_handlers = 1;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) threads[i] = spawn(hammers, NULL);
    for (int i = 0; i < 6; i++) {
        IN_CHILD(40) {
            CHECK(in_child, "the handler did not run");
            long before = passes;
            crowd(2, passes_on);
            CHECK(passes == before + 40, "%ld of 40 passes", passes - before);
        }
    }
    stop = 1;
    for (int i = 0; i < 2; i++) join(threads[i]);
    using_handlers = 0;
}

// Held by another thread of the parent: the child has to make it anew, and that has to be enough.
static void made_anew(void) {
    STAGE("made anew in the child");
    OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    OK(pthread_spin_lock(&lock));
    int word = *(volatile int *)&lock;
    ids[0] = ids[1] = 0;
    first = second = 0;
    pthread_t one = spawn(waits, (void *)0L), other = spawn(waits, (void *)1L);
    while (ids[0] == 0 || ids[1] == 0) usleep(100);
    await_waiters(word);
    pid_t pid = fork_limited(40);
    if (pid == 0) {
        OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
        contend();
        OK(pthread_spin_destroy(&lock));
        _exit(0);
    }
    OK(pthread_spin_unlock(&lock));
    join(one);
    join(other);
    await_child(pid);
}

int main(void) {
    limit_seconds(90);
    MUST(pthread_atfork(prepare, parent, child));
    // A spinlock whose waiters keep their CPUs is slow here, and each of these is a fork or two: few of each.
    for (int way = 0; way < 3; way++) {
        static const char *const names[] = {"young", "contended in the child while held", "with a past"};
        CASE(names[way]);
        fork_holding(way == 0 ? 0 : 1, way, 0);
        fork_holding(WAITERS, way, 0);
        fork_holding(WAITERS, way, 1);
    }
    CASE("by another thread");
    join(spawn(forks, NULL));
    CASE("");
    made_anew();
    handlers();
    return 0;
}
