/*
 * uninitialised: a lock is used that was never initialised: its bytes are what the memory had before.
 *
 * cc -g -pthread uninitialised.c -o uninitialised && poundlock check -- ./uninitialised
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
	pthread_mutex_lock(&account->lock); // named
	account->money = 0;
	pthread_mutex_unlock(&account->lock);
	free(account);
}
