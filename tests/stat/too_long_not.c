/* The same with a lock for each thread: sections are as long, and nobody waits. */
#include "work.h"
static pthread_mutex_t locks[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static void work(int thread)
{
    for (int i = 0; i < 150; i++) {
        pthread_mutex_lock(&locks[thread]);
        compute(2000000);
        pthread_mutex_unlock(&locks[thread]);
        compute(20000);
    }
}
int main(void) { run_threads(2, work); }
