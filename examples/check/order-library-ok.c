/*
 * order-library-ok: both threads take the two locks in the same order.
 *
 * cc -g -pthread order-library-ok.c $(pkg-config --cflags --libs poundlock) -o order-library-ok
 * poundlock check -- ./order-library-ok
 */
#include <poundlock.h>
#include <pthread.h>

static poundlock_mutex_t a = POUNDLOCK_MUTEX_INITIALIZER;
static poundlock_rwlock_t b = POUNDLOCK_RWLOCK_INITIALIZER;

static void *one(void *unused)
{
	poundlock_mutex_lock(&a);
	poundlock_rwlock_wrlock(&b);
	poundlock_rwlock_wrunlock(&b);
	poundlock_mutex_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	poundlock_mutex_lock(&a);
	poundlock_rwlock_rdlock(&b);
	poundlock_rwlock_rdunlock(&b);
	poundlock_mutex_unlock(&a);
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
