/* Programs whose threads sleep where no lock is that the C library has. The first argument says which; its twin,
   `_not`, computes instead. */
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include "work.h"

static int ends[2];

/* A lock of the program's own: whoever reads the token has it. */
static void own_lock(void)
{
    uint64_t token;
    if (read(ends[0], &token, sizeof token) != sizeof token) abort();
}

static void own_unlock(void)
{
    uint64_t token = 1;
    if (write(ends[1], &token, sizeof token) != sizeof token) abort();
}

static void take_turns(int thread)
{
    (void)thread;
    for (int turn = 0; turn < 150; turn++) {
        own_lock(); /* eventfd pipe pool */
        usleep(2000);
        own_unlock();
    }
}

/* A token that is waited for by epoll, as by event loops of a database's processes. */
static void take_turns_by_epoll(int thread)
{
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    (void)thread;
    if (epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event)) abort();
    for (int turn = 0; turn < 150;) {
        uint64_t token;
        if (epoll_wait(set, &event, 1, -1) != 1) continue; /* epoll */
        if (read(ends[0], &token, sizeof token) != sizeof token) continue;
        usleep(2000);
        own_unlock();
        turn++;
    }
}

/* Threads of a pool wait for work that comes at the end only, beside others that take turns. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue = PTHREAD_COND_INITIALIZER;
static int over;

static void wait_for_work(void)
{
    pthread_mutex_lock(&queue_lock);
    while (!over) pthread_cond_wait(&queue, &queue_lock);
    pthread_mutex_unlock(&queue_lock);
}

static void pool_or_turns(int thread)
{
    if (thread >= 4) return wait_for_work();
    take_turns(thread);
    pthread_mutex_lock(&queue_lock);
    over = 1;
    pthread_cond_broadcast(&queue);
    pthread_mutex_unlock(&queue_lock);
}

/* Nobody signals. When all sleep, the program says so, and whoever runs it ends it. */
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void *consume(void *unused)
{
    pthread_mutex_lock(&queue_lock);
    for (;;) pthread_cond_wait(&never, &queue_lock); /* stuck */
    return unused;
}

/* Waits for input, of which there is none. */
static void serve(int by_epoll)
{
    char byte;
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(set, EPOLL_CTL_ADD, 0, &event)) abort();
    do {
        if (by_epoll) epoll_wait(set, &event, 1, -1);
    } while (read(0, &byte, 1) > 0);
}

static void work(int thread)
{
    (void)thread;
    compute(300000);
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "";
    ends[0] = ends[1] = eventfd(0, EFD_SEMAPHORE | (strcmp(which, "epoll") ? 0 : EFD_NONBLOCK));
    if (!strcmp(which, "pipe") && pipe(ends)) abort();
    own_unlock();
    if (!strcmp(which, "pool")) run_threads(8, pool_or_turns);
    else if (!strcmp(which, "epoll")) run_threads(4, take_turns_by_epoll);
    else if (!strcmp(which, "stuck")) {
        pthread_t consumer;
        if (pthread_create(&consumer, NULL, consume, NULL)) abort();
        pthread_join(consumer, NULL);
    } else if (!strcmp(which, "stuck_eventfd")) {
        own_lock();
        run_threads(2, take_turns);
    } else if (!strncmp(which, "idle_", 5)) serve(!strcmp(which, "idle_epoll"));
    else if (strstr(which, "_not")) run_threads(2, work);
    else run_threads(4, take_turns);
}
