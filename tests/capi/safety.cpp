// For clang's -Wthread-safety: nothing to warn of, unless UNSAFE is defined.
#include <poundlock.hpp>

static poundlock::mutex mutex;
static poundlock::shared_mutex shared;
static poundlock::spinlock spinlock;
static int count __attribute__((guarded_by(mutex)));
static int table __attribute__((guarded_by(shared)));
static int cell __attribute__((guarded_by(spinlock)));

int main() {
    mutex.lock();
    count++;
    mutex.unlock();
    shared.lock_shared();
    int seen = table;
    shared.unlock_shared();
    if (shared.try_lock_for(std::chrono::seconds(1))) {
        table++;
        shared.unlock();
    }
    spinlock.lock();
    cell++;
    spinlock.unlock();
#ifdef UNSAFE
    count++;
#endif
    return seen;
}
