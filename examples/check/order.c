/*
 * order: two threads take two locks in opposite orders. They do not meet here: the second one begins when
 * the first one has ended. On another day each has its first lock and waits for that of the other, for
 * ever.
 *
 * cc -g -pthread order.c -o order && poundlock check -- ./order
 */
#include <pthread.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused)
{
	pthread_mutex_lock(&a); // named
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
