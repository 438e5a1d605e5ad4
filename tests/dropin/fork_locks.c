// fork with a lock held by the forking thread, and waiters for it of all sorts in the parent: the child owns
// what the forking thread owned, and none of the waiters exists there, whatever the lock says of them. It
// unlocks, locks again, hands over between threads of its own; grandchildren do the same; the parent goes on
// untouched. And handlers of pthread_atfork that take one, and locks that a child makes anew.
//
//     fork_locks mutex|spinlock|rwlock [FORKS [told]]
//
// FORKS is how often the handlers run, in the storm of forks at the end. With "told" all children are made by
// fork, which tells whoever has asked for it.
#include "rwlock.h"

#if !__GLIBC_PREREQ(2, 34)
#define _Fork() ((pid_t)syscall(SYS_fork))
#endif

enum { MOST = 4 };

static enum sort { MUTEX, SPINLOCK, RWLOCK } sort;
static pthread_mutex_t m;
static pthread_spinlock_t s;
static pthread_rwlock_t l;
static pthread_cond_t c;
static volatile long first, second;
static volatile pid_t ids[MOST];
static const struct mutex_kind *kind;
static const struct rwlock_kind *rwlock_kind;
static int owned, glibcs, crew = MOST, all_told;

// How the lock is held at the fork.
static struct {
    int levels, reads, waiters, on_cond, untold, contended, with_a_past;
} held;

static void make(void) {
    if (sort == MUTEX) make_mutex(&m, kind);
    if (sort == SPINLOCK) OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    if (sort == RWLOCK) make_rwlock(&l, rwlock_kind);
}

static void unmake(void) {
    OK(sort == MUTEX      ? pthread_mutex_destroy(&m)
       : sort == SPINLOCK ? pthread_spin_destroy(&s)
                          : pthread_rwlock_destroy(&l));
}

static int lock(void) {
    return sort == MUTEX      ? pthread_mutex_lock(&m)
           : sort == SPINLOCK ? pthread_spin_lock(&s)
                              : pthread_rwlock_wrlock(&l);
}

static int timedlock(struct timespec t) {
    return sort == MUTEX      ? pthread_mutex_timedlock(&m, &t)
           : sort == SPINLOCK ? pthread_spin_lock(&s)
                              : pthread_rwlock_timedwrlock(&l, &t);
}

static int trylock(void) {
    return sort == MUTEX      ? pthread_mutex_trylock(&m)
           : sort == SPINLOCK ? pthread_spin_trylock(&s)
                              : pthread_rwlock_trywrlock(&l);
}

static int unlock(void) {
    return sort == MUTEX      ? pthread_mutex_unlock(&m)
           : sort == SPINLOCK ? pthread_spin_unlock(&s)
                              : pthread_rwlock_unlock(&l);
}

static void *adds(void *unused) {
    // A spinlock whose waiters keep their CPUs is slow here.
    for (int i = 0; i < (sort == SPINLOCK ? 20 : 400); i++) {
        OK(lock());
        ALONE(first, second, if (i % 50 == 10) sched_yield());
        OK(unlock());
        if (sort != RWLOCK) continue;
        OK(pthread_rwlock_rdlock(&l));
        long v = first;
        if (i % 50 == 0) sched_yield();
        CHECK(v == first && v == second, "a writer inside with a reader");
        OK(pthread_rwlock_unlock(&l));
    }
    return unused;
}

static void contend(void) {
    first = second = 0;
    crowd(crew, adds);
    CHECK(first == crew * (sort == SPINLOCK ? 20 : 400), "%ld additions of %d threads", first, crew);
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

static void *elsewhere(void *unused) { return (void *)(long)trylock(); }

// In a child, with the lock as the parent's forking thread held it.
static void give_back(void) {
    STAGE("child: still held");
    if (sort == RWLOCK && glibcs && (!held.reads || held.waiters)) {
        // On glibc's code a child cannot give back what its parent wrote (it goes by thread ids), nor use
        // what its parent's threads wait for: programs make the lock anew.
        make();
        return;
    }
    long result = (long)join(spawn(elsewhere, NULL));
    CHECK(result == EBUSY, "trylock in another thread of the child: got %ld, expected EBUSY", result);
    if (sort != MUTEX) CALL(trylock(), EBUSY);
    if (sort == RWLOCK && !held.reads) CALL(pthread_rwlock_rdlock(&l), EDEADLK);
    STAGE("child: unlock");
    pthread_t waiters[MOST];
    first = second = 0;
    // Its own waiters come upon what the parent's have left in the word.
    for (int i = 0; held.contended && i < crew; i++) waiters[i] = spawn(adds, NULL);
    sched_yield();
    for (int i = 0; i < held.levels; i++) {
        errno = ERRNO_SENTINEL;
        int unlocked = unlock();
        CHECK(errno == ERRNO_SENTINEL, "unlock changed errno");
        // POSIX: the child's thread is the forking thread's replica, so that it may unlock. glibc compares
        // thread ids and refuses (EPERM) where it knows an owner; programs then make the mutex anew, and that
        // has to work.
        if (unlocked == EPERM && owned) {
            make();
            break;
        }
        CHECK(unlocked == 0, "unlock: got %d (%s)", unlocked, strerror(unlocked));
    }
    for (int i = 0; held.contended && i < crew; i++) join(waiters[i]);
}

static void use_in_child(void) {
    give_back();
    if (owned) CALL(unlock(), EPERM);
    STAGE("child: lock again");
    OK(trylock());
    if (sort == RWLOCK) CALL(lock(), EDEADLK);
    OK(unlock());
    OK(timedlock(after_ms(CLOCK_REALTIME, 10000)));
    OK(unlock());
    OK(lock());
    OK(unlock());
    struct timespec soon = after_ms(CLOCK_REALTIME, 10000);
    if (sort == RWLOCK) IN_AND_OUT(pthread_rwlock_timedrdlock(&l, &soon), &l);
    STAGE("child: its own threads");
    contend();
    if (sort != MUTEX) return;
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
    OK(i % 2 ? lock() : timedlock(far_away(CLOCK_REALTIME)));
    first++;
    OK(unlock());
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

// Waits until the spinlock's word says that somebody waits, and stays the same for a while. A form without a
// queue says nothing: there it is enough that the waiters are on their way.
static void await_spinning(int word) {
    int last = word, same = 0;
    for (int i = 0; i < 2000 && (same < 20 || (last == word && i < 50)); i++) {
        usleep(200);
        int seen = *(const volatile int *)&s;
        same = seen == last ? same + 1 : 0;
        last = seen;
    }
}

// The calling thread holds the lock, and others wait for it.
static void have_them_wait(pthread_t *threads) {
    int word = *(volatile int *)&s;
    memset((void *)ids, 0, sizeof ids);
    first = 0;
    for (long i = 0; i < held.waiters; i++) threads[i] = spawn(waits, (void *)i);
    for (int i = 0; i < held.waiters; i++)
        if (sort != SPINLOCK) await_asleep(&ids[i]);
        else
            while (ids[i] == 0) usleep(100);
    if (sort == SPINLOCK && held.waiters) await_spinning(word);
}

static void fork_holding(void) {
    STAGE("parent: set up");
    pthread_t threads[MOST], cond_waiter = 0;
    make();
    OK(pthread_cond_init(&c, NULL));
    waiting_on_cond = told = 0;
    if (held.with_a_past) contend();
    if (held.on_cond) cond_waiter = spawn(waits_on_cond, NULL);
    while (held.on_cond && !waiting_on_cond) sched_yield();
    for (int i = 0; i < held.levels; i++) OK(held.reads ? pthread_rwlock_rdlock(&l) : lock());
    have_them_wait(threads);
    STAGE("parent: fork");
    // Without the handlers of pthread_atfork nobody is told.
    pid_t child = held.untold ? _Fork() : fork();
    SYS(child);
    if (child == 0) {
        alarm(PATIENCE_FACTOR * 40);
        pid_t grandchild = fork_limited(30);
        if (grandchild != 0 && sort == SPINLOCK) await_child(grandchild);
        if (grandchild == 0) CASE("grandchild");
        use_in_child();
        if (grandchild != 0 && sort != SPINLOCK) await_child(grandchild);
        _exit(0);
    }
    STAGE("parent: goes on");
    for (int i = 1; i < held.levels; i++) OK(unlock());
    if (sort == MUTEX) CALL(pthread_mutex_destroy(&m), EBUSY);
    if (sort != MUTEX) CALL(trylock(), EBUSY);
    OK(unlock());
    for (int i = 0; i < held.waiters; i++) join(threads[i]);
    if (held.on_cond) {
        OK(pthread_mutex_lock(&m));
        told = 1;
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        join(cond_waiter);
    }
    CHECK(first == held.waiters, "%ld of %d waiters had the lock", first, held.waiters);
    STAGE("parent: the child's end");
    await_child(child);
    OK(trylock());
    OK(unlock());
    OK(pthread_cond_destroy(&c));
    unmake();
}

// fork from a thread that is not the first, with the lock held by it: the child's first thread is that one.
static void *forks(void *unused) {
    fork_holding();
    return unused;
}

static void made_anew(void) {
    STAGE("made anew in a child");
    pthread_t threads[MOST];
    make();
    OK(lock());
    have_them_wait(threads);
    pid_t child = fork_limited(40);
    if (child == 0) {
        make();
        contend();
        unmake();
        _exit(0);
    }
    OK(unlock());
    for (int i = 0; i < held.waiters; i++) join(threads[i]);
    await_child(child);
    unmake();
}

static void every_way(const char *name) {
    CASE(name);
    for (int waiters = 0; waiters < 3; waiters++) {
        // None, one, all.
        held.waiters = waiters == 2 ? crew : waiters;
        // Each of these is a fork or two, and a spinlock whose waiters keep their CPUs is slow here: few of
        // each.
        int young = !held.contended && !held.with_a_past;
        if (sort != SPINLOCK || waiters != young) fork_holding();
    }
    held.untold = !all_told;
    fork_holding();
    held.untold = 0;
    if (held.contended || held.with_a_past) return;
    held.on_cond = sort == MUTEX;
    if (held.on_cond) fork_holding();
    join(spawn(forks, NULL));
    held.on_cond = 0;
    made_anew();
}

// --- handlers of pthread_atfork: prepare takes the locks, parent and child give them back

static pthread_mutex_t inner = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static volatile int stop, using_handlers;
static int prepared, in_parent, in_child;

static void prepare(void) {
    if (!using_handlers) return;
    OK(lock());
    OK(pthread_mutex_lock(&inner));
    CHECK(first == second, "prepare holds the lock, and so does another thread");
    prepared++;
}
static void parent(void) {
    if (!using_handlers) return;
    in_parent++;
    OK(pthread_mutex_unlock(&inner));
    OK(unlock());
}
static void child(void) {
    if (!using_handlers) return;
    in_child++;
    OK(pthread_mutex_unlock(&inner));
    // glibc's readers-writer locks know who has taken them by its id, which is another here.
    if (sort == RWLOCK && glibcs) make();
    else OK(unlock());
    OK(lock());
    OK(unlock());
}

static void pass(void) {
    OK(lock());
    OK(pthread_mutex_lock(&inner));
    ALONE(first, second, (void)0);
    OK(pthread_mutex_unlock(&inner));
    OK(unlock());
}

static void *hammers(void *number) {
    for (unsigned i = (unsigned)(long)number * 7; !stop; i++) {
        if (sort == MUTEX && i % 16 == 3) {
            struct timespec soon = after_us(CLOCK_MONOTONIC, i % 64);
            OK(pthread_mutex_lock(&m));
            int result = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &soon);
            CHECK(result == 0 || result == ETIMEDOUT, "clockwait: %d", result);
            OK(pthread_mutex_unlock(&m));
        }
        pass();
        if (i % 2) OK(pthread_cond_signal(&c));
        if (sort != MUTEX && i % 16 == 0) sched_yield();
    }
    return NULL;
}

static void *passes(void *unused) {
    for (int i = 0; i < 20; i++) pass();
    return unused;
}

static void handlers(int forks) {
    pthread_t threads[3];
    make();
    OK(pthread_cond_init(&c, NULL));
    first = second = 0;
    using_handlers = 1;
    for (long i = 0; i < 3; i++) threads[i] = spawn(hammers, (void *)i);
    for (int i = 0; i < forks; i++) {
        STAGE("fork with handlers");
        IN_CHILD(40) {
            STAGE("in the child");
            CHECK(in_child == 1 && prepared == i + 1 && in_parent == i, "handlers: %d %d %d", prepared,
                  in_parent, in_child);
            CHECK(first == second, "the child sees a broken invariant");
            long before = first;
            OK(trylock());
            OK(unlock());
            passes(NULL);
            if (i % 10 == 0) crowd(2, passes);
            CHECK(first == before + (i % 10 == 0 ? 60 : 20), "the child's additions");
            if (i % 50 == 0) IN_CHILD(40) {
                    CHECK(in_child == 2, "the grandchild's handlers");
                    passes(NULL);
                }
        }
    }
    stop = 1;
    for (int i = 0; i < 3; i++) join(threads[i]);
    CHECK(first == second && first > 0, "%ld and %ld", first, second);
    CHECK(prepared == forks && in_parent == forks && in_child == 0, "handlers: %d %d %d", prepared, in_parent,
          in_child);
    using_handlers = 0;
    unmake();
}

static void unlocked_ones(void) {
    STAGE("unlocked ones work on in the child");
    make();
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

int main(int argc, char **argv) {
    static const char *const sorts[] = {"mutex", "spinlock", "rwlock"};
    limit_seconds(90);
    CHECK(argc > 1, "usage: fork_locks mutex|spinlock|rwlock [FORKS [told]]");
    while (strcmp(argv[1], sorts[sort]) != 0) sort++;
    all_told = argc > 3;
    glibcs = private_ones_are_glibcs();
    MUST(pthread_atfork(prepare, parent, child));
    held.levels = 1;
    for (int k = 0; sort == MUTEX && k < MUTEX_KINDS; k++) {
        kind = &mutex_kinds[k];
        int recursive = kind->type == PTHREAD_MUTEX_RECURSIVE;
        owned = recursive || kind->type == PTHREAD_MUTEX_ERRORCHECK;
        held.levels = recursive ? 3 : 1;
        if (kind->make == MAKE_STATIC) every_way(kind->name);
        unlocked_ones();
    }
    held.levels = 1;
    for (int k = 0; sort == RWLOCK && k < RWLOCK_KINDS; k++) {
        rwlock_kind = &rwlock_kinds[k];
        if (rwlock_kind->shared || rwlock_kind->make == RW_NULL) continue;
        for (held.reads = 0; held.reads < 2; held.reads++) every_way(rwlock_kind->name);
    }
    held.reads = 0;
    static const char *const names[] = {"young", "contended in the child while held", "with a past"};
    for (int way = 0; sort == SPINLOCK && way < 3; way++) {
        held.contended = way == 1;
        held.with_a_past = way == 2;
        crew = 3;
        every_way(names[way]);
    }
    kind = &mutex_kinds[0];
    rwlock_kind = &rwlock_kinds[0];
    owned = 0;
    CASE("");
    handlers(argc > 2 ? atoi(argv[2]) : sort == MUTEX ? 1000 : 6);
    return 0;
}
