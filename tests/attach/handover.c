/* Two pairs of threads, of which one works while the other sleeps: four futex calls a round and pair. Arguments:
   rounds, and work in each. Says that it is ready, begins with a line of input, and prints rounds a second of
   wall time and of CPU time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { PAIRS = 2, DEPTH = 10 };
static sem_t turns[2 * PAIRS];
static pthread_barrier_t begins;
static long rounds, amount;
static struct { volatile long sum; char apart[120]; } sums[PAIRS];

static void work(long pair)
{
	for (long n = 0; n < amount; n++) sums[pair].sum += n;
}

/* As deep as functions call each other in real programs. */
__attribute__((noinline)) static void side(long me, long depth)
{
	if (depth > 0) {
		side(me, depth - 1);
		sums[me / 2].sum++;
		return;
	}
	pthread_barrier_wait(&begins);
	for (long round = 0; round < rounds; round++) {
		if (me % 2) {
			sem_wait(&turns[me]);
			work(me / 2);
			sem_post(&turns[me - 1]);
		} else {
			work(me / 2);
			sem_post(&turns[me + 1]);
			sem_wait(&turns[me]);
		}
	}
}

static void *start(void *me)
{
	side((long)me, DEPTH);
	return me;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static double used(void)
{
	struct rusage used;
	getrusage(RUSAGE_SELF, &used);
	return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int count, char **arguments)
{
	pthread_t threads[2 * PAIRS];
	if (count != 3) return 2;
	rounds = atol(arguments[1]);
	amount = atol(arguments[2]);
	pthread_barrier_init(&begins, NULL, 2 * PAIRS + 1);
	for (long n = 0; n < 2 * PAIRS; n++) sem_init(&turns[n], 0, 0);
	for (long n = 0; n < 2 * PAIRS; n++) pthread_create(&threads[n], 0, start, (void *)n);
	puts("ready");
	fflush(stdout);
	getchar();
	double wall = seconds(), cpu = used();
	pthread_barrier_wait(&begins);
	for (long n = 0; n < 2 * PAIRS; n++) pthread_join(threads[n], 0);
	printf("%.0f %.0f\n", rounds * PAIRS / (seconds() - wall), rounds * PAIRS / (used() - cpu));
}
