/*
 * order-trylock: who takes the first lock by trylock still has it while waiting for the second one.
 *
 * cc -g -pthread order-trylock.c -o order-trylock && poundlock check -- ./order-trylock
 */
#include <pthread.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused)
{
	if (pthread_mutex_trylock(&a) != 0) // named
		return unused;
	pthread_mutex_lock(&b); // named
	pthread_mutex_unlock(&b);
	pthread_mutex_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_mutex_lock(&b); // named
	pthread_mutex_lock(&a); // named
	pthread_mutex_unlock(&a);
	pthread_mutex_unlock(&b);
	return unused;
}

static void in_a_thread(void *(*body)(void *))
{
	pthread_t thread;
	pthread_create(&thread, NULL, body, NULL);
	pthread_join(thread, NULL);
}

int main(void)
{
	in_a_thread(one);
	in_a_thread(other);
}
