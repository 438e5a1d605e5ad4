/*
 * destroy-held-init: a lock is initialised again while a thread holds it: the next one comes in beside it.
 *
 * cc -g -pthread destroy-held-init.c -o destroy-held-init && poundlock check -- ./destroy-held-init
 */
#include <pthread.h>

static pthread_mutex_t lock;

int main(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_lock(&lock); // named
	pthread_mutex_init(&lock, NULL); // named
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	pthread_mutex_destroy(&lock);
}
