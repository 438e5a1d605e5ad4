/*
 * exit-held: a thread ends with a lock held: nobody can ever take it again.
 *
 * cc -g -pthread exit-held.c -o exit-held && poundlock check -- ./exit-held
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long money;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock); // named
	money += 10;
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, worker, NULL);
	pthread_join(thread, NULL);
}
