//! What processes that are gone have left behind: adjustments to apply, sleepers to drop, values half set.
//!
//! Everything here may itself be interrupted for ever at any instruction; the next one continues. Adjustments
//! are applied one by one, each with its disappearance from the undo slot in one transaction.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::{
    ACTIVE, CHANGED, INDEXED, LARGE_HIGH, LEAVING, SENTINEL, STAGED, STAGED_ALL, STAGED_VALUE, STAGER,
    UNDO_HIGH, UNDO_INDEX, WAITERS_HIGH, semaphore, undo, waiter,
};
use super::lock::Locked;
use super::queue::{ORPHANED, SLEEPING, semaphore_at};
use super::{Host, MOST_VALUE};
use crate::platform::Atomic;

impl<H: Host> Locked<'_, H> {
    /// Reaps processes that have adjustments and are gone, so that later calls see the array without them.
    #[inline]
    pub(super) fn reap_dead(&self) {
        if self.load(ACTIVE) != 0 {
            self.reap_dead_slow();
        }
    }

    fn reap_dead_slow(&self) {
        let mut next = self.load(ACTIVE);
        while next != 0 {
            let slot = self.undo_slot(next - 1);
            let owner = self.load(slot + undo::OWNER);
            next = self.load(slot + undo::NEXT);
            if owner != self.me.slot + 1 && owner != 0 && H::gone(owner - 1) {
                self.reap(owner - 1);
                next = self.load(ACTIVE);
            }
        }
    }

    pub(super) fn reap(&self, slot: u32) {
        self.drop_sleepers(slot);
        self.apply_adjustments(slot);
        // One that it claimed and died before it was noted as its own.
        self.disown(slot, (0..self.load(UNDO_HIGH)).map(|index| self.undo_slot(index) + undo::OWNER));
    }

    /// Frees those of these owners' words that name that process.
    fn disown(&self, slot: u32, owners: impl Iterator<Item = usize>) {
        for at in owners.filter(|at| self.load(*at) == slot + 1) {
            self.at(at).store(0, Release);
        }
    }

    /// Nothing of that process sleeps or wakes any more.
    pub(super) fn drop_sleepers(&self, slot: u32) {
        // Requests of the dead must be out of that list before their records are freed.
        self.drain();
        for index in 0..self.load(WAITERS_HIGH) {
            let record = self.waiter(index);
            let owner = self.load(record + waiter::OWNER);
            if owner == slot + 1 {
                if self.load(SENTINEL) == index + 1 {
                    self.at(SENTINEL).store(0, Relaxed);
                }
                self.reap_sleeper(index);
            } else if owner != 0
                && self.load(record + waiter::WAKER) == slot + 1
                // The caller's own, unless its last program had completed it.
                && (slot != self.me.slot || !self.is_chained(index))
            {
                self.adopt(index);
            }
        }
        self.disown(slot, (0..self.load(LARGE_HIGH)).map(|index| self.large_list(index)));
    }

    /// Whether threads of that process sleep here, or may be about to.
    pub(super) fn has_sleepers(&self, slot: u32) -> bool {
        (0..self.load(WAITERS_HIGH)).any(|index| self.load(self.waiter(index) + waiter::OWNER) == slot + 1)
    }

    /// The thread of this record is no more. One that was completed is in the chain of its waker, who frees
    /// it.
    fn reap_sleeper(&self, index: u32) {
        self.dequeue(index);
        self.commit();
        let record = self.waiter(index);
        let waker = self.load(record + waiter::WAKER);
        if self.load(record + waiter::RESULT) != SLEEPING && waker != 0 && !H::owner_died(waker - 1) {
            let state = self.at(record + waiter::STATE);
            // Acquire: partner of the release in `Array::wake`, after which the waker leaves the record
            // alone.
            match state.compare_exchange(SLEEPING, ORPHANED, AcqRel, Acquire) {
                Ok(_) | Err(ORPHANED) => return,
                Err(_) => {}
            }
        }
        self.free(record);
    }

    /// A sleeper was completed by a process that died before waking it: this holder wakes it instead.
    pub(super) fn adopt(&self, index: u32) {
        let record = self.waiter(index);
        // Acquire: partner of the release in `Array::record`, so that the result is not one of the record's
        // last use.
        if self.at(record + waiter::STATE).load(Acquire) == SLEEPING
            && self.load(record + waiter::LISTS) == 0
            && self.load(record + waiter::RESULT) != SLEEPING
        {
            self.at(record + waiter::WAKER).store(self.me.slot + 1, Relaxed);
            self.will_wake(index);
        } else if self.load(record + waiter::STATE) == ORPHANED {
            self.at(record + waiter::OWNER).store(0, Release);
        }
    }

    /// A process ends: undoes its adjustments, gives its undo slot back, and lets sleepers proceed.
    pub(super) fn apply_adjustments(&self, slot: u32) {
        if self.undo_of(slot).is_some() {
            // No process may see half of them.
            self.at(LEAVING).store(slot + 1, Release);
            self.adjust_all();
            self.settle_everything();
        }
    }

    /// Applies the adjustments of the process that is [`LEAVING`]. However often it is begun, the result is
    /// the same.
    pub(super) fn adjust_all(&self) {
        let Some(slot) = self.load(LEAVING).checked_sub(1) else { return };
        if let Some(index) = self.undo_of(slot) {
            let record = self.undo_slot(index);
            let nums = if self.load(record + undo::COUNT) == 0 { 0 } else { self.semaphores() as usize };
            for num in 0..nums {
                let adjustment = self.load(record + undo::ADJUSTMENTS + num).cast_signed();
                if adjustment == 0 {
                    continue;
                }
                let semaphore = semaphore_at(num);
                let value = i64::from(self.load(semaphore + semaphore::VALUE)) + i64::from(adjustment);
                self.set(semaphore + semaphore::VALUE, value.clamp(0, i64::from(MOST_VALUE)) as u32);
                self.set(semaphore + semaphore::PROCESS, self.load(record + undo::PROCESS));
                self.clear_adjustment(index, num);
                self.commit();
            }
            if (slot as usize) < INDEXED {
                self.set(UNDO_INDEX + slot as usize, 0);
            }
            self.set(record + undo::OWNER, 0);
            self.commit();
        }
        self.at(LEAVING).store(0, Release);
    }

    /// What is in the staging area, or the staged value, is final: `what` as in [`STAGED`]. Applies it.
    pub(super) fn set_staged(&self, what: u32) {
        self.at(STAGER).store(self.me.id, Release);
        // This store commits.
        self.at(STAGED).store(what, Release);
        self.apply_staged();
        self.settle_everything();
    }

    /// Applies values that are set. However often it is begun, the result is the same.
    pub(super) fn apply_staged(&self) {
        let what = self.load(STAGED);
        let (first, last) = match what {
            0 => return,
            STAGED_ALL => (0, self.semaphores() as usize - 1),
            one => (one as usize - 1, one as usize - 1),
        };
        let process = self.load(STAGER);
        for num in first..=last {
            let value = match what {
                STAGED_ALL => self.load(self.layout.staging + num),
                _ => self.load(STAGED_VALUE),
            };
            self.at(semaphore_at(num) + semaphore::VALUE).store(value, Release);
            self.at(semaphore_at(num) + semaphore::PROCESS).store(process, Release);
        }
        let mut next = self.load(ACTIVE);
        while next != 0 {
            let index = next - 1;
            let slot = self.undo_slot(index);
            next = self.load(slot + undo::NEXT);
            for num in first..=last {
                if self.load(slot + undo::ADJUSTMENTS + num) != 0 {
                    self.clear_adjustment(index, num);
                    self.commit();
                }
            }
        }
        self.store_wide(CHANGED, H::seconds());
        self.at(STAGED).store(0, Release);
    }
}
