// A mutex that protects the life of its own memory: whoever finds that it is the last one unlocks, destroys
// and unmaps it. POSIX promises that this works. An unlock that touches the mutex after another thread could
// lock it is a SIGSEGV here: each mutex has a page of its own, which is gone the moment it is destroyed.
//
// The same for a condition variable destroyed straight after a broadcast, as in POSIX's own example.
#include "check.h"
#include <sys/mman.h>

enum { PAGE = 4096, MOST = 4 };

struct object {
    pthread_mutex_t m;
    pthread_cond_t c;
    volatile int users, told, waiting;
};

static struct object *map_object(const struct mutex_kind *kind) {
    struct object *o =
        (struct object *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(o != MAP_FAILED, "mmap: %s", strerror(errno));
    make_mutex(&o->m, kind);
    OK(pthread_cond_init(&o->c, NULL));
    return o;
}

static pthread_barrier_t barrier;
static struct object *volatile current;
static const struct mutex_kind *kind;
static int threads, rounds;

// The last user destroys. The others may still be on their way out of unlock.
static void last_one_destroys(struct object *o, int way) {
    switch (way) {
    case 0: OK(pthread_mutex_lock(&o->m)); break;
    case 1:
        for (;;) {
            struct timespec t = after_us(CLOCK_REALTIME, 30);
            int result = pthread_mutex_timedlock(&o->m, &t);
            if (result == 0) break;
            CHECK(result == ETIMEDOUT, "timedlock: %d", result);
        }
        break;
    default:
        for (int result; (result = pthread_mutex_trylock(&o->m)) != 0;)
            CHECK(result == EBUSY, "trylock: %d", result);
    }
    int last = --o->users == 0;
    OK(pthread_mutex_unlock(&o->m));
    if (last) {
        OK(pthread_mutex_destroy(&o->m));
        SYS(munmap(o, PAGE));
    }
}

static void *user(void *number) {
    long me = (long)number;
    for (int i = 0; i < rounds; i++) {
        if (me == 0) {
            struct object *o = map_object(kind);
            o->users = threads;
            current = o;
        }
        pthread_barrier_wait(&barrier);
        struct object *o = current;
        // Everybody has seen it before the first can be gone.
        pthread_barrier_wait(&barrier);
        last_one_destroys(o, (i + (int)me) % 4 == 3 ? 1 : (i + (int)me) % 16 == 5 ? 2 : 0);
    }
    return NULL;
}

// One thread waits for the mutex that the other holds, gets it, and unmaps it while the other is still on its
// way out of unlock.
static sem_t handed, taken;

static void *receiver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        sem_down(&handed);
        struct object *o = current;
        sem_post(&taken);
        OK(pthread_mutex_lock(&o->m));
        OK(pthread_mutex_unlock(&o->m));
        OK(pthread_mutex_destroy(&o->m));
        SYS(munmap(o, PAGE));
    }
    return unused;
}

static void *giver(void *unused) {
    for (int i = 0; i < rounds; i++) {
        struct object *o = map_object(kind);
        OK(pthread_mutex_lock(&o->m));
        current = o;
        sem_post(&handed);
        sem_down(&taken);
        // Sometimes the receiver finds it held, sometimes free, sometimes it sleeps.
        for (volatile int spin = 0; spin < i * 37 % 4000; spin++) continue;
        if (i % 64 == 0) usleep(100);
        OK(pthread_mutex_unlock(&o->m));
    }
    return unused;
}

// POSIX, pthread_cond_destroy: "a condition variable can be destroyed immediately after all the threads that
// are blocked on it are awakened", the woken being still inside the wait.
static void *waits_in_it(void *argument) {
    struct object *o = (struct object *)argument;
    OK(pthread_mutex_lock(&o->m));
    o->waiting++;
    while (!o->told) OK(pthread_cond_wait(&o->c, &o->m));
    int last = --o->users == 0;
    OK(pthread_mutex_unlock(&o->m));
    if (last) {
        OK(pthread_mutex_destroy(&o->m));
        SYS(munmap((char *)o, PAGE));
    }
    return NULL;
}

static void cond_destroyed_after_broadcast(int n) {
    struct object *o = map_object(kind);
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

// A condition variable in a page of its own, unmapped straight after destroy, by a thread that does not hold
// the mutex.
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t *volatile paged;
static volatile int waiting, told;

static void *waits_on_page(void *unused) {
    OK(pthread_mutex_lock(&outer));
    waiting++;
    while (!told) {
        struct timespec far = far_away(CLOCK_MONOTONIC);
        OK(pthread_cond_clockwait(paged, &outer, CLOCK_MONOTONIC, &far));
    }
    OK(pthread_mutex_unlock(&outer));
    return unused;
}

static void cond_unmapped(int n) {
    pthread_t ids[MOST];
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED, "mmap: %s", strerror(errno));
    paged = (pthread_cond_t *)page;
    OK(pthread_cond_init(paged, NULL));
    waiting = told = 0;
    for (int i = 0; i < n; i++) ids[i] = spawn(waits_on_page, NULL);
    for (int seen = 0; seen < n;) {
        OK(pthread_mutex_lock(&outer));
        seen = waiting;
        OK(pthread_mutex_unlock(&outer));
    }
    OK(pthread_mutex_lock(&outer));
    told = 1;
    if (n == 1) OK(pthread_cond_signal(paged));
    else OK(pthread_cond_broadcast(paged));
    OK(pthread_mutex_unlock(&outer));
    OK(pthread_cond_destroy(paged));
    SYS(munmap(page, PAGE));
    for (int i = 0; i < n; i++) join(ids[i]);
}

int main(int argc, char **argv) {
    limit_seconds(100);
    // Fewer under a memory checker, which runs one thread at a time.
    int most_rounds = argc > 1 ? atoi(argv[1]) : 1500;
    sem_init(&handed, 0, 0);
    sem_init(&taken, 0, 0);
    for (int k = 0; k < MUTEX_KINDS; k++) {
        kind = &mutex_kinds[k];
        if (kind->make != MAKE_STATIC) continue;
        CASE(kind->name);
        STAGE("the last of several destroys");
        for (threads = 2; threads <= MOST; threads++) {
            rounds = most_rounds / (threads - 1);
            pthread_barrier_init(&barrier, NULL, (unsigned)threads);
            crowd(threads, user);
            pthread_barrier_destroy(&barrier);
        }
        STAGE("handed over and unmapped");
        rounds = most_rounds;
        pthread_t give = spawn(giver, NULL), take = spawn(receiver, NULL);
        join(give);
        join(take);
        STAGE("condition variable destroyed straight after a broadcast");
        for (int i = 0; i < most_rounds / 20; i++) cond_destroyed_after_broadcast(1 + i % MOST);
    }
    CASE("");
    STAGE("condition variable unmapped straight after destroy");
    for (int i = 0; i < most_rounds / 5; i++) cond_unmapped(1 + i % MOST);
    return 0;
}
