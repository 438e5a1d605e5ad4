// Waits for five spinlocks at once: a thread waits for one, a signal's handler upon it for the next, a
// handler upon that one for the third, and so on. A queue spinlock has nodes for four waits of a thread; the
// fifth has to wait all the same. The higher locks are taken in their level's handler only, with that signal
// and those of lower levels blocked, so that nobody waits in a circle. And handlers that take a lock at any
// moment of their thread's life.
#include "check.h"

enum { LEVELS = 5, WAITERS = 3, TIMES = 24 };

static pthread_spinlock_t locks[LEVELS];
static volatile long inside[LEVELS];
static __thread volatile int *place;
static volatile int waits_begun[WAITERS];

static int signal_of(int level) { return SIGRTMIN + level; }

static void take(int level) {
    if (place != NULL) __atomic_store_n(place, level + 1, __ATOMIC_RELEASE);
    OK(pthread_spin_lock(&locks[level]));
    long v = inside[level];
    for (volatile int spin = 0; spin < 50; spin++) continue;
    inside[level] = v + 1;
    OK(pthread_spin_unlock(&locks[level]));
}

static void on_signal(int number) {
    int saved = errno;
    take(number - SIGRTMIN);
    errno = saved;
}

static void *waits(void *number) {
    place = &waits_begun[(long)number];
    take(0);
    return NULL;
}

static void ladder(int time) {
    pthread_t threads[WAITERS];
    for (int level = 0; level < LEVELS; level++) {
        OK(pthread_spin_lock(&locks[level]));
        inside[level] = 0;
    }
    for (long i = 0; i < WAITERS; i++) {
        waits_begun[i] = 0;
        threads[i] = spawn(waits, (void *)i);
    }
    for (int level = 0; level < LEVELS; level++) {
        for (int i = 0; i < WAITERS; i++)
            while (__atomic_load_n(&waits_begun[i], __ATOMIC_ACQUIRE) <= level) usleep(50);
        // At different moments of their wait: before it, spinning, asleep.
        if (time % 3) usleep((unsigned)(time * 37 % 300));
        for (int i = 0; i < WAITERS && level + 1 < LEVELS; i++)
            MUST(pthread_kill(threads[i], signal_of(level + 1)));
    }
    for (int i = 0; i < LEVELS; i++) {
        int level = time % 2 ? i : LEVELS - 1 - i;
        CHECK(inside[level] == 0, "%ld of the waiters passed level %d while it was held", inside[level],
              level);
        CALL(pthread_spin_trylock(&locks[level]), EBUSY);
        OK(pthread_spin_unlock(&locks[level]));
        if (time % 4 == 0) sched_yield();
        if (time % 2) continue;
        // From above: this level comes to an end before the one below it can.
        while (__atomic_load_n(&inside[level], __ATOMIC_ACQUIRE) < WAITERS) usleep(50);
    }
    for (int i = 0; i < WAITERS; i++) join(threads[i]);
    for (int level = 0; level < LEVELS; level++)
        CHECK(inside[level] == WAITERS, "level %d: %ld of %d", level, inside[level], WAITERS);
}

// --- at any moment

static volatile int stop, handled;
static volatile long first, second;

static void count_handled(int number) {
    on_signal(number);
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static void *contends(void *unused) {
    while (!stop) {
        OK(pthread_spin_lock(&locks[0]));
        ALONE(first, second, for (volatile int spin = 0; spin < 30; spin++) continue);
        int yields = first % 16 == 0;
        OK(pthread_spin_unlock(&locks[0]));
        if (yields) sched_yield();
    }
    return unused;
}

static void at_any_moment(int signals) {
    pthread_t threads[3];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_handled;
    sigaddset(&action.sa_mask, signal_of(1));
    SYS(sigaction(signal_of(1), &action, NULL));
    stop = handled = 0;
    inside[1] = first = second = 0;
    for (int i = 0; i < 3; i++) threads[i] = spawn(contends, NULL);
    for (int i = 0; i < signals; i++) {
        MUST(pthread_kill(threads[i % 3], signal_of(1)));
        for (volatile int spin = 0; spin < i * 7919 % 3000; spin++) continue;
        while (i % 8 == 7 && handled <= i) sched_yield();
    }
    while (handled < signals) sched_yield();
    stop = 1;
    for (int i = 0; i < 3; i++) join(threads[i]);
    CHECK(inside[1] == signals, "%ld of %d handlers counted", inside[1], signals);
}

int main(void) {
    limit_seconds(60);
    for (int level = 0; level < LEVELS; level++) {
        OK(pthread_spin_init(&locks[level], PTHREAD_PROCESS_PRIVATE));
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_handler = on_signal;
        for (int below = 1; below <= level; below++) sigaddset(&action.sa_mask, signal_of(below));
        if (level > 0) SYS(sigaction(signal_of(level), &action, NULL));
    }
    STAGE("five levels");
    for (int time = 0; time < TIMES; time++) ladder(time);
    STAGE("handlers at any moment");
    at_any_moment(600);
    return 0;
}
