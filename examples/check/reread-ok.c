/*
 * reread-ok: a lock of the usual kind, in which a reader may read again whoever waits.
 *
 * cc -g -pthread reread-ok.c -o reread-ok && poundlock check -- ./reread-ok
 */
#define _GNU_SOURCE
#include <pthread.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long money = 10;

static long balance(void)
{
	pthread_rwlock_rdlock(&lock);
	long now = money;
	pthread_rwlock_unlock(&lock);
	return now;
}

static int can_take(long less)
{
	pthread_rwlock_rdlock(&lock);
	int can = less <= balance();
	pthread_rwlock_unlock(&lock);
	return can;
}

int main(void)
{
	return !can_take(5);
}
