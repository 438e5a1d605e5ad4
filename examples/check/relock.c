/*
 * relock: a function takes a lock, and calls another one that takes it too: the thread waits for itself.
 *
 * cc -g -pthread relock.c -o relock && poundlock check --on-deadlock end -- ./relock
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

static long balance(void)
{
	pthread_mutex_lock(&lock); // named
	long now = money;
	pthread_mutex_unlock(&lock);
	return now;
}

static long pay_in(long more)
{
	pthread_mutex_lock(&lock); // named
	money += more;
	long now = balance();
	pthread_mutex_unlock(&lock);
	return now;
}

int main(void)
{
	return pay_in(10) != 10;
}
