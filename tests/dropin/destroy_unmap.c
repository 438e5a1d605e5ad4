// destroy.h's rule for mutexes: each has a page of its own, which is gone the moment it is destroyed, so that
// an unlock which touches it after another thread could lock it is a SIGSEGV.
//
// The same for a condition variable destroyed straight after a broadcast, as in POSIX's own example.
#include "check.h"
#include <sys/mman.h>

enum { PAGE = 4096 };

struct object {
    pthread_mutex_t m;
    pthread_cond_t c;
    volatile int users, told, waiting;
};

#include "destroy.h"

static const struct mutex_kind *kind;

static struct object *make(void) {
    struct object *o =
        (struct object *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(o != MAP_FAILED, "mmap: %s", strerror(errno));
    make_mutex(&o->m, kind);
    OK(pthread_cond_init(&o->c, NULL));
    return o;
}

static void dispose(struct object *o) {
    OK(pthread_mutex_destroy(&o->m));
    SYS(munmap(o, PAGE));
}

static void enter(struct object *o, long turn) {
    if (turn % 16 == 5) {
        for (int result; (result = pthread_mutex_trylock(&o->m)) != 0;)
            CHECK(result == EBUSY, "trylock: %d", result);
    } else if (turn % 4 == 3) {
        for (;;) {
            struct timespec t = after_us(CLOCK_REALTIME, 30);
            int result = pthread_mutex_timedlock(&o->m, &t);
            if (result == 0) break;
            CHECK(result == ETIMEDOUT, "timedlock: %d", result);
        }
    } else {
        OK(pthread_mutex_lock(&o->m));
    }
}

static void leave(struct object *o, long turn) {
    (void)turn;
    OK(pthread_mutex_unlock(&o->m));
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
    for (int k = 0; k < MUTEX_KINDS; k++) {
        kind = &mutex_kinds[k];
        if (kind->make != MAKE_STATIC) continue;
        CASE(kind->name);
        destroyed_by_the_last(most_rounds);
        STAGE("condition variable destroyed straight after a broadcast");
        for (int i = 0; i < most_rounds / 20; i++) cond_destroyed_after_broadcast(1 + i % MOST);
    }
    CASE("");
    STAGE("condition variable unmapped straight after destroy");
    for (int i = 0; i < most_rounds / 5; i++) cond_unmapped(1 + i % MOST);
    return 0;
}
