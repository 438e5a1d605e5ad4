/*
 * relock-ok: a mutex that is recursive may be taken again by its owner.
 *
 * cc -g -pthread relock-ok.c -o relock-ok && poundlock check --on-deadlock end -- ./relock-ok
 */
#define _GNU_SOURCE
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static long money;

static long balance(void)
{
	pthread_mutex_lock(&lock);
	long now = money;
	pthread_mutex_unlock(&lock);
	return now;
}

static long pay_in(long more)
{
	pthread_mutex_lock(&lock);
	money += more;
	long now = balance();
	pthread_mutex_unlock(&lock);
	return now;
}

int main(void)
{
	return pay_in(10) != 10;
}
