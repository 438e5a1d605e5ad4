// Every type of mutex, made in every way, and what each call on it returns: while it is free, while the
// caller holds it, while another thread holds it, and after it was destroyed. First in a process with one
// thread, then with two.
#include "check.h"

static int recursive(const struct mutex_kind *kind) { return kind->type == PTHREAD_MUTEX_RECURSIVE; }
static int errorcheck(const struct mutex_kind *kind) { return kind->type == PTHREAD_MUTEX_ERRORCHECK; }
static int owned(const struct mutex_kind *kind) { return recursive(kind) || errorcheck(kind); }

static const struct timespec bad_nanoseconds[] = {{1, -1}, {1, 1000000000}, {4000000000, 1000000000}};
static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
static const clockid_t bad_clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_BOOTTIME,
                                       12345, -1};

static void free_mutex(pthread_mutex_t *m, const struct mutex_kind *kind) {
    struct timespec past = in_the_past(), later = far_away(CLOCK_REALTIME);
    STAGE("free: lock and unlock");
    IN_AND_OUT(pthread_mutex_lock(m), m);
    IN_AND_OUT(pthread_mutex_trylock(m), m);
    STAGE("free: any time will do, the lock is there at once");
    IN_AND_OUT(pthread_mutex_timedlock(m, &later), m);
    IN_AND_OUT(pthread_mutex_timedlock(m, &past), m);
    for (int c = 0; c < 2; c++) {
        IN_AND_OUT(pthread_mutex_clocklock(m, clocks[c], &past), m);
    }
    // POSIX: "the validity of the abstime parameter need not be checked if the mutex can be locked
    // immediately".
    for (int i = 0; i < 3; i++) {
        IN_AND_OUT(pthread_mutex_timedlock(m, &bad_nanoseconds[i]), m);
    }
    STAGE("free: a clock that locks cannot wait on");
    for (int i = 0; i < 5; i++) CALL(pthread_mutex_clocklock(m, bad_clocks[i], &later), EINVAL);
    IN_AND_OUT(pthread_mutex_trylock(m), m);
    STAGE("free: unlock");
    if (owned(kind)) CALL(pthread_mutex_unlock(m), EPERM);
    STAGE("free: calls for robust and priority-protected mutexes");
    int ceiling;
    CALL(pthread_mutex_consistent(m), EINVAL);
    CALL(pthread_mutex_getprioceiling(m, &ceiling), EINVAL);
    CALL(pthread_mutex_setprioceiling(m, 1, &ceiling), EINVAL);
}

static void own_mutex(pthread_mutex_t *m, const struct mutex_kind *kind) {
    struct timespec past = in_the_past(), negative = {-5, 0}, later = far_away(CLOCK_REALTIME);
    OK(pthread_mutex_lock(m));
    STAGE("own: trylock");
    CALL(pthread_mutex_trylock(m), recursive(kind) ? 0 : EBUSY);
    STAGE("own: lock");
    if (owned(kind)) CALL(pthread_mutex_lock(m), recursive(kind) ? 0 : EDEADLK);
    STAGE("own: timed lock");
    int again = recursive(kind) ? 0 : errorcheck(kind) ? EDEADLK : ETIMEDOUT;
    CALL(pthread_mutex_timedlock(m, &past), again);
    CALL(pthread_mutex_timedlock(m, &negative), again);
    CALL(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &past), again);
    CALL(pthread_mutex_clocklock(m, CLOCK_REALTIME, &past), again);
    STAGE("own: bad time");
    int bad = recursive(kind) ? 0 : errorcheck(kind) ? EDEADLK : EINVAL;
    for (int i = 0; i < 3; i++) CALL(pthread_mutex_timedlock(m, &bad_nanoseconds[i]), bad);
    STAGE("own: bad clock");
    for (int i = 0; i < 5; i++) CALL(pthread_mutex_clocklock(m, bad_clocks[i], &later), EINVAL);
    STAGE("own: destroy");
    CALL(pthread_mutex_destroy(m), EBUSY);
    STAGE("own: consistent");
    CALL(pthread_mutex_consistent(m), EINVAL);
    STAGE("own: unlock as often as locked");
    int levels = recursive(kind) ? 1 + 1 + 1 + 4 + 3 : 1;
    for (int i = 0; i < levels; i++) {
        CALL(pthread_mutex_destroy(m), EBUSY);
        OK(pthread_mutex_unlock(m));
    }
    if (owned(kind)) CALL(pthread_mutex_unlock(m), EPERM);
    IN_AND_OUT(pthread_mutex_trylock(m), m);
}

static void destroyed_mutex(pthread_mutex_t *m, const struct mutex_kind *kind) {
    struct timespec past = in_the_past();
    STAGE("destroyed: every call is refused, as by glibc");
    OK(pthread_mutex_destroy(m));
    CALL(pthread_mutex_lock(m), EINVAL);
    CALL(pthread_mutex_trylock(m), EINVAL);
    CALL(pthread_mutex_timedlock(m, &past), EINVAL);
    CALL(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &past), EINVAL);
    CALL(pthread_mutex_unlock(m), EINVAL);
    OK(pthread_mutex_destroy(m));
    STAGE("destroyed: alive again after init");
    make_mutex(m, kind);
    OK(pthread_mutex_lock(m));
    CALL(pthread_mutex_destroy(m), EBUSY);
    OK(pthread_mutex_unlock(m));
    OK(pthread_mutex_destroy(m));
}

static sem_t go, done;
static pthread_mutex_t *volatile shared;

// Holds the mutex between two turns.
static void *holder(void *unused) {
    for (;;) {
        sem_down(&go);
        if (shared == NULL) return NULL;
        OK(pthread_mutex_lock(shared));
        sem_post(&done);
        sem_down(&go);
        OK(pthread_mutex_unlock(shared));
        sem_post(&done);
    }
}

static void foreign_mutex(pthread_mutex_t *m, const struct mutex_kind *kind) {
    struct timespec past = in_the_past(), negative = {-1, 0}, very_negative = {-((time_t)1 << 62), 999999999};
    shared = m;
    sem_post(&go);
    sem_down(&done);
    STAGE("held by another: trylock");
    CALL(pthread_mutex_trylock(m), EBUSY);
    STAGE("held by another: unlock");
    if (owned(kind)) CALL(pthread_mutex_unlock(m), EPERM);
    STAGE("held by another: destroy");
    CALL(pthread_mutex_destroy(m), EBUSY);
    STAGE("held by another: times that have passed");
    CALL(pthread_mutex_timedlock(m, &past), ETIMEDOUT);
    CALL(pthread_mutex_timedlock(m, &negative), ETIMEDOUT);
    CALL(pthread_mutex_timedlock(m, &very_negative), ETIMEDOUT);
    for (int c = 0; c < 2; c++) {
        CALL(pthread_mutex_clocklock(m, clocks[c], &past), ETIMEDOUT);
        CALL(pthread_mutex_clocklock(m, clocks[c], &negative), ETIMEDOUT);
        CALL(pthread_mutex_clocklock(m, clocks[c], &very_negative), ETIMEDOUT);
    }
    STAGE("held by another: not before its time");
    struct timespec soon = after_ms(CLOCK_REALTIME, 2);
    CALL(pthread_mutex_timedlock(m, &soon), ETIMEDOUT);
    CHECK(reached(CLOCK_REALTIME, soon), "timedlock gave up before its time");
    for (int c = 0; c < 2; c++) {
        soon = after_ms(clocks[c], 2);
        CALL(pthread_mutex_clocklock(m, clocks[c], &soon), ETIMEDOUT);
        CHECK(reached(clocks[c], soon), "clocklock on clock %d gave up before its time", (int)clocks[c]);
    }
    STAGE("held by another: bad time");
    for (int i = 0; i < 3; i++) {
        CALL(pthread_mutex_timedlock(m, &bad_nanoseconds[i]), EINVAL);
        CALL(pthread_mutex_clocklock(m, CLOCK_REALTIME, &bad_nanoseconds[i]), EINVAL);
        CALL(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &bad_nanoseconds[i]), EINVAL);
    }
    STAGE("held by another: bad clock");
    for (int i = 0; i < 5; i++) CALL(pthread_mutex_clocklock(m, bad_clocks[i], &past), EINVAL);
    STAGE("held by another: nothing is left behind by those who gave up");
    sem_post(&go);
    sem_down(&done);
    IN_AND_OUT(pthread_mutex_trylock(m), m);
}

// The other thread waits for this one, each way that waits without end or with a distant one.
static int (*volatile waiting_call)(pthread_mutex_t *);
static volatile pid_t waiter_id;

static int wait_lock(pthread_mutex_t *m) { return pthread_mutex_lock(m); }
static int wait_timed(pthread_mutex_t *m) {
    struct timespec t = far_away(CLOCK_REALTIME);
    return pthread_mutex_timedlock(m, &t);
}
static int wait_realtime(pthread_mutex_t *m) {
    struct timespec t = far_away(CLOCK_REALTIME);
    return pthread_mutex_clocklock(m, CLOCK_REALTIME, &t);
}
static int wait_monotonic(pthread_mutex_t *m) {
    struct timespec t = far_away(CLOCK_MONOTONIC);
    return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t);
}
// Further off than a kernel's nanoseconds reach.
static int wait_for_ever(pthread_mutex_t *m) {
    struct timespec t = {(time_t)((~0ULL) >> 1), 999999999};
    return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &t);
}

static void *waiter(void *m) {
    announce(&waiter_id);
    OK(waiting_call((pthread_mutex_t *)m));
    OK(pthread_mutex_unlock((pthread_mutex_t *)m));
    return NULL;
}

static void awaited_mutex(pthread_mutex_t *m) {
    int (*const calls[])(pthread_mutex_t *) = {wait_lock, wait_timed, wait_realtime, wait_monotonic,
                                               wait_for_ever};
    for (int i = 0; i < 5; i++) {
        STAGE("hand-over to a sleeping waiter");
        waiting_call = calls[i];
        waiter_id = 0;
        OK(pthread_mutex_lock(m));
        pthread_t thread = spawn(waiter, m);
        await_asleep(&waiter_id);
        CALL(pthread_mutex_destroy(m), EBUSY);
        OK(pthread_mutex_unlock(m));
        join(thread);
        IN_AND_OUT(pthread_mutex_trylock(m), m);
    }
}

int main(void) {
    limit_seconds(20);
    pthread_mutex_t m;
    for (int threads = 1; threads <= 2; threads++) {
        pthread_t other = 0;
        if (threads == 2) {
            sem_init(&go, 0, 0);
            sem_init(&done, 0, 0);
            other = spawn(holder, NULL);
        }
        for (int k = 0; k < MUTEX_KINDS; k++) {
            CASE(mutex_kinds[k].name);
            make_mutex(&m, &mutex_kinds[k]);
            free_mutex(&m, &mutex_kinds[k]);
            own_mutex(&m, &mutex_kinds[k]);
            if (threads == 2) {
                foreign_mutex(&m, &mutex_kinds[k]);
                awaited_mutex(&m);
                own_mutex(&m, &mutex_kinds[k]);
            }
            destroyed_mutex(&m, &mutex_kinds[k]);
        }
        if (threads == 2) {
            shared = NULL;
            sem_post(&go);
            join(other);
        }
    }
    return 0;
}
