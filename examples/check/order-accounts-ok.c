/*
 * order-accounts-ok: of two accounts the one with the lower address is locked first, whatever the
 * transfer.
 *
 * cc -g -pthread order-accounts-ok.c -o order-accounts-ok && poundlock check -- ./order-accounts-ok
 */
#include <pthread.h>
#include <stdint.h>
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
	int forward = (uintptr_t)from < (uintptr_t)to;
	pthread_mutex_lock(forward ? &from->lock : &to->lock);
	pthread_mutex_lock(forward ? &to->lock : &from->lock);
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
