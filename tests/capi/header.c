// The header needs nothing before it, and its initialisers are constants.
#include <poundlock.h>

static poundlock_mutex_t mutex = POUNDLOCK_MUTEX_INITIALIZER;
static poundlock_recursive_mutex_t recursive = POUNDLOCK_RECURSIVE_MUTEX_INITIALIZER;
static poundlock_spinlock_t spinlock = POUNDLOCK_SPINLOCK_INITIALIZER;
static poundlock_cond_t cond = POUNDLOCK_COND_INITIALIZER;
static poundlock_rwlock_t rwlocks[] = {
    POUNDLOCK_RWLOCK_INITIALIZER,
    POUNDLOCK_RWLOCK_READER_PREFERRING_INITIALIZER,
    POUNDLOCK_RWLOCK_WRITER_PREFERRING_INITIALIZER,
};

int main(void) {
    int failed = POUNDLOCK_MAJOR < 0 || POUNDLOCK_MINOR < 0 || POUNDLOCK_PATCH < 0;
    failed |= poundlock_mutex_lock(&mutex) || poundlock_mutex_unlock(&mutex);
    failed |= poundlock_recursive_mutex_lock(&recursive) || poundlock_recursive_mutex_unlock(&recursive);
    failed |= poundlock_spinlock_lock(&spinlock) || poundlock_spinlock_unlock(&spinlock);
    failed |= poundlock_cond_signal(&cond) || poundlock_cond_broadcast(&cond);
    for (unsigned i = 0; i < sizeof rwlocks / sizeof rwlocks[0]; i++)
        failed |= poundlock_rwlock_rdlock(&rwlocks[i]) || poundlock_rwlock_rdunlock(&rwlocks[i]);
    return failed;
}
