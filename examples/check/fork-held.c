/*
 * fork-held: a process forks while another thread holds a lock. The child has the lock, locked, but not
 * the thread: it would wait for ever, if it did not give up after a second.
 *
 * cc -g -pthread fork-held.c -o fork-held && poundlock check -- ./fork-held
 */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t locked, forked;

static void *worker(void *unused)
{
	pthread_mutex_lock(&lock); // named
	pthread_barrier_wait(&locked);
	pthread_barrier_wait(&forked);
	pthread_mutex_unlock(&lock);
	return unused;
}

static void in_the_child(void)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 1;
	if (pthread_mutex_timedlock(&lock, &end) == 0) // named
		pthread_mutex_unlock(&lock);
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&locked, NULL, 2);
	pthread_barrier_init(&forked, NULL, 2);
	pthread_create(&thread, NULL, worker, NULL);
	pthread_barrier_wait(&locked);
	pid_t child = fork();
	if (child == 0) {
		in_the_child();
		_exit(0);
	}
	pthread_barrier_wait(&forked);
	waitpid(child, NULL, 0);
	pthread_join(thread, NULL);
}
