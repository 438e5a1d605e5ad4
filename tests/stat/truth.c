/* A thread waits for a lock while another one holds it, a third for items, a fourth for the end. The program times
   all of it by itself, and prints bounds in nanoseconds: how long threads waited for the lock at least, as the
   waiter was seen asleep and the lock was held, and at most, as the calls took. */
#include "work.h"
#include "await_sleep.h"
#include <sched.h>
#define ROUNDS 25
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, items_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there = PTHREAD_COND_INITIALIZER, over = PTHREAD_COND_INITIALIZER;
static int waiter, held, passed, items, ended;
static long at_least, at_most;
static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000l + time.tv_nsec;
}
/* Without a sleep: who is asleep waits for the lock. */
static void await(const int *number, int wanted)
{
    while (__atomic_load_n(number, __ATOMIC_SEQ_CST) != wanted) sched_yield();
}
static void put(int *number, int value)
{
    __atomic_store_n(number, value, __ATOMIC_SEQ_CST);
}
static void hold(int round)
{
    pthread_mutex_lock(&lock);
    put(&held, round);
    await_sleep(&waiter);
    long from = now();
    usleep(2000);
    at_least += now() - from;
    pthread_mutex_unlock(&lock);
    await(&passed, round);
    pthread_mutex_lock(&items_lock);
    items++;
    pthread_cond_signal(&there);
    pthread_mutex_unlock(&items_lock);
}
static void wait_for(int round)
{
    await(&held, round);
    long from = now();
    pthread_mutex_lock(&lock);
    at_most += now() - from;
    pthread_mutex_unlock(&lock);
    put(&passed, round);
}
static void work(int thread)
{
    if (thread == 1) put(&waiter, (int)syscall(SYS_gettid));
    for (int round = 1; thread < 2 && round <= ROUNDS; round++) (thread == 0 ? hold : wait_for)(round);
    if (thread < 2) return;
    pthread_mutex_lock(&items_lock);
    for (int taken = 0; thread == 2 && taken < ROUNDS; taken++) {
        while (!items) pthread_cond_wait(&there, &items_lock);
        items--;
    }
    if (thread == 2) ended = 1, pthread_cond_signal(&over);
    while (!ended) pthread_cond_wait(&over, &items_lock);
    pthread_mutex_unlock(&items_lock);
}
int main(void)
{
    run_threads(4, work);
    printf("%ld %ld\n", at_least, at_most);
}
