#include <poundlock.h>

static poundlock_mutex_t lock = POUNDLOCK_MUTEX_INITIALIZER;
static poundlock_cond_t filled = POUNDLOCK_COND_INITIALIZER;
static int items;

void put(void) {
    poundlock_mutex_lock(&lock);
    items++;
    poundlock_cond_signal(&filled);
    poundlock_mutex_unlock(&lock);
}

void take(void) {
    poundlock_mutex_lock(&lock);
    while (items == 0)
        poundlock_cond_wait(&filled, &lock);
    items--;
    poundlock_mutex_unlock(&lock);
}
