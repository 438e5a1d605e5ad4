/*
 * free-held: memory is freed with a locked lock in it.
 *
 * cc -g -pthread free-held.c -o free-held && poundlock check -- ./free-held
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
	pthread_mutex_lock(&account->lock); // named
	account->money = 0;
	free(account); // named
}
