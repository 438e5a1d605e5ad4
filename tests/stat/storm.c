/* Threads wait for an item that one of them gets; all are woken for it or, with an argument, one. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there = PTHREAD_COND_INITIALIZER;
static int items, waiting, done, one_is_woken;
#define CONSUMERS 8
static void work(int thread)
{
    pthread_mutex_lock(&lock);
    if (thread < CONSUMERS) {
        for (;;) {
            while (!items && !done) {
                waiting++;
                pthread_cond_wait(&there, &lock); /* storm */
            }
            if (!items) break;
            items--;
        }
    } else {
        for (int sent = 0; sent < (one_is_woken ? 160 : 40);) {
            /* Not before all wait. */
            if (waiting == CONSUMERS && !items) {
                items = 1;
                sent++;
                waiting = one_is_woken ? waiting - 1 : 0;
                (one_is_woken ? pthread_cond_signal : pthread_cond_broadcast)(&there);
            }
            pthread_mutex_unlock(&lock);
            usleep(200);
            pthread_mutex_lock(&lock);
        }
        done = 1;
        pthread_cond_broadcast(&there);
    }
    pthread_mutex_unlock(&lock);
}
int main(int argc, char **argv)
{
    one_is_woken = !strcmp(argv[argc - 1], "storm_not");
    run_threads(CONSUMERS + 1, work);
}
