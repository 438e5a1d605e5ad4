// Four thousand threads alive at once, all asleep on one mutex, then on one condition variable, with small
// stacks; and a thread with the smallest stack there is.
#include "check.h"

static long threads, started, had, waiting, woken;
static int told;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER, back = PTHREAD_COND_INITIALIZER;
static volatile pid_t last;

static void *lives(void *number) {
    if ((long)number == threads - 1) announce(&last);
    __atomic_fetch_add(&started, 1, __ATOMIC_RELEASE);
    OK(pthread_mutex_lock(&m));
    had++;
    if (++waiting == threads) OK(pthread_cond_signal(&back));
    while (!told) OK(pthread_cond_wait(&c, &m));
    woken++;
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static pthread_mutex_t small_mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile pid_t small_id;
static volatile int small_told;

static void *on_a_small_stack(void *unused) {
    announce(&small_id);
    OK(pthread_mutex_lock(&small_mutex));
    while (!small_told) {
        struct timespec far = far_away(CLOCK_MONOTONIC);
        OK(pthread_cond_clockwait(&c, &small_mutex, CLOCK_MONOTONIC, &far));
    }
    OK(pthread_mutex_unlock(&small_mutex));
    return unused;
}

int main(int argc, char **argv) {
    limit_seconds(90);
    threads = argc > 1 ? atol(argv[1]) : 4000;
    pthread_attr_t attribute;
    MUST(pthread_attr_init(&attribute));

    STAGE("the smallest stack");
    MUST(pthread_attr_setstacksize(&attribute, (size_t)sysconf(_SC_THREAD_STACK_MIN)));
    OK(pthread_mutex_lock(&small_mutex));
    pthread_t small;
    MUST(pthread_create(&small, &attribute, on_a_small_stack, NULL));
    await_asleep(&small_id);
    OK(pthread_mutex_unlock(&small_mutex));
    OK(pthread_mutex_lock(&small_mutex));
    small_told = 1;
    OK(pthread_mutex_unlock(&small_mutex));
    OK(pthread_cond_broadcast(&c));
    join(small);

    STAGE("all asleep on one mutex");
    MUST(pthread_attr_setstacksize(&attribute, (size_t)sysconf(_SC_THREAD_STACK_MIN) + 16384));
    pthread_t *ids = (pthread_t *)calloc((size_t)threads, sizeof *ids);
    CHECK(ids != NULL, "calloc");
    OK(pthread_mutex_lock(&m));
    for (long i = 0; i < threads; i++) {
        int result = pthread_create(&ids[i], &attribute, lives, (void *)i);
        CHECK(result == 0, "pthread_create, thread %ld: %s", i, strerror(result));
    }
    while (__atomic_load_n(&started, __ATOMIC_ACQUIRE) < threads) usleep(200);
    await_asleep(&last);
    CHECK(had == 0, "%ld threads have the mutex that is held here", had);
    CALL(pthread_mutex_destroy(&m), EBUSY);
    STAGE("released, and all asleep on one condition variable");
    while (waiting < threads) OK(pthread_cond_wait(&back, &m));
    CHECK(had == threads && woken == 0, "%ld had the mutex, %ld left", had, woken);
    STAGE("broadcast to all");
    told = 1;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    for (long i = 0; i < threads; i++) join(ids[i]);
    CHECK(woken == threads, "%ld of %ld woken", woken, threads);
    OK(pthread_cond_destroy(&c));
    OK(pthread_mutex_destroy(&m));
    return 0;
}
