// Locks at the ends of things: in thread-specific and thread_local destructors of many threads that exit at
// once, in every round of the former, in handlers at exit, in static destructors, and after the first thread
// has ended.
#include "check.h"
#include <condition_variable>
#include <climits>
#include <mutex>
#include <thread>
#include <vector>

enum { THREADS = 8, CALLS = 200, ROUNDS = _POSIX_THREAD_DESTRUCTOR_ITERATIONS };

static std::mutex m;
static std::recursive_mutex r;
static std::condition_variable c;
static long count, destroyed_keys, destroyed_locals;
static pthread_key_t keys[3];

static void contend() {
    for (int i = 0; i < CALLS; i++) {
        std::lock_guard<std::mutex> lock(m);
        std::lock_guard<std::recursive_mutex> outer(r);
        std::lock_guard<std::recursive_mutex> inner(r);
        long v = count;
        if (i % 64 == 0) sched_yield();
        count = v + 1;
        c.notify_one();
    }
}

// Sets itself again for as many rounds as POSIX grants, so that it runs after every other destructor once.
static void destroys_key(void *value) {
    contend();
    long round = reinterpret_cast<long>(value);
    {
        std::unique_lock<std::mutex> lock(m);
        destroyed_keys++;
        c.wait_for(lock, std::chrono::microseconds(50));
    }
    if (round < ROUNDS) MUST(pthread_setspecific(keys[0], reinterpret_cast<void *>(round + 1)));
}
static void destroys_other(void *) { contend(); }

struct Local {
    std::vector<int> something;
    Local() : something(10) {}
    ~Local() {
        contend();
        std::lock_guard<std::mutex> lock(m);
        destroyed_locals++;
    }
};
static thread_local Local local;

static int gate;
static void *lives(void *number) {
    local.something[0] = 1;
    MUST(pthread_setspecific(keys[0], reinterpret_cast<void *>(1L)));
    MUST(pthread_setspecific(keys[1 + reinterpret_cast<long>(number) % 2], &gate));
    // All leave together, so that the destructors contend.
    std::unique_lock<std::mutex> lock(m);
    gate++;
    c.notify_all();
    c.wait(lock, [] { return gate >= THREADS; });
    lock.unlock();
    if (reinterpret_cast<long>(number) % 2) pthread_exit(nullptr);
    return nullptr;
}

static int exit_handlers;
static void at_exit() {
    contend();
    std::thread(contend).join();
    exit_handlers++;
}

// Destroyed after the handlers registered later than it, with threads that still run.
struct Static {
    std::mutex own;
    std::condition_variable own_cond;
    ~Static() {
        STAGE("static destructor");
        contend();
        std::unique_lock<std::mutex> lock(own);
        bool told = false;
        std::thread thread([&] {
            std::lock_guard<std::mutex> other(own);
            told = true;
            own_cond.notify_one();
        });
        own_cond.wait(lock, [&] { return told; });
        lock.unlock();
        thread.join();
        CHECK(exit_handlers == 2, "%d handlers ran before the static destructor", exit_handlers);
    }
};
static Static static_object;

static void *keeps_running(void *) {
    for (;;) contend();
    return nullptr;
}

static pthread_t first_thread;
static void *last_thread(void *) {
    STAGE("after the first thread has ended");
    join(first_thread);
    contend();
    std::thread(contend).join();
    STAGE("exit from another thread than the first");
    for (int i = 0; i < 2; i++) spawn(keeps_running, nullptr);
    exit(0);
}

int main() {
    limit_seconds(30);
    for (auto &key : keys) MUST(pthread_key_create(&key, &key == keys ? destroys_key : destroys_other));
    STAGE("thread-specific and thread_local destructors");
    for (int round = 1; round <= 10; round++) {
        gate = 0;
        pthread_t threads[THREADS];
        for (long i = 0; i < THREADS; i++) threads[i] = spawn(lives, reinterpret_cast<void *>(i));
        for (auto thread : threads) join(thread);
        CHECK(destroyed_keys == (long)round * THREADS * ROUNDS, "%ld destructors of keys ran",
              destroyed_keys);
        CHECK(destroyed_locals == (long)round * THREADS, "%ld thread_local destructors ran",
              destroyed_locals);
    }
    CHECK(count == 10L * THREADS * CALLS * (ROUNDS + 2), "%ld counted", count);
    for (int i = 0; i < 2; i++) MUST(atexit(at_exit));
    first_thread = pthread_self();
    spawn(last_thread, nullptr);
    pthread_exit(nullptr);
}
