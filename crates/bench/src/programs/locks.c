/*
 * locks: threads take some of many locks at random, with nothing inside.
 *
 *     locks LOCKS THREADS TIMES
 *
 * Each of THREADS threads takes a lock TIMES times. With no threads the main thread takes every lock once.
 */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t *lock;
static unsigned locks;
static long times;

static void take(unsigned which)
{
	pthread_mutex_lock(&lock[which]);
	pthread_mutex_unlock(&lock[which]);
}

static void *work(void *number)
{
	uint64_t random = 88172645463325252u + (uintptr_t)number;
	for (long i = 0; i < times; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		take((unsigned)((random >> 32) * locks >> 32));
	}
	return NULL;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	pthread_t thread[64];
	unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	locks = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	times = argc > 3 ? atol(argv[3]) : 0;
	lock = calloc(locks, sizeof *lock);
	if (argc != 4 || locks == 0 || threads > 64 || lock == NULL) {
		fprintf(stderr, "usage: locks LOCKS THREADS TIMES\n");
		return 2;
	}
	for (unsigned i = 0; i < locks; i++)
		pthread_mutex_init(&lock[i], NULL);
	double start = seconds();
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)i) != 0)
			abort();
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; threads == 0 && i < locks; i++)
		take(i);
	fprintf(stderr, "locks: %u locks in %.3f s\n", locks, seconds() - start);
}
