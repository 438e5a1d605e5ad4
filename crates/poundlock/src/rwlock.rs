//! The readers-writer lock.

use core::marker::PhantomData;
use std::time::{Duration, Instant};

use poundlock_core::platform::Deadline;
use poundlock_core::rwlock::{self, RawRwLock as Raw};
use poundlock_linux::Linux;

use crate::stats::{Kind, Patience, Slot};
use crate::{GuardMarker, stats, time};

mod sealed {
    pub trait Sealed {
        const POLICY: poundlock_core::rwlock::Preference;
    }
}

/// Which waiters of a [`RawRwLock`] go first: [`PhaseFair`], [`ReaderPreferring`] or [`WriterPreferring`].
pub trait Policy: sealed::Sealed + 'static {}

macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl sealed::Sealed for $name {
            const POLICY: rwlock::Preference = rwlock::Preference::$name;
        }
        impl Policy for $name {}
    )*};
}

policies! {
    /// Readers and writers in turn: no thread waits for more than one phase of the others (after Brandenburg
    /// and Anderson, Real-Time Systems, 2010).
    PhaseFair;
    /// Readers enter whenever no writer is inside. Writers may wait for ever.
    ReaderPreferring;
    /// No reader enters while a writer waits. Readers may wait for ever.
    WriterPreferring;
}

/// The lock under [`RwLock`]: in the manner of Linux's queue rwlock (Waiman Long, 2014), with waiters that
/// sleep, may give up, and are chosen by a preference. docs/RWLOCK.md says how it works.
///
/// Entering as a writer synchronises with all releases before it, as a reader with the last writer's. No
/// method allocates, panics or unwinds; none is async-signal-safe with respect to the same lock, all are with
/// respect to others. A thread that is inside and enters again may wait for ever, except as a reader by
/// `read_recursive`.
///
/// ```
/// use poundlock::{RawRwLock, WriterPreferring, lock_api};
///
/// static ROUTES: lock_api::RwLock<RawRwLock<WriterPreferring>, Vec<u32>> =
/// lock_api::RwLock::new(Vec::new()); ROUTES.write().push(1); assert_eq!(ROUTES.read().len(), 1);
/// ```
#[repr(C)]
pub struct RawRwLock<P: Policy = PhaseFair> {
    slots: Slots,
    raw: Raw<Linux>,
    _policy: PhantomData<fn() -> P>,
}

/// How a reader waits under this policy.
#[inline(always)]
fn reader(policy: rwlock::Preference) -> Kind {
    match policy {
        rwlock::Preference::ReaderPreferring => Kind::Reader,
        rwlock::Preference::PhaseFair | rwlock::Preference::WriterPreferring => Kind::FairReader,
    }
}

/// Readers and writers are counted apart. In this order: the recorder knows a lock's writers by the address
/// after its readers'.
#[repr(C)]
struct Slots {
    readers: Slot,
    writers: Slot,
}

impl<P: Policy> RawRwLock<P> {
    #[inline(always)]
    fn read(&self, policy: rwlock::Preference, patience: Patience, wait: impl FnOnce() -> bool) -> bool {
        self.slots.readers.acquire(reader(policy), patience, || self.raw.try_lock_read(policy), wait)
    }

    #[inline(always)]
    fn write(&self, patience: Patience, wait: impl FnOnce() -> bool) -> bool {
        self.slots.writers.acquire(Kind::Writer, patience, || self.raw.try_lock_write(), wait)
    }

    fn read_before(&self, policy: rwlock::Preference, deadline: impl FnOnce() -> Deadline) -> bool {
        self.read(policy, Patience::UntilSomeTime, || {
            self.raw.try_lock_read(policy) || self.raw.lock_read_until(policy, &deadline())
        })
    }

    fn write_before(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        self.write(Patience::UntilSomeTime, || {
            self.raw.try_lock_write() || self.raw.lock_write_until(P::POLICY, &deadline())
        })
    }

    /// From the upgradable reader to the writer, by `wait`.
    fn upgrade_by(&self, patience: Patience, wait: impl FnOnce() -> bool) -> bool {
        let slots = (&self.slots.readers, &self.slots.writers);
        stats::upgrade(slots, patience, || self.raw.try_upgrade(), wait)
    }

    /// From the upgradable reader to the writer, if it need not wait.
    fn upgrade_at_once(&self) -> bool {
        let upgraded = self.raw.try_upgrade();
        if upgraded {
            stats::becomes((&self.slots.readers, Kind::Reader), (&self.slots.writers, Kind::Writer));
        }
        upgraded
    }

    /// The writer is about to be a reader.
    fn reads_on(&self) {
        stats::becomes((&self.slots.writers, Kind::Writer), (&self.slots.readers, Kind::Reader));
    }

    fn upgrade_before(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        self.upgrade_by(Patience::UntilSomeTime, || {
            self.raw.try_upgrade() || self.raw.upgrade_until(&deadline())
        })
    }

    fn upgradable_before(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        let at_once = || self.raw.try_lock_upgradable();
        self.slots.readers.acquire(Kind::Reader, Patience::UntilSomeTime, at_once, || {
            at_once() || self.raw.lock_upgradable_until(P::POLICY, &deadline())
        })
    }
}

// SAFETY: `Raw` excludes: EXCLUSION in its file.
unsafe impl<P: Policy> lock_api::RawRwLock for RawRwLock<P> {
    const INIT: Self = RawRwLock {
        raw: Raw::new(),
        slots: Slots { readers: Slot::new(), writers: Slot::new() },
        _policy: PhantomData,
    };

    type GuardMarker = GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        self.read(P::POLICY, Patience::Endless, || {
            self.raw.lock_read(P::POLICY);
            true
        });
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.slots.readers.try_acquire(Kind::Reader, || self.raw.try_lock_read(P::POLICY))
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.slots.readers.release(Kind::Reader);
        self.raw.unlock_read();
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.write(Patience::Endless, || {
            self.raw.lock_write(P::POLICY);
            true
        });
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.slots.writers.try_acquire(Kind::Writer, || self.raw.try_lock_write())
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        self.slots.writers.release(Kind::Writer);
        self.raw.unlock_write();
    }

    fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.raw.is_write_locked()
    }
}

// SAFETY: true is returned only by a call that has entered.
unsafe impl<P: Policy> lock_api::RawRwLockTimed for RawRwLock<P> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.read_before(P::POLICY, || time::after(timeout))
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> bool {
        self.read_before(P::POLICY, || time::at(timeout))
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.write_before(|| time::after(timeout))
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> bool {
        self.write_before(|| time::at(timeout))
    }
}

// SAFETY: a reader that prefers readers enters unless a writer is inside.
unsafe impl<P: Policy> lock_api::RawRwLockRecursive for RawRwLock<P> {
    fn lock_shared_recursive(&self) {
        const POLICY: rwlock::Preference = rwlock::Preference::ReaderPreferring;
        self.read(POLICY, Patience::Endless, || {
            self.raw.lock_read(POLICY);
            true
        });
    }

    fn try_lock_shared_recursive(&self) -> bool {
        self.slots
            .readers
            .try_acquire(Kind::Reader, || self.raw.try_lock_read(rwlock::Preference::ReaderPreferring))
    }
}

// SAFETY: as above.
unsafe impl<P: Policy> lock_api::RawRwLockRecursiveTimed for RawRwLock<P> {
    fn try_lock_shared_recursive_for(&self, timeout: Duration) -> bool {
        self.read_before(rwlock::Preference::ReaderPreferring, || time::after(timeout))
    }

    fn try_lock_shared_recursive_until(&self, timeout: Instant) -> bool {
        self.read_before(rwlock::Preference::ReaderPreferring, || time::at(timeout))
    }
}

// SAFETY: a writer that becomes a reader lets no other writer in between.
unsafe impl<P: Policy> lock_api::RawRwLockDowngrade for RawRwLock<P> {
    unsafe fn downgrade(&self) {
        self.reads_on();
        self.raw.downgrade();
    }
}

// SAFETY: there is one upgradable reader at a time, and it becomes the writer when it is alone.
unsafe impl<P: Policy> lock_api::RawRwLockUpgrade for RawRwLock<P> {
    fn lock_upgradable(&self) {
        self.slots.readers.acquire(
            Kind::Reader,
            Patience::Endless,
            || self.raw.try_lock_upgradable(),
            || {
                self.raw.lock_upgradable(P::POLICY);
                true
            },
        );
    }

    fn try_lock_upgradable(&self) -> bool {
        self.slots.readers.try_acquire(Kind::Reader, || self.raw.try_lock_upgradable())
    }

    unsafe fn unlock_upgradable(&self) {
        self.slots.readers.release(Kind::Reader);
        self.raw.unlock_upgradable();
    }

    unsafe fn upgrade(&self) {
        self.upgrade_by(Patience::Endless, || {
            self.raw.upgrade();
            true
        });
    }

    unsafe fn try_upgrade(&self) -> bool {
        self.upgrade_at_once()
    }
}

// SAFETY: as `downgrade`.
unsafe impl<P: Policy> lock_api::RawRwLockUpgradeDowngrade for RawRwLock<P> {
    unsafe fn downgrade_upgradable(&self) {
        self.raw.downgrade_upgradable();
    }

    unsafe fn downgrade_to_upgradable(&self) {
        self.reads_on();
        self.raw.downgrade_to_upgradable();
    }
}

// SAFETY: true is returned only by a call that has entered, or has been upgraded.
unsafe impl<P: Policy> lock_api::RawRwLockUpgradeTimed for RawRwLock<P> {
    fn try_lock_upgradable_for(&self, timeout: Duration) -> bool {
        self.upgradable_before(|| time::after(timeout))
    }

    fn try_lock_upgradable_until(&self, timeout: Instant) -> bool {
        self.upgradable_before(|| time::at(timeout))
    }

    unsafe fn try_upgrade_for(&self, timeout: Duration) -> bool {
        self.upgrade_before(|| time::after(timeout))
    }

    unsafe fn try_upgrade_until(&self, timeout: Instant) -> bool {
        self.upgrade_before(|| time::at(timeout))
    }
}

/// A value that many threads may read at a time, or one may change: `std::sync::RwLock` without poisoning, 32
/// bytes and the value.
///
/// Readers and writers take turns, so neither waits for ever; for another order see [`RawRwLock`]. A thread
/// that reads and wants to read again must call `read_recursive`; otherwise it may wait for ever behind a
/// writer. One upgradable reader at a time can become the writer with no other writer in between.
///
/// See [`lock_api::RwLock`]; it adds `try_read_for`, `try_write_until` and the like, and guards that own an
/// [`Arc`](std::sync::Arc) (`read_arc`, `write_arc`).
///
/// ```
/// use std::collections::HashMap;
/// use poundlock::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
///
/// let names = RwLock::new(HashMap::new());
/// names.write().insert(1, "one");
/// {
///     let (first, second) = (names.read(), names.read_recursive());
///     assert_eq!(first.get(&1), second.get(&1));
///     assert!(names.try_write().is_none());
/// }
/// // Looks, and changes only if it must.
/// let found = names.upgradable_read();
/// if !found.contains_key(&2) {
///     let mut names = RwLockUpgradableReadGuard::upgrade(found);
///     names.insert(2, "two");
///     // Lets readers in, and no writer before.
///     let names = RwLockWriteGuard::downgrade(names);
///     assert_eq!(names.len(), 2);
/// }
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// Leaves a [`RwLock`] when it is dropped, and is the way to its value.
///
/// ```
/// use poundlock::{RwLock, RwLockReadGuard};
///
/// let lock = RwLock::new(5);
/// let (one, other): (RwLockReadGuard<'_, i32>, _) = (lock.read(), lock.try_read().expect("no writer"));
/// assert_eq!(*one, *other);
/// ```
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// Leaves a [`RwLock`] when it is dropped, and is the way to its value.
///
/// ```
/// use poundlock::{RwLock, RwLockWriteGuard};
///
/// let lock = RwLock::new(5);
/// let mut guard: RwLockWriteGuard<'_, i32> = lock.write();
/// *guard += 1;
/// drop(guard);
/// assert_eq!(lock.into_inner(), 6);
/// ```
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// The one reader of a [`RwLock`] that can become its writer.
///
/// ```
/// use poundlock::{RwLock, RwLockUpgradableReadGuard};
///
/// let lock = RwLock::new(5);
/// let reader = lock.read();
/// let guard: RwLockUpgradableReadGuard<'_, i32> = lock.upgradable_read();
/// let guard = RwLockUpgradableReadGuard::try_upgrade(guard).expect_err("there is a reader");
/// drop(reader);
/// *RwLockUpgradableReadGuard::upgrade(guard) = 6;
/// assert_eq!(*lock.read(), 6);
/// ```
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;

/// Made by [`RwLockReadGuard::map`](lock_api::RwLockReadGuard::map), for a part of the value.
///
/// ```
/// use poundlock::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
///
/// let pair = RwLock::new((1, 2));
/// let second: MappedRwLockReadGuard<'_, i32> = RwLockReadGuard::map(pair.read(), |pair| &pair.1);
/// assert_eq!(*second, 2);
/// ```
pub type MappedRwLockReadGuard<'a, T> = lock_api::MappedRwLockReadGuard<'a, RawRwLock, T>;

/// Made by [`RwLockWriteGuard::map`](lock_api::RwLockWriteGuard::map), for a part of the value.
///
/// ```
/// use poundlock::{MappedRwLockWriteGuard, RwLock, RwLockWriteGuard};
///
/// let pair = RwLock::new((1, 2));
/// let mut second: MappedRwLockWriteGuard<'_, i32> = RwLockWriteGuard::map(pair.write(), |pair| &mut pair.1);
/// *second += 1;
/// ```
pub type MappedRwLockWriteGuard<'a, T> = lock_api::MappedRwLockWriteGuard<'a, RawRwLock, T>;

/// Made by [`RwLock::read_arc`](lock_api::RwLock::read_arc): keeps the lock alive.
///
/// ```
/// use std::sync::Arc;
/// use poundlock::{ArcRwLockReadGuard, RwLock};
///
/// let guard: ArcRwLockReadGuard<u32> = Arc::new(RwLock::new(7)).read_arc();
/// assert_eq!(*guard, 7);
/// ```
pub type ArcRwLockReadGuard<T> = lock_api::ArcRwLockReadGuard<RawRwLock, T>;

/// Made by [`RwLock::write_arc`](lock_api::RwLock::write_arc): keeps the lock alive.
///
/// ```
/// use std::sync::Arc;
/// use poundlock::{ArcRwLockWriteGuard, RwLock};
///
/// let mut guard: ArcRwLockWriteGuard<u32> = Arc::new(RwLock::new(7)).write_arc();
/// *guard += 1;
/// ```
pub type ArcRwLockWriteGuard<T> = lock_api::ArcRwLockWriteGuard<RawRwLock, T>;

/// Made by [`RwLock::upgradable_read_arc`](lock_api::RwLock::upgradable_read_arc): keeps the lock alive.
///
/// ```
/// use std::sync::Arc;
/// use poundlock::{ArcRwLockUpgradableReadGuard, RwLock};
///
/// let guard: ArcRwLockUpgradableReadGuard<u32> = Arc::new(RwLock::new(7)).upgradable_read_arc();
/// *ArcRwLockUpgradableReadGuard::upgrade(guard) += 1;
/// ```
pub type ArcRwLockUpgradableReadGuard<T> = lock_api::ArcRwLockUpgradableReadGuard<RawRwLock, T>;
