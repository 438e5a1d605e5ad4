/*
 * destroy-held-init-ok: the lock is free, and destroyed, before it is initialised again.
 *
 * cc -g -pthread destroy-held-init-ok.c -o destroy-held-init-ok && poundlock check -- ./destroy-held-init-ok
 */
#include <pthread.h>

static pthread_mutex_t lock;

int main(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	pthread_mutex_destroy(&lock);
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	pthread_mutex_destroy(&lock);
}
