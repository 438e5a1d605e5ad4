//! The recursive mutex.

use core::ffi::c_int;

use libc::{EAGAIN, EBUSY, EPERM, clockid_t, timespec};
use poundlock_core::Platform;
use poundlock_core::handoff::{Fixed, Handoff};
use poundlock_linux::Linux;

use crate::seen::{self, Call, Kind, Lock, seen};
use crate::time;

/// A recursive mutex: 28 bytes, unlocked when they are zero (`POUNDLOCK_RECURSIVE_MUTEX_INITIALIZER`).
///
/// The thread that has locked it may lock it again, and unlocks it as often. It is fair: an unlock passes it
/// to the oldest waiter, after Gidenstam and Papatriantafilou (LFTHREADS, 2007) and OSv. Waiters spin for a
/// while before they queue and sleep. Not process-shared.
///
/// Locking it synchronises with the unlock before. Its functions are async-signal-safe, except that a handler
/// may not use a mutex that the interrupted thread is locking or unlocking.
#[repr(C)]
pub struct poundlock_recursive_mutex_t {
    /// Private.
    _words: [u32; 7],
}

crate::object! { pub(crate) poundlock_recursive_mutex_t: Handoff<Linux> }

type Object = *mut poundlock_recursive_mutex_t;

pub(crate) fn lock(mutex: Object) -> Lock {
    Lock::at(Kind::Mutex, mutex.addr())
}

seen! {
    init_seen(Object) -> 1, init_at;
    destroy_seen(Object) -> 1, destroy_at;
    lock_seen(Object) -> 1, lock_at;
    trylock_seen(Object) -> 1, trylock_at;
    clocklock_seen(Object, clockid_t, *const timespec) -> 3, clocklock_at;
    unlock_seen(Object) -> 1, unlock_at;
}

/// Whether the caller has locked it as often as can be counted.
#[inline(always)]
fn is_full(mutex: &Handoff<Linux>) -> bool {
    // Most calls read two words of the mutex, and do not ask who the caller is.
    mutex.depth() == u32::MAX && mutex.owned()
}

/// Makes it an unlocked mutex, whatever it was. Needed only where neither the initialiser nor zero bytes are
/// at hand.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_recursive_mutex_init(mutex: *mut poundlock_recursive_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { init_seen(mutex) };
    }
    // SAFETY: the caller's memory.
    unsafe { mutex.cast::<Handoff<Linux>>().write(Handoff::new()) };
    0
}

unsafe extern "C" fn init_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { mutex.cast::<Handoff<Linux>>().write(Handoff::new()) };
    seen::made(Call::at(pc, sp), lock(mutex));
    0
}

/// The end of a mutex. Optional: there is nothing to give back.
///
/// Returns 0, or `EBUSY` if it is locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_recursive_mutex_destroy(mutex: *mut poundlock_recursive_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { destroy_seen(mutex) };
    }
    // SAFETY: the caller's mutex.
    if unsafe { raw(mutex) }.depth() != 0 { EBUSY } else { 0 }
}

unsafe extern "C" fn destroy_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let is_locked = unsafe { raw(mutex) }.depth() != 0;
    seen::ends(Call::at(pc, sp), lock(mutex), is_locked);
    if is_locked { EBUSY } else { 0 }
}

/// Locks it, once more if the calling thread has it, waiting as long as that takes.
///
/// Returns 0, or `EAGAIN` if the calling thread has locked it 4,294,967,295 times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_recursive_mutex_lock(mutex: *mut poundlock_recursive_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { lock_seen(mutex) };
    }
    // SAFETY: the caller's mutex.
    let mutex = unsafe { raw(mutex) };
    if is_full(mutex) {
        return EAGAIN;
    }
    mutex.lock::<Fixed>();
    0
}

unsafe extern "C" fn lock_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let raw = unsafe { raw(mutex) };
    if is_full(raw) {
        return EAGAIN;
    }
    let wait = || {
        raw.lock::<Fixed>();
        true
    };
    // Once more is no acquisition.
    let call = Call::at(pc, sp).filter(|_| !raw.owned());
    seen::acquire(call, lock(mutex), || raw.try_lock(), wait);
    0
}

/// Locks it if it is free, or once more if the calling thread has it.
///
/// Returns 0; `EBUSY` if another thread has it; `EAGAIN` if the calling thread has locked it 4,294,967,295
/// times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_recursive_mutex_trylock(mutex: *mut poundlock_recursive_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { trylock_seen(mutex) };
    }
    // SAFETY: the caller's mutex.
    let mutex = unsafe { raw(mutex) };
    match is_full(mutex) {
        true => EAGAIN,
        false if mutex.try_lock() => 0,
        false => EBUSY,
    }
}

unsafe extern "C" fn trylock_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let raw = unsafe { raw(mutex) };
    if is_full(raw) {
        return EAGAIN;
    }
    let call = Call::at(pc, sp).filter(|_| !raw.owned());
    if seen::tried(call, lock(mutex), raw.try_lock()) { 0 } else { EBUSY }
}

/// Locks it, once more if the calling thread has it, waiting until a time of `clock` at most, which is
/// `CLOCK_MONOTONIC` or `CLOCK_REALTIME`. A free mutex is locked whatever the time.
///
/// Returns 0; `ETIMEDOUT` if the time has passed; `EINVAL` for another clock, or nanoseconds that are not
/// below 1,000,000,000; `EAGAIN` if the calling thread has locked it 4,294,967,295 times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_recursive_mutex_clocklock(
    mutex: *mut poundlock_recursive_mutex_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clocklock_seen(mutex, clock, abstime) };
    }
    // SAFETY: the caller's mutex.
    let mutex = unsafe { raw(mutex) };
    if is_full(mutex) {
        return EAGAIN;
    }
    // SAFETY: the caller's time.
    unsafe { time::until(clock, abstime, |deadline| mutex.lock_until::<Fixed>(deadline)) }
}

unsafe extern "C" fn clocklock_at(
    mutex: Object,
    clock: clockid_t,
    abstime: *const timespec,
    pc: usize,
    sp: usize,
) -> c_int {
    // SAFETY: the caller's mutex.
    let raw = unsafe { raw(mutex) };
    if is_full(raw) {
        return EAGAIN;
    }
    let call = Call::at(pc, sp).filter(|_| !raw.owned());
    let wait = |deadline: &_| raw.lock_until::<Fixed>(deadline);
    // SAFETY: the caller's time.
    unsafe { seen::acquire_until(call, lock(mutex), (clock, abstime), || raw.try_lock(), wait) }
}

/// Undoes one locking of the calling thread's; the last one unlocks the mutex. Another thread may free the
/// memory as soon as it can lock it.
///
/// Returns 0, or `EPERM` if the calling thread does not have it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_recursive_mutex_unlock(mutex: *mut poundlock_recursive_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { unlock_seen(mutex) };
    }
    // SAFETY: the caller's mutex.
    let mutex = unsafe { raw(mutex) };
    // A thread for which the registry has no room has no identity, and gets no error.
    if !mutex.owned() && Linux::current().is_some() {
        return EPERM;
    }
    mutex.unlock();
    0
}

unsafe extern "C" fn unlock_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let raw = unsafe { raw(mutex) };
    let call = Call::at(pc, sp);
    if !raw.owned() && Linux::current().is_some() {
        seen::refuses(call, lock(mutex), raw.depth() != 0);
        return EPERM;
    }
    if raw.depth() == 1 {
        seen::releases(call, lock(mutex), true);
    }
    raw.unlock();
    0
}
