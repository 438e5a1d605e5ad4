/* Threads compute, and take locks that nobody else wants. */
#include "work.h"
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static void work(int thread)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&locks[thread]);
        pthread_mutex_unlock(&locks[thread]);
        compute(200000);
    }
}
int main(void) { run_threads(2, work); }
