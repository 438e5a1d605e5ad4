/*
 * manylocks: what it costs to look at a program of many locks and threads.
 *
 *     cc -O2 -g -pthread -o manylocks examples/manylocks/manylocks.c
 *     poundlock stat -- ./manylocks 1000 64 & poundlock top
 *
 *     manylocks LOCKS THREADS
 *
 * Each of THREADS threads takes one of LOCKS locks at random, sleeps for a millisecond with it, and takes
 * another one, until a signal ends the program. So its threads wait for each other, and need hardly any CPU time.
 */
#define _DEFAULT_SOURCE

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t *lock;
static unsigned locks;

static void *work(void *number) {
    uint64_t random = 88172645463325252u + (uintptr_t)number * 0x9E3779B97F4A7C15u;
    for (;;) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        pthread_mutex_t *one = &lock[(random >> 32) * locks >> 32];
        pthread_mutex_lock(one);
        usleep(1000);
        pthread_mutex_unlock(one);
    }
    return NULL;
}

int main(int argc, char **argv) {
    unsigned threads = argc == 3 ? (unsigned)atoi(argv[2]) : 0;
    locks = argc == 3 ? (unsigned)atoi(argv[1]) : 0;
    if (!locks || !threads || !(lock = calloc(locks, sizeof *lock))) {
        fprintf(stderr, "usage: manylocks LOCKS THREADS\n");
        return 2;
    }
    for (unsigned i = 0; i < locks; i++)
        pthread_mutex_init(&lock[i], NULL);
    for (uintptr_t i = 1; i <= threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)i)) {
            fprintf(stderr, "manylocks: no thread %u\n", (unsigned)i);
            return 1;
        }
    }
    for (;;)
        pause();
}
