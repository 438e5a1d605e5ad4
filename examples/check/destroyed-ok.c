/*
 * destroyed-ok: the lock is destroyed when nobody needs it any more.
 *
 * cc -g -pthread destroyed-ok.c -o destroyed-ok && poundlock check -- ./destroyed-ok
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

static void pay_in(long more)
{
	pthread_mutex_lock(&lock);
	money += more;
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	pay_in(10);
	pthread_mutex_destroy(&lock);
}
