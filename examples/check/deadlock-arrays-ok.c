/*
 * deadlock-arrays-ok: each of two processes takes both semaphores by one call, which takes both or none.
 *
 * cc -g -pthread deadlock-arrays-ok.c -o deadlock-arrays-ok && poundlock check --lock poundlock --on-deadlock end -- ./deadlock-arrays-ok
 */
#include <stdlib.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

static int array;

static void both(short by)
{
	struct sembuf operations[2] = { { 0, by, SEM_UNDO }, { 1, by, SEM_UNDO } };
	if (semop(array, operations, 2)) abort();
}

static void often(void)
{
	for (int i = 0; i < 100; i++) {
		both(-1);
		usleep(100);
		both(1);
	}
}

int main(void)
{
	array = semget(IPC_PRIVATE, 2, 0600);
	if (array == -1 || semctl(array, 0, SETVAL, 1) || semctl(array, 1, SETVAL, 1)) abort();
	if (fork() == 0) {
		often();
		_exit(0);
	}
	often();
	wait(NULL);
	semctl(array, 0, IPC_RMID);
}
