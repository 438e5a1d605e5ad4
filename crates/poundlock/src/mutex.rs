//! The mutexes.

use poundlock_core::handoff::RawHandoff;
use poundlock_core::poundlock::RawPoundlock;
use poundlock_linux::Linux;

use crate::raw::{Exclusive, Timed, impl_lock_api};
use crate::stats::{Kind, Patience, Slot};

/// The mutex under [`Mutex`], for code that is generic over [`lock_api::RawMutex`].
///
/// A thread that finds it free takes it (barging). One waiter, the designated waker, spins in an MCS queue
/// (Mellor-Crummey and Scott, TOCS 1991) while that may help; the others sleep. A waiter that was woken in
/// vain too often is handed the mutex. docs/POUNDLOCK.md says how it works.
///
/// Acquiring synchronises with the release before. No method allocates, panics or unwinds; none is
/// async-signal-safe with respect to the same mutex, all are with respect to others.
///
/// ```
/// use poundlock::lock_api::{Mutex, RawMutex};
///
/// /// In a library that leaves the choice of the lock to its user.
/// struct Log<R: RawMutex>(Mutex<R, Vec<&'static str>>);
///
/// let log: Log<poundlock::RawMutex> = Log(Mutex::new(Vec::new()));
/// log.0.lock().push("begun");
/// assert_eq!(log.0.into_inner(), ["begun"]);
/// ```
#[repr(C)]
pub struct RawMutex {
    pub(crate) slot: Slot,
    pub(crate) raw: RawPoundlock<Linux>,
}

impl_lock_api!(timed Mutex: RawMutex);

/// The mutex under [`FairMutex`] and [`ReentrantMutex`](crate::ReentrantMutex): the hand-off mutex.
///
/// It has no inner lock, after Gidenstam and Papatriantafilou (LFTHREADS, 2007) and OSv: an unlock passes it
/// to the oldest waiter, or leaves a token for a waiter that is on its way to the queue. Lockers spin for a
/// while before they queue. docs/HANDOFF.md says how it works.
///
/// Acquiring synchronises with the release before. No method allocates, panics or unwinds; none is
/// async-signal-safe with respect to the same mutex, all are with respect to others.
///
/// ```
/// use poundlock::RawFairMutex;
/// use poundlock::lock_api::RawMutex;
///
/// let mutex = RawFairMutex::INIT;
/// mutex.lock();
/// assert!(!mutex.try_lock());
/// // SAFETY: it is held.
/// unsafe { mutex.unlock() };
/// ```
#[repr(C)]
pub struct RawFairMutex {
    pub(crate) slot: Slot,
    pub(crate) raw: RawHandoff<Linux>,
}

impl_lock_api!(timed Mutex: RawFairMutex);

// SAFETY: every unlock passes the mutex on.
unsafe impl lock_api::RawMutexFair for RawFairMutex {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller's.
        unsafe { lock_api::RawMutex::unlock(self) }
    }
}

/// A mutex around a value: `std::sync::Mutex` without poisoning, 20 bytes and the value.
///
/// For the rest see [`lock_api::Mutex`]; it adds `try_lock_for` a [`Duration`](std::time::Duration),
/// `try_lock_until` an [`Instant`](std::time::Instant), and guards that own an [`Arc`](std::sync::Arc)
/// (`lock_arc`).
///
/// Locking it again by the same thread waits for ever. A panic while it is held unlocks it. Threads are
/// served in no particular order, and none waits for ever.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use poundlock::{Mutex, MutexGuard};
///
/// struct Account { name: String, balance: i64 }
///
/// let account = Arc::new(Mutex::new(Account { name: "cash".to_string(), balance: 0 }));
/// account.lock().balance += 5;
/// {
///     // A guard of a part.
///     let mut balance = MutexGuard::map(account.lock(), |account| &mut account.balance);
///     *balance += 1;
///     assert!(account.try_lock().is_none());
///     assert!(account.try_lock_for(Duration::from_millis(1)).is_none());
/// }
/// // A guard without a lifetime.
/// let guard = account.lock_arc();
/// assert_eq!((guard.name.as_str(), guard.balance), ("cash", 6));
/// drop(guard);
/// assert_eq!(Arc::into_inner(account).unwrap().into_inner().balance, 6);
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Unlocks a [`Mutex`] when it is dropped, and is the way to its value.
///
/// ```
/// use poundlock::{Mutex, MutexGuard};
///
/// fn first(mut guard: MutexGuard<'_, Vec<u32>>) -> Option<u32> {
///     guard.pop()
/// }
///
/// let numbers = Mutex::new(vec![1, 2]);
/// assert_eq!(first(numbers.lock()), Some(2));
/// ```
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Made by [`MutexGuard::map`](lock_api::MutexGuard::map), for a part of the value.
///
/// ```
/// use poundlock::{MappedMutexGuard, Mutex, MutexGuard};
///
/// let pair = Mutex::new((1, "one"));
/// let name: MappedMutexGuard<'_, &str> = MutexGuard::map(pair.lock(), |pair| &mut pair.1);
/// assert_eq!(*name, "one");
/// ```
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

/// Made by [`Mutex::lock_arc`](lock_api::Mutex::lock_arc): keeps the mutex alive.
///
/// ```
/// use std::sync::Arc;
/// use poundlock::{ArcMutexGuard, Mutex};
///
/// let guard: ArcMutexGuard<u32> = Mutex::lock_arc(&Arc::new(Mutex::new(7)));
/// assert_eq!(*guard, 7);
/// ```
pub type ArcMutexGuard<T> = lock_api::ArcMutexGuard<RawMutex, T>;

/// A mutex around a value, whose waiters are served in order of arrival; 20 bytes and the value. Slower than
/// [`Mutex`] where threads outnumber CPUs: there each hand-over is a wake-up.
///
/// ```
/// use poundlock::{FairMutex, FairMutexGuard};
///
/// static JOBS: FairMutex<Vec<u32>> = FairMutex::new(Vec::new());
///
/// let mut jobs = JOBS.lock();
/// jobs.push(3);
/// // Waiters go first.
/// FairMutexGuard::bump(&mut jobs);
/// assert_eq!(jobs.len(), 1);
/// ```
pub type FairMutex<T> = lock_api::Mutex<RawFairMutex, T>;

/// Unlocks a [`FairMutex`] when it is dropped, and is the way to its value.
///
/// ```
/// use poundlock::{FairMutex, FairMutexGuard};
///
/// let turn = FairMutex::new(1);
/// FairMutexGuard::unlock_fair(turn.lock());
/// assert!(!turn.is_locked());
/// ```
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;

/// Made by [`FairMutexGuard::map`](lock_api::MutexGuard::map), for a part of the value.
///
/// ```
/// use poundlock::{FairMutex, FairMutexGuard, MappedFairMutexGuard};
///
/// let pair = FairMutex::new((1, 2));
/// let second: MappedFairMutexGuard<'_, i32> = FairMutexGuard::map(pair.lock(), |pair| &mut pair.1);
/// assert_eq!(*second, 2);
/// ```
pub type MappedFairMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawFairMutex, T>;
