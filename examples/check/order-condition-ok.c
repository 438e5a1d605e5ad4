/*
 * order-condition-ok: who waits has no lock but the one that belongs to the condition variable.
 *
 * cc -g -pthread order-condition-ok.c -o order-condition-ok && poundlock check -- ./order-condition-ok
 */
#include <pthread.h>

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;
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

static void make_ready(void)
{
	pthread_mutex_lock(&mutex);
	ready = 1;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&mutex);
}

static void *signaller(void *unused)
{
	pthread_mutex_lock(&outer);
	make_ready();
	pthread_mutex_unlock(&outer);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&begun, NULL, 2);
	pthread_create(&thread, NULL, waiter, NULL);
	pthread_barrier_wait(&begun);
	make_ready();
	pthread_join(thread, NULL);
	pthread_create(&thread, NULL, signaller, NULL);
	pthread_join(thread, NULL);
}
