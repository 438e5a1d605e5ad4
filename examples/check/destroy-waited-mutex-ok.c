/*
 * destroy-waited-mutex-ok: the mutex is destroyed when the thread that waited with it has ended.
 *
 * cc -g -pthread destroy-waited-mutex-ok.c -o destroy-waited-mutex-ok && poundlock check -- ./destroy-waited-mutex-ok
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
	pthread_mutex_lock(&mutex); /* the other thread waits now: it had the mutex before */
	ready = 1;
	pthread_mutex_unlock(&mutex);
	pthread_cond_signal(&changed);
	pthread_join(thread, NULL);
	pthread_mutex_destroy(&mutex);
}
