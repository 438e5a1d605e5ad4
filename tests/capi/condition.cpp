// poundlock::condition_variable: hand-over, predicates, and deadlines on every clock.
#include "check.h"

#include <poundlock.hpp>

#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
using System = std::chrono::system_clock;

struct Other {
    using duration = std::chrono::microseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Other>;
    static constexpr bool is_steady = true;
    static time_point now() {
        return time_point(std::chrono::floor<duration>(Steady::now().time_since_epoch()) - 1000h);
    }
};

static poundlock::mutex mutex;
static poundlock::condition_variable changed;

static void queue() {
    STAGE("a queue between threads");
    constexpr int producers = 2, consumers = 3, items = 4000;
    std::deque<int> waiting;
    poundlock::condition_variable space, something;
    long sum = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < producers; i++) {
        threads.emplace_back([&] {
            for (int item = 1; item <= items; item++) {
                std::unique_lock lock(mutex);
                space.wait(lock, [&] { return waiting.size() < 8; });
                waiting.push_back(item);
                something.notify_one();
            }
        });
    }
    for (int i = 0; i < consumers; i++) {
        threads.emplace_back([&] {
            for (;;) {
                std::unique_lock lock(mutex);
                while (waiting.empty()) something.wait(lock);
                const int item = waiting.front();
                if (item == 0) return;
                waiting.pop_front();
                sum += item;
                space.notify_one();
            }
        });
    }
    for (int i = 0; i < producers; i++) threads[i].join();
    {
        std::lock_guard guard(mutex);
        waiting.push_back(0);
        something.notify_all();
    }
    for (int i = producers; i < producers + consumers; i++) threads[i].join();
    CHECK(sum == long(producers) * items * (items + 1) / 2, "%ld", sum);
}

template <class Clock>
static void deadline(const char* name) {
    CASE(name);
    std::unique_lock lock(mutex);
    const auto time = Clock::now() + 10ms;
    while (changed.wait_until(lock, time) == std::cv_status::no_timeout) {}
    CHECK(Clock::now() >= time, "too early");
    CHECK(!changed.wait_until(lock, time, [] { return false; }), "a condition that does not hold");
    CHECK(changed.wait_until(lock, time, [] { return true; }), "a condition that holds");
    CHECK(changed.wait_until(lock, Clock::time_point::min()) == std::cv_status::timeout, "long ago");
    CHECK(lock.owns_lock() && !mutex.try_lock(), "the mutex is not held");
    // With an end that never comes.
    bool ready = false;
    std::thread other([&] {
        std::lock_guard guard(mutex);
        ready = true;
        changed.notify_all();
    });
    CHECK(changed.wait_until(lock, Clock::time_point::max(), [&] { return ready; }), "gave up");
    lock.unlock();
    other.join();
}

static void durations() {
    CASE("durations");
    std::unique_lock lock(mutex);
    const auto begin = Steady::now();
    CHECK(!changed.wait_for(lock, 10ms, [] { return false; }), "a condition that does not hold");
    CHECK(Steady::now() - begin >= 10ms, "too early");
    CHECK(changed.wait_for(lock, -1h) == std::cv_status::timeout, "long ago");
    CHECK(changed.wait_for(lock, -1h, [] { return true; }), "a condition that holds");
    bool ready = false;
    std::thread other([&] {
        std::lock_guard guard(mutex);
        ready = true;
        changed.notify_one();
    });
    CHECK(changed.wait_for(lock, std::chrono::hours::max(), [&] { return ready; }), "gave up");
    lock.unlock();
    other.join();
}

int main() {
    limit_seconds(LIMIT);
    queue();
    STAGE("deadlines");
    deadline<Steady>("steady clock");
    deadline<System>("system clock");
    deadline<Other>("another clock");
    durations();
}
