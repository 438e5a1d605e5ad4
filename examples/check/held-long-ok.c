/*
 * held-long-ok: the lock is held for what it guards alone.
 *
 * cc -g -pthread held-long-ok.c -o held-long-ok && poundlock check --held-over 100 -- ./held-long-ok
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
	pthread_mutex_lock(&lock);
	money += 10;
	pthread_mutex_unlock(&lock);
	work_for(0.3);
}
