// What each call on a condition variable returns, on each clock, with each type of mutex; and that the mutex
// is held afterwards, to the depth it had, whatever was returned.
#include "check.h"

static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC};
static const clockid_t bad_clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, CLOCK_BOOTTIME,
                                       12345, -1};

static void *trylock_elsewhere(void *m) { return (void *)(long)pthread_mutex_trylock((pthread_mutex_t *)m); }

// Another thread finds it taken. (Asking the owner would do for none but errorcheck.)
static void held(pthread_mutex_t *m) {
    long result = (long)join(spawn(trylock_elsewhere, m));
    CHECK(result == EBUSY, "the mutex is not held: trylock elsewhere gave %ld (%s)", result,
          strerror((int)result));
}

// A wait with nobody to signal ends with ETIMEDOUT; POSIX lets it end early with 0, now and then.
#define TIMES_OUT(call)                                                                                      \
    do {                                                                                                     \
        int spurious_ = 0;                                                                                   \
        for (;;) {                                                                                           \
            errno = ERRNO_SENTINEL;                                                                          \
            int result_ = (call);                                                                            \
            CHECK(errno == ERRNO_SENTINEL, "%s: changed errno to %d", #call, errno);                         \
            if (result_ == ETIMEDOUT) break;                                                                 \
            CHECK(result_ == 0, "%s: got %d (%s), expected ETIMEDOUT", #call, result_, strerror(result_));   \
            CHECK(++spurious_ < 5, "%s: woke %d times without a signal", #call, spurious_);                  \
        }                                                                                                    \
    } while (0)

static void times(pthread_cond_t *c, pthread_mutex_t *m, clockid_t own_clock) {
    struct timespec past = in_the_past(), negative = {-1, 0}, soon;
    STAGE("a time that has passed");
    TIMES_OUT(pthread_cond_timedwait(c, m, &past));
    TIMES_OUT(pthread_cond_timedwait(c, m, &negative));
    held(m);
    for (int i = 0; i < 2; i++) {
        TIMES_OUT(pthread_cond_clockwait(c, m, clocks[i], &past));
        TIMES_OUT(pthread_cond_clockwait(c, m, clocks[i], &negative));
    }
    held(m);
    STAGE("not before its time");
    soon = after_ms(own_clock, 1);
    TIMES_OUT(pthread_cond_timedwait(c, m, &soon));
    CHECK(reached(own_clock, soon), "timedwait gave up before its time");
    held(m);
    for (int i = 0; i < 2; i++) {
        soon = after_ms(clocks[i], 1);
        TIMES_OUT(pthread_cond_clockwait(c, m, clocks[i], &soon));
        CHECK(reached(clocks[i], soon), "clockwait gave up before its time");
        held(m);
    }
    STAGE("bad time");
    struct timespec bad[] = {{now(own_clock).tv_sec + 1000, -1}, {now(own_clock).tv_sec + 1000, 1000000000},
                             {0, -1}};
    for (int i = 0; i < 3; i++) {
        CALL(pthread_cond_timedwait(c, m, &bad[i]), EINVAL);
        CALL(pthread_cond_clockwait(c, m, CLOCK_REALTIME, &bad[i]), EINVAL);
        CALL(pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, &bad[i]), EINVAL);
        held(m);
    }
    STAGE("bad clock");
    for (int i = 0; i < 5; i++) CALL(pthread_cond_clockwait(c, m, bad_clocks[i], &past), EINVAL);
    held(m);
}

static pthread_cond_t shared_cond;
static pthread_mutex_t *shared_mutex;
static volatile int told;

static void *teller(void *broadcast) {
    OK(pthread_mutex_lock(shared_mutex));
    told = 1;
    if (broadcast) OK(pthread_cond_broadcast(&shared_cond));
    else OK(pthread_cond_signal(&shared_cond));
    OK(pthread_mutex_unlock(shared_mutex));
    return NULL;
}

static void woken(pthread_mutex_t *m) {
    STAGE("woken in time, by each way of waiting");
    struct timespec realtime = far_away(CLOCK_REALTIME), monotonic = far_away(CLOCK_MONOTONIC);
    shared_mutex = m;
    OK(pthread_cond_init(&shared_cond, NULL));
    for (int way = 0; way < 4; way++) {
        for (long broadcast = 0; broadcast < 2; broadcast++) {
            told = 0;
            pthread_t thread = spawn(teller, (void *)broadcast);
            while (!told) switch (way) {
                case 0: OK(pthread_cond_wait(&shared_cond, m)); break;
                case 1: OK(pthread_cond_timedwait(&shared_cond, m, &realtime)); break;
                case 2: OK(pthread_cond_clockwait(&shared_cond, m, CLOCK_REALTIME, &realtime)); break;
                default: OK(pthread_cond_clockwait(&shared_cond, m, CLOCK_MONOTONIC, &monotonic)); break;
                }
            join(thread);
            held(m);
        }
    }
    OK(pthread_cond_destroy(&shared_cond));
}

static void each_mutex(const struct mutex_kind *kind) {
    struct timespec past = in_the_past(), soon;
    CASE(kind->name);
    pthread_mutex_t m;
    make_mutex(&m, kind);
    OK(pthread_mutex_lock(&m));
    static const pthread_cond_t initial = PTHREAD_COND_INITIALIZER;
    pthread_cond_t c = initial;
    times(&c, &m, CLOCK_REALTIME);
    OK(pthread_cond_destroy(&c));
    memset(&c, 0x5a, sizeof c);
    OK(pthread_cond_init(&c, NULL));
    times(&c, &m, CLOCK_REALTIME);
    OK(pthread_cond_destroy(&c));
    for (int i = 0; i < 2; i++) {
        pthread_condattr_t attribute;
        clockid_t got;
        OK(pthread_condattr_init(&attribute));
        OK(pthread_condattr_setclock(&attribute, clocks[i]));
        OK(pthread_condattr_getclock(&attribute, &got));
        CHECK(got == clocks[i], "condattr_getclock gave %d", (int)got);
        memset(&c, 0x5a, sizeof c);
        OK(pthread_cond_init(&c, &attribute));
        OK(pthread_condattr_destroy(&attribute));
        times(&c, &m, clocks[i]);
        OK(pthread_cond_destroy(&c));
    }
    woken(&m);
    OK(pthread_mutex_unlock(&m));

    c = initial;
    if (kind->type == PTHREAD_MUTEX_ERRORCHECK) {
        STAGE("waiting without the mutex");
        CALL(pthread_cond_wait(&c, &m), EPERM);
        soon = after_ms(CLOCK_REALTIME, 1);
        CALL(pthread_cond_timedwait(&c, &m, &soon), EPERM);
        CALL(pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &past), EPERM);
        // Nobody is left waiting who could swallow a signal.
        shared_mutex = &m;
        OK(pthread_mutex_lock(&m));
        woken(&m);
        OK(pthread_mutex_unlock(&m));
    }
    if (kind->type == PTHREAD_MUTEX_RECURSIVE) {
        STAGE("waiting two levels deep: glibc gives up one of them only");
        OK(pthread_mutex_lock(&m));
        OK(pthread_mutex_lock(&m));
        soon = after_ms(CLOCK_REALTIME, 2);
        TIMES_OUT(pthread_cond_timedwait(&c, &m, &soon));
        held(&m);
        OK(pthread_mutex_unlock(&m));
        held(&m);
        OK(pthread_mutex_unlock(&m));
        CALL(pthread_mutex_unlock(&m), EPERM);
    }
    STAGE("signals that nobody waits for");
    for (int i = 0; i < 3; i++) {
        OK(pthread_cond_signal(&c));
        OK(pthread_cond_broadcast(&c));
    }
    OK(pthread_cond_destroy(&c));
    OK(pthread_mutex_destroy(&m));
}

int main(void) {
    limit_seconds(20);
    for (int k = 0; k < MUTEX_KINDS; k++) each_mutex(&mutex_kinds[k]);
    return 0;
}
