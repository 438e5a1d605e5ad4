/*
 * nesting-ok: the program says in which order the locks of this class are taken. (The function is
 * Poundlock's. It is weak: without poundlock check it is not there, and not called.)
 *
 * cc -g -pthread nesting-ok.c -o nesting-ok && poundlock check --kind nesting -- ./nesting-ok
 */
#include <pthread.h>
#include <stdlib.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

__attribute__((weak)) void poundlock_check_order(const void *lock, unsigned long number);

static struct account account[3];

static void account_open(struct account *account, long money)
{
	pthread_mutex_init(&account->lock, NULL);
	account->money = money;
}

static void transfer(struct account *from, struct account *to, long money)
{
	pthread_mutex_lock(&from->lock);
	pthread_mutex_lock(&to->lock);
	from->money -= money;
	to->money += money;
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
}

int main(void)
{
	for (int i = 0; i < 3; i++)
		account_open(&account[i], 100);
	unsigned long order[] = { 1, 3, 2 };
	for (int i = 0; poundlock_check_order && i < 3; i++)
		poundlock_check_order(&account[i].lock, order[i]);
	transfer(&account[0], &account[1], 10);
	transfer(&account[2], &account[1], 10);
}
