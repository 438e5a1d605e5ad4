// EAGAIN at the recursion limit, from every call that locks, without wrapping round.
//
// Four thousand million locks would take too long (about ten seconds with glibc, minutes with statistics), so
// the count is found in the object, by what a lock changes there, and set close to its limit. That holds for
// glibc and for any other implementation that keeps an unsigned 32-bit count of the levels, or of the levels
// beyond the first, there.
#include "check.h"

enum { WORDS = sizeof(pthread_mutex_t) / 4 };

static void words_of(const pthread_mutex_t *m, uint32_t words[WORDS]) { memcpy(words, m, sizeof *m); }

// The one word that goes up by one with each of three further locks. Leaves the mutex held three times more.
static int count_word(pthread_mutex_t *m) {
    uint32_t seen[4][WORDS];
    words_of(m, seen[0]);
    for (int i = 1; i < 4; i++) {
        OK(pthread_mutex_lock(m));
        words_of(m, seen[i]);
    }
    int found = -1;
    for (int w = 0; w < WORDS; w++) {
        int counts = 1;
        for (int i = 1; i < 4; i++) counts &= seen[i][w] == seen[0][w] + (uint32_t)i;
        if (!counts) continue;
        CHECK(found == -1, "two words count: %d and %d", found, w);
        found = w;
    }
    CHECK(found != -1,
          "no 32-bit word of the object counts the locks: this test has to learn the new layout");
    return found;
}

static void at_the_limit(pthread_mutex_t *m) {
    struct timespec past = in_the_past(), bad = {0, -1};
    OK(pthread_mutex_lock(m));
    STAGE("find the count");
    int w = count_word(m);
    STAGE("up to the limit");
    uint32_t *count = (uint32_t *)m + w, levels = *count, set = UINT32_MAX - 6;
    __atomic_store_n(count, set, __ATOMIC_RELAXED);
    int more = 0, result;
    while (more < 8) {
        errno = ERRNO_SENTINEL;
        result = pthread_mutex_lock(m);
        CHECK(errno == ERRNO_SENTINEL, "lock: changed errno to %d", errno);
        if (result != 0) break;
        more++;
    }
    CHECK(result == EAGAIN, "after %d more locks: got %d (%s), expected EAGAIN", more, result,
          strerror(result));
    CHECK(more >= 4, "EAGAIN came %d locks early", 6 - more);
    STAGE("at the limit: each call");
    for (int i = 0; i < 3; i++) {
        CALL(pthread_mutex_lock(m), EAGAIN);
        CALL(pthread_mutex_trylock(m), EAGAIN);
        CALL(pthread_mutex_timedlock(m, &past), EAGAIN);
        CALL(pthread_mutex_timedlock(m, &bad), EAGAIN);
        CALL(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &past), EAGAIN);
        // C11 has one word for every other failure.
        CALL(mtx_lock((mtx_t *)m), thrd_error);
        CALL(mtx_trylock((mtx_t *)m), thrd_error);
        CALL(mtx_timedlock((mtx_t *)m, &past), thrd_error);
    }
    STAGE("one below the limit");
    OK(pthread_mutex_unlock(m));
    OK(pthread_mutex_trylock(m));
    CALL(pthread_mutex_lock(m), EAGAIN);
    CALL(pthread_mutex_destroy(m), EBUSY);
    STAGE("back down");
    for (int i = 0; i < more; i++) OK(pthread_mutex_unlock(m));
    CHECK(*count == set, "the count went from %u to %u", set, *count);
    *count = levels;
    for (int i = 0; i < 1 + 3; i++) OK(pthread_mutex_unlock(m));
    CALL(pthread_mutex_unlock(m), EPERM);
    IN_AND_OUT(pthread_mutex_lock(m), m);
    OK(pthread_mutex_destroy(m));
}

static void *nothing(void *unused) { return unused; }

int main(void) {
    limit_seconds(20);
    pthread_mutex_t m;
    for (int threads = 1; threads <= 2; threads++) {
        for (int k = 0; k < MUTEX_KINDS; k++) {
            if (mutex_kinds[k].type != PTHREAD_MUTEX_RECURSIVE) continue;
            CASE(mutex_kinds[k].name);
            make_mutex(&m, &mutex_kinds[k]);
            at_the_limit(&m);
        }
        join(spawn(nothing, NULL));
    }
    STAGE("a hundred thousand levels, really");
    make_mutex(&m, &mutex_kinds[4]);
    for (int i = 0; i < 100000; i++) OK(pthread_mutex_lock(&m));
    for (int i = 0; i < 100000; i++) OK(pthread_mutex_unlock(&m));
    CALL(pthread_mutex_unlock(&m), EPERM);
    return 0;
}
