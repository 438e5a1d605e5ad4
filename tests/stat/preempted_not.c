/* As many threads, but only two of them compute: a holder keeps its CPU. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void work(int thread)
{
    if (thread >= 2) {
        usleep(200000);
        return;
    }
    for (int i = 0; i < 150; i++) {
        pthread_mutex_lock(&lock); /* HERE */
        compute(2000000);
        pthread_mutex_unlock(&lock);
        compute(20000);
    }
}
int main(void) { run_threads(16, work); }
