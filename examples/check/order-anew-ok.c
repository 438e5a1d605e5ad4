/*
 * order-anew-ok: the orders differ, but between them the locks were destroyed and made anew: no lock was
 * taken in both.
 *
 * cc -g -pthread order-anew-ok.c -o order-anew-ok && poundlock check -- ./order-anew-ok
 */
#include <pthread.h>

static pthread_mutex_t a, b;

static void make(void)
{
	pthread_mutex_init(&a, NULL);
	pthread_mutex_init(&b, NULL);
}

static void destroy(void)
{
	pthread_mutex_destroy(&a);
	pthread_mutex_destroy(&b);
}

static void *one(void *unused)
{
	pthread_mutex_lock(&a);
	pthread_mutex_lock(&b);
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
	make();
	in_a_thread(one);
	destroy();
	make();
	in_a_thread(other);
	destroy();
}
