/*
 * order-semaphores-ok: two semaphores are used as locks, in one order.
 *
 * cc -g -pthread order-semaphores-ok.c -o order-semaphores-ok && poundlock check --semaphores -- ./order-semaphores-ok
 */
#include <pthread.h>
#include <semaphore.h>

static sem_t a, b;

static void *one(void *unused)
{
	sem_wait(&a);
	sem_wait(&b);
	sem_post(&b);
	sem_post(&a);
	return unused;
}

static void *other(void *unused)
{
	sem_wait(&a);
	sem_wait(&b);
	sem_post(&b);
	sem_post(&a);
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
	sem_init(&a, 0, 1);
	sem_init(&b, 0, 1);
	in_a_thread(one);
	in_a_thread(other);
}
