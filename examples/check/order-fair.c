/*
 * order-fair: two threads read under the lock a, which readers share. But a is of the kind in which
 * readers wait for a writer that waits: the first thread reads, a writer waits for it, the second thread
 * waits for the writer with b held, and the first one waits for b.
 *
 * cc -g -pthread order-fair.c -o order-fair && poundlock check -- ./order-fair
 */
#define _GNU_SOURCE
#include <pthread.h>

static pthread_rwlock_t a = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_mutex_t b = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *unused)
{
	pthread_rwlock_rdlock(&a); // named
	pthread_mutex_lock(&b); // named
	pthread_mutex_unlock(&b);
	pthread_rwlock_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_mutex_lock(&b); // named
	pthread_rwlock_rdlock(&a); // named
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
