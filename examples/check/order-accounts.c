/*
 * order-accounts: the locks of two accounts are taken in the order of the transfer. One line takes both,
 * and one line has made both: what differs is which account comes first.
 *
 * cc -g -pthread order-accounts.c -o order-accounts && poundlock check -- ./order-accounts
 */
#include <pthread.h>
#include <stdlib.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

static struct account *mine, *yours;

static struct account *account_open(long money)
{
	struct account *account = malloc(sizeof *account);
	pthread_mutex_init(&account->lock, NULL);
	account->money = money;
	return account;
}

static void transfer(struct account *from, struct account *to, long money)
{
	pthread_mutex_lock(&from->lock); // named
	pthread_mutex_lock(&to->lock); // named
	from->money -= money;
	to->money += money;
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
}

static void *give(void *unused)
{
	transfer(mine, yours, 10);
	return unused;
}

static void *take(void *unused)
{
	transfer(yours, mine, 10);
	return unused;
}

static void in_a_thread(void *(*body)(void *))
{
	pthread_t thread;
	pthread_create(&thread, NULL, body, NULL);
	pthread_join(thread, NULL);
}

int main(void)
{
	mine = account_open(100);
	yours = account_open(100);
	in_a_thread(give);
	in_a_thread(take);
}
