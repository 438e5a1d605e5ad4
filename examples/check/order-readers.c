/*
 * order-readers: each of two threads reads what one lock guards, and writes what the other one guards.
 * Each writer would wait for the other one's reading.
 *
 * cc -g -pthread order-readers.c -o order-readers && poundlock check -- ./order-readers
 */
#include <pthread.h>

static pthread_rwlock_t a = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t b = PTHREAD_RWLOCK_INITIALIZER;

static void *one(void *unused)
{
	pthread_rwlock_rdlock(&a); // named
	pthread_rwlock_wrlock(&b); // named
	pthread_rwlock_unlock(&b);
	pthread_rwlock_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_rwlock_rdlock(&b); // named
	pthread_rwlock_wrlock(&a); // named
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
