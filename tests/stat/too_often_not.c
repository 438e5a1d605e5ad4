/* The same, but that each thread takes the lock once in a thousand turns. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void work(int thread)
{
    (void)thread;
    for (int i = 0; i < 2000; i++) {
        pthread_mutex_lock(&lock);
        compute(100);
        pthread_mutex_unlock(&lock);
        compute(100000);
    }
}
int main(void) { run_threads(2, work); }
