/*
 * nesting: locks of one class are taken within each other in no order: neither of their addresses, nor of
 * numbers that the program has given them. No two of them have been taken in both orders yet.
 *
 * cc -g -pthread nesting.c -o nesting && poundlock check --kind nesting -- ./nesting
 */
#include <pthread.h>
#include <stdlib.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

static struct account account[3];

static void account_open(struct account *account, long money)
{
	pthread_mutex_init(&account->lock, NULL);
	account->money = money;
}

static void transfer(struct account *from, struct account *to, long money)
{
	pthread_mutex_lock(&from->lock);
	pthread_mutex_lock(&to->lock); // named
	from->money -= money;
	to->money += money;
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
}

int main(void)
{
	for (int i = 0; i < 3; i++)
		account_open(&account[i], 100);
	transfer(&account[0], &account[1], 10);
	transfer(&account[2], &account[1], 10);
}
