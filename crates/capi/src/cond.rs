//! The condition variable.

use core::ffi::c_int;

use libc::{EPERM, clockid_t, timespec};
use poundlock_core::condvar::{Guarding, Outcome, RawCondvar, Requeued, Target};
use poundlock_core::handoff::{Fixed, Handoff};
use poundlock_core::platform::Deadline;
use poundlock_linux::Linux;

use crate::mutex::poundlock_mutex_t;
use crate::recursive::poundlock_recursive_mutex_t;
use crate::{mutex, recursive, time};

/// A condition variable: 8 bytes, without waiters when they are zero (`POUNDLOCK_COND_INITIALIZER`).
///
/// A signal requeues a waiter to the mutex instead of waking it ("wait morphing", as in OSv and 4.4BSD). So a
/// broadcast wakes no thread that would only wait for the mutex, and each unlock wakes one. Signals reach
/// waiters in order of arrival. Waits may end for no reason, so check a condition, in a loop. Not
/// process-shared.
///
/// What a thread did before it signalled happens before the return of the wait. Waits are not cancellation
/// points: a thread that is cancelled goes on waiting. None of the functions is async-signal-safe.
#[repr(C)]
pub struct poundlock_cond_t {
    /// Private.
    _words: [u32; 2],
}

crate::object! { poundlock_cond_t: RawCondvar<Linux> }

/// A recursive mutex that the caller has locked once.
struct Once<'a>(&'a Handoff<Linux>);

impl<'a> Once<'a> {
    /// `EPERM` unless the caller has locked it exactly once.
    fn of(mutex: &'a Handoff<Linux>) -> Result<Once<'a>, c_int> {
        if mutex.owned() && mutex.depth() == 1 { Ok(Once(mutex)) } else { Err(EPERM) }
    }
}

impl Guarding<Linux> for Once<'_> {
    /// A signalled waiter is woken: only the owner itself can tell the mutex who it is.
    fn mutex(&self) -> Option<Target<'_, Linux>> {
        None
    }

    fn release(&self) {
        self.0.unlock();
    }

    fn acquire(&self) {
        self.0.lock::<Fixed>();
    }

    fn acquire_requeued(&self, _: Requeued) {}
}

/// A wait with an end, or without.
fn wait(cond: &RawCondvar<Linux>, guarding: &impl Guarding<Linux>, deadline: Option<&Deadline>) -> bool {
    cond.wait(guarding, deadline, || false) != Outcome::TimedOut
}

/// Makes it a condition variable without waiters, whatever it was. Needed only where neither the initialiser
/// nor zero bytes are at hand.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_init(cond: *mut poundlock_cond_t) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { cond.cast::<RawCondvar<Linux>>().write(RawCondvar::new()) };
    0
}

/// The end of a condition variable, whose waiters have all been signalled or have reached their time. Waits
/// until none of them touches it any more. Required if there were timed waits, optional otherwise.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_destroy(cond: *mut poundlock_cond_t) -> c_int {
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.drain();
    0
}

/// Unlocks the mutex, which the calling thread has locked, waits for a signal, and locks the mutex again.
/// Unlocking and beginning to wait are one step for threads that lock the mutex afterwards. May return for no
/// reason. Not a cancellation point.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_wait(
    cond: *mut poundlock_cond_t,
    mutex: *mut poundlock_mutex_t,
) -> c_int {
    // SAFETY: the caller's.
    let (cond, mutex) = unsafe { (raw(cond), mutex::raw(mutex)) };
    wait(cond, &mutex, None);
    0
}

/// As `poundlock_cond_wait`, until a time of `clock` at most, which is `CLOCK_MONOTONIC` or `CLOCK_REALTIME`.
///
/// Returns 0; `ETIMEDOUT` if the time has passed and no signal was consumed; `EINVAL` for another clock, or
/// nanoseconds that are not below 1,000,000,000. The mutex is locked in each case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_clockwait(
    cond: *mut poundlock_cond_t,
    mutex: *mut poundlock_mutex_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    let (cond, mutex) = unsafe { (raw(cond), mutex::raw(mutex)) };
    // SAFETY: the caller's time.
    unsafe { time::until(clock, abstime, |deadline| wait(cond, &mutex, Some(deadline))) }
}

/// As `poundlock_cond_wait`, with a recursive mutex that the calling thread has locked once. A broadcast
/// wakes all its waiters.
///
/// Returns 0, or `EPERM` unless the calling thread has locked the mutex exactly once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_wait_recursive(
    cond: *mut poundlock_cond_t,
    mutex: *mut poundlock_recursive_mutex_t,
) -> c_int {
    // SAFETY: the caller's.
    let (cond, mutex) = unsafe { (raw(cond), recursive::raw(mutex)) };
    match Once::of(mutex) {
        Ok(once) => {
            wait(cond, &once, None);
            0
        }
        Err(error) => error,
    }
}

/// As `poundlock_cond_wait_recursive`, until a time of `clock` at most, which is `CLOCK_MONOTONIC` or
/// `CLOCK_REALTIME`.
///
/// Returns 0; `ETIMEDOUT` if the time has passed and no signal was consumed; `EPERM` unless the calling
/// thread has locked the mutex exactly once; `EINVAL` for another clock, or nanoseconds that are not below
/// 1,000,000,000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_clockwait_recursive(
    cond: *mut poundlock_cond_t,
    mutex: *mut poundlock_recursive_mutex_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    // SAFETY: the caller's.
    let (cond, mutex) = unsafe { (raw(cond), recursive::raw(mutex)) };
    match Once::of(mutex) {
        // SAFETY: the caller's time.
        Ok(once) => unsafe { time::until(clock, abstime, |deadline| wait(cond, &once, Some(deadline))) },
        Err(error) => error,
    }
}

/// Signals the thread that has waited longest, if any waits. Without a waiter a signal has no effect.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_signal(cond: *mut poundlock_cond_t) -> c_int {
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.signal();
    0
}

/// Signals all waiters.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_broadcast(cond: *mut poundlock_cond_t) -> c_int {
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.broadcast();
    0
}
