//! Whether an array is whole, for tests.

use core::sync::atomic::Ordering::Relaxed;

use super::layout::{
    ACTIVE, INDEXED, JOURNAL_LENGTH, LARGE_HIGH, LEAVING, MULTIPLE, REMOVED, REQUESTS, SLEEPERS, STAGED,
    UNDO_HIGH, UNDO_INDEX, WAITERS_HIGH, semaphore, undo, waiter,
};
use super::queue::{
    ALL, CONSTANT, CONSTANTS, FOR_ZERO, List, MULTIPLE as SEVERAL, Operations, TAKER, for_zero, semaphore_at,
    takers,
};
use super::{Array, Host, MOST_VALUE, Op};
use crate::platform::Atomic;

/// What of an array's memory is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Threads that sleep.
    pub sleepers: u32,
    /// Sleepers' records with an owner.
    pub records: u32,
    /// Large lists of operations with an owner.
    pub large_lists: u32,
    /// Undo slots with an owner.
    pub undo_slots: u32,
    /// Adjustments that are not zero.
    pub adjustments: u32,
}

impl Audit {
    /// Where the journal's length is, for tests that break it.
    pub const JOURNAL_LENGTH: usize = JOURNAL_LENGTH;
    /// Where it is noted that values are being set.
    pub const STAGED: usize = STAGED;
    /// Where it is noted that a process's adjustments are being applied.
    pub const LEAVING: usize = LEAVING;

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl<H: Host> Array<'_, H> {
    /// Checks the invariants of an array that only sleepers use at the moment, and whose dead users were all
    /// reaped. Slow: for tests.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self) -> Result<Audit, &'static str> {
        let ensure = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
        ensure(self.load(self.layout.lock) == 0, "the lock is held")?;
        ensure(self.load(JOURNAL_LENGTH) == 0, "the journal is not empty")?;
        ensure(self.load(STAGED) == 0, "values are staged")?;
        ensure(self.load(REQUESTS) == 0, "a request was not served")?;

        let mut audit = Audit::default();
        let semaphores = self.layout.semaphores;
        let mut linked = 0;
        for num in 0..semaphores {
            ensure(self.load(semaphore_at(num) + semaphore::VALUE) <= MOST_VALUE, "a value is out of range")?;
            for (list, which) in [(takers(num), TAKER), (for_zero(num), FOR_ZERO)] {
                let fits = |lists, first: Op| lists == which && usize::from(first.num) == num;
                linked += self.audit_list(&list, fits)?;
            }
        }
        linked += self.audit_list(&CONSTANTS, |lists, _| lists == CONSTANT)?;
        let all = self.audit_list(&ALL, |lists, _| lists == TAKER || lists == SEVERAL)?;

        let (mut takers, mut several) = (0, 0);
        for index in 0..self.load(WAITERS_HIGH) {
            let record = self.waiter(index);
            if self.load(record + waiter::OWNER) == 0 {
                ensure(self.load(record + waiter::LISTS) == 0, "a record without an owner is in a list")?;
                continue;
            }
            audit.records += 1;
            match self.load(record + waiter::LISTS) {
                0 => continue,
                TAKER => takers += 1,
                SEVERAL => several += 1,
                _ => {}
            }
            audit.sleepers += 1;
            ensure(!self.could_proceed(record), "a sleeper could proceed")?;
        }
        ensure(all == takers + several, "the list of all has not all")?;
        ensure(linked + several == audit.sleepers, "a sleeper is not in the list that it says")?;
        ensure(self.load(MULTIPLE) == several, "those with several operations are miscounted")?;
        ensure(self.load(SLEEPERS) == audit.sleepers, "the sleepers are miscounted")?;
        ensure(self.load(REMOVED) == 0 || audit.sleepers == 0, "somebody sleeps at a removed array")?;
        audit.large_lists =
            (0..self.load(LARGE_HIGH)).filter(|index| self.load(self.large_list(*index)) != 0).count() as u32;

        let mut active = 0;
        for index in 0..self.load(UNDO_HIGH) {
            let slot = self.undo_slot(index);
            let owner = self.load(slot + undo::OWNER);
            let count =
                (0..semaphores).filter(|num| self.load(slot + undo::ADJUSTMENTS + num) != 0).count() as u32;
            ensure(self.load(slot + undo::COUNT) == count, "adjustments are miscounted")?;
            ensure(owner != 0 || count == 0, "adjustments without an owner")?;
            active += u32::from(count != 0);
            audit.undo_slots += u32::from(owner != 0);
            audit.adjustments += count;
        }
        let (mut next, mut previous, mut seen) = (self.load(ACTIVE), 0, 0);
        while next != 0 {
            let slot = self.undo_slot(next - 1);
            ensure(self.load(slot + undo::COUNT) != 0, "nothing is active in the list of adjustments")?;
            ensure(self.load(slot + undo::PREVIOUS) == previous, "the list of adjustments is torn")?;
            seen += 1;
            ensure(seen <= active, "the list of adjustments goes round")?;
            (previous, next) = (next, self.load(slot + undo::NEXT));
        }
        ensure(seen == active, "adjustments are not in their list")?;
        for slot in 0..INDEXED as u32 {
            if let Some(index) = self.load(UNDO_INDEX + slot as usize).checked_sub(1) {
                ensure(
                    self.load(self.undo_slot(index) + undo::OWNER) == slot + 1,
                    "an undo slot is another's",
                )?;
            }
        }
        Ok(audit)
    }

    /// How many are in a list; each `fits`.
    fn audit_list(&self, list: &List, fits: impl Fn(u32, Op) -> bool) -> Result<u32, &'static str> {
        let (mut at, mut last, mut count) = (self.load(list.head), 0, 0);
        while at != 0 {
            let record = self.waiter(at - 1);
            if self.load(record + list.previous) != last {
                return Err("a list is torn");
            }
            if self.load(record + waiter::OWNER) == 0 {
                return Err("a record in a list has no owner");
            }
            if !fits(self.load(record + waiter::LISTS), self.operations(record).get(0)) {
                return Err("a sleeper is in another's list");
            }
            count += 1;
            if count > self.load(WAITERS_HIGH) {
                return Err("a list goes round");
            }
            (last, at) = (at, self.load(record + list.next));
        }
        if self.load(list.tail) == last { Ok(count) } else { Err("a list's tail is not its last") }
    }

    /// Whether a sleeper's operations could be applied, adjustments aside, or never can.
    fn could_proceed(&self, record: usize) -> bool {
        let operations = self.operations(record);
        operations.all().enumerate().all(|(done, operation)| {
            let before: i64 = operations
                .all()
                .take(done)
                .filter(|earlier| earlier.num == operation.num)
                .map(|earlier| i64::from(earlier.change))
                .sum();
            let value = self.at(semaphore_at(operation.num.into())).load(Relaxed);
            let value = i64::from(value) + before;
            if operation.change == 0 { value == 0 } else { value + i64::from(operation.change) >= 0 }
        })
    }
}
