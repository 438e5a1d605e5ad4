/*
 * order-fair-ok: a is of the usual kind, in which no reader waits for another reader, whoever else waits.
 *
 * cc -g -pthread order-fair-ok.c -o order-fair-ok && poundlock check -- ./order-fair-ok
 */
#define _GNU_SOURCE
#include <pthread.h>

static pthread_rwlock_t a = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused)
{
	pthread_rwlock_rdlock(&a);
	pthread_mutex_lock(&b);
	pthread_mutex_unlock(&b);
	pthread_rwlock_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_mutex_lock(&b);
	pthread_rwlock_rdlock(&a);
	pthread_rwlock_unlock(&a);
	pthread_mutex_unlock(&b);
	return unused;
}

static void *writer(void *unused)
{
	pthread_rwlock_wrlock(&a);
	pthread_rwlock_unlock(&a);
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
	in_a_thread(writer);
}
