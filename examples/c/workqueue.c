/*
 * workqueue: several threads count primes, in pieces of work that come through a bounded queue.
 *
 *     workqueue [THREADS [LIMIT]]
 *
 * The main thread cuts the numbers below LIMIT into ranges and puts them into the queue, waiting while it is
 * full; the others take them out, waiting while it is empty. Its two condition variables wake one thread for
 * each range. While nothing has happened for a second the main thread says how far it is, which is a wait
 * with a deadline.
 *
 * The count is compared with that of a sieve. Exits with 0 if they are the same.
 *
 *     cc -O2 workqueue.c $(pkg-config --cflags --libs poundlock) -pthread -o workqueue
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <poundlock.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { PLACES = 8, RANGE = 1000, MOST_THREADS = 1000 };

struct range {
	long begin, end;
};

static struct {
	poundlock_mutex_t lock;
	poundlock_cond_t not_full, not_empty;
	struct range ranges[PLACES];
	unsigned first, count;
	bool closed;
	long primes;
} queue = { .lock = POUNDLOCK_MUTEX_INITIALIZER,
	    .not_full = POUNDLOCK_COND_INITIALIZER,
	    .not_empty = POUNDLOCK_COND_INITIALIZER };

static void put(struct range range)
{
	poundlock_mutex_lock(&queue.lock);
	while (queue.count == PLACES) {
		struct timespec end;
		clock_gettime(CLOCK_MONOTONIC, &end);
		end.tv_sec++;
		if (poundlock_cond_clockwait(&queue.not_full, &queue.lock, CLOCK_MONOTONIC, &end) == ETIMEDOUT)
			fprintf(stderr, "workqueue: at %ld\n", range.begin);
	}
	queue.ranges[(queue.first + queue.count++) % PLACES] = range;
	poundlock_cond_signal(&queue.not_empty);
	poundlock_mutex_unlock(&queue.lock);
}

/* No more ranges come. */
static void close_queue(void)
{
	poundlock_mutex_lock(&queue.lock);
	queue.closed = true;
	poundlock_cond_broadcast(&queue.not_empty);
	poundlock_mutex_unlock(&queue.lock);
}

/* False if there are no more. Takes the count of the range before along. */
static bool take(struct range *range, long primes)
{
	poundlock_mutex_lock(&queue.lock);
	queue.primes += primes;
	while (queue.count == 0 && !queue.closed)
		poundlock_cond_wait(&queue.not_empty, &queue.lock);
	bool some = queue.count != 0;
	if (some) {
		*range = queue.ranges[queue.first++ % PLACES];
		queue.count--;
		poundlock_cond_signal(&queue.not_full);
	}
	poundlock_mutex_unlock(&queue.lock);
	return some;
}

static bool is_prime(long number)
{
	for (long divisor = 2; divisor * divisor <= number; divisor++)
		if (number % divisor == 0)
			return false;
	return number >= 2;
}

static void *work(void *unused)
{
	struct range range;
	for (long primes = 0; take(&range, primes);) {
		primes = 0;
		for (long number = range.begin; number < range.end; number++)
			primes += is_prime(number);
	}
	return unused;
}

static long sieve(long limit)
{
	bool *composite = calloc(limit + 1, sizeof *composite);
	if (composite == NULL)
		return -1;
	long primes = 0;
	for (long number = 2; number < limit; number++) {
		if (composite[number])
			continue;
		primes++;
		for (long multiple = 2 * number; multiple < limit; multiple += number)
			composite[multiple] = true;
	}
	free(composite);
	return primes;
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 4, limit = argc > 2 ? atol(argv[2]) : 200000;
	if (threads < 1 || threads > MOST_THREADS || limit < 0) {
		fprintf(stderr, "usage: workqueue [THREADS [LIMIT]]\n");
		return 2;
	}
	pthread_t workers[MOST_THREADS];
	for (long i = 0; i < threads; i++) {
		if (pthread_create(&workers[i], NULL, work, NULL) != 0) {
			fprintf(stderr, "workqueue: no thread\n");
			return 1;
		}
	}
	for (long begin = 0; begin < limit; begin += RANGE)
		put((struct range){ begin, begin + RANGE < limit ? begin + RANGE : limit });
	close_queue();
	for (long i = 0; i < threads; i++)
		pthread_join(workers[i], NULL);
	/* There were waits with a deadline. */
	poundlock_cond_destroy(&queue.not_full);

	bool right = queue.primes == sieve(limit);
	printf("workqueue: %s: %ld primes below %ld\n", right ? "right" : "WRONG", queue.primes, limit);
	return right ? 0 : 1;
}
