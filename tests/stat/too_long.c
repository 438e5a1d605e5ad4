/* Two threads share a section that takes milliseconds of CPU time; they do little else. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void work(int thread)
{
    (void)thread;
    for (int i = 0; i < 150; i++) {
        pthread_mutex_lock(&lock); /* HERE */
        compute(2000000);
        pthread_mutex_unlock(&lock);
        compute(20000);
    }
}
int main(void) { run_threads(2, work); }
