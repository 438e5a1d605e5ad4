/* Forks with locks held: by the forking thread, which has them in the child as well, and by handlers of
 * pthread_atfork, which take them before and let go of them on both sides. Other threads are at work with
 * other locks, and with the same ones. */
#define _GNU_SOURCE
#include "check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

static pthread_mutex_t guarded = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t elsewhere = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;

static void before(void) {
    pthread_mutex_lock(&guarded);
    pthread_mutex_lock(&inner);
}

static void after(void) {
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&guarded);
}

static void *work(void *unused) {
    (void)unused;
    while (!stop) {
        pthread_mutex_lock(&guarded);
        pthread_mutex_unlock(&guarded);
        pthread_mutex_lock(&inner);
        pthread_mutex_unlock(&inner);
        pthread_mutex_lock(&elsewhere);
        pthread_mutex_unlock(&elsewhere);
        free(malloc(100));
    }
    return NULL;
}

static void *in_the_child(void *unused) {
    (void)unused;
    for (int n = 0; n < 100; n++) {
        pthread_mutex_lock(&guarded);
        pthread_mutex_lock(&inner);
        pthread_mutex_unlock(&inner);
        pthread_mutex_unlock(&guarded);
    }
    return NULL;
}

int main(void) {
    pthread_atfork(before, after, after);
    pthread_t threads[3];
    for (int n = 0; n < 3; n++)
        CHECK(pthread_create(&threads[n], NULL, work, NULL), 0);
    for (int round = 0; round < 8; round++) {
        pthread_mutex_lock(&own);
        pid_t child = fork();
        if (child == 0) {
            pthread_mutex_unlock(&own);
            in_the_child(NULL);
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, in_the_child, NULL), 0);
            in_the_child(NULL);
            CHECK(pthread_join(thread, NULL), 0);
            pthread_mutex_lock(&own);
            if (round % 4 == 0) {
                /* A child's child. */
                pid_t again = fork();
                if (again == 0) {
                    pthread_mutex_unlock(&own);
                    in_the_child(NULL);
                    _exit(failures());
                }
                int status;
                waitpid(again, &status, 0);
                CHECK(status, 0);
            }
            pthread_mutex_unlock(&own);
            /* One has a lock at its end, as may be. */
            if (round % 2)
                pthread_mutex_lock(&own);
            exit(failures());
        }
        pthread_mutex_unlock(&own);
        int status;
        CHECK(waitpid(child, &status, 0), child);
        CHECK(status, 0);
    }
    stop = 1;
    for (int n = 0; n < 3; n++)
        CHECK(pthread_join(threads[n], NULL), 0);
    return failures();
}
