/*
 * blocking-ok: the thread lets go of the lock before it sleeps.
 *
 * cc -g -pthread blocking-ok.c -o blocking-ok && poundlock check --held-over 500 -- ./blocking-ok
 */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

int main(void)
{
	pthread_mutex_lock(&lock);
	money += 10;
	pthread_mutex_unlock(&lock);
	sleep(2);
}
