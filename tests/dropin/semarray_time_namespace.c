// Processes that see the time since boot differently share arrays all the same: a process is not taken for
// one that has ended because it seems to have started at another time, and one that has ended is found.
//
//     semarray_time_namespace [ID VALUE]
//
// With arguments: what the program runs after an exec that has taken it to another time namespace.
#include "semarray.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { NOT_PERMITTED = 77 };

static int id;

// Children, and the process itself after exec, see the time since boot later by a day, some seconds, and part
// of a clock tick.
static int leave(void) {
    static const char offset[] = "boottime 86461 7300000";
    if (unshare(CLONE_NEWTIME) == -1) return 0;
    int file = open("/proc/self/timens_offsets", O_WRONLY);
    int done = file != -1 && write(file, offset, sizeof offset - 1) == sizeof offset - 1;
    close(file);
    return done;
}

static void *take_two(void *unused) {
    OK(change(id, 0, -2, SEM_UNDO));
    return NULL;
}

// Has a thread take two, to be undone, and lets it end: whether the process is there is then not to be seen
// from its mark.
static pid_t holder(void) {
    int there[2];
    char byte = 0;
    SYS(pipe(there));
    pid_t child = fork_limited(90);
    if (child == 0) {
        join(spawn(take_two, NULL));
        CHECK(write(there[1], &byte, 1) == 1, "pipe: %s", strerror(errno));
        for (;;) pause();
    }
    CHECK(read(there[0], &byte, 1) == 1, "pipe: %s", strerror(errno));
    close(there[0]);
    close(there[1]);
    return child;
}

static void value_is(int expected) {
    for (int i = 0; i < 3; i++) GIVES(value(id, 0), expected);
}

// `body` in a process of another time namespace, where the program's children are.
static void elsewhere(void (*body)(void)) {
    IN_CHILD(90) {
        CHECK(leave(), "no time namespace: %s", strerror(errno));
        pid_t grandchild = fork_limited(90);
        if (grandchild == 0) {
            body();
            _exit(0);
        }
        await_child(grandchild);
    }
}

static void three_are_left(void) { value_is(3); }
static void five_are_left(void) { value_is(5); }

static void hold_there(void) {
    pid_t there = holder();
    value_is(3);
    // Back in the first process's namespace: only its parent can say what is seen there.
    SYS(kill(getppid(), SIGUSR1));
    sigset_t reply;
    sigemptyset(&reply);
    sigaddset(&reply, SIGUSR2);
    int got;
    MUST(sigwait(&reply, &got));
    kill_child(there, SIGKILL);
    value_is(5);
}

// As the middle process of `elsewhere`, which stays where it is.
static void seen_from_here(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
    SYS(sigprocmask(SIG_BLOCK, &signals, NULL));
    IN_CHILD(90) {
        CHECK(leave(), "no time namespace: %s", strerror(errno));
        pid_t grandchild = fork_limited(90);
        if (grandchild == 0) {
            hold_there();
            _exit(0);
        }
        int got;
        sigdelset(&signals, SIGUSR2);
        MUST(sigwait(&signals, &got));
        value_is(3);
        SYS(kill(grandchild, SIGUSR2));
        await_child(grandchild);
        value_is(5);
    }
}

int main(int argc, char **argv) {
    limit_seconds(100);
    if (argc == 3) {
        id = atoi(argv[1]);
        // What the program before had taken is not given back before the process ends.
        value_is(atoi(argv[2]));
        OK(change(id, 0, -1, SEM_UNDO));
        value_is(atoi(argv[2]) - 1);
        return 0;
    }
    pid_t child = fork_limited(60);
    if (child == 0) _exit(leave() ? 0 : NOT_PERMITTED);
    int status;
    SYS(waitpid(child, &status, 0));
    if (status != 0) {
        dprintf(2, "needs to make time namespaces\n");
        return NOT_PERMITTED;
    }
    id = new_array(1);
    set(id, 0, 5);

    STAGE("a process that is seen from elsewhere");
    pid_t here = holder();
    value_is(3);
    elsewhere(three_are_left);
    value_is(3);
    kill_child(here, SIGKILL);
    elsewhere(five_are_left);
    value_is(5);

    STAGE("a process elsewhere");
    seen_from_here();
    value_is(5);

    STAGE("a process that goes there by exec");
    child = fork_limited(60);
    if (child == 0) {
        char number[20];
        take_two(NULL);
        CHECK(leave(), "no time namespace: %s", strerror(errno));
        snprintf(number, sizeof number, "%d", id);
        execl("/proc/self/exe", argv[0], number, "3", NULL);
        FAIL("exec: %s", strerror(errno));
    }
    await_child(child);
    value_is(5);
    remove_array(id);
    return 0;
}
