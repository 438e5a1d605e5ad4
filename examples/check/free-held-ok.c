/*
 * free-held-ok: the lock is unlocked and destroyed before its memory is freed.
 *
 * cc -g -pthread free-held-ok.c -o free-held-ok && poundlock check -- ./free-held-ok
 */
#include <pthread.h>
#include <stdlib.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

int main(void)
{
	struct account *account = malloc(sizeof *account);
	pthread_mutex_init(&account->lock, NULL);
	pthread_mutex_lock(&account->lock);
	account->money = 0;
	pthread_mutex_unlock(&account->lock);
	pthread_mutex_destroy(&account->lock);
	free(account);
}
