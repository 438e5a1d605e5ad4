/*
 * deadlock-join-ok: the main thread lets go of the lock before it waits for the other thread's end.
 *
 * cc -g -pthread deadlock-join-ok.c -o deadlock-join-ok && poundlock check --on-deadlock end -- ./deadlock-join-ok
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_mutex_lock(&lock);
	pthread_create(&thread, NULL, worker, NULL);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
}
