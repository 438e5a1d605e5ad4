// What a readers-writer lock of the C library costs, as it is and under `poundlock run`:
//
//     cc -O2 -pthread -o rwpairs examples/rwpairs/rwpairs.c
//     ./rwpairs read 0; poundlock run -- ./rwpairs read 0
//
// rwpairs read|write IDLE    nanoseconds of a lock and an unlock that nobody contends with, on one CPU,
// beside IDLE
//                                threads that sleep
// rwpairs mixed THREADS      for five seconds each thread reads nine times in ten and writes once: reads and
// writes a
//                                second, and the longest that a reader and a writer waited
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_rwlock_t lock __attribute__((aligned(64))) = PTHREAD_RWLOCK_INITIALIZER;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *sleeps(void *unused) {
    pause();
    return unused;
}

static int pairs(int writes, int idle) {
    enum { PAIRS = 4000000, ROUNDS = 9 };
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    pthread_t thread;
    for (int i = 0; i < idle; i++) pthread_create(&thread, NULL, sleeps, NULL);
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double began = now();
        for (int i = 0; i < PAIRS; i++) {
            if (writes) pthread_rwlock_wrlock(&lock);
            else pthread_rwlock_rdlock(&lock);
            pthread_rwlock_unlock(&lock);
        }
        double took = (now() - began) / PAIRS * 1e9;
        if (took < best) best = took;
    }
    printf("%.2f ns a pair\n", best);
    return 0;
}

struct tally {
    pthread_t thread;
    unsigned seed;
    long count[2]; // reads, writes
    double longest[2];
};

static volatile int stop;
static volatile long data;

static void *mixes(void *argument) {
    struct tally *tally = argument;
    unsigned random = tally->seed;
    while (!stop) {
        random = random * 1664525u + 1013904223u;
        int writes = (random >> 16) % 10 == 0;
        double began = now();
        if (writes) pthread_rwlock_wrlock(&lock);
        else pthread_rwlock_rdlock(&lock);
        double waited = now() - began;
        if (waited > tally->longest[writes]) tally->longest[writes] = waited;
        for (int i = 0; i < 100; i++) {
            if (writes) data = data + 1;
            else (void)data;
        }
        pthread_rwlock_unlock(&lock);
        tally->count[writes]++;
    }
    return NULL;
}

static int mixed(int threads) {
    struct tally *tallies = calloc((size_t)threads, sizeof *tallies);
    if (tallies == NULL) return 1;
    double began = now();
    for (int i = 0; i < threads; i++) {
        tallies[i].seed = (unsigned)i * 2654435761u + 1;
        pthread_create(&tallies[i].thread, NULL, mixes, &tallies[i]);
    }
    sleep(5);
    stop = 1;
    double count[2] = {0, 0}, longest[2] = {0, 0};
    for (int i = 0; i < threads; i++) {
        pthread_join(tallies[i].thread, NULL);
        for (int w = 0; w < 2; w++) {
            count[w] += (double)tallies[i].count[w];
            if (tallies[i].longest[w] > longest[w]) longest[w] = tallies[i].longest[w];
        }
    }
    double took = now() - began;
    printf("%.2f M reads/s, longest wait %.1f ms; %.3f M writes/s, longest wait %.1f ms\n",
           count[0] / took / 1e6,
           longest[0] * 1e3, count[1] / took / 1e6, longest[1] * 1e3);
    free(tallies);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "read") == 0) return pairs(0, atoi(arguments[2]));
    if (count == 3 && strcmp(arguments[1], "write") == 0) return pairs(1, atoi(arguments[2]));
    if (count == 3 && strcmp(arguments[1], "mixed") == 0 && atoi(arguments[2]) > 0)
        return mixed(atoi(arguments[2]));
    fprintf(stderr, "usage: rwpairs read|write IDLE, or rwpairs mixed THREADS\n");
    return 2;
}
