/*
 * joblimiter: limits how many jobs run at a time, among processes that know nothing of one another but a
 * file's name.
 *
 *     joblimiter FILE SLOTS[,MEMORY] [--needs MEMORY] -- COMMAND [ARGUMENT...]
 *     joblimiter FILE --remove
 *
 * At most SLOTS of those that name the same FILE run their commands at a time, and these need no more than
 * MEMORY units (gigabytes, say) together; the others wait. A job takes its slot and its memory at once or not
 * at all, so two jobs never wait for what the other has. However a job ends, by kill -9 too, what it held
 * comes back.
 *
 *     cc -std=gnu11 -O2 joblimiter.c $(pkg-config --cflags --libs poundlock) -o joblimiter
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <unistd.h>

#include <poundlock.h>

enum { SLOT, MEMORY, SEMAPHORES };

static _Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "joblimiter: %s: %s\n", what, why);
	exit(125);
}

static void check(const char *file, int error)
{
	if (error != 0)
		fail(file, strerror(error));
}

/* What processes agree on. */
static int key_of(const char *file)
{
	int key = ftok(file, 'j');
	if (key == -1)
		fail(file, strerror(errno));
	return key;
}

/* A number that a semaphore can have, and nothing behind it but one of `ends`. */
static int number(const char *text, const char *ends, const char **end)
{
	char *after;
	errno = 0;
	long value = strtol(text, &after, 10);
	if (after == text || !strchr(ends, *after) || errno != 0 || value < 0 || value > 32767)
		fail(text, "not a number from 0 to 32767");
	if (end != NULL)
		*end = after;
	return (int)value;
}

int main(int argc, char **argv)
{
	const char *usage = "FILE SLOTS[,MEMORY] [--needs MEMORY] -- COMMAND [ARGUMENT...], or FILE --remove";
	int id;
	if (argc == 3 && strcmp(argv[2], "--remove") == 0) {
		check(argv[1], poundlock_semset_open(&id, key_of(argv[1])));
		check(argv[1], poundlock_semset_remove(id));
		return 0;
	}
	int says_needs = argc > 5 && strcmp(argv[3], "--needs") == 0;
	int dashes = says_needs ? 5 : 3;
	if (argc < dashes + 2 || strcmp(argv[dashes], "--") != 0)
		fail("usage", usage);
	const char *end;
	uint16_t limits[SEMAPHORES] = { 0 };
	limits[SLOT] = (uint16_t)number(argv[2], ",", &end);
	if (*end == ',')
		limits[MEMORY] = (uint16_t)number(end + 1, "", NULL);
	int needs = says_needs ? number(argv[4], "", NULL) : 0;
	if (needs > limits[MEMORY])
		fail(argv[4], "no job of so many units ever fits");

	check(argv[1], poundlock_semset_open_or_create(&id, key_of(argv[1]), limits, SEMAPHORES));
	poundlock_semset_op_t take[] = {
		{ .sem_num = SLOT, .sem_op = -1, .sem_flg = POUNDLOCK_SEMSET_UNDO },
		{ .sem_num = MEMORY, .sem_op = (int16_t)-needs, .sem_flg = POUNDLOCK_SEMSET_UNDO },
	};
	/* To take 0 units would be to wait until there are none. */
	check(argv[1], poundlock_semset_operate(id, take, needs == 0 ? 1 : 2));
	/* In this process's place, so that what is held is held by the job itself. */
	char **command = argv + dashes + 1;
	execvp(*command, command);
	fail(*command, strerror(errno));
}
