/*
 * blocking: a thread sleeps while it holds a lock: whoever wants it waits for all of that time.
 *
 * cc -g -pthread blocking.c -o blocking && poundlock check --held-over 500 -- ./blocking
 */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

int main(void)
{
	pthread_mutex_lock(&lock); // named
	money += 10;
	/* Two sleeps: if the machine stands still for a while, one of them ends with that. */
	sleep(1);
	sleep(1);
	pthread_mutex_unlock(&lock);
}
