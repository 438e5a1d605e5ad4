/*
 * frame-gone: a function returns while it holds a lock that is a variable of its own. It is seen when the
 * thread takes a lock, or lets go of one, the next time.
 *
 * cc -g -pthread frame-gone.c -o frame-gone && poundlock check -- ./frame-gone
 */
#include <pthread.h>

static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void leave(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock); // named
}

int main(void)
{
	leave();
	pthread_mutex_lock(&other);
	pthread_mutex_unlock(&other);
}
