/*
 * deadlock-signal-ok: the twin of deadlock-signal. The waiter looks at a flag, which changes with the mutex held.
 *
 * cc -g -pthread deadlock-signal-ok.c -o deadlock-signal-ok && poundlock check -- ./deadlock-signal-ok
 */
#include <pthread.h>
#include <stdbool.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static bool is_ready;

static void *consumer(void *unused)
{
	pthread_mutex_lock(&lock);
	while (!is_ready)
		pthread_cond_wait(&ready, &lock);
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_mutex_lock(&lock);
	is_ready = true;
	pthread_cond_signal(&ready);
	pthread_mutex_unlock(&lock);
	pthread_create(&thread, NULL, consumer, NULL);
	pthread_join(thread, NULL);
}
