// A thousand forks from a program whose other threads hammer the same mutexes and condition variable all the
// time, with the pthread_atfork pattern: prepare takes the locks, parent and child give them back. Each child
// then uses them.
#include "check.h"

enum { HAMMERS = 3 };

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static volatile long first, second;
static volatile int stop;
static int prepared, in_parent, in_child;

static void prepare(void) {
    OK(pthread_mutex_lock(&a));
    OK(pthread_mutex_lock(&b));
    CHECK(first == second, "prepare holds the lock, and so does another thread");
    prepared++;
}
static void parent(void) {
    in_parent++;
    OK(pthread_mutex_unlock(&b));
    OK(pthread_mutex_unlock(&a));
}
static void child(void) {
    in_child++;
    OK(pthread_mutex_unlock(&b));
    OK(pthread_mutex_unlock(&a));
}

static void *hammer(void *number) {
    unsigned random = (unsigned)(long)number + 1;
    while (!stop) {
        random = random * 1664525u + 1013904223u;
        OK(pthread_mutex_lock(&a));
        if (random >> 28 == 3) {
            struct timespec soon = after_us(CLOCK_MONOTONIC, random >> 20 & 63);
            int result = pthread_cond_clockwait(&c, &a, CLOCK_MONOTONIC, &soon);
            CHECK(result == 0 || result == ETIMEDOUT, "clockwait: %d", result);
        }
        OK(pthread_mutex_lock(&b));
        ALONE(first, second, (void)0);
        OK(pthread_mutex_unlock(&b));
        if (random & 0x1000) OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&a));
    }
    return NULL;
}

static void *locks_both(void *unused) {
    for (int i = 0; i < 20; i++) {
        OK(pthread_mutex_lock(&a));
        OK(pthread_mutex_lock(&b));
        first++;
        OK(pthread_mutex_unlock(&b));
        OK(pthread_mutex_unlock(&a));
    }
    return unused;
}

int main(int argc, char **argv) {
    limit_seconds(90);
    int forks = argc > 1 ? atoi(argv[1]) : 1000;
    MUST(pthread_atfork(prepare, parent, child));
    pthread_t threads[HAMMERS];
    for (long i = 0; i < HAMMERS; i++) threads[i] = spawn(hammer, (void *)i);
    for (int i = 0; i < forks; i++) {
        STAGE("fork");
        pid_t pid = fork_limited(20);
        if (pid == 0) {
            STAGE("in the child");
            CHECK(in_child == 1 && prepared == i + 1 && in_parent == i, "handlers: %d %d %d", prepared,
                  in_parent,
                  in_child);
            long before = first;
            CHECK(first == second, "the child sees a broken invariant");
            IN_AND_OUT(pthread_mutex_trylock(&a), &a);
            locks_both(NULL);
            if (i % 10 == 0) {
                crowd(2, locks_both);
            }
            CHECK(first == before + (i % 10 == 0 ? 60 : 20), "the child's additions");
            if (i % 50 == 0) {
                second = first;
                IN_CHILD(10) {
                    CHECK(in_child == 2, "the grandchild's handlers");
                    locks_both(NULL);
                }
            }
            _exit(0);
        }
        STAGE("await the child");
        await_child(pid);
    }
    STAGE("end");
    stop = 1;
    for (int i = 0; i < HAMMERS; i++) join(threads[i]);
    CHECK(first == second && first > 0, "%ld and %ld", first, second);
    CHECK(prepared == forks && in_parent == forks && in_child == 0, "handlers: %d %d %d", prepared, in_parent,
          in_child);
    return 0;
}
