/*
 * held-long: a lock is held for most of a second, by a thread that runs.
 *
 * cc -g -pthread held-long.c -o held-long && poundlock check --held-over 100 -- ./held-long
 */
#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

static void work_for(double seconds)
{
	struct timespec begin, now;
	double worked;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		worked = (now.tv_sec - begin.tv_sec) + (now.tv_nsec - begin.tv_nsec) / 1e9;
	} while (worked < seconds);
}

int main(void)
{
	pthread_mutex_lock(&lock); // named
	money += 10;
	/* In parts: if the machine stands still for a while, one of them ends with that. */
	for (int part = 0; part < 4; part++)
		work_for(0.2);
	pthread_mutex_unlock(&lock);
}
