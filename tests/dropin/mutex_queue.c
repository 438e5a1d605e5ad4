// Waiters that give up from every place in the queue, beside others that stay; and trylock and timed locks
// against a queue: nobody is lost, and nothing of those who left stays behind.
#include "check.h"

enum { STAY = 4, LEAVE = 6, HAMMERS = 6 };

static pthread_mutex_t m;
static volatile long holds;
static volatile pid_t ids[STAY + LEAVE];

static void *stays(void *number) {
    announce(&ids[(long)number]);
    OK(pthread_mutex_lock(&m));
    holds++;
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void *leaves(void *number) {
    long i = (long)number;
    announce(&ids[i]);
    if (i % 2) {
        struct timespec t = after_us(CLOCK_REALTIME, i * 300);
        CALL(pthread_mutex_timedlock(&m, &t), ETIMEDOUT);
        CHECK(reached(CLOCK_REALTIME, t), "timedlock gave up before its time");
    } else {
        struct timespec t = after_us(CLOCK_MONOTONIC, i * 300);
        CALL(pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &t), ETIMEDOUT);
        CHECK(reached(CLOCK_MONOTONIC, t), "clocklock gave up before its time");
    }
    return NULL;
}

// `first`: how many of those who stay come before those who leave.
static void leave_the_queue(int first) {
    pthread_t threads[STAY + LEAVE];
    memset((void *)ids, 0, sizeof ids);
    holds = 0;
    OK(pthread_mutex_lock(&m));
    int n = 0;
    for (; n < first; n++) threads[n] = spawn(stays, (void *)(long)n);
    for (int i = 0; i < n; i++) await_asleep(&ids[i]);
    for (; n < first + LEAVE; n++) threads[n] = spawn(leaves, (void *)(long)n);
    for (; n < STAY + LEAVE; n++) threads[n] = spawn(stays, (void *)(long)n);
    for (int i = first; i < first + LEAVE; i++) join(threads[i]);
    for (int i = first + LEAVE; i < n; i++) await_asleep(&ids[i]);
    CALL(pthread_mutex_destroy(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < n; i++)
        if (i < first || i >= first + LEAVE) join(threads[i]);
    CHECK(holds == STAY, "%ld of %d waiters had the mutex", holds, STAY);
    IN_AND_OUT(pthread_mutex_trylock(&m), &m);
}

static volatile long counter;
static volatile int stop;

// Time-outs that race with hand-overs; every result is one of two, and the count is exact.
static void *hammer(void *number) {
    long id = (long)number, had = 0;
    unsigned random = (unsigned)id * 7919 + 1;
    for (int i = 0; i < 1500; i++) {
        random = random * 1103515245u + 12345u;
        int result;
        struct timespec t;
        switch (random >> 16 & 3) {
        case 0: t = after_us(CLOCK_REALTIME, random >> 20 & 127); result = pthread_mutex_timedlock(&m, &t);
        break;
        case 1: t = after_us(CLOCK_MONOTONIC, random >> 20 & 127);
            result = pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &t); break;
        case 2: result = pthread_mutex_trylock(&m); break;
        default: result = pthread_mutex_lock(&m); break;
        }
        CHECK(result == 0 || result == ((random >> 16 & 3) == 2 ? EBUSY : ETIMEDOUT), "got %d (%s)", result,
              strerror(result));
        if (result != 0) continue;
        counter++;
        had++;
        for (volatile int spin = 0; spin < (int)(random >> 18 & 1023); spin++) continue;
        if ((random >> 10 & 63) == 0) usleep(1);
        OK(pthread_mutex_unlock(&m));
    }
    return (void *)had;
}

static void *tries(void *unused) {
    long had = 0;
    while (!stop) {
        int result = pthread_mutex_trylock(&m);
        if (result == 0) {
            counter++;
            had++;
            OK(pthread_mutex_unlock(&m));
        } else {
            CHECK(result == EBUSY, "trylock: got %d (%s)", result, strerror(result));
        }
        sched_yield();
    }
    return (void *)had;
}

int main(void) {
    limit_seconds(40);
    for (int k = 0; k < MUTEX_KINDS; k++) {
        if (mutex_kinds[k].make != MAKE_STATIC) continue;
        CASE(mutex_kinds[k].name);
        make_mutex(&m, &mutex_kinds[k]);
        STAGE("leave the queue");
        for (int first = 0; first <= STAY; first++) leave_the_queue(first);
        STAGE("time-outs that race with hand-overs");
        counter = 0;
        stop = 0;
        pthread_t threads[HAMMERS], other = spawn(tries, NULL);
        for (long i = 0; i < HAMMERS; i++) threads[i] = spawn(hammer, (void *)i);
        long had = 0;
        for (int i = 0; i < HAMMERS; i++) had += (long)join(threads[i]);
        stop = 1;
        had += (long)join(other);
        CHECK(had == counter, "%ld acquisitions counted, %ld made", counter, had);
        OK(pthread_mutex_destroy(&m));
    }
    return 0;
}
