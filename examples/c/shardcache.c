/*
 * shardcache: a cache of results that are expensive to compute, shared by several threads.
 *
 *     shardcache [THREADS [LOOKUPS]]
 *
 * Each thread looks up LOOKUPS numbers, small ones more often, and wants to know how many steps each takes to
 * come to 1 by the rule of Collatz. The cache has 16 shards with a readers-writer lock each: a hit reads, a
 * miss computes without a lock and then writes, throwing out what was in the way. Statistics are a few
 * additions under a spinlock.
 *
 * The sum of all answers is compared with one that no cache had a part in. Exits with 0 if they are the same.
 *
 *     cc -O2 shardcache.c $(pkg-config --cflags --libs poundlock) -pthread -o shardcache
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <poundlock.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHARDS = 16, SLOTS = 512, NUMBERS = 20000 };

struct slot {
	uint32_t number;	/* 0: empty */
	uint32_t steps;
};

/* Zero bytes are unlocked locks: the whole cache needs no initialisation. */
static struct shard {
	poundlock_rwlock_t lock;
	struct slot slots[SLOTS];
} shards[SHARDS];

static struct {
	poundlock_spinlock_t lock;
	uint64_t hits, misses, replaced;
} statistics;

static uint32_t collatz(uint32_t number)
{
	uint32_t steps = 0;
	for (uint64_t n = number; n != 1; steps++)
		n = n % 2 == 0 ? n / 2 : 3 * n + 1;
	return steps;
}

static void count(bool hit, bool replaced)
{
	poundlock_spinlock_lock(&statistics.lock);
	statistics.hits += hit;
	statistics.misses += !hit;
	statistics.replaced += replaced;
	poundlock_spinlock_unlock(&statistics.lock);
}

static uint32_t look_up(uint32_t number)
{
	struct shard *shard = &shards[number % SHARDS];
	struct slot *slot = &shard->slots[number / SHARDS % SLOTS];

	poundlock_rwlock_rdlock(&shard->lock);
	struct slot found = *slot;
	poundlock_rwlock_rdunlock(&shard->lock);
	if (found.number == number) {
		count(true, false);
		return found.steps;
	}

	struct slot computed = { number, collatz(number) };
	poundlock_rwlock_wrlock(&shard->lock);
	bool replaced = slot->number != 0 && slot->number != number;
	*slot = computed;
	poundlock_rwlock_wrunlock(&shard->lock);
	count(false, replaced);
	return computed.steps;
}

struct job {
	pthread_t thread;
	uint64_t seed;
	long lookups;
	uint64_t sum;
};

/* The next number to be looked up, from 1. The same ones for the same seed. */
static uint32_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	uint32_t some = *seed >> 33;
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return 1 + some % (1 + (*seed >> 33) % NUMBERS);
}

static void *run(void *argument)
{
	struct job *job = argument;
	uint64_t seed = job->seed;
	for (long i = 0; i < job->lookups; i++)
		job->sum += look_up(next(&seed));
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 4, lookups = argc > 2 ? atol(argv[2]) : 100000;
	if (threads < 1 || threads > 1000 || lookups < 0) {
		fprintf(stderr, "usage: shardcache [THREADS [LOOKUPS]]\n");
		return 2;
	}
	struct job *jobs = calloc(threads, sizeof *jobs);
	if (jobs == NULL)
		return perror("shardcache"), 1;
	for (long i = 0; i < threads; i++) {
		jobs[i].seed = i;
		jobs[i].lookups = lookups;
		if (pthread_create(&jobs[i].thread, NULL, run, &jobs[i]) != 0) {
			fprintf(stderr, "shardcache: no thread\n");
			return 1;
		}
	}
	uint64_t sum = 0, expected = 0;
	for (long i = 0; i < threads; i++) {
		pthread_join(jobs[i].thread, NULL);
		sum += jobs[i].sum;
		uint64_t seed = i;
		for (long k = 0; k < lookups; k++)
			expected += collatz(next(&seed));
	}
	free(jobs);
	bool right = sum == expected && statistics.hits + statistics.misses == (uint64_t)threads * lookups;
	printf("shardcache: %s: %" PRIu64 " steps, %" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64 " replaced\n",
	       right ? "right" : "WRONG", sum, statistics.hits, statistics.misses, statistics.replaced);
	return right ? 0 : 1;
}
