/* Mutexes whose owners end with them in their hands, as robust ones are there for, in a thread and in a
 * process; and one that processes share, at two addresses in this one. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void make(pthread_mutex_t *mutex, int robust, int shared) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if (robust)
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (shared)
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_mutex_init(mutex, &attributes), 0);
    pthread_mutexattr_destroy(&attributes);
}

static void *take(void *mutex) {
    CHECK(pthread_mutex_lock(mutex), 0);
    return NULL;
}

static void recover(pthread_mutex_t *mutex) {
    CHECK(pthread_mutex_lock(mutex), EOWNERDEAD);
    CHECK(pthread_mutex_consistent(mutex), 0);
    CHECK(pthread_mutex_unlock(mutex), 0);
    CHECK(pthread_mutex_lock(mutex), 0);
    CHECK(pthread_mutex_unlock(mutex), 0);
}

static void of_a_thread(void) {
    static pthread_mutex_t mutex;
    make(&mutex, 1, 0);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, take, &mutex), 0);
        CHECK(pthread_join(thread, NULL), 0);
        recover(&mutex);
    }
    /* Given up: nobody can take it any more. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take, &mutex), 0);
    CHECK(pthread_join(thread, NULL), 0);
    CHECK(pthread_mutex_lock(&mutex), EOWNERDEAD);
    CHECK(pthread_mutex_unlock(&mutex), 0);
    CHECK(pthread_mutex_lock(&mutex), ENOTRECOVERABLE);
    CHECK(pthread_mutex_destroy(&mutex), 0);
}

static void of_a_process(void) {
    pthread_mutex_t *mutex = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    make(mutex, 1, 1);
    pid_t child = fork();
    if (child == 0) {
        take(mutex);
        _exit(failures());
    }
    int status;
    CHECK(waitpid(child, &status, 0), child);
    CHECK(status, 0);
    recover(mutex);
    munmap(mutex, 4096);
}

static void at_two_addresses(void) {
    int file = memfd_create("mutex", 0);
    CHECK(ftruncate(file, 4096), 0);
    pthread_mutex_t *one = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_mutex_t *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    make(one, 0, 1);
    for (int round = 0; round < 3; round++) {
        CHECK(pthread_mutex_lock(one), 0);
        CHECK(pthread_mutex_trylock(other), EBUSY);
        CHECK(pthread_mutex_unlock(other), 0);
        CHECK(pthread_mutex_lock(other), 0);
        CHECK(pthread_mutex_unlock(one), 0);
    }
    CHECK(pthread_mutex_lock(one), 0);
    CHECK(munmap(one, 4096), 0);
    CHECK(pthread_mutex_unlock(other), 0);
    CHECK(munmap(other, 4096), 0);
    close(file);
}

int main(void) {
    of_a_thread();
    of_a_process();
    at_two_addresses();
    return failures();
}
