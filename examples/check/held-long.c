/*
 * held-long: a lock is held for a second and more, by a thread that runs.
 *
 * cc -g -pthread held-long.c -o held-long && poundlock check --held-over 500 -- ./held-long
 */
#include <pthread.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

static void work_for(int seconds)
{
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec <= seconds);
}

int main(void)
{
	pthread_mutex_lock(&lock); // named
	money += 10;
	work_for(1);
	pthread_mutex_unlock(&lock);
}
