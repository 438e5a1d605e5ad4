// poundlock_spinlock_t: results, and exclusion among more threads than there are processors.
#include "check.h"

enum { THREADS = 8, ROUNDS = 20000 };

static struct {
    poundlock_spinlock_t lock;
    // Lies right behind: nobody writes to it but its owners.
    uint32_t canary;
    long count;
} cell = {POUNDLOCK_SPINLOCK_INITIALIZER, 0x600dcafe, 0};

static void *count(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 4 != 0) {
            OK(poundlock_spinlock_lock(&cell.lock));
        } else {
            for (int result; (result = poundlock_spinlock_trylock(&cell.lock)) != 0; sched_yield())
                CHECK(result == EBUSY, "trylock: %d", result);
        }
        cell.count++;
        OK(poundlock_spinlock_unlock(&cell.lock));
    }
    return unused;
}

static void *try_busy(void *unused) {
    CALL(poundlock_spinlock_trylock(&cell.lock), EBUSY);
    return unused;
}

int main(void) {
    limit_seconds(LIMIT);
    STAGE("results");
    OK(poundlock_spinlock_lock(&cell.lock));
    CALL(poundlock_spinlock_destroy(&cell.lock), EBUSY);
    CALL(poundlock_spinlock_trylock(&cell.lock), EBUSY);
    join(spawn(try_busy, NULL));
    OK(poundlock_spinlock_unlock(&cell.lock));
    OK(poundlock_spinlock_destroy(&cell.lock));
    memset(&cell.lock, 0xa5, sizeof cell.lock);
    OK(poundlock_spinlock_init(&cell.lock));
    STAGE("exclusion");
    crowd(THREADS, count);
    CHECK(cell.count == (long)THREADS * ROUNDS, "%ld", cell.count);
    CHECK(cell.canary == 0x600dcafe, "wrote past its four bytes");
    return 0;
}
