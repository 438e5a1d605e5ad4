/*
 * deadlock: each of two threads has a lock and waits for that of the other, in every run.
 *
 * cc -g -pthread deadlock.c -o deadlock && poundlock check --on-deadlock end -- ./deadlock
 */
#include <pthread.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t each_has_one;

static void *one(void *unused)
{
	pthread_mutex_lock(&a); // named
	pthread_barrier_wait(&each_has_one);
	pthread_mutex_lock(&b); // named
	pthread_mutex_unlock(&b);
	pthread_mutex_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_mutex_lock(&b); // named
	pthread_barrier_wait(&each_has_one);
	pthread_mutex_lock(&a); // named
	pthread_mutex_unlock(&a);
	pthread_mutex_unlock(&b);
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
