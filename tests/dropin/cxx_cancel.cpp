// Forced unwinding through C++ frames: a thread that is cancelled while it waits, or that calls pthread_exit
// with locks held, runs the destructors on its way, with the mutex held until a destructor unlocks it.
#include "check.h"
#include <condition_variable>
#include <cxxabi.h>
#include <mutex>

static std::mutex m;
static std::condition_variable c;
static int waiting, unwound, rethrown, finished;
static bool told;
static int way;

// Stands for what a frame has to undo while it still holds the lock.
struct Waiting {
    Waiting() { waiting++; }
    ~Waiting() {
        CHECK(!m.try_lock(), "unwinding goes on without the mutex");
        waiting--;
        unwound++;
    }
};

static void wait_native() {
    struct timespec far = far_away(way == 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME);
    switch (way) {
    case 0: pthread_cond_wait(c.native_handle(), m.native_handle()); break;
    case 1: pthread_cond_timedwait(c.native_handle(), m.native_handle(), &far); break;
    default: pthread_cond_clockwait(c.native_handle(), m.native_handle(), CLOCK_MONOTONIC, &far); break;
    }
}

__attribute__((noinline)) static void wait_in_a_frame(int depth) {
    if (depth > 0) {
        Waiting frame;
        wait_in_a_frame(depth - 1);
        return;
    }
    while (!told) wait_native();
}

static void *waiter(void *returned) {
    try {
        std::unique_lock<std::mutex> lock(m);
        wait_in_a_frame(3);
        finished++;
    } catch (abi::__forced_unwind &) {
        // The lock's destructor has run.
        std::lock_guard<std::mutex> lock(m);
        rethrown++;
        throw;
    }
    return returned;
}

static void await_waiting(int n) {
    for (;;) {
        std::lock_guard<std::mutex> lock(m);
        if (waiting == n) return;
    }
}

// Through a pointer, so that the compiler does not know that it never returns.
static void (*volatile leave)(void *) = pthread_exit;

__attribute__((noinline)) static void exit_in_a_frame(int depth) {
    if (depth == 0) {
        leave(reinterpret_cast<void *>(88L));
        return;
    }
    Waiting frame;
    exit_in_a_frame(depth - 1);
}

static void *exits(void *) {
    std::lock_guard<std::mutex> lock(m);
    exit_in_a_frame(3);
    FAIL("pthread_exit returned");
}

int main() {
    limit_seconds(30);
    for (int round = 0; round < 200; round++) {
        way = round % 3;
        unwound = rethrown = finished = 0;
        told = false;
        STAGE("cancelled while it waits");
        pthread_t a = spawn(waiter, nullptr), b = spawn(waiter, nullptr);
        await_waiting(6);
        {
            // With the mutex held here, no destructor may run yet.
            std::unique_lock<std::mutex> lock(m);
            MUST(pthread_cancel(a));
            if (round % 2) sched_yield();
            CHECK(unwound == 0, "unwinding went on while the mutex was held elsewhere");
        }
        CHECK(join(a) == PTHREAD_CANCELED, "not cancelled");
        {
            std::lock_guard<std::mutex> lock(m);
            CHECK(unwound == 3 && rethrown == 1 && waiting == 3, "unwound %d, rethrown %d, waiting %d",
                  unwound, rethrown,
                  waiting);
            told = true;
            c.notify_one();
        }
        CHECK(join(b) == nullptr, "the other waiter did not return");
        CHECK(finished == 1 && waiting == 0 && unwound == 6, "finished %d, waiting %d, unwound %d", finished,
              waiting,
              unwound);
        STAGE("pthread_exit with locks held");
        CHECK(join(spawn(exits, nullptr)) == reinterpret_cast<void *>(88L), "pthread_exit's value was lost");
        CHECK(unwound == 9 && waiting == 0, "unwound %d", unwound);
        CHECK(m.try_lock(), "unwinding left the mutex taken");
        m.unlock();
    }
    return 0;
}
