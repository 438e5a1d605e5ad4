//! Who waits for a lock, and whom that is charged to: WAITING in [`layout`].
//!
//! The mark in the lock's word is what holders look at, in passing. It is set by whoever begins to wait, and
//! taken back by a thread that has settled all and finds nobody waiting. That thread looks again after it
//! has: so either it sees one that has come meanwhile, or that one, which makes itself counted before it
//! looks at the mark, sees that there is none. Both look after a read-modify-write of their own, in one order
//! of all. Whoever sets it or takes it back waits for the lock or holds it, so the lock is there.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::map::Map;
use super::{LockRef, clock};
use crate::layout::{
    Entry, INDEX_MASK, LockSlot, MARK, Record, waited_since, waited_so_far, waiting_count, waiting_since,
};

/// Where it is written who waits for a lock: its word, with the mark, and its slot.
#[derive(Clone, Copy)]
pub(super) struct Account<'a> {
    word: &'a AtomicU32,
    slot: &'static LockSlot,
    /// Whether one thread at a time has it: then nobody else settles.
    alone: bool,
}

impl<'a> Account<'a> {
    /// Of the lock, or of the writers of these readers, if it has one that is known.
    pub(super) fn of(map: Map, lock: LockRef<'a>) -> Option<Account<'a>> {
        let group = lock.group();
        let slot = map.lock(group.word.load(Relaxed) & INDEX_MASK)?;
        // The word of the writers has not been looked at by these readers before: it may be anything.
        let account = Account { word: group.word, slot, alone: lock.writers.is_none() };
        (slot.address.load(Relaxed) == group.address as u64).then_some(account)
    }

    /// Where it is written, without the lock.
    pub(super) fn slot(&self) -> &'static LockSlot {
        self.slot
    }

    /// One more waits from now on.
    pub(super) fn arrive(&self, now: u64) {
        let before = self.slot.waiting.fetch_add(waiting_since(now), SeqCst);
        if waiting_count(before) == 0 {
            self.slot.first_wait.store(now, Relaxed);
        }
        if self.word.load(SeqCst) & MARK == 0 {
            self.word.fetch_or(MARK, SeqCst);
        }
    }

    /// What has been waited, by all together, since this was last asked. Takes back the mark if nobody waits.
    pub(super) fn settle(&self, now: u64) -> u64 {
        let waiting = self.slot.waiting.load(Acquire);
        let all = waited_so_far(waiting, now);
        let charged = &self.slot.charged;
        let before = if self.alone {
            // The lock orders what its holders store.
            let before = charged.load(Relaxed);
            if waited_since(before, all) > 0 {
                charged.store(all, Relaxed);
            }
            before
        } else {
            // Several readers may be at it: one of them has it all.
            let passed = |before| (waited_since(before, all) > 0).then_some(all);
            let (Ok(before) | Err(before)) = charged.fetch_update(Relaxed, Relaxed, passed);
            before
        };
        if waiting_count(waiting) == 0 && self.word.load(Relaxed) & MARK != 0 {
            self.word.fetch_and(!MARK, SeqCst);
            if waiting_count(self.slot.waiting.load(SeqCst)) != 0 {
                self.word.fetch_or(MARK, SeqCst);
            }
        }
        waited_since(before, all)
    }

    /// The caller has it now: what was waited since the last holder let go is nobody's.
    #[inline]
    pub(super) fn handed_over(&self, now: u64) {
        self.nobodys(self.settle(now));
    }

    /// This was waited while nobody had it that could be charged.
    pub(super) fn nobodys(&self, amount: u64) {
        let handover = &self.slot.handover;
        match amount {
            0 => {}
            _ if self.alone => super::add(handover, amount),
            _ => _ = handover.fetch_add(amount, Relaxed),
        }
    }
}

/// One that waited no longer does.
#[inline]
pub(super) fn leave(slot: &LockSlot, now: u64) {
    slot.waiting.fetch_sub(waiting_since(now), SeqCst);
}

/// Whether the writers of these readers have the mark. That of another lock is in the word that is compared.
#[inline(always)]
pub(super) fn writers_marked(lock: LockRef<'_>) -> bool {
    lock.writers.is_some_and(|writers| writers.load(Relaxed) & MARK != 0)
}

/// Whether whoever waits for this lock has set the mark.
pub(super) fn is_marked(lock: LockRef<'_>) -> bool {
    lock.group().word.load(Relaxed) & MARK != 0
}

/// As [`super::hold_begins`], while others may wait: then the hold is timed whatever chance says. Of several
/// that may hold it together, none knows that nobody had it.
pub(super) fn hold_begins(record: &Record, entry: &Entry, lock: LockRef<'_>) {
    // SAFETY: the record's own mapping.
    let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
    // The word first: a lock that nobody waits for costs no look at its slot.
    let Some(account) = is_marked(lock).then(|| Account::of(map, lock)).flatten() else {
        super::hold_begins(record, entry);
        return;
    };
    let now = clock::ticks(record.clock.load(Relaxed));
    if lock.writers.is_none() {
        account.handed_over(now);
        super::threads::ended_let_go(map, lock, None);
    }
    super::hold_begins_after_wait(record, entry, now);
}
