/*
 * deadlock-join: the main thread waits for the end of a thread that waits for a lock of the main thread's.
 *
 * cc -g -pthread deadlock-join.c -o deadlock-join && poundlock check --on-deadlock end -- ./deadlock-join
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock); // named
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_mutex_lock(&lock); // named
	pthread_create(&thread, NULL, worker, NULL);
	pthread_join(thread, NULL); // named
	pthread_mutex_unlock(&lock);
}
