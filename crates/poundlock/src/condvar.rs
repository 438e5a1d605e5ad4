//! The condition variable.

use core::fmt;
use std::time::{Duration, Instant};

use lock_api::MutexGuard;
use poundlock_core::condvar::{Guarding, Outcome, RawCondvar, Requeued, Target};
use poundlock_core::platform::Deadline;
use poundlock_linux::Linux;

use crate::mutex::{RawFairMutex, RawMutex};
use crate::raw::Exclusive;
use crate::stats::{Kind, Patience, Slot};
use crate::{stats, time};

mod sealed {
    use super::{Linux, Requeued, Slot, Target};

    /// What a signalled waiter is moved to.
    pub trait Sealed {
        fn target(&self) -> Target<'_, Linux>;
        /// Acquires it, however long it takes.
        fn acquire(&self);
        fn receive(&self, waiter: Requeued);
        fn slot(&self) -> &Slot;
    }
}

/// A mutex under which a thread can wait on a [`Condvar`]: that of [`Mutex`](crate::Mutex), and that of
/// [`FairMutex`](crate::FairMutex).
pub trait Waitable: lock_api::RawMutex + sealed::Sealed {}

impl sealed::Sealed for RawMutex {
    fn target(&self) -> Target<'_, Linux> {
        Target::Poundlock(self.raw.words())
    }

    fn acquire(&self) {
        Exclusive::lock(&self.raw);
    }

    fn receive(&self, waiter: Requeued) {
        waiter.barge(&self.raw);
    }

    fn slot(&self) -> &Slot {
        &self.slot
    }
}

impl sealed::Sealed for RawFairMutex {
    fn target(&self) -> Target<'_, Linux> {
        Target::Handoff(&self.raw)
    }

    fn acquire(&self) {
        Exclusive::lock(&self.raw);
    }

    fn receive(&self, waiter: Requeued) {
        waiter.receive(&self.raw);
    }

    fn slot(&self) -> &Slot {
        &self.slot
    }
}

impl Waitable for RawMutex {}
impl Waitable for RawFairMutex {}

/// A mutex that the calling thread holds.
struct Held<'a, R>(&'a R);

impl<R: Waitable> Guarding<Linux> for Held<'_, R> {
    fn mutex(&self) -> Option<Target<'_, Linux>> {
        Some(self.0.target())
    }

    fn release(&self) {
        // SAFETY: it is held.
        unsafe { self.0.unlock() };
    }

    // Part of the wait for the condition, not one for the mutex.
    fn acquire(&self) {
        self.0.acquire();
        self.0.slot().acquired(Kind::Mutex);
    }

    fn acquire_requeued(&self, waiter: Requeued) {
        self.0.receive(waiter);
        self.0.slot().acquired(Kind::Mutex);
    }
}

/// How a wait with an end has ended.
///
/// ```
/// use std::time::Duration;
/// use poundlock::{Condvar, Mutex};
///
/// let (nothing, mutex) = (Condvar::new(), Mutex::new(()));
/// assert!(nothing.wait_for(&mut mutex.lock(), Duration::from_millis(1)).timed_out());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time had passed, and no notification was consumed.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition variable: 8 bytes.
///
/// A notification requeues a waiter to the mutex instead of waking it. So `notify_all` wakes no thread that
/// would only wait for the mutex, and each unlock wakes one. The methods are those of parking_lot's, except
/// that the notifying ones do not return how many they reached. Waits may end for no reason, so always check
/// a condition. Notifications reach waiters in order of arrival.
///
/// No method allocates or unwinds; none is async-signal-safe. What a thread did before it notified happens
/// before the return of the wait.
///
/// ```
/// use std::collections::VecDeque;
/// use poundlock::{Condvar, Mutex};
///
/// struct Queue { jobs: Mutex<VecDeque<u32>>, some: Condvar }
///
/// static QUEUE: Queue = Queue { jobs: Mutex::new(VecDeque::new()), some: Condvar::new() };
///
/// std::thread::scope(|scope| {
///     let worker = scope.spawn(|| {
///         let mut jobs = QUEUE.jobs.lock();
///         QUEUE.some.wait_while(&mut jobs, |jobs| jobs.is_empty());
///         jobs.pop_front()
///     });
///     QUEUE.jobs.lock().push_back(7);
///     QUEUE.some.notify_one();
///     assert_eq!(worker.join().unwrap(), Some(7));
/// });
/// ```
#[derive(Default)]
pub struct Condvar {
    raw: RawCondvar<Linux>,
}

impl Condvar {
    /// Without waiters.
    ///
    /// ```
    /// static CHANGED: poundlock::Condvar = poundlock::Condvar::new();
    /// CHANGED.notify_all();
    /// ```
    pub const fn new() -> Condvar {
        Condvar { raw: RawCondvar::new() }
    }

    /// Unlocks the mutex, waits to be notified, and locks it again. Unlocking and beginning to wait are one
    /// step for threads that lock the mutex afterwards. May return for no reason.
    ///
    /// ```
    /// use poundlock::{Condvar, FairMutex};
    ///
    /// let (ready, changed) = (FairMutex::new(false), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         *ready.lock() = true;
    ///         changed.notify_one();
    ///     });
    ///     let mut ready = ready.lock();
    ///     while !*ready {
    ///         changed.wait(&mut ready);
    ///     }
    /// });
    /// ```
    pub fn wait<R: Waitable, T: ?Sized>(&self, guard: &mut MutexGuard<'_, R, T>) {
        self.wait_before(guard, None);
    }

    /// As [`Condvar::wait`], but returns once that time has passed.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use poundlock::{Condvar, Mutex};
    ///
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// let end = Instant::now() + Duration::from_millis(1);
    /// let mut ready = ready.lock();
    /// while !*ready {
    ///     if changed.wait_until(&mut ready, end).timed_out() {
    ///         break;
    ///     }
    /// }
    /// assert!(Instant::now() >= end);
    /// ```
    pub fn wait_until<R: Waitable, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        timeout: Instant,
    ) -> WaitTimeoutResult {
        self.wait_before(guard, Some(&time::at(timeout)))
    }

    /// As [`Condvar::wait`], but returns after that long.
    ///
    /// ```
    /// use std::time::Duration;
    /// use poundlock::{Condvar, Mutex};
    ///
    /// let (state, changed) = (Mutex::new(()), Condvar::new());
    /// let result = changed.wait_for(&mut state.lock(), Duration::from_millis(1));
    /// assert!(result.timed_out());
    /// ```
    pub fn wait_for<R: Waitable, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_before(guard, Some(&time::after(timeout)))
    }

    /// Waits as long as the condition holds.
    ///
    /// ```
    /// use poundlock::{Condvar, Mutex};
    ///
    /// let (busy, changed) = (Mutex::new(true), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         *busy.lock() = false;
    ///         changed.notify_all();
    ///     });
    ///     changed.wait_while(&mut busy.lock(), |busy| *busy);
    /// });
    /// ```
    pub fn wait_while<R: Waitable, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// As [`Condvar::wait_while`], but returns once that time has passed. It has timed out if the condition
    /// still holds then.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use poundlock::{Condvar, Mutex};
    ///
    /// let (busy, changed) = (Mutex::new(true), Condvar::new());
    /// let end = Instant::now() + Duration::from_millis(1);
    /// assert!(changed.wait_while_until(&mut busy.lock(), |busy| *busy, end).timed_out());
    /// ```
    pub fn wait_while_until<R: Waitable, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Instant,
    ) -> WaitTimeoutResult {
        self.wait_while_before(guard, condition, &time::at(timeout))
    }

    /// As [`Condvar::wait_while`], but returns after that long. It has timed out if the condition still holds
    /// then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use poundlock::{Condvar, Mutex};
    ///
    /// let (busy, changed) = (Mutex::new(true), Condvar::new());
    /// let result = changed.wait_while_for(&mut busy.lock(), |busy| *busy, Duration::from_millis(1));
    /// assert!(result.timed_out());
    /// ```
    pub fn wait_while_for<R: Waitable, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_while_before(guard, condition, &time::after(timeout))
    }

    /// Notifies the thread that has waited longest, if any waits. Without a waiter a notification has no
    /// effect.
    ///
    /// ```
    /// let changed = poundlock::Condvar::new();
    /// changed.notify_one();
    /// ```
    #[inline]
    pub fn notify_one(&self) {
        stats::wakes(self.address(), false);
        self.raw.signal();
    }

    /// Notifies all waiters.
    ///
    /// ```
    /// let changed = poundlock::Condvar::new();
    /// changed.notify_all();
    /// ```
    #[inline]
    pub fn notify_all(&self) {
        stats::wakes(self.address(), true);
        self.raw.broadcast();
    }

    fn wait_while_before<R: Waitable, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        deadline: &Deadline,
    ) -> WaitTimeoutResult {
        while condition(guard) {
            if self.wait_before(guard, Some(deadline)).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    fn wait_before<R: Waitable, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        deadline: Option<&Deadline>,
    ) -> WaitTimeoutResult {
        // SAFETY: the guard's mutex is unlocked only in between, where its value is out of the caller's
        // reach: the guard is borrowed.
        let mutex = unsafe { MutexGuard::mutex(guard).raw() };
        let patience = if deadline.is_some() { Patience::UntilSomeTime } else { Patience::Endless };
        stats::waits(self.address(), patience, mutex.slot());
        let timed_out = self.raw.wait(&Held(mutex), deadline, || false) == Outcome::TimedOut;
        stats::woken(self.address(), mutex.slot(), timed_out);
        WaitTimeoutResult(timed_out)
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

#[cfg(feature = "stats")]
impl Drop for Condvar {
    fn drop(&mut self) {
        stats::condition_ends(self.address());
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
