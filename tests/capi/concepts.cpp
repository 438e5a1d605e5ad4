// The types of poundlock.hpp meet the standard's named requirements, as far as a compiler can tell.
#include <poundlock.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <utility>

using std::declval;
using Span = std::chrono::duration<double, std::ratio<1, 3>>;
using Point = std::chrono::time_point<std::chrono::system_clock, std::chrono::hours>;

template <class, template <class> class, class = void>
struct holds : std::false_type {};
template <class T, template <class> class Expression>
struct holds<T, Expression, std::void_t<Expression<T>>> : std::true_type {};
// The expression is valid, and a bool.
template <class T, template <class> class Expression>
constexpr bool tells = [] {
    if constexpr (holds<T, Expression>::value) {
        return std::is_same_v<Expression<T>, bool>;
    } else {
        return false;
    }
}();

template <class T>
using lock_t = decltype(declval<T&>().lock(), declval<T&>().unlock());
template <class T>
using try_lock_t = decltype(declval<T&>().try_lock());
template <class T>
using try_lock_for_t = decltype(declval<T&>().try_lock_for(declval<Span>()));
template <class T>
using try_lock_until_t = decltype(declval<T&>().try_lock_until(declval<Point>()));
template <class T>
using lock_shared_t = decltype(declval<T&>().lock_shared(), declval<T&>().unlock_shared());
template <class T>
using try_lock_shared_t = decltype(declval<T&>().try_lock_shared());
template <class T>
using try_lock_shared_for_t = decltype(declval<T&>().try_lock_shared_for(declval<Span>()));
template <class T>
using try_lock_shared_until_t = decltype(declval<T&>().try_lock_shared_until(declval<Point>()));

template <class T>
constexpr bool lockable = holds<T, lock_t>::value && tells<T, try_lock_t>;
template <class T>
constexpr bool timed_lockable = lockable<T> && tells<T, try_lock_for_t> && tells<T, try_lock_until_t>;
template <class T>
constexpr bool shared_timed_lockable = holds<T, lock_shared_t>::value && tells<T, try_lock_shared_t> &&
                                       tells<T, try_lock_shared_for_t> && tells<T, try_lock_shared_until_t>;
// [thread.mutex.requirements.mutex]: default constructible, and neither copyable nor movable.
template <class T>
constexpr bool mutex_like = std::is_nothrow_default_constructible_v<T> && std::is_nothrow_destructible_v<T> &&
                            std::is_standard_layout_v<T> && !std::is_copy_constructible_v<T> &&
                            !std::is_copy_assignable_v<T> && !std::is_move_constructible_v<T> &&
                            !std::is_move_assignable_v<T>;

// The tests can fail.
static_assert(!lockable<int> && !timed_lockable<std::mutex> && timed_lockable<std::timed_mutex>);
static_assert(!shared_timed_lockable<std::shared_mutex> && shared_timed_lockable<std::shared_timed_mutex>);

template <class Ours, class Theirs>
constexpr bool mutex_for = mutex_like<Ours> && lockable<Ours> && std::is_trivially_destructible_v<Ours> &&
                           sizeof(Ours) <= sizeof(Theirs) && alignof(Ours) <= alignof(Theirs) &&
                           (!timed_lockable<Theirs> || timed_lockable<Ours>) &&
                           (!shared_timed_lockable<Theirs> || shared_timed_lockable<Ours>) &&
                           std::is_pointer_v<typename Ours::native_handle_type>;

static_assert(mutex_for<poundlock::mutex, std::mutex>);
static_assert(mutex_for<poundlock::timed_mutex, std::timed_mutex>);
static_assert(mutex_for<poundlock::recursive_mutex, std::recursive_mutex>);
static_assert(mutex_for<poundlock::recursive_timed_mutex, std::recursive_timed_mutex>);
static_assert(mutex_for<poundlock::shared_mutex, std::shared_mutex>);
static_assert(mutex_for<poundlock::shared_timed_mutex, std::shared_timed_mutex>);
static_assert(mutex_for<poundlock::spinlock, std::mutex> && sizeof(poundlock::spinlock) == 4);
static_assert(mutex_like<poundlock::condition_variable>);
static_assert(sizeof(poundlock::condition_variable) <= sizeof(std::condition_variable));

// What cannot fail says so.
template <class T>
constexpr bool never_throws = noexcept(declval<T&>().lock()) && noexcept(declval<T&>().try_lock()) &&
                              noexcept(declval<T&>().unlock());
static_assert(never_throws<poundlock::mutex> && never_throws<poundlock::spinlock> &&
              never_throws<poundlock::shared_mutex>);
static_assert(!noexcept(declval<poundlock::recursive_mutex&>().lock()));
static_assert(noexcept(declval<poundlock::condition_variable&>().notify_all()));
static_assert(std::is_same_v<decltype(declval<poundlock::condition_variable&>().wait_for(
                                 declval<std::unique_lock<poundlock::mutex>&>(), declval<Span>())),
                             std::cv_status>);
static_assert(std::is_same_v<decltype(declval<poundlock::condition_variable&>().wait_until(
                                 declval<std::unique_lock<poundlock::mutex>&>(), declval<Point>(),
                                 declval<bool (*)()>())),
                             bool>);
static_assert(std::is_nothrow_constructible_v<poundlock::shared_mutex, poundlock::policy> &&
              !std::is_convertible_v<poundlock::policy, poundlock::shared_mutex>);

// Made in constants.
struct everything {
    poundlock::mutex mutex;
    poundlock::recursive_mutex recursive;
    poundlock::spinlock spinlock;
    poundlock::shared_mutex shared{poundlock::policy::writer_preferring};
};
constexpr everything constant{};
static poundlock::condition_variable changed;

int main() {
    changed.notify_one();
    (void)constant;
}
