// Semaphores, barriers, the ends of threads and futex calls: glibc's and the kernel's, which answer as they do
// whether the calls are counted or not. The waits that are cancellation points still are: with a request from
// before the call, and with one that comes while the thread waits; and the handlers for it may wait again.
#include "check.h"
#include <linux/futex.h>

static sem_t free_one, empty;
static pthread_barrier_t barrier;
static pthread_t target;
static int handled;

static void handler(void *unused) {
    (void)unused;
    struct timespec past = {1, 0};
    CHECK(sem_timedwait(&empty, &past) == -1 && errno == ETIMEDOUT, "a wait in a handler");
    handled++;
}

#define CANCELLED_IN(name, call)                     \
    static void *name(void *unused) {                \
        pthread_cleanup_push(handler, unused);       \
        call;                                        \
        pthread_cleanup_pop(0);                      \
        return unused;                               \
    }
CANCELLED_IN(in_semaphore, sem_wait(&empty))
CANCELLED_IN(in_join, pthread_join(target, NULL))

static void *in_timed_semaphore(void *unused) {
    struct timespec time = far_away(CLOCK_REALTIME);
    pthread_cleanup_push(handler, unused);
    sem_timedwait(&empty, &time);
    pthread_cleanup_pop(0);
    return unused;
}

static void *in_clocked_semaphore(void *unused) {
    struct timespec time = far_away(CLOCK_MONOTONIC);
    pthread_cleanup_push(handler, unused);
    sem_clockwait(&empty, CLOCK_MONOTONIC, &time);
    pthread_cleanup_pop(0);
    return unused;
}

static void *in_timed_join(void *unused) {
    struct timespec time = far_away(CLOCK_REALTIME);
    pthread_cleanup_push(handler, unused);
    pthread_timedjoin_np(target, NULL, &time);
    pthread_cleanup_pop(0);
    return unused;
}

static int go;
static volatile pid_t waiter;

// A request that is there before the call, though the call would not wait.
static void *cancelled_before(void *unused) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE)) sched_yield();
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    sem_wait(&free_one);
    return unused;
}

static void *announced(void *body) {
    announce(&waiter);
    return ((void *(*)(void *))body)(NULL);
}

static void *until_told(void *unused) {
    sem_wait(&free_one);
    return unused;
}

static void cancellation(void) {
    STAGE("a request from before the call");
    pthread_t thread;
    void *result;
    OK(pthread_create(&thread, NULL, cancelled_before, NULL));
    OK(pthread_cancel(thread));
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    OK(pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED, "not cancelled");
    int value = 0;
    OK(sem_getvalue(&free_one, &value));
    CHECK(value == 1, "a cancelled thread took the semaphore");

    STAGE("a request during the call");
    OK(sem_wait(&free_one));
    OK(pthread_create(&target, NULL, until_told, NULL));
    void *(*const bodies[])(void *) = {in_semaphore, in_timed_semaphore, in_clocked_semaphore, in_join,
                                       in_timed_join};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        waiter = 0;
        OK(pthread_create(&thread, NULL, announced, (void *)bodies[i]));
        await_asleep(&waiter);
        OK(pthread_cancel(thread));
        OK(pthread_join(thread, &result));
        CHECK(result == PTHREAD_CANCELED, "body %zu was not cancelled", i);
        CHECK(handled == (int)i + 1, "body %zu: %d handlers ran", i, handled);
    }
    OK(sem_post(&free_one));
    OK(pthread_join(target, NULL));
    OK(sem_post(&free_one));
}

static int word;

static void results(void) {
    STAGE("results");
    struct timespec past = {1, 0}, wrong = {1, -1};
    // glibc judges the time whether it needs it or not.
    CHECK(sem_timedwait(&free_one, &wrong) == -1 && errno == EINVAL, "a wrong time");
    CHECK(sem_clockwait(&free_one, CLOCK_PROCESS_CPUTIME_ID, &past) == -1 && errno == EINVAL, "a wrong clock");
    OK(sem_timedwait(&free_one, &past));
    CHECK(sem_timedwait(&free_one, &past) == -1 && errno == ETIMEDOUT, "none there");
    CHECK(sem_clockwait(&free_one, CLOCK_MONOTONIC, &past) == -1 && errno == ETIMEDOUT, "none there");
    OK(sem_post(&free_one));
    OK(sem_clockwait(&free_one, CLOCK_MONOTONIC, &past));
    OK(sem_post(&free_one));

    CALL(pthread_join(pthread_self(), NULL), EDEADLK);
    OK(sem_wait(&free_one));
    pthread_t thread;
    OK(pthread_create(&thread, NULL, until_told, &word));
    CALL(pthread_timedjoin_np(thread, NULL, &past), ETIMEDOUT);
    CALL(pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &past), ETIMEDOUT);
    OK(sem_post(&free_one));
    void *result = NULL;
    struct timespec time = far_away(CLOCK_MONOTONIC);
    OK(pthread_clockjoin_np(thread, &result, CLOCK_MONOTONIC, &time));
    CHECK(result == &word, "the thread's result");
    OK(sem_post(&free_one));

    struct timespec none = {0, 0};
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0) == -1 && errno == EAGAIN,
          "another value");
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &none, NULL, 0) == -1 && errno == ETIMEDOUT,
          "no time");
    // The last argument is the seventh of the function, and is given on the stack: no bit of it is an error.
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 0) == -1 && errno == EINVAL,
          "no bits");
    CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &past, NULL, 1) == -1 && errno == ETIMEDOUT,
          "one bit");
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0, "nobody to wake");
}

static int serial;

static void *rounds(void *unused) {
    for (int i = 0; i < 1000; i++) {
        int result = pthread_barrier_wait(&barrier);
        if (result == PTHREAD_BARRIER_SERIAL_THREAD) __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
        else CHECK(result == 0, "a barrier's result is %d", result);
    }
    return unused;
}

static int seven(void *unused) {
    (void)unused;
    return 7;
}

int main(void) {
    limit_seconds(60);
    OK(sem_init(&free_one, 0, 1));
    OK(sem_init(&empty, 0, 0));
    results();
    cancellation();
    STAGE("barriers");
    OK(pthread_barrier_init(&barrier, NULL, 3));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) OK(pthread_create(&threads[i], NULL, rounds, NULL));
    for (int i = 0; i < 3; i++) OK(pthread_join(threads[i], NULL));
    CHECK(serial == 1000, "%d rounds had a serial thread", serial);
    STAGE("C11");
    thrd_t thread;
    int result = 0;
    CHECK(thrd_create(&thread, seven, NULL) == thrd_success, "thrd_create");
    CHECK(thrd_join(thread, &result) == thrd_success && result == 7, "thrd_join");
    return 0;
}
