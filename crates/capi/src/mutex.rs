//! The mutex.

use core::ffi::c_int;
use core::hint::black_box;

use libc::{EBUSY, clockid_t, timespec};
use poundlock_core::poundlock::{Contended, RawPoundlock};
use poundlock_linux::{Linux, tls};

use crate::seen::{self, Call, Kind, Lock, seen};
use crate::time;

/// A mutex: 20 bytes, unlocked when they are zero (`POUNDLOCK_MUTEX_INITIALIZER`).
///
/// A thread that finds it free takes it. One waiter is awake, and the others sleep. A waiter spins as long as
/// that may help, in an MCS queue (Mellor-Crummey and Scott, TOCS 1991). A waiter that has waited for too
/// long is handed the mutex. It is not recursive: a thread that locks it twice waits for ever. Not
/// process-shared.
///
/// Locking it synchronises with the unlock before: what the last owner did happens before. Its functions are
/// async-signal-safe, except that a handler may not lock a mutex that the interrupted thread has locked, or
/// is about to lock or unlock.
#[repr(C)]
pub struct poundlock_mutex_t {
    /// Private.
    _words: [u32; 5],
}

crate::object! { pub(crate) poundlock_mutex_t: RawPoundlock<Linux> }

type Object = *mut poundlock_mutex_t;

pub(crate) fn lock(mutex: Object) -> Lock {
    Lock::at(Kind::Mutex, mutex.addr())
}

seen! {
    init_seen(Object) -> 1, init_at;
    destroy_seen(Object) -> 1, destroy_at;
    lock_seen(&RawPoundlock<Linux>) -> 1, lock_at;
    trylock_seen(Object) -> 1, trylock_at;
    clocklock_seen(Object, clockid_t, *const timespec) -> 3, clocklock_at;
    unlock_seen(&RawPoundlock<Linux>) -> 1, unlock_at;
}

/// Makes it an unlocked mutex, whatever it was. Needed only where neither the initialiser nor zero bytes are
/// at hand.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_mutex_init(mutex: *mut poundlock_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { init_seen(mutex) };
    }
    // SAFETY: the caller's memory.
    unsafe { mutex.cast::<RawPoundlock<Linux>>().write(RawPoundlock::new()) };
    0
}

unsafe extern "C" fn init_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { mutex.cast::<RawPoundlock<Linux>>().write(RawPoundlock::new()) };
    seen::made(Call::at(pc, sp), lock(mutex));
    0
}

/// The end of a mutex. Optional: there is nothing to give back.
///
/// Returns 0, or `EBUSY` if it is locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_mutex_destroy(mutex: *mut poundlock_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { destroy_seen(mutex) };
    }
    // SAFETY: the caller's mutex.
    if unsafe { raw(mutex) }.is_locked() { EBUSY } else { 0 }
}

unsafe extern "C" fn destroy_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let is_locked = unsafe { raw(mutex) }.is_locked();
    seen::ends(Call::at(pc, sp), lock(mutex), is_locked);
    if is_locked { EBUSY } else { 0 }
}

/// Locks it, waiting as long as that takes.
///
/// Returns 0.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poundlock_mutex_lock")]
pub unsafe extern "C" fn poundlock_mutex_lock(mutex: *mut poundlock_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    let mutex = unsafe { raw(mutex) };
    if !tls::is_usual() {
        return lock_unusual(mutex);
    }
    if mutex.take_tagged(tls::area_tag) { 0 } else { lock_contended(mutex) }
}

/// Locks it if it is free.
///
/// Returns 0, or `EBUSY` if it is locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_mutex_trylock(mutex: *mut poundlock_mutex_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { trylock_seen(mutex) };
    }
    // SAFETY: the caller's mutex.
    if unsafe { raw(mutex) }.try_lock() { 0 } else { EBUSY }
}

unsafe extern "C" fn trylock_at(mutex: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let locked = unsafe { raw(mutex) }.try_lock();
    if seen::tried(Call::at(pc, sp), lock(mutex), locked) { 0 } else { EBUSY }
}

/// Locks it, waiting until a time of `clock` at most, which is `CLOCK_MONOTONIC` or `CLOCK_REALTIME`. A free
/// mutex is locked whatever the time.
///
/// Returns 0; `ETIMEDOUT` if the time has passed; `EINVAL` for another clock, or nanoseconds that are not
/// below 1,000,000,000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_mutex_clocklock(
    mutex: *mut poundlock_mutex_t,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { clocklock_seen(mutex, clock, abstime) };
    }
    // SAFETY: the caller's time, and mutex.
    unsafe { time::until(clock, abstime, |deadline| raw(mutex).lock_until(deadline).is_ok()) }
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
    let wait = |deadline: &_| raw.lock_until(deadline).is_ok();
    // SAFETY: the caller's time.
    unsafe { seen::acquire_until(Call::at(pc, sp), lock(mutex), (clock, abstime), || raw.try_lock(), wait) }
}

/// Unlocks it, which the calling thread has locked. Another thread may free the memory as soon as it can lock
/// the mutex.
///
/// Returns 0. The caller is not checked; a mutex that is not locked is left as it is.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poundlock_mutex_unlock")]
pub unsafe extern "C" fn poundlock_mutex_unlock(mutex: *mut poundlock_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    let mutex = unsafe { raw(mutex) };
    if !tls::is_usual() || mutex.is_kept() {
        return unlock_unusual(mutex);
    }
    if mutex.unlock_biased() { 0 } else { unlock_unusual(mutex) }
}

// The fast paths go on by a jump, so that they need no stack frame: a result that the compiler knows would
// make a call of it.

#[inline(never)]
fn lock_unusual(mutex: &RawPoundlock<Linux>) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's mutex.
        return unsafe { lock_seen(mutex) };
    }
    if mutex.take() { 0 } else { lock_contended(mutex) }
}

#[cold]
#[inline(never)]
fn lock_contended(mutex: &RawPoundlock<Linux>) -> c_int {
    mutex.lock_contended();
    black_box(0)
}

#[inline(never)]
#[unsafe(link_section = ".text.poundlock_mutex_unlock_unusual")]
fn unlock_unusual(mutex: &RawPoundlock<Linux>) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's mutex.
        return unsafe { unlock_seen(mutex) };
    }
    match mutex.unlock_fast() {
        Ok(()) => 0,
        Err(why) => unlock_contended(mutex, why),
    }
}

#[cold]
#[inline(never)]
fn unlock_contended(mutex: &RawPoundlock<Linux>, why: Contended) -> c_int {
    mutex.unlock_contended(why);
    black_box(0)
}

extern "C" fn lock_at(mutex: &RawPoundlock<Linux>, pc: usize, sp: usize) -> c_int {
    let wait = || {
        mutex.lock();
        true
    };
    seen::acquire(Call::at(pc, sp), of_raw(mutex), || mutex.try_lock(), wait);
    0
}

extern "C" fn unlock_at(mutex: &RawPoundlock<Linux>, pc: usize, sp: usize) -> c_int {
    let is_locked = mutex.is_locked();
    seen::releases(Call::at(pc, sp), of_raw(mutex), is_locked);
    if is_locked {
        mutex.unlock();
    }
    0
}

fn of_raw(mutex: &RawPoundlock<Linux>) -> Lock {
    lock(core::ptr::from_ref(mutex).cast_mut().cast())
}

poundlock_linux::cache_lines! {
    ".text.poundlock_mutex_lock" ".text.poundlock_mutex_unlock" ".text.poundlock_mutex_unlock_unusual"
}
