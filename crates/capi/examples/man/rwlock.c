#include <poundlock.h>

static poundlock_rwlock_t lock = POUNDLOCK_RWLOCK_INITIALIZER;
static int valid, value;

/* Computes the value once; readers that come later share it. */
int get(int (*compute)(void)) {
    poundlock_rwlock_rdlock(&lock);
    if (!valid) {
        poundlock_rwlock_rdunlock(&lock);
        poundlock_rwlock_wrlock(&lock);
        if (!valid) {
            value = compute();
            valid = 1;
        }
        poundlock_rwlock_downgrade(&lock);
    }
    int result = value;
    poundlock_rwlock_rdunlock(&lock);
    return result;
}
