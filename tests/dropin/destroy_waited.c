// A mutex with which somebody waits on a condition variable is in use, whether somebody holds it or not:
// destroying it is refused, and changes nothing. Once the wait is over, however it ended, it can be
// destroyed.
#include "check.h"

static pthread_mutex_t m;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static volatile pid_t announced;
static int go, depth;

static void unlocks(void *unused) {
    OK(pthread_mutex_unlock(&m));
}

static void *waits(void *timed) {
    OK(pthread_mutex_lock(&m));
    for (int i = 1; i < depth; i++) OK(pthread_mutex_lock(&m));
    pthread_cleanup_push(unlocks, NULL);
    announce(&announced);
    if (timed != NULL) {
        struct timespec soon = after_ms(CLOCK_REALTIME, 3);
        CALL(pthread_cond_timedwait(&c, &m, &soon), ETIMEDOUT);
    } else {
        while (!go) OK(pthread_cond_wait(&c, &m));
    }
    CALL(pthread_mutex_destroy(&m), EBUSY);
    pthread_cleanup_pop(0);
    for (int i = 0; i < depth; i++) OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *holds_and_destroys(void *unused) {
    OK(pthread_mutex_lock(&m));
    CALL(pthread_mutex_destroy(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *locks(void *unused) {
    announce(&announced);
    OK(pthread_mutex_lock(&m));
    CHECK(go == 1, "the holder was not done");
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static pthread_t waiter(void) {
    announced = go = 0;
    pthread_t thread = spawn(waits, NULL);
    await_asleep(&announced);
    return thread;
}

int main(void) {
    limit_seconds(60);
    for (int k = 0; k < MUTEX_KINDS; k++) {
        CASE(mutex_kinds[k].name);
        make_mutex(&m, &mutex_kinds[k]);
        depth = 1;
        STAGE("destroyed while somebody waits");
        pthread_t thread = waiter();
        for (int i = 0; i < 3; i++) CALL(pthread_mutex_destroy(&m), EBUSY);
        join(spawn(holds_and_destroys, NULL));
        STAGE("in a child, where nobody waits");
        IN_CHILD(20) {
            // glibc counts users in the mutex, and the child's copy has the parent's.
            CALL(pthread_mutex_destroy(&m), EBUSY);
            IN_AND_OUT(pthread_mutex_lock(&m), &m);
        }
        STAGE("destroyed while he who was signalled waits for the mutex");
        OK(pthread_mutex_lock(&m));
        go = 1;
        OK(pthread_cond_signal(&c));
        CALL(pthread_mutex_destroy(&m), EBUSY);
        OK(pthread_mutex_unlock(&m));
        join(thread);
        STAGE("destroyed after the wait");
        OK(pthread_mutex_destroy(&m));
        STAGE("destroyed after a time-out");
        make_mutex(&m, &mutex_kinds[k]);
        join(spawn(waits, &m));
        OK(pthread_mutex_destroy(&m));
        STAGE("destroyed after a cancellation");
        make_mutex(&m, &mutex_kinds[k]);
        thread = waiter();
        OK(pthread_cancel(thread));
        CHECK(join(thread) == PTHREAD_CANCELED, "not cancelled");
        OK(pthread_mutex_destroy(&m));
        STAGE("destroyed while two wait and a third one locks");
        make_mutex(&m, &mutex_kinds[k]);
        pthread_t first = waiter(), second = waiter();
        OK(pthread_mutex_lock(&m));
        announced = 0;
        thread = spawn(locks, NULL);
        await_asleep(&announced);
        go = 1;
        OK(pthread_cond_broadcast(&c));
        CALL(pthread_mutex_destroy(&m), EBUSY);
        OK(pthread_mutex_unlock(&m));
        join(first);
        join(second);
        join(thread);
        OK(pthread_mutex_destroy(&m));
        if (mutex_kinds[k].type != PTHREAD_MUTEX_RECURSIVE) continue;
        STAGE("destroyed while somebody waits who holds it still");
        make_mutex(&m, &mutex_kinds[k]);
        depth = 2;
        join(spawn(waits, &m));
        OK(pthread_mutex_destroy(&m));
    }
    return 0;
}
