// The C++ timed locks and waits: std::timed_mutex (pthread_mutex_timedlock, pthread_mutex_clocklock),
// std::recursive_timed_mutex, std::condition_variable (pthread_cond_timedwait, pthread_cond_clockwait) and
// std::condition_variable_any. Every part checks its own results; nothing depends on how fast the machine is:
// a wait that must run out is measured only against returning too early, and a wait that must succeed has
// MINUTES.
//
// Prints one line for each part and exits 0, or names the first failed check and exits 1.

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
using System = std::chrono::system_clock;

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);   \
            std::_Exit(1);                                                                 \
        }                                                                                  \
    } while (0)

namespace {

constexpr auto MINUTES = 5min;
constexpr unsigned THREADS = 8;

template <class F> void on_threads(unsigned n, F &&f) {
    std::vector<std::thread> all;
    for (unsigned i = 0; i < n; ++i)
        all.emplace_back([&f, i] { f(i); });
    for (auto &t : all)
        t.join();
}

// A pair of plain words that only exclusion keeps equal.
struct Ledger {
    std::uint64_t debit = 0, credit = 0;
    void book() {
        CHECK(debit == credit);
        ++debit;
        // The compiler may not merge the two: another thread inside would see the difference.
        asm volatile("" ::: "memory");
        ++credit;
    }
};

// Threads take one timed mutex in each of its ways, some with times so short that they run out.
void ledger_under_timed_mutex() {
    constexpr std::uint64_t ATTEMPTS = 4000;
    std::timed_mutex mutex;
    Ledger ledger;
    std::array<std::uint64_t, THREADS> booked{}, timed_out{};

    on_threads(THREADS, [&](unsigned me) {
        for (std::uint64_t i = 0; i < ATTEMPTS; ++i) {
            std::unique_lock<std::timed_mutex> guard(mutex, std::defer_lock);
            switch ((i + me) % 5) {
            case 0: guard.lock(); break;
            case 1: (void)guard.try_lock(); break;
            case 2: (void)guard.try_lock_for(std::chrono::microseconds(i % 50)); break;
            case 3: (void)guard.try_lock_until(System::now() + std::chrono::microseconds(i % 50)); break;
            case 4: CHECK(guard.try_lock_until(Steady::now() + MINUTES)); break;
            }
            if (guard.owns_lock()) {
                ledger.book();
                ++booked[me];
                if (i % 64 == 0)
                    std::this_thread::yield(); // lose the CPU while holding, so that others time out
            } else {
                ++timed_out[me];
            }
        }
    });

    std::uint64_t in = 0, out = 0;
    for (unsigned i = 0; i < THREADS; ++i) {
        in += booked[i];
        out += timed_out[i];
    }
    CHECK(in + out == THREADS * ATTEMPTS);
    CHECK(in >= THREADS * ATTEMPTS * 2 / 5); // `lock` and the patient `try_lock_until` always succeed
    CHECK(ledger.debit == in && ledger.credit == in);
    CHECK(mutex.try_lock()); // nothing that timed out left it locked
    mutex.unlock();
    std::printf("ledger: %llu attempts accounted for\n", static_cast<unsigned long long>(in + out));
}

// A held mutex: each timed attempt fails, and not before its time. Free again, each succeeds.
void time_out_is_not_early() {
    std::timed_mutex mutex;
    mutex.lock();
    std::thread([&] {
        auto start = Steady::now();
        CHECK(!mutex.try_lock_for(20ms));
        CHECK(Steady::now() - start >= 20ms);

        auto steady_end = Steady::now() + 20ms;
        CHECK(!mutex.try_lock_until(steady_end));
        CHECK(Steady::now() >= steady_end);

        auto system_end = System::now() + 20ms;
        CHECK(!mutex.try_lock_until(system_end));
        CHECK(System::now() >= system_end);

        CHECK(!mutex.try_lock_for(-1s)); // a time in the past is `try_lock`
        CHECK(!mutex.try_lock());
    }).join();
    mutex.unlock();
    std::thread([&] {
        CHECK(mutex.try_lock_for(-1s)); // free: taken, whatever the time
        mutex.unlock();
        CHECK(mutex.try_lock_until(System::now() - 1h));
        mutex.unlock();
    }).join();
    std::puts("time-outs: none early");
}

// Waiters with minutes to wait are all served once the holder lets go, each exactly once.
void hand_over_before_time_out() {
    std::timed_mutex mutex;
    std::mutex start_lock;
    std::condition_variable start;
    unsigned waiting = 0, served = 0;

    mutex.lock();
    std::vector<std::thread> all;
    for (unsigned i = 0; i < THREADS; ++i)
        all.emplace_back([&, i] {
            {
                std::lock_guard<std::mutex> guard(start_lock);
                ++waiting;
                start.notify_one();
            }
            if (i % 2)
                CHECK(mutex.try_lock_for(MINUTES));
            else
                CHECK(mutex.try_lock_until(System::now() + MINUTES));
            ++served; // under `mutex`
            mutex.unlock();
        });
    {
        std::unique_lock<std::mutex> guard(start_lock);
        CHECK(start.wait_for(guard, MINUTES, [&] { return waiting == THREADS; }));
    }
    CHECK(served == 0);
    mutex.unlock();
    for (auto &t : all)
        t.join();
    CHECK(served == THREADS);
    std::printf("hand-over: %u waiters served\n", served);
}

void recursive_timed_mutex() {
    std::recursive_timed_mutex mutex;
    constexpr unsigned DEPTH = 1000;
    for (unsigned i = 0; i < DEPTH; ++i)
        CHECK(i % 2 ? mutex.try_lock() : mutex.try_lock_for(1ms));
    std::thread([&] { CHECK(!mutex.try_lock_for(1ms)); }).join();
    for (unsigned i = 0; i < DEPTH; ++i)
        mutex.unlock();
    std::thread([&] {
        CHECK(mutex.try_lock_for(MINUTES)); // the last unlock, and no earlier one, set it free
        mutex.unlock();
    }).join();
    std::printf("recursion: %u deep\n", DEPTH);
}

// A bounded queue whose two sides poll with `wait_for`: items are neither lost nor doubled.
void bounded_queue_with_wait_for() {
    constexpr unsigned PRODUCERS = 4, CONSUMERS = 4;
    constexpr std::uint64_t EACH = 3000, ITEMS = PRODUCERS * EACH;
    std::mutex mutex;
    std::condition_variable not_empty, not_full;
    std::deque<std::uint64_t> queue;
    unsigned producing = PRODUCERS;
    std::vector<unsigned> taken(ITEMS, 0);

    on_threads(PRODUCERS + CONSUMERS, [&](unsigned me) {
        if (me < PRODUCERS) {
            for (std::uint64_t i = 0; i < EACH; ++i) {
                std::unique_lock<std::mutex> guard(mutex);
                while (!not_full.wait_for(guard, 1ms, [&] { return queue.size() < 4; }))
                    CHECK(guard.owns_lock());
                queue.push_back(me * EACH + i);
                guard.unlock();
                not_empty.notify_one();
            }
            std::lock_guard<std::mutex> guard(mutex);
            if (--producing == 0)
                not_empty.notify_all();
        } else {
            for (;;) {
                std::unique_lock<std::mutex> guard(mutex);
                bool ready = me % 2
                    ? not_empty.wait_for(guard, 1ms, [&] { return !queue.empty() || producing == 0; })
                    : not_empty.wait_until(guard, System::now() + 1ms,
                                           [&] { return !queue.empty() || producing == 0; });
                if (!ready)
                    continue;
                if (queue.empty())
                    return;
                ++taken[queue.front()];
                queue.pop_front();
                guard.unlock();
                not_full.notify_one();
            }
        }
    });

    CHECK(queue.empty());
    for (unsigned times : taken)
        CHECK(times == 1);
    std::printf("queue: %llu items, each taken once\n", static_cast<unsigned long long>(ITEMS));
}

// No notification: `wait_for` reports a time-out, on both clocks, not early, and with the mutex held.
void wait_runs_out() {
    std::mutex mutex;
    std::condition_variable silent;
    std::unique_lock<std::mutex> guard(mutex);

    auto steady_end = Steady::now() + 20ms;
    // spurious wake-ups are allowed
    while (silent.wait_until(guard, steady_end) == std::cv_status::no_timeout)
        CHECK(guard.owns_lock());
    CHECK(Steady::now() >= steady_end);

    auto system_end = System::now() + 20ms;
    while (silent.wait_until(guard, system_end) == std::cv_status::no_timeout)
        CHECK(guard.owns_lock());
    CHECK(System::now() >= system_end);

    CHECK(!silent.wait_for(guard, 5ms, [] { return false; }));
    std::thread([&] { CHECK(!mutex.try_lock()); }).join(); // held again after each time-out
    std::puts("wait_for: runs out with the mutex held");
}

// Rounds of a barrier made of `notify_all` and long waits: a lost wake-up would stop it until MINUTES are
// over.
void broadcast_wakes_all() {
    constexpr unsigned ROUNDS = 500;
    std::mutex mutex;
    std::condition_variable turn;
    unsigned inside = 0, round = 0;
    std::array<unsigned, THREADS> rounds{};

    on_threads(THREADS, [&](unsigned me) {
        for (unsigned r = 0; r < ROUNDS; ++r) {
            std::unique_lock<std::mutex> guard(mutex);
            CHECK(round == r);
            if (++inside == THREADS) {
                inside = 0;
                ++round;
                turn.notify_all();
            } else {
                CHECK(turn.wait_for(guard, MINUTES, [&] { return round != r; }));
            }
            ++rounds[me];
        }
    });
    for (unsigned r : rounds)
        CHECK(r == ROUNDS);
    std::printf("broadcast: %u rounds of %u threads\n", ROUNDS, THREADS);
}

// condition_variable_any over a timed mutex: it locks an internal mutex of its own as well.
void any_over_timed_mutex() {
    constexpr unsigned TURNS = 400;
    std::timed_mutex mutex;
    std::condition_variable_any changed;
    unsigned turn = 0;

    on_threads(4, [&](unsigned me) {
        for (;;) {
            std::unique_lock<std::timed_mutex> guard(mutex, MINUTES);
            CHECK(guard.owns_lock());
            CHECK(changed.wait_for(guard, MINUTES, [&] { return turn >= TURNS || turn % 4 == me; }));
            if (turn >= TURNS)
                return;
            ++turn;
            changed.notify_all();
        }
    });
    CHECK(turn == TURNS);
    std::printf("condition_variable_any: %u turns in order\n", turn);
}

// Exceptions leave through locked scopes and out of a wait's predicate.
void exceptions_unlock() {
    constexpr unsigned THROWS = 500;
    std::timed_mutex timed;
    std::mutex mutex;
    std::condition_variable changed;
    unsigned caught_total = 0;

    on_threads(THREADS, [&](unsigned) {
        unsigned caught = 0;
        for (unsigned i = 0; i < THROWS; ++i) {
            try {
                std::unique_lock<std::timed_mutex> guard(timed, MINUTES);
                throw std::runtime_error("out of a critical section");
            } catch (const std::runtime_error &) {
                ++caught;
            }
            try {
                std::unique_lock<std::mutex> guard(mutex);
                changed.wait_for(guard, 1us, []() -> bool { throw std::logic_error("out of a predicate"); });
                CHECK(!"reached");
            } catch (const std::logic_error &) {
                ++caught;
            }
        }
        std::lock_guard<std::mutex> guard(mutex);
        caught_total += caught;
    });
    CHECK(caught_total == THREADS * THROWS * 2);
    CHECK(timed.try_lock());
    timed.unlock();
    std::printf("exceptions: %u caught, nothing left locked\n", caught_total);
}

} // namespace

int main() {
    ledger_under_timed_mutex();
    time_out_is_not_early();
    hand_over_before_time_out();
    recursive_timed_mutex();
    bounded_queue_with_wait_for();
    wait_runs_out();
    broadcast_wakes_all();
    any_over_timed_mutex();
    exceptions_unlock();
    return 0;
}
