//! Where in the memory of a process under check there are locks: so that what gives memory back, of which most
//! has none, learns that by a few loads.
//!
//! There is a byte for each `GRANULE` of memory, modulo a window: how many locks in it have a slot that is
//! LIVE, as far as a byte can count. It is private memory: a forked child has its own copy.

use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sys;

/// Bytes of memory of which the locks are counted together, as a power of two.
pub(super) const GRANULE: u32 = 6;
/// As many words of eight counters, as a power of two: memory that is 256 MiB apart is counted together.
const WORDS: u32 = 19;

static COUNTS: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Gives it memory, of which the kernel provides what is used. Without any nothing is seen.
pub(super) fn open() {
    let len = size_of::<AtomicU64>() << WORDS;
    let Some(fresh) = sys::memory(len) else { return };
    // Release: whoever finds it finds a mapping.
    if COUNTS.compare_exchange(ptr::null_mut(), fresh.cast(), Release, Relaxed).is_err() {
        // SAFETY: made just now, and nobody else has seen it.
        unsafe { sys::unmap(fresh, len) };
    }
}

/// The word for the granules around this one, and the place of this one in it.
#[inline(always)]
fn counts(granule: usize) -> Option<(&'static AtomicU64, u32)> {
    let counts = COUNTS.load(Acquire);
    let (word, place) = ((granule / 8) & ((1 << WORDS) - 1), granule as u32 % 8 * 8);
    // SAFETY: as many words lie there; never unmapped.
    (!counts.is_null()).then(|| (unsafe { &*counts.add(word) }, place))
}

/// There is one more lock at this address.
pub(super) fn add(address: u64) {
    if let Some((word, place)) = counts(address as usize >> GRANULE) {
        // One that is full stays so.
        let _ = word
            .fetch_update(Relaxed, Relaxed, |all| (all >> place & 0xff != 0xff).then(|| all + (1 << place)));
    }
}

/// There is one less.
pub(super) fn remove(address: u64) {
    if let Some((word, place)) = counts(address as usize >> GRANULE) {
        let _ = word.fetch_update(Relaxed, Relaxed, |all| {
            let count = all >> place & 0xff;
            (count != 0 && count != 0xff).then(|| all - (1 << place))
        });
    }
}

/// Whether there may be a lock from `start` to `end`: if not, there is none that is known.
#[inline]
#[must_use]
pub fn may_have_locks(start: usize, end: usize) -> bool {
    let (first, last) = (start >> GRANULE, end.wrapping_sub(1) >> GRANULE);
    if last / 8 != first / 8 {
        return end > start && any_in(first, last);
    }
    counts(first).is_some_and(|(word, place)| {
        let bits = (last - first + 1) as u32 * 8;
        word.load(Relaxed) << (64 - bits - place) >> (64 - bits) != 0
    })
}

/// As above, of granules that lie in more than one word.
#[cold]
#[inline(never)]
fn any_in(first: usize, last: usize) -> bool {
    let (from, to) = (first / 8, last / 8);
    // Beyond the window they come round again.
    let whole = to.saturating_sub(from + 1).min(1 << WORDS);
    let word = |index: usize| counts(index * 8).map_or(0, |(word, _)| word.load(Relaxed));
    word(from) >> (first as u32 % 8 * 8) != 0
        || word(to) << (56 - last as u32 % 8 * 8) != 0
        || (from + 1..from + 1 + whole).any(|index| word(index) != 0)
}

/// How many words of counters a walk over the memory from `start` to `end` loads at least.
pub(super) const fn words(start: usize, end: usize) -> usize {
    end.saturating_sub(start) >> (GRANULE + 3)
}

/// The granules from `start` to `end` that may have locks, each by its first address. `steps` counts the
/// loads of counters.
pub(super) fn granules(start: usize, end: usize, steps: &mut usize) -> impl Iterator<Item = usize> {
    let mut next = start >> GRANULE;
    let last = end.wrapping_sub(1) >> GRANULE;
    core::iter::from_fn(move || {
        while next <= last && start < end {
            let (word, place) = counts(next)?;
            *steps += 1;
            let rest = word.load(Relaxed) >> place;
            // To the next counter that is not zero, or to the next word.
            let skipped = if rest == 0 { 8 - place / 8 } else { rest.trailing_zeros() / 8 };
            let found = next + skipped as usize;
            next = found + usize::from(rest != 0);
            if rest != 0 && found <= last {
                return Some(found << GRANULE);
            }
        }
        None
    })
}

/// Locks that were somewhere.
#[derive(Debug)]
pub struct Locks {
    pub(super) words: [u32; 32],
    pub(super) len: usize,
}

#[cfg(test)]
mod tests {
    use super::{GRANULE, WORDS, add, granules, may_have_locks, open, remove};

    #[test]
    fn memory_with_a_lock_is_told_from_memory_without_one() {
        open();
        // Of no other test's: far above what the kernel gives out.
        let base = 0x7800_0000_0000usize;
        assert!(!may_have_locks(base, base + (1 << 20)));
        for (offset, len) in [(0, 1), (64, 64), (100, 4), (500, 40), (4096, 8), (65_536, 48), (131_000, 4)] {
            add((base + offset) as u64);
            let within = |start: usize, end: usize| may_have_locks(base + start, base + end);
            assert!(within(offset, offset + len), "{offset}");
            assert!(within(0, 1 << 20), "{offset}");
            assert!(within(offset & !63, offset + 1), "{offset}");
            assert!(!within(0, offset & !63) && !within((offset | 63) + 1, 1 << 20), "{offset}");
            let found = |start: usize, end: usize| -> Vec<usize> {
                granules(base + start, base + end, &mut 0).map(|granule| granule - base).collect()
            };
            assert_eq!(found(0, 1 << 20), [offset & !63]);
            assert_eq!(found(offset, offset + 1), [offset & !63]);
            remove((base + offset) as u64);
            assert!(!within(0, 1 << 20));
        }
        assert!(!may_have_locks(base, base) && granules(base, base, &mut 0).next().is_none());
    }

    #[test]
    fn what_lies_a_window_apart_is_counted_together_and_found() {
        open();
        let (base, window) = (0x7900_0123_0000usize, 1usize << (GRANULE + 3 + WORDS));
        add(base as u64);
        assert!(may_have_locks(base + window, base + window + 8));
        assert!(may_have_locks(base - (1 << 30), base + (1 << 30)));
        remove(base as u64);
        assert!(!may_have_locks(base, base + 8));
    }

    #[test]
    fn a_counter_that_is_full_stays_so() {
        open();
        let base = 0x7a00_0456_0000u64;
        (0..300).for_each(|_| add(base));
        (0..300).for_each(|_| remove(base));
        assert!(may_have_locks(base as usize, base as usize + 1));
        assert!(!may_have_locks(base as usize + 64, base as usize + 128));
    }
}
