/* One waiter is woken for an item. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there = PTHREAD_COND_INITIALIZER;
static int items, waiting, done;
#define CONSUMERS 8
#define ITEMS 200
static void work(int thread)
{
    pthread_mutex_lock(&lock);
    if (thread < CONSUMERS) {
        for (;;) {
            while (!items && !done) {
                waiting++;
                pthread_cond_wait(&there, &lock); /* HERE */
                waiting--;
            }
            if (!items) break;
            items--;
        }
    } else {
        for (int sent = 0; sent < ITEMS;) {
            /* Not before all wait. */
            if (waiting == CONSUMERS && !items) {
                items = 1;
                sent++;
                pthread_cond_signal(&there);
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
int main(void) { run_threads(CONSUMERS + 1, work); }
