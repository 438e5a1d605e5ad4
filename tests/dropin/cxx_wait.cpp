// The C++ library's locks and condition variables: timed ones on both clocks, and exceptions thrown through
// code that holds a lock or waits.
#include "check.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
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

enum { THREADS = 8 };

template <class F> static void on_threads(F body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < THREADS; t++) threads.emplace_back(body, t);
    for (auto &thread : threads) thread.join();
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
    CHECK(m.try_lock_for(-1s), "free, and not taken for a time that has passed");
    m.unlock();
    CHECK(m.try_lock_until(System::now() - 1h), "free, and not taken until a time that has passed");
    m.unlock();

    volatile long first = 0, second = 0;
    std::atomic<long> made{0};
    on_threads([&](int t) {
        for (int i = 0; i < 2000; i++) {
            bool got = true;
            switch ((i + t) % 5) {
            case 0: got = m.try_lock_for(std::chrono::microseconds(i % 50)); break;
            case 1: got = m.try_lock_until(System::now() + std::chrono::microseconds(i % 50)); break;
            case 2: got = m.try_lock(); break;
            case 3: CHECK(m.try_lock_until(Steady::now() + 1h), "gave up an hour early"); break;
            default: m.lock();
            }
            if (!got) continue;
            // Whoever loses the CPU while it holds lets others time out.
            ALONE(first, second, if (i % 64 == 0) std::this_thread::yield());
            made++;
            m.unlock();
        }
    });
    CHECK(first == made && second == made, "%ld counted, %ld made", first, made.load());
    CHECK(made >= THREADS * 2000L * 2 / 5, "%ld made: who waits for ever was not always let in",
          made.load());

    std::vector<std::thread> waiters;
    volatile pid_t ids[THREADS] = {};
    long served = 0;
    m.lock();
    for (int t = 0; t < THREADS; t++)
        waiters.emplace_back([&, t] {
            announce(&ids[t]);
            CHECK(t % 2 ? m.try_lock_for(1h) : m.try_lock_until(System::now() + 1h), "gave up an hour early");
            served++;
            m.unlock();
        });
    for (auto &id : ids) await_asleep(&id);
    CHECK(served == 0, "%ld have it that wait for it", served);
    m.unlock();
    for (auto &waiter : waiters) waiter.join();
    CHECK(served == THREADS, "%ld waiters served", served);
}

static void recursion() {
    STAGE("recursive_timed_mutex: a thousand levels");
    std::recursive_timed_mutex m;
    for (int i = 0; i < 1000; i++) CHECK(i % 2 ? m.try_lock() : m.try_lock_for(1ms), "level %d", i);
    for (int i = 0; i < 1000; i++) {
        if (i % 100 == 99) CHECK(taken(m), "free after %d of 1000 levels", i);
        m.unlock();
    }
    CHECK(!taken(m), "not free after the last level");
}

// Both sides look again after a millisecond: items are neither lost nor doubled.
static void bounded_queue() {
    STAGE("condition_variable: a bounded queue");
    enum { EACH = 3000 };
    std::mutex m;
    std::condition_variable not_empty, not_full;
    std::deque<int> queue;
    int producing = THREADS / 2;
    std::vector<int> got(THREADS / 2 * EACH);
    on_threads([&](int me) {
        std::unique_lock<std::mutex> lock(m);
        for (int i = 0; me < THREADS / 2 && i < EACH; i++) {
            while (!not_full.wait_for(lock, 1ms, [&] { return queue.size() < 4; })) continue;
            queue.push_back(me * EACH + i);
            not_empty.notify_one();
        }
        if (me < THREADS / 2 && --producing == 0) not_empty.notify_all();
        auto ready = [&] { return !queue.empty() || producing == 0; };
        for (;;) {
            if (me < THREADS / 2) return;
            if (!(me % 2 ? not_empty.wait_for(lock, 1ms, ready)
                         : not_empty.wait_until(lock, System::now() + 1ms, ready)))
                continue;
            if (queue.empty()) return;
            got[(size_t)queue.front()]++;
            queue.pop_front();
            not_full.notify_one();
        }
    });
    for (int times : got) CHECK(times == 1, "an item came %d times", times);
}

// A lost wake-up would stop it.
static void broadcasts() {
    STAGE("condition_variable: rounds of a barrier");
    std::mutex m;
    std::condition_variable c;
    int inside = 0, round = 0;
    on_threads([&](int) {
        for (int r = 0; r < 500; r++) {
            std::unique_lock<std::mutex> lock(m);
            CHECK(round == r, "round %d, expected %d", round, r);
            if (++inside == THREADS) {
                inside = 0;
                round++;
                c.notify_all();
            } else {
                CHECK(c.wait_for(lock, 1h, [&] { return round != r; }), "wait_for ended an hour early");
            }
        }
    });
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
    // At once, in a crowd.
    on_threads([&](int t) {
        for (int i = 0; i < 500; i++) thrower(t % 3);
    });
    CHECK(caught == 6 + THREADS * 500, "%d caught", caught);
    caught = 6;
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

    // Before, glibc's own once waits for ever after an exception.
#if __GLIBC_PREREQ(2, 34)
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
#endif

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
    recursion();
    condition_variable();
    bounded_queue();
    broadcasts();
    exceptions();
    any_and_others();
    return 0;
}
