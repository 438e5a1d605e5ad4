//! Words for locks that have no room for one of ours: found by the lock's address.
//!
//! A lock's place is one of [`PROBES`] lines of four entries, from the one that its address hashes to. All of
//! them are searched, whatever lies between, so an entry can be freed by one store and there are no marks of
//! freed ones that would pile up. A lock that is there is found in its first line, but for a nearly full
//! table; one that is not costs the whole search, once.
//!
//! Two threads that enter one lock at the same time meet in its first free entry; or, if an entry before it
//! is freed just then, they may make two. Both words are claims to the lock's one slot (see
//! [`layout`](crate::layout)), later calls find the first, and [`Words::free`] frees both.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

use super::sys;
use crate::layout;

/// As many locks have a place, at most.
const ENTRIES: usize = 1 << 18;
/// Entries in a line, which is a cache line.
const WIDTH: usize = 4;
const LINES: usize = ENTRIES / WIDTH;
/// How many lines are searched: enough for chance to fill four fifths of the table before a lock finds no
/// room.
const PROBES: usize = 8;

/// A table of words. Make one `static`. Its methods are async-signal-safe.
pub struct Words {
    lines: AtomicPtr<Line>,
    /// What locks without a place get.
    others: AtomicU32,
}

#[repr(C, align(64))]
struct Line([Entry; WIDTH]);

#[repr(C)]
struct Entry {
    /// The lock; 0 if the entry is free.
    address: AtomicUsize,
    word: AtomicU32,
}

const _: () = assert!(size_of::<Line>() == 64 && LINES.is_power_of_two());

impl Words {
    /// A table without room.
    #[must_use]
    pub const fn new() -> Self {
        Words { lines: AtomicPtr::new(ptr::null_mut()), others: AtomicU32::new(layout::OVERFLOW) }
    }

    /// Gives it memory, of which the kernel provides what is used. Without any it has no room, and nothing
    /// else changes.
    pub fn open(&self) {
        let _errno = sys::Errno::keep();
        let Some(fresh) = sys::memory(size_of::<Line>() * LINES) else { return };
        // Release: whoever finds it finds a mapping.
        let lost = self.lines.compare_exchange(ptr::null_mut(), fresh.cast(), Release, Relaxed).is_err();
        if lost {
            // SAFETY: made just now, and nobody else has seen it.
            unsafe { sys::unmap(fresh, size_of::<Line>() * LINES) };
        }
    }

    /// The word of the lock at `address`, which is entered if it is not there. One that says that it is
    /// counted with others, and must not be changed, if there is no room.
    #[inline]
    pub fn word(&self, address: usize) -> &AtomicU32 {
        match self.word_at_once(address) {
            Some(word) => word,
            None => self.word_further_on(address),
        }
    }

    /// The word of the lock at `address`, if it is where it is looked for first: without a call.
    #[inline(always)]
    pub fn word_at_once(&self, address: usize) -> Option<&AtomicU32> {
        let lines = self.lines.load(Acquire);
        if lines.is_null() {
            return None;
        }
        // SAFETY: as in `entries`.
        let line: &Line = unsafe { &*lines.add(hash(address) % LINES) };
        line.0.iter().find(|entry| entry.address.load(Relaxed) == address).map(|entry| &entry.word)
    }

    #[cold]
    #[inline(never)]
    fn word_further_on(&self, address: usize) -> &AtomicU32 {
        self.entries(address)
            .find(|entry| entry.address.load(Relaxed) == address)
            .map_or_else(|| self.enter(address), |entry| &entry.word)
    }

    /// The word of the lock at `address`, if it was entered.
    pub fn known(&self, address: usize) -> Option<&AtomicU32> {
        self.entries(address).find(|entry| entry.address.load(Relaxed) == address).map(|entry| &entry.word)
    }

    /// Whether a word is the one of locks that found no room.
    pub fn is_others(&self, word: &AtomicU32) -> bool {
        ptr::eq(word, &raw const self.others)
    }

    /// The lock at `address` is no more, and its word of no further use.
    pub fn free(&self, address: usize) {
        for entry in self.entries(address) {
            if entry.address.load(Relaxed) == address {
                entry.word.store(0, Relaxed);
                // Release: the next lock in this entry finds the word zero.
                entry.address.store(0, Release);
            }
        }
    }

    #[cold]
    fn enter(&self, address: usize) -> &AtomicU32 {
        for entry in self.entries(address) {
            let seen = entry.address.load(Relaxed);
            if seen != 0 && seen != address {
                continue;
            }
            // Acquire: partner of the release in `free`.
            match entry.address.compare_exchange(0, address, Acquire, Acquire) {
                Ok(_) => return &entry.word,
                Err(now) if now == address => return &entry.word,
                Err(_) => {}
            }
        }
        &self.others
    }

    #[inline]
    fn entries(&self, address: usize) -> impl Iterator<Item = &Entry> {
        let lines = self.lines.load(Acquire);
        let probes = if lines.is_null() { 0 } else { PROBES };
        let hash = hash(address);
        (0..probes).flat_map(move |step| {
            // SAFETY: so many lines lie there, of zero bytes at first, which are free entries; never
            // unmapped.
            let line: &Line = unsafe { &*lines.add(hash.wrapping_add(step) % LINES) };
            &line.0
        })
    }
}

/// Fibonacci hashing. The locks are 4-byte aligned.
#[inline(always)]
fn hash(address: usize) -> usize {
    ((address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

impl Default for Words {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRIES, Words, layout};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_word_stays_until_it_is_freed() {
        let words = Words::new();
        words.open();
        for address in (0x1000..0x9000).step_by(4) {
            words.word(address).store(address as u32, Relaxed);
        }
        words.open();
        for address in (0x1000..0x9000).step_by(8) {
            words.free(address);
        }
        for address in (0x1000..0x9000).step_by(4) {
            let freed = address % 8 == 0;
            assert_eq!(words.word(address).load(Relaxed), if freed { 0 } else { address as u32 });
        }
    }

    #[test]
    fn a_full_table_counts_with_the_others() {
        let words = Words::new();
        assert!(words.is_others(words.word(64)), "it has no memory yet");
        words.open();
        let addresses = || (1..=ENTRIES + ENTRIES / 8).map(|n| n * 4);
        let mut without = Vec::new();
        for address in addresses() {
            let word = words.word(address);
            if words.is_others(word) {
                assert_eq!(word.load(Relaxed), layout::OVERFLOW);
                without.push(address);
            } else {
                assert_eq!(word.swap(address as u32, Relaxed), 0, "two locks have one word");
            }
        }
        assert!(without.len() >= ENTRIES / 8, "more words than there are");
        assert!(without.len() <= ENTRIES / 8 + ENTRIES / 5, "much of the table was not found");
        // To free one without a word changes nothing, and what is freed is room for others.
        for address in without.iter().copied() {
            words.free(address);
        }
        for address in addresses().filter(|address| !without.contains(address)).take(1000) {
            assert_eq!(words.word(address).load(Relaxed), address as u32);
        }
        for address in addresses() {
            words.free(address);
        }
        for address in without {
            assert!(!words.is_others(words.word(address)));
            assert_eq!(words.word(address).load(Relaxed), 0);
        }
    }

    #[test]
    fn threads_that_enter_one_lock_agree() {
        let words = Words::new();
        words.open();
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..1000 {
                        let address = (round + 1) * 4096;
                        barrier.wait();
                        words.word(address).fetch_add(1, Relaxed);
                        barrier.wait();
                        assert_eq!(words.word(address).load(Relaxed), 4);
                        barrier.wait();
                        words.free(address);
                    }
                });
            }
        });
    }
}
