// What every program in this directory shares: checks that name the first wrong result and stop there.
//
// A program prints nothing on standard output, exits 0 when every result was right, and otherwise writes one
// line to standard error and exits 1 (or 99 when its own time limit ran out). Nothing here uses stdio: its
// locks and buffers would come between the program and what it tests.
#ifndef DROPIN_CHECK_H
#define DROPIN_CHECK_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifndef __cplusplus
#include <threads.h>
#endif

#define UNUSED __attribute__((unused))

// errno holds this before every checked call, and has to hold it afterwards.
enum { ERRNO_SENTINEL = 12345 };

// What the program is doing, for the message when its time runs out.
static const char *volatile current_stage UNUSED = "start";

// What varies within a stage (a type of mutex, say); part of every failure's message.
static const char *volatile current_case UNUSED = "";

// What would outlive a program that fails is removed by this.
static void (*at_failure)(void) UNUSED;

UNUSED __attribute__((noreturn, format(printf, 3, 4)))
static void die(const char *file, int line, const char *format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(2, "%s:%d: [%s%s%s] %.*s\n", file, line, current_stage, *current_case ? ": " : "", current_case,
            length,
            text);
    if (at_failure != NULL) at_failure();
    _exit(1);
}

#define FAIL(...) die(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) FAIL(__VA_ARGS__);                                                                 \
    } while (0)

#define STR_(x) #x

// `call` returns `want` and leaves errno alone.
#define CALL(call, want)                                                                                     \
    do {                                                                                                     \
        errno = ERRNO_SENTINEL;                                                                              \
        int got_ = (call);                                                                                   \
        int errno_ = errno;                                                                                  \
        int want_ = (want);                                                                                  \
        if (got_ != want_)                                                                                   \
            FAIL("%s: got %d (%s), expected %d (%s)", #call, got_, strerror(got_), want_, strerror(want_));  \
        if (errno_ != ERRNO_SENTINEL) FAIL("%s: changed errno to %d (%s)", #call, errno_, strerror(errno_)); \
    } while (0)

#define OK(call) CALL(call, 0)

// For calls that are not under test and may set errno.
#define MUST(call)                                                                                           \
    do {                                                                                                     \
        int got_ = (call);                                                                                   \
        if (got_ != 0) FAIL("%s: got %d (%s), expected 0", #call, got_, strerror(got_));                     \
    } while (0)

#define SYS(call)                                                                                            \
    do {                                                                                                     \
        if ((call) == -1) FAIL("%s: %s", #call, strerror(errno));                                            \
    } while (0)

// Gives back a lock of any sort.
#define UNLOCK(lock)                                                                                         \
    _Generic((lock), pthread_mutex_t *: pthread_mutex_unlock, pthread_rwlock_t *: pthread_rwlock_unlock,     \
             pthread_spinlock_t *: pthread_spin_unlock)(lock)

// `call` takes `lock`, which is given back.
#define IN_AND_OUT(call, lock)                                                                               \
    do {                                                                                                     \
        OK(call);                                                                                            \
        OK(UNLOCK(lock));                                                                                    \
    } while (0)

#define STAGE(text) (current_stage = (text))
#define CASE(text) (current_case = (text))

UNUSED static void out_of_time(int signal_number) {
    (void)signal_number;
    char text[400];
    // Not async-signal-safe by the letter; the program is lost already.
    int length = snprintf(text, sizeof text, "hang in stage [%s%s%s]\n", current_stage,
                          *current_case ? ": " : "",
                          current_case);
    if (write(2, text, (size_t)length) < 0) _exit(98);
    if (at_failure != NULL) at_failure();
    _exit(99);
}

// Times what a program needs at most on a machine that does nothing else: only a hang is to reach a limit.
enum { PATIENCE_FACTOR = 5 };

// The program's own limit, below the harness's: it says where the hang was.
UNUSED static void limit_seconds(unsigned seconds) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = out_of_time;
    sigaction(SIGALRM, &action, NULL);
    alarm(PATIENCE_FACTOR * seconds);
}

// Ends the program with 77, for a test that is skipped, if it may not have real-time threads.
UNUSED static void need_real_time(void) {
    struct sched_param parameter;
    memset(&parameter, 0, sizeof parameter);
    parameter.sched_priority = 1;
    if (sched_setscheduler(0, SCHED_FIFO, &parameter) != 0) {
        dprintf(2, "no real-time threads: %s\n", strerror(errno));
        exit(77);
    }
    parameter.sched_priority = 0;
    SYS(sched_setscheduler(0, SCHED_OTHER, &parameter));
}

UNUSED static struct timespec now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t;
}

UNUSED static struct timespec after_us(clockid_t clock, long us) {
    struct timespec t = now(clock);
    t.tv_sec += us / 1000000;
    t.tv_nsec += us % 1000000 * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec += 1;
    }
    return t;
}

UNUSED static struct timespec after_ms(clockid_t clock, long ms) { return after_us(clock, ms * 1000); }

// A deadline that no correct run reaches: used where only a lost wake-up would wait for it.
UNUSED static struct timespec far_away(clockid_t clock) { return after_ms(clock, 3600 * 1000L); }

// A time that every clock has passed, on one that started at boot too.
UNUSED static struct timespec in_the_past(void) {
    struct timespec t = {0, 1};
    return t;
}

UNUSED static int reached(clockid_t clock, struct timespec deadline) {
    struct timespec t = now(clock);
    return t.tv_sec > deadline.tv_sec || (t.tv_sec == deadline.tv_sec && t.tv_nsec >= deadline.tv_nsec);
}

UNUSED static pthread_t spawn(void *(*body)(void *), void *argument) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, body, argument));
    return thread;
}

UNUSED static void *join(pthread_t thread) {
    void *result;
    MUST(pthread_join(thread, &result));
    return result;
}

// So many threads at once, each with its number; returns when all have ended.
UNUSED static void crowd(int count, void *(*body)(void *)) {
    enum { MOST_IN_CROWD = 256 };
    pthread_t threads[MOST_IN_CROWD];
    CHECK(count <= MOST_IN_CROWD, "a crowd of %d", count);
    for (long i = 0; i < count; i++) threads[i] = spawn(body, (void *)i);
    for (int i = 0; i < count; i++) join(threads[i]);
}

// What one thread does at a time: whoever begins finds two places alike, and makes them differ during
// `pause`.
#define ALONE(first, second, pause)                                                                          \
    do {                                                                                                     \
        long v_ = (first);                                                                                   \
        CHECK(v_ == (second), "two holders at once");                                                        \
        (first) = v_ + 1;                                                                                    \
        pause;                                                                                               \
        (second) = v_ + 1;                                                                                   \
    } while (0)

UNUSED static pid_t thread_id(void) { return (pid_t)syscall(SYS_gettid); }

UNUSED static void sem_down(sem_t *sem) {
    while (sem_wait(sem) != 0) CHECK(errno == EINTR, "sem_wait: %s", strerror(errno));
}

// The state of a thread of a process, as /proc has it: 'S' sleeps, 'Z' has ended, and 0 is not there.
UNUSED static char task_state(pid_t process, pid_t thread) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)process, (int)thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd == -1 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    char *state = strrchr(text, ')');
    return state == NULL ? '\0' : state[2];
}

// Whether a thread of a process sleeps in the kernel just now.
UNUSED static int task_sleeps(pid_t process, pid_t thread) {
    char state = task_state(process, thread);
    CHECK(state != 0, "there is no thread %d of process %d", (int)thread, (int)process);
    return state == 'S';
}

// Waits until a thread of a process sleeps in the kernel: seen so three times.
UNUSED static void await_task_asleep(pid_t process, pid_t thread) {
    for (int seen = 0; seen < 3; usleep(200)) seen = task_sleeps(process, thread) ? seen + 1 : 0;
}

// Waits until the thread, which announced itself just before a call that has to block, sleeps in the kernel.
// A waiter that never sleeps runs into the program's time limit.
UNUSED static void await_asleep(volatile pid_t *announced) {
    while (__atomic_load_n(announced, __ATOMIC_ACQUIRE) == 0) usleep(200);
    await_task_asleep(getpid(), __atomic_load_n(announced, __ATOMIC_ACQUIRE));
}

UNUSED static void announce(volatile pid_t *place) { __atomic_store_n(place, thread_id(), __ATOMIC_RELEASE); }

// How a child ended, for `waitpid`'s macros.
UNUSED static int status_of(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) == -1) CHECK(errno == EINTR, "waitpid: %s", strerror(errno));
    return status;
}

// The child has to be killed by this signal; 0: to leave with status 0.
UNUSED static void await_child_killed(pid_t child, int signal_number) {
    int status = status_of(child), killed = WIFSIGNALED(status);
    CHECK(signal_number ? killed && WTERMSIG(status) == signal_number
                        : WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "child %d: %s %d", (int)child, killed ? "killed by signal" : "exit status",
          killed ? WTERMSIG(status) : WEXITSTATUS(status));
}

UNUSED static void await_child(pid_t child) { await_child_killed(child, 0); }

// fork; the child has a time limit of its own, because alarms are not inherited.
UNUSED static pid_t fork_limited(unsigned seconds) {
    pid_t child = fork();
    SYS(child);
    if (child == 0) alarm(PATIENCE_FACTOR * seconds);
    return child;
}

// The same, of a child that is killed when the thread that forked it ends.
UNUSED static pid_t fork_tied(unsigned seconds) {
    pid_t parent = getpid(), child = fork_limited(seconds);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) raise(SIGKILL); // it has ended before the call
    }
    return child;
}

// What follows is done by a child, which then leaves with status 0, and is awaited.
#define IN_CHILD(seconds)                                                                                    \
    for (pid_t child_ = fork_limited(seconds); child_ == 0 || (await_child(child_), 0); _exit(0))

// Memory that forked children share.
UNUSED static void *shared_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "mmap: %s", strerror(errno));
    return memory;
}

// The types of mutex that are Poundlock's business, each with the ways to make one.
enum make { MAKE_STATIC, MAKE_ATTRIBUTE, MAKE_PLAIN_ATTRIBUTE, MAKE_NULL };

struct mutex_kind {
    const char *name;
    int type;
    enum make make;
};

UNUSED static const struct mutex_kind mutex_kinds[] = {
    {"default, static", PTHREAD_MUTEX_DEFAULT, MAKE_STATIC},
    {"default, no attribute", PTHREAD_MUTEX_DEFAULT, MAKE_NULL},
    {"default, untouched attribute", PTHREAD_MUTEX_DEFAULT, MAKE_PLAIN_ATTRIBUTE},
    {"normal, attribute", PTHREAD_MUTEX_NORMAL, MAKE_ATTRIBUTE},
    {"recursive, static", PTHREAD_MUTEX_RECURSIVE, MAKE_STATIC},
    {"recursive, attribute", PTHREAD_MUTEX_RECURSIVE, MAKE_ATTRIBUTE},
    {"errorcheck, static", PTHREAD_MUTEX_ERRORCHECK, MAKE_STATIC},
    {"errorcheck, attribute", PTHREAD_MUTEX_ERRORCHECK, MAKE_ATTRIBUTE},
    {"adaptive, static", PTHREAD_MUTEX_ADAPTIVE_NP, MAKE_STATIC},
    {"adaptive, attribute", PTHREAD_MUTEX_ADAPTIVE_NP, MAKE_ATTRIBUTE},
};

enum { MUTEX_KINDS = sizeof mutex_kinds / sizeof mutex_kinds[0] };

UNUSED static void make_mutex(pthread_mutex_t *mutex, const struct mutex_kind *kind) {
    static const pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    static const pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    static const pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    if (kind->make == MAKE_STATIC) {
        const pthread_mutex_t *image = kind->type == PTHREAD_MUTEX_RECURSIVE    ? &recursive
                                       : kind->type == PTHREAD_MUTEX_ERRORCHECK ? &errorcheck
                                       : kind->type == PTHREAD_MUTEX_ADAPTIVE_NP ? &adaptive
                                                                                : &normal;
        memcpy(mutex, image, sizeof *mutex);
        return;
    }
    // Garbage: init may rely on nothing that was there before.
    memset(mutex, 0xa5, sizeof *mutex);
    if (kind->make == MAKE_NULL) {
        OK(pthread_mutex_init(mutex, NULL));
        return;
    }
    pthread_mutexattr_t attribute;
    OK(pthread_mutexattr_init(&attribute));
    if (kind->make == MAKE_ATTRIBUTE) OK(pthread_mutexattr_settype(&attribute, kind->type));
    OK(pthread_mutex_init(mutex, &attribute));
    OK(pthread_mutexattr_destroy(&attribute));
}

#endif
