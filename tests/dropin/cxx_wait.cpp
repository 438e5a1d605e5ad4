// The C++ library's locks and condition variables: timed ones on both clocks, and exceptions thrown through
// code that holds a lock or waits.
#include "check.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
using System = std::chrono::system_clock;

// Whether another thread could take it.
template <class M> static bool taken(M &m) {
    bool got = false;
    std::thread([&] {
        got = m.try_lock();
        if (got) m.unlock();
    }).join();
    return !got;
}

template <class M> static void timed_mutex() {
    M m;
    {
        std::unique_lock<M> lock(m);
        CHECK(taken(m), "not exclusive");
        std::thread([&] {
            auto start = Steady::now();
            CHECK(!m.try_lock_for(4ms), "try_lock_for took a taken mutex");
            CHECK(Steady::now() - start >= 4ms, "try_lock_for gave up early");
            auto until = Steady::now() + 4ms;
            CHECK(!m.try_lock_until(until), "try_lock_until (steady) took a taken mutex");
            CHECK(Steady::now() >= until, "try_lock_until (steady) gave up early");
            auto when = System::now() + 4ms;
            CHECK(!m.try_lock_until(when), "try_lock_until (system) took a taken mutex");
            CHECK(System::now() >= when, "try_lock_until (system) gave up early");
            CHECK(!m.try_lock_for(-1s), "try_lock_for a time that has passed");
            CHECK(!m.try_lock_until(System::time_point{}), "try_lock_until the epoch");
        }).join();
    }
    CHECK(!taken(m), "not unlocked");
    long count = 0;
    std::vector<std::thread> threads;
    std::atomic<long> made{0};
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 2000; i++) {
                bool got = (i + t) % 3 == 0   ? m.try_lock_for(std::chrono::microseconds(i % 50))
                           : (i + t) % 3 == 1 ? m.try_lock_until(System::now() + 10s)
                                              : (m.lock(), true);
                if (!got) continue;
                count++;
                made++;
                m.unlock();
            }
        });
    for (auto &t : threads) t.join();
    CHECK(count == made, "%ld counted, %ld made", count, made.load());
}

static void condition_variable() {
    std::mutex m;
    std::condition_variable c;
    std::unique_lock<std::mutex> lock(m);
    STAGE("condition_variable: time-outs");
    auto start = Steady::now();
    CHECK(!c.wait_for(lock, 4ms, [] { return false; }), "wait_for");
    CHECK(Steady::now() - start >= 4ms, "wait_for gave up early");
    CHECK(taken(m), "wait_for returned without the mutex");
    auto until = Steady::now() + 4ms;
    while (c.wait_until(lock, until) != std::cv_status::timeout) continue;
    CHECK(Steady::now() >= until, "wait_until (steady) gave up early");
    auto when = System::now() + 4ms;
    while (c.wait_until(lock, when) != std::cv_status::timeout) continue;
    CHECK(System::now() >= when, "wait_until (system) gave up early");
    CHECK(taken(m), "wait_until returned without the mutex");
    CHECK(c.wait_for(lock, -1h) == std::cv_status::timeout, "wait_for a negative time");

    STAGE("condition_variable: turns");
    int turn = 0;
    auto player = [&](int me) {
        for (int i = 0; i < 1000; i++) {
            std::unique_lock<std::mutex> own(m);
            auto mine = [&] { return turn % 2 == me; };
            switch (i % 3) {
            case 0: c.wait(own, mine); break;
            case 1: CHECK(c.wait_for(own, 1h, mine), "wait_for"); break;
            default: CHECK(c.wait_until(own, System::now() + 1h, mine), "wait_until"); break;
            }
            turn++;
            c.notify_one();
        }
    };
    lock.unlock();
    std::thread one(player, 0), other(player, 1);
    one.join();
    other.join();
    CHECK(turn == 2000, "%d turns", turn);
}

struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

static void exceptions() {
    std::mutex m;
    std::condition_variable c;
    bool told = false;
    int caught = 0;
    auto thrower = [&](int kind) {
        try {
            std::unique_lock<std::mutex> lock(m);
            int calls = 0;
            auto predicate = [&]() -> bool {
                if (told && calls++ >= 0) throw Broken("predicate");
                return false;
            };
            switch (kind) {
            case 0: c.wait(lock, predicate); break;
            case 1: c.wait_for(lock, 1h, predicate); break;
            default: c.wait_until(lock, System::now() + 1h, predicate); break;
            }
            FAIL("no exception");
        } catch (const Broken &e) {
            CHECK(std::string(e.what()) == "predicate", "another exception");
            std::lock_guard<std::mutex> lock(m);
            caught++;
        }
    };
    STAGE("a predicate that throws");
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; i++) threads.emplace_back(thrower, i % 3);
    {
        std::lock_guard<std::mutex> lock(m);
        told = true;
    }
    c.notify_all();
    for (auto &t : threads) t.join();
    CHECK(caught == 6, "%d of 6 caught", caught);
    CHECK(!taken(m), "an exception left the mutex taken");

    STAGE("an exception thrown with locks held, through many frames");
    std::recursive_mutex r;
    std::function<void(int)> deep = [&](int level) {
        std::lock_guard<std::recursive_mutex> lock(r);
        if (level == 0) throw Broken("deep");
        deep(level - 1);
    };
    try {
        deep(50);
    } catch (const Broken &) {
        caught++;
    }
    CHECK(caught == 7, "not caught");
    CHECK(!taken(r), "unwinding left the recursive mutex taken");

    STAGE("errors as exceptions");
    std::unique_lock<std::mutex> lock(m);
    try {
        lock.lock();
        FAIL("locked twice");
    } catch (const std::system_error &e) {
        CHECK(e.code() == std::errc::resource_deadlock_would_occur, "code %d", e.code().value());
    }
    lock.unlock();
    try {
        lock.unlock();
        FAIL("unlocked twice");
    } catch (const std::system_error &e) {
        CHECK(e.code() == std::errc::operation_not_permitted, "code %d", e.code().value());
    }
}

static void any_and_others() {
    STAGE("condition_variable_any");
    std::recursive_timed_mutex r;
    std::condition_variable_any any;
    int turn = 0;
    auto player = [&](int me) {
        for (int i = 0; i < 500; i++) {
            std::unique_lock<std::recursive_timed_mutex> own(r);
            while (turn % 2 != me) any.wait_for(own, 1h);
            turn++;
            any.notify_all();
        }
    };
    std::thread one(player, 0), other(player, 1);
    one.join();
    other.join();
    CHECK(turn == 1000, "%d turns", turn);
    {
        std::unique_lock<std::recursive_timed_mutex> own(r);
        auto until = Steady::now() + 3ms;
        CHECK(!any.wait_until(own, until, [] { return false; }), "wait_until");
        CHECK(Steady::now() >= until, "wait_until gave up early");
    }

    STAGE("call_once");
    for (int round = 0; round < 50; round++) {
        std::once_flag flag;
        std::atomic<int> calls{0}, failures{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++)
            threads.emplace_back([&] {
                try {
                    std::call_once(flag, [&] {
                        if (calls++ == 0) throw Broken("first call");
                    });
                } catch (const Broken &) {
                    failures++;
                }
            });
        for (auto &t : threads) t.join();
        CHECK(calls == 2 && failures == 1, "%d calls, %d failed", calls.load(), failures.load());
    }

    STAGE("shared_mutex, several locks at once, futures");
    std::shared_timed_mutex s;
    {
        std::shared_lock<std::shared_timed_mutex> a(s);
        CHECK(s.try_lock_shared(), "a second reader");
        s.unlock_shared();
        CHECK(taken(s), "a writer beside a reader");
    }
    std::mutex x, y;
    long both = 0;
    auto crosswise = [&](std::mutex &p, std::mutex &q) {
        for (int i = 0; i < 2000; i++) {
            std::scoped_lock lock(p, q);
            both++;
        }
    };
    std::thread forth([&] { crosswise(x, y); }), back([&] { crosswise(y, x); });
    forth.join();
    back.join();
    CHECK(both == 4000, "%ld", both);
    for (int i = 0; i < 50; i++) {
        auto f = std::async(std::launch::async, [i] {
            if (i % 2) throw Broken("async");
            return i;
        });
        CHECK(f.wait_for(1h) == std::future_status::ready, "a future was not ready");
        try {
            CHECK(f.get() == i && i % 2 == 0, "a future's value");
        } catch (const Broken &) {
            CHECK(i % 2, "an exception too many");
        }
    }
    std::promise<int> p;
    CHECK(p.get_future().wait_for(2ms) == std::future_status::timeout, "an empty promise was ready");
    std::mutex gone;
    std::condition_variable at_exit;
    std::unique_lock<std::mutex> lock(gone);
    bool done = false;
    std::thread([&] {
        std::unique_lock<std::mutex> own(gone);
        done = true;
        std::notify_all_at_thread_exit(at_exit, std::move(own));
    }).detach();
    at_exit.wait(lock, [&] { return done; });
}

int main() {
    limit_seconds(40);
    STAGE("timed_mutex");
    timed_mutex<std::timed_mutex>();
    STAGE("recursive_timed_mutex");
    timed_mutex<std::recursive_timed_mutex>();
    condition_variable();
    exceptions();
    any_and_others();
    return 0;
}
