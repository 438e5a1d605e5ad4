// shardcache: a cache of results that are expensive to compute, shared by several threads.
//
//     shardcache [THREADS [LOOKUPS]]
//
// Each thread looks up LOOKUPS numbers, small ones more often, and wants their prime factors. The cache is a
// class template: each of its shards is a hash table under a shared_mutex. Who does not find a key becomes
// the shard's upgradable reader, looks again, and computes while others go on reading; so nothing is computed
// twice. Only to add the result it becomes the writer.
//
// Every answer is checked: the product of the factors is the number. Exits with 0 if all are right.
//
//     c++ -std=c++17 -O2 shardcache.cpp $(pkg-config --cflags --libs poundlock) -pthread -o shardcache

#include <poundlock.hpp>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>
#include <unordered_map>
#include <vector>

template <class Key, class Value>
class ShardedCache {
  public:
    explicit ShardedCache(std::function<Value(const Key&)> compute) : compute_(std::move(compute)) {}

    std::shared_ptr<const Value> get(const Key& key) {
        Shard& shard = shards_[std::hash<Key>()(key) % shards_.size()];
        {
            std::shared_lock reading(shard.lock);
            if (auto found = shard.find(key)) return found;
        }
        shard.lock.lock_upgrade();
        auto found = shard.find(key);
        if (!found) {
            found = std::make_shared<const Value>(compute_(key));
            shard.lock.unlock_upgrade_and_lock();
            shard.values.emplace(key, found);
            shard.lock.unlock_and_lock_upgrade();
            std::lock_guard counting(computed_lock_);
            computed_++;
        }
        shard.lock.unlock_upgrade();
        return found;
    }

    std::size_t size() {
        std::size_t all = 0;
        for (Shard& shard : shards_) {
            std::shared_lock reading(shard.lock);
            all += shard.values.size();
        }
        return all;
    }

    std::size_t computed() {
        std::lock_guard counting(computed_lock_);
        return computed_;
    }

  private:
    struct Shard {
        poundlock::shared_mutex lock;
        std::unordered_map<Key, std::shared_ptr<const Value>> values;

        std::shared_ptr<const Value> find(const Key& key) const {
            const auto at = values.find(key);
            return at == values.end() ? nullptr : at->second;
        }
    };

    std::function<Value(const Key&)> compute_;
    std::array<Shard, 16> shards_;
    poundlock::spinlock computed_lock_;
    std::size_t computed_ = 0;
};

static std::vector<std::uint64_t> factors(const std::uint64_t& number) {
    std::vector<std::uint64_t> found;
    std::uint64_t rest = number;
    for (std::uint64_t divisor = 2; divisor * divisor <= rest; divisor++) {
        for (; rest % divisor == 0; rest /= divisor) found.push_back(divisor);
    }
    if (rest > 1) found.push_back(rest);
    return found;
}

int main(int argc, char** argv) {
    const long threads = argc > 1 ? std::atol(argv[1]) : 4, lookups = argc > 2 ? std::atol(argv[2]) : 50000;
    if (threads < 1 || threads > 1000 || lookups < 0) {
        std::cerr << "usage: shardcache [THREADS [LOOKUPS]]\n";
        return 2;
    }
    ShardedCache<std::uint64_t, std::vector<std::uint64_t>> cache(factors);
    std::vector<long> wrong(static_cast<std::size_t>(threads));
    std::vector<std::thread> all;
    for (long i = 0; i < threads; i++) {
        all.emplace_back([&cache, lookups, i, &wrong = wrong[static_cast<std::size_t>(i)]] {
            std::mt19937_64 random(static_cast<std::uint64_t>(i));
            for (long k = 0; k < lookups; k++) {
                const std::uint64_t number = 1'000'000'000 + random() % (1 + random() % 5000);
                std::uint64_t product = 1;
                for (const std::uint64_t factor : *cache.get(number)) product *= factor;
                if (product != number) wrong++;
            }
        });
    }
    for (std::thread& thread : all) thread.join();
    bool right = cache.computed() == cache.size();
    for (const long count : wrong) right = right && count == 0;
    std::cout << "shardcache: " << (right ? "right" : "WRONG") << ": " << threads * lookups << " lookups, "
              << cache.computed() << " computed\n";
    return right ? 0 : 1;
}
