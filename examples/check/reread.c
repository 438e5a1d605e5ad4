/*
 * reread: a reader takes its lock again. The lock is of the kind in which readers wait for a writer that
 * waits: if one comes between the two, it waits for the reader, and the reader for it.
 *
 * cc -g -pthread reread.c -o reread && poundlock check -- ./reread
 */
#define _GNU_SOURCE
#include <pthread.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static long money = 10;

static long balance(void)
{
	pthread_rwlock_rdlock(&lock); // named
	long now = money;
	pthread_rwlock_unlock(&lock);
	return now;
}

static int can_take(long less)
{
	pthread_rwlock_rdlock(&lock); // named
	int can = less <= balance();
	pthread_rwlock_unlock(&lock);
	return can;
}

int main(void)
{
	return !can_take(5);
}
