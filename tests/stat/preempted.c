/* Many more threads than CPUs, which compute all the time, with the lock and without: a holder that loses its CPU
   is behind all the others. */
#include "work.h"
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void work(int thread)
{
    /* Those that never take the lock keep the CPUs busy. */
    if (thread >= 4) {
        compute(400000000);
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
