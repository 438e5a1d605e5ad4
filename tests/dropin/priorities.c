// Real-time threads go before others, by priority, and first come first served among equals, as with the
// kernel's futexes: at mutexes, as the writers of readers-writer locks, and at condition variables, whether
// one is signalled or all are. However a thread became a real-time thread, before or after it has slept in a
// lock. All waiters are known to sleep in a futex before anybody is let in. Ends with 77 where there are no
// real-time threads. With the argument "writers" only those are looked at, and without it the others.
#include "check.h"

// In the order in which they queue.
static const int priorities[] = {0, 5, 20, 0, 10, 30, 20};
enum { CREW = sizeof priorities / sizeof priorities[0] };
static const int by_priority[CREW] = {5, 2, 6, 4, 1, 0, 3}, by_arrival[CREW] = {0, 1, 2, 3, 4, 5, 6};

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;

enum way { LOCK, CLOCKLOCK, WRITE, CLOCKWRITE, SIGNAL, BROADCAST, CLOCKSIGNAL, WAYS, END };
static const char *const way_names[] = {"mutex_lock", "mutex_clocklock", "rwlock_wrlock",
                                        "rwlock_clockwrlock",
                                        "cond_signal", "cond_broadcast", "cond_signal of a timed wait"};

struct worker {
    pthread_t thread;
    sem_t start;
    volatile pid_t id;
    volatile enum way way;
};
static struct worker crew[CREW];
static volatile int signalled;
static int order[CREW];
static volatile int entered;

static void enter(long number) {
    order[entered] = (int)number;
    __atomic_store_n(&entered, entered + 1, __ATOMIC_RELEASE);
}

static void take_part(long number, enum way way) {
    struct timespec far = far_away(CLOCK_MONOTONIC);
    switch (way) {
    case LOCK:
    case CLOCKLOCK:
        OK(way == LOCK ? pthread_mutex_lock(&m) : pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &far));
        enter(number);
        OK(pthread_mutex_unlock(&m));
        break;
    case WRITE:
    case CLOCKWRITE:
        OK(way == WRITE ? pthread_rwlock_wrlock(&l) : pthread_rwlock_clockwrlock(&l, CLOCK_MONOTONIC, &far));
        enter(number);
        OK(pthread_rwlock_unlock(&l));
        break;
    default:
        OK(pthread_mutex_lock(&m));
        // For no reason it may end as well: then it would not have been in its place.
        int before = signalled;
        OK(way == CLOCKSIGNAL ? pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &far) : pthread_cond_wait(&c,
                                                                                                          &m));
        CHECK(signalled != before, "woken for no reason");
        enter(number);
        OK(pthread_mutex_unlock(&m));
        break;
    }
}

static void *work(void *argument) {
    long number = (long)argument;
    struct worker *worker = &crew[number];
    announce(&worker->id);
    for (;;) {
        sem_down(&worker->start);
        if (worker->way == END) return NULL;
        take_part(number, worker->way);
    }
}

// The word on which a thread sleeps; 0 if it does not sleep in a futex.
static unsigned long sleeps_on(pid_t thread) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "open %s: %s", path, strerror(errno));
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK(length > 0, "read %s: %s", path, strerror(errno));
    text[length] = 0;
    long call;
    unsigned long word;
    if (sscanf(text, "%ld %lx", &call, &word) != 2 || call != SYS_futex) return 0;
    return task_sleeps(getpid(), thread) ? word : 0;
}

static int within(unsigned long word, const void *object, size_t size) {
    return word - (unsigned long)object < size;
}

// Waits until it sleeps, but not for its turn to come, and, if `moved`, not in the condition variable: seen
// so three times.
static void await_queued(struct worker *worker, int moved) {
    for (int seen = 0; seen < 3; usleep(50)) {
        unsigned long word = sleeps_on(worker->id);
        int queued = word != 0 && !within(word, &worker->start, sizeof worker->start) &&
                     !(moved && within(word, &c, sizeof c));
        seen = queued ? seen + 1 : 0;
    }
}

static void start(int number, enum way way) {
    crew[number].way = way;
    MUST(sem_post(&crew[number].start));
}

static void await_entered(int count) {
    while (__atomic_load_n(&entered, __ATOMIC_ACQUIRE) < count) usleep(100);
}

// Has them queue in the order of their numbers, lets them in, and compares.
static void round_of(enum way way, const int *expected) {
    CASE(way_names[way]);
    int writes = way == WRITE || way == CLOCKWRITE, waits = way >= SIGNAL;
    entered = 0;
    if (writes) OK(pthread_rwlock_wrlock(&l));
    else if (!waits) OK(pthread_mutex_lock(&m));
    for (int i = 0; i < CREW; i++) {
        start(i, way);
        await_queued(&crew[i], 0);
    }
    for (int i = 0; i < CREW; i++) await_queued(&crew[i], 0);
    if (waits) OK(pthread_mutex_lock(&m));
    if (way == BROADCAST) {
        signalled++;
        OK(pthread_cond_broadcast(&c));
        // glibc wakes all of them, and they sleep in the mutex.
        for (int i = 0; i < CREW; i++) await_queued(&crew[i], 1);
    }
    for (int i = 0; waits && way != BROADCAST && i < CREW; i++) {
        signalled++;
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        await_entered(i + 1);
        OK(pthread_mutex_lock(&m));
    }
    OK(writes ? pthread_rwlock_unlock(&l) : pthread_mutex_unlock(&m));
    await_entered(CREW);
    char got[8 * CREW] = "", wanted[8 * CREW] = "";
    for (int i = 0; i < CREW; i++) {
        sprintf(got + strlen(got), " %d", priorities[order[i]]);
        sprintf(wanted + strlen(wanted), " %d", priorities[expected[i]]);
    }
    int right = memcmp(order, expected, sizeof order) == 0;
    // glibc's waiters, woken at once, come to the mutex in any order among equals.
    if (way == BROADCAST) right = expected == by_arrival || strcmp(got, wanted) == 0;
    CHECK(right, "entered in the order of%s, expected%s", got, wanted);
}

// Whether the locks in question are readers-writer locks.
static int of_writers;

static void rounds(const int *expected) {
    for (int again = 0; again < 2; again++)
        for (enum way way = LOCK; way < WAYS; way++)
            if (of_writers == (way == WRITE || way == CLOCKWRITE)) round_of(way, expected);
}

// Each sleeps in the mutex so many times, one by one.
static void sleep_often(int times) {
    for (int i = 0; i < CREW; i++)
        for (int j = 0; j < times; j++) {
            entered = 0;
            OK(pthread_mutex_lock(&m));
            start(i, LOCK);
            await_queued(&crew[i], 0);
            OK(pthread_mutex_unlock(&m));
            await_entered(1);
        }
}

// How its threads become what they are.
enum how { BY_ATTRIBUTE, BY_PTHREAD, BY_PROCESS, BY_PARAMETER, BY_PRIORITY, FROM_OUTSIDE, HOWS };
static const char *const how_names[] = {"created as real-time threads",    "pthread_setschedparam",
                                        "sched_setscheduler",
                                        "sched_setparam",                  "pthread_setschedprio",
                                        "a system call that nobody sees, and 64 sleeps"};

static void create(int number, enum how how) {
    struct worker *worker = &crew[number];
    MUST(sem_init(&worker->start, 0, 0));
    worker->id = 0;
    struct sched_param parameter = {.sched_priority = priorities[number]};
    pthread_attr_t attribute;
    MUST(pthread_attr_init(&attribute));
    if (how == BY_ATTRIBUTE && priorities[number] != 0) {
        MUST(pthread_attr_setinheritsched(&attribute, PTHREAD_EXPLICIT_SCHED));
        MUST(pthread_attr_setschedpolicy(&attribute, number % 2 ? SCHED_FIFO : SCHED_RR));
        MUST(pthread_attr_setschedparam(&attribute, &parameter));
    }
    MUST(pthread_create(&worker->thread, &attribute, work, (void *)(long)number));
    MUST(pthread_attr_destroy(&attribute));
    while (__atomic_load_n(&worker->id, __ATOMIC_ACQUIRE) == 0) usleep(100);
}

static void promote(int number, enum how how) {
    struct worker *worker = &crew[number];
    struct sched_param parameter = {.sched_priority = priorities[number]}, lowest = {.sched_priority = 1};
    if (priorities[number] == 0) return;
    switch (how) {
    case BY_PTHREAD: MUST(pthread_setschedparam(worker->thread, SCHED_RR, &parameter)); break;
    case BY_PROCESS: SYS(sched_setscheduler(worker->id, SCHED_FIFO, &parameter)); break;
    case BY_PARAMETER:
        SYS(syscall(SYS_sched_setscheduler, worker->id, SCHED_FIFO, &lowest));
        SYS(sched_setparam(worker->id, &parameter));
        break;
    case BY_PRIORITY:
        SYS(syscall(SYS_sched_setscheduler, worker->id, SCHED_FIFO, &lowest));
        MUST(pthread_setschedprio(worker->thread, priorities[number]));
        break;
    case FROM_OUTSIDE: SYS(syscall(SYS_sched_setscheduler, worker->id, SCHED_FIFO, &parameter)); break;
    default: break;
    }
}

int main(int argc, char **argv) {
    limit_seconds(110);
    of_writers = argc > 1 && strcmp(argv[1], "writers") == 0;
    need_real_time();
    for (enum how how = 0; how < HOWS; how++) {
        STAGE(how_names[how]);
        CASE("");
        for (int i = 0; i < CREW; i++) create(i, how);
        // They are known, and not as real-time threads.
        if (how != BY_ATTRIBUTE) sleep_often(1);
        for (int i = 0; i < CREW; i++) promote(i, how);
        if (how == FROM_OUTSIDE) sleep_often(64);
        rounds(by_priority);
        if (how == BY_ATTRIBUTE) {
            STAGE("ordinary threads again");
            const struct sched_param none = {.sched_priority = 0};
            for (int i = 0; i < CREW; i++)
                SYS(syscall(SYS_sched_setscheduler, crew[i].id, SCHED_OTHER, &none));
            rounds(by_arrival);
        }
        for (int i = 0; i < CREW; i++) start(i, END);
        for (int i = 0; i < CREW; i++) join(crew[i].thread);
    }
    return 0;
}
