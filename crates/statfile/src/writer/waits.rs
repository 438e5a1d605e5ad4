//! Who waits for a lock, and whom that is charged to: WAITING in [`layout`].
//!
//! The slot's mark is what holders look at, in passing. It is set by whoever begins to wait, and taken back by
//! a thread that has settled all and finds nobody waiting. That thread looks again after it has: so either it
//! sees one that has come meanwhile, or that one, which makes itself counted before it looks at the mark, sees
//! that there is none. Both look after a read-modify-write of their own, in one order of all.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::map::Map;
use super::{LockRef, clock};
use crate::layout::{
    self, CHUNK_ENTRIES, Entry, INDEX_MASK, LockSlot, MARKED, Record, WAITED, waited_since, waited_so_far,
    waiting_count, waiting_since,
};

/// Whether the lock's slot has the mark. The record's entry for the lock has been found by its word.
#[inline(always)]
pub(super) fn is_marked(record: &Record, lock: LockRef<'_>) -> bool {
    let word = match lock.writers {
        None => lock.word.load(Relaxed),
        Some(writers) => {
            let word = writers.load(Relaxed);
            // Not one that has been found: it may be anything. A directory is no longer than the table.
            if (word & INDEX_MASK) / CHUNK_ENTRIES >= record.directory_len.load(Relaxed) {
                return false;
            }
            word
        }
    };
    let offset = layout::LOCKS_OFFSET as usize + (word & INDEX_MASK) as usize * size_of::<LockSlot>();
    // SAFETY: a slot of the table, of the record's own mapping.
    let slot = unsafe { &*(record.base.load(Relaxed) as *const u8).add(offset).cast::<LockSlot>() };
    slot.waited.load(Relaxed) & MARKED != 0
}

/// One more waits from now on.
pub(super) fn arrive(slot: &LockSlot, now: u64) {
    let before = slot.waiting.fetch_add(waiting_since(now), SeqCst);
    if waiting_count(before) == 0 {
        slot.first_wait.store(now, Relaxed);
    }
    if slot.waited.load(SeqCst) & MARKED == 0 {
        slot.waited.fetch_or(WAITED | MARKED, SeqCst);
    }
}

/// One that waited no longer does.
#[inline]
pub(super) fn leave(slot: &LockSlot, now: u64) {
    slot.waiting.fetch_sub(waiting_since(now), SeqCst);
}

/// What has been waited, by all together, since this was last asked. Takes back the mark if nobody waits.
pub(super) fn settle(slot: &LockSlot, now: u64) -> u64 {
    let waiting = slot.waiting.load(Acquire);
    let all = waited_so_far(waiting, now);
    // Several readers may be at it: one of them has it all.
    let settled =
        slot.charged.fetch_update(Relaxed, Relaxed, |before| (waited_since(before, all) > 0).then_some(all));
    if waiting_count(waiting) == 0 {
        slot.waited.fetch_and(!MARKED, SeqCst);
        if waiting_count(slot.waiting.load(SeqCst)) != 0 {
            slot.waited.fetch_or(MARKED, SeqCst);
        }
    }
    settled.map_or(0, |before| waited_since(before, all))
}

/// The caller has it now: what was waited since the last holder let go is nobody's.
#[inline]
pub(super) fn handed_over(slot: &LockSlot, now: u64) {
    let amount = settle(slot, now);
    if amount != 0 {
        slot.handover.fetch_add(amount, Relaxed);
    }
}

/// As [`super::hold_begins`], while others wait: the hold is timed whatever chance says. Of several that may
/// hold it together, none knows that nobody had it.
#[cold]
#[inline(never)]
pub(super) fn hold_begins(record: &Record, entry: &Entry, group: &AtomicU32, alone: bool) {
    let now = clock::ticks(record.clock.load(Relaxed));
    // SAFETY: the record's own mapping.
    let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
    if alone && let Some(slot) = map.lock(group.load(Relaxed) & INDEX_MASK) {
        handed_over(slot, now);
    }
    super::hold_begins_after_wait(record, entry, now);
}
