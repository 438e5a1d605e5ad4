/*
 * order-condition: a thread waits for a condition variable and keeps the lock outer meanwhile. Whoever
 * signals it has to have outer, too. The waiter gives up after a second here, and the signaller comes
 * then; without that the two would wait for each other for ever.
 *
 * cc -g -pthread order-condition.c -o order-condition && poundlock check -- ./order-condition
 */
#include <pthread.h>
#include <time.h>

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ready;

static void *waiter(void *unused)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 1;
	pthread_mutex_lock(&outer); // named
	pthread_mutex_lock(&mutex);
	while (!ready)
		if (pthread_cond_timedwait(&changed, &mutex, &end) != 0) // named
			break;
	pthread_mutex_unlock(&mutex);
	pthread_mutex_unlock(&outer);
	return unused;
}

static void *signaller(void *unused)
{
	pthread_mutex_lock(&outer); // named
	pthread_mutex_lock(&mutex);
	ready = 1;
	pthread_cond_signal(&changed); // named
	pthread_mutex_unlock(&mutex);
	pthread_mutex_unlock(&outer);
	return unused;
}

int main(void)
{
	pthread_t thread[2];
	pthread_create(&thread[0], NULL, waiter, NULL);
	pthread_join(thread[0], NULL);
	pthread_create(&thread[1], NULL, signaller, NULL);
	pthread_join(thread[1], NULL);
}
