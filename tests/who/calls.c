// A thread in each call that sleeps, over and over; says at the end of its input which of them saw EINTR,
// though no signal was sent. The last three go in and out of their calls all the time.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 100000 };
static int pipes[2], sockets[2], timed_sockets[2], epoll, array, queue;
static sem_t semaphore;
static int word;
static struct timespec later(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec += LONG;
	return now;
}
static int in_nanosleep(void) { struct timespec t = { LONG, 0 }; return nanosleep(&t, NULL); }
static int in_clock_nanosleep(void)
{
	struct timespec t = later();
	int error = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL);
	errno = error;
	return error ? -1 : 0;
}
static int in_poll(void) { struct pollfd fd = { pipes[0], POLLIN, 0 }; return poll(&fd, 1, LONG * 1000); }
static int in_ppoll(void)
{
	struct pollfd fd = { pipes[0], POLLIN, 0 };
	struct timespec t = { LONG, 0 };
	return ppoll(&fd, 1, &t, NULL);
}
static int in_select(void)
{
	fd_set set;
	struct timeval t = { LONG, 0 };
	FD_ZERO(&set);
	FD_SET(pipes[0], &set);
	return select(pipes[0] + 1, &set, NULL, NULL, &t);
}
static int in_epoll(void) { struct epoll_event event; return epoll_wait(epoll, &event, 1, LONG * 1000); }
static int in_semop(void) { struct sembuf op = { 0, -1, 0 }; return semop(array, &op, 1); }
static int in_msgrcv(void)
{
	struct { long type; char text[8]; } message;
	return msgrcv(queue, &message, 8, 0, 0) < 0 ? -1 : 0;
}
static int in_read(void) { char byte; return read(pipes[0], &byte, 1) < 0 ? -1 : 0; }
static int in_recv(void) { char byte; return recv(sockets[0], &byte, 1, 0) < 0 ? -1 : 0; }
static int in_recv_timed(void) { char byte; return recv(timed_sockets[0], &byte, 1, 0) < 0 ? -1 : 0; }
static int in_read_timed(void) { char byte; return read(timed_sockets[0], &byte, 1) < 0 ? -1 : 0; }
static int in_sigtimedwait(void)
{
	sigset_t set;
	struct timespec t = { LONG, 0 };
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return sigtimedwait(&set, NULL, &t);
}
static int in_sem_wait(void) { return sem_wait(&semaphore); }
static int in_sem_timedwait(void) { struct timespec t = later(); return sem_timedwait(&semaphore, &t); }
static int in_futex(void) { return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL); }
static int in_futex_timed(void)
{
	struct timespec t = { LONG, 0 };
	return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t);
}
static int in_pause(void) { return pause(); }
static int in_wait(void) { return wait(NULL) < 0 ? -1 : 0; }
static int short_epoll(void) { struct epoll_event event; return epoll_wait(epoll, &event, 1, 1); }
static int short_semop(void)
{
	struct sembuf op = { 0, -1, 0 };
	struct timespec t = { 0, 300000 };
	return semtimedop(array, &op, 1, &t);
}
static int short_sleep(void) { struct timespec t = { 0, 200000 }; return nanosleep(&t, NULL); }

#define CALL(name) { #name, name }
static struct call {
	const char *name;
	int (*make)(void);
	atomic_int interrupted, made;
} calls[] = {
	CALL(in_nanosleep), CALL(in_clock_nanosleep), CALL(in_poll), CALL(in_ppoll), CALL(in_select), CALL(in_epoll),
	CALL(in_semop), CALL(in_msgrcv), CALL(in_read), CALL(in_recv), CALL(in_recv_timed), CALL(in_read_timed),
	CALL(in_sigtimedwait), CALL(in_sem_wait), CALL(in_sem_timedwait), CALL(in_futex), CALL(in_futex_timed),
	CALL(in_pause), CALL(in_wait), CALL(short_epoll), CALL(short_semop), CALL(short_sleep),
};
enum { CALLS = sizeof calls / sizeof *calls };

static void *body(void *argument)
{
	struct call *call = argument;
	for (;;) {
		atomic_fetch_add(&call->made, 1);
		if (call->make() < 0 && errno == EINTR)
			atomic_fetch_add(&call->interrupted, 1);
	}
	return NULL;
}

int main(void)
{
	struct timeval limit = { LONG, 0 };
	sigset_t set;
	pthread_t thread;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, timed_sockets))
		abort();
	setsockopt(timed_sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	epoll = epoll_create1(0);
	array = semget(IPC_PRIVATE, 1, 0600);
	queue = msgget(IPC_PRIVATE, 0600);
	if (epoll < 0 || array < 0 || queue < 0)
		abort();
	sem_init(&semaphore, 0, 0);
	// For wait() to wait for.
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	for (int n = 0; n < CALLS; n++) {
		if (pthread_create(&thread, NULL, body, &calls[n]))
			abort();
		pthread_setname_np(thread, calls[n].name);
	}
	for (int n = 0; n < CALLS; n++)
		while (!atomic_load(&calls[n].made))
			usleep(1000);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	for (int n = 0; n < CALLS; n++)
		if (atomic_load(&calls[n].interrupted))
			printf("%s saw EINTR %d times in %d\n", calls[n].name, calls[n].interrupted, calls[n].made);
	kill(child, SIGKILL);
	semctl(array, 0, IPC_RMID);
	msgctl(queue, IPC_RMID, NULL);
	puts("done");
	fflush(stdout);
	_exit(0);
}
