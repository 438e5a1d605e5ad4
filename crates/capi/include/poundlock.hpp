/*
 * Poundlock for C++17: the locks of poundlock.h as the standard library's.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 *     c++ program.cpp $(pkg-config --cflags --libs poundlock)
 *
 * | type | stands for | meets |
 * | --- | --- | --- |
 * | mutex, timed_mutex | std's of the same names | TimedLockable |
 * | recursive_mutex, recursive_timed_mutex | std's of the same names | TimedLockable |
 * | shared_mutex, shared_timed_mutex | std's of the same names | TimedLockable, SharedTimedLockable |
 * | spinlock | | Lockable |
 * | condition_variable | std::condition_variable, with std::unique_lock<poundlock::mutex> | |
 * | semaphore_set, permit | several std::counting_semaphore at once, among processes too | |
 *
 * So std::lock_guard, std::unique_lock, std::shared_lock, std::scoped_lock and std::lock take them, and
 * std::condition_variable_any those that are not poundlock::mutex. Locks are made in constants: one with
 * static storage works before any constructor runs. They cannot be copied. What poundlock.h says of the
 * algorithms, of memory ordering, of signal handlers and of forks holds here.
 *
 * With clang's -Wthread-safety the mutexes and the spinlock are capabilities.
 */
#ifndef POUNDLOCK_HPP
#define POUNDLOCK_HPP

#if __cplusplus < 201703L
#error "poundlock.hpp needs C++17"
#endif

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <system_error>
#include <time.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "poundlock.h"

/* The last one keeps the analysis out of the bodies, which acquire by functions that it does not know. */
#if defined(__clang__)
#define POUNDLOCK_CAPABILITY(name) __attribute__((capability(name)))
#define POUNDLOCK_SAFETY(...) __attribute__((__VA_ARGS__, no_thread_safety_analysis))
#else
#define POUNDLOCK_CAPABILITY(name)
#define POUNDLOCK_SAFETY(...)
#endif

namespace poundlock {

/* Which waiters of a shared_mutex go first. */
enum class policy : std::uint32_t {
    /* Readers and writers in turn: none starves. */
    phase_fair = POUNDLOCK_RWLOCK_PHASE_FAIR,
    /* Readers enter whenever no writer is inside, so a reader may enter again while it is inside. */
    reader_preferring = POUNDLOCK_RWLOCK_READER_PREFERRING,
    /* No reader enters while a writer waits. */
    writer_preferring = POUNDLOCK_RWLOCK_WRITER_PREFERRING,
};

namespace detail {

/* A time as the functions of poundlock.h want it. All times beyond a human life are one to us. */
struct deadline {
    clockid_t clock;
    timespec time;

    template <class Duration>
    deadline(clockid_t which, Duration since_epoch) : clock(which), time() {
        constexpr double far = 1e10; /* seconds */
        const double seconds = std::chrono::duration<double>(since_epoch).count();
        if (!(seconds < far)) {
            time.tv_sec = static_cast<time_t>(far);
        } else if (seconds > -far) {
            const auto whole = std::chrono::floor<std::chrono::seconds>(since_epoch);
            auto rest = std::chrono::ceil<std::chrono::nanoseconds>(since_epoch - whole).count();
            time.tv_sec = static_cast<time_t>(whole.count());
            if (rest > 999999999) {
                ++time.tv_sec;
                rest = 0;
            }
            time.tv_nsec = static_cast<long>(rest);
        } else {
            time.tv_sec = -1;
        }
    }
};

/* That long from now. */
template <class Rep, class Period>
deadline after(const std::chrono::duration<Rep, Period>& timeout) {
    using std::chrono::steady_clock;
    constexpr double far = 1e9; /* seconds */
    const double seconds = std::chrono::duration<double>(timeout).count();
    const auto now = steady_clock::now().time_since_epoch();
    if (!(seconds > 0)) return deadline(CLOCK_MONOTONIC, now);
    if (!(seconds < far)) return deadline(CLOCK_MONOTONIC, std::chrono::duration<double>(1e10));
    return deadline(CLOCK_MONOTONIC, now + std::chrono::ceil<steady_clock::duration>(timeout));
}

/* When a clock that the system does not know should show that time. */
template <class Clock, class Duration>
deadline expected(const std::chrono::time_point<Clock, Duration>& time) {
    using seconds = std::chrono::duration<double>;
    const auto now = Clock::now();
    if (!(now < time)) return after(Duration::zero());
    const seconds left = seconds(time.time_since_epoch()) - seconds(now.time_since_epoch());
    /* The exact difference of times that are far apart may be out of range. */
    return left.count() < 1e9 ? after(time - now) : after(left);
}

/* Waits until then: `wait` gets a deadline and returns 0 or an error number. A clock that the system does
   not know is asked whenever the time ought to have come. */
template <class Clock, class Duration, class Wait>
int until(const std::chrono::time_point<Clock, Duration>& time, Wait wait) {
    if constexpr (std::is_same_v<Clock, std::chrono::steady_clock>) {
        return wait(deadline(CLOCK_MONOTONIC, time.time_since_epoch()));
    } else if constexpr (std::is_same_v<Clock, std::chrono::system_clock>) {
        return wait(deadline(CLOCK_REALTIME, time.time_since_epoch()));
    } else {
        for (;;) {
            const int result = wait(expected(time));
            if (result != ETIMEDOUT || !(Clock::now() < time)) return result;
        }
    }
}

/* Where they begin; any address if there are none. */
template <class T>
const T* first(const std::initializer_list<T>& several, const T& none) noexcept {
    return several.size() == 0 ? &none : several.begin();
}

[[noreturn]] inline void fail(int error, const char* what) {
    throw std::system_error(error, std::generic_category(), what);
}

} // namespace detail

namespace detail {

/* A lock or condition variable of poundlock.h's: made in constants, and not copied. */
template <class Native>
class object {
  public:
    using native_handle_type = Native*;

    constexpr object() noexcept = default;
    object(const object&) = delete;
    object& operator=(const object&) = delete;

    native_handle_type native_handle() noexcept { return &native_; }

  protected:
    constexpr explicit object(Native native) noexcept : native_(native) {}

    template <auto Enter>
    bool before(const deadline& end) noexcept {
        return Enter(&native_, end.clock, &end.time) == 0;
    }

    template <auto Enter, class Clock, class Duration>
    bool at(const std::chrono::time_point<Clock, Duration>& time) {
        const auto enter = [this](const deadline& end) { return Enter(&native_, end.clock, &end.time); };
        return until(time, enter) == 0;
    }

    Native native_{};
};

/* A bare name is of the class that uses this: for a time, and until a time, by a function that takes a
   clock's. */
#define POUNDLOCK_TIMED(name, enter, safety)                                                                 \
    template <class Rep, class Period>                                                                       \
    [[nodiscard]] bool name##_for(const std::chrono::duration<Rep, Period>& timeout) safety {                \
        return name() || this->template before<enter>(detail::after(timeout));                               \
    }                                                                                                        \
    template <class Clock, class Duration>                                                                   \
    [[nodiscard]] bool name##_until(const std::chrono::time_point<Clock, Duration>& time) safety {           \
        return this->template at<enter>(time);                                                               \
    }

} // namespace detail

/* The mutex, which is timed: see poundlock_mutex_t. */
class POUNDLOCK_CAPABILITY("mutex") mutex : public detail::object<poundlock_mutex_t> {
  public:
    void lock() noexcept POUNDLOCK_SAFETY(acquire_capability()) { poundlock_mutex_lock(&native_); }

    [[nodiscard]] bool try_lock() noexcept POUNDLOCK_SAFETY(try_acquire_capability(true)) {
        return poundlock_mutex_trylock(&native_) == 0;
    }

    POUNDLOCK_TIMED(try_lock, poundlock_mutex_clocklock, POUNDLOCK_SAFETY(try_acquire_capability(true)))

    void unlock() noexcept POUNDLOCK_SAFETY(release_capability()) { poundlock_mutex_unlock(&native_); }
};

using timed_mutex = mutex;

/* The recursive mutex, which is timed and fair: see poundlock_recursive_mutex_t. */
class POUNDLOCK_CAPABILITY("mutex") recursive_mutex : public detail::object<poundlock_recursive_mutex_t> {
  public:
    /* Throws std::system_error if the calling thread has locked it as often as can be counted. */
    void lock() POUNDLOCK_SAFETY(acquire_capability()) {
        const int error = poundlock_recursive_mutex_lock(&native_);
        if (error != 0) detail::fail(error, "poundlock::recursive_mutex");
    }

    [[nodiscard]] bool try_lock() noexcept POUNDLOCK_SAFETY(try_acquire_capability(true)) {
        return poundlock_recursive_mutex_trylock(&native_) == 0;
    }

    POUNDLOCK_TIMED(try_lock, poundlock_recursive_mutex_clocklock,
                    POUNDLOCK_SAFETY(try_acquire_capability(true)))

    void unlock() noexcept POUNDLOCK_SAFETY(release_capability()) {
        poundlock_recursive_mutex_unlock(&native_);
    }
};

using recursive_timed_mutex = recursive_mutex;

/* The spinlock, for very short sections: see poundlock_spinlock_t. It has no timed form: a waiter cannot
 * leave its queue. */
class POUNDLOCK_CAPABILITY("mutex") spinlock : public detail::object<poundlock_spinlock_t> {
  public:
    void lock() noexcept POUNDLOCK_SAFETY(acquire_capability()) { poundlock_spinlock_lock(&native_); }

    [[nodiscard]] bool try_lock() noexcept POUNDLOCK_SAFETY(try_acquire_capability(true)) {
        return poundlock_spinlock_trylock(&native_) == 0;
    }

    void unlock() noexcept POUNDLOCK_SAFETY(release_capability()) { poundlock_spinlock_unlock(&native_); }
};

/* The readers-writer lock, which is timed: see poundlock_rwlock_t.
 *
 * It is upgradable, by the names of Boost's UpgradeLockable, so that boost::upgrade_lock takes it: one
 * reader at a time can become the writer, with no other writer in between. */
class POUNDLOCK_CAPABILITY("shared_mutex") shared_mutex : public detail::object<poundlock_rwlock_t> {
  public:
    constexpr shared_mutex() noexcept = default;
    constexpr explicit shared_mutex(policy which) noexcept
        : object({{0}, static_cast<std::uint32_t>(which)}) {}

    /* As the writer. */

    void lock() noexcept POUNDLOCK_SAFETY(acquire_capability()) { poundlock_rwlock_wrlock(&native_); }

    [[nodiscard]] bool try_lock() noexcept POUNDLOCK_SAFETY(try_acquire_capability(true)) {
        return poundlock_rwlock_trywrlock(&native_) == 0;
    }

    POUNDLOCK_TIMED(try_lock, poundlock_rwlock_clockwrlock, POUNDLOCK_SAFETY(try_acquire_capability(true)))

    void unlock() noexcept POUNDLOCK_SAFETY(release_capability()) { poundlock_rwlock_wrunlock(&native_); }

    /* As a reader. */

    void lock_shared() noexcept POUNDLOCK_SAFETY(acquire_shared_capability()) {
        poundlock_rwlock_rdlock(&native_);
    }

    [[nodiscard]] bool try_lock_shared() noexcept POUNDLOCK_SAFETY(try_acquire_shared_capability(true)) {
        return poundlock_rwlock_tryrdlock(&native_) == 0;
    }

    POUNDLOCK_TIMED(try_lock_shared, poundlock_rwlock_clockrdlock,
                    POUNDLOCK_SAFETY(try_acquire_shared_capability(true)))

    void unlock_shared() noexcept POUNDLOCK_SAFETY(release_shared_capability()) {
        poundlock_rwlock_rdunlock(&native_);
    }

    /* As the upgradable reader. */

    void lock_upgrade() noexcept POUNDLOCK_SAFETY(acquire_shared_capability()) {
        poundlock_rwlock_uplock(&native_);
    }

    [[nodiscard]] bool try_lock_upgrade() noexcept POUNDLOCK_SAFETY(try_acquire_shared_capability(true)) {
        return poundlock_rwlock_tryuplock(&native_) == 0;
    }

    POUNDLOCK_TIMED(try_lock_upgrade, poundlock_rwlock_clockuplock,
                    POUNDLOCK_SAFETY(try_acquire_shared_capability(true)))

    void unlock_upgrade() noexcept POUNDLOCK_SAFETY(release_shared_capability()) {
        poundlock_rwlock_upunlock(&native_);
    }

    /* From one mode to another. The analysis of thread safety does not know these. */

    void unlock_upgrade_and_lock() noexcept { poundlock_rwlock_upgrade(&native_); }

    [[nodiscard]] bool try_unlock_upgrade_and_lock() noexcept {
        return poundlock_rwlock_tryupgrade(&native_) == 0;
    }

    POUNDLOCK_TIMED(try_unlock_upgrade_and_lock, poundlock_rwlock_clockupgrade, )

    void unlock_upgrade_and_lock_shared() noexcept { poundlock_rwlock_up_to_rd(&native_); }

    void unlock_and_lock_upgrade() noexcept { poundlock_rwlock_downgrade_to_up(&native_); }

    void unlock_and_lock_shared() noexcept { poundlock_rwlock_downgrade(&native_); }
};

using shared_timed_mutex = shared_mutex;

/* The condition variable, on which threads wait with a std::unique_lock<poundlock::mutex>: see
   poundlock_cond_t. */
class condition_variable : public detail::object<poundlock_cond_t> {
  public:
    constexpr condition_variable() noexcept = default;

    /* All waiters have been notified, or have timed out; waits until none of them touches it any more. */
    ~condition_variable() { poundlock_cond_destroy(&native_); }

    void notify_one() noexcept { poundlock_cond_signal(&native_); }

    void notify_all() noexcept { poundlock_cond_broadcast(&native_); }

    void wait(std::unique_lock<mutex>& lock) noexcept {
        poundlock_cond_wait(&native_, lock.mutex()->native_handle());
    }

    template <class Predicate>
    void wait(std::unique_lock<mutex>& lock, Predicate predicate) {
        while (!predicate()) wait(lock);
    }

    template <class Clock, class Duration>
    std::cv_status wait_until(std::unique_lock<mutex>& lock,
                              const std::chrono::time_point<Clock, Duration>& time) {
        if constexpr (std::is_same_v<Clock, std::chrono::steady_clock> ||
                      std::is_same_v<Clock, std::chrono::system_clock>) {
            const auto before = [&](const detail::deadline& end) { return wait_before(lock, end); };
            return status(detail::until(time, before));
        } else {
            /* Once only: a notified waiter is to return. */
            wait_before(lock, detail::expected(time));
            return Clock::now() < time ? std::cv_status::no_timeout : std::cv_status::timeout;
        }
    }

    template <class Clock, class Duration, class Predicate>
    bool wait_until(std::unique_lock<mutex>& lock, const std::chrono::time_point<Clock, Duration>& time,
                    Predicate predicate) {
        while (!predicate()) {
            if (wait_until(lock, time) == std::cv_status::timeout) return predicate();
        }
        return true;
    }

    template <class Rep, class Period>
    std::cv_status wait_for(std::unique_lock<mutex>& lock,
                            const std::chrono::duration<Rep, Period>& timeout) {
        return status(wait_before(lock, detail::after(timeout)));
    }

    template <class Rep, class Period, class Predicate>
    bool wait_for(std::unique_lock<mutex>& lock, const std::chrono::duration<Rep, Period>& timeout,
                  Predicate predicate) {
        const detail::deadline end = detail::after(timeout);
        while (!predicate()) {
            if (wait_before(lock, end) != 0) return predicate();
        }
        return true;
    }

  private:
    static std::cv_status status(int result) noexcept {
        return result == 0 ? std::cv_status::no_timeout : std::cv_status::timeout;
    }

    int wait_before(std::unique_lock<mutex>& lock, const detail::deadline& end) noexcept {
        return poundlock_cond_clockwait(&native_, lock.mutex()->native_handle(), end.clock, &end.time);
    }
};

/* A change of one semaphore of a set, as a part of a call that makes several at once. */
struct operation : poundlock_semset_op_t {
    /* Waits until the value is large enough, and subtracts that. */
    static constexpr operation take(std::uint16_t semaphore, std::int16_t count = 1) noexcept {
        return operation(semaphore, static_cast<std::int16_t>(-count));
    }

    static constexpr operation give(std::uint16_t semaphore, std::int16_t count = 1) noexcept {
        return operation(semaphore, count);
    }

    static constexpr operation wait_for_zero(std::uint16_t semaphore) noexcept {
        return operation(semaphore, 0);
    }

    /* Undone when the process ends, however it ends. Give back with it what was taken with it. */
    constexpr operation undone_at_end() const noexcept {
        operation undone = *this;
        undone.sem_flg = POUNDLOCK_SEMSET_UNDO;
        return undone;
    }

  private:
    friend class semaphore_set;

    constexpr operation() noexcept : operation(0, 0) {}
    constexpr operation(std::uint16_t semaphore, std::int16_t change) noexcept
        : poundlock_semset_op_t{semaphore, change, 0} {}
};

static_assert(sizeof(operation) == sizeof(poundlock_semset_op_t), "several lie side by side as C's do");

class permit;

/* Semaphores of which several are taken at once, all or none, among the threads of a process or, by a key,
 * among the processes of one user, of which any may be killed: see poundlock_semset_private. Functions
 * throw std::system_error where those of poundlock.h return an error, and so do constructors. */
class semaphore_set {
  public:
    using native_handle_type = int;

    /* For this process and its forked children, with these values. It ends with this object or the
     * process. */
    explicit semaphore_set(std::initializer_list<std::uint16_t> values) {
        check(poundlock_semset_private(&id_, detail::first(values, std::uint16_t()), values.size()));
    }

    /* The set of a key, which stays until it is removed. */
    static semaphore_set open(int key) {
        int id = 0;
        check(poundlock_semset_open(&id, key));
        return semaphore_set(id);
    }

    /* A new set for the key; no process sees it before it has these values. */
    static semaphore_set create(int key, std::initializer_list<std::uint16_t> values) {
        int id = 0;
        check(poundlock_semset_create(&id, key, detail::first(values, std::uint16_t()), values.size()));
        return semaphore_set(id);
    }

    static semaphore_set open_or_create(int key, std::initializer_list<std::uint16_t> values) {
        int id = 0;
        check(poundlock_semset_open_or_create(&id, key, detail::first(values, std::uint16_t()),
                                              values.size()));
        return semaphore_set(id);
    }

    semaphore_set(semaphore_set&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
    semaphore_set& operator=(semaphore_set&& other) noexcept {
        std::swap(id_, other.id_);
        return *this;
    }

    ~semaphore_set() {
        if (id_ >= 0) poundlock_semset_close(id_);
    }

    /* Applies all operations at once, as soon as that is possible. */
    void operate(std::initializer_list<operation> operations) {
        check(poundlock_semset_operate(id_, detail::first(operations, operation()), operations.size()));
    }

    /* The same if that is possible without waiting; whether it was. */
    [[nodiscard]] bool try_operate(std::initializer_list<operation> operations) {
        return operate_for(operations, std::chrono::nanoseconds::zero());
    }

    template <class Rep, class Period>
    [[nodiscard]] bool operate_for(std::initializer_list<operation> operations,
                                   const std::chrono::duration<Rep, Period>& timeout) {
        return done(operate_before(operations, detail::after(timeout)));
    }

    template <class Clock, class Duration>
    [[nodiscard]] bool operate_until(std::initializer_list<operation> operations,
                                     const std::chrono::time_point<Clock, Duration>& time) {
        return done(detail::until(
            time, [&](const detail::deadline& end) { return operate_before(operations, end); }));
    }

    /* Takes units of one semaphore, which come back when the permit or the process ends. */
    permit acquire(std::uint16_t semaphore, std::int16_t count = 1);

    std::optional<permit> try_acquire(std::uint16_t semaphore, std::int16_t count = 1);

    template <class Rep, class Period>
    std::optional<permit> acquire_for(std::uint16_t semaphore, std::int16_t count,
                                      const std::chrono::duration<Rep, Period>& timeout);

    std::size_t size() const {
        std::size_t count = 0;
        check(poundlock_semset_count(id_, &count));
        return count;
    }

    /* Of all semaphores, at one moment. */
    std::vector<std::uint16_t> values() const {
        std::vector<std::uint16_t> all(size());
        check(poundlock_semset_values(id_, all.data(), all.size()));
        return all;
    }

    /* Sets all, as many as there are, and forgets all that was to be undone. */
    void set_values(std::initializer_list<std::uint16_t> values) {
        check(poundlock_semset_set_values(id_, detail::first(values, std::uint16_t()), values.size()));
    }

    /* For all processes: threads that wait get an error. */
    void remove() { check(poundlock_semset_remove(id_)); }

    /* The System V id, by which `poundlock ipcs` lists it. */
    native_handle_type native_handle() const noexcept { return id_; }

  private:
    friend class permit;

    explicit semaphore_set(int id) noexcept : id_(id) {}

    static void check(int error) {
        if (error != 0) detail::fail(error, "poundlock::semaphore_set");
    }

    static bool done(int error) {
        if (error != ETIMEDOUT) check(error);
        return error == 0;
    }

    int operate_before(std::initializer_list<operation> operations,
                       const detail::deadline& end) const noexcept {
        return poundlock_semset_clockoperate(id_, detail::first(operations, operation()), operations.size(),
                                              end.clock, &end.time);
    }

    int id_ = -1;
};

/* Units of a semaphore. The set stays longer. */
class [[nodiscard]] permit {
  public:
    permit(permit&& other) noexcept
        : id_(other.id_), semaphore_(other.semaphore_), count_(std::exchange(other.count_, 0)) {}
    permit& operator=(permit&& other) noexcept {
        std::swap(id_, other.id_);
        std::swap(semaphore_, other.semaphore_);
        std::swap(count_, other.count_);
        return *this;
    }

    ~permit() {
        if (count_ == 0) return;
        const operation back = operation::give(semaphore_, count_).undone_at_end();
        /* Removed or set anew meanwhile: there is nothing to give back. */
        poundlock_semset_operate(id_, &back, 1);
    }

    /* Keeps them: the destructor gives none back. They still come back when this process ends. */
    void release() noexcept { count_ = 0; }

  private:
    friend class semaphore_set;

    permit(int id, std::uint16_t semaphore, std::int16_t count) noexcept
        : id_(id), semaphore_(semaphore), count_(count) {}

    int id_;
    std::uint16_t semaphore_;
    std::int16_t count_;
};

inline permit semaphore_set::acquire(std::uint16_t semaphore, std::int16_t count) {
    operate({operation::take(semaphore, count).undone_at_end()});
    return permit(id_, semaphore, count);
}

template <class Rep, class Period>
std::optional<permit> semaphore_set::acquire_for(std::uint16_t semaphore, std::int16_t count,
                                                 const std::chrono::duration<Rep, Period>& timeout) {
    if (!operate_for({operation::take(semaphore, count).undone_at_end()}, timeout)) return std::nullopt;
    return permit(id_, semaphore, count);
}

inline std::optional<permit> semaphore_set::try_acquire(std::uint16_t semaphore, std::int16_t count) {
    return acquire_for(semaphore, count, std::chrono::nanoseconds::zero());
}

} // namespace poundlock

#undef POUNDLOCK_CAPABILITY
#undef POUNDLOCK_SAFETY
#undef POUNDLOCK_TIMED

#endif
