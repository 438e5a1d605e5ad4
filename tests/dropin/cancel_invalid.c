// A wait with an argument that is refused is no cancellation point: it returns the error, and a request to
// cancel that is pending stays so.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static mtx_t mtx;
static cnd_t cnd;
static int reached_the_end, left;

static void leaves(void *unused) {
    left++;
    OK(pthread_mutex_unlock(&m));
}

static void pends(void) {
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    OK(pthread_cancel(pthread_self()));
    OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
}

static void *invalid(void *unused) {
    OK(pthread_mutex_lock(&m));
    pthread_cleanup_push(leaves, NULL);
    pends();
    struct timespec far = far_away(CLOCK_REALTIME);
    static const long bad[] = {-1, 1000000000, 1L << 40};
    for (int i = 0; i < 3; i++) {
        struct timespec t = {far.tv_sec, bad[i]};
        CALL(pthread_cond_timedwait(&c, &m, &t), EINVAL);
        CALL(pthread_cond_clockwait(&c, &m, CLOCK_REALTIME, &t), EINVAL);
        CALL(pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &t), EINVAL);
        CALL(cnd_timedwait(&cnd, &mtx, &t), thrd_error);
    }
    CALL(pthread_cond_clockwait(&c, &m, CLOCK_PROCESS_CPUTIME_ID, &far), EINVAL);
    CALL(pthread_cond_clockwait(&c, &m, 77, &far), EINVAL);
    STAGE("a mutex that somebody else's wait is not for");
    CALL(pthread_cond_wait(&c, &checked), EPERM);
    CALL(pthread_cond_timedwait(&c, &checked, &far), EPERM);
    CALL(pthread_cond_clockwait(&c, &recursive, CLOCK_MONOTONIC, &far), EPERM);
    reached_the_end++;
    STAGE("the request is still there");
    switch (reached_the_end % 3) {
    case 0: pthread_cond_wait(&c, &m); break;
    case 1: pthread_cond_timedwait(&c, &m, &far); break;
    default: pthread_testcancel();
    }
    FAIL("not cancelled");
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void) {
    limit_seconds(30);
    CHECK(mtx_init(&mtx, mtx_timed) == thrd_success && cnd_init(&cnd) == thrd_success, "init");
    for (int i = 1; i <= 3; i++) {
        STAGE("invalid times and clocks");
        CHECK(join(spawn(invalid, NULL)) == PTHREAD_CANCELED, "not cancelled");
        CHECK(reached_the_end == i && left == i, "cancelled by a wait that was refused");
    }
    return 0;
}
