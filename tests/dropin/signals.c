// Signals that arrive while a thread waits for a lock or on a condition variable: the handler takes other
// locks, waits for them in its turn, and the interrupted wait goes on; no call returns EINTR. And real-time
// threads, which may not keep the CPU from the thread that they wait for.
#include "check.h"

static pthread_mutex_t a, b = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static volatile int handled, stop, told, way;
static volatile long inner;
static volatile pid_t waiter_id;
static volatile int in_wait;
enum { AT_ANY_MOMENT = 100 };

static void handler(int number) {
    int saved = errno;
    OK(pthread_mutex_lock(&b));
    long v = inner;
    for (volatile int i = 0; i < 100; i++) continue;
    inner = v + 1;
    OK(pthread_mutex_unlock(&b));
    if (way == AT_ANY_MOMENT) {
        if (pthread_mutex_trylock(&a) == 0) OK(pthread_mutex_unlock(&a));
    } else if (way < 3) {
        // The lock that the interrupted call waits for is held elsewhere.
        CALL(pthread_mutex_trylock(&a), EBUSY);
        struct timespec past = in_the_past();
        CALL(pthread_mutex_clocklock(&a, CLOCK_MONOTONIC, &past), ETIMEDOUT);
    }
    if (pthread_mutex_trylock(&b) == 0) OK(pthread_mutex_unlock(&b));
    // Two threads may be in the handler at once.
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
    errno = saved;
}

static void *contends(void *unused) {
    long made = 0;
    while (!stop) {
        OK(pthread_mutex_lock(&b));
        inner++;
        made++;
        OK(pthread_mutex_unlock(&b));
        if (made % 8 == 0) sched_yield();
    }
    return unused == NULL ? (void *)made : NULL;
}

static void *waits(void *unused) {
    struct timespec real = far_away(CLOCK_REALTIME), mono = far_away(CLOCK_MONOTONIC);
    announce(&waiter_id);
    switch (way) {
    case 0: OK(pthread_mutex_lock(&a)); break;
    case 1: OK(pthread_mutex_timedlock(&a, &real)); break;
    case 2: OK(pthread_mutex_clocklock(&a, CLOCK_MONOTONIC, &mono)); break;
    default:
        OK(pthread_mutex_lock(&a));
        in_wait = 1;
        while (!told)
            if (way == 3) OK(pthread_cond_wait(&c, &a));
            else if (way == 4) OK(pthread_cond_timedwait(&c, &a, &real));
            else OK(pthread_cond_clockwait(&c, &a, CLOCK_MONOTONIC, &mono));
    }
    OK(pthread_mutex_unlock(&a));
    return unused;
}

static void interrupted(int signals) {
    handled = stop = told = in_wait = 0;
    inner = 0;
    waiter_id = 0;
    pthread_t other = spawn(contends, NULL), waiter;
    if (way < 3) OK(pthread_mutex_lock(&a));
    waiter = spawn(waits, NULL);
    if (way >= 3)
        while (!in_wait) sched_yield();
    else
        await_asleep(&waiter_id);
    for (int i = 0; i < signals; i++) {
        // Real-time signals queue: each one is handled. Eight at a time.
        MUST(pthread_kill(waiter, i % 2 ? SIGRTMIN + 1 : SIGRTMIN + 2));
        while (i % 8 == 7 && handled <= i) sched_yield();
    }
    while (handled < signals) sched_yield();
    stop = 1;
    if (way < 3) {
        OK(pthread_mutex_unlock(&a));
    } else {
        OK(pthread_mutex_lock(&a));
        told = 1;
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&a));
    }
    join(waiter);
    long made = (long)join(other);
    CHECK(inner == made + handled, "%ld counted, %ld + %d made", inner, made, handled);
    CHECK(handled == signals, "%d of %d signals handled", handled, signals);
}

// --- at any moment

static long by_threads;

// Interrupted wherever it happens to be: before a wait, in the queue, on the way out of unlock.
static void *locks_all_the_time(void *with_cond) {
    while (!stop) {
        OK(pthread_mutex_lock(&a));
        by_threads++;
        if (with_cond && by_threads % 64 == 0) {
            struct timespec soon = after_us(CLOCK_MONOTONIC, 30);
            int result = pthread_cond_clockwait(&c, &a, CLOCK_MONOTONIC, &soon);
            CHECK(result == 0 || result == ETIMEDOUT, "clockwait: %d", result);
        }
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&a));
    }
    return NULL;
}

static void at_any_moment(int signals) {
    stop = handled = 0;
    inner = by_threads = 0;
    pthread_t threads[3], other = spawn(contends, NULL);
    for (long i = 0; i < 3; i++) threads[i] = spawn(locks_all_the_time, i ? (void *)1L : NULL);
    for (int i = 0; i < signals; i++) {
        MUST(pthread_kill(threads[i % 2], SIGRTMIN + 1 + i % 2));
        int spins = i * 7919 % 3000;
        for (volatile int spin = 0; spin < spins; spin++) continue;
        while (i % 8 == 7 && __atomic_load_n(&handled, __ATOMIC_RELAXED) <= i) sched_yield();
    }
    while (handled < signals) sched_yield();
    stop = 1;
    for (int i = 0; i < 3; i++) join(threads[i]);
    long made = (long)join(other);
    CHECK(inner == made + handled, "%ld counted, %ld + %d made", inner, made, handled);
}

// --- real time

static volatile long first, second;

static void *on_one_cpu(void *priority) {
    // The lowest CPU that this process may use, for all of them the same.
    int cpu = 0;
    cpu_set_t allowed, set;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &allowed)) cpu++;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(pthread_setaffinity_np(pthread_self(), sizeof set, &set));
    if (priority != NULL) {
        struct sched_param parameter = {.sched_priority = (int)(long)priority};
        MUST(pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter));
    }
    for (int i = 0; i < 300; i++) {
        OK(pthread_mutex_lock(&a));
        long v = first;
        CHECK(v == second, "two holders at once");
        first = v + 1;
        // Sleeps with the lock held: the real-time threads run into it.
        if (i % 10 == 0) usleep(50);
        second = v + 1;
        OK(pthread_mutex_unlock(&a));
        if (priority != NULL) usleep(20);
    }
    return NULL;
}

int main(void) {
    limit_seconds(40);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    for (int restart = 0; restart < 2; restart++) {
        action.sa_flags = restart ? SA_RESTART : 0;
        // The handler takes a mutex, which one that it interrupted would hold: both are masked while either
        // runs.
        sigemptyset(&action.sa_mask);
        for (int i = 1; i <= 2; i++) sigaddset(&action.sa_mask, SIGRTMIN + i);
        for (int i = 1; i <= 2; i++) SYS(sigaction(SIGRTMIN + i, &action, NULL));
        for (int k = 0; k < MUTEX_KINDS; k++) {
            if (mutex_kinds[k].make != MAKE_STATIC) continue;
            CASE(mutex_kinds[k].name);
            make_mutex(&a, &mutex_kinds[k]);
            for (way = 0; way < 6; way++) {
                static const char *const names[] = {"lock",      "timedlock",      "clocklock",
                                                    "cond_wait", "cond_timedwait", "cond_clockwait"};
                STAGE(names[way]);
                interrupted(200);
            }
            STAGE("at any moment");
            way = AT_ANY_MOMENT;
            // glibc's handler could not take a recursive or errorcheck mutex that its own thread is just
            // taking.
            if (mutex_kinds[k].type == PTHREAD_MUTEX_NORMAL) at_any_moment(1200);
            OK(pthread_mutex_destroy(&a));
        }
    }
    STAGE("real-time threads on one CPU with ordinary ones");
    struct sched_param parameter = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &parameter) == 0) {
        parameter.sched_priority = 0;
        SYS(sched_setscheduler(0, SCHED_OTHER, &parameter));
        for (int k = 0; k < MUTEX_KINDS; k++) {
            if (mutex_kinds[k].make != MAKE_STATIC) continue;
            CASE(mutex_kinds[k].name);
            make_mutex(&a, &mutex_kinds[k]);
            first = second = 0;
            pthread_t threads[5];
            for (long i = 0; i < 5; i++) threads[i] = spawn(on_one_cpu, (void *)(i < 2 ? 0 : i));
            for (int i = 0; i < 5; i++) join(threads[i]);
            CHECK(first == 5 * 300, "%ld of %d rounds", first, 5 * 300);
            OK(pthread_mutex_destroy(&a));
        }
    }
    return 0;
}
