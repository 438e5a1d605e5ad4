/* Threads that wait for a mutex, and sum up by themselves how long. Argument: how often each takes it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static long rounds;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void *work(void *sum)
{
	for (long round = 0; round < rounds; round++) {
		long begin = now();
		pthread_mutex_lock(&busy);
		*(long *)sum += now() - begin;
		usleep(1000);
		pthread_mutex_unlock(&busy);
	}
	return sum;
}

int main(int count, char **arguments)
{
	pthread_t threads[4];
	long sums[4] = {0}, sum = 0;
	rounds = count > 1 ? atol(arguments[1]) : 100;
	for (int n = 0; n < 4; n++) pthread_create(&threads[n], 0, work, &sums[n]);
	for (int n = 0; n < 4; n++) {
		pthread_join(threads[n], 0);
		sum += sums[n];
	}
	printf("%ld\n", sum);
}
