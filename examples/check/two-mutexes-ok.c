/*
 * two-mutexes-ok: all that wait for the condition variable have the same mutex.
 *
 * cc -g -pthread two-mutexes-ok.c -o two-mutexes-ok && poundlock check -- ./two-mutexes-ok
 */
#include <pthread.h>

static pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t begun;
static int ready;

static void *waiter(void *argument)
{
	pthread_mutex_t *mutex = argument;
	pthread_mutex_lock(mutex);
	pthread_barrier_wait(&begun);
	while (!ready)
		pthread_cond_wait(&changed, mutex);
	pthread_mutex_unlock(mutex);
	return NULL;
}

/* When this returns, the thread waits: it had the mutex before. */
static pthread_t wait_with(pthread_mutex_t *mutex)
{
	pthread_t thread;
	pthread_create(&thread, NULL, waiter, mutex);
	pthread_barrier_wait(&begun);
	pthread_mutex_lock(mutex);
	pthread_mutex_unlock(mutex);
	return thread;
}

int main(void)
{
	pthread_barrier_init(&begun, NULL, 2);
	pthread_t one = wait_with(&mine);
	pthread_t other = wait_with(&mine);
	pthread_mutex_lock(&mine);
	ready = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mine);
	pthread_join(one, NULL);
	pthread_join(other, NULL);
}
