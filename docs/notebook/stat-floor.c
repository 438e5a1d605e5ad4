/*
 * The least that counting 100,000 locks at random can cost: one entry of BYTES a thread and lock, in a table
 * in which its place follows from the lock's address.
 *
 *     cc -O2 -pthread -o locks crates/bench/src/programs/locks.c
 *     cc -O2 -shared -fPIC -DBYTES=32 -o floor.so docs/notebook/stat-floor.c
 *     time ./locks 100000 4 5000000
 *     time env LD_PRELOAD=./floor.so ./locks 100000 4 5000000
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define LOCKS (1 << 18)

struct entry {
	uint64_t word[BYTES / 8];
};

static int (*lock)(pthread_mutex_t *), (*unlock)(pthread_mutex_t *);
static uintptr_t base;
static __thread struct entry *table;

__attribute__((constructor)) static void find(void)
{
	*(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	*(void **)&unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
}

static struct entry *entry(pthread_mutex_t *mutex)
{
	if (base == 0)
		base = (uintptr_t)mutex & ~(uintptr_t)0xffffff;
	if (table == NULL && (table = calloc(LOCKS, sizeof *table)) == NULL)
		abort();
	return &table[((uintptr_t)mutex - base) / sizeof *mutex % LOCKS];
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int result = lock(mutex);
	struct entry *own = entry(mutex);
	own->word[0]++;
	if (BYTES >= 32) {
		own->word[1] = 1;
		own->word[2] = (uintptr_t)__builtin_return_address(0);
	}
	return result;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	if (BYTES >= 32)
		entry(mutex)->word[1] = 0;
	return unlock(mutex);
}
