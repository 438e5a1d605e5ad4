/*
 * queue: one thread gives work to others through a queue with two condition variables, for `poundlock record`
 * and `poundlock predict`.
 *
 *     cc -O2 -g -pthread -o queue examples/predict/queue.c
 *     poundlock record -- ./queue && poundlock predict
 *
 *     queue [CONSUMERS [ITEMS]]
 */
#define _GNU_SOURCE

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SIZE 64
#define TO_MAKE 1000u
#define TO_USE 2000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static uint32_t queue[SIZE];
static unsigned first, count;
static long items;
static int is_over;

/* Takes half to one and a half times this number of steps, and gives a number that depends on each. */
static uint32_t compute(uint32_t x, uint32_t steps) {
    steps = steps / 2 + (x >> 8) % steps;
    for (uint32_t i = 0; i < steps; i++)
        x = x * 1664525u + 1013904223u;
    return x;
}

static void *make(void *unused) {
    uint32_t item = 1;
    for (long i = 0; i < items; i++) {
        item = compute(item, TO_MAKE);
        pthread_mutex_lock(&lock);
        while (count == SIZE)
            pthread_cond_wait(&emptied, &lock);
        queue[(first + count++) % SIZE] = item;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *use(void *unused) {
    uint32_t sum = 0;
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (count == 0 && !is_over)
            pthread_cond_wait(&filled, &lock);
        if (count == 0) {
            pthread_mutex_unlock(&lock);
            return (void *)(uintptr_t)sum;
        }
        uint32_t item = queue[first];
        first = (first + 1) % SIZE;
        count--;
        pthread_cond_signal(&emptied);
        pthread_mutex_unlock(&lock);
        sum += compute(item, TO_USE);
    }
}

int main(int argc, char **argv) {
    int consumers = argc > 1 ? atoi(argv[1]) : 3;
    items = argc > 2 ? atol(argv[2]) : 100000;
    if (consumers < 1 || consumers > 255 || items < 1) {
        fprintf(stderr, "usage: queue [CONSUMERS [ITEMS]]\n");
        return 2;
    }
    pthread_t thread[256];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i <= consumers; i++)
        if (pthread_create(&thread[i], NULL, i == 0 ? make : use, NULL)) {
            fprintf(stderr, "queue: no thread %d\n", i);
            return 1;
        }
    for (int i = 0; i <= consumers; i++)
        pthread_join(thread[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    fprintf(stderr, "queue: %ld items by %d consumers in %.3f s\n", items, consumers, seconds);
    return 0;
}
