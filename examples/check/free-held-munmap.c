/*
 * free-held-munmap: memory is unmapped with a locked lock in it. (Zeros are a mutex that is free.)
 *
 * cc -g -pthread free-held-munmap.c -o free-held-munmap && poundlock check -- ./free-held-munmap
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>

int main(void)
{
	pthread_mutex_t *lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (lock == MAP_FAILED)
		return 1;
	pthread_mutex_lock(lock); // named
	munmap(lock, 4096); // named
}
