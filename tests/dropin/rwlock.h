// What the programs about readers-writer locks share.
#ifndef DROPIN_RWLOCK_H
#define DROPIN_RWLOCK_H

#include "check.h"

enum rwlock_make { RW_STATIC, RW_NULL, RW_ATTRIBUTE };

struct rwlock_kind {
    const char *name;
    int kind;
    enum rwlock_make make;
    int shared;
};

UNUSED static const struct rwlock_kind rwlock_kinds[] = {
    {"default, static", PTHREAD_RWLOCK_DEFAULT_NP, RW_STATIC, 0},
    {"default, no attribute", PTHREAD_RWLOCK_DEFAULT_NP, RW_NULL, 0},
    {"preferring readers", PTHREAD_RWLOCK_PREFER_READER_NP, RW_ATTRIBUTE, 0},
    {"preferring writers, in name", PTHREAD_RWLOCK_PREFER_WRITER_NP, RW_ATTRIBUTE, 0},
    {"preferring writers", PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, RW_ATTRIBUTE, 0},
    {"preferring writers, static", PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, RW_STATIC, 0},
    {"process-shared", PTHREAD_RWLOCK_DEFAULT_NP, RW_ATTRIBUTE, 1},
    {"process-shared, preferring writers", PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, RW_ATTRIBUTE, 1},
};

enum { RWLOCK_KINDS = sizeof rwlock_kinds / sizeof *rwlock_kinds };

UNUSED static void make_rwlock(pthread_rwlock_t *lock, const struct rwlock_kind *kind) {
    static const pthread_rwlock_t plain = PTHREAD_RWLOCK_INITIALIZER;
    static const pthread_rwlock_t writers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    if (kind->make == RW_STATIC) {
        memcpy(lock, kind->kind == PTHREAD_RWLOCK_DEFAULT_NP ? &plain : &writers, sizeof *lock);
        return;
    }
    // Garbage: init may rely on nothing that was there before.
    memset(lock, 0xa5, sizeof *lock);
    if (kind->make == RW_NULL) {
        OK(pthread_rwlock_init(lock, NULL));
        return;
    }
    pthread_rwlockattr_t attribute;
    OK(pthread_rwlockattr_init(&attribute));
    OK(pthread_rwlockattr_setkind_np(&attribute, kind->kind));
    if (kind->shared) OK(pthread_rwlockattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED));
    OK(pthread_rwlock_init(lock, &attribute));
    OK(pthread_rwlockattr_destroy(&attribute));
}

// Whether a lock that the calling thread holds as the writer is held on glibc's code, which notes the
// thread's id.
UNUSED static int is_glibcs(const pthread_rwlock_t *lock) { return lock->__data.__cur_writer == thread_id(); }

// Whether glibc's code runs the locks that this process made for itself.
UNUSED static int private_ones_are_glibcs(void) {
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    OK(pthread_rwlock_wrlock(&lock));
    int result = is_glibcs(&lock);
    OK(pthread_rwlock_unlock(&lock));
    OK(pthread_rwlock_destroy(&lock));
    return result;
}

#endif
