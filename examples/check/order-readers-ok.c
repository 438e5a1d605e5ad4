/*
 * order-readers-ok: the orders differ, but at the lock b both threads are readers, and these do not keep
 * each other out.
 *
 * cc -g -pthread order-readers-ok.c -o order-readers-ok && poundlock check -- ./order-readers-ok
 */
#include <pthread.h>

static pthread_rwlock_t a = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t b = PTHREAD_RWLOCK_INITIALIZER;

static void *one(void *unused)
{
	pthread_rwlock_rdlock(&a);
	pthread_rwlock_rdlock(&b);
	pthread_rwlock_unlock(&b);
	pthread_rwlock_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_rwlock_rdlock(&b);
	pthread_rwlock_wrlock(&a);
	pthread_rwlock_unlock(&a);
	pthread_rwlock_unlock(&b);
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
