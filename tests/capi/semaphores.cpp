// poundlock::semaphore_set and its permits.
#include "check.h"

#include <poundlock.hpp>

#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using poundlock::operation;
using poundlock::permit;
using poundlock::semaphore_set;

static_assert(!std::is_copy_constructible_v<semaphore_set>
              && std::is_nothrow_move_constructible_v<semaphore_set>);
static_assert(!std::is_copy_constructible_v<permit> && std::is_nothrow_move_constructible_v<permit>);
static_assert(std::is_nothrow_move_assignable_v<semaphore_set> && std::is_nothrow_move_assignable_v<permit>);

template <class Call>
static int thrown(Call call) {
    try {
        call();
    } catch (const std::system_error& error) {
        return error.code().value();
    }
    return 0;
}

static void operations() {
    STAGE("operations");
    semaphore_set set{2, 0};
    CHECK(set.size() == 2, "%zu", set.size());
    set.operate({operation::take(0), operation::give(1, 3)});
    CHECK((set.values() == std::vector<std::uint16_t>{1, 3}), "other values");
    CHECK(!set.try_operate({operation::take(0), operation::take(1, 4)}), "took what was not there");
    CHECK(!set.operate_for({operation::wait_for_zero(0)}, 1ms), "1 is not 0");
    CHECK(!set.operate_until({operation::take(0, 2)}, std::chrono::steady_clock::now() + 1ms),
          "took too much");
    CHECK(set.operate_until({operation::take(0)}, std::chrono::system_clock::now() - 1s), "did not try");
    set.operate({operation::wait_for_zero(0)});
    set.set_values({5, 6});
    CHECK((set.values() == std::vector<std::uint16_t>{5, 6}), "other values");
}

static void permits() {
    STAGE("permits");
    semaphore_set set{3};
    {
        permit two = set.acquire(0, 2);
        CHECK(!set.try_acquire(0, 2), "took what was not there");
        std::optional<permit> one = set.acquire_for(0, 1, 1h);
        CHECK(one.has_value() && set.values()[0] == 0, "%d left", set.values()[0]);
        permit moved = std::move(*one);
        one.reset();
        CHECK(set.values()[0] == 0, "came back from what was moved");
        two = std::move(moved);
        CHECK(set.values()[0] == 0, "lost in an assignment");
    }
    CHECK(set.values()[0] == 3, "%d left", set.values()[0]);
    set.acquire(0).release();
    CHECK(set.values()[0] == 2, "came back though it was released");
}

static void threads() {
    STAGE("threads");
    semaphore_set set{2};
    int inside = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < 6; i++) {
        all.emplace_back([&] {
            for (int turn = 0; turn < 1000; turn++) {
                const permit held = set.acquire(0);
                CHECK(__atomic_add_fetch(&inside, 1, __ATOMIC_RELAXED) <= 2, "three inside");
                __atomic_sub_fetch(&inside, 1, __ATOMIC_RELAXED);
            }
        });
    }
    for (std::thread& thread : all) thread.join();
    CHECK(set.values()[0] == 2, "%d left", set.values()[0]);
}

static void keys() {
    STAGE("keys");
    const int key = getpid();
    CHECK(thrown([&] { semaphore_set::open(key); }) == ENOENT, "found what is not there");
    int id = -1;
    {
        semaphore_set ours = semaphore_set::create(key, {1});
        id = ours.native_handle();
    }
    CHECK(thrown([&] { semaphore_set::create(key, {1}); }) == EEXIST, "made it twice");
    semaphore_set theirs = semaphore_set::open_or_create(key, {7});
    CHECK(theirs.native_handle() == id && theirs.values()[0] == 1, "another one");
    semaphore_set moved = std::move(theirs);
    moved.remove();
    CHECK(thrown([&] { static_cast<void>(moved.acquire(0)); }) == EINVAL, "took from what was removed");
}

static void ends() {
    STAGE("a set goes with its object");
    std::optional<semaphore_set> set{std::in_place, std::initializer_list<std::uint16_t>{1}};
    const int id = set->native_handle();
    semaphore_set other{2};
    other = std::move(*set);
    CHECK(other.native_handle() == id, "another one");
    set.reset();
    CHECK(other.values()[0] == 1, "gone too early");
    other = semaphore_set{4};
    std::size_t count = 0;
    CALL(poundlock_semset_count(id, &count), EINVAL);
    CHECK(thrown([] { semaphore_set none{std::initializer_list<std::uint16_t>{}}; }) == EINVAL,
          "made one of none");
    CHECK(thrown([&] { other.operate({}); }) == EINVAL, "did nothing");
    CHECK(thrown([&] { static_cast<void>(other.acquire(1)); }) == EFBIG, "no such semaphore");
}

int main() {
    limit_seconds(LIMIT);
    operations();
    permits();
    threads();
    keys();
    ends();
    return 0;
}
