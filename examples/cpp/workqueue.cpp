// workqueue: several threads sort pieces of a sequence, which come through a bounded queue, and one merges
// them.
//
//     workqueue [THREADS [NUMBERS]]
//
// The queue is a class template over a mutex and two condition variables: `push` waits while it is full,
// `pop` while it is empty, and who pops with a time limit can do something else meanwhile. Unsorted pieces go
// through one queue to the sorting threads, and sorted ones through another to the main thread.
//
// The result is checked: it is sorted, and has the sum of the numbers that went in. Exits with 0 if so.
//
//     c++ -std=c++17 -O2 workqueue.cpp $(pkg-config --cflags --libs poundlock) -pthread -o workqueue

#include <poundlock.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

template <class T>
class BoundedQueue {
  public:
    explicit BoundedQueue(std::size_t most) : most_(most) {}

    void push(T item) {
        std::unique_lock lock(mutex_);
        not_full_.wait(lock, [this] { return items_.size() < most_; });
        items_.push_back(std::move(item));
        not_empty_.notify_one();
    }

    // Nothing if the queue is closed and empty.
    std::optional<T> pop() {
        std::unique_lock lock(mutex_);
        not_empty_.wait(lock, [this] { return !items_.empty() || closed_; });
        return take();
    }

    // ... or if the time has passed.
    template <class Rep, class Period>
    std::optional<T> pop_for(std::chrono::duration<Rep, Period> timeout) {
        std::unique_lock lock(mutex_);
        not_empty_.wait_for(lock, timeout, [this] { return !items_.empty() || closed_; });
        return take();
    }

    // Nothing more is pushed.
    void close() {
        std::lock_guard guard(mutex_);
        closed_ = true;
        not_empty_.notify_all();
    }

  private:
    std::optional<T> take() {
        if (items_.empty()) return std::nullopt;
        std::optional<T> item(std::move(items_.front()));
        items_.pop_front();
        not_full_.notify_one();
        return item;
    }

    poundlock::mutex mutex_;
    poundlock::condition_variable not_full_, not_empty_;
    std::deque<T> items_;
    const std::size_t most_;
    bool closed_ = false;
};

int main(int argc, char** argv) {
    using Numbers = std::vector<std::uint32_t>;
    const long threads = argc > 1 ? std::atol(argv[1]) : 4, count = argc > 2 ? std::atol(argv[2]) : 400000;
    if (threads < 1 || threads > 1000 || count < 0) {
        std::cerr << "usage: workqueue [THREADS [NUMBERS]]\n";
        return 2;
    }
    constexpr std::size_t piece = 10000;
    BoundedQueue<Numbers> unsorted(4), sorted(4);

    std::vector<std::thread> sorters;
    for (long i = 0; i < threads; i++) {
        sorters.emplace_back([&] {
            while (auto numbers = unsorted.pop()) {
                std::sort(numbers->begin(), numbers->end());
                sorted.push(std::move(*numbers));
            }
        });
    }

    const std::size_t all = static_cast<std::size_t>(count);
    std::uint64_t sum = 0;
    std::thread source([&] {
        std::mt19937 random(1);
        for (std::size_t begin = 0; begin < all; begin += piece) {
            Numbers numbers(std::min(piece, all - begin));
            std::generate(numbers.begin(), numbers.end(), std::ref(random));
            sum = std::accumulate(numbers.begin(), numbers.end(), sum);
            unsorted.push(std::move(numbers));
        }
        unsorted.close();
    });

    Numbers result;
    while (result.size() < all) {
        const auto numbers = sorted.pop_for(std::chrono::seconds(1));
        if (!numbers) {
            std::cerr << "workqueue: " << result.size() << " of " << all << "\n";
            continue;
        }
        const auto middle = static_cast<std::ptrdiff_t>(result.size());
        result.insert(result.end(), numbers->begin(), numbers->end());
        std::inplace_merge(result.begin(), result.begin() + middle, result.end());
    }
    source.join();
    for (std::thread& sorter : sorters) sorter.join();

    const bool right = std::is_sorted(result.begin(), result.end()) && result.size() == all &&
                       std::accumulate(result.begin(), result.end(), std::uint64_t(0)) == sum;
    std::cout << "workqueue: " << (right ? "right" : "WRONG") << ": " << result.size() << " numbers sorted\n";
    return right ? 0 : 1;
}
