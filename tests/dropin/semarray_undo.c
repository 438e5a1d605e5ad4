// SEM_UNDO: what a process did is undone when it ends, however it ends, and not before; threads, forks and
// execs are no ends. With the argument "held ..." it is what the tests of exec run.
#include "semarray.h"
#include <spawn.h>

static const char *self;
static int to_parent[2], to_child[2];

static void open_pipes(void) {
    SYS(pipe(to_parent));
    SYS(pipe(to_child));
}

static void close_pipes(void) {
    for (int i = 0; i < 2; i++) {
        close(to_parent[i]);
        close(to_child[i]);
    }
}

static void say(int fd) {
    char byte = 1;
    CHECK(write(fd, &byte, 1) == 1, "write: %s", strerror(errno));
}

// 0 at the end of the pipe.
static int hear(int fd) {
    char byte;
    ssize_t got;
    do got = read(fd, &byte, 1);
    while (got == -1 && errno == EINTR);
    CHECK(got >= 0, "read: %s", strerror(errno));
    return (int)got;
}

// Waits until the child is dead, and leaves it unreaped: it has ended all the same.
static void await_death(pid_t child) {
    siginfo_t info;
    while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == -1)
        CHECK(errno == EINTR, "waitid: %s", strerror(errno));
}

static int array;

// A child that has done `body`, and waits for a word or for its end.
static pid_t holder(void (*body)(void)) {
    open_pipes();
    pid_t child = fork_tied(60);
    if (child == 0) {
        body();
        say(to_parent[1]);
        hear(to_child[0]);
        exit(0);
    }
    close(to_parent[1]);
    CHECK(hear(to_parent[0]) == 1, "the child ended too early");
    return child;
}

// It ends by this signal, or, for 0, by itself.
static void ended(pid_t child, int signal_number) {
    if (signal_number) SYS(kill(child, signal_number));
    else say(to_child[1]);
    await_child_killed(child, signal_number);
    close_pipes();
}

// At the program's own handlers nothing is undone yet.
static void still_held(void) {
    if (value(array, 0) != 2) die(__FILE__, __LINE__, "at exit the value is %d: it was undone too early",
                                  value(array, 0));
}

static void *last_thread(void *first) {
    pthread_join(*(pthread_t *)first, NULL);
    still_held();
    return NULL;
}

static void *no_thread(void *unused) { return unused; }

static void *raise_one(void *unused) {
    OK(change(array, 1, 1, SEM_UNDO));
    return unused;
}

static void *sleep_for_ever(void *announced) {
    announce(announced);
    change(array, 2, -1, SEM_UNDO);
    FAIL("a sleeper came back");
}

static const struct end {
    const char *name;
    int signal_number;
} ends[] = {
    {"exit", 0},        {"_exit", 0},          {"_Exit", 0},          {"quick_exit", 0},
    {"exit_group", 0},
    {"last thread", 0}, {"another thread", 0}, {"SIGKILL", SIGKILL},  {"SIGTERM", SIGTERM},
    {"abort", SIGABRT},
    {"first thread gone, SIGKILL", SIGKILL},   {"first thread gone, exit", 0},
    {"a sleeping thread, SIGKILL", SIGKILL},   {"a sleeping thread, exit", 0},
};

static void *end_from_thread(void *which) {
    const struct end *end = which;
    if (strncmp(end->name, "first thread gone", 17) == 0) {
        // Until it is a zombie: the process is its other threads now.
        pid_t first = getpid();
        for (char state = 'S'; state != 0 && state != 'Z'; usleep(200)) state = task_state(first, first);
        still_held();
        // More of the same, from a process without its first thread.
        OK(change(array, 1, 1, SEM_UNDO));
        OK(change(array, 1, -1, SEM_UNDO));
        still_held();
    }
    say(to_parent[1]);
    hear(to_child[0]);
    if (end->signal_number) pause();
    exit(0);
}

static void *pause_thread(void *unused) {
    for (;;) pause();
    return unused;
}

__attribute__((noreturn)) static void in_child(const struct end *end) {
    struct sembuf ops[] = {op(0, -1, SEM_UNDO), op(1, 3, SEM_UNDO), op(2, 0, 0)};
    OK(semop(array, ops, 3));
    // A thread's end is no end.
    join(spawn(raise_one, NULL));
    GIVES(value(array, 1), 14);
    // Failures leave nothing to undo.
    REFUSED(change(array, 0, -9, SEM_UNDO | IPC_NOWAIT), EAGAIN);
    REFUSED(change(array, 1, MOST_VALUE, SEM_UNDO), ERANGE);
    static volatile pid_t announced;
    if (strncmp(end->name, "a sleeping thread", 17) == 0) {
        spawn(sleep_for_ever, (void *)&announced);
        await_asleep(&announced);
        await_sleepers(array, 2, 1, 0);
    }
    if (strcmp(end->name, "another thread") == 0 || strncmp(end->name, "first thread gone", 17) == 0) {
        spawn(end_from_thread, (void *)end);
        if (strcmp(end->name, "another thread") == 0) pause_thread(NULL);
        pthread_exit(NULL);
    }
    say(to_parent[1]);
    hear(to_child[0]);
    if (strcmp(end->name, "exit") == 0) {
        atexit(still_held);
        exit(0);
    }
    if (strcmp(end->name, "_exit") == 0) _exit(0);
    if (strcmp(end->name, "_Exit") == 0) _Exit(0);
    if (strcmp(end->name, "quick_exit") == 0) {
        at_quick_exit(still_held);
        quick_exit(0);
    }
    if (strcmp(end->name, "exit_group") == 0) syscall(SYS_exit_group, 0);
    if (strcmp(end->name, "last thread") == 0) {
        static pthread_t me;
        me = pthread_self();
        spawn(last_thread, &me);
        spawn(no_thread, NULL);
        pthread_exit(NULL);
    }
    if (strcmp(end->name, "abort") == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        abort();
    }
    if (end->signal_number) pause();
    exit(0);
}

static int watched_result, watched_error;

static void *watcher(void *announced) {
    announce(announced);
    watched_result = change(array, 0, -3, 0);
    watched_error = errno;
    return NULL;
}

static void one_end(const struct end *end, int with_sleeper) {
    array = new_array(3);
    set(array, 0, 3);
    set(array, 1, 10);
    open_pipes();
    pid_t child = fork_tied(60);
    if (child == 0) in_child(end);
    close(to_parent[1]);
    CHECK(hear(to_parent[0]) == 1, "the child ended too early");
    GIVES(value(array, 0), 2);
    GIVES(value(array, 1), 14);
    static volatile pid_t announced;
    announced = 0;
    pthread_t sleeper = 0;
    if (with_sleeper) {
        sleeper = spawn(watcher, (void *)&announced);
        await_asleep(&announced);
        await_sleepers(array, 0, 1, 0);
    }
    say(to_child[1]);
    if (end->signal_number && end->signal_number != SIGABRT) SYS(kill(child, end->signal_number));
    if (with_sleeper) {
        // It sleeps until the child's operation is undone; nobody else touches the array.
        join(sleeper);
        CHECK(watched_result == 0, "a sleeper got %s", strerror(watched_error));
        GIVES(value(array, 0), 0);
    } else {
        await_death(child);
        GIVES(value(array, 0), 3);
    }
    await_death(child);
    GIVES(value(array, 1), 10);
    GIVES(value(array, 2), 0);
    GIVES(semctl(array, 2, GETNCNT), 0);
    GIVES(semctl(array, 1, GETPID), (int)child);
    await_child_killed(child, end->signal_number);
    GIVES(value(array, 1), 10);
    remove_array(array);
    close_pipes();
}

// Each in a process of its own, and all at once: most of the time they wait.
static void every_end(void) {
    enum { ENDS = 2 * sizeof ends / sizeof *ends };
    pid_t testers[ENDS];
    for (unsigned i = 0; i < ENDS; i++) {
        STAGE(i % 2 ? "an end with a sleeper" : "an end");
        CASE(ends[i / 2].name);
        testers[i] = fork_tied(90);
        if (testers[i] != 0) continue;
        one_end(&ends[i / 2], i % 2);
        exit(0);
    }
    for (unsigned i = 0; i < ENDS; i++) await_child(testers[i]);
    CASE("");
}

static void in_killed_child(void (*body)(void)) { ended(holder(body), SIGKILL); }

static void add_up(void) {
    for (int i = 0; i < 5; i++) OK(change(array, 0, 2, SEM_UNDO));
    for (int i = 0; i < 3; i++) OK(change(array, 0, -1, SEM_UNDO));
    // Not to be undone.
    OK(change(array, 0, 100, 0));
}

static void down_one(void) { OK(change(array, 0, -1, SEM_UNDO)); }
static void up_five(void) { OK(change(array, 0, 5, SEM_UNDO)); }
static void down_all(void) { OK(change(array, 0, -MOST_VALUE, SEM_UNDO)); }
static void up_down(void) {
    OK(change(array, 0, 5, SEM_UNDO));
    OK(change(array, 0, -5, SEM_UNDO));
    struct sembuf ops[] = {op(0, 1, SEM_UNDO), op(0, 1, 0), op(0, -1, SEM_UNDO), op(0, -1, 0)};
    OK(semop(array, ops, 4));
}

static void held_then_set(void) {
    OK(change(array, 0, 5, SEM_UNDO));
    OK(change(array, 1, 5, SEM_UNDO));
    set(array, 0, 50);
}
static void held_then_all_set(void) {
    unsigned short all[] = {60, 60};
    held_then_set();
    OK(semctl(array, 0, SETALL, all));
}

static int second;
static void take_five(void) {
    // Once without what is to be undone, in a process that has nothing else to undo.
    OK(change(second, 0, -5, 0));
    OK(change(array, 0, -5, SEM_UNDO));
}

static void amounts(void) {
    STAGE("amounts");
    array = new_array(2);
    set(array, 0, 1);
    in_killed_child(add_up);
    GIVES(value(array, 0), 101);
    in_killed_child(up_down);
    GIVES(value(array, 0), 101);

    // What cannot be undone in full is undone as far as it goes.
    set(array, 0, 0);
    pid_t child = holder(up_five);
    OK(change(array, 0, -3, 0));
    ended(child, SIGKILL);
    GIVES(value(array, 0), 0);
    set(array, 0, MOST_VALUE);
    child = holder(down_all);
    OK(change(array, 0, 7, 0));
    ended(child, SIGKILL);
    GIVES(value(array, 0), MOST_VALUE);

    STAGE("SETVAL and SETALL forget");
    set(array, 0, 0);
    in_killed_child(held_then_set);
    GIVES(value(array, 0), 50);
    GIVES(value(array, 1), 0);
    in_killed_child(held_then_all_set);
    GIVES(value(array, 0), 60);
    GIVES(value(array, 1), 60);

    STAGE("two arrays");
    second = new_array(1);
    set(second, 0, 9);
    in_killed_child(take_five);
    GIVES(value(array, 0), 60);
    GIVES(value(second, 0), 4);
    remove_array(second);
    remove_array(array);
}

// A removed array has nothing to be undone, and the next one with its key, or its place, gets nothing.
static void removed(void) {
    STAGE("removed arrays");
    key_t key = own_key(9);
    array = semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL);
    SYS(array);
    pid_t child = holder(up_five);
    remove_array(array);
    int ids[20];
    for (int i = 0; i < 20; i++) ids[i] = i == 0 ? semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL) : new_array(1);
    for (int i = 0; i < 20; i++) set(ids[i], 0, 9);
    ended(child, 0);
    for (int i = 0; i < 20; i++) GIVES(value(ids[i], 0), 9);
    for (int i = 0; i < 20; i++) remove_array(ids[i]);
}

// fork: the child has nothing to undo of its parent's, and the other way round.
static void forks(void) {
    STAGE("fork");
    array = new_array(2);
    set(array, 0, 10);
    set(array, 1, 10);
    OK(change(array, 0, -1, SEM_UNDO));
    for (int way = 0; way < 4; way++) {
        pid_t child = fork_limited(60);
        if (child == 0) {
            GIVES(value(array, 0), 9);
            if (way & 1) OK(change(array, 1, -2, SEM_UNDO));
            if (way & 2) _exit(0);
            exit(0);
        }
        await_child(child);
        GIVES(value(array, 0), 9);
        GIVES(value(array, 1), 10);
    }
    // The holder dies while its own child lives on.
    open_pipes();
    pid_t child = fork_limited(60);
    if (child == 0) {
        OK(change(array, 1, -2, SEM_UNDO));
        pid_t grandchild = fork_limited(60);
        if (grandchild == 0) {
            prctl(PR_SET_PDEATHSIG, 0);
            OK(change(array, 1, -1, 0));
            say(to_parent[1]);
            hear(to_child[0]);
            OK(change(array, 1, -1, 0));
            say(to_parent[1]);
            _exit(0);
        }
        for (;;) pause();
    }
    CHECK(hear(to_parent[0]) == 1, "no grandchild");
    GIVES(value(array, 1), 7);
    kill_child(child, SIGKILL);
    GIVES(value(array, 1), 9);
    say(to_child[1]);
    CHECK(hear(to_parent[0]) == 1, "no grandchild");
    GIVES(value(array, 1), 8);
    close_pipes();
    set(array, 1, 10);

    STAGE("children that are not forked");
    // They run in our memory until they exec or exit: that is no end of ours.
    child = vfork();
    if (child == 0) _exit(0);
    await_child(child);
    GIVES(value(array, 0), 9);
    char *arguments[] = {"true", NULL};
    MUST(posix_spawnp(&child, "true", NULL, NULL, arguments, environ));
    await_child(child);
    GIVES(value(array, 0), 9);
    CHECK(system("exit 0") == 0, "system failed");
    GIVES(value(array, 0), 9);
    // We end in order within this test: what is held here is undone by hand.
    OK(change(array, 0, 1, SEM_UNDO));
    remove_array(array);
}

// What exec runs: "held ARRAY": it holds one of semaphore 0. It takes one of semaphore 1 as well, and on the
// second word gives the first back and ends.
static int held(char **argv) {
    array = atoi(argv[2]);
    to_parent[1] = atoi(argv[3]);
    to_child[0] = atoi(argv[4]);
    int gives_back = atoi(argv[5]);
    alarm(60);
    GIVES(value(array, 0), 2);
    OK(change(array, 1, -1, SEM_UNDO));
    if (gives_back) OK(change(array, 0, 1, SEM_UNDO));
    say(to_parent[1]);
    hear(to_child[0]);
    return 0;
}

static char *exec_arguments[7], **exec_environment, numbers[4][16];

static void *exec_thread(void *unused) {
    execve(self, exec_arguments, exec_environment);
    FAIL("exec: %s", strerror(errno));
    return unused;
}

static void *sleeping_thread(void *unused) {
    change(array, 2, -1, SEM_UNDO);
    FAIL("a sleeper came back");
    return unused;
}

static void execs(void) {
    STAGE("exec");
    array = new_array(3);
    set(array, 0, 3);
    set(array, 1, 3);
    enum { PLAIN, GIVES_BACK, FROM_THREAD, KILLED, STRANGER, STRANGER_FROM_THREAD, WAYS };
    const char *const names[] = {"plain", "gives back", "from a thread", "then killed",
                                 "a program without the library", "the same from a thread"};
    for (int way = 0; way < WAYS; way++) {
        CASE(names[way]);
        open_pipes();
        pid_t child = fork_limited(60);
        if (child == 0) {
            int numbers_of[] = {array, to_parent[1], to_child[0], way == GIVES_BACK};
            exec_environment = environ;
            exec_arguments[0] = "semarray_undo";
            exec_arguments[1] = "held";
            for (int i = 0; i < 4; i++) {
                snprintf(numbers[i], sizeof numbers[i], "%d", numbers_of[i]);
                exec_arguments[2 + i] = numbers[i];
            }
            close(to_child[1]);
            OK(change(array, 0, -1, SEM_UNDO));
            static char *nothing[] = {NULL};
            if (way >= STRANGER) {
                dup2(to_child[0], 0);
                dup2(to_parent[1], 1);
                self = "/bin/cat";
                exec_arguments[0] = "cat";
                exec_arguments[1] = NULL;
                exec_environment = nothing;
            }
            if (way == FROM_THREAD || way == STRANGER_FROM_THREAD) {
                spawn(sleeping_thread, NULL);
                await_sleepers(array, 2, 1, 0);
                spawn(exec_thread, NULL);
                for (;;) pause();
            }
            exec_thread(NULL);
        }
        close(to_parent[1]);
        if (way >= STRANGER) say(to_child[1]);
        CHECK(hear(to_parent[0]) == 1, "the child ended too early");
        GIVES(value(array, 0), way == GIVES_BACK ? 3 : 2);
        GIVES(value(array, 1), way >= STRANGER ? 3 : 2);
        // The threads that exec ended sleep no more, and get nothing.
        GIVES(semctl(array, 2, GETNCNT), 0);
        OK(change(array, 2, 1, 0));
        OK(change(array, 2, -1, IPC_NOWAIT));
        if (way == KILLED) {
            kill_child(child, SIGKILL);
        } else {
            close(to_child[1]);
            await_child(child);
        }
        GIVES(value(array, 0), 3);
        GIVES(value(array, 1), 3);
        close_pipes();
    }
    CASE("");
    remove_array(array);
}

// A process that was stopped has not ended.
static void stopped(void) {
    STAGE("stopped");
    array = new_array(1);
    set(array, 0, 1);
    pid_t child = holder(down_one);
    int status;
    SYS(kill(child, SIGSTOP));
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "not stopped");
    struct timespec t = ms(60);
    struct sembuf down = op(0, -1, 0);
    REFUSED(semtimedop(array, &down, 1, &t), EAGAIN);
    ended(child, SIGKILL);
    OK(semop(array, &down, 1));
    remove_array(array);
}

// A sleeper that is killed has asked for nothing, and one that was served has had it.
static void killed_sleepers(void) {
    STAGE("killed sleepers");
    array = new_array(2);
    for (int round = 0; round < 40; round++) {
        pid_t children[3];
        for (int i = 0; i < 3; i++) {
            children[i] = fork_limited(60);
            if (children[i] == 0) {
                struct sembuf ops[] = {op(0, -1, round % 2 ? SEM_UNDO : 0),
                                       op(1, 1, round % 2 ? SEM_UNDO : 0)};
                OK(semop(array, ops, round % 4 < 2 ? 1 : 2));
                for (;;) pause();
            }
            await_sleepers(array, 0, i + 1, 0);
        }
        kill_child(children[0], SIGKILL);
        await_sleepers(array, 0, 2, 0);
        // The second one is first now; it is served, and then killed.
        OK(change(array, 0, 1, 0));
        GIVES(value(array, 0), 0);
        await_sleepers(array, 0, 1, 0);
        kill_child(children[1], SIGKILL);
        if (round % 2) {
            // What was undone serves the third.
            await_sleepers(array, 0, 0, 0);
            kill_child(children[2], SIGKILL);
            GIVES(value(array, 0), 1);
            GIVES(value(array, 1), 0);
        } else {
            kill_child(children[2], SIGKILL);
            GIVES(value(array, 0), 0);
            GIVES(value(array, 1), round % 4 < 2 ? 0 : 1);
        }
        GIVES(semctl(array, 0, GETNCNT), 0);
        set(array, 0, 0);
        set(array, 1, 0);
    }
    remove_array(array);
}

// One process holds something in each of many arrays.
enum { ARRAYS = 200 };
static int many_ids[ARRAYS];

static void hold_each(void) {
    for (int i = 0; i < ARRAYS; i++) OK(change(many_ids[i], 2, -1 - i % 5, SEM_UNDO));
}

static void many(void) {
    STAGE("many arrays");
    for (int i = 0; i < ARRAYS; i++) {
        many_ids[i] = new_array(3);
        set(many_ids[i], 2, 7);
    }
    for (int way = 0; way < 2; way++) {
        pid_t child = holder(hold_each);
        for (int i = 0; i < ARRAYS; i++) GIVES(value(many_ids[i], 2), 6 - i % 5);
        ended(child, way ? SIGKILL : 0);
        for (int i = 0; i < ARRAYS; i++) GIVES(value(many_ids[i], 2), 7);
    }
    for (int i = 0; i < ARRAYS; i++) remove_array(many_ids[i]);
}

int main(int argc, char **argv) {
    self = "/proc/self/exe";
    if (argc > 1) return held(argv);
    signal(SIGPIPE, SIG_IGN);
    limit_seconds(100);
    every_end();
    amounts();
    removed();
    forks();
    execs();
    stopped();
    killed_sleepers();
    many();
    return 0;
}
