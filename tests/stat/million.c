/* A million locks, made on one line, each waited for: threads take them at random, and hold them for a moment. */
#include "work.h"
#define LOCKS 1000000
static pthread_mutex_t *locks[LOCKS];
static void work(int thread)
{
    unsigned long state = 88172645463325252ul + (unsigned long)thread;
    for (int i = 0; i < LOCKS; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        pthread_mutex_t *lock = locks[state % LOCKS];
        pthread_mutex_lock(lock);
        pthread_mutex_unlock(lock);
    }
}
int main(void)
{
    for (int i = 0; i < LOCKS; i++) {
        locks[i] = malloc(sizeof *locks[i]);
        pthread_mutex_init(locks[i], NULL);
        pthread_mutex_lock(locks[i]);
        pthread_mutex_unlock(locks[i]);
    }
    run_threads(4, work);
}
