/*
 * lone-signal-ok: who changes what others wait for has the mutex when doing so.
 *
 * cc -g -pthread lone-signal-ok.c -o lone-signal-ok && poundlock check --kind all -- ./lone-signal-ok
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
	while (!__atomic_load_n(&ready, __ATOMIC_SEQ_CST))
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

static void *signaller(void *unused)
{
	pthread_mutex_lock(&mutex);
	__atomic_store_n(&ready, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&mutex);
	pthread_cond_signal(&changed);
	return unused;
}

int main(void)
{
	pthread_t thread[2];
	pthread_barrier_init(&begun, NULL, 2);
	pthread_create(&thread[0], NULL, waiter, NULL);
	pthread_barrier_wait(&begun);
	pthread_mutex_lock(&mutex); /* the other thread waits now: it had the mutex before */
	pthread_mutex_unlock(&mutex);
	pthread_create(&thread[1], NULL, signaller, NULL);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
}
