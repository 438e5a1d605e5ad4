// A thread for each sort of lock of glibc's, which waits for it; the main thread, "holder", has them all.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t timed = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t robust, inherits, shared;
static mtx_t c11;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t also_written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t read_twice = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t prefers_writers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t signalled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t timed_condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore, timed_semaphore;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
	int before;
	struct {
		char name[12];
		pthread_mutex_t lock;
	} rooms[3];
} house = { .rooms = { [2] = { .lock = PTHREAD_MUTEX_INITIALIZER } } };
static pthread_t sleeper;

static struct timespec later(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += 100000;
	return now;
}

static void *wait_normal(void *x) { pthread_mutex_lock(&normal); return x; }
static void *wait_recursive(void *x) { pthread_mutex_lock(&recursive); return x; }
static void *wait_checking(void *x) { pthread_mutex_lock(&checking); return x; }
static void *wait_adaptive(void *x) { pthread_mutex_lock(&adaptive); return x; }
static void *wait_timed(void *x)
{
	struct timespec t = later();
	pthread_mutex_timedlock(&timed, &t);
	return x;
}
static void *wait_robust(void *x) { pthread_mutex_lock(&robust); return x; }
static void *wait_inherits(void *x) { pthread_mutex_lock(&inherits); return x; }
static void *wait_shared(void *x) { pthread_mutex_lock(&shared); return x; }
static void *wait_c11(void *x) { mtx_lock(&c11); return x; }
static void *wait_to_read(void *x) { pthread_rwlock_rdlock(&written); return x; }
static void *wait_to_write(void *x) { pthread_rwlock_wrlock(&also_written); return x; }
static void *wait_for_readers(void *x) { pthread_rwlock_wrlock(&read_twice); return x; }
static void *wait_behind_reader(void *x) { pthread_rwlock_wrlock(&prefers_writers); return x; }
static void *wait_behind_writer(void *x) { pthread_rwlock_rdlock(&prefers_writers); return x; }
static void *wait_signalled(void *x)
{
	pthread_mutex_lock(&guard);
	for (;;)
		pthread_cond_wait(&signalled, &guard);
	return x;
}
static void *wait_condition_timed(void *x)
{
	struct timespec t = later();
	pthread_mutex_lock(&guard);
	for (;;)
		pthread_cond_timedwait(&timed_condition, &guard, &t);
	return x;
}
static void *wait_semaphore(void *x) { sem_wait(&semaphore); return x; }
static void *wait_semaphore_timed(void *x)
{
	struct timespec t = later();
	sem_timedwait(&timed_semaphore, &t);
	return x;
}
static void *wait_barrier(void *x) { pthread_barrier_wait(&barrier); return x; }
static void *wait_join(void *x) { pthread_join(sleeper, NULL); return x; }
static void hang(void) { for (;;) pause(); }
static void *run_once(void *x) { pthread_once(&once, hang); return x; }
static void *wait_once(void *x) { pthread_once(&once, hang); return x; }
static void *wait_member(void *x) { pthread_mutex_lock(&house.rooms[2].lock); return x; }
static void *wait_heap(void *x) { pthread_mutex_lock(x); return x; }

static pthread_t start(const char *name, void *(*body)(void *), void *argument)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, body, argument))
		abort();
	pthread_setname_np(thread, name);
	return thread;
}

int main(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attributes);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inherits, &attributes);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared, &attributes);
	mtx_init(&c11, mtx_plain);
	sem_init(&semaphore, 0, 0);
	sem_init(&timed_semaphore, 0, 0);
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_mutex_t *heap = malloc(sizeof *heap);
	pthread_mutex_init(heap, NULL);
	pthread_setname_np(pthread_self(), "holder");

	pthread_mutex_t *all[] = { &normal, &recursive, &checking, &adaptive, &timed, &robust, &inherits, &shared,
				   &house.rooms[2].lock, heap };
	for (unsigned n = 0; n < sizeof all / sizeof *all; n++)
		pthread_mutex_lock(all[n]);
	mtx_lock(&c11);
	pthread_rwlock_wrlock(&written);
	pthread_rwlock_wrlock(&also_written);
	pthread_rwlock_rdlock(&read_twice);
	pthread_rwlock_rdlock(&read_twice);
	pthread_rwlock_rdlock(&prefers_writers);

	sleeper = start("normal", wait_normal, NULL);
	start("recursive", wait_recursive, NULL);
	start("checking", wait_checking, NULL);
	start("adaptive", wait_adaptive, NULL);
	start("timed", wait_timed, NULL);
	start("robust", wait_robust, NULL);
	start("inherits", wait_inherits, NULL);
	start("shared", wait_shared, NULL);
	start("c11", wait_c11, NULL);
	start("to_read", wait_to_read, NULL);
	start("to_write", wait_to_write, NULL);
	start("for_readers", wait_for_readers, NULL);
	start("behind_reader", wait_behind_reader, NULL);
	start("signalled", wait_signalled, NULL);
	start("cond_timed", wait_condition_timed, NULL);
	start("semaphore", wait_semaphore, NULL);
	start("sem_timed", wait_semaphore_timed, NULL);
	start("barrier", wait_barrier, NULL);
	start("join", wait_join, NULL);
	start("member", wait_member, NULL);
	start("heap", wait_heap, heap);
	start("runs_once", run_once, NULL);
	// Each comes after another that has to be there first.
	while (!once)
		usleep(1000);
	start("once", wait_once, NULL);
	// Bit 1: a writer waits.
	while (!(*(volatile unsigned *)&prefers_writers & 2 || ((volatile unsigned *)&prefers_writers)[1]))
		usleep(1000);
	start("behind_writer", wait_behind_writer, NULL);
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
