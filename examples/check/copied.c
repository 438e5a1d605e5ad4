/*
 * copied: a struct with a locked lock is passed by value: the copy is unlocked, and the lock itself stays
 * locked.
 *
 * cc -g -pthread copied.c -o copied && poundlock check -- ./copied
 */
#include <pthread.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

static void done(struct account account)
{
	pthread_mutex_unlock(&account.lock); // named
}

int main(void)
{
	struct account account = { PTHREAD_MUTEX_INITIALIZER, 0 };
	pthread_mutex_lock(&account.lock); // named
	account.money += 10;
	done(account);
	pthread_mutex_unlock(&account.lock);
}
