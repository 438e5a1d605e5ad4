/*
 * destroy-waited: a condition variable is destroyed while a thread waits for it. (The wait ends by itself
 * after two seconds, so that the example ends.)
 *
 * cc -g -pthread destroy-waited.c -o destroy-waited && poundlock check -- ./destroy-waited
 */
#include <pthread.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t begun;

static void *waiter(void *unused)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 2;
	pthread_mutex_lock(&mutex);
	pthread_barrier_wait(&begun);
	pthread_cond_timedwait(&changed, &mutex, &end); // named
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
	pthread_mutex_unlock(&mutex);
	pthread_cond_destroy(&changed); // named
	pthread_join(thread, NULL);
}
