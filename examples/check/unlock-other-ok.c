/*
 * unlock-other-ok: the thread that has locked unlocks.
 *
 * cc -g -pthread unlock-other-ok.c -o unlock-other-ok && poundlock check -- ./unlock-other-ok
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t locked, unlocked;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock);
	pthread_barrier_wait(&locked);
	pthread_barrier_wait(&unlocked);
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&locked, NULL, 2);
	pthread_barrier_init(&unlocked, NULL, 2);
	pthread_create(&thread, NULL, worker, NULL);
	pthread_barrier_wait(&locked);
	pthread_barrier_wait(&unlocked);
	pthread_join(thread, NULL);
}
