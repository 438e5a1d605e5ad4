/*
 * unlock-free: a branch lacks its return, so that the lock is unlocked twice. If another thread had locked
 * it in between, it would lose it.
 *
 * cc -g -pthread unlock-free.c -o unlock-free && poundlock check -- ./unlock-free
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money = 10;

static int take(long less)
{
	pthread_mutex_lock(&lock);
	if (money < less) {
		pthread_mutex_unlock(&lock);
	}
	money -= less;
	pthread_mutex_unlock(&lock); // named
	return 1;
}

int main(void)
{
	take(5);
	take(100);
}
