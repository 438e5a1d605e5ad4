/*
 * order-spin: two spinlocks are taken in opposite orders.
 *
 * cc -g -pthread order-spin.c -o order-spin && poundlock check -- ./order-spin
 */
#include <pthread.h>

static pthread_spinlock_t a, b;

static void *one(void *unused)
{
	pthread_spin_lock(&a); // named
	pthread_spin_lock(&b); // named
	pthread_spin_unlock(&b);
	pthread_spin_unlock(&a);
	return unused;
}

static void *other(void *unused)
{
	pthread_spin_lock(&b); // named
	pthread_spin_lock(&a); // named
	pthread_spin_unlock(&a);
	pthread_spin_unlock(&b);
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
	pthread_spin_init(&a, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_init(&b, PTHREAD_PROCESS_PRIVATE);
	in_a_thread(one);
	in_a_thread(other);
}
