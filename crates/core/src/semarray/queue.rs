//! The lists of sleepers, and which of them may proceed after a change.
//!
//! | a sleeper with | is in | [`LISTS`](waiter::LISTS) |
//! | --- | --- | --- |
//! | one operation that takes | its semaphore's list of takers, and the list of all | [`TAKER`] |
//! | one operation that waits for zero | its semaphore's list for zero | [`FOR_ZERO`] |
//! | several, one of which changes something | the list of all | [`MULTIPLE`] |
//! | several that all wait for zero | the array's list of constants | [`CONSTANT`] |
//!
//! All lists are in the order of coming.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::{
    ACTIVE, ALL_HEAD, ALL_TAIL, CONST_HEAD, CONST_TAIL, FIRST_SEMAPHORE, INDEXED, LARGE_HIGH, LARGE_LISTS,
    LARGE_SIZE, MIXED, MULTIPLE as MULTIPLE_COUNT, NEXT_WAITER, OPERATED, SLEEPERS, UNDO_HIGH, UNDO_INDEX,
    UNDO_USED, WAITERS, WAITERS_HIGH, semaphore, undo, waiter,
};
use super::lock::Locked;
use super::{Array, Error, Host, Layout, MOST_VALUE, Op, Scheme};
use crate::platform::Atomic;

/// The greatest adjustment; the least is one less.
const MOST_ADJUSTMENT: i32 = MOST_VALUE as i32;

/// How many records are looked at before a new one is taken.
const FEW_LOOKS: usize = 8;

/// In the list of its semaphore's takers, and that of all.
pub(super) const TAKER: u32 = 1;
/// In the list of those that wait for its semaphore to be zero.
pub(super) const FOR_ZERO: u32 = 2;
pub(super) const MULTIPLE: u32 = 3;
pub(super) const CONSTANT: u32 = 4;

/// [`waiter::STATE`]: sleeps, or is about to; as a result: none yet.
pub(super) const SLEEPING: u32 = 0;
/// [`waiter::STATE`] and `RESULT`: its operations were applied.
pub(super) const APPLIED: u32 = 1;
pub(super) const REMOVED: u32 = 2;
/// An operation would have left its range.
pub(super) const OUT_OF_RANGE: u32 = 3;
/// It would have to sleep and must not.
pub(super) const REFUSED: u32 = 4;
/// There is no room for it to sleep, or for its adjustments (combining).
pub(super) const NO_ROOM: u32 = 5;
/// [`waiter::STATE`]: its process is gone, and its waker shall free it.
pub(super) const ORPHANED: u32 = 7;
/// The array had been removed (combining).
pub(super) const WAS_REMOVED: u32 = 6;

pub(super) trait Operations {
    fn count(&self) -> usize;
    fn get(&self, index: usize) -> Op;
    fn all(&self) -> impl Iterator<Item = Op> {
        (0..self.count()).map(move |index| self.get(index))
    }
    fn change(&self) -> bool {
        self.all().any(|operation| operation.change != 0)
    }
    /// Whether they may proceed, or fail, because a value falls: one of them waits for zero, or must not wait
    /// at all.
    fn heed_falls(&self) -> bool {
        self.all().any(|operation| operation.change == 0 || operation.flags & Op::NOWAIT != 0)
    }
}

pub(super) struct Recorded<'a, H: Host> {
    array: &'a Array<'a, H>,
    first: usize,
    count: usize,
}

impl<H: Host> Operations for Recorded<'_, H> {
    fn count(&self) -> usize {
        self.count
    }
    fn get(&self, index: usize) -> Op {
        let at = self.first + 2 * index;
        let [low, high] = [0, 1].map(|word| self.array.at(at + word).load(Relaxed));
        // An impossible number means that a process overwrote it.
        let most = self.array.layout.semaphores - 1;
        Op {
            num: (low as u16).min(most as u16),
            change: high as u16 as i16,
            flags: (low >> 16) as u16 as i16,
        }
    }
}

/// What became of an attempt to apply operations. Unless it is [`Tried::Applied`], nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// Applied, but not committed.
    Applied,
    /// This operation stands in the way.
    Blocked(usize),
    Range,
}

/// Fields of one kind of list: head and tail in the array, next and previous in the record.
pub(super) struct List {
    pub(super) head: usize,
    pub(super) tail: usize,
    pub(super) next: usize,
    pub(super) previous: usize,
}

pub(super) const ALL: List =
    List { head: ALL_HEAD, tail: ALL_TAIL, next: waiter::ALL_NEXT, previous: waiter::ALL_PREVIOUS };
/// That of several operations that all wait for zero.
pub(super) const CONSTANTS: List = List::own(CONST_HEAD, CONST_TAIL);

impl List {
    /// The one whose links are in [`waiter::NEXT`].
    const fn own(head: usize, tail: usize) -> Self {
        Self { head, tail, next: waiter::NEXT, previous: waiter::PREVIOUS }
    }
}

pub(super) const fn takers(num: usize) -> List {
    List::own(semaphore_at(num) + semaphore::TAKE_HEAD, semaphore_at(num) + semaphore::TAKE_TAIL)
}

pub(super) const fn for_zero(num: usize) -> List {
    List::own(semaphore_at(num) + semaphore::ZERO_HEAD, semaphore_at(num) + semaphore::ZERO_TAIL)
}

pub(super) const fn semaphore_at(num: usize) -> usize {
    FIRST_SEMAPHORE + num * semaphore::SIZE
}

/// Records of one kind; writing its owner claims one.
struct Pool {
    /// Where it is noted how many were ever used.
    high: usize,
    first: usize,
    size: usize,
    capacity: usize,
    owner: usize,
    /// How many are made ready at a time, so that each time is about a page.
    chunk: usize,
}

impl Pool {
    const fn new(high: usize, first: usize, size: usize, capacity: usize, owner: usize) -> Self {
        Self { high, first, size, capacity, owner, chunk: 1 }
    }
}

impl<H: Host> Array<'_, H> {
    #[inline(always)]
    pub(super) fn waiter(&self, index: u32) -> usize {
        self.layout.waiters + (index as usize % WAITERS) * waiter::SIZE
    }

    pub(super) fn undo_slot(&self, index: u32) -> usize {
        self.layout.undo_slots + (index as usize % self.layout.undo_count) * self.layout.undo_size
    }

    pub(super) fn operations(&self, record: usize) -> Recorded<'_, H> {
        let count = self.load(record + waiter::COUNT) as usize;
        let (first, most) = match self.load(record + waiter::LARGE) {
            0 => (record + waiter::OPERATIONS, waiter::INLINE),
            large => (self.large_list(large - 1) + 1, super::MOST_OPERATIONS),
        };
        Recorded { array: self, first, count: count.min(most) }
    }

    /// The first word of a large list: its owner.
    pub(super) fn large_list(&self, index: u32) -> usize {
        self.layout.large + (index as usize % LARGE_LISTS) * LARGE_SIZE
    }

    /// A thread gives its record back. Any time after it was woken, without the lock.
    pub(super) fn free(&self, record: usize) {
        let large = self.load(record + waiter::LARGE);
        if large != 0 {
            // Only its own: one that was killed before it wrote down its list has that of the record's last
            // owner, which may be another's by now.
            let owner = self.load(record + waiter::OWNER);
            let _ = self.at(self.large_list(large - 1)).compare_exchange(owner, 0, Release, Relaxed);
        }
        // Release: the next one to claim it, who has the lock, sees the thread's last use of it.
        self.at(record + waiter::OWNER).store(0, Release);
    }

    /// Claims a record of a pool for a process, by compare-and-swap: also without the lock. Looks at that
    /// many from `start` on, and takes a new one if those are in use.
    fn claim(&self, pool: &Pool, owner: u32, start: u32, looks: usize) -> Option<u32> {
        let claimed = |index: usize| {
            let word = self.at(pool.first + index * pool.size + pool.owner);
            // Acquire: partner of the release in `free`.
            word.load(Relaxed) == 0 && word.compare_exchange(0, owner, Acquire, Relaxed).is_ok()
        };
        let mut high = (self.load(pool.high) as usize).min(pool.capacity);
        let start = start as usize % high.max(1);
        for look in 0..looks.min(high) {
            let index = (start + look) % high;
            if claimed(index) {
                return Some(index as u32);
            }
        }
        while high < pool.capacity {
            if high.is_multiple_of(pool.chunk) {
                let count = pool.chunk.min(pool.capacity - high);
                if !self.provide(pool.first + high * pool.size, count * pool.size) {
                    break;
                }
            }
            match self.at(pool.high).compare_exchange(high as u32, high as u32 + 1, AcqRel, Relaxed) {
                Ok(_) if claimed(high) => return Some(high as u32),
                Ok(_) => high += 1,
                Err(now) => high = now as usize,
            }
        }
        let high = high.min(pool.capacity);
        (0..high).find(|index| claimed(*index)).map(|index| index as u32)
    }

    /// Writes a call's operations into a record of its own, which is in no list yet.
    ///
    /// If the process is killed on the way, the record is found by its owner.
    pub(super) fn record(
        &self,
        operations: &(impl Operations + ?Sized),
        slot: u32,
        process: u32,
    ) -> Result<u32, Error> {
        let owner = slot + 1;
        // In order of arrival: sleepers that came together are often woken together, and a group is woken by
        // one call. So that this order lasts there are more records than sleepers; but not more than twice as
        // many.
        let mut pool = Pool::new(WAITERS_HIGH, self.layout.waiters, waiter::SIZE, WAITERS, waiter::OWNER);
        pool.chunk = waiter::GROUP as usize;
        let [high, sleepers, start] = [WAITERS_HIGH, SLEEPERS, NEXT_WAITER].map(|word| self.load(word));
        let enough = high > 2 * sleepers.min(high) + waiter::GROUP;
        let looks = if enough { pool.capacity } else { FEW_LOOKS };
        let index = self.claim(&pool, owner, start, looks).ok_or(Error::NoMemory)?;
        self.at(NEXT_WAITER).store(index + 1, Relaxed);
        let record = self.waiter(index);
        let count = operations.count();
        let large = if count > waiter::INLINE {
            let pool = Pool::new(LARGE_HIGH, self.layout.large, LARGE_SIZE, LARGE_LISTS, 0);
            match self.claim(&pool, owner, start, FEW_LOOKS) {
                Some(large) => large + 1,
                None => {
                    self.at(record + waiter::OWNER).store(0, Release);
                    return Err(Error::NoMemory);
                }
            }
        } else {
            0
        };
        for (at, value) in [
            (waiter::PROCESS, process),
            (waiter::COUNT, count as u32),
            (waiter::BLOCKING, 0),
            (waiter::UNDO, 0),
            (waiter::LISTS, 0),
            (waiter::RESULT, SLEEPING),
            (waiter::WAKER, 0),
            (waiter::LARGE, large),
            (waiter::ASKED, 0),
            (waiter::PLACE, 0),
            (waiter::DUTY, 0),
            (waiter::NEXT_DELEGATE, 0),
        ] {
            self.at(record + at).store(value, Relaxed);
        }
        // Release: not with the result of its last use.
        self.at(record + waiter::STATE).store(SLEEPING, Release);
        let first = self.operations(record).first;
        for (index, operation) in operations.all().enumerate() {
            let low = u32::from(operation.num) | u32::from(operation.flags.cast_unsigned()) << 16;
            self.at(first + 2 * index).store(low, Relaxed);
            self.at(first + 2 * index + 1).store(u32::from(operation.change.cast_unsigned()), Relaxed);
        }
        Ok(index)
    }
}

impl<H: Host> Locked<'_, H> {
    #[inline(always)]
    pub(super) fn value(&self, num: usize) -> u32 {
        self.load(semaphore_at(num) + semaphore::VALUE)
    }

    /// Applies operations, all or none, for a process; `undo` is its undo slot if they want one.
    #[inline]
    pub(super) fn try_to_apply(
        &self,
        operations: &(impl Operations + ?Sized),
        process: u32,
        undo: Option<u32>,
    ) -> Tried {
        let count = operations.count();
        // How many more adjustments are not zero.
        let mut more = 0;
        for index in 0..count {
            let operation = operations.get(index);
            let num = usize::from(operation.num);
            let value = self.value(num);
            let changed = i64::from(value) + i64::from(operation.change);
            let tried = if operation.change == 0 {
                if value == 0 { Tried::Applied } else { Tried::Blocked(index) }
            } else if changed < 0 {
                Tried::Blocked(index)
            } else if changed > i64::from(MOST_VALUE) {
                Tried::Range
            } else {
                self.set(semaphore_at(num) + semaphore::VALUE, changed as u32);
                if operation.flags & Op::UNDO == 0 {
                    Tried::Applied
                } else {
                    match undo.and_then(|undo| self.adjust(undo, num, -i32::from(operation.change))) {
                        Some(change) => {
                            more += change;
                            Tried::Applied
                        }
                        None => Tried::Range,
                    }
                }
            };
            if tried != Tried::Applied {
                self.roll_back();
                return tried;
            }
        }
        for index in 0..count {
            let num = usize::from(operations.get(index).num);
            self.set(semaphore_at(num) + semaphore::PROCESS, process);
        }
        if let Some(undo) = undo {
            self.count_adjustments(undo, more);
        }
        Tried::Applied
    }

    pub(super) fn operated(&self) {
        let now = H::seconds();
        self.store_wide(OPERATED, now);
    }

    /// Adds to an adjustment. Returns by how much the number of those that are not zero changes, for
    /// [`Self::count_adjustments`]; `None` if the adjustment would leave its range.
    fn adjust(&self, index: u32, num: usize, by: i32) -> Option<i32> {
        let at = self.undo_slot(index) + undo::ADJUSTMENTS + num;
        let old = self.load(at).cast_signed();
        let new = old.checked_add(by).filter(|new| (-MOST_ADJUSTMENT - 1..=MOST_ADJUSTMENT).contains(new))?;
        self.set(at, new.cast_unsigned());
        Some(i32::from(new != 0) - i32::from(old != 0))
    }

    pub(super) fn clear_adjustment(&self, index: u32, num: usize) {
        self.set(self.undo_slot(index) + undo::ADJUSTMENTS + num, 0);
        self.count_adjustments(index, -1);
    }

    /// So many more adjustments of a slot are not zero: keeps it in the active list while it has any.
    fn count_adjustments(&self, index: u32, more: i32) {
        if more == 0 {
            return;
        }
        let slot = self.undo_slot(index);
        let old = self.load(slot + undo::COUNT);
        let new = old.wrapping_add_signed(more);
        self.set(slot + undo::COUNT, new);
        if old == 0 {
            let first = self.load(ACTIVE);
            self.set(slot + undo::NEXT, first);
            self.set(slot + undo::PREVIOUS, 0);
            if first != 0 {
                self.set(self.undo_slot(first - 1) + undo::PREVIOUS, index + 1);
            }
            self.set(ACTIVE, index + 1);
        } else if new == 0 {
            let (next, previous) = (self.load(slot + undo::NEXT), self.load(slot + undo::PREVIOUS));
            if next != 0 {
                self.set(self.undo_slot(next - 1) + undo::PREVIOUS, previous);
            }
            match previous {
                0 => self.set(ACTIVE, next),
                _ => self.set(self.undo_slot(previous - 1) + undo::NEXT, next),
            }
        }
    }

    pub(super) fn undo_of(&self, slot: u32) -> Option<u32> {
        let owner = |index: u32| self.load(self.undo_slot(index) + undo::OWNER);
        if (slot as usize) < INDEXED {
            return self.load(UNDO_INDEX + slot as usize).checked_sub(1);
        }
        (0..self.load(UNDO_HIGH)).find(|index| owner(*index) == slot + 1)
    }

    /// The undo slot of a process; one that is made for it if need be, committed.
    pub(super) fn undo_for(&self, slot: u32, process: u32) -> Result<u32, Error> {
        if let Some(index) = self.undo_of(slot) {
            return Ok(index);
        }
        let Layout { undo_slots, undo_size, undo_count, .. } = self.layout;
        let pool = Pool::new(UNDO_HIGH, undo_slots, undo_size, undo_count, undo::OWNER);
        let index = self.claim(&pool, slot + 1, slot, FEW_LOOKS).ok_or(Error::NoSpace)?;
        let first_ever = self.load(UNDO_USED) == 0;
        self.set(self.undo_slot(index) + undo::PROCESS, process);
        if (slot as usize) < INDEXED {
            self.set(UNDO_INDEX + slot as usize, index + 1);
        }
        self.set(UNDO_USED, 1);
        self.commit();
        if first_ever {
            self.hurry_the_sentinel();
        }
        Ok(index)
    }

    fn link(&self, list: &List, index: u32) {
        let record = self.waiter(index);
        let tail = self.load(list.tail);
        self.set(record + list.next, 0);
        self.set(record + list.previous, tail);
        match tail {
            0 => self.set(list.head, index + 1),
            _ => self.set(self.waiter(tail - 1) + list.next, index + 1),
        }
        self.set(list.tail, index + 1);
    }

    fn unlink(&self, list: &List, index: u32) {
        let record = self.waiter(index);
        let (next, previous) = (self.load(record + list.next), self.load(record + list.previous));
        match previous {
            0 => self.set(list.head, next),
            _ => self.set(self.waiter(previous - 1) + list.next, next),
        }
        match next {
            0 => self.set(list.tail, previous),
            _ => self.set(self.waiter(next - 1) + list.previous, previous),
        }
    }

    /// Of a sleeper in these lists, whose first operation is on that semaphore: the one whose links are in
    /// [`waiter::NEXT`], and whether it is in that of all.
    fn lists(lists: u32, num: usize) -> (Option<List>, bool) {
        match lists {
            TAKER => (Some(takers(num)), true),
            FOR_ZERO => (Some(for_zero(num)), false),
            MULTIPLE => (None, true),
            _ => (Some(CONSTANTS), false),
        }
    }

    pub(super) fn enqueue(&self, index: u32) {
        let record = self.waiter(index);
        let operations = self.operations(record);
        let num = usize::from(operations.get(0).num);
        let lists = match (operations.count(), operations.change()) {
            (1, true) => TAKER,
            (1, false) => FOR_ZERO,
            (_, true) => MULTIPLE,
            (_, false) => CONSTANT,
        };
        let (own, all) = Self::lists(lists, num);
        match own {
            Some(own) => self.link(&own, index),
            None => {
                self.set(MULTIPLE_COUNT, self.load(MULTIPLE_COUNT) + 1);
                self.set(MIXED, self.load(MIXED) + u32::from(operations.heed_falls()));
            }
        }
        if all {
            self.link(&ALL, index);
        }
        self.set(record + waiter::LISTS, lists);
        self.set(SLEEPERS, self.load(SLEEPERS) + 1);
    }

    pub(super) fn dequeue(&self, index: u32) {
        let record = self.waiter(index);
        let lists = self.load(record + waiter::LISTS);
        let operations = self.operations(record);
        let num = usize::from(operations.get(0).num);
        if lists == 0 {
            return;
        }
        let (own, all) = Self::lists(lists, num);
        match own {
            Some(own) => self.unlink(&own, index),
            None => {
                self.set(MULTIPLE_COUNT, self.load(MULTIPLE_COUNT).wrapping_sub(1));
                self.set(MIXED, self.load(MIXED).wrapping_sub(u32::from(operations.heed_falls())));
            }
        }
        if all {
            self.unlink(&ALL, index);
        }
        self.set(record + waiter::LISTS, 0);
        self.set(SLEEPERS, self.load(SLEEPERS).wrapping_sub(1));
    }

    /// Ends a sleeper's sleep with this result; commits that together with what was done since the last
    /// commit.
    pub(super) fn complete(&self, index: u32, result: u32) {
        let record = self.waiter(index);
        self.dequeue(index);
        self.set(record + waiter::WAKER, self.me.slot + 1);
        self.set(record + waiter::RESULT, result);
        self.commit();
        self.will_wake(index);
    }

    /// Takes the sleeper of a process that is gone out of the lists, and frees its record.
    fn drop_sleeper(&self, index: u32) {
        self.dequeue(index);
        self.commit();
        // It may be in the list of requests still; then it is freed when its process is reaped.
        if self.scheme != Scheme::Combining {
            self.free(self.waiter(index));
        }
    }

    /// Tries a sleeper, and completes it if its operations can be applied or never can. Returns whether they
    /// were applied.
    fn try_sleeper(&self, index: u32) -> bool {
        let record = self.waiter(index);
        let owner = self.load(record + waiter::OWNER);
        if owner != self.me.slot + 1 && H::owner_died(owner.wrapping_sub(1)) {
            self.drop_sleeper(index);
            return false;
        }
        let operations = self.operations(record);
        let undo = self.load(record + waiter::UNDO).checked_sub(1);
        match self.try_to_apply(&operations, self.load(record + waiter::PROCESS), undo) {
            Tried::Applied => {
                self.complete(index, APPLIED);
                self.operated();
                true
            }
            // What stands in the way now is not what it went to sleep for.
            Tried::Blocked(blocking) if operations.get(blocking).flags & Op::NOWAIT != 0 => {
                self.complete(index, REFUSED);
                false
            }
            Tried::Blocked(blocking) => {
                self.at(record + waiter::BLOCKING).store(blocking as u32, Relaxed);
                false
            }
            Tried::Range => {
                self.complete(index, OUT_OF_RANGE);
                false
            }
        }
    }

    /// These operations have been applied and committed: completes those that may proceed now.
    #[inline]
    pub(super) fn settle(&self, operations: &(impl Operations + ?Sized)) {
        if self.load(SLEEPERS) != 0 {
            self.settle_slow(operations);
        }
    }

    fn settle_slow(&self, operations: &(impl Operations + ?Sized)) {
        self.settle_zeros(operations);
        if self.load(MULTIPLE_COUNT) != 0 || self.scheme == Scheme::Before {
            self.settle_all();
        } else {
            for operation in operations.all().filter(|operation| operation.change > 0) {
                self.settle_takers(usize::from(operation.num));
            }
        }
    }

    pub(super) fn settle_everything(&self) {
        if self.load(SLEEPERS) == 0 {
            return;
        }
        for num in 0..self.layout.semaphores {
            if self.value(num) == 0 {
                self.settle_list(&for_zero(num));
            }
        }
        self.settle_list(&CONSTANTS);
        self.settle_all();
    }

    /// Those that wait for zero, after these operations.
    fn settle_zeros(&self, operations: &(impl Operations + ?Sized)) {
        let mut any = false;
        for operation in operations.all() {
            let num = usize::from(operation.num);
            if self.value(num) == 0 {
                any = true;
                self.settle_list(&for_zero(num));
            }
        }
        if any {
            self.settle_list(&CONSTANTS);
        }
    }

    fn settle_list(&self, list: &List) {
        let mut next = self.load(list.head);
        while next != 0 {
            let index = next - 1;
            next = self.load(self.waiter(index) + list.next);
            self.try_sleeper(index);
        }
    }

    /// The takers of one semaphore, while no sleeper has several operations: one pass.
    fn settle_takers(&self, num: usize) {
        let list = takers(num);
        let mut next = self.load(list.head);
        while next != 0 {
            // Takers only lower it.
            if self.value(num) == 0 {
                return;
            }
            let index = next - 1;
            next = self.load(self.waiter(index) + list.next);
            if self.try_sleeper(index) && self.value(num) == 0 {
                self.settle_list(&for_zero(num));
                self.settle_list(&CONSTANTS);
            }
        }
    }

    /// All that want to change something, in order of arrival.
    fn settle_all(&self) {
        let mut next = self.load(ALL.head);
        while next != 0 {
            let index = next - 1;
            let record = self.waiter(index);
            next = self.load(record + ALL.next);
            if !self.try_sleeper(index) {
                continue;
            }
            // Its record stays as it is until it is woken.
            let operations = self.operations(record);
            self.settle_zeros(&operations);
            let again = self.scheme == Scheme::Before
                // One that takes and then waits for zero proceeds at one value only, which may be a lower
                // one; and one that must not wait for its second operation fails when a taker that came later
                // has left too little.
                || self.load(MIXED) != 0
                || operations.all().any(|operation| operation.change > 0);
            if again {
                next = self.load(ALL.head);
            }
        }
    }

    pub(super) fn count_sleepers(&self, num: usize, zero: bool) -> u32 {
        // The dead do not sleep, though no process may have noticed yet.
        let alive = |index: &u32| {
            let owner = self.load(self.waiter(*index) + waiter::OWNER);
            owner == self.me.slot + 1 || !H::owner_died(owner.wrapping_sub(1))
        };
        let of_several = |index: &u32| {
            let record = self.waiter(*index);
            let operations = self.operations(record);
            let operation = operations.get(self.blocking(record));
            operations.count() > 1
                && usize::from(operation.num) == num
                && (if zero { operation.change == 0 } else { operation.change < 0 })
        };
        let own = if zero { for_zero(num) } else { takers(num) };
        let several = self.members(&ALL).chain(zero.then(|| self.members(&CONSTANTS)).into_iter().flatten());
        let own = self.members(&own).filter(alive).count();
        (own + several.filter(alive).filter(of_several).count()) as u32
    }

    /// Which operation of a sleeper stands in the way: of one that only waits for zeros, when it was last
    /// tried.
    fn blocking(&self, record: usize) -> usize {
        let operations = self.operations(record);
        if self.load(record + waiter::LISTS) == MULTIPLE {
            // Others may have proceeded since it was tried, and have taken what it found then.
            let undo = self.load(record + waiter::UNDO).checked_sub(1);
            let tried = self.try_to_apply(&operations, self.load(record + waiter::PROCESS), undo);
            self.roll_back();
            if let Tried::Blocked(index) = tried {
                return index;
            }
        }
        let last = operations.count().saturating_sub(1);
        (self.load(record + waiter::BLOCKING) as usize).min(last)
    }

    fn members(&self, list: &List) -> impl Iterator<Item = u32> {
        let mut next = self.load(list.head);
        let link = list.next;
        core::iter::from_fn(move || {
            let index = next.checked_sub(1)?;
            next = self.load(self.waiter(index) + link);
            Some(index)
        })
    }

    pub(super) fn refuse_everybody(&self) {
        for index in 0..self.load(WAITERS_HIGH) {
            let record = self.waiter(index);
            if self.load(record + waiter::OWNER) != 0 && self.load(record + waiter::LISTS) != 0 {
                self.complete(index, REMOVED);
            }
        }
    }
}
