/*
 * copied-ok: what is passed is the struct's address.
 *
 * cc -g -pthread copied-ok.c -o copied-ok && poundlock check -- ./copied-ok
 */
#include <pthread.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

static void done(struct account *account)
{
	pthread_mutex_unlock(&account->lock);
}

int main(void)
{
	struct account account = { PTHREAD_MUTEX_INITIALIZER, 0 };
	pthread_mutex_lock(&account.lock);
	account.money += 10;
	done(&account);
}
