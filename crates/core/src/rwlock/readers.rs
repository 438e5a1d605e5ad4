//! Where readers are that do not count themselves in the lock's word: one table for the locks of a process.
//!
//! After Dice and Kogan, "BRAVO - Biased Locking for Reader-Writer Locks" (USENIX ATC 2019). A reader of a
//! lock that is biased towards readers stores the lock's address in a slot, and leaves by storing 0 there.
//! Where BRAVO has one array, a thread has a line of the table here, in which the lock's address chooses the
//! slot: readers on different CPUs share no line, and who wants all readers of a lock looks at one slot in
//! each line that was ever used.
//!
//! Every change of a slot is a read-modify-write, and so is the look of the thread that drains it. So slots
//! need no stronger fences: of a reader's entry and a drainer's look one comes first in the order of that
//! slot. If it is the reader's, the drainer finds it. If it is the drainer's, the reader sees what the
//! drainer wrote before it looked: that the bias is gone. The same holds for `Table::used`, which says how
//! many lines there are to look at.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::atomic::{Atomic, Atomics, ConstAtomic};
use crate::platform::Platform;

/// How many slots a line has.
pub const SLOTS: usize = 7;

/// The slots of a thread: a cache line. Threads share one if there are more of them than lines.
#[repr(C, align(64))]
pub struct Line<P: Atomics> {
    slots: [P::Usize; SLOTS],
    /// Which locks the thread has found biased last, by bits that each is one of a hash: a hint. Readers of
    /// these look at the lock before they write to it.
    noted: P::Usize,
}

/// All slots. See the module's documentation.
#[repr(C, align(64))]
pub struct Table<P: Atomics, L: ?Sized = [Line<P>]> {
    /// How many lines were ever used: the first ones. Grows only.
    used: P::U32,
    /// How long the last drain took, in nanoseconds.
    drain_ns: P::U32,
    lines: L,
}

impl<P: Atomics> Default for Line<P> {
    fn default() -> Self {
        Line { slots: core::array::from_fn(|_| Atomic::new(0)), noted: Atomic::new(0) }
    }
}

impl<P: Atomics, const N: usize> Default for Table<P, [Line<P>; N]> {
    fn default() -> Self {
        Table {
            used: Atomic::new(0),
            drain_ns: Atomic::new(0),
            lines: core::array::from_fn(|_| Line::default()),
        }
    }
}

impl<P: Atomics, const N: usize> Table<P, [Line<P>; N]>
where
    P::U32: ConstAtomic,
    P::Usize: ConstAtomic,
{
    /// A table in which nobody is: zero bytes.
    pub const fn new() -> Self {
        Table {
            used: ConstAtomic::ZERO,
            drain_ns: ConstAtomic::ZERO,
            lines: [const { Line { slots: [const { ConstAtomic::ZERO }; SLOTS], noted: ConstAtomic::ZERO } };
                N],
        }
    }
}

impl<P: Atomics> Table<P> {
    /// The calling thread's line.
    fn own_line<Q: Platform>(&self) -> Option<&Line<P>> {
        Some(&self.lines[Q::current()? as usize % self.lines.len()])
    }

    #[inline(never)]
    fn has_noted<Q: Platform>(&self, lock: usize) -> bool {
        self.own_line::<Q>().is_some_and(|line| line.noted.load(Relaxed) & bit(lock) != 0)
    }

    /// Makes it one in which nobody is and nobody was: for checkers, between runs.
    pub fn clear(&self) {
        for slot in self.lines.iter().flat_map(|line| line.slots.iter().chain([&line.noted])) {
            slot.store(0, Relaxed);
        }
        self.used.store(0, Relaxed);
        self.drain_ns.store(0, Relaxed);
    }

    /// How long the last drain took, in nanoseconds.
    pub(super) fn drain_ns(&self) -> u32 {
        self.drain_ns.load(Relaxed)
    }

    /// Notes how long one took.
    pub(super) fn note_drain(&self, ns: u64) {
        self.drain_ns.store(ns.min(u64::from(u32::MAX)) as u32, Relaxed);
    }

    /// The slot of each used line in which readers of this lock are.
    pub(super) fn slots(&self, lock: usize, choices: usize) -> impl Iterator<Item = &P::Usize> {
        // A read-modify-write: see the module's documentation.
        let used = self.used.fetch_or(0, AcqRel) as usize;
        self.lines.iter().take(used).map(move |line| &line.slots[choose(lock, choices)])
    }
}

/// Which slot of a line is a lock's, of so many.
#[inline(always)]
fn choose(lock: usize, choices: usize) -> usize {
    (((hash(lock) >> 32) * choices as u64) >> 32) as usize
}

/// Fibonacci hashing: the highest bits depend on all of the address's.
#[inline(always)]
fn hash(lock: usize) -> u64 {
    (lock as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A lock's bit of [`Line::noted`].
#[inline(always)]
fn bit(lock: usize) -> usize {
    1 << ((hash(lock) >> 32) & 63)
}

/// Whether the calling thread has noted that the lock is biased. A hint. One look, where no lock of the
/// process ever was.
#[inline(always)]
pub(super) fn is_noted<P: Platform>(lock: usize) -> bool {
    P::readers().is_some_and(|table| table.used.load(Relaxed) != 0 && table.has_noted::<P>(lock))
}

/// Notes whether it is.
pub(super) fn note<P: Platform>(lock: usize, biased: bool) {
    let Some(table) = P::readers() else { return };
    if table.used.load(Relaxed) == 0 && !biased || table.has_noted::<P>(lock) == biased {
        return;
    }
    let Some(line) = table.own_line::<P>() else { return };
    let _ = match biased {
        true => line.noted.fetch_or(bit(lock), Relaxed),
        false => line.noted.fetch_and(!bit(lock), Relaxed),
    };
}

/// The calling thread's slot for a lock, of so many in its line; `None` if the platform has no table or the
/// thread no index.
#[inline(always)]
pub(super) fn own_slot<P: Platform>(lock: usize, choices: usize) -> Option<&'static P::Usize> {
    let table = P::readers()?;
    let at = P::current()? as usize % table.lines.len();
    // Acquire: whoever counted this line did so after all drains that do not look at it, and what those did
    // before is there.
    if table.used.load(Acquire) as usize <= at {
        let _ = table.used.update(AcqRel, |used| (used as usize <= at).then_some(at as u32 + 1));
    }
    Some(&table.lines[at].slots[choose(lock, choices)])
}
