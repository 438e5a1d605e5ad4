// Linked by early.c: uses locks in its constructor, which runs before that of a preloaded library.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, r = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long count;
static int asked, answered;
int early_state;
pthread_mutex_t early_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_spinlock_t early_spin;
static long spun;

static void *spins(void *unused) {
    for (int i = 0; i < 2000; i++) {
        OK(pthread_spin_lock(&early_spin));
        long v = spun;
        if (i % 100 == 0) sched_yield();
        spun = v + 1;
        OK(pthread_spin_unlock(&early_spin));
    }
    return unused;
}

static void *contends(void *unused) {
    for (int i = 0; i < 2000; i++) {
        OK(pthread_mutex_lock(&m));
        long v = count;
        if (i % 100 == 0) sched_yield();
        count = v + 1;
        OK(pthread_mutex_unlock(&m));
    }
    return unused;
}

static void *answers(void *unused) {
    OK(pthread_mutex_lock(&m));
    while (!asked) OK(pthread_cond_wait(&c, &m));
    answered = 1;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    return unused;
}

// fork handlers that were registered before those of a preloaded library, and so run before them in the
// child.
pthread_mutex_t early_fork_mutex = PTHREAD_MUTEX_INITIALIZER;
int early_in_child;

static void prepare(void) { OK(pthread_mutex_lock(&early_fork_mutex)); }
static void parent(void) { OK(pthread_mutex_unlock(&early_fork_mutex)); }
static void child(void) {
    // Others wait for it in the parent, none of them here.
    OK(pthread_mutex_unlock(&early_fork_mutex));
    IN_AND_OUT(pthread_mutex_lock(&early_fork_mutex), &early_fork_mutex);
    early_in_child = 1;
}

__attribute__((constructor(101))) static void constructor(void) {
    STAGE("constructor of a linked library");
    IN_AND_OUT(pthread_mutex_lock(&m), &m);
    OK(pthread_mutex_lock(&r));
    IN_AND_OUT(pthread_mutex_lock(&r), &r);
    OK(pthread_mutex_unlock(&r));
    CALL(pthread_mutex_unlock(&r), EPERM);
    pthread_t one = spawn(contends, NULL), other = spawn(contends, NULL);
    contends(NULL);
    join(one);
    join(other);
    CHECK(count == 6000, "%ld of 6000 additions", count);
    one = spawn(answers, NULL);
    OK(pthread_mutex_lock(&m));
    asked = 1;
    struct timespec far = far_away(CLOCK_REALTIME);
    while (!answered) {
        OK(pthread_cond_broadcast(&c));
        OK(pthread_cond_timedwait(&c, &m, &far));
    }
    OK(pthread_mutex_unlock(&m));
    join(one);
    MUST(pthread_atfork(prepare, parent, child));
    OK(pthread_spin_init(&early_spin, PTHREAD_PROCESS_PRIVATE));
    one = spawn(spins, NULL);
    other = spawn(spins, NULL);
    spins(NULL);
    join(one);
    join(other);
    CHECK(spun == 6000, "%ld of 6000 additions under the spinlock", spun);
    // Held from here on into main, across every other constructor.
    OK(pthread_mutex_lock(&early_mutex));
    OK(pthread_spin_lock(&early_spin));
    early_state = 1;
}
