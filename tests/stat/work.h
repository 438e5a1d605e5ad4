/* What the programs of this directory have in common: threads that begin together, and work that takes
   CPU time.. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 64
static pthread_barrier_t begin;
static void (*each)(int thread);

static void *thread_main(void *number)
{
    pthread_barrier_wait(&begin);
    each((int)(long)number);
    return NULL;
}

/* Runs `work` in that many threads. */
static inline void run_threads(int threads, void (*work)(int))
{
    pthread_t thread[MOST_THREADS];
    each = work;
    pthread_barrier_init(&begin, NULL, (unsigned)threads);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, thread_main, (void *)i)) abort();
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
}

static inline long cpu_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000l + time.tv_nsec;
}

/* Uses a CPU for that time by the thread's own clock, which stands still while others have the CPU. */
static inline void compute(long microseconds)
{
    if (microseconds)
        for (long end = cpu_time() + microseconds * 1000; cpu_time() < end;) {
        }
}
