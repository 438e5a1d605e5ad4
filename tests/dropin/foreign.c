// Robust, priority-inheriting, priority-protected and process-shared mutexes, and condition variables used
// with them, belong to glibc from the start of their life to its end, beside ordinary ones in the same memory
// and on the same condition variables.
#include "check.h"

static const struct mutex_kind plain[] = {
    {"normal", PTHREAD_MUTEX_NORMAL, MAKE_ATTRIBUTE},
    {"recursive", PTHREAD_MUTEX_RECURSIVE, MAKE_ATTRIBUTE},
    {"errorcheck", PTHREAD_MUTEX_ERRORCHECK, MAKE_ATTRIBUTE},
    {"adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, MAKE_ATTRIBUTE},
};

enum { ROBUST = 1, INHERIT = 2, PSHARED = 4 };

static void make_foreign(pthread_mutex_t *m, int type, int features) {
    pthread_mutexattr_t attribute;
    OK(pthread_mutexattr_init(&attribute));
    OK(pthread_mutexattr_settype(&attribute, type));
    if (features & ROBUST) OK(pthread_mutexattr_setrobust(&attribute, PTHREAD_MUTEX_ROBUST));
    if (features & INHERIT) OK(pthread_mutexattr_setprotocol(&attribute, PTHREAD_PRIO_INHERIT));
    if (features & PSHARED) OK(pthread_mutexattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED));
    memset(m, 0xa5, sizeof *m);
    OK(pthread_mutex_init(m, &attribute));
    OK(pthread_mutexattr_destroy(&attribute));
}

static void *elsewhere_trylock(void *m) { return (void *)(long)pthread_mutex_trylock((pthread_mutex_t *)m); }
static void *elsewhere_unlock(void *m) { return (void *)(long)pthread_mutex_unlock((pthread_mutex_t *)m); }
static void *elsewhere_lock(void *m) { return (void *)(long)pthread_mutex_lock((pthread_mutex_t *)m); }
static void *elsewhere_times_out(void *m) {
    struct timespec soon = after_ms(CLOCK_REALTIME, 2), bad = {1, -1};
    CALL(pthread_mutex_timedlock((pthread_mutex_t *)m, &soon), ETIMEDOUT);
    CALL(pthread_mutex_timedlock((pthread_mutex_t *)m, &bad), EINVAL);
    return NULL;
}

#define ELSEWHERE(body, m, want)                                                                             \
    do {                                                                                                     \
        long got_ = (long)join(spawn(body, m));                                                              \
        CHECK(got_ == (want), "%s: got %ld (%s), expected %s", #body, got_, strerror((int)got_), strerror(want));      \
    } while (0)

static void results(pthread_mutex_t *m, int type, int features) {
    int recursive = type == PTHREAD_MUTEX_RECURSIVE, errorcheck = type == PTHREAD_MUTEX_ERRORCHECK;
    OK(pthread_mutex_lock(m));
    if (recursive || errorcheck) CALL(pthread_mutex_lock(m), recursive ? 0 : EDEADLK);
    // glibc's robust and inheriting mutexes check for errors in trylock too.
    CALL(pthread_mutex_trylock(m), recursive ? 0 : errorcheck
         && features & (ROBUST | INHERIT) ? EDEADLK : EBUSY);
    if (recursive)
        for (int i = 0; i < 2; i++) OK(pthread_mutex_unlock(m));
    ELSEWHERE(elsewhere_trylock, m, EBUSY);
    if (features || recursive || errorcheck) {
        // glibc lets any thread unlock a mutex that is process-shared only and of the normal types.
        int checked = recursive || errorcheck || features & (ROBUST | INHERIT);
        if (checked) ELSEWHERE(elsewhere_unlock, m, EPERM);
    }
    join(spawn(elsewhere_times_out, m));
    if (!(features & ROBUST)) CALL(pthread_mutex_destroy(m), EBUSY);
    OK(pthread_mutex_unlock(m));
    struct timespec far = far_away(CLOCK_REALTIME);
    IN_AND_OUT(pthread_mutex_timedlock(m, &far), m);
}

// --- contention

static pthread_mutex_t *shared;
static pthread_cond_t *shared_cond;
static volatile long first, second;
static long left;

static void *adds(void *unused) {
    for (int i = 0; i < 1500; i++) {
        OK(pthread_mutex_lock(shared));
        ALONE(first, second, if (i % 100 == 0) sched_yield());
        OK(pthread_mutex_unlock(shared));
    }
    return unused;
}

static void *takes_turns(void *number) {
    long me = (long)number;
    OK(pthread_mutex_lock(shared));
    while (left > 0) {
        while (left > 0 && left % 2 != me) {
            struct timespec far = far_away(CLOCK_MONOTONIC);
            if (left % 3) OK(pthread_cond_wait(shared_cond, shared));
            else OK(pthread_cond_clockwait(shared_cond, shared, CLOCK_MONOTONIC, &far));
        }
        if (left > 0) left--;
        if (left % 5) OK(pthread_cond_signal(shared_cond));
        else OK(pthread_cond_broadcast(shared_cond));
    }
    OK(pthread_mutex_unlock(shared));
    return NULL;
}

static void contention(pthread_mutex_t *m) {
    shared = m;
    first = second = 0;
    crowd(4, adds);
    CHECK(first == 4 * 1500, "%ld of %d additions", first, 4 * 1500);
}

static void turns(pthread_cond_t *c, pthread_mutex_t *m, long n) {
    shared = m;
    shared_cond = c;
    left = n;
    crowd(2, takes_turns);
    CHECK(left == 0, "%ld turns are left", left);
    OK(pthread_mutex_lock(m));
    struct timespec soon = after_ms(CLOCK_REALTIME, 1);
    int result, spurious = 0;
    while ((result = pthread_cond_timedwait(c, m, &soon)) == 0)
        CHECK(++spurious < 10, "wakes without a signal");
    CHECK(result == ETIMEDOUT, "timedwait: got %d (%s)", result, strerror(result));
    OK(pthread_mutex_unlock(m));
}

// --- robust

static void *dies_holding(void *m) {
    OK(pthread_mutex_lock((pthread_mutex_t *)m));
    return NULL;
}

static sem_t locked, may_die;

static void *dies_when_told(void *m) {
    OK(pthread_mutex_lock((pthread_mutex_t *)m));
    sem_post(&locked);
    sem_down(&may_die);
    return NULL;
}

static volatile pid_t waiter_id;

static void *inherits(void *m) {
    announce(&waiter_id);
    CALL(pthread_mutex_lock((pthread_mutex_t *)m), EOWNERDEAD);
    OK(pthread_mutex_consistent((pthread_mutex_t *)m));
    OK(pthread_mutex_unlock((pthread_mutex_t *)m));
    return NULL;
}

static pthread_mutex_t robust_mutex;
static pthread_cond_t robust_cond = PTHREAD_COND_INITIALIZER;
static int robust_told;

static void *signals_and_dies(void *unused) {
    OK(pthread_mutex_lock(&robust_mutex));
    robust_told = 1;
    OK(pthread_cond_signal(&robust_cond));
    return unused;
}

static void robust(int type, int features) {
    pthread_mutex_t m;
    STAGE("robust: the owner died");
    make_foreign(&m, type, ROBUST | features);
    join(spawn(dies_holding, &m));
    CALL(pthread_mutex_lock(&m), EOWNERDEAD);
    OK(pthread_mutex_consistent(&m));
    CALL(pthread_mutex_consistent(&m), EINVAL);
    OK(pthread_mutex_unlock(&m));
    join(spawn(dies_holding, &m));
    CALL(pthread_mutex_trylock(&m), EOWNERDEAD);
    OK(pthread_mutex_consistent(&m));
    OK(pthread_mutex_unlock(&m));
    STAGE("robust: the owner dies while another waits");
    waiter_id = 0;
    sem_init(&locked, 0, 0);
    sem_init(&may_die, 0, 0);
    pthread_t owner = spawn(dies_when_told, &m);
    sem_down(&locked);
    pthread_t waiter = spawn(inherits, &m);
    await_asleep(&waiter_id);
    sem_post(&may_die);
    join(owner);
    join(waiter);
    join(spawn(dies_holding, &m));
    CALL(pthread_mutex_lock(&m), EOWNERDEAD);
    STAGE("robust: not made consistent");
    OK(pthread_mutex_unlock(&m));
    CALL(pthread_mutex_lock(&m), ENOTRECOVERABLE);
    CALL(pthread_mutex_trylock(&m), ENOTRECOVERABLE);
    OK(pthread_mutex_destroy(&m));

    STAGE("robust: condition variable, the signaller dies holding");
    make_foreign(&robust_mutex, type, ROBUST | features);
    robust_told = 0;
    OK(pthread_mutex_lock(&robust_mutex));
    pthread_t thread = spawn(signals_and_dies, NULL);
    int result = 0;
    while (!robust_told && result == 0) result = pthread_cond_wait(&robust_cond, &robust_mutex);
    CHECK(result == EOWNERDEAD, "cond_wait: got %d (%s), expected EOWNERDEAD", result, strerror(result));
    join(thread);
    OK(pthread_mutex_consistent(&robust_mutex));
    ELSEWHERE(elsewhere_trylock, &robust_mutex, EBUSY);
    OK(pthread_mutex_unlock(&robust_mutex));
    OK(pthread_mutex_destroy(&robust_mutex));
}

// --- priority protection

static void *in_real_time(void *unused) {
    pthread_mutexattr_t attribute;
    MUST(pthread_mutexattr_init(&attribute));
    MUST(pthread_mutexattr_setprotocol(&attribute, PTHREAD_PRIO_PROTECT));
    int lowest = sched_get_priority_min(SCHED_FIFO), ceiling = -1, old = -1;
    MUST(pthread_mutexattr_setprioceiling(&attribute, lowest + 5));
    pthread_mutex_t m;
    MUST(pthread_mutex_init(&m, &attribute));
    MUST(pthread_mutexattr_destroy(&attribute));
    MUST(pthread_mutex_getprioceiling(&m, &ceiling));
    CHECK(ceiling == lowest + 5, "ceiling %d, set to %d", ceiling, lowest + 5);
    struct sched_param parameter = {.sched_priority = lowest};
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter) == 0) {
        for (int i = 0; i < 10; i++) {
            MUST(pthread_mutex_lock(&m));
            ELSEWHERE(elsewhere_trylock, &m, EBUSY);
            MUST(pthread_mutex_unlock(&m));
            MUST(pthread_mutex_trylock(&m));
            MUST(pthread_mutex_unlock(&m));
        }
        MUST(pthread_mutex_setprioceiling(&m, lowest, &old));
        CHECK(old == lowest + 5, "old ceiling %d", old);
        parameter.sched_priority = lowest + 1;
        MUST(pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter));
        int result = pthread_mutex_lock(&m);
        CHECK(result == EINVAL, "lock above the ceiling: got %d (%s), expected EINVAL", result,
              strerror(result));
    } else {
        // Without the right to real-time scheduling glibc refuses the lock itself.
        int result = pthread_mutex_lock(&m);
        CHECK(result == EPERM || result == EINVAL || result == ENOTSUP, "lock: got %d (%s)", result,
              strerror(result));
    }
    MUST(pthread_mutex_destroy(&m));
    return unused;
}

int main(void) {
    limit_seconds(40);
    pthread_mutex_t m;
    pthread_cond_t c = PTHREAD_COND_INITIALIZER;
    static const char *const names[] = {"plain",  "robust",           "inherit",           "robust inherit",
                                        "shared", "robust shared",    "inherit shared",
                                        "robust inherit shared"};
    for (int features = 1; features < 8; features++) {
        CASE(names[features]);
        for (int k = 0; k < 4; k++) {
            STAGE(plain[k].name);
            make_foreign(&m, plain[k].type, features);
            results(&m, plain[k].type, features);
            if (k == 0) contention(&m);
            OK(pthread_mutex_destroy(&m));
            // The same memory, as an ordinary mutex and back.
            make_mutex(&m, &plain[k]);
            results(&m, plain[k].type, 0);
            OK(pthread_mutex_destroy(&m));
            make_foreign(&m, plain[k].type, features);
            results(&m, plain[k].type, features);
            turns(&c, &m, 60);
            OK(pthread_mutex_destroy(&m));
            if (features & ROBUST) robust(plain[k].type, features);
        }
    }
    CASE("");

    STAGE("one condition variable, with an ordinary mutex and a foreign one in turn");
    for (int features = 1; features < 8; features++) {
        CASE(names[features]);
        pthread_mutex_t foreign;
        for (int foreign_first = 0; foreign_first < 2; foreign_first++) {
            OK(pthread_cond_init(&c, NULL));
            make_foreign(&foreign, PTHREAD_MUTEX_NORMAL, features);
            make_mutex(&m, &plain[0]);
            for (int i = 0; i < 12; i++) turns(&c, (i + foreign_first) % 2 ? &foreign : &m, 20 + i);
            OK(pthread_cond_destroy(&c));
            OK(pthread_mutex_destroy(&m));
            OK(pthread_mutex_destroy(&foreign));
        }
    }

    STAGE("a process-shared condition variable");
    pthread_condattr_t attribute;
    OK(pthread_condattr_init(&attribute));
    OK(pthread_condattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED));
    memset(&c, 0x5a, sizeof c);
    OK(pthread_cond_init(&c, &attribute));
    for (int k = 0; k < 4; k++) {
        CASE(plain[k].name);
        make_mutex(&m, &plain[k]);
        turns(&c, &m, 300);
        results(&m, plain[k].type, 0);
        OK(pthread_mutex_destroy(&m));
        make_foreign(&m, plain[k].type, PSHARED);
        turns(&c, &m, 300);
        OK(pthread_mutex_destroy(&m));
    }
    OK(pthread_cond_destroy(&c));
    OK(pthread_condattr_destroy(&attribute));
    CASE("");

    STAGE("priority-protected");
    join(spawn(in_real_time, NULL));
    ELSEWHERE(elsewhere_lock, &(pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER, 0);
    return 0;
}
