//! The wait lock: the small lock of a sleepers' list. Two bits of a word, in which the epoch of its last use
//! is noted too.
//!
//! [`LOCKED`] is the lock; [`CONTENDED`] says that a thread may sleep for it, on the same word. The critical
//! sections are a few dozen instructions, so a waiter spins first; it sleeps because the holder may have been
//! preempted, and a spinner would only keep the CPU from it.
//!
//! The store that clears [`LOCKED`] clears [`CONTENDED`] with it. If that was set, its thread wakes one
//! sleeper *after* that store, by address. A thread that slept sets [`CONTENDED`] again as it takes the lock,
//! since others may sleep behind it.
//!
//! # Forks
//!
//! In a forked child the lock may be held by, and the words that it guards may name, threads that do not
//! exist there. The [`EPOCH`] bits hold the [`Platform::epoch`] in which they were last used, and a thread
//! that is about to use them calls [`renew`] first, which clears them once if that was another.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::platform::{Atomic, Platform, Spin, Until};

/// Held.
const LOCKED: u32 = 1 << 31;
/// A thread may sleep for it.
const CONTENDED: u32 = 1 << 30;
/// Both bits.
const BITS: u32 = LOCKED | CONTENDED;

/// The guarded words are being cleared for this epoch.
const CLEARING: u32 = 1 << 27;
/// The epoch. Bits 28 and 29 are those of [`super::bias`].
const EPOCH: u32 = CLEARING - 1;

/// Makes the lock and the words that it guards this process's own: if they are of another epoch, one thread
/// releases the lock and calls `clear`, and the others wait for that. Of the other bits, those in `keep`
/// stay.
#[inline]
pub(crate) fn renew<P: Platform>(word: &P::U32, keep: u32, clear: impl Fn()) {
    let epoch = P::epoch() & EPOCH;
    // Acquire: partner of the release in `renew_slow`; a thread that sees the epoch sees the words cleared.
    if word.load(Acquire) & (EPOCH | CLEARING) != epoch {
        renew_slow::<P>(word, epoch, keep, clear);
    }
}

#[cold]
fn renew_slow<P: Platform>(word: &P::U32, epoch: u32, keep: u32, clear: impl Fn()) {
    super::stall_until::<P, ()>(|| {
        let seen = word.load(Acquire);
        if seen & (EPOCH | CLEARING) == epoch {
            return Some(());
        }
        // Of another epoch, perhaps left behind by a fork in the middle of clearing: ours to clear. No thread
        // has the lock in this epoch, since all come through here first.
        let claim = epoch | CLEARING | seen & keep;
        if seen & EPOCH == epoch || word.compare_exchange(seen, claim, Acquire, Relaxed).is_err() {
            return None;
        }
        clear();
        word.fetch_and(!CLEARING, Release);
        Some(())
    });
}

/// Whether no thread has it, waits for it, or clears what it guards. Acquire: what was done under it is
/// there.
pub(crate) fn is_idle<P: Platform>(word: &P::U32) -> bool {
    word.load(Acquire) & (BITS | CLEARING) == 0
}

/// The longest interval between two looks at the lock: the logarithm of its turns of a spin loop. About as
/// long as a few dozen threads hold the lock one after the other; or as many turns as there are CPUs, since
/// on a large machine the looks themselves queue up at the line.
fn longest_interval<P: Platform>() -> u32 {
    P::cpus().max(64).ilog2()
}

/// Takes the lock, whatever the other bits of `word` are. The word lies beside others that the owner of the
/// mutex needs, so each look in vain doubles the interval to the next.
pub(crate) fn lock<P: Platform>(word: &P::U32) {
    let mut slept = 0;
    let mut interval = 0;
    let mut budget = P::Spin::fresh();
    loop {
        let seen = word.load(Relaxed);
        if seen & LOCKED == 0 && word.compare_exchange(seen, seen | LOCKED | slept, Acquire, Relaxed).is_ok()
        {
            return;
        }
        let spins = budget.pass(1 << interval);
        interval = (interval + 1).min(longest_interval::<P>());
        if spins || seen & LOCKED == 0 {
            continue;
        }
        // Relaxed: the bit carries no data, and `wait` compares the whole word once more.
        if seen & CONTENDED == 0 && word.compare_exchange(seen, seen | CONTENDED, Relaxed, Relaxed).is_err() {
            continue;
        }
        P::wait(word, seen | CONTENDED, Until::Woken);
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

/// Does something under the lock.
pub(crate) fn under<P: Platform, T>(word: &P::U32, act: impl FnOnce() -> T) -> T {
    lock::<P>(word);
    let result = act();
    unlock::<P>(word);
    result
}
