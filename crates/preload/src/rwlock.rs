//! `pthread_rwlock_*`.
//!
//! The fast paths are a look at how the program runs, one at whose the lock is, and a step of its word; they
//! make no call. Errors are glibc's: a timed call judges its clock and its time first, whether it needs them
//! or not, and a writer that asks for its lock again gets an error instead of waiting for itself.

use core::ffi::c_int;

use libc::{EBUSY, EDEADLK, EINVAL, ETIMEDOUT, clockid_t, pthread_rwlock_t, pthread_rwlockattr_t, timespec};
use poundlock_core::platform::Deadline;
use poundlock_names::RwLocks;

use crate::entry::{alias, export};
use crate::rwlock_object::{RwLock, Side};
use crate::stat::{self, CallSite, Uncounted};
use crate::{abi, mode, real};

/// What a call is willing to do if the lock is held.
type Patience = abi::Patience<Deadline>;

export! {
    /// Initialises the lock.
    pthread_rwlock_init | __pthread_rwlock_init(*mut pthread_rwlock_t, *const pthread_rwlockattr_t) -> init;
    /// Acquires the lock as a reader.
    pthread_rwlock_rdlock | __pthread_rwlock_rdlock(*mut pthread_rwlock_t) -> read_lock;
    /// Acquires the lock as a reader if it need not wait.
    pthread_rwlock_tryrdlock | __pthread_rwlock_tryrdlock(*mut pthread_rwlock_t) -> try_read_lock;
    /// Acquires the lock as a reader, giving up at a time of the real-time clock.
    pthread_rwlock_timedrdlock(*mut pthread_rwlock_t, *const timespec) -> timed_read_lock;
    /// Acquires the lock as a reader, giving up at a time of a clock.
    pthread_rwlock_clockrdlock(*mut pthread_rwlock_t, clockid_t, *const timespec) -> clock_read_lock;
    /// Acquires the lock as the writer.
    pthread_rwlock_wrlock | __pthread_rwlock_wrlock(*mut pthread_rwlock_t) -> write_lock;
    /// Acquires the lock as the writer if it need not wait.
    pthread_rwlock_trywrlock | __pthread_rwlock_trywrlock(*mut pthread_rwlock_t) -> try_write_lock;
    /// Acquires the lock as the writer, giving up at a time of the real-time clock.
    pthread_rwlock_timedwrlock(*mut pthread_rwlock_t, *const timespec) -> timed_write_lock;
    /// Acquires the lock as the writer, giving up at a time of a clock.
    pthread_rwlock_clockwrlock(*mut pthread_rwlock_t, clockid_t, *const timespec) -> clock_write_lock;
}
// Names by which libraries of old reach the same functions.
alias! {
    __pthread_rwlock_unlock = pthread_rwlock_unlock(*mut pthread_rwlock_t);
    __pthread_rwlock_destroy = pthread_rwlock_destroy(*mut pthread_rwlock_t);
}

/// Releases the lock, as what the caller holds it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { RwLock::at(lock) };
    if mode::rwlocks_are_plain() && object.is_private() && object.give() {
        return 0;
    }
    // SAFETY: as above.
    unsafe { unlock_other(lock) }
}

/// Any lock, in any mode.
#[inline(never)]
unsafe fn unlock_other(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { RwLock::at(lock) };
    let ours = object.is_ours();
    if mode::get().counted() && object.is_private() {
        // Before the release: afterwards the object may be gone, or another's.
        stat::RECORDER.released(object.counted(object.side(ours)));
    }
    if ours {
        object.unlock();
        return 0;
    }
    // SAFETY: as above.
    unsafe { real::pthread_rwlock_unlock(lock) }
}

/// Destroys the lock. As with glibc this call never fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_rwlock_destroy(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { RwLock::at(lock) };
    if mode::get().counted() && object.is_private() {
        stat::RECORDER.destroyed(object.counted(Side::Read));
        stat::RECORDER.destroyed(object.counted(Side::Write));
    }
    if object.is_ours() {
        return 0;
    }
    // SAFETY: as above.
    unsafe { real::pthread_rwlock_destroy(lock) }
}

unsafe extern "C" fn init(
    lock: *mut pthread_rwlock_t,
    attributes: *const pthread_rwlockattr_t,
    address: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's memory for a lock.
    let object = unsafe { RwLock::at(lock) };
    if attributes.is_null() && mode::rwlocks() != RwLocks::Glibc {
        object.init();
    } else {
        // glibc judges the attributes, and sets the kind and whether processes share it; all else is zero
        // then. SAFETY: the caller's memory and attributes.
        let result = unsafe { real::pthread_rwlock_init(lock, attributes) };
        if result != 0 {
            return result;
        }
    }
    if mode::get().counted() && object.is_private() {
        let site = CallSite { pc: address, sp: stack };
        stat::RECORDER.created(object.counted(Side::Read), site);
        stat::RECORDER.created(object.counted(Side::Write), site);
    }
    0
}

/// The bodies for readers and for the writer. What a fast path leaves over is apart, so that it needs neither
/// a stack frame nor a jump.
macro_rules! bodies {
    ($($side:ident: $take:ident, $lock:ident $other:ident $try_lock:ident $timed:ident $clocked:ident;)*) => {$(
        unsafe extern "C" fn $lock(lock: *mut pthread_rwlock_t, pc: usize, sp: usize) -> c_int {
            // SAFETY: the caller's lock.
            let object = unsafe { RwLock::at(lock) };
            if mode::rwlocks_are_plain() && object.is_private() && object.$take() {
                return 0;
            }
            // SAFETY: as above.
            unsafe { $other(lock, pc, sp) }
        }

        #[inline(never)]
        unsafe fn $other(lock: *mut pthread_rwlock_t, pc: usize, sp: usize) -> c_int {
            // SAFETY: the caller's lock.
            unsafe { acquire_any(lock, Side::$side, Patience::Forever, CallSite { pc, sp }) }
        }

        unsafe extern "C" fn $try_lock(lock: *mut pthread_rwlock_t, pc: usize, sp: usize) -> c_int {
            // SAFETY: the caller's lock.
            unsafe { acquire_any(lock, Side::$side, Patience::None, CallSite { pc, sp }) }
        }

        unsafe extern "C" fn $timed(
            lock: *mut pthread_rwlock_t, time: *const timespec, pc: usize, sp: usize,
        ) -> c_int {
            // SAFETY: the caller's lock and time.
            unsafe { clock_lock(lock, Side::$side, libc::CLOCK_REALTIME, time, CallSite { pc, sp }) }
        }

        unsafe extern "C" fn $clocked(
            lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec, pc: usize, sp: usize,
        ) -> c_int {
            // SAFETY: the caller's lock and time.
            unsafe { clock_lock(lock, Side::$side, clock, time, CallSite { pc, sp }) }
        }
    )*};
}

bodies! {
    Read: take_read, read_lock read_lock_other try_read_lock timed_read_lock clock_read_lock;
    Write: take_write, write_lock write_lock_other try_write_lock timed_write_lock clock_write_lock;
}

/// # Safety
/// `lock` and `time` are the caller's.
unsafe fn clock_lock(
    lock: *mut pthread_rwlock_t,
    side: Side,
    clock: clockid_t,
    time: *const timespec,
    site: CallSite,
) -> c_int {
    let Some(clock) = abi::clock(clock) else { return EINVAL };
    // SAFETY: the caller's time.
    match unsafe { abi::deadline(clock, time) } {
        // SAFETY: the caller's lock.
        Ok(deadline) => unsafe { acquire_any(lock, side, Patience::Until(deadline), site) },
        Err(error) => error,
    }
}

/// Any lock, in any mode.
///
/// # Safety
/// `lock` is the caller's.
unsafe fn acquire_any(lock: *mut pthread_rwlock_t, side: Side, patience: Patience, site: CallSite) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { RwLock::at(lock) };
    if mode::get().counted() {
        if object.is_private() {
            // SAFETY: as above.
            return unsafe { acquire_counted(lock, side, patience, site) };
        }
        stat::uncounted(Uncounted::RwLock);
    }
    // SAFETY: as above.
    unsafe { acquire(lock, side, patience) }
}

/// # Safety
/// `lock` is the caller's.
#[cold]
#[inline(never)]
unsafe fn acquire_counted(
    lock: *mut pthread_rwlock_t,
    side: Side,
    patience: Patience,
    site: CallSite,
) -> c_int {
    // SAFETY: the caller's lock.
    let counted = unsafe { RwLock::at(lock) }.counted(side);
    // SAFETY: as above.
    stat::acquire(counted, site, patience, || true, |patience| unsafe { acquire(lock, side, patience) })
}

/// On our lock or on glibc's.
unsafe fn acquire(lock: *mut pthread_rwlock_t, side: Side, patience: Patience) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { RwLock::at(lock) };
    if !object.is_ours() {
        // SAFETY: as above.
        return unsafe { glibc_lock(lock, side, patience) };
    }
    if object.try_lock(side) {
        return 0;
    }
    match patience {
        Patience::None => EBUSY,
        _ if object.is_callers() => EDEADLK,
        Patience::Forever => {
            object.lock(side);
            0
        }
        Patience::Until(deadline) if object.lock_until(side, &deadline) => 0,
        Patience::Until(_) => ETIMEDOUT,
    }
}

unsafe fn glibc_lock(lock: *mut pthread_rwlock_t, side: Side, patience: Patience) -> c_int {
    // SAFETY: the caller's lock, in all of them.
    unsafe {
        match (side, patience) {
            (Side::Read, Patience::None) => real::pthread_rwlock_tryrdlock(lock),
            (Side::Read, Patience::Forever) => real::pthread_rwlock_rdlock(lock),
            (Side::Write, Patience::None) => real::pthread_rwlock_trywrlock(lock),
            (Side::Write, Patience::Forever) => real::pthread_rwlock_wrlock(lock),
            (_, Patience::Until(deadline)) => {
                let time = timespec { tv_sec: deadline.seconds, tv_nsec: i64::from(deadline.nanoseconds) };
                let clock = poundlock_linux::time::id(deadline.clock);
                match side {
                    Side::Read => real::pthread_rwlock_clockrdlock(lock, clock, &time),
                    Side::Write => real::pthread_rwlock_clockwrlock(lock, clock, &time),
                }
            }
        }
    }
}
