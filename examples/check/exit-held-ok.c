/*
 * exit-held-ok: the thread lets go of the lock before it ends.
 *
 * cc -g -pthread exit-held-ok.c -o exit-held-ok && poundlock check -- ./exit-held-ok
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock);
	money += 10;
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, worker, NULL);
	pthread_join(thread, NULL);
}
