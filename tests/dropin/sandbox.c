// A program that forbids itself system calls, in the middle of its life and with threads running: those that
// a lock may have been using besides futex then fail (EPERM), and every lock works on, in the threads that
// were there and in new ones, and in a child. With any argument it does so before any lock was contended.
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

enum { THREADS = 4, ROUNDS = 1500 };

static pthread_mutex_t m;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static volatile long first, second;
static volatile int stop;
static int turn;
static const struct mutex_kind *kind;

static void *adds(void *number) {
    for (int i = 0; i < ROUNDS || (number == NULL && !stop); i++) {
        struct timespec soon = after_us(CLOCK_MONOTONIC, 100);
        int result = i % 5 == 0   ? pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &soon)
                     : i % 5 == 1 ? pthread_mutex_trylock(&m)
                                  : pthread_mutex_lock(&m);
        CHECK(result == 0 || (i % 5 < 2 && (result == EBUSY || result == ETIMEDOUT)), "got %d (%s)", result,
              strerror(result));
        if (result != 0) continue;
        ALONE(first, second, if (i % 64 == 0) usleep(10));
        if (i % 32 == 7) {
            int woken = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &soon);
            CHECK(woken == 0 || woken == ETIMEDOUT, "clockwait: %d", woken);
        }
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void *takes_turns(void *number) {
    OK(pthread_mutex_lock(&m));
    for (int i = 0; i < 200; i++) {
        while (turn % 2 != (int)(long)number) OK(pthread_cond_wait(&c, &m));
        turn++;
        OK(pthread_cond_broadcast(&c));
    }
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *cancelled(void *unused) {
    OK(pthread_mutex_lock(&m));
    turn = -1;
    pthread_cleanup_push((void (*)(void *))(void *)pthread_mutex_unlock, &m);
    for (;;) OK(pthread_cond_wait(&c, &m));
    pthread_cleanup_pop(1);
    return unused;
}

static pthread_barrier_t both;

static void *comes_to_each(void *mutexes) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&both);
        OK(pthread_mutex_lock((pthread_mutex_t *)mutexes + i));
        OK(pthread_mutex_unlock((pthread_mutex_t *)mutexes + i));
    }
    return NULL;
}

// Two threads and no third, which would wake a sleeper that an unlock has missed: each mutex is unlocked for
// the first time just when the other thread is about to sleep in it.
static void first_sleeps(void) {
    static pthread_mutex_t mutexes[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) make_mutex(&mutexes[i], kind);
    MUST(pthread_barrier_init(&both, NULL, 2));
    pthread_t other = spawn(comes_to_each, mutexes);
    for (int i = 0; i < ROUNDS; i++) {
        OK(pthread_mutex_lock(&mutexes[i]));
        pthread_barrier_wait(&both);
        for (volatile int pause = i % 64 * 256; pause > 0; pause--) continue;
        OK(pthread_mutex_unlock(&mutexes[i]));
    }
    join(other);
    MUST(pthread_barrier_destroy(&both));
    for (int i = 0; i < ROUNDS; i++) OK(pthread_mutex_destroy(&mutexes[i]));
}

static void use_all(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) threads[i] = spawn(adds, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++) join(threads[i]);
    turn = 0;
    crowd(2, takes_turns);
    threads[0] = spawn(cancelled, NULL);
    for (int seen = 0; seen != -1;) {
        OK(pthread_mutex_lock(&m));
        seen = turn;
        OK(pthread_mutex_unlock(&m));
    }
    MUST(pthread_cancel(threads[0]));
    CHECK(join(threads[0]) == PTHREAD_CANCELED, "not cancelled");
}

static void forbid(void) {
#define REFUSE(call)                                                                                         \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        REFUSE(SYS_membarrier),
        REFUSE(SYS_madvise),
        REFUSE(SYS_sched_yield),
        REFUSE(SYS_sched_getscheduler),
        REFUSE(SYS_sched_getparam),
        REFUSE(SYS_getcpu),
        REFUSE(SYS_sched_getaffinity),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    // A kernel without seccomp, or a container that does not hand it on, has nothing to test here.
    if (result == -1 && (errno == ENOSYS || errno == EPERM || errno == EINVAL)) exit(0);
    CHECK(result == 0, "seccomp: %ld, %s", result, strerror(errno));
    CHECK(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == EPERM, "the filter is not in force");
}

int main(int argc, char **argv) {
    limit_seconds(60);
    STAGE("before");
    if (argc > 1) forbid();
    for (int k = 0; k < MUTEX_KINDS; k++) {
        if (mutex_kinds[k].make != MAKE_STATIC) continue;
        kind = &mutex_kinds[k];
        CASE(kind->name);
        make_mutex(&m, kind);
        first = second = 0;
        if (k == 0 && argc == 1) {
            use_all();
            pthread_t through = spawn(adds, NULL), other = spawn(adds, NULL);
            while (first < 100 + THREADS) sched_yield();
            forbid();
            STAGE("forbidden");
            use_all();
            stop = 1;
            join(through);
            join(other);
        }
        use_all();
        first_sleeps();
        IN_CHILD(30) {
            STAGE("in a child");
            use_all();
        }
        OK(pthread_mutex_destroy(&m));
    }
    return 0;
}
