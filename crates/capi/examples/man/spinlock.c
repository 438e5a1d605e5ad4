#include <poundlock.h>

static struct bucket {
    poundlock_spinlock_t lock; /* zero bytes: unlocked */
    unsigned count;
} buckets[1024];

void count(unsigned key) {
    struct bucket *bucket = &buckets[key % 1024];
    poundlock_spinlock_lock(&bucket->lock);
    bucket->count++;
    poundlock_spinlock_unlock(&bucket->lock);
}
