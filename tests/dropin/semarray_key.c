// Arrays found by key: processes that know nothing of each other meet there, and what is made, removed and
// found at the same time by many of them stays one thing. With arguments it is one of those processes.
#include "semarray.h"

enum { ROUNDS = 2000, MAKERS = 8, STORM = 400 };

static pid_t run(const char *role, key_t key, int argument) {
    char numbers[2][16];
    snprintf(numbers[0], sizeof numbers[0], "%d", key);
    snprintf(numbers[1], sizeof numbers[1], "%d", argument);
    pid_t child = fork();
    SYS(child);
    if (child == 0) {
        char *arguments[] = {"semarray_key", (char *)role, numbers[0], numbers[1], NULL};
        execv("/proc/self/exe", arguments);
        FAIL("exec: %s", strerror(errno));
    }
    return child;
}

// Two that take turns on two semaphores, on an array that whoever comes first makes.
static void player(key_t key, int me) {
    STAGE("turns");
    int id = semget(key, 3, 0600 | IPC_CREAT);
    SYS(id);
    for (int i = 0; i < ROUNDS; i++) {
        struct sembuf ops[] = {op(me, -1, 0), op(2, 1, 0)};
        if (me == 1) OK(semop(id, ops, 2));
        OK(change(id, 1 - me, 1, 0));
        if (me == 0) OK(semop(id, ops, 2));
    }
}

// One of many that make the array, if nobody has yet.
static void maker(key_t key, int way) {
    STAGE("making");
    int gate = semget(key, 1, 0600);
    SYS(gate);
    OK(change(gate, 0, 0, 0));
    for (int i = 1; i <= 20; i++) {
        int id = semget(key + i, 2, 0600 | IPC_CREAT | (way ? IPC_EXCL : 0));
        if (id == -1) {
            CHECK(way && errno == EEXIST, "semget: %s", strerror(errno));
            id = semget(key + i, 2, 0);
            CHECK(id != -1, "it exists and cannot be found: %s", strerror(errno));
        } else {
            OK(change(id, 0, way, 0));
        }
        OK(change(id, 1, 1, 0));
    }
}

// One of many that make it, use it and remove it under each other's feet.
static void stormer(key_t key, int seed) {
    STAGE("making, using and removing");
    unsigned random = (unsigned)seed * 2654435761u + 1;
    for (int i = 0; i < STORM; i++) {
        random = random * 1664525 + 1013904223;
        int id = semget(key + (random >> 30), 2, 0600 | IPC_CREAT | (random >> 20 & 1 ? IPC_EXCL : 0));
        if (id == -1) {
            CHECK(errno == EEXIST, "semget: %s", strerror(errno));
            continue;
        }
        struct sembuf ops[] = {op(0, 1, random >> 21 & 1 ? SEM_UNDO : 0), op(1, 1, 0)};
        if (semop(id, ops, 2) == -1) {
            CHECK(errno == EINVAL || errno == EIDRM, "semop: %s", strerror(errno));
            continue;
        }
        // A waiter for what never comes, until somebody removes the array or its time is up. The kernel's
        // arrays also return for work that it has for the thread, as if a handler had run.
        struct timespec t = ms(random >> 22 & 3);
        struct sembuf wait = op(0, -30000, 0);
        CHECK(semtimedop(id, &wait, 1, &t) == -1, "semtimedop: it succeeded");
        CHECK(errno == EAGAIN || errno == EIDRM || errno == EINVAL || errno == EINTR, "semtimedop: %s",
              strerror(errno));
        if (random >> 25 & 1 && semctl(id, 0, IPC_RMID) == -1)
            CHECK(errno == EINVAL || errno == EIDRM, "IPC_RMID: %s", strerror(errno));
    }
}

int main(int argc, char **argv) {
    limit_seconds(60);
    if (argc > 1) {
        key_t key = atoi(argv[2]);
        int argument = atoi(argv[3]);
        if (strcmp(argv[1], "player") == 0) player(key, argument);
        if (strcmp(argv[1], "maker") == 0) maker(key, argument);
        if (strcmp(argv[1], "stormer") == 0) stormer(key, argument);
        return 0;
    }
    STAGE("two strangers");
    key_t key = own_key(0);
    pid_t players[] = {run("player", key, 0), run("player", key, 1)};
    await_child(players[0]);
    await_child(players[1]);
    // What they did outlives them.
    int id = semget(key, 3, 0600);
    SYS(id);
    GIVES(value(id, 2), 2 * ROUNDS);
    GIVES(value(id, 0) + value(id, 1), 0);
    CHECK(semctl(id, 2, GETPID) == players[0] || semctl(id, 2, GETPID) == players[1], "GETPID: %d",
          semctl(id, 2, GETPID));
    remove_array(id);
    REFUSED(semget(key, 3, 0600), ENOENT);

    STAGE("IPC_PRIVATE through fork");
    id = new_array(2);
    pid_t child = fork_limited(60);
    if (child == 0) {
        OK(change(id, 0, -1, 0));
        pid_t grandchild = fork_limited(60);
        if (grandchild == 0) {
            OK(change(id, 1, 1, 0));
            // An array made here is known to nobody else, unless they are told its id.
            exit(0);
        }
        await_child(grandchild);
        exit(0);
    }
    OK(change(id, 0, 1, 0));
    OK(change(id, 1, -1, 0));
    await_child(child);
    GIVES(semctl(id, 0, GETPID), (int)child);
    remove_array(id);

    STAGE("an id, told");
    // A process that did not inherit it may use an array by its id alone.
    int *told = shared_memory(sizeof *told);
    child = fork_limited(60);
    if (child == 0) {
        *told = new_array(1);
        OK(change(*told, 0, 7, 0));
        exit(0);
    }
    await_child(child);
    GIVES(value(*told, 0), 7);
    OK(change(*told, 0, -7, 0));
    remove_array(*told);

    for (int way = 0; way < 2; way++) {
        STAGE(way ? "IPC_EXCL by many at once" : "IPC_CREAT by many at once");
        id = semget(key, 1, 0600 | IPC_CREAT | IPC_EXCL);
        SYS(id);
        set(id, 0, 1);
        pid_t makers[MAKERS];
        for (int i = 0; i < MAKERS; i++) makers[i] = run("maker", key, way);
        await_sleepers(id, 0, 0, MAKERS);
        OK(change(id, 0, -1, 0));
        for (int i = 0; i < MAKERS; i++) await_child(makers[i]);
        remove_array(id);
        for (int i = 1; i <= 20; i++) {
            id = semget(key + i, 2, 0600);
            CHECK(id != -1, "semget: %s", strerror(errno));
            // One alone made it, and all found that one.
            GIVES(value(id, 0), way);
            GIVES(value(id, 1), MAKERS);
            remove_array(id);
        }
    }

    STAGE("making and removing by many at once");
    pid_t stormers[4];
    for (int i = 0; i < 4; i++) stormers[i] = run("stormer", key, i);
    for (int i = 0; i < 4; i++) await_child(stormers[i]);
    for (int i = 0; i < 4; i++) {
        id = semget(key + i, 0, 0);
        if (id != -1) remove_array(id);
        REFUSED(semget(key + i, 0, 0), ENOENT);
    }
    return 0;
}
