// Waiting on a condition variable is a cancellation point, and the mutex is held again when the cleanup
// handlers run. Taking a mutex is none, and no other call here is.
#include "check.h"

static const struct mutex_kind kinds[] = {
    {"normal", PTHREAD_MUTEX_NORMAL, MAKE_STATIC},
    {"recursive", PTHREAD_MUTEX_RECURSIVE, MAKE_STATIC},
    {"errorcheck", PTHREAD_MUTEX_ERRORCHECK, MAKE_STATIC},
    {"adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, MAKE_STATIC},
    {"robust errorcheck", -1, MAKE_ATTRIBUTE},
    {"priority-inheriting errorcheck", -2, MAKE_ATTRIBUTE},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct mutex_kind *kind;
static pthread_mutex_t m;
static pthread_cond_t c;
static volatile int waiting, told, cleaned, main_holds, way;

static void make(void) {
    if (kind->type >= 0) {
        make_mutex(&m, kind);
    } else {
        pthread_mutexattr_t a;
        OK(pthread_mutexattr_init(&a));
        OK(pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK));
        if (kind->type == -1) OK(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST));
        else OK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT));
        OK(pthread_mutex_init(&m, &a));
    }
    OK(pthread_cond_init(&c, NULL));
    waiting = told = cleaned = main_holds = 0;
}

static void unmake(void) {
    OK(pthread_cond_destroy(&c));
    OK(pthread_mutex_destroy(&m));
}

// What a cleanup handler has to find: this thread, and no other, holds the mutex.
static void check_held_and_unlock(void) {
    CHECK(!main_holds, "cleanup runs while another thread holds the mutex");
    if (kind->type == PTHREAD_MUTEX_ERRORCHECK || kind->type < 0) {
        CALL(pthread_mutex_lock(&m), EDEADLK);
    } else if (kind->type == PTHREAD_MUTEX_RECURSIVE) {
        IN_AND_OUT(pthread_mutex_trylock(&m), &m);
    } else {
        CALL(pthread_mutex_trylock(&m), EBUSY);
    }
    waiting--;
    cleaned++;
    OK(pthread_mutex_unlock(&m));
    // Once is enough: it was held one level deep.
    if (kind->type == PTHREAD_MUTEX_RECURSIVE || kind->type == PTHREAD_MUTEX_ERRORCHECK || kind->type < 0)
        CALL(pthread_mutex_unlock(&m), EPERM);
}

static void cleanup(void *argument) {
    CHECK(argument == &m, "the cleanup handler's argument changed");
    check_held_and_unlock();
}

static int wait_once(void) {
    struct timespec far = far_away(way == 3 ? CLOCK_MONOTONIC : CLOCK_REALTIME);
    switch (way) {
    case 0: return pthread_cond_wait(&c, &m);
    case 1: return pthread_cond_timedwait(&c, &m, &far);
    case 2: return pthread_cond_clockwait(&c, &m, CLOCK_REALTIME, &far);
    case 3: return pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &far);
    case 4: return cnd_wait((cnd_t *)&c, (mtx_t *)&m);
    default: return cnd_timedwait((cnd_t *)&c, (mtx_t *)&m, &far);
    }
}
enum { WAYS = 6 };

static void *waiter(void *returned) {
    OK(pthread_mutex_lock(&m));
    waiting++;
    pthread_cleanup_push(cleanup, &m);
    while (!told) OK(wait_once());
    pthread_cleanup_pop(0);
    waiting--;
    OK(pthread_mutex_unlock(&m));
    return returned;
}

static void lock_when_waiting(int n) {
    for (;;) {
        OK(pthread_mutex_lock(&m));
        if (waiting == n) return;
        OK(pthread_mutex_unlock(&m));
        sched_yield();
    }
}

static void cancelled_while_it_waits(void) {
    STAGE("cancelled while it waits");
    for (int held = 0; held < 2; held++) {
        make();
        pthread_t thread = spawn(waiter, NULL);
        lock_when_waiting(1);
        if (held) {
            main_holds = 1;
            MUST(pthread_cancel(thread));
            // A chance to run too early.
            for (int i = 0; i < 20; i++) sched_yield();
            CHECK(!cleaned, "cleanup ran while the mutex was held here");
            main_holds = 0;
            OK(pthread_mutex_unlock(&m));
        } else {
            OK(pthread_mutex_unlock(&m));
            MUST(pthread_cancel(thread));
        }
        CHECK(join(thread) == PTHREAD_CANCELED, "not cancelled");
        CHECK(cleaned == 1, "cleaned %d times", cleaned);
        IN_AND_OUT(pthread_mutex_trylock(&m), &m);
        unmake();
    }
}

static void cancelled_among_others(void) {
    STAGE("cancelled among others, who are all still woken");
    enum { N = 6 };
    for (int broadcast = 0; broadcast < 2; broadcast++) {
        make();
        pthread_t threads[N];
        for (int i = 0; i < N; i++) threads[i] = spawn(waiter, NULL);
        lock_when_waiting(N);
        OK(pthread_mutex_unlock(&m));
        for (int i = 0; i < N; i += 2) MUST(pthread_cancel(threads[i]));
        for (int i = 0; i < N; i += 2) CHECK(join(threads[i]) == PTHREAD_CANCELED, "not cancelled");
        OK(pthread_mutex_lock(&m));
        CHECK(waiting == N / 2 && cleaned == N / 2, "%d wait, %d cleaned up", waiting, cleaned);
        told = 1;
        if (broadcast) OK(pthread_cond_broadcast(&c));
        else
            for (int i = 0; i < N / 2; i++) OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        for (int i = 1; i < N; i += 2) CHECK(join(threads[i]) == NULL, "not returned");
        unmake();
    }
}

static void *disabled(void *returned) {
    int old;
    MUST(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    OK(pthread_mutex_lock(&m));
    waiting++;
    while (!told) OK(wait_once());
    OK(pthread_mutex_unlock(&m));
    MUST(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
    CHECK(old == PTHREAD_CANCEL_DISABLE, "the wait enabled cancellation");
    cleaned = 5;
    pthread_testcancel();
    return returned;
}

static void cancellation_disabled(void) {
    STAGE("cancellation disabled while it waits");
    make();
    pthread_t thread = spawn(disabled, NULL);
    lock_when_waiting(1);
    MUST(pthread_cancel(thread));
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < 20; i++) sched_yield();
    OK(pthread_mutex_lock(&m));
    CHECK(cleaned == 0, "the thread left its wait");
    told = 1;
    OK(pthread_cond_signal(&c));
    OK(pthread_mutex_unlock(&m));
    CHECK(join(thread) == PTHREAD_CANCELED && cleaned == 5, "the request was lost");
    unmake();
}

static void *pending_at_entry(void *past) {
    OK(pthread_mutex_lock(&m));
    waiting++;
    MUST(pthread_cancel(pthread_self()));
    pthread_cleanup_push(cleanup, &m);
    if (past) {
        struct timespec t = in_the_past();
        if (way % 2) pthread_cond_timedwait(&c, &m, &t);
        else pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &t);
    } else {
        wait_once();
    }
    FAIL("a wait with a pending request returned");
    pthread_cleanup_pop(0);
    return NULL;
}

static void pending(void) {
    STAGE("a request pending at entry");
    for (long past = 0; past < 2; past++) {
        make();
        CHECK(join(spawn(pending_at_entry, (void *)past)) == PTHREAD_CANCELED, "not cancelled");
        CHECK(cleaned == 1, "cleaned %d times", cleaned);
        IN_AND_OUT(pthread_mutex_trylock(&m), &m);
        unmake();
    }
}

// A wait with an argument that is refused is no cancellation point: it returns the error, and a request to
// cancel that is pending stays so.
static void *refused_with_a_request(void *unused) {
    static pthread_mutex_t others = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
                           recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    struct timespec far = far_away(CLOCK_REALTIME);
    OK(pthread_mutex_lock(&m));
    waiting++;
    pthread_cleanup_push(cleanup, &m);
    MUST(pthread_cancel(pthread_self()));
    static const long bad[] = {-1, 1000000000, 1L << 40};
    for (int i = 0; i < 3; i++) {
        struct timespec t = {far.tv_sec, bad[i]};
        CALL(pthread_cond_timedwait(&c, &m, &t), EINVAL);
        CALL(pthread_cond_clockwait(&c, &m, CLOCK_REALTIME, &t), EINVAL);
        CALL(pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &t), EINVAL);
        CALL(cnd_timedwait((cnd_t *)&c, (mtx_t *)&m, &t), thrd_error);
    }
    CALL(pthread_cond_clockwait(&c, &m, CLOCK_PROCESS_CPUTIME_ID, &far), EINVAL);
    CALL(pthread_cond_clockwait(&c, &m, 77, &far), EINVAL);
    CALL(pthread_cond_wait(&c, &others), EPERM);
    CALL(pthread_cond_timedwait(&c, &others, &far), EPERM);
    CALL(pthread_cond_clockwait(&c, &recursive, CLOCK_MONOTONIC, &far), EPERM);
    CHECK(cleaned == 0, "cancelled by a wait that was refused");
    if (way == 0) pthread_testcancel();
    else wait_once();
    FAIL("not cancelled");
    pthread_cleanup_pop(0);
    return unused;
}

static void refused(void) {
    STAGE("waits that are refused, with a request pending");
    make();
    CHECK(join(spawn(refused_with_a_request, NULL)) == PTHREAD_CANCELED, "not cancelled");
    CHECK(cleaned == 1, "cleaned %d times", cleaned);
    unmake();
}

static volatile pid_t blocked_id;

static void *only_locks(void *returned) {
    struct timespec far = far_away(CLOCK_REALTIME);
    announce(&blocked_id);
    // Blocks, with the request arriving meanwhile, and then goes through every call with the request pending.
    switch (way % 3) {
    case 0: OK(pthread_mutex_lock(&m)); break;
    case 1: OK(pthread_mutex_timedlock(&m, &far)); break;
    default: OK(pthread_mutex_clocklock(&m, CLOCK_REALTIME, &far)); break;
    }
    OK(pthread_mutex_unlock(&m));
    IN_AND_OUT(pthread_mutex_trylock(&m), &m);
    OK(pthread_mutex_lock(&m));
    OK(pthread_cond_signal(&c));
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    pthread_cond_t other;
    OK(pthread_cond_init(&other, NULL));
    OK(pthread_cond_destroy(&other));
    cleaned = 9;
    pthread_testcancel();
    FAIL("no request is pending");
    return returned;
}

static void locking_is_no_cancellation_point(void) {
    STAGE("locking is no cancellation point");
    make();
    blocked_id = 0;
    OK(pthread_mutex_lock(&m));
    pthread_t thread = spawn(only_locks, NULL);
    await_asleep(&blocked_id);
    MUST(pthread_cancel(thread));
    for (int i = 0; i < 20; i++) sched_yield();
    OK(pthread_mutex_unlock(&m));
    CHECK(join(thread) == PTHREAD_CANCELED && cleaned == 9, "cancelled while it took a lock");
    unmake();
}

static void *keeps_type(void *type) {
    int old;
    MUST(pthread_setcanceltype((int)(long)type, &old));
    OK(pthread_mutex_lock(&m));
    waiting++;
    while (!told) OK(wait_once());
    OK(pthread_mutex_unlock(&m));
    struct timespec t = in_the_past();
    OK(pthread_mutex_lock(&m));
    CALL(pthread_cond_timedwait(&c, &m, &t), ETIMEDOUT);
    OK(pthread_mutex_unlock(&m));
    MUST(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old));
    CHECK(old == (int)(long)type, "the wait left the cancellation type changed");
    MUST(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old));
    CHECK(old == PTHREAD_CANCEL_ENABLE, "the wait left cancellation disabled");
    return NULL;
}

static void type_is_kept(void) {
    STAGE("the cancellation type is kept");
    for (int i = 0; i < 2; i++) {
        make();
        pthread_t thread = spawn(keeps_type,
                                 (void *)(long)(i ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED));
        lock_when_waiting(1);
        told = 1;
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        CHECK(join(thread) == NULL, "cancelled");
        unmake();
    }
}

// POSIX does not promise that a thread may wait like this; with glibc it may, once it sleeps: until then it
// may be cancelled between the release of the mutex and the place from which glibc takes it again.
static void *waits_asynchronously(void *unused) {
    int old;
    OK(pthread_mutex_lock(&m));
    waiting++;
    pthread_cleanup_push(cleanup, &m);
    MUST(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    announce(&blocked_id);
    while (!told) OK(wait_once());
    MUST(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old));
    CHECK(old == PTHREAD_CANCEL_ASYNCHRONOUS, "the wait changed the cancellation type");
    pthread_cleanup_pop(0);
    waiting--;
    OK(pthread_mutex_unlock(&m));
    return unused;
}

static void exits_from_cleanup(void *argument) {
    // Without -fexceptions glibc starts again with the handler that called pthread_exit.
    if (cleaned) return;
    cleanup(argument);
    pthread_exit((void *)77L);
}

static void *ends_otherwise(void *unused) {
    OK(pthread_mutex_lock(&m));
    waiting++;
    pthread_cleanup_push(exits_from_cleanup, &m);
    while (!told) OK(wait_once());
    pthread_cleanup_pop(0);
    return unused;
}

static void *exits_holding(void *unused) {
    OK(pthread_mutex_lock(&m));
    waiting++;
    pthread_cleanup_push(cleanup, &m);
    pthread_exit((void *)55L);
    pthread_cleanup_pop(0);
    return unused;
}

static void exits(void) {
    STAGE("pthread_exit from a cleanup handler");
    make();
    pthread_t thread = spawn(ends_otherwise, NULL);
    lock_when_waiting(1);
    OK(pthread_mutex_unlock(&m));
    MUST(pthread_cancel(thread));
    CHECK(join(thread) == (void *)77L, "pthread_exit's value was lost");
    CHECK(cleaned == 1, "cleaned %d times", cleaned);
    STAGE("pthread_exit with a mutex held, which a cleanup handler unlocks");
    CHECK(join(spawn(exits_holding, NULL)) == (void *)55L, "pthread_exit's value was lost");
    CHECK(cleaned == 2, "cleaned %d times", cleaned);
    IN_AND_OUT(pthread_mutex_lock(&m), &m);
    STAGE("cancelled while it waits, asynchronously");
    blocked_id = 0;
    thread = spawn(waits_asynchronously, NULL);
    lock_when_waiting(1);
    OK(pthread_mutex_unlock(&m));
    await_asleep(&blocked_id);
    MUST(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED && cleaned == 3, "not cancelled");
    unmake();
}

int main(void) {
    limit_seconds(40);
    for (int k = 0; k < KINDS; k++) {
        kind = &kinds[k];
        CASE(kind->name);
        for (way = 0; way < WAYS; way++) {
            cancelled_while_it_waits();
            cancelled_among_others();
            cancellation_disabled();
            pending();
            refused();
            locking_is_no_cancellation_point();
            type_is_kept();
            exits();
        }
    }
    return 0;
}
