/*
 * destroy-held: a lock is destroyed while a thread holds it.
 *
 * cc -g -pthread destroy-held.c -o destroy-held && poundlock check -- ./destroy-held
 */
#include <pthread.h>

int main(void)
{
	pthread_mutex_t lock;
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_lock(&lock); // named
	pthread_mutex_destroy(&lock); // named
}
