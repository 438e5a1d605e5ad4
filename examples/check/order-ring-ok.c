/*
 * order-ring-ok: the last of the three takes its two locks in the order of the alphabet, as the others do.
 *
 * cc -g -pthread order-ring-ok.c -o order-ring-ok && poundlock check -- ./order-ring-ok
 */
#include <pthread.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t c = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused)
{
	pthread_mutex_lock(&a);
	pthread_mutex_lock(&b);
	pthread_mutex_unlock(&b);
	pthread_mutex_unlock(&a);
	return unused;
}

static void *two(void *unused)
{
	pthread_mutex_lock(&b);
	pthread_mutex_lock(&c);
	pthread_mutex_unlock(&c);
	pthread_mutex_unlock(&b);
	return unused;
}

static void *three(void *unused)
{
	pthread_mutex_lock(&a);
	pthread_mutex_lock(&c);
	pthread_mutex_unlock(&c);
	pthread_mutex_unlock(&a);
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
	in_a_thread(two);
	in_a_thread(three);
}
