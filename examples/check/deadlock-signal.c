/*
 * deadlock-signal: a lost signal. It comes before the wait, and the waiter does not look whether it is due.
 *
 * cc -g -pthread deadlock-signal.c -o deadlock-signal && poundlock check --on-deadlock end -- ./deadlock-signal
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;

static void *consumer(void *unused)
{
	pthread_mutex_lock(&lock);
	pthread_cond_wait(&ready, &lock); // named
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_cond_signal(&ready);
	pthread_create(&thread, NULL, consumer, NULL);
	pthread_join(thread, NULL); // named
}
