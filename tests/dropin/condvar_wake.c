// Who is woken: one by a signal, all by a broadcast, nobody by a signal that came before; no signal lost to a
// waiter that gave up or that came later.
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER, back = PTHREAD_COND_INITIALIZER;
static int waiting, wakes, release, tokens;

// --- a signal wakes one

enum { WAITERS = 8 };

static volatile pid_t ids[WAITERS];

static void *counts_wakes(void *number) {
    OK(pthread_mutex_lock(&m));
    announce(&ids[(long)number]);
    waiting++;
    OK(pthread_cond_signal(&back));
    while (!release) {
        OK(pthread_cond_wait(&c, &m));
        wakes++;
        OK(pthread_cond_signal(&back));
    }
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void signal_wakes_one(void) {
    STAGE("a signal wakes one");
    enum { SIGNALS = 300 };
    pthread_t threads[WAITERS];
    waiting = wakes = release = 0;
    for (long i = 0; i < WAITERS; i++) threads[i] = spawn(counts_wakes, (void *)i);
    OK(pthread_mutex_lock(&m));
    while (waiting < WAITERS) OK(pthread_cond_wait(&back, &m));
    int extra = 0;
    for (int i = 0; i < SIGNALS; i++) {
        wakes = 0;
        if (i % 2) OK(pthread_mutex_unlock(&m));
        OK(pthread_cond_signal(&c));
        if (i % 2) OK(pthread_mutex_lock(&m));
        while (wakes == 0) OK(pthread_cond_wait(&back, &m));
        // Time for those who should not have woken to show up.
        OK(pthread_mutex_unlock(&m));
        if (i % 16 == 0)
            for (int w = 0; w < WAITERS; w++) await_asleep(&ids[w]);
        else
            sched_yield();
        OK(pthread_mutex_lock(&m));
        extra += wakes - 1;
    }
    // POSIX permits more than one now and then; as a habit it is a thundering herd.
    CHECK(extra <= SIGNALS / 20, "%d signals woke %d waiters more than there were signals", SIGNALS, extra);
    release = 1;
    OK(pthread_cond_broadcast(&c));
    OK(pthread_mutex_unlock(&m));
    for (int i = 0; i < WAITERS; i++) join(threads[i]);
}

// --- nothing is remembered

static void expect_time_out(const char *after) {
    int result = 0, spurious = -1;
    while (result == 0) {
        CHECK(++spurious < 3, "woke %d times without a signal, after %s", spurious, after);
        struct timespec soon = after_ms(CLOCK_MONOTONIC, 3);
        result = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &soon);
    }
    CHECK(result == ETIMEDOUT, "got %d (%s), expected ETIMEDOUT, after %s", result, strerror(result), after);
    // Once in a hundred could be chance. Not every time.
    static int total;
    total += spurious;
    CHECK(total < 6, "a signal is remembered: woke %d times without one, last after %s", total, after);
}

static void *waits_once(void *unused) {
    OK(pthread_mutex_lock(&m));
    waiting++;
    OK(pthread_cond_signal(&back));
    while (wakes == 0) OK(pthread_cond_wait(&c, &m));
    OK(pthread_mutex_unlock(&m));
    return unused;
}

static void nothing_remembered(void) {
    STAGE("a signal without a waiter is not remembered");
    OK(pthread_mutex_lock(&m));
    for (int round = 0; round < 10; round++) {
        OK(pthread_cond_signal(&c));
        expect_time_out("one signal");
        for (int i = 0; i < 5; i++) OK(pthread_cond_signal(&c));
        expect_time_out("five signals");
        OK(pthread_cond_broadcast(&c));
        expect_time_out("a broadcast");
        STAGE("one waiter, several signals: none is left for later");
        waiting = wakes = 0;
        pthread_t thread = spawn(waits_once, NULL);
        while (waiting == 0) OK(pthread_cond_wait(&back, &m));
        wakes = 1;
        for (int i = 0; i < 3; i++) OK(pthread_cond_signal(&c));
        OK(pthread_mutex_unlock(&m));
        join(thread);
        OK(pthread_mutex_lock(&m));
        expect_time_out("three signals to one waiter");
    }
    OK(pthread_mutex_unlock(&m));
}

// --- a later waiter does not take an earlier one's signal

enum { ROUNDS = 3000 };

static int ready, turn, answered;

static void *answers(void *unused) {
    OK(pthread_mutex_lock(&m));
    for (int i = 1; i <= ROUNDS; i++) {
        ready = i;
        OK(pthread_cond_signal(&back));
        while (turn < i) OK(pthread_cond_wait(&c, &m));
        answered = i;
        // The other thread is the only waiter now, and this one soon waits on the same condition variable.
        OK(pthread_cond_signal(&c));
    }
    OK(pthread_mutex_unlock(&m));
    return unused;
}

static void no_later_waiter_takes_it(void) {
    STAGE("a later waiter does not take an earlier one's signal");
    ready = turn = answered = 0;
    pthread_t thread = spawn(answers, NULL);
    OK(pthread_mutex_lock(&m));
    for (int i = 1; i <= ROUNDS; i++) {
        while (ready < i) OK(pthread_cond_wait(&back, &m));
        turn = i;
        OK(pthread_cond_signal(&c));
        // Begins to wait before the signalled thread can run: were the signal its own, both would sleep for
        // ever.
        while (answered < i) OK(pthread_cond_wait(&c, &m));
    }
    OK(pthread_mutex_unlock(&m));
    join(thread);
}

// --- a broadcast wakes all

enum { CROWD = 100 };

static int generation, arrived;

static void *in_the_crowd(void *unused) {
    OK(pthread_mutex_lock(&m));
    for (int g = 0; g < 20; g++) {
        CHECK(generation == g, "woke in generation %d, expected %d", generation, g);
        if (++arrived == CROWD) OK(pthread_cond_signal(&back));
        while (generation == g) OK(pthread_cond_wait(&c, &m));
    }
    OK(pthread_mutex_unlock(&m));
    return unused;
}

static void broadcast_wakes_all(void) {
    STAGE("a broadcast wakes all");
    static pthread_t threads[CROWD];
    generation = arrived = 0;
    for (int i = 0; i < CROWD; i++) threads[i] = spawn(in_the_crowd, NULL);
    for (int g = 0; g < 20; g++) {
        OK(pthread_mutex_lock(&m));
        while (arrived < CROWD) OK(pthread_cond_wait(&back, &m));
        arrived = 0;
        generation++;
        if (g % 2) OK(pthread_mutex_unlock(&m));
        OK(pthread_cond_broadcast(&c));
        if (g % 2 == 0) OK(pthread_mutex_unlock(&m));
    }
    for (int i = 0; i < CROWD; i++) join(threads[i]);
}

// --- a waiter that gave up took no signal with it

static int patient_rounds;

static void *patient(void *unused) {
    OK(pthread_mutex_lock(&m));
    for (int i = 1; i <= patient_rounds; i++) {
        ready = i;
        OK(pthread_cond_signal(&back));
        while (tokens < i) OK(pthread_cond_wait(&c, &m));
        answered = i;
        OK(pthread_cond_signal(&back));
    }
    OK(pthread_mutex_unlock(&m));
    return unused;
}

static volatile int stop;

// Waits for a moment, again and again; a wake-up that was meant for another goes on to it.
static void *impatient(void *number) {
    OK(pthread_mutex_lock(&m));
    for (unsigned i = 0; !stop; i++) {
        struct timespec soon = after_us(CLOCK_MONOTONIC, (i * 7 + (unsigned)(long)number * 13) % 60);
        int result = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &soon);
        if (result == 0) OK(pthread_cond_signal(&c));
        else CHECK(result == ETIMEDOUT, "clockwait: got %d (%s)", result, strerror(result));
    }
    OK(pthread_mutex_unlock(&m));
    return NULL;
}

static void no_signal_leaves_with_a_timed_out_waiter(void) {
    STAGE("a waiter that timed out took no signal with it");
    patient_rounds = 1500;
    tokens = ready = answered = stop = 0;
    pthread_t one = spawn(patient, NULL), others[2];
    for (long i = 0; i < 2; i++) others[i] = spawn(impatient, (void *)i);
    OK(pthread_mutex_lock(&m));
    for (int i = 1; i <= patient_rounds; i++) {
        while (ready < i) OK(pthread_cond_wait(&back, &m));
        tokens = i;
        if (i % 2) OK(pthread_mutex_unlock(&m));
        OK(pthread_cond_signal(&c));
        if (i % 2) OK(pthread_mutex_lock(&m));
        while (answered < i) OK(pthread_cond_wait(&back, &m));
    }
    stop = 1;
    OK(pthread_mutex_unlock(&m));
    join(one);
    for (int i = 0; i < 2; i++) join(others[i]);
}

// --- a bounded buffer, with one signal for each change

enum { PRODUCERS = 4, CONSUMERS = 4, ITEMS = 8000, ROOM = 5 };

static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static long buffer[ROOM];
static unsigned head, tail;

static int wait_somehow(pthread_cond_t *cond, unsigned way) {
    struct timespec t;
    switch (way % 3) {
    case 0: return pthread_cond_wait(cond, &m);
    case 1: t = far_away(CLOCK_REALTIME); return pthread_cond_timedwait(cond, &m, &t);
    default: t = far_away(CLOCK_MONOTONIC); return pthread_cond_clockwait(cond, &m, CLOCK_MONOTONIC, &t);
    }
}

static void *produces(void *number) {
    for (long i = 0; i < ITEMS; i++) {
        OK(pthread_mutex_lock(&m));
        while (head - tail == ROOM) OK(wait_somehow(&not_full, (unsigned)i));
        buffer[head++ % ROOM] = (long)number * ITEMS + i;
        if (i % 2) OK(pthread_mutex_unlock(&m));
        OK(pthread_cond_signal(&not_empty));
        if (i % 2 == 0) OK(pthread_mutex_unlock(&m));
    }
    return NULL;
}

static void *consumes(void *unused) {
    long sum = 0;
    for (long i = 0; i < (long)PRODUCERS * ITEMS / CONSUMERS; i++) {
        OK(pthread_mutex_lock(&m));
        while (head == tail) OK(wait_somehow(&not_empty, (unsigned)i));
        sum += buffer[tail++ % ROOM];
        OK(pthread_cond_signal(&not_full));
        OK(pthread_mutex_unlock(&m));
    }
    return unused == NULL ? (void *)sum : NULL;
}

static void bounded_buffer(void) {
    STAGE("a bounded buffer");
    pthread_t producers[PRODUCERS], consumers[CONSUMERS];
    for (long i = 0; i < PRODUCERS; i++) producers[i] = spawn(produces, (void *)i);
    for (long i = 0; i < CONSUMERS; i++) consumers[i] = spawn(consumes, NULL);
    long sum = 0, n = (long)PRODUCERS * ITEMS;
    for (int i = 0; i < PRODUCERS; i++) join(producers[i]);
    for (int i = 0; i < CONSUMERS; i++) sum += (long)join(consumers[i]);
    CHECK(sum == n * (n - 1) / 2, "items were lost or doubled: the sum is %ld", sum);
}

int main(void) {
    limit_seconds(40);
    signal_wakes_one();
    nothing_remembered();
    no_later_waiter_takes_it();
    broadcast_wakes_all();
    no_signal_leaves_with_a_timed_out_waiter();
    bounded_buffer();
    STAGE("nothing is left behind");
    OK(pthread_cond_destroy(&c));
    OK(pthread_cond_destroy(&back));
    OK(pthread_cond_destroy(&not_full));
    OK(pthread_cond_destroy(&not_empty));
    OK(pthread_mutex_destroy(&m));
    return 0;
}
