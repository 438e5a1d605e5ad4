/* Holders sleep in a system call. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void work(int thread)
{
    (void)thread;
    for (int i = 0; i < 150; i++) {
        pthread_mutex_lock(&lock); /* HERE */
        usleep(3000);
        pthread_mutex_unlock(&lock);
        compute(1000);
    }
}
int main(void) { run_threads(4, work); }
