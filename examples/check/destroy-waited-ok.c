/*
 * destroy-waited-ok: the condition variable is destroyed when nobody waits any more.
 *
 * cc -g -pthread destroy-waited-ok.c -o destroy-waited-ok && poundlock check -- ./destroy-waited-ok
 */
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t begun;
static int ready;

static void *waiter(void *unused)
{
	pthread_mutex_lock(&mutex);
	pthread_barrier_wait(&begun);
	while (!ready)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&begun, NULL, 2);
	pthread_create(&thread, NULL, waiter, NULL);
	pthread_barrier_wait(&begun);
	pthread_mutex_lock(&mutex);
	ready = 1;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
	pthread_cond_destroy(&changed);
	pthread_mutex_destroy(&mutex);
}
