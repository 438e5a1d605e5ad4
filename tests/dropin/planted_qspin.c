// Wrong on purpose: a spinlock that lets a waiter in after it has looked a few times.
#include <pthread.h>

int pthread_spin_lock(pthread_spinlock_t *s) {
    for (int i = 0; i < 10; i++)
        if (pthread_spin_trylock(s) == 0) return 0;
    return 0;
}
