//! The spinlock.

use core::ffi::c_int;

use libc::EBUSY;
use poundlock_core::qspin::{Paravirtual, RawSpin};
use poundlock_linux::Linux;

use crate::seen::{self, Call, Kind, Lock, seen};

/// A spinlock: 4 bytes, unlocked when they are zero (`POUNDLOCK_SPINLOCK_INITIALIZER`).
///
/// For many locks with sections of some dozen instructions. It is Linux's queue spinlock with paravirtual
/// support (Long and Zijlstra, 2015): waiters queue, each spinning on a cache line of its own, and halt when
/// they would only be in the way of a thread that has to run. If a section may be long, or makes a system
/// call, use a `poundlock_mutex_t`. Not process-shared.
///
/// Locking it synchronises with the unlock before. Its functions are async-signal-safe, except that a handler
/// may not lock a spinlock that the interrupted thread has locked, or is about to lock or unlock.
#[repr(C)]
pub struct poundlock_spinlock_t {
    /// Private.
    _word: u32,
}

crate::object! { poundlock_spinlock_t: RawSpin<Linux> }

type Object = *mut poundlock_spinlock_t;

fn lock(spinlock: Object) -> Lock {
    Lock::at(Kind::Spinlock, spinlock.addr())
}

seen! {
    init_seen(Object) -> 1, init_at;
    destroy_seen(Object) -> 1, destroy_at;
    lock_seen(Object) -> 1, lock_at;
    trylock_seen(Object) -> 1, trylock_at;
    unlock_seen(Object) -> 1, unlock_at;
}

/// Makes it an unlocked spinlock, whatever it was. Needed only where neither the initialiser nor zero bytes
/// are at hand.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_spinlock_init(spinlock: *mut poundlock_spinlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { init_seen(spinlock) };
    }
    // SAFETY: the caller's memory.
    unsafe { spinlock.cast::<RawSpin<Linux>>().write(RawSpin::new()) };
    0
}

unsafe extern "C" fn init_at(spinlock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { spinlock.cast::<RawSpin<Linux>>().write(RawSpin::new()) };
    seen::made(Call::at(pc, sp), lock(spinlock));
    0
}

/// The end of a spinlock. Optional: there is nothing to give back.
///
/// Returns 0, or `EBUSY` if it is locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_spinlock_destroy(spinlock: *mut poundlock_spinlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { destroy_seen(spinlock) };
    }
    // SAFETY: the caller's spinlock.
    if unsafe { raw(spinlock) }.is_locked() { EBUSY } else { 0 }
}

unsafe extern "C" fn destroy_at(spinlock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's spinlock.
    let is_locked = unsafe { raw(spinlock) }.is_locked();
    seen::ends(Call::at(pc, sp), lock(spinlock), is_locked);
    if is_locked { EBUSY } else { 0 }
}

/// Locks it, waiting as long as that takes. A thread that has it already waits for ever.
///
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_spinlock_lock(spinlock: *mut poundlock_spinlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { lock_seen(spinlock) };
    }
    // SAFETY: the caller's spinlock.
    unsafe { raw(spinlock) }.lock::<Paravirtual>();
    0
}

unsafe extern "C" fn lock_at(spinlock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's spinlock.
    let raw = unsafe { raw(spinlock) };
    let wait = || {
        raw.lock::<Paravirtual>();
        true
    };
    seen::acquire(Call::at(pc, sp), lock(spinlock), || raw.try_lock::<Paravirtual>(), wait);
    0
}

/// Locks it if it is free.
///
/// Returns 0, or `EBUSY` if it is locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_spinlock_trylock(spinlock: *mut poundlock_spinlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { trylock_seen(spinlock) };
    }
    // SAFETY: the caller's spinlock.
    if unsafe { raw(spinlock) }.try_lock::<Paravirtual>() { 0 } else { EBUSY }
}

unsafe extern "C" fn trylock_at(spinlock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's spinlock.
    let locked = unsafe { raw(spinlock) }.try_lock::<Paravirtual>();
    if seen::tried(Call::at(pc, sp), lock(spinlock), locked) { 0 } else { EBUSY }
}

/// Unlocks it, which the calling thread has locked. Another thread may free the memory as soon as it can lock
/// the spinlock.
///
/// Returns 0. The caller is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_spinlock_unlock(spinlock: *mut poundlock_spinlock_t) -> c_int {
    if seen::is_on() {
        // SAFETY: the caller's.
        return unsafe { unlock_seen(spinlock) };
    }
    // SAFETY: the caller's spinlock.
    unsafe { raw(spinlock) }.unlock::<Paravirtual>();
    0
}

unsafe extern "C" fn unlock_at(spinlock: Object, pc: usize, sp: usize) -> c_int {
    // SAFETY: the caller's spinlock.
    let raw = unsafe { raw(spinlock) };
    let is_locked = raw.is_locked();
    seen::releases(Call::at(pc, sp), lock(spinlock), is_locked);
    if is_locked {
        raw.unlock::<Paravirtual>();
    }
    0
}
