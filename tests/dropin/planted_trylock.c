// Wrong on purpose: a trylock that does not look at the state that lock uses.
#include <pthread.h>

int pthread_mutex_trylock(pthread_mutex_t *m) {
    return 0;
}
