/* One acquisition of fifty does. */
#include "work.h"
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static void work(int thread)
{
    for (int i = 0; i < 200; i++) {
        if ((i + thread) % 50 == 0) pthread_rwlock_wrlock(&lock);
        else pthread_rwlock_rdlock(&lock);
        compute(1000000);
        pthread_rwlock_unlock(&lock);
    }
}
int main(void) { run_threads(2, work); }
