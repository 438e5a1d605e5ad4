//! The small lock that guards a sleepers' list: two bits of a word that others use too.
//!
//! [`LOCKED`] is the lock; [`CONTENDED`] says that somebody may sleep for it, on the same word. The critical
//! sections are a few dozen instructions, so a waiter spins first; it sleeps because the holder may have
//! been preempted, and a spinner would only keep the CPU from it.
//!
//! Whoever clears [`LOCKED`] clears [`CONTENDED`] with it and, if it was set, wakes one thread *after* that
//! store, by address. A thread that slept sets [`CONTENDED`] again as it takes the lock, since others may
//! sleep behind it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::platform::{Atomic, Platform, Spin};

/// Held.
pub(crate) const LOCKED: u32 = 1 << 31;
/// Somebody may sleep for it.
pub(crate) const CONTENDED: u32 = 1 << 30;
/// Both bits.
pub(crate) const BITS: u32 = LOCKED | CONTENDED;

/// Takes the lock, whatever the other bits of `word` are.
pub(crate) fn lock<P: Platform>(word: &P::U32) {
    let mut slept = 0;
    let mut budget = P::spin();
    loop {
        let seen = word.load(Relaxed);
        if seen & LOCKED == 0 {
            if word.compare_exchange(seen, seen | LOCKED | slept, Acquire, Relaxed).is_ok() {
                return;
            }
            continue;
        }
        if budget.spin() {
            continue;
        }
        // Relaxed: the bit carries no data, and `wait` compares the whole word once more.
        if seen & CONTENDED == 0 && word.compare_exchange(seen, seen | CONTENDED, Relaxed, Relaxed).is_err() {
            continue;
        }
        P::wait(word, seen | CONTENDED, None);
        slept = CONTENDED;
    }
}

/// Releases the lock, leaving the other bits alone.
pub(crate) fn unlock<P: Platform>(word: &P::U32) {
    if word.fetch_and(!BITS, Release) & CONTENDED != 0 {
        // The word may be gone by now: only its address is used.
        P::wake(word, 1);
    }
}
