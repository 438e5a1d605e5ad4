/*
 * handler: a signal handler takes a lock that the program takes too. The signal comes at a good moment
 * here; if it comes while the lock is held, the handler waits for the code that it has interrupted.
 *
 * cc -g -pthread handler.c -o handler && poundlock check -- ./handler
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count;

static void on_signal(int signal)
{
	pthread_mutex_lock(&lock); // named
	count += signal;
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	signal(SIGUSR1, on_signal);
	pthread_mutex_lock(&lock); // named
	count++;
	pthread_mutex_unlock(&lock);
	raise(SIGUSR1);
}
