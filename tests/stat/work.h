/* What the programs of this directory have in common: threads that begin together, and work that takes a CPU. */
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

/* Uses a CPU: `turns` of a loop that no compiler takes away, about a nanosecond each. */
static inline void compute(long turns)
{
    for (volatile long i = 0; i < turns; i++) {
    }
}
