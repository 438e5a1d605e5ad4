// A group of processes is killed at once, and the one sleeper that is left has to come back by what their
// deaths undo: nobody else touches the array from then on.
//
//     semarray_group ROUNDS
#include "semarray.h"

enum { MEMBERS = 6 };
enum { RESOURCE, GATE, NEVER, READY, SEMAPHORES };

static unsigned long long state = 12345;

static unsigned below(unsigned bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((state >> 33) % bound);
}

// What the members do, and what the survivor waits for.
enum scene {
    // Each holds a part of a resource; the survivor wants all of it.
    PARTS,
    // One holds it, and the others sleep for it, in front of the survivor.
    QUEUE,
    // Each has raised a semaphore; the survivor waits for zero.
    RAISED,
    // Both, in one call of the survivor's.
    BOTH,
    // They change it all the time, and are killed in the middle.
    BUSY,
    // One holds it, the others sleep for what never comes.
    DREAMERS,
    SCENES
};
static const char *const names[] = {"parts", "queue", "raised", "both", "busy", "dreamers"};

__attribute__((noreturn)) static void member(int id, enum scene scene, int me) {
    struct sembuf take = op(RESOURCE, -1, SEM_UNDO), raise = op(GATE, 1, SEM_UNDO), ready = op(READY, 1, 0);
    struct sembuf all = op(RESOURCE, -MEMBERS, SEM_UNDO);
    switch (scene) {
    case PARTS:
    case BOTH:
        OK(semop(id, &take, 1));
        // Falls through.
    case RAISED:
        if (scene != PARTS) OK(semop(id, &raise, 1));
        break;
    case QUEUE:
    case DREAMERS:
        if (me == 0) OK(semop(id, &all, 1));
        OK(semop(id, &ready, 1));
        if (me != 0) {
            struct sembuf sleep[] = {scene == QUEUE ? all : op(NEVER, -1, SEM_UNDO), op(READY, 1, 0)};
            semop(id, sleep, 1 + (size_t)me % 2);
            // By the death of the holder, if that was killed first.
            CHECK(scene == QUEUE, "a sleeper came back");
        }
        for (;;) pause();
    case BUSY: {
        OK(semop(id, &take, 1));
        OK(semop(id, &raise, 1));
        OK(semop(id, &ready, 1));
        struct sembuf up_down[] = {op(GATE, 1, SEM_UNDO), op(RESOURCE, 1, SEM_UNDO)};
        struct sembuf down_up[] = {op(GATE, -1, SEM_UNDO), op(RESOURCE, -1, SEM_UNDO)};
        for (;;) {
            OK(semop(id, up_down, 2));
            OK(semop(id, down_up, 2));
        }
    }
    default: break;
    }
    OK(semop(id, &ready, 1));
    for (;;) pause();
}

__attribute__((noreturn)) static void survivor(int id, enum scene scene) {
    struct sembuf all[] = {op(RESOURCE, -MEMBERS, SEM_UNDO), op(GATE, 0, 0)}, zero = op(GATE, 0, 0);
    if (scene == RAISED)
        OK(semop(id, &zero, 1));
    else
        // While they are busy they put back what they took, for a moment, and raise the gate by then.
        OK(semop(id, all, scene == BOTH || scene == BUSY ? 2 : 1));
    exit(0);
}

static void round_of(enum scene scene) {
    int id = new_array(SEMAPHORES);
    set(id, RESOURCE, MEMBERS);
    pid_t members[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) {
        members[i] = fork_tied(100);
        if (members[i] == 0) member(id, scene, i);
        // In order, so that the first of them has what it takes.
        struct sembuf ready = op(READY, -1, 0);
        OK(semop(id, &ready, 1));
    }
    if (scene == QUEUE) await_sleepers(id, RESOURCE, MEMBERS - 1, 0);
    if (scene == DREAMERS) await_sleepers(id, NEVER, MEMBERS - 1, 0);
    pid_t left = fork_tied(100);
    if (left == 0) survivor(id, scene);
    if (scene == QUEUE)
        await_sleepers(id, RESOURCE, MEMBERS, 0);
    else
        await_process_asleep(left);
    struct timespec until = after_us(CLOCK_MONOTONIC, below(200));
    while (!reached(CLOCK_MONOTONIC, until)) continue;
    // In any order; the last of them dies long before the first is looked for.
    int first = (int)below(MEMBERS);
    for (int i = 0; i < MEMBERS; i++) SYS(kill(members[(first + i) % MEMBERS], SIGKILL));
    await_child(left);
    for (int i = 0; i < MEMBERS; i++) await_child_killed(members[i], SIGKILL);
    // The survivor's exit has put back what it took.
    GIVES(value(id, RESOURCE), MEMBERS);
    GIVES(value(id, GATE), 0);
    for (int i = 0; i < SEMAPHORES; i++) {
        GIVES(semctl(id, i, GETNCNT), 0);
        GIVES(semctl(id, i, GETZCNT), 0);
    }
    remove_array(id);
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "usage: semarray_group ROUNDS");
    limit_seconds(110);
    STAGE("a group is killed");
    // The scenes have nothing to do with each other, and wait most of the time: all of them at once.
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t scenes[SCENES];
        for (int scene = 0; scene < SCENES; scene++) {
            below(2);
            scenes[scene] = fork_tied(100);
            if (scenes[scene] != 0) continue;
            CASE(names[scene]);
            round_of((enum scene)scene);
            exit(0);
        }
        for (int scene = 0; scene < SCENES; scene++) await_child(scenes[scene]);
    }
    return 0;
}
