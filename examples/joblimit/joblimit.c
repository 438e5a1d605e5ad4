/*
 * joblimit: run a command when fewer than so many others are running.
 *
 *     joblimit JOBS FILE COMMAND [ARGUMENT...]
 *     joblimit --status FILE
 *     joblimit --remove FILE
 *
 * All that name the same FILE, which must exist, share its JOBS permits. joblimit waits for one, takes it,
 * and becomes the command. The permit comes back when the command ends, however it does: at its exit, of a
 * signal, by kill -9. Nobody has to clear up, and nothing is left locked.
 *
 * That is SEM_UNDO: what a process did to a semaphore is undone at its end, and a program that it becomes by
 * exec is still the same process. A lock file or a counter in a file cannot do that.
 *
 * An ordinary System V program. It knows nothing of Poundlock.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <time.h>
#include <unistd.h>

enum {
	FREE,			/* permits that nobody has */
	ALL,			/* how many there are */
	SEMAPHORES,
};

union semun {
	int val;
	struct semid_ds *buf;
	unsigned short *array;
};

static void fail(const char *what)
{
	fprintf(stderr, "joblimit: %s: %s\n", what, strerror(errno));
	exit(125);
}

static key_t key_of(const char *file)
{
	key_t key = ftok(file, 'j');
	if (key == -1)
		fail(file);
	return key;
}

/*
 * The array of the file, made by whoever comes first. Making it and filling it are two steps, so others wait
 * for the second: it is the first semop, which the array's sem_otime shows. One that was killed between the
 * two leaves an array that is never filled; the next one to come takes that for its own task once it has
 * waited long enough.
 */
static int array_of(const char *file, int jobs)
{
	key_t key = key_of(file);
	struct sembuf fill[] = {
		{ .sem_num = ALL, .sem_op = 0, .sem_flg = IPC_NOWAIT },	/* only if nobody has */
		{ .sem_num = ALL, .sem_op = (short)jobs },
		{ .sem_num = FREE, .sem_op = (short)jobs },
	};
	for (;;) {
		int id = semget(key, SEMAPHORES, IPC_CREAT | IPC_EXCL | 0600);
		int made = id != -1;
		if (!made && errno == EEXIST)
			id = semget(key, SEMAPHORES, 0600);
		if (id == -1 && errno == ENOENT)
			continue;	/* removed in between */
		if (id == -1)
			fail("semget");
		for (int waits = 0; !made && waits < 1000; waits++) {
			struct semid_ds about;
			if (semctl(id, 0, IPC_STAT, (union semun){ .buf = &about }) == -1)
				break;	/* the operation will say why */
			if (about.sem_otime != 0)
				return id;
			nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
		}
		if (semop(id, fill, 3) == 0 || errno == EAGAIN)
			return id;
		if (errno != EIDRM && errno != EINVAL)
			fail("semop");
	}
}

static int number_of(int id, int semaphore, int command)
{
	int number = semctl(id, semaphore, command);
	if (number == -1)
		fail("semctl");
	return number;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "--status") == 0) {
		int id = semget(key_of(argv[2]), 0, 0600);
		if (id == -1)
			fail(argv[2]);
		printf("%d of %d free, %d waiting\n", number_of(id, FREE, GETVAL), number_of(id, ALL, GETVAL),
		       number_of(id, FREE, GETNCNT));
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "--remove") == 0) {
		int id = semget(key_of(argv[2]), 0, 0600);
		if (id == -1 || semctl(id, 0, IPC_RMID) == -1)
			fail(argv[2]);
		return 0;
	}
	char *end;
	long jobs = argc < 4 ? 0 : strtol(argv[1], &end, 10);
	if (argc < 4 || *end != '\0' || jobs < 1 || jobs > 1000) {
		fprintf(stderr, "usage: joblimit JOBS FILE COMMAND [ARGUMENT...]\n"
				"       joblimit --status FILE\n"
				"       joblimit --remove FILE\n");
		return 125;
	}
	struct sembuf take = { .sem_num = FREE, .sem_op = -1, .sem_flg = SEM_UNDO };
	while (semop(array_of(argv[2], (int)jobs), &take, 1) == -1)
		if (errno != EINTR && errno != EIDRM && errno != EINVAL)	/* removed: there will be a new one */
			fail("semop");
	execvp(argv[3], argv + 3);
	fail(argv[3]);
}
