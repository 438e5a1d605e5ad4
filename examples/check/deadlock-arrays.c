/*
 * deadlock-arrays: each of two processes has a semaphore of an array and waits for that of the other, in every run.
 * With SEM_UNDO it is known whose they are. (The array stays, as arrays do: poundlock ipcs, poundlock ipcrm.)
 *
 * cc -g -pthread deadlock-arrays.c -o deadlock-arrays && poundlock check --lock poundlock --on-deadlock end -- ./deadlock-arrays
 */
#include <stdlib.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

static int array;
static int to_child[2], to_parent[2];

static void change(unsigned short number, short by)
{
	struct sembuf operation = { number, by, SEM_UNDO };
	if (semop(array, &operation, 1)) abort(); // named
}

static void each_has_one(int tell, int listen)
{
	char word = 0;
	if (write(tell, &word, 1) != 1 || read(listen, &word, 1) != 1) abort();
}

int main(void)
{
	array = semget(IPC_PRIVATE, 2, 0600);
	if (array == -1 || semctl(array, 0, SETVAL, 1) || semctl(array, 1, SETVAL, 1)) abort();
	if (pipe(to_child) || pipe(to_parent)) abort();
	if (fork() == 0) {
		change(1, -1);
		each_has_one(to_parent[1], to_child[0]);
		change(0, -1); // named
		_exit(0);
	}
	change(0, -1);
	each_has_one(to_child[1], to_parent[0]);
	change(1, -1); // named
	wait(NULL);
	semctl(array, 0, IPC_RMID);
}
