//! A cache in shards, for many threads: `cargo run --release -p poundlock --example sharded_cache [THREADS]
//! [LOOK-UPS]`
//!
//! Each shard is a map under a [`RwLock`]: look-ups share it, and only what is not there yet is worth a
//! writer. Whoever misses takes the upgradable read, so that of several threads that miss the same key one
//! computes it and the others find it. Counters that every look-up touches are under a [`SpinLock`] a shard:
//! 4 bytes, and a section of one addition.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use poundlock::{RwLock, RwLockUpgradableReadGuard, SpinLock};

#[derive(Clone, Copy, Default)]
struct Count {
    hits: u64,
    misses: u64,
}

struct Shard<K, V> {
    entries: RwLock<HashMap<K, V>>,
    count: SpinLock<Count>,
}

/// What a function returns, kept.
struct Cache<K, V, F> {
    shards: Vec<Shard<K, V>>,
    hasher: RandomState,
    compute: F,
}

impl<K: Hash + Eq + Clone, V: Clone, F: Fn(&K) -> V> Cache<K, V, F> {
    fn new(shards: usize, compute: F) -> Self {
        let shard = || Shard { entries: RwLock::default(), count: SpinLock::default() };
        Cache { shards: (0..shards).map(|_| shard()).collect(), hasher: RandomState::new(), compute }
    }

    fn get(&self, key: &K) -> V {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % self.shards.len()];
        let found = shard.entries.read().get(key).cloned();
        if let Some(value) = found {
            shard.count.lock().hits += 1;
            return value;
        }
        let entries = shard.entries.upgradable_read();
        // Somebody else may have been faster.
        if let Some(value) = entries.get(key).cloned() {
            shard.count.lock().hits += 1;
            return value;
        }
        let value = (self.compute)(key);
        RwLockUpgradableReadGuard::upgrade(entries).insert(key.clone(), value.clone());
        shard.count.lock().misses += 1;
        value
    }

    fn count(&self) -> Count {
        self.shards.iter().map(|shard| *shard.count.lock()).fold(Count::default(), |sum, count| Count {
            hits: sum.hits + count.hits,
            misses: sum.misses + count.misses,
        })
    }
}

/// How many steps Collatz's sequence takes from there to 1.
fn steps(start: &u64) -> u32 {
    let next = |n: &u64| (*n != 1).then(|| if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 });
    std::iter::successors(Some(*start), next).count() as u32 - 1
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let threads: u64 = arguments.next().unwrap_or(8);
    let look_ups: u64 = arguments.next().unwrap_or(200_000);
    const KEYS: u64 = 10_000;

    let cache = Cache::new(16, steps);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let cache = &cache;
            scope.spawn(move || {
                // A linear congruential generator: the same look-ups each time.
                let mut state = thread + 1;
                for _ in 0..look_ups {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let key = (state >> 33) % KEYS + 1;
                    assert_eq!(cache.get(&key), steps(&key), "of {key}");
                }
            });
        }
    });
    let Count { hits, misses } = cache.count();
    assert_eq!(hits + misses, threads * look_ups, "each look-up is a hit or a miss");
    assert!(misses <= KEYS, "nothing is computed twice");
    println!("{} look-ups by {threads} threads: {hits} hits, {misses} computed", threads * look_ups);
}
