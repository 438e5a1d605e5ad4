//! The one interface through which every contender is driven.
//!
//! A driver is generic over [`Lock`] and compiled for each. What a lock's own users could inline is inlined
//! here (the Rust types and the bare atomics); what they call through a pointer is called through a pointer
//! (everything behind the C ABI).

use std::ffi::c_int;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::lock_api;
use poundlock_core::adaptive::{RawAdaptive as RawMutex, Variant};
use poundlock_core::handoff::{Handoff, Policy, RawHandoff};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::{ChosenForm as Form, Layout, RawSpin};
use poundlock_linux::Linux;
use poundlock_textbook::Spinlock;

use crate::abi::{CMutex, CSpin};

/// A lock under test. Each call returns 0, or what a C function returned instead.
pub(crate) trait Lock: Sync {
    /// What a thread keeps from the lock to the unlock; nothing, for most locks.
    type Place: Default;

    /// Locks.
    fn lock(&self, place: &mut Self::Place) -> c_int;

    /// Unlocks what the calling thread locked with this place.
    fn unlock(&self, place: &mut Self::Place) -> c_int;
}

/// A lock that can be tried.
pub(crate) trait TryLock: Lock {
    /// Locks if nobody holds it; `EBUSY` if somebody does.
    fn try_lock(&self, place: &mut Self::Place) -> c_int;
}

/// What [`TryLock::try_lock`] returns.
#[inline(always)]
fn tried(acquired: bool) -> c_int {
    if acquired { 0 } else { libc::EBUSY }
}

impl Lock for CMutex {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        // SAFETY: the mutex lives as long as `self`.
        unsafe { (self.abi.lock)(self.as_ptr()) }
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        // SAFETY: the mutex lives as long as `self`; the driver unlocks what it locked.
        unsafe { (self.abi.unlock)(self.as_ptr()) }
    }
}

impl TryLock for CMutex {
    #[inline(always)]
    fn try_lock(&self, (): &mut ()) -> c_int {
        // SAFETY: the mutex lives as long as `self`.
        unsafe { (self.abi.trylock)(self.as_ptr()) }
    }
}

/// Locks by `trylock`, where that must succeed: without contention.
pub(crate) struct ByTrylock(pub(crate) CMutex);

impl Lock for ByTrylock {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        // SAFETY: the mutex lives as long as `self`.
        unsafe { (self.0.abi.trylock)(self.0.as_ptr()) }
    }

    #[inline(always)]
    fn unlock(&self, place: &mut ()) -> c_int {
        self.0.unlock(place)
    }
}

/// One of our locks as Rust code uses it.
#[repr(align(128))]
pub(crate) struct RustType<V>(RawMutex<Linux>, PhantomData<V>);

impl<V> Default for RustType<V> {
    fn default() -> Self {
        // Else the first thread that has to wait would find out about the machine.
        poundlock_linux::init();
        RustType(RawMutex::new(), PhantomData)
    }
}

impl<V: Variant + Sync> Lock for RustType<V> {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        self.0.lock::<V>();
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        self.0.unlock::<V>();
        0
    }
}

impl<V: Variant + Sync> TryLock for RustType<V> {
    #[inline(always)]
    fn try_lock(&self, (): &mut ()) -> c_int {
        tried(self.0.try_lock())
    }
}

/// A mutex around a value, of a crate on `lock_api`.
#[repr(align(128))]
pub(crate) struct Around<R>(lock_api::Mutex<R, u64>);

impl<R: lock_api::RawMutex> Default for Around<R> {
    fn default() -> Self {
        // As for `RustType`.
        poundlock_linux::init();
        Around(lock_api::Mutex::new(0))
    }
}

impl<R: lock_api::RawMutex + Sync> Lock for Around<R> {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        std::mem::forget(self.0.lock());
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        // SAFETY: the driver unlocks what it locked, and its guard is forgotten.
        unsafe { self.0.force_unlock() };
        0
    }
}

/// The barging mutex as Rust code uses it.
#[repr(align(128))]
pub(crate) struct BargingType(RawPoundlock<Linux>);

impl Default for BargingType {
    fn default() -> Self {
        // As for `RustType`.
        poundlock_linux::init();
        BargingType(RawPoundlock::new())
    }
}

impl Lock for BargingType {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        self.0.lock();
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        self.0.unlock();
        0
    }
}

impl TryLock for BargingType {
    #[inline(always)]
    fn try_lock(&self, (): &mut ()) -> c_int {
        tried(self.0.try_lock())
    }
}

/// The hand-off mutex with a policy, as Rust code uses it.
#[repr(align(128))]
pub(crate) struct HandoffType<S>(pub(crate) RawHandoff<Linux>, PhantomData<fn() -> S>);

impl<S> Default for HandoffType<S> {
    fn default() -> Self {
        HandoffType::from(RawHandoff::new())
    }
}

impl<S> From<RawHandoff<Linux>> for HandoffType<S> {
    fn from(raw: RawHandoff<Linux>) -> Self {
        // As for `RustType`.
        poundlock_linux::init();
        HandoffType(raw, PhantomData)
    }
}

impl<S: Policy> Lock for HandoffType<S> {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        self.0.lock::<S>();
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        self.0.unlock();
        0
    }
}

impl<S: Policy> TryLock for HandoffType<S> {
    #[inline(always)]
    fn try_lock(&self, (): &mut ()) -> c_int {
        tried(self.0.try_lock())
    }
}

/// The recursive hand-off mutex with a policy, as Rust code uses it.
#[repr(align(128))]
pub(crate) struct RecursiveHandoff<S>(Handoff<Linux>, PhantomData<fn() -> S>);

impl<S> Default for RecursiveHandoff<S> {
    fn default() -> Self {
        // As for `RustType`.
        poundlock_linux::init();
        RecursiveHandoff(Handoff::new(), PhantomData)
    }
}

impl<S: Policy> Lock for RecursiveHandoff<S> {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        self.0.lock::<S>();
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        self.0.unlock();
        0
    }
}

impl<S: Policy> TryLock for RecursiveHandoff<S> {
    #[inline(always)]
    fn try_lock(&self, (): &mut ()) -> c_int {
        tried(self.0.try_lock())
    }
}

impl Lock for CSpin {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        // SAFETY: the spinlock lives as long as `self`.
        unsafe { (self.abi.lock)(self.as_ptr()) }
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        // SAFETY: the spinlock lives as long as `self`; the driver unlocks what it locked.
        unsafe { (self.abi.unlock)(self.as_ptr()) }
    }
}

impl TryLock for CSpin {
    #[inline(always)]
    fn try_lock(&self, (): &mut ()) -> c_int {
        // SAFETY: the spinlock lives as long as `self`.
        unsafe { (self.abi.trylock)(self.as_ptr()) }
    }
}

/// A form of the queue spinlock as Rust code uses it.
#[repr(align(128))]
pub(crate) struct QueueSpin<F, L: Layout>(RawSpin<Linux, L>, PhantomData<fn() -> F>);

impl<F, L: Layout> Default for QueueSpin<F, L> {
    fn default() -> Self {
        // As for `RustType`.
        poundlock_linux::init();
        QueueSpin(RawSpin::new(), PhantomData)
    }
}

impl<F: Form, L: Layout + Sync> Lock for QueueSpin<F, L> {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        self.0.lock::<F>();
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        self.0.unlock::<F>();
        0
    }
}

impl<F: Form, L: Layout + Sync> TryLock for QueueSpin<F, L> {
    #[inline(always)]
    fn try_lock(&self, (): &mut ()) -> c_int {
        tried(self.0.try_lock::<F>())
    }
}

/// A baseline as Rust code uses it.
#[repr(align(128))]
pub(crate) struct Plain<S>(S);

impl<S: Default> Default for Plain<S> {
    fn default() -> Self {
        poundlock_linux::init();
        Plain(S::default())
    }
}

impl<S: Spinlock> Lock for Plain<S> {
    type Place = Option<S::Token>;

    #[inline(always)]
    fn lock(&self, place: &mut Self::Place) -> c_int {
        *place = Some(self.0.lock());
        0
    }

    #[inline(always)]
    fn unlock(&self, place: &mut Self::Place) -> c_int {
        let Some(token) = place.take() else { return libc::EPERM };
        self.0.unlock(token);
        0
    }
}

/// No lock: the loop around one.
pub(crate) struct Nothing;

impl Lock for Nothing {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        0
    }
}

/// A compare-and-swap to lock and an exchange to unlock: the least that a lock with sleepers can do.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct BareCasExchange(AtomicU32);

impl Lock for BareCasExchange {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        match self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => 0,
            Err(_) => libc::EBUSY,
        }
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        (self.0.swap(0, Ordering::Release) != 1) as c_int
    }
}

impl TryLock for BareCasExchange {
    #[inline(always)]
    fn try_lock(&self, place: &mut ()) -> c_int {
        self.lock(place)
    }
}

/// A compare-and-swap to lock and a plain store to unlock: the least that a spinlock can do.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct BareCasStore(AtomicU32);

impl Lock for BareCasStore {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        match self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => 0,
            Err(_) => libc::EBUSY,
        }
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        self.0.store(0, Ordering::Release);
        0
    }
}

/// One atomic addition, in place of a lock and an unlock.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct OneAtomicAdd(AtomicU64);

impl Lock for OneAtomicAdd {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        // The result is used, lest the compiler choose an instruction without one.
        black_box(self.0.fetch_add(1, Ordering::AcqRel));
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        0
    }
}

/// One reading of the time stamp counter, in place of a lock and an unlock.
#[cfg(target_arch = "x86_64")]
pub(crate) struct OneTimeStamp;

#[cfg(target_arch = "x86_64")]
impl Lock for OneTimeStamp {
    type Place = ();

    #[inline(always)]
    fn lock(&self, (): &mut ()) -> c_int {
        // SAFETY: every x86-64 CPU has the instruction, and Linux lets user space use it.
        black_box(unsafe { core::arch::x86_64::_rdtsc() });
        0
    }

    #[inline(always)]
    fn unlock(&self, (): &mut ()) -> c_int {
        0
    }
}
