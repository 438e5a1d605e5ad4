/*
 * frame-gone-ok: the function lets go of its lock before it returns.
 *
 * cc -g -pthread frame-gone-ok.c -o frame-gone-ok && poundlock check -- ./frame-gone-ok
 */
#include <pthread.h>

static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void leave(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	leave();
	pthread_mutex_lock(&other);
	pthread_mutex_unlock(&other);
}
