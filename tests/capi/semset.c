// poundlock_semset_*: all or none, keys, deadlines, killed processes, and refusals.
#include "check.h"

enum { THREADS = 6, TURNS = 2000 };

typedef poundlock_semset_op_t Op;

static Op op(int semaphore, int change, int flags) {
    Op it = {(uint16_t)semaphore, (int16_t)change, (int16_t)flags};
    return it;
}

static int made(const uint16_t *values, size_t count) {
    int id = -1;
    OK(poundlock_semset_private(&id, values, count));
    return id;
}

static void holds(int id, int first, int second) {
    uint16_t values[2] = {7, 7};
    OK(poundlock_semset_values(id, values, 2));
    CHECK(values[0] == first && values[1] == second, "%d, %d", values[0], values[1]);
}

static void together(void) {
    STAGE("all or none");
    int id = made((uint16_t[]){1, 0}, 2);
    size_t count = 0;
    OK(poundlock_semset_count(id, &count));
    CHECK(count == 2, "%zu", count);
    Op both[] = {op(0, -1, POUNDLOCK_SEMSET_NOWAIT), op(1, -1, POUNDLOCK_SEMSET_NOWAIT)};
    CALL(poundlock_semset_operate(id, both, 2), EAGAIN);
    holds(id, 1, 0);
    OK(poundlock_semset_operate(id, (Op[]){op(1, 1, 0)}, 1));
    OK(poundlock_semset_operate(id, both, 2));
    holds(id, 0, 0);
    OK(poundlock_semset_operate(id, (Op[]){op(0, 0, 0)}, 1));
    OK(poundlock_semset_set_values(id, (uint16_t[]){3, 4}, 2));
    holds(id, 3, 4);
    OK(poundlock_semset_close(id));
    CALL(poundlock_semset_operate(id, both, 2), EINVAL);
}

static int shared, inside, total;

static void *take_turns(void *unused) {
    for (int i = 0; i < TURNS; i++) {
        OK(poundlock_semset_operate(shared, (Op[]){op(0, -1, 0)}, 1));
        CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_RELAXED) == 1, "%d inside", get(&inside));
        total++;
        __atomic_sub_fetch(&inside, 1, __ATOMIC_RELAXED);
        OK(poundlock_semset_operate(shared, (Op[]){op(0, 1, 0)}, 1));
    }
    return unused;
}

static void threads(void) {
    STAGE("threads take turns");
    shared = made((uint16_t[]){1}, 1);
    crowd(THREADS, take_turns);
    CHECK(total == THREADS * TURNS, "%d", total);
    OK(poundlock_semset_close(shared));
}

static void deadlines(void) {
    STAGE("deadlines");
    int id = made((uint16_t[]){0}, 1);
    Op take = op(0, -1, 0);
    GIVES_UP(poundlock_semset_clockoperate, id, &take, 1);
    struct timespec past = in_the_past();
    Op give = op(0, 1, 0);
    OK(poundlock_semset_clockoperate(id, &give, 1, CLOCK_REALTIME, &past));
    OK(poundlock_semset_clockoperate(id, &take, 1, CLOCK_MONOTONIC, &past));
    OK(poundlock_semset_close(id));
}

static void handled(int signal) { (void)signal; }

static volatile pid_t waiter;
static int served;

static void *wait_for_one(void *unused) {
    announce(&waiter);
    OK(poundlock_semset_operate(shared, (Op[]){op(0, -1, 0)}, 1));
    set(&served, 1);
    return unused;
}

static void signals(void) {
    STAGE("a handled signal ends no wait");
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handled;
    SYS(sigaction(SIGUSR1, &action, NULL));
    shared = made((uint16_t[]){0}, 1);
    pthread_t thread = spawn(wait_for_one, NULL);
    for (int i = 0; i < 50; i++) {
        await_asleep(&waiter);
        MUST(pthread_kill(thread, SIGUSR1));
    }
    CHECK(!get(&served), "it took what was not there");
    OK(poundlock_semset_operate(shared, (Op[]){op(0, 1, 0)}, 1));
    join(thread);
    OK(poundlock_semset_close(shared));
}

static void keys(void) {
    STAGE("arrays with keys");
    int key = (int)getpid(), id = -1, same = -1;
    CALL(poundlock_semset_open(&id, key), ENOENT);
    OK(poundlock_semset_create(&id, key, (uint16_t[]){5, 6}, 2));
    CALL(poundlock_semset_create(&same, key, (uint16_t[]){5, 6}, 2), EEXIST);
    CALL(poundlock_semset_open_or_create(&same, key, (uint16_t[]){1, 2, 3}, 3), EINVAL);
    OK(poundlock_semset_open_or_create(&same, key, (uint16_t[]){1}, 1));
    CHECK(same == id, "%d, %d", same, id);
    OK(poundlock_semset_open(&same, key));
    CHECK(same == id, "%d, %d", same, id);
    holds(same, 5, 6);
    // It stays.
    OK(poundlock_semset_close(id));
    holds(same, 5, 6);
    OK(poundlock_semset_remove(id));
    CALL(poundlock_semset_open(&id, key), ENOENT);
    CALL(poundlock_semset_remove(same), EINVAL);
}

static void killed(void) {
    STAGE("what a killed process held comes back");
    int id = made((uint16_t[]){2, 0}, 2);
    pid_t child = fork_limited(LIMIT);
    if (child == 0) {
        OK(poundlock_semset_operate(id, (Op[]){op(0, -2, POUNDLOCK_SEMSET_UNDO), op(1, 1, 0)}, 2));
        // The parent's, which this is not to remove.
        OK(poundlock_semset_close(id));
        for (;;) pause();
    }
    OK(poundlock_semset_operate(id, (Op[]){op(1, -1, 0)}, 1));
    holds(id, 0, 0);
    SYS(kill(child, SIGKILL));
    SYS(waitpid(child, NULL, 0));
    OK(poundlock_semset_operate(id, (Op[]){op(0, -2, 0)}, 1));
    OK(poundlock_semset_close(id));
}

static void *wait_in_vain(void *unused) {
    announce(&waiter);
    CALL(poundlock_semset_operate(shared, (Op[]){op(0, -1, 0)}, 1), EIDRM);
    return unused;
}

static void refusals(void) {
    STAGE("refusals");
    int id = -1;
    CALL(poundlock_semset_private(&id, (uint16_t[]){0}, 0), EINVAL);
    CALL(poundlock_semset_private(&id, (uint16_t[]){40000}, 1), ERANGE);
    CALL(poundlock_semset_open(&id, 0), EINVAL);
    CALL(poundlock_semset_create(&id, 0, (uint16_t[]){1}, 1), EINVAL);
    CALL(poundlock_semset_open_or_create(&id, 0, (uint16_t[]){1}, 1), EINVAL);
    CHECK(id == -1, "%d", id);
    id = made((uint16_t[]){1}, 1);
    uint16_t values[2];
    CALL(poundlock_semset_values(id, values, 2), EINVAL);
    CALL(poundlock_semset_set_values(id, values, 2), EINVAL);
    CALL(poundlock_semset_set_values(id, (uint16_t[]){40000}, 1), ERANGE);
    CALL(poundlock_semset_operate(id, (Op[]){op(0, 1, 0)}, 0), EINVAL);
    CALL(poundlock_semset_operate(id, (Op[]){op(1, 1, 0)}, 1), EFBIG);
    CALL(poundlock_semset_operate(id, (Op[]){op(0, 32767, 0)}, 1), ERANGE);
    static Op many[600];
    CALL(poundlock_semset_operate(id, many, 600), E2BIG);
    OK(poundlock_semset_close(id));
    size_t count;
    CALL(poundlock_semset_count(id, &count), EINVAL);
    CALL(poundlock_semset_count(-1, &count), EINVAL);

    // Who waits hears of the end.
    shared = made((uint16_t[]){0}, 1);
    waiter = 0;
    pthread_t thread = spawn(wait_in_vain, NULL);
    await_asleep(&waiter);
    OK(poundlock_semset_remove(shared));
    join(thread);
}

int main(void) {
    limit_seconds(LIMIT);
    together();
    threads();
    deadlines();
    signals();
    keys();
    killed();
    refusals();
    return 0;
}
