#include <poundlock.h>

static poundlock_mutex_t lock = POUNDLOCK_MUTEX_INITIALIZER;
static long balance;

/* Gives up after a tenth of a second. */
int deposit(long amount) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int error = poundlock_mutex_clocklock(&lock, CLOCK_MONOTONIC, &until);
    if (error)
        return error;
    balance += amount;
    return poundlock_mutex_unlock(&lock);
}
