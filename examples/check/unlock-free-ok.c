/*
 * unlock-free-ok: each way through the function unlocks once.
 *
 * cc -g -pthread unlock-free-ok.c -o unlock-free-ok && poundlock check -- ./unlock-free-ok
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money = 10;

static int take(long less)
{
	pthread_mutex_lock(&lock);
	if (money < less) {
		pthread_mutex_unlock(&lock);
		return 0;
	}
	money -= less;
	pthread_mutex_unlock(&lock);
	return 1;
}

int main(void)
{
	take(5);
	take(100);
}
