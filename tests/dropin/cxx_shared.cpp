// The C++ library's shared mutexes: shared and exclusive, tried and timed on both clocks, in a crowd, and the
// errors that it makes of pthread's.
#include "check.h"
#include <atomic>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;
using System = std::chrono::system_clock;

// What another thread gets of it.
template <class F> static bool elsewhere(F f) {
    bool got = false;
    std::thread([&] { got = f(); }).join();
    return got;
}
template <class M> static bool readable(M &m) {
    return elsewhere([&] { return std::shared_lock<M>(m, std::try_to_lock).owns_lock(); });
}
template <class M> static bool writable(M &m) {
    return elsewhere([&] { return std::unique_lock<M>(m, std::try_to_lock).owns_lock(); });
}

template <class M> static void who_excludes_whom() {
    M m;
    CHECK(readable(m) && writable(m), "a new one is held");
    {
        std::shared_lock<M> lock(m);
        CHECK(readable(m) && !writable(m), "shared: wrong");
    }
    {
        std::unique_lock<M> lock(m);
        CHECK(!readable(m) && !writable(m), "exclusive: wrong");
    }
    CHECK(readable(m) && writable(m), "it is held after all");
}

template <class M> static void deadlock_is_an_error() {
    M m;
    std::unique_lock<M> lock(m);
    bool thrown = false;
    try {
        m.lock_shared();
    } catch (const std::system_error &error) {
        thrown = error.code() == std::errc::resource_deadlock_would_occur;
    }
    CHECK(thrown, "lock_shared by the writer did not say that it would wait for itself");
}

static void timed() {
    std::shared_timed_mutex m;
    std::unique_lock<std::shared_timed_mutex> lock(m);
    std::thread([&] {
        auto steady = Steady::now() + 4ms;
        CHECK(!m.try_lock_until(steady), "try_lock_until took a held one");
        CHECK(Steady::now() >= steady, "try_lock_until gave up early");
        steady = Steady::now() + 4ms;
        CHECK(!m.try_lock_shared_until(steady), "try_lock_shared_until took a held one");
        CHECK(Steady::now() >= steady, "try_lock_shared_until gave up early");
        auto system = System::now() + 4ms;
        CHECK(!m.try_lock_shared_until(system), "try_lock_shared_until took a held one");
        CHECK(System::now() >= system, "try_lock_shared_until gave up early");
        CHECK(!m.try_lock_for(4ms) && !m.try_lock_shared_for(4ms), "a held one was taken");
    }).join();
    std::atomic<int> inside{0};
    std::thread reader([&] {
        CHECK(m.try_lock_shared_for(3600s), "it was never given");
        inside = 1;
        m.unlock_shared();
    });
    std::thread writer([&] {
        CHECK(m.try_lock_until(System::now() + 3600s), "it was never given");
        inside = 1;
        m.unlock();
    });
    CHECK(inside == 0, "somebody is inside with the writer");
    lock.unlock();
    reader.join();
    writer.join();
}

template <class M> static void crowd() {
    M m;
    long first = 0, second = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 2000; i++) {
                if ((i + t) % 4 == 0) {
                    std::lock_guard<M> lock(m);
                    CHECK(first == second, "two writers");
                    first++;
                    if (i % 64 == 0) std::this_thread::yield();
                    second++;
                } else {
                    std::shared_lock<M> lock(m);
                    CHECK(first == second, "a writer with a reader");
                    if (i % 64 == 0) std::this_thread::yield();
                    CHECK(first == second, "a writer with a reader");
                }
            }
        });
    for (auto &thread : threads) thread.join();
    CHECK(first == 8 * 500 && second == first, "%ld and %ld additions", first, second);
}

int main() {
    limit_seconds(60);
    STAGE("who excludes whom");
    who_excludes_whom<std::shared_mutex>();
    who_excludes_whom<std::shared_timed_mutex>();
    STAGE("a deadlock is an error");
    deadlock_is_an_error<std::shared_mutex>();
    deadlock_is_an_error<std::shared_timed_mutex>();
    STAGE("timed");
    timed();
    STAGE("crowd");
    crowd<std::shared_mutex>();
    crowd<std::shared_timed_mutex>();
    return 0;
}
