//! The spinlock.

use poundlock_core::qspin::{Native, Paravirtual};

use crate::raw::{Exclusive, Spin, impl_lock_api};
use crate::stats::{Kind, Patience, Slot};

mod sealed {
    pub trait Sealed {
        type Form: poundlock_core::qspin::ChosenForm;
    }
}

/// How the waiters of a [`RawSpinLock`] wait: [`Halting`] or [`Spinning`].
pub trait Waiting: sealed::Sealed + 'static {}

/// Waiters spin for a while, then halt until they are kicked: for threads that may be preempted, as nearly
/// everywhere in user space. The paravirtual form of docs/QSPIN.md.
#[derive(Clone, Copy, Debug)]
pub struct Halting;

/// Waiters spin in order of arrival and never give up their CPUs: for threads that have a CPU each. A waiter
/// that loses its CPU stops all waiters behind it. The native form of docs/QSPIN.md.
#[derive(Clone, Copy, Debug)]
pub struct Spinning;

impl sealed::Sealed for Halting {
    type Form = Paravirtual;
}
impl sealed::Sealed for Spinning {
    type Form = Native;
}
impl Waiting for Halting {}
impl Waiting for Spinning {}

/// The lock under [`SpinLock`]: Linux's 4-byte queue spinlock (Long and Zijlstra, 2014) with paravirtual
/// support, in user space. docs/QSPIN.md says how it works.
///
/// Acquiring synchronises with the release before. No method allocates, panics or unwinds; none is
/// async-signal-safe with respect to the same lock, all are with respect to others. It has no timed form: a
/// waiter cannot leave its queue.
///
/// ```
/// use poundlock::{RawSpinLock, Spinning, lock_api};
///
/// // For threads that are pinned to CPUs of their own.
/// static TICKS: lock_api::Mutex<RawSpinLock<Spinning>, u64> = lock_api::Mutex::new(0);
/// *TICKS.lock() += 1;
/// assert_eq!(*TICKS.lock(), 1);
/// ```
#[repr(C)]
pub struct RawSpinLock<W: Waiting = Halting> {
    slot: Slot,
    raw: Spin<W::Form>,
}

impl_lock_api!(Spinlock: [W: Waiting] RawSpinLock<W>);

/// A spinlock around a value: 4 bytes and the value, for many locks with sections of some dozen instructions.
///
/// See [`lock_api::Mutex`]. If a section may be long, or makes a system call, use a [`Mutex`](crate::Mutex).
///
/// ```
/// use poundlock::SpinLock;
///
/// struct Cell { stamp: SpinLock<u32> }
///
/// let cells: Vec<Cell> = (0..1000).map(|stamp| Cell { stamp: SpinLock::new(stamp) }).collect();
/// *cells[7].stamp.lock() += 1;
/// assert_eq!(*cells[7].stamp.lock(), 8);
/// assert_eq!(size_of::<Cell>(), 8);
/// ```
pub type SpinLock<T> = lock_api::Mutex<RawSpinLock, T>;

/// Unlocks a [`SpinLock`] when it is dropped, and is the way to its value.
///
/// ```
/// use poundlock::{SpinLock, SpinLockGuard};
///
/// let lock = SpinLock::new(1);
/// let guard: SpinLockGuard<'_, i32> = lock.lock();
/// assert!(lock.try_lock().is_none());
/// assert_eq!(*guard, 1);
/// ```
pub type SpinLockGuard<'a, T> = lock_api::MutexGuard<'a, RawSpinLock, T>;

/// Made by [`SpinLockGuard::map`](lock_api::MutexGuard::map), for a part of the value.
///
/// ```
/// use poundlock::{MappedSpinLockGuard, SpinLock, SpinLockGuard};
///
/// let pair = SpinLock::new((1, 2));
/// let second: MappedSpinLockGuard<'_, i32> = SpinLockGuard::map(pair.lock(), |pair| &mut pair.1);
/// assert_eq!(*second, 2);
/// ```
pub type MappedSpinLockGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawSpinLock, T>;

/// Made by [`SpinLock::lock_arc`](lock_api::Mutex::lock_arc): keeps the lock alive.
///
/// ```
/// use std::sync::Arc;
/// use poundlock::{ArcSpinLockGuard, SpinLock};
///
/// let guard: ArcSpinLockGuard<u32> = Arc::new(SpinLock::new(7)).lock_arc();
/// assert_eq!(*guard, 7);
/// ```
pub type ArcSpinLockGuard<T> = lock_api::ArcMutexGuard<RawSpinLock, T>;
