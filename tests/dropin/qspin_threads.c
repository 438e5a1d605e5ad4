// Threads that come and go around a spinlock: more of them, in all, than any table of threads begins with;
// some that end right after they unlocked, while others wait; some that unlock in a destructor of
// thread-specific data; and some that have been asked to cancel when they come to the lock, which is no
// cancellation point.
#include "check.h"

enum { GENERATIONS = 20, EACH = 6 };

static pthread_spinlock_t lock;
static volatile long first, second;
static pthread_key_t key;

static void once(void) {
    OK(pthread_spin_lock(&lock));
    ALONE(first, second, for (volatile int spin = 0; spin < 200; spin++) continue);
}

static void in_destructor(void *value) {
    if (value == (void *)&key) {
        // It holds the lock since before its function returned.
        OK(pthread_spin_unlock(&lock));
        return;
    }
    once();
    OK(pthread_spin_unlock(&lock));
}

static void *short_life(void *number) {
    long way = (long)number % 3;
    once();
    if (way == 0) {
        MUST(pthread_setspecific(key, (void *)&key));
        return NULL;
    }
    OK(pthread_spin_unlock(&lock));
    if (way == 1) MUST(pthread_setspecific(key, (void *)&lock));
    if (way == 2) pthread_exit(NULL);
    return NULL;
}

static void generations(void) {
    long expected = 0;
    for (int g = 0; g < GENERATIONS; g++) {
        pthread_t threads[EACH];
        // All of them come upon a lock that is held.
        OK(pthread_spin_lock(&lock));
        for (long i = 0; i < EACH; i++) threads[i] = spawn(short_life, (void *)i);
        sched_yield();
        OK(pthread_spin_unlock(&lock));
        for (int i = 0; i < EACH; i++) join(threads[i]);
        expected += EACH + EACH / 3;
        CHECK(first == expected && second == first, "generation %d: %ld of %ld", g, first, expected);
        CALL(pthread_spin_trylock(&lock), 0);
        OK(pthread_spin_unlock(&lock));
    }
}

// --- cancellation

static volatile int arrived, beyond, cleaned;

static void clean(void *unused) {
    cleaned++;
}

static void *cancelled(void *pending) {
    pthread_cleanup_push(clean, NULL);
    MUST(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    arrived = 1;
    // With `pending` the request is there before the call, else it comes while the call waits.
    if (pending) while (arrived != 2) sched_yield();
    MUST(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    errno = ERRNO_SENTINEL;
    int result = pthread_spin_lock(&lock);
    CHECK(result == 0 && errno == ERRNO_SENTINEL, "lock: %d, errno %d", result, errno);
    CALL(pthread_spin_trylock(&lock), EBUSY);
    OK(pthread_spin_unlock(&lock));
    IN_AND_OUT(pthread_spin_trylock(&lock), &lock);
    beyond = 1;
    while (arrived != 2) sched_yield();
    pthread_testcancel();
    FAIL("the request is gone");
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancel(int pending, int held) {
    arrived = beyond = cleaned = 0;
    if (held) OK(pthread_spin_lock(&lock));
    pthread_t thread = spawn(cancelled, pending ? (void *)&key : NULL);
    while (!arrived) sched_yield();
    if (!pending) usleep(300); // before, in, or beyond the lock: all is well in each case
    MUST(pthread_cancel(thread));
    arrived = 2;
    if (held) {
        usleep(500);
        CHECK(!beyond && !cleaned, "it did not wait for the lock");
        OK(pthread_spin_unlock(&lock));
    }
    CHECK(join(thread) == PTHREAD_CANCELED, "the thread was not cancelled");
    CHECK(beyond && cleaned == 1, "cancelled in a spinlock: %d %d", beyond, cleaned);
}

int main(void) {
    limit_seconds(60);
    MUST(pthread_key_create(&key, in_destructor));
    OK(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    STAGE("short lives");
    generations();
    STAGE("cancellation");
    for (int i = 0; i < 12; i++) cancel(i & 1, i & 2);
    OK(pthread_spin_destroy(&lock));
    return 0;
}
