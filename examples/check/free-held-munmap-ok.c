/*
 * free-held-munmap-ok: the lock is unlocked before its memory is unmapped.
 *
 * cc -g -pthread free-held-munmap-ok.c -o free-held-munmap-ok && poundlock check -- ./free-held-munmap-ok
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

int main(void)
{
	pthread_mutex_t *lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (lock == MAP_FAILED)
		return 1;
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	munmap(lock, 4096);
}
