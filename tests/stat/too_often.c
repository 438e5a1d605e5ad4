/* Two threads take one lock all the time, for a moment each. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void work(int thread)
{
    (void)thread;
    for (int i = 0; i < 2000000; i++) {
        pthread_mutex_lock(&lock); /* HERE */
        compute(100);
        pthread_mutex_unlock(&lock);
    }
}
int main(void) { run_threads(2, work); }
