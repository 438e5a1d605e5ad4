/*
 * fork-held-ok: the thread that forks holds the lock meanwhile, so that no other one does, and lets go of
 * it in both processes.
 *
 * cc -g -pthread fork-held-ok.c -o fork-held-ok && poundlock check -- ./fork-held-ok
 */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t locked, forked;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock);
	pthread_barrier_wait(&locked);
	pthread_barrier_wait(&forked);
	pthread_mutex_unlock(&lock);
	return unused;
}

static void in_the_child(void)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 30;
	if (pthread_mutex_timedlock(&lock, &end) == 0)
		pthread_mutex_unlock(&lock);
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&locked, NULL, 2);
	pthread_barrier_init(&forked, NULL, 2);
	pthread_create(&thread, NULL, worker, NULL);
	pthread_barrier_wait(&locked);
	pthread_barrier_wait(&forked);
	pthread_mutex_lock(&lock);
	pid_t child = fork();
	if (child == 0) {
		pthread_mutex_unlock(&lock);
		in_the_child();
		_exit(0);
	}
	pthread_mutex_unlock(&lock);
	waitpid(child, NULL, 0);
	pthread_join(thread, NULL);
}
