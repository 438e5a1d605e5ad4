/*
 * handler-ok: the signal is blocked while the lock is held.
 *
 * cc -g -pthread handler-ok.c -o handler-ok && poundlock check -- ./handler-ok
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count;

static void on_signal(int signal)
{
	pthread_mutex_lock(&lock);
	count += signal;
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	signal(SIGUSR1, on_signal);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pthread_mutex_lock(&lock);
	count++;
	pthread_mutex_unlock(&lock);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(SIGUSR1);
}
