/*
 * uninitialised-ok: the lock is initialised before it is used.
 *
 * cc -g -pthread uninitialised-ok.c -o uninitialised-ok && poundlock check -- ./uninitialised-ok
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

int main(void)
{
	struct account *account = malloc(sizeof *account);
	memset(account, 0x5a, sizeof *account); /* as memory that was in use before may look */
	pthread_mutex_init(&account->lock, NULL);
	pthread_mutex_lock(&account->lock);
	account->money = 0;
	pthread_mutex_unlock(&account->lock);
	pthread_mutex_destroy(&account->lock);
	free(account);
}
