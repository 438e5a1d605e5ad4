/* Two threads take one lock all the time, for a moment each. */
#include "work.h"
static pthread_spinlock_t lock;
static void work(int thread)
{
    (void)thread;
    for (int i = 0; i < 2000000; i++) {
        pthread_spin_lock(&lock); /* HERE */
        compute(100);
        pthread_spin_unlock(&lock);
    }
}
int main(void)
{
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    run_threads(2, work);
}
