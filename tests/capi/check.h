// What the programs in this directory share: the checks of ../dropin, and deadlines for poundlock's calls.
//
// They are compiled as C11 or C++17 against an installed Poundlock, and know nothing of where it came from.
#ifndef CAPI_CHECK_H
#define CAPI_CHECK_H

#include "../dropin/check.h"

#include <poundlock.h>

enum { LIMIT = 500 };

// The clocks that waits know.
UNUSED static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
enum { CLOCKS = sizeof clocks / sizeof clocks[0] };

// A value that threads hand to each other.
UNUSED static void set(int *flag, int value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }
UNUSED static int get(int *flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
UNUSED static void await(int *flag, int value) {
    while (get(flag) != value) usleep(200);
}

// Times that no wait may accept.
UNUSED static struct timespec with_nanoseconds(long nanoseconds) {
    struct timespec t = {1, nanoseconds};
    return t;
}

// A function that takes a clock and a time behind these arguments, and would have to wait: it gives up when
// the time has come, and refuses what is no time.
#define GIVES_UP(function, ...)                                                                              \
    do {                                                                                                     \
        for (int i_ = 0; i_ < CLOCKS; i_++) {                                                                \
            struct timespec past_ = in_the_past(), soon_ = after_ms(clocks[i_], 20), before_ = {-5, 0};      \
            CALL(function(__VA_ARGS__, clocks[i_], &past_), ETIMEDOUT);                                      \
            CALL(function(__VA_ARGS__, clocks[i_], &before_), ETIMEDOUT);                                    \
            CALL(function(__VA_ARGS__, clocks[i_], &soon_), ETIMEDOUT);                                      \
            CHECK(reached(clocks[i_], soon_), "%s gave up before its time", #function);                      \
        }                                                                                                    \
        REFUSES(function, __VA_ARGS__);                                                                      \
    } while (0)

#define REFUSES(function, ...)                                                                               \
    do {                                                                                                     \
        struct timespec far_ = far_away(CLOCK_MONOTONIC), low_ = with_nanoseconds(-1),                       \
                        high_ = with_nanoseconds(1000000000);                                                \
        CALL(function(__VA_ARGS__, CLOCK_PROCESS_CPUTIME_ID, &far_), EINVAL);                                \
        CALL(function(__VA_ARGS__, CLOCK_MONOTONIC, &low_), EINVAL);                                         \
        CALL(function(__VA_ARGS__, CLOCK_REALTIME, &high_), EINVAL);                                         \
    } while (0)

#endif
