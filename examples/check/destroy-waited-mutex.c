/*
 * destroy-waited-mutex: a mutex is destroyed while a thread waits for a condition variable with it: that
 * thread is going to lock it.
 *
 * cc -g -pthread destroy-waited-mutex.c -o destroy-waited-mutex && poundlock check -- ./destroy-waited-mutex
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
		pthread_cond_wait(&changed, &mutex); // named
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
	pthread_mutex_destroy(&mutex); // named
	pthread_cond_signal(&changed);
	pthread_join(thread, NULL);
}
