// The first rule of all locks: unlock does not touch the lock once another thread may have destroyed it.
// Locks here protect the life of their own memory: whoever finds that it is the last one unlocks, destroys,
// and gives the memory back, while the others may still be on their way out of unlock. POSIX promises that
// this works. A lock that is touched later is a SIGSEGV where each has a page of its own, which is gone the
// moment it is destroyed, and a memory checker's error where it comes from malloc.
//
// The same for a condition variable destroyed straight after a broadcast, as in POSIX's own example.
//
//     destroy mutex|spinlock|rwlock [ROUNDS]
#include "rwlock.h"

enum { PAGE = 4096, MOST = 4 };
enum sort { MUTEX, SPINLOCK, RWLOCK };

struct object {
    union {
        pthread_mutex_t m;
        pthread_spinlock_t s;
        pthread_rwlock_t l;
    };
    pthread_cond_t c;
    int users;
    volatile int told, waiting;
};

static enum sort sort;
static const struct mutex_kind *kind;
static const struct rwlock_kind *rwlock_kind;
static int mapped, shared, threads, rounds;
static struct object *volatile current;
static pthread_barrier_t barrier;
static sem_t handed, taken;

static void *room(size_t size) {
    void *memory = mapped ? mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                          : calloc(1, size);
    CHECK(memory != NULL && memory != MAP_FAILED, "out of memory");
    return memory;
}

static void give_room_back(void *memory) {
    if (mapped) SYS(munmap(memory, PAGE));
    else free(memory);
}

static struct object *make(void) {
    struct object *o = (struct object *)room(sizeof *o);
    if (sort == MUTEX) make_mutex(&o->m, kind);
    if (sort == MUTEX) OK(pthread_cond_init(&o->c, NULL));
    if (sort == SPINLOCK) OK(pthread_spin_init(&o->s, shared));
    if (sort == RWLOCK) make_rwlock(&o->l, rwlock_kind);
    return o;
}

static void dispose(struct object *o) {
    if (sort == MUTEX) OK(pthread_mutex_destroy(&o->m));
    if (sort == SPINLOCK) OK(pthread_spin_destroy(&o->s));
    if (sort == RWLOCK) {
        // Once the other readers have left it.
        IN_AND_OUT(pthread_rwlock_wrlock(&o->l), &o->l);
        OK(pthread_rwlock_destroy(&o->l));
    }
    give_room_back(o);
}

static void enter_mutex(struct object *o, long turn) {
    for (int result = -1; result != 0;) {
        struct timespec t = after_us(CLOCK_REALTIME, 30);
        result = turn % 16 == 5  ? pthread_mutex_trylock(&o->m)
                 : turn % 4 == 3 ? pthread_mutex_timedlock(&o->m, &t)
                                 : pthread_mutex_lock(&o->m);
        int refused = turn % 16 == 5 ? EBUSY : turn % 4 == 3 ? ETIMEDOUT : 0;
        CHECK(result == 0 || result == refused, "lock: %d", result);
    }
}

static void enter(struct object *o, long turn) {
    if (sort == MUTEX) {
        enter_mutex(o, turn);
    } else if (sort == RWLOCK) {
        OK(turn % 2 ? pthread_rwlock_rdlock(&o->l) : pthread_rwlock_wrlock(&o->l));
    } else if (turn % 8 == 3) {
        while (pthread_spin_trylock(&o->s) != 0) sched_yield();
    } else {
        OK(pthread_spin_lock(&o->s));
    }
}

static void leave(struct object *o, long turn) {
    // Now and then long enough for the others to halt, or to sleep.
    if (sort != MUTEX && turn % 16 == 0)
        for (volatile int spin = 0; spin < 20000; spin++) continue;
    OK(sort == MUTEX      ? pthread_mutex_unlock(&o->m)
       : sort == SPINLOCK ? pthread_spin_unlock(&o->s)
                          : pthread_rwlock_unlock(&o->l));
}

static void *user(void *number) {
    long me = (long)number;
    for (int i = 0; i < rounds; i++) {
        int waited_for = sort == RWLOCK && i % 3 == 0;
        if (me == 0) {
            struct object *o = make();
            o->users = threads;
            current = o;
            if (waited_for) enter(o, 0);
        }
        pthread_barrier_wait(&barrier);
        struct object *o = current;
        // Everybody has seen it before the first can be gone.
        pthread_barrier_wait(&barrier);
        if (waited_for && me == 0) {
            if (i % 2) sched_yield();
            leave(o, 1);
        }
        for (int turn = 0; sort == RWLOCK && turn < (i + me) % 4; turn++) {
            enter(o, 1);
            if (i % 5 == 0) sched_yield();
            leave(o, 1);
        }
        enter(o, i / 4 + me);
        int last = __atomic_sub_fetch(&o->users, 1, __ATOMIC_RELAXED) == 0;
        leave(o, i);
        if (last) dispose(o);
    }
    return NULL;
}

// One thread waits for the lock that the other holds, gets it, and gives it back while the other is still on
// its way out of unlock.
static void *receiver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        sem_down(&handed);
        struct object *o = current;
        sem_post(&taken);
        enter(o, 0);
        leave(o, 1);
        dispose(o);
    }
    return unused;
}

static void *giver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        struct object *o = make();
        enter(o, 0);
        current = o;
        sem_post(&handed);
        sem_down(&taken);
        // The receiver finds it held, finds it free, spins, or sleeps.
        for (volatile int spin = 0; spin < i * 37 % 4000; spin++) continue;
        if (i % 64 == 0) usleep(200);
        leave(o, 1);
    }
    return unused;
}

// POSIX, pthread_cond_destroy: "a condition variable can be destroyed immediately after all the threads that
// are blocked on it are awakened", the woken being still inside the wait.
static void *waits_in_it(void *argument) {
    struct object *o = (struct object *)argument;
    struct timespec far = far_away(CLOCK_REALTIME);
    OK(pthread_mutex_lock(&o->m));
    int timed = ++o->waiting % 2;
    while (!o->told) OK(timed ? pthread_cond_timedwait(&o->c, &o->m, &far) : pthread_cond_wait(&o->c, &o->m));
    int last = --o->users == 0;
    OK(pthread_mutex_unlock(&o->m));
    if (last) dispose(o);
    return NULL;
}

static void cond_destroyed_after_broadcast(int n) {
    struct object *o = make();
    pthread_t ids[MOST];
    o->users = n + 1;
    for (int i = 0; i < n; i++) ids[i] = spawn(waits_in_it, o);
    for (int waiting = 0; waiting < n;) {
        OK(pthread_mutex_lock(&o->m));
        waiting = o->waiting;
        OK(pthread_mutex_unlock(&o->m));
    }
    OK(pthread_mutex_lock(&o->m));
    o->told = 1;
    OK(pthread_cond_broadcast(&o->c));
    OK(pthread_cond_destroy(&o->c));
    // Nothing may use it any more, nor find in it what it wrote.
    memset(&o->c, 0xff, sizeof o->c);
    int last = --o->users == 0;
    OK(pthread_mutex_unlock(&o->m));
    CHECK(!last, "the waiters left while the mutex was held");
    for (int i = 0; i < n; i++) join(ids[i]);
}

// A condition variable in memory of its own, which is given back straight after destroy, by a thread that
// does not hold the mutex.
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t *volatile alone;
static volatile int waiting, told;

static void *waits_on_it(void *unused) {
    OK(pthread_mutex_lock(&outer));
    waiting++;
    while (!told) {
        struct timespec far = far_away(CLOCK_MONOTONIC);
        OK(pthread_cond_clockwait(alone, &outer, CLOCK_MONOTONIC, &far));
    }
    OK(pthread_mutex_unlock(&outer));
    return unused;
}

static void cond_gone(int n) {
    pthread_t ids[MOST];
    alone = (pthread_cond_t *)room(sizeof *alone);
    OK(pthread_cond_init(alone, NULL));
    waiting = told = 0;
    for (int i = 0; i < n; i++) ids[i] = spawn(waits_on_it, NULL);
    for (int seen = 0; seen < n;) {
        OK(pthread_mutex_lock(&outer));
        seen = waiting;
        OK(pthread_mutex_unlock(&outer));
    }
    OK(pthread_mutex_lock(&outer));
    told = 1;
    OK(n == 1 ? pthread_cond_signal(alone) : pthread_cond_broadcast(alone));
    OK(pthread_mutex_unlock(&outer));
    OK(pthread_cond_destroy(alone));
    give_room_back(alone);
    for (int i = 0; i < n; i++) join(ids[i]);
}

static void destroyed_by_the_last(const char *name, int most_rounds) {
    CASE(name);
    STAGE("the last of several destroys");
    for (threads = 2; threads <= MOST; threads++) {
        rounds = most_rounds / (threads - 1);
        pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        crowd(threads, user);
        pthread_barrier_destroy(&barrier);
    }
    STAGE("handed over and gone");
    rounds = most_rounds;
    sem_init(&handed, 0, 0);
    sem_init(&taken, 0, 0);
    pthread_t give = spawn(giver, NULL), take = spawn(receiver, NULL);
    join(give);
    join(take);
}

int main(int argc, char **argv) {
    static const char *const sorts[] = {"mutex", "spinlock", "rwlock"};
    limit_seconds(100);
    CHECK(argc > 1, "usage: destroy mutex|spinlock|rwlock [ROUNDS]");
    while (strcmp(argv[1], sorts[sort]) != 0) sort++;
    for (mapped = 1; mapped >= 0; mapped--) {
        // Few for a memory checker, which runs one thread at a time; and without one few that are not mapped.
        int most_rounds = argc > 2 ? atoi(argv[2]) : (sort == RWLOCK ? 200 : 1000) / (mapped ? 1 : 5);
        if (sort == SPINLOCK) destroyed_by_the_last("private", most_rounds);
        for (int k = 0; sort == RWLOCK && k < RWLOCK_KINDS; k++) {
            rwlock_kind = &rwlock_kinds[k];
            if (!rwlock_kind->shared) destroyed_by_the_last(rwlock_kind->name, most_rounds);
        }
        for (int k = 0; sort == MUTEX && k < MUTEX_KINDS; k++) {
            kind = &mutex_kinds[k];
            if (kind->make != MAKE_STATIC) continue;
            destroyed_by_the_last(kind->name, most_rounds);
            STAGE("condition variable destroyed straight after a broadcast");
            for (int i = 0; i < most_rounds / 20; i++) cond_destroyed_after_broadcast(1 + i % MOST);
        }
        STAGE("condition variable gone straight after destroy");
        for (int i = 0; sort == MUTEX && i < most_rounds / 5; i++) cond_gone(1 + i % MOST);
    }
    mapped = shared = 1;
    if (sort == SPINLOCK) destroyed_by_the_last("process-shared", argc > 2 ? atoi(argv[2]) : 1000);
    return 0;
}
