// C11: mtx_*, cnd_*, thrd_*, and their words for the results.
#include "check.h"

enum { THREADS = 6, ROUNDS = 3000 };

static mtx_t m;
static cnd_t c;
static volatile long first, second;
static int turn;

static int adds(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec far = far_away(CLOCK_REALTIME);
        switch ((i + (int)(long)number) % 3) {
        case 0: CALL(mtx_lock(&m), thrd_success); break;
        case 1: CALL(mtx_timedlock(&m, &far), thrd_success); break;
        default:
            for (;;) {
                int result = mtx_trylock(&m);
                if (result == thrd_success) break;
                CHECK(result == thrd_busy, "mtx_trylock: %d", result);
                thrd_yield();
            }
        }
        ALONE(first, second, (void)0);
        CALL(mtx_unlock(&m), thrd_success);
    }
    return (int)(long)number + 7;
}

static int takes_turns(void *number) {
    int me = (int)(long)number;
    CALL(mtx_lock(&m), thrd_success);
    for (int i = 0; i < 500; i++) {
        struct timespec far = far_away(CLOCK_REALTIME);
        while (turn % 2 != me)
            if (i % 2) CALL(cnd_wait(&c, &m), thrd_success);
            else CALL(cnd_timedwait(&c, &m, &far), thrd_success);
        turn++;
        if (i % 3) CALL(cnd_signal(&c), thrd_success);
        else CALL(cnd_broadcast(&c), thrd_success);
    }
    CALL(mtx_unlock(&m), thrd_success);
    return 0;
}

static int tries(void *mutex) { return mtx_trylock((mtx_t *)mutex); }
static int tries_timed(void *mutex) {
    struct timespec soon = after_ms(CLOCK_REALTIME, 3), past = in_the_past(), bad = {1, -1};
    CALL(mtx_timedlock((mtx_t *)mutex, &past), thrd_timedout);
    CALL(mtx_timedlock((mtx_t *)mutex, &bad), thrd_error);
    int result = mtx_timedlock((mtx_t *)mutex, &soon);
    CHECK(reached(CLOCK_REALTIME, soon), "gave up before its time");
    return result;
}

static int elsewhere(thrd_start_t body) {
    thrd_t thread;
    int result;
    CHECK(thrd_create(&thread, body, &m) == thrd_success, "thrd_create");
    CHECK(thrd_join(thread, &result) == thrd_success, "thrd_join");
    return result;
}

static tss_t key;
static volatile int destroyed;
static void destroys(void *value) {
    CALL(mtx_lock(&m), thrd_success);
    destroyed += (int)(long)value;
    CALL(mtx_unlock(&m), thrd_success);
}
static int sets(void *unused) {
    CHECK(tss_set(key, (void *)3L) == thrd_success, "tss_set");
    thrd_exit(0);
}

static once_flag flag = ONCE_FLAG_INIT;
static int called;
static void once(void) { called++; }
static int calls_once(void *unused) {
    call_once(&flag, once);
    return called;
}

static void run(thrd_start_t body, int threads, int offset) {
    thrd_t ids[THREADS];
    for (long i = 0; i < threads; i++) CHECK(thrd_create(&ids[i], body, (void *)i) == thrd_success,
                                             "thrd_create");
    for (int i = 0; i < threads; i++) {
        int result;
        CHECK(thrd_join(ids[i], &result) == thrd_success, "thrd_join");
        CHECK(result == (offset ? i + offset : 0), "thread %d returned %d", i, result);
    }
}

int main(void) {
    limit_seconds(30);
    // glibc takes kinds that the standard does not know for the plain one.
    static const int types[] = {mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive,
                                4,         0x1005,    -2};
    static const char *const names[] = {"plain",  "timed",     "plain recursive", "timed recursive",
                                        "kind 4", "kind 4101", "kind -2"};
    for (int t = 0; t < 7; t++) {
        CASE(names[t]);
        int recursive = types[t] == (mtx_plain | mtx_recursive) || types[t] == (mtx_timed | mtx_recursive);
        STAGE("mutex");
        memset(&m, 0xa5, sizeof m);
        CALL(mtx_init(&m, types[t]), thrd_success);
        CALL(mtx_lock(&m), thrd_success);
        CALL(mtx_trylock(&m), recursive ? thrd_success : thrd_busy);
        if (recursive) {
            CALL(mtx_lock(&m), thrd_success);
            CALL(mtx_unlock(&m), thrd_success);
            CALL(mtx_unlock(&m), thrd_success);
        }
        CHECK(elsewhere(tries) == thrd_busy, "taken twice");
        CHECK(elsewhere(tries_timed) == thrd_timedout, "no time-out");
        CALL(mtx_unlock(&m), thrd_success);
        if (recursive) CALL(mtx_unlock(&m), thrd_error);
        first = second = 0;
        run(adds, THREADS, 7);
        CHECK(first == (long)THREADS * ROUNDS, "%ld of %d additions", first, THREADS * ROUNDS);

        STAGE("condition variable");
        memset(&c, 0x5a, sizeof c);
        CALL(cnd_init(&c), thrd_success);
        turn = 0;
        run(takes_turns, 2, 0);
        CHECK(turn == 1000, "%d turns", turn);
        CALL(mtx_lock(&m), thrd_success);
        struct timespec past = in_the_past(), bad = {1, 1000000000}, soon = after_ms(CLOCK_REALTIME, 3);
        CALL(cnd_timedwait(&c, &m, &past), thrd_timedout);
        CALL(cnd_timedwait(&c, &m, &bad), thrd_error);
        int result;
        while ((result = cnd_timedwait(&c, &m, &soon)) == thrd_success) continue;
        CHECK(result == thrd_timedout && reached(CLOCK_REALTIME, soon), "cnd_timedwait: %d", result);
        CHECK(elsewhere(tries) == thrd_busy, "the mutex is not held after a time-out");
        CALL(mtx_unlock(&m), thrd_success);
        cnd_destroy(&c);

        STAGE("thread-specific storage, destroyed under the mutex");
        CHECK(tss_create(&key, destroys) == thrd_success, "tss_create");
        destroyed = 0;
        run(sets, THREADS, 0);
        CHECK(destroyed == 3 * THREADS, "destroyed: %d", destroyed);
        tss_delete(key);
        mtx_destroy(&m);
    }
    CASE("");
    STAGE("once");
    CHECK(mtx_init(&m, mtx_plain) == thrd_success, "mtx_init");
    for (int i = 0; i < 3; i++) CHECK(elsewhere(calls_once) == 1, "called %d times", called);
    return 0;
}
