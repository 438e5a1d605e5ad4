// vfork, posix_spawn, fork and exec, from threads while locks are contended; exec of a new image that uses
// locks at once, with the old one's locks held and waited for.
#include "check.h"
#include <spawn.h>

extern char **environ;

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static volatile long first, second;
static volatile int stop;
static char self[4096];

static void *hammer(void *unused) {
    for (unsigned i = 0; !stop; i++) {
        OK(pthread_mutex_lock(&m));
        long v = first;
        CHECK(v == second, "two holders at once");
        first = v + 1;
        if (i % 16 == 0) {
            struct timespec soon = after_us(CLOCK_REALTIME, 20);
            second = v + 1;
            int result = pthread_cond_timedwait(&c, &m, &soon);
            CHECK(result == 0 || result == ETIMEDOUT, "timedwait: %d", result);
        } else {
            second = v + 1;
        }
        OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
    }
    return unused;
}

static void run_again(int how, char *const arguments[]) {
    pid_t pid;
    switch (how) {
    case 0: MUST(posix_spawn(&pid, self, NULL, NULL, arguments, environ)); break;
    case 1:
        pid = vfork();
        SYS(pid);
        if (pid == 0) {
            execv(self, arguments);
            _exit(126);
        }
        break;
    default:
        pid = fork();
        SYS(pid);
        if (pid == 0) {
            execv(self, arguments);
            _exit(126);
        }
    }
    await_child(pid);
}

static void *starts_programs(void *number) {
    char program[] = "exec", stage[] = "leaf";
    char *const arguments[] = {program, stage, NULL};
    for (int i = 0; i < 30; i++) {
        // Some while this thread holds a lock for which others queue.
        if (i % 3 == 0) OK(pthread_mutex_lock(&m));
        CHECK(i % 3 != 0 || first == second, "two holders at once");
        run_again((i + (int)(long)number) % 3, arguments);
        if (i % 3 == 0) OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void *never_gets_it(void *unused) {
    OK(pthread_mutex_lock(&held));
    FAIL("the lock was free");
    return unused;
}

// Replaces the program while threads run, sleep in locks and hold them.
static void *replaces(void *program_stage) {
    char program[] = "exec";
    char *const arguments[] = {program, (char *)program_stage, NULL};
    OK(pthread_mutex_lock(&m));
    execv(self, arguments);
    FAIL("execv: %s", strerror(errno));
}

int main(int argc, char **argv) {
    limit_seconds(60);
    SYS(readlink("/proc/self/exe", self, sizeof self - 1));
    const char *stage = argc > 1 ? argv[1] : "root";
    STAGE(stage);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = spawn(hammer, NULL);
    if (strcmp(stage, "leaf") == 0) {
        for (long seen = 0; seen < 100;) {
            OK(pthread_mutex_lock(&m));
            seen = first;
            OK(pthread_mutex_unlock(&m));
        }
        stop = 1;
        for (int i = 0; i < 3; i++) join(threads[i]);
        return 0;
    }
    if (strcmp(stage, "replace") == 0) {
        OK(pthread_mutex_lock(&held));
        for (int i = 0; i < 5; i++) spawn(never_gets_it, NULL);
        char next[] = "leaf";
        join(spawn(replaces, next));
    }
    crowd(2, starts_programs);
    STAGE("exec from a thread");
    char program[] = "exec", replace[] = "replace";
    char *const arguments[] = {program, replace, NULL};
    for (int i = 0; i < 20; i++) run_again(i % 3, arguments);
    stop = 1;
    for (int i = 0; i < 3; i++) join(threads[i]);
    return 0;
}
