// A process in another IPC namespace has none of the arrays of the one that it came from: it neither finds
// them nor operates on them, however it came there, and what it did there with SEM_UNDO was undone when it
// left.
#include "semarray.h"

enum { NOT_PERMITTED = 77 };

static key_t key;
static int id;

static void leave(void) { SYS(unshare(CLONE_NEWIPC)); }

static void nothing_is_there(void) {
    struct sembuf up = op(0, 1, 0);
    struct timespec t = ms(1);
    struct semid_ds about;
    unsigned short all[1] = {0};
    REFUSED(semop(id, &up, 1), EINVAL);
    REFUSED(semtimedop(id, &up, 1, &t), EINVAL);
    REFUSED(value(id, 0), EINVAL);
    REFUSED(semctl(id, 0, SETVAL, 1), EINVAL);
    REFUSED(semctl(id, 0, GETALL, all), EINVAL);
    REFUSED(semctl(id, 0, IPC_STAT, &about), EINVAL);
    REFUSED(semctl(id, 0, IPC_RMID), EINVAL);
    REFUSED(semget(key, 1, 0600), ENOENT);
}

// What is made under the same key is another array.
static void something_else_is_made(void) {
    int own = semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL);
    SYS(own);
    OK(change(own, 0, 3, SEM_UNDO));
    GIVES(value(own, 0), 3);
    GIVES(semget(key, 1, 0600), own);
    remove_array(own);
    REFUSED(semget(key, 1, 0600), ENOENT);
}

static void in_a_child(void (*body)(void)) {
    IN_CHILD(60) {
        body();
    }
    GIVES(value(id, 0), 5);
}

static void a_child_finds_nothing(void) {
    IN_CHILD(60) {
        nothing_is_there();
        something_else_is_made();
    }
}

static void never_used(void) {
    leave();
    nothing_is_there();
    something_else_is_made();
}

static void used(void) {
    OK(change(id, 0, 1, 0));
    OK(change(id, 0, -1, 0));
    leave();
    nothing_is_there();
    something_else_is_made();
    a_child_finds_nothing();
}

static void made_first(void) {
    leave();
    something_else_is_made();
    nothing_is_there();
}

static void undone(void) {
    int there[2], seen[2];
    char byte = 0;
    SYS(pipe(there));
    SYS(pipe(seen));
    pid_t child = fork_limited(60);
    if (child == 0) {
        OK(change(id, 0, -2, SEM_UNDO));
        leave();
        CHECK(write(there[1], &byte, 1) == 1 && read(seen[0], &byte, 1) == 1, "pipe: %s", strerror(errno));
        _exit(0);
    }
    CHECK(read(there[0], &byte, 1) == 1, "the child has ended");
    GIVES(value(id, 0), 5);
    CHECK(write(seen[1], &byte, 1) == 1, "pipe: %s", strerror(errno));
    await_child(child);
}

static void there_and_back(void) {
    OK(change(id, 0, 1, 0));
    int home = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
    SYS(home);
    for (int i = 0; i < 3; i++) {
        leave();
        nothing_is_there();
        something_else_is_made();
        SYS(setns(home, i == 1 ? CLONE_NEWIPC : 0));
        GIVES(value(id, 0), 6);
        GIVES(semget(key, 1, 0600), id);
    }
    OK(change(id, 0, -1, 0));
    // Another namespace is none of the arrays' business.
    SYS(unshare(CLONE_NEWUTS));
    GIVES(value(id, 0), 5);
}

static void cloned(void) {
    int there = (int)syscall(SYS_clone, CLONE_NEWIPC | SIGCHLD, NULL, NULL, NULL, 0);
    SYS(there);
    if (there == 0) {
        alarm(60);
        nothing_is_there();
        something_else_is_made();
        _exit(0);
    }
    await_child(there);
}

static void *wait_for_the_end(void *pipe_end) {
    char byte;
    CHECK(read(*(int *)pipe_end, &byte, 1) == 0, "the pipe holds something");
    return NULL;
}

// One of several threads: what its child has is what counts.
static void child_of_a_thread(void) {
    int ends[2];
    SYS(pipe(ends));
    pthread_t other = spawn(wait_for_the_end, &ends[0]);
    REFUSED(change(id, 0, 0, IPC_NOWAIT), EAGAIN);
    leave();
    a_child_finds_nothing();
    SYS(close(ends[1]));
    join(other);
}

int main(void) {
    limit_seconds(100);
    pid_t child = fork_limited(60);
    if (child == 0) _exit(unshare(CLONE_NEWIPC | CLONE_NEWUTS) == 0 ? 0 : NOT_PERMITTED);
    int status;
    SYS(waitpid(child, &status, 0));
    if (status != 0) {
        dprintf(2, "needs to make IPC namespaces\n");
        return NOT_PERMITTED;
    }
    key = own_key(3);
    id = semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL);
    SYS(id);
    set(id, 0, 5);

    STAGE("a child that has not used the array");
    in_a_child(never_used);
    in_a_child(made_first);
    STAGE("a child that has");
    in_a_child(used);
    STAGE("undone on leaving");
    in_a_child(undone);
    STAGE("there and back");
    in_a_child(there_and_back);
    STAGE("born elsewhere");
    in_a_child(cloned);
    STAGE("a child of one thread of several");
    in_a_child(child_of_a_thread);
    remove_array(id);
    return 0;
}
