/*
 * order-class: one thread locks an account, and then its page in the book; another one locks a page, and
 * then its account. They do so with two different accounts here, whose locks cannot collide. But what one
 * function did with one account it will do with another one: locks that one line has made are one class,
 * and these two classes are taken in both orders.
 *
 * cc -g -pthread order-class.c -o order-class && poundlock check -- ./order-class
 */
#include <pthread.h>
#include <stdlib.h>

struct account {
	pthread_mutex_t lock;
	long money;
};

struct page {
	pthread_mutex_t lock;
	struct account *of;
	long entries;
};

static struct page *mine, *yours;

static struct page *page_open(void)
{
	struct page *page = malloc(sizeof *page);
	page->of = malloc(sizeof *page->of);
	pthread_mutex_init(&page->of->lock, NULL);
	pthread_mutex_init(&page->lock, NULL);
	page->of->money = page->entries = 0;
	return page;
}

static void pay_in(struct page *page, long money)
{
	pthread_mutex_lock(&page->of->lock); // named
	pthread_mutex_lock(&page->lock); // named
	page->of->money += money;
	page->entries++;
	pthread_mutex_unlock(&page->lock);
	pthread_mutex_unlock(&page->of->lock);
}

static long audit(struct page *page)
{
	pthread_mutex_lock(&page->lock); // named
	pthread_mutex_lock(&page->of->lock); // named
	long money = page->entries > 0 ? page->of->money : 0;
	pthread_mutex_unlock(&page->of->lock);
	pthread_mutex_unlock(&page->lock);
	return money;
}

static void *customer(void *unused)
{
	pay_in(mine, 10);
	return unused;
}

static void *auditor(void *unused)
{
	audit(yours);
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
	mine = page_open();
	yours = page_open();
	in_a_thread(customer);
	in_a_thread(auditor);
}
