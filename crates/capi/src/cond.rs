//! The condition variable.

use core::ffi::c_int;

use libc::{EPERM, clockid_t, timespec};
use poundlock_core::condvar::{Guarding, Outcome, RawCondvar, Requeued, Target};
use poundlock_core::handoff::{Fixed, Handoff};
use poundlock_core::platform::Deadline;
use poundlock_linux::Linux;

use crate::mutex::poundlock_mutex_t;
use crate::recursive::poundlock_recursive_mutex_t;
use crate::seen::{self, Call, Kind, Lock, TIMED, seen};
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

type Object = *mut poundlock_cond_t;
type Mutex = *mut poundlock_mutex_t;
type Recursive = *mut poundlock_recursive_mutex_t;

fn condition(cond: Object) -> Lock {
    Lock::at(Kind::Condition, cond.addr())
}

seen! {
    init_seen(Object) -> 1, init_at;
    destroy_seen(Object) -> 1, destroy_at;
    wait_seen(Object, Mutex) -> 2, wait_at;
    clockwait_seen(Object, Mutex, clockid_t, *const timespec) -> 4, clockwait_at;
    wait_recursive_seen(Object, Recursive) -> 2, wait_recursive_at;
    clockwait_recursive_seen(Object, Recursive, clockid_t, *const timespec) -> 4, clockwait_recursive_at;
    signal_seen(Object) -> 1, signal_at;
    broadcast_seen(Object) -> 1, broadcast_at;
}

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

/// As [`wait`], where the process is measured.
///
/// # Safety
/// `cond` points to a condition variable.
unsafe fn wait_with<G: Guarding<Linux>>(
    call: Option<Call>,
    cond: Object,
    (mutex, guarding): (Lock, G),
    deadline: Option<&Deadline>,
) -> bool {
    // SAFETY: the caller's.
    let raw = unsafe { raw(cond) };
    match call {
        Some(call) => {
            let condition = condition(cond).that(if deadline.is_some() { TIMED } else { 0 });
            seen::await_with(call, condition, mutex, guarding, |mutex| wait(raw, mutex, deadline))
        }
        None => wait(raw, &guarding, deadline),
    }
}

/// Makes it a condition variable without waiters, whatever it was. Needed only where neither the initialiser
/// nor zero bytes are at hand.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_init(cond: *mut poundlock_cond_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { init_seen(cond) };
    }
    // SAFETY: the caller's memory.
    unsafe { cond.cast::<RawCondvar<Linux>>().write(RawCondvar::new()) };
    0
}

unsafe extern "C" fn init_at(cond: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { cond.cast::<RawCondvar<Linux>>().write(RawCondvar::new()) };
    seen::made(Call::at(pc, sp), condition(cond));
    0
}

/// The end of a condition variable, whose waiters have all been signalled or have reached their time. Waits
/// until none of them touches it any more. Required if there were timed waits, optional otherwise.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_destroy(cond: *mut poundlock_cond_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { destroy_seen(cond) };
    }
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.drain();
    0
}

unsafe extern "C" fn destroy_at(cond: Object, pc: usize, sp: usize) -> c_int {
    seen::ends(Call::at(pc, sp), condition(cond), false);
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
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { wait_seen(cond, mutex) };
    }
    // SAFETY: the caller's.
    let (cond, mutex) = unsafe { (raw(cond), mutex::raw(mutex)) };
    wait(cond, &mutex, None);
    0
}

unsafe extern "C" fn wait_at(cond: Object, mutex: Mutex, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { wait_with(Call::at(pc, sp), cond, (mutex::lock(mutex), mutex::raw(mutex)), None) };
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
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clockwait_seen(cond, mutex, clock, abstime) };
    }
    // SAFETY: the caller's.
    let (cond, mutex) = unsafe { (raw(cond), mutex::raw(mutex)) };
    // SAFETY: the caller's time.
    unsafe { time::until(clock, abstime, |deadline| wait(cond, &mutex, Some(deadline))) }
}

unsafe extern "C" fn clockwait_at(
    cond: Object,
    mutex: Mutex,
    clock: clockid_t,
    abstime: *const timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let with = (mutex::lock(mutex), mutex::raw(mutex));
        time::until(clock, abstime, |deadline| wait_with(Call::at(pc, sp), cond, with, Some(deadline)))
    }
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
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { wait_recursive_seen(cond, mutex) };
    }
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

unsafe extern "C" fn wait_recursive_at(cond: Object, mutex: Recursive, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's.
    match Once::of(unsafe { recursive::raw(mutex) }) {
        Ok(once) => {
            // SAFETY: the caller's.
            unsafe { wait_with(Call::at(pc, sp), cond, (recursive::lock(mutex), once), None) };
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
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clockwait_recursive_seen(cond, mutex, clock, abstime) };
    }
    // SAFETY: the caller's.
    let (cond, mutex) = unsafe { (raw(cond), recursive::raw(mutex)) };
    match Once::of(mutex) {
        // SAFETY: the caller's time.
        Ok(once) => unsafe { time::until(clock, abstime, |deadline| wait(cond, &once, Some(deadline))) },
        Err(error) => error,
    }
}

unsafe extern "C" fn clockwait_recursive_at(
    cond: Object,
    mutex: Recursive,
    clock: clockid_t,
    abstime: *const timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    // SAFETY: the caller's.
    match Once::of(unsafe { recursive::raw(mutex) }) {
        // SAFETY: the caller's.
        Ok(once) => unsafe {
            let with = (recursive::lock(mutex), once);
            time::until(clock, abstime, |deadline| wait_with(Call::at(pc, sp), cond, with, Some(deadline)))
        },
        Err(error) => error,
    }
}

/// Signals the thread that has waited longest, if any waits. Without a waiter a signal has no effect.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_signal(cond: *mut poundlock_cond_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { signal_seen(cond) };
    }
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.signal();
    0
}

unsafe extern "C" fn signal_at(cond: Object, pc: usize, sp: usize) -> c_int {
    seen::wakes(Call::at(pc, sp), condition(cond), false);
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.signal();
    0
}

/// Signals all waiters.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_cond_broadcast(cond: *mut poundlock_cond_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { broadcast_seen(cond) };
    }
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.broadcast();
    0
}

unsafe extern "C" fn broadcast_at(cond: Object, pc: usize, sp: usize) -> c_int {
    seen::wakes(Call::at(pc, sp), condition(cond), true);
    // SAFETY: the caller's condition variable.
    unsafe { raw(cond) }.broadcast();
    0
}
