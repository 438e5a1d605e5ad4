// As many threads as the first argument says wait for one lock. With a second one, others work on a sum, which
// must be right at the end of the input.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static long counter, turns;
static atomic_long added, started;
static atomic_int stop;

static void *wait_at_gate(void *x)
{
	started++;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return x;
}

static void *add(void *x)
{
	while (!stop) {
		pthread_mutex_lock(&busy);
		counter++;
		pthread_cond_signal(&turn);
		pthread_mutex_unlock(&busy);
		added++;
	}
	return x;
}

static void *take_turns(void *x)
{
	pthread_mutex_lock(&busy);
	while (!stop) {
		long seen = counter;
		while (seen == counter && !stop)
			pthread_cond_wait(&turn, &busy);
		turns++;
	}
	pthread_mutex_unlock(&busy);
	return x;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 10;
	pthread_attr_t small;
	pthread_t crowd, workers[3], *all = calloc(threads, sizeof *all);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_mutex_lock(&gate);
	for (int n = 0; n < threads; n++) {
		if (pthread_create(&crowd, &small, wait_at_gate, NULL))
			abort();
		all[n] = crowd;
	}
	int works = argc > 2;
	if (works) {
		pthread_create(&workers[0], NULL, add, NULL);
		pthread_create(&workers[1], NULL, add, NULL);
		pthread_create(&workers[2], NULL, take_turns, NULL);
	}
	while (started < threads)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF) {
		// A line is asked for, and shows that it goes on.
		long before = added;
		while (works && added < before + 1000)
			usleep(100);
		puts("goes on");
		fflush(stdout);
	}
	stop = 1;
	if (works) {
		pthread_join(workers[0], NULL);
		pthread_join(workers[1], NULL);
		pthread_mutex_lock(&busy);
		counter++;
		pthread_cond_broadcast(&turn);
		pthread_mutex_unlock(&busy);
		pthread_join(workers[2], NULL);
		puts(counter == added + 1 ? "right" : "wrong");
	}
	pthread_mutex_unlock(&gate);
	for (int n = 0; n < threads; n++)
		pthread_join(all[n], NULL);
	return 0;
}
