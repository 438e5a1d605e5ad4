// The locks of poundlock.hpp under the standard's guards: exclusion, deadlines on every clock, and std::lock.
#include "check.h"

#include <poundlock.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
using System = std::chrono::system_clock;

// A clock that the system does not know: it shows the steady time, from another beginning, in milliseconds.
struct Other {
    using duration = std::chrono::milliseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Other>;
    static constexpr bool is_steady = true;
    static time_point now() {
        return time_point(std::chrono::floor<duration>(Steady::now().time_since_epoch()) + 1000000h);
    }
};

template <class Body>
static void elsewhere(Body body) {
    std::thread(body).join();
}

// Whether another thread could lock it.
template <class M>
static bool taken(M& mutex) {
    bool got = false;
    elsewhere([&] {
        got = mutex.try_lock();
        if (got) mutex.unlock();
    });
    return !got;
}

// `attempt(time)` and `attempt(duration)` have to give up, and not before the time.
template <class At, class For>
static void gives_up(At at, For within) {
    for (auto wait : {-1h, 0h}) CHECK(!within(wait), "got in");
    CHECK(!within(Steady::duration::min()) && !within(-std::numeric_limits<double>::infinity() * 1s),
          "got in");
    CHECK(!at(Steady::time_point::min()) && !at(System::time_point::min()) && !at(System::time_point()),
          "got in");
    const auto begin = Steady::now();
    CHECK(!within(10ms) && !within(std::chrono::duration<float>(0.01f)), "got in");
    CHECK(Steady::now() - begin >= 19ms, "gave up too early");
    const auto steady = Steady::now() + 10ms;
    CHECK(!at(steady) && Steady::now() >= steady, "steady clock");
    const auto system = System::now() + 10ms;
    CHECK(!at(system) && System::now() >= system, "system clock");
    const auto other = Other::now() + 10ms;
    CHECK(!at(other) && Other::now() >= other, "another clock");
    CHECK(!at(Other::time_point::min()), "got in");
}

// ... and these do not, though some are out of any clock's range.
template <class At, class For, class Leave>
static void gets_in(At at, For within, Leave leave) {
    const auto check = [&](bool got) {
        CHECK(got, "a free lock");
        leave();
    };
    check(within(0s));
    check(within(-1h));
    check(within(std::chrono::hours::max()));
    check(within(std::chrono::duration<double>::max()));
    check(within(std::numeric_limits<float>::infinity() * std::chrono::duration<float>(1)));
    check(at(Steady::time_point::max()));
    check(at(System::time_point::max()));
    check(at(std::chrono::time_point<System, std::chrono::hours>::max()));
    check(at(Other::time_point::max()));
    check(at(Other::now() - 1h));
}

template <class M>
static void timed(M& mutex, const char* name) {
    CASE(name);
    const auto at = [&](auto time) { return mutex.try_lock_until(time); };
    const auto within = [&](auto timeout) { return mutex.try_lock_for(timeout); };
    gets_in(at, within, [&] { mutex.unlock(); });
    std::unique_lock<M> lock(mutex);
    elsewhere([&] { gives_up(at, within); });
    lock.unlock();
    CHECK(lock.try_lock_for(1s) && taken(mutex), "try_lock_for");
    lock.unlock();
    CHECK(lock.try_lock_until(System::now()) && taken(mutex), "try_lock_until");
    // Who waits without an end in sight gets it.
    std::atomic<bool> begun(false);
    std::thread waiter([&] {
        begun = true;
        CHECK(mutex.try_lock_for(std::chrono::hours::max()), "gave up");
        mutex.unlock();
    });
    while (!begun) std::this_thread::yield();
    lock.unlock();
    waiter.join();
}

template <class M>
static void counted(M& mutex, const char* name) {
    CASE(name);
    constexpr int threads = 4, rounds = 10000;
    long count = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++) {
        all.emplace_back([&] {
            for (int round = 0; round < rounds; round++) {
                if (round % 2) {
                    std::lock_guard<M> guard(mutex);
                    count++;
                } else {
                    std::unique_lock<M> lock(mutex, std::try_to_lock);
                    if (!lock) lock.lock();
                    count++;
                }
            }
        });
    }
    for (auto& thread : all) thread.join();
    CHECK(count == long(threads) * rounds, "%ld", count);
}

static poundlock::mutex mutex;
static poundlock::recursive_mutex recursive;
static poundlock::spinlock spinlock;
static poundlock::shared_mutex shared;

static void together() {
    STAGE("std::lock and std::scoped_lock");
    std::thread other([] {
        for (int i = 0; i < 5000; i++) std::scoped_lock all(spinlock, shared, recursive, mutex);
    });
    for (int i = 0; i < 5000; i++) {
        std::lock(mutex, recursive, spinlock, shared);
        std::lock_guard a(mutex, std::adopt_lock);
        std::lock_guard b(recursive, std::adopt_lock);
        std::lock_guard c(spinlock, std::adopt_lock);
        std::lock_guard d(shared, std::adopt_lock);
    }
    other.join();
    std::unique_lock first(mutex, std::defer_lock), second(mutex, std::defer_lock);
    CHECK(std::try_lock(first, second) == 1 && !first.owns_lock(), "try_lock");
}

static void recursion() {
    STAGE("recursion");
    std::unique_lock one(recursive), two(recursive);
    CHECK(recursive.try_lock_for(1s) && taken(recursive), "once more");
    recursive.unlock();
    two.unlock();
    CHECK(taken(recursive), "still held");
    // As if it had been locked so often.
    recursive.native_handle()->_words[6] = UINT32_MAX;
    try {
        recursive.lock();
        FAIL("locked too often");
    } catch (const std::system_error& error) {
        CHECK(error.code() == std::errc::resource_unavailable_try_again, "%s", error.what());
    }
    recursive.native_handle()->_words[6] = 1;
    one.unlock();
    CHECK(!taken(recursive), "still held");
}

static void sharing() {
    STAGE("std::shared_lock");
    const auto at = [](auto time) { return shared.try_lock_shared_until(time); };
    const auto within = [](auto timeout) { return shared.try_lock_shared_for(timeout); };
    gets_in(at, within, [] { shared.unlock_shared(); });
    {
        std::shared_lock reader(shared);
        elsewhere([] {
            std::shared_lock beside(shared, std::try_to_lock);
            CHECK(beside.owns_lock(), "readers do not share");
        });
        CHECK(taken(shared), "a writer beside a reader");
    }
    {
        std::unique_lock writer(shared);
        elsewhere([&] { gives_up(at, within); });
    }
    STAGE("upgrades, by Boost's names");
    const auto upgrade_at = [](auto time) { return shared.try_lock_upgrade_until(time); };
    const auto upgrade_within = [](auto timeout) { return shared.try_lock_upgrade_for(timeout); };
    gets_in(upgrade_at, upgrade_within, [] { shared.unlock_upgrade(); });
    shared.lock_upgrade();
    elsewhere([&] {
        gives_up(upgrade_at, upgrade_within);
        CHECK(shared.try_lock_shared() && !shared.try_lock_upgrade(), "beside an upgradable reader");
    });
    // A reader is inside that has ended without leaving.
    gives_up([](auto time) { return shared.try_unlock_upgrade_and_lock_until(time); },
             [](auto timeout) { return shared.try_unlock_upgrade_and_lock_for(timeout); });
    CHECK(!shared.try_unlock_upgrade_and_lock(), "a writer beside a reader");
    shared.unlock_shared();
    shared.unlock_upgrade_and_lock();
    CHECK(!shared.try_lock_shared(), "a reader beside a writer");
    shared.unlock_and_lock_upgrade();
    CHECK(shared.try_unlock_upgrade_and_lock_for(0s), "alone");
    shared.unlock_and_lock_shared();
    CHECK(shared.try_lock_upgrade(), "beside a reader");
    shared.unlock_upgrade_and_lock_shared();
    shared.unlock_shared();
    shared.unlock_shared();
    CHECK(!taken(shared), "still held");
}

// Those that are not poundlock::mutex wait by the standard's class.
template <class M>
static void any(M& lockable) {
    std::condition_variable_any changed;
    bool ready = false;
    std::thread other([&] {
        std::lock_guard guard(lockable);
        ready = true;
        changed.notify_one();
    });
    std::unique_lock lock(lockable);
    changed.wait(lock, [&] { return ready; });
    lock.unlock();
    other.join();
}

int main() {
    limit_seconds(LIMIT);
    STAGE("deadlines");
    timed(mutex, "mutex");
    timed(recursive, "recursive_mutex");
    timed(shared, "shared_mutex");
    STAGE("exclusion");
    counted(mutex, "mutex");
    counted(recursive, "recursive_mutex");
    counted(spinlock, "spinlock");
    counted(shared, "shared_mutex");
    for (auto policy : {poundlock::policy::phase_fair, poundlock::policy::reader_preferring,
                        poundlock::policy::writer_preferring}) {
        poundlock::shared_mutex other(policy);
        counted(other, "shared_mutex with a policy");
        CHECK(other.native_handle()->_policy == static_cast<uint32_t>(policy), "another policy");
    }
    CASE("");
    together();
    recursion();
    sharing();
    STAGE("std::condition_variable_any");
    any(recursive);
    any(shared);
    any(spinlock);
}
