// Process-shared mutexes and condition variables in memory shared with children: exclusion, signals both
// ways, owners that are killed; and ordinary mutexes in the same pages.
#include "check.h"

enum { ROUNDS = 2000, CHILDREN = 3 };

struct area {
    pthread_mutex_t m, robust;
    pthread_cond_t c;
    long first, second, left;
    int ready;
    pthread_mutex_t ordinary;
    long by_child[CHILDREN];
};

static struct area *area;

static void in_child(long me) {
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec far = far_away(CLOCK_REALTIME);
        switch (i % 3) {
        case 0: OK(pthread_mutex_lock(&area->m)); break;
        case 1: OK(pthread_mutex_timedlock(&area->m, &far)); break;
        default:
            while (pthread_mutex_trylock(&area->m) != 0) sched_yield();
        }
        ALONE(area->first, area->second, if (i % 64 == 0) sched_yield());
        OK(pthread_mutex_unlock(&area->m));
    }
    STAGE("turns");
    OK(pthread_mutex_lock(&area->m));
    while (area->left > 0) {
        while (area->left > 0 && area->left % CHILDREN != me) OK(pthread_cond_wait(&area->c, &area->m));
        if (area->left > 0) {
            area->left--;
            area->by_child[me]++;
        }
        OK(pthread_cond_broadcast(&area->c));
    }
    OK(pthread_mutex_unlock(&area->m));
}

int main(void) {
    limit_seconds(30);
    area = (struct area *)mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED, "mmap: %s", strerror(errno));
    pthread_mutexattr_t ma;
    pthread_condattr_t ca;
    OK(pthread_mutexattr_init(&ma));
    OK(pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
    OK(pthread_condattr_init(&ca));
    OK(pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
    OK(pthread_condattr_setclock(&ca, CLOCK_MONOTONIC));
    OK(pthread_mutex_init(&area->m, &ma));
    OK(pthread_cond_init(&area->c, &ca));
    OK(pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutex_init(&area->robust, &ma));
    OK(pthread_mutex_init(&area->ordinary, NULL));
    area->left = 600;

    STAGE("exclusion");
    pid_t children[CHILDREN];
    for (long i = 0; i < CHILDREN; i++) {
        children[i] = fork_limited(25);
        if (children[i] == 0) {
            in_child(i);
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++) await_child(children[i]);
    CHECK(area->first == (long)CHILDREN * ROUNDS && area->second == area->first, "%ld of %d rounds",
          area->first,
          CHILDREN * ROUNDS);
    for (int i = 0; i < CHILDREN; i++) CHECK(area->by_child[i] == 200, "child %d: %ld turns", i,
                                             area->by_child[i]);

    STAGE("a child is killed while it holds a robust mutex");
    for (int i = 0; i < 5; i++) {
        area->ready = 0;
        OK(pthread_mutex_lock(&area->m));
        pid_t child = fork_limited(25);
        if (child == 0) {
            OK(pthread_mutex_lock(&area->robust));
            OK(pthread_mutex_lock(&area->m));
            area->ready = 1;
            OK(pthread_cond_signal(&area->c));
            OK(pthread_mutex_unlock(&area->m));
            for (;;) pause();
        }
        while (!area->ready) OK(pthread_cond_wait(&area->c, &area->m));
        OK(pthread_mutex_unlock(&area->m));
        CALL(pthread_mutex_trylock(&area->robust), EBUSY);
        kill(child, SIGKILL);
        CALL(pthread_mutex_lock(&area->robust), EOWNERDEAD);
        OK(pthread_mutex_consistent(&area->robust));
        OK(pthread_mutex_unlock(&area->robust));
        SYS(waitpid(child, NULL, 0));
    }

    STAGE("times on the condition variable's own clock");
    OK(pthread_mutex_lock(&area->m));
    struct timespec soon = after_ms(CLOCK_MONOTONIC, 3);
    int result;
    while ((result = pthread_cond_timedwait(&area->c, &area->m, &soon)) == 0) continue;
    CHECK(result == ETIMEDOUT && reached(CLOCK_MONOTONIC, soon), "timedwait: %d (%s)", result,
          strerror(result));
    OK(pthread_mutex_unlock(&area->m));

    STAGE("an ordinary mutex in shared memory, used by one process at a time");
    for (int i = 0; i < 3; i++) {
        IN_AND_OUT(pthread_mutex_lock(&area->ordinary), &area->ordinary);
        IN_CHILD(25) {
            IN_AND_OUT(pthread_mutex_lock(&area->ordinary), &area->ordinary);
        }
    }
    STAGE("destroy");
    OK(pthread_mutex_destroy(&area->m));
    OK(pthread_mutex_destroy(&area->robust));
    OK(pthread_cond_destroy(&area->c));
    return 0;
}
