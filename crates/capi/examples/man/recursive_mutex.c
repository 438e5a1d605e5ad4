#include <poundlock.h>

static poundlock_recursive_mutex_t lock = POUNDLOCK_RECURSIVE_MUTEX_INITIALIZER;

void visit(int depth) {
    poundlock_recursive_mutex_lock(&lock);
    if (depth > 0)
        visit(depth - 1);
    poundlock_recursive_mutex_unlock(&lock);
}
