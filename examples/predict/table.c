/*
 * table: a hash table behind one lock, for `poundlock record` and `poundlock predict`.
 *
 *     cc -O2 -g -pthread -o table examples/predict/table.c
 *     poundlock record -- ./table && poundlock predict
 *
 *     table [THREADS [OPERATIONS]]
 *
 * THREADS threads do OPERATIONS operations together: each computes for a while, and then looks a key up, or, one
 * time in ten, writes it. What the prediction asks about can be compiled in, to see whether it is right:
 *
 *     -DHALF       half as long inside
 *     -DSPLIT=16   16 locks, each for a part of the keys
 *     -DRW         a readers-writer lock
 */
#define _GNU_SOURCE

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifndef SPLIT
#define SPLIT 1
#endif
#ifdef HALF
#define INSIDE 300u
#else
#define INSIDE 600u
#endif
#define OUTSIDE 900u
#define KEYS 4096u

#ifdef RW
typedef pthread_rwlock_t lock_t;
#define init(l) pthread_rwlock_init(l, NULL)
#define read_lock pthread_rwlock_rdlock
#define write_lock pthread_rwlock_wrlock
#define unlock pthread_rwlock_unlock
#else
typedef pthread_mutex_t lock_t;
#define init(l) pthread_mutex_init(l, NULL)
#define read_lock pthread_mutex_lock
#define write_lock pthread_mutex_lock
#define unlock pthread_mutex_unlock
#endif

static struct { lock_t lock; char apart[192]; } table_lock[SPLIT];
static uint32_t value[KEYS];
static long operations;

/* Takes half to one and a half times this number of steps, by what `varies` is: threads that always take the same
 * time fall in step and hardly meet. Gives a number that depends on each step. */
static uint32_t compute(uint32_t x, uint32_t steps, uint32_t varies) {
    steps = steps / 2 + varies % steps;
    for (uint32_t i = 0; i < steps; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}

static uint32_t look_up(uint32_t key) {
    lock_t *lock = &table_lock[key % SPLIT].lock;
    read_lock(lock);
    uint32_t found = compute(value[key], INSIDE, key);
    unlock(lock);
    return found;
}

static void change(uint32_t key, uint32_t to) {
    lock_t *lock = &table_lock[key % SPLIT].lock;
    write_lock(lock);
    value[key] = compute(value[key] ^ to, INSIDE, key);
    unlock(lock);
}

static void *work(void *seed) {
    uint32_t random = (uint32_t)(uintptr_t)seed * 2654435761u;
    for (long i = 0; i < operations; i++) {
        random = compute(random, OUTSIDE, random >> 8);
        uint32_t key = (random >> 8) % KEYS;
        if (random >> 24 < 26)
            change(key, random);
        else
            random ^= look_up(key);
    }
    return (void *)(uintptr_t)random;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    long all = argc > 2 ? atol(argv[2]) : 300000;
    if (threads < 1 || threads > 256 || all < threads) {
        fprintf(stderr, "usage: table [THREADS [OPERATIONS]]\n");
        return 2;
    }
    operations = all / threads;
    for (int i = 0; i < SPLIT; i++)
        init(&table_lock[i].lock);
    pthread_t thread[256];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)(i + 1))) {
            fprintf(stderr, "table: no thread %d\n", i);
            return 1;
        }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    fprintf(stderr, "table: %ld operations by %d threads in %.3f s\n", operations * threads, threads, seconds);
    return 0;
}
