/* The same calls, with the lock let go of before. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void work(int thread)
{
    (void)thread;
    for (int i = 0; i < 150; i++) {
        pthread_mutex_lock(&lock);
        compute(100);
        pthread_mutex_unlock(&lock);
        usleep(3000);
    }
}
int main(void) { run_threads(4, work); }
