/*
 * destroy-held-ok: the lock is free when it is destroyed.
 *
 * cc -g -pthread destroy-held-ok.c -o destroy-held-ok && poundlock check -- ./destroy-held-ok
 */
#include <pthread.h>

int main(void)
{
	pthread_mutex_t lock;
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	pthread_mutex_destroy(&lock);
}
