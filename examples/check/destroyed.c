/*
 * destroyed: a lock is used after its destruction.
 *
 * cc -g -pthread destroyed.c -o destroyed && poundlock check -- ./destroyed
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

static void pay_in(long more)
{
	pthread_mutex_lock(&lock); // named
	money += more;
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	pthread_mutex_destroy(&lock); // named
	pay_in(10);
}
