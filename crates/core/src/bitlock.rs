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
    let seen = word.fetch_and(!BITS, Release);
    wake::<P>(word, seen);
}

/// Releases the lock and, in the same store, sets the other bits to what `next` makes of them. Returns them
/// as they were.
pub(crate) fn unlock_with<P: Platform>(word: &P::U32, mut next: impl FnMut(u32) -> u32) -> u32 {
    let mut seen = word.load(Relaxed);
    loop {
        // Release: what was done under the lock, and in the critical section of the lock that the other
        // bits are, happens before whoever acquires either. Acquire is not needed: the holder of the lock
        // learns nothing from the other bits but their value.
        match word.compare_exchange(seen, next(seen & !BITS), Release, Relaxed) {
            Ok(_) => {
                wake::<P>(word, seen);
                return seen & !BITS;
            }
            Err(now) => seen = now,
        }
    }
}

/// After the release: `word` may be gone, so only its address is used.
#[inline]
fn wake<P: Platform>(word: &P::U32, seen: u32) {
    if seen & CONTENDED != 0 {
        P::wake(word, 1);
    }
}
