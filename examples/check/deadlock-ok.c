/*
 * deadlock-ok: each of two threads has its lock, and lets go of it before it waits for that of the other.
 *
 * cc -g -pthread deadlock-ok.c -o deadlock-ok && poundlock check --on-deadlock end -- ./deadlock-ok
 */
#include <pthread.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t each_has_one;

static void *one(void *unused)
{
	pthread_mutex_lock(&a);
	pthread_barrier_wait(&each_has_one);
	pthread_mutex_unlock(&a);
	pthread_mutex_lock(&b);
	pthread_mutex_unlock(&b);
	return unused;
}

static void *other(void *unused)
{
	pthread_mutex_lock(&b);
	pthread_barrier_wait(&each_has_one);
	pthread_mutex_unlock(&b);
	pthread_mutex_lock(&a);
	pthread_mutex_unlock(&a);
	return unused;
}

int main(void)
{
	pthread_t thread[2];
	pthread_barrier_init(&each_has_one, NULL, 2);
	pthread_create(&thread[0], NULL, one, NULL);
	pthread_create(&thread[1], NULL, other, NULL);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
}
