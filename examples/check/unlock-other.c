/*
 * unlock-other: one thread locks, another one unlocks. A mutex belongs to the thread that has locked it; a
 * semaphore is for this.
 *
 * cc -g -pthread unlock-other.c -o unlock-other && poundlock check -- ./unlock-other
 */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t locked, unlocked;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock); // named
	pthread_barrier_wait(&locked);
	pthread_barrier_wait(&unlocked);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&locked, NULL, 2);
	pthread_barrier_init(&unlocked, NULL, 2);
	pthread_create(&thread, NULL, worker, NULL);
	pthread_barrier_wait(&locked);
	pthread_mutex_unlock(&lock); // named
	pthread_barrier_wait(&unlocked);
	pthread_join(thread, NULL);
}
