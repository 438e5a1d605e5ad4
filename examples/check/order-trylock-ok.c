/*
 * order-trylock-ok: the thread that takes the locks in the other order does not wait for the second one:
 * it gives up the first one, and would come again.
 *
 * cc -g -pthread order-trylock-ok.c -o order-trylock-ok && poundlock check -- ./order-trylock-ok
 */
#include <pthread.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused)
{
	pthread_mutex_lock(&a);
	if (pthread_mutex_trylock(&b) == 0)
		pthread_mutex_unlock(&b);
	pthread_mutex_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_mutex_lock(&b);
	pthread_mutex_lock(&a);
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
