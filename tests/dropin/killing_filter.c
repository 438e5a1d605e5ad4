// A program that has itself killed for every system call but those that it makes with glibc's locks, and
// those that its arguments name. More threads than anything is prepared for then use every lock, in their
// slow paths too.
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>

enum { THREADS = 100, ROUNDS = 60 };

static const struct {
    const char *name;
    unsigned number;
} calls[] = {
#define NAMED(name) {#name, SYS_##name}
    NAMED(futex), NAMED(membarrier), NAMED(sched_yield), NAMED(nanosleep), NAMED(gettid), NAMED(getpid),
    NAMED(tgkill), NAMED(mmap), NAMED(munmap), NAMED(madvise), NAMED(clock_gettime), NAMED(mprotect),
    NAMED(getcpu), NAMED(prlimit64), NAMED(openat), NAMED(sched_getaffinity), NAMED(read), NAMED(close),
    NAMED(kill), NAMED(prctl), NAMED(sched_getparam), NAMED(sched_getscheduler), NAMED(sched_getattr),
    NAMED(rt_sigprocmask),
};

// What remains for the program itself: to say what is wrong, to run into its limit, and to end.
static const unsigned own[] = {SYS_futex, SYS_write, SYS_exit_group, SYS_restart_syscall, SYS_rt_sigreturn};

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t s;
static pthread_barrier_t started, filtered;
static long counts[5];
static int finished;

static void *uses_all(void *number) {
    pthread_barrier_wait(&started);
    pthread_barrier_wait(&filtered);
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec soon = after_us(CLOCK_MONOTONIC, 200);
        if (i % 4 == 0) {
            while (pthread_mutex_clocklock(&plain, CLOCK_MONOTONIC, &soon) != 0)
                soon = after_us(CLOCK_MONOTONIC, 500);
        } else {
            OK(pthread_mutex_lock(&plain));
        }
        counts[0]++;
        if ((i + (int)(long)number) % 16 == 0) {
            int result = pthread_cond_clockwait(&c, &plain, CLOCK_MONOTONIC, &soon);
            CHECK(result == 0 || result == ETIMEDOUT, "clockwait: %d", result);
        }
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&plain));
        OK(pthread_mutex_lock(&recursive));
        OK(pthread_mutex_lock(&recursive));
        counts[1]++;
        OK(pthread_mutex_unlock(&recursive));
        OK(pthread_mutex_unlock(&recursive));
        OK(pthread_mutex_lock(&checked));
        counts[2]++;
        OK(pthread_mutex_unlock(&checked));
        IN_AND_OUT(pthread_rwlock_rdlock(&l), &l);
        OK(pthread_rwlock_wrlock(&l));
        counts[3]++;
        OK(pthread_rwlock_unlock(&l));
        OK(pthread_spin_lock(&s));
        counts[4]++;
        OK(pthread_spin_unlock(&s));
    }
    OK(pthread_mutex_lock(&plain));
    finished++;
    OK(pthread_cond_broadcast(&c));
    // Not to its end, which takes system calls of its own.
    for (;;) OK(pthread_cond_wait(&c, &plain));
}

static void kill_for_all_but(int argc, char **argv) {
    struct sock_filter filter[300];
    unsigned short length = 0;
#define ADD(...) filter[length++] = (struct sock_filter)__VA_ARGS__
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
#define ALLOW(call)                                                                                          \
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));                                                    \
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW))
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        ALLOW(own[i]);
    }
    for (int i = 1; i < argc; i++) {
        int found = 0;
        for (size_t n = 0; n < sizeof calls / sizeof calls[0]; n++) {
            if (strcmp(argv[i], calls[n].name) != 0) continue;
            found = 1;
            ALLOW(calls[n].number);
        }
        CHECK(found, "no number is known for %s", argv[i]);
    }
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    struct sock_fprog program = {length, filter};
    SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    if (result == -1) {
        dprintf(2, "no filters of system calls here: %s\n", strerror(errno));
        _exit(77);
    }
    CHECK(result == 0, "thread %ld has a filter of its own", result);
}

int main(int argc, char **argv) {
    limit_seconds(60);
    OK(pthread_spin_init(&s, PTHREAD_PROCESS_PRIVATE));
    OK(pthread_barrier_init(&started, NULL, THREADS + 1));
    OK(pthread_barrier_init(&filtered, NULL, THREADS + 1));
    for (long i = 0; i < THREADS; i++) spawn(uses_all, (void *)i);
    pthread_barrier_wait(&started);
    kill_for_all_but(argc, argv);
    pthread_barrier_wait(&filtered);
    STAGE("filtered");
    OK(pthread_mutex_lock(&plain));
    while (finished < THREADS) OK(pthread_cond_wait(&c, &plain));
    OK(pthread_mutex_unlock(&plain));
    for (int i = 0; i < 5; i++) CHECK(counts[i] == THREADS * ROUNDS, "count %d is %ld", i, counts[i]);
    _exit(0);
}
