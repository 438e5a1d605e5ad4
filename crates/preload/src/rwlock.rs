//! `pthread_rwlock_*`.
//!
//! The fast paths are a look at how the program runs, one at whose the lock is, and a step of its word; they
//! make no call. Errors are glibc's: a timed call judges its clock and its time first, whether it needs them
//! or not, and a writer that asks for its lock again gets an error instead of waiting for itself.

use core::ffi::c_int;

use libc::{EBUSY, EDEADLK, EINVAL, ETIMEDOUT, clockid_t, pthread_rwlockattr_t, timespec};
use poundlock_core::platform::Deadline;
use poundlock_names::RwLocks;
use poundlock_statfile::check::Wrong;

use crate::entry::{alias, export, with_call_site};
use crate::rwlock_object::{RwLock, Side};
use crate::stat::{self, CallSite, LockKind};
use crate::{abi, check, mode, real};

/// What a call is willing to do if the lock is held.
type Patience = abi::Patience<Deadline>;

export! {
    pthread_rwlock_init | __pthread_rwlock_init(&RwLock, Option<&pthread_rwlockattr_t>) -> init;
    pthread_rwlock_destroy | __pthread_rwlock_destroy(&RwLock) -> destroy;
    pthread_rwlock_rdlock | __pthread_rwlock_rdlock(&RwLock) -> read_lock;
    pthread_rwlock_tryrdlock | __pthread_rwlock_tryrdlock(&RwLock) -> try_read_lock;
    pthread_rwlock_timedrdlock(&RwLock, &timespec) -> timed_read_lock;
    pthread_rwlock_clockrdlock(&RwLock, clockid_t, &timespec) -> clock_read_lock;
    pthread_rwlock_wrlock | __pthread_rwlock_wrlock(&RwLock) -> write_lock;
    pthread_rwlock_trywrlock | __pthread_rwlock_trywrlock(&RwLock) -> try_write_lock;
    pthread_rwlock_timedwrlock(&RwLock, &timespec) -> timed_write_lock;
    pthread_rwlock_clockwrlock(&RwLock, clockid_t, &timespec) -> clock_write_lock;
}
// Names by which libraries of old reach the same functions.
alias! {
    __pthread_rwlock_unlock = pthread_rwlock_unlock(&RwLock);
}

/// Releases the lock, as what the caller holds it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pthread_rwlock_unlock(object: &RwLock) -> c_int {
    if mode::rwlocks_are_plain() && object.is_private() && object.give() {
        return 0;
    }
    unlock_slowly(object)
}

with_call_site! {
    unlock_slowly(&RwLock) -> unlock_other;
}

/// Any lock, in any mode.
extern "C" fn unlock_other(object: &RwLock, pc: usize, sp: usize) -> c_int {
    let ours = object.is_ours();
    let mut traced = false;
    if mode::get().counted() {
        let site = CallSite { pc, sp };
        if check::is_on() {
            look_at(object, site);
        }
        if check::is_on() && !object.is_locked(ours) {
            stat::RECORDER.released_free(object.counted(Side::Write), site);
            return 0;
        }
        // Before the release: afterwards the object may be gone, or another's.
        traced = stat::RECORDER.released(object.counted(object.side(ours)), site);
    }
    let result = if ours {
        if !object.give() {
            object.unlock();
        }
        0
    } else {
        // SAFETY: the caller's lock.
        unsafe { real::pthread_rwlock_unlock(object) }
    };
    if traced {
        stat::RECORDER.call_ended();
    }
    result
}

/// Destroys the lock. As with glibc this call never fails.
extern "C" fn destroy(object: &RwLock, pc: usize, sp: usize) -> c_int {
    if mode::get().counted() {
        let site = CallSite { pc, sp };
        if check::is_on() && object.is_private() {
            look_at(object, site);
            stat::RECORDER.meets(object.counted(Side::Write));
        }
        if object.is_private() {
            stat::RECORDER.destroyed(object.counted(Side::Read), site);
            stat::RECORDER.destroyed(object.counted(Side::Write), site);
        } else {
            let address = core::ptr::from_ref(object).addr();
            stat::destroyed_at(address, LockKind::SharedRwReaders, site);
            stat::destroyed_at(address + LockKind::WRITERS, LockKind::SharedRwWriters, site);
        }
    }
    if object.is_ours() {
        return 0;
    }
    // SAFETY: the caller's lock.
    unsafe { real::pthread_rwlock_destroy(object) }
}

extern "C" fn init(
    object: &RwLock,
    attributes: Option<&pthread_rwlockattr_t>,
    address: usize,
    stack: usize,
) -> c_int {
    if attributes.is_none() && mode::rwlocks() != RwLocks::Glibc {
        object.init();
    } else {
        // glibc judges the attributes, and sets the kind and whether processes share it; all else is zero
        // then. SAFETY: the caller's memory and attributes.
        let result = unsafe { real::pthread_rwlock_init(object, attributes) };
        if result != 0 {
            return result;
        }
    }
    if mode::get().counted() {
        let site = CallSite { pc: address, sp: stack };
        if object.is_private() {
            stat::RECORDER.created(object.counted(Side::Read), site);
            stat::RECORDER.created(object.counted(Side::Write), site);
        } else {
            let address = core::ptr::from_ref(object).addr();
            stat::created_at(address, LockKind::SharedRwReaders, site);
            stat::created_at(address + LockKind::WRITERS, LockKind::SharedRwWriters, site);
        }
    }
    0
}

/// The bodies for readers and for the writer. What a fast path leaves over is apart, so that it needs neither
/// a stack frame nor a jump.
macro_rules! bodies {
    ($($side:ident: $take:ident,
       $lock:ident $other:ident $try_lock:ident $timed:ident $clocked:ident;)*) => {$(
        extern "C" fn $lock(object: &RwLock, pc: usize, sp: usize) -> c_int {
            if mode::rwlocks_are_plain() && object.is_private() && object.$take() {
                return 0;
            }
            $other(object, pc, sp)
        }

        #[inline(never)]
        fn $other(object: &RwLock, pc: usize, sp: usize) -> c_int {
            if check::is_on() && object.is_none() {
                look_at(object, CallSite { pc, sp });
            }
            if mode::get().counted() && object.is_private() && take_counted(object, Side::$side) {
                let site = CallSite { pc, sp };
                stat::RECORDER.acquired(object.counted(Side::$side), site, object.manner(Side::$side));
                return 0;
            }
            acquire_any(object, Side::$side, Patience::Forever, CallSite { pc, sp })
        }

        extern "C" fn $try_lock(object: &RwLock, pc: usize, sp: usize) -> c_int {
            acquire_any(object, Side::$side, Patience::None, CallSite { pc, sp })
        }

        extern "C" fn $timed(
            object: &RwLock, time: &timespec, pc: usize, sp: usize,
        ) -> c_int {
            clock_lock(object, Side::$side, libc::CLOCK_REALTIME, time, CallSite { pc, sp })
        }

        extern "C" fn $clocked(
            object: &RwLock, clock: clockid_t, time: &timespec, pc: usize, sp: usize,
        ) -> c_int {
            clock_lock(object, Side::$side, clock, time, CallSite { pc, sp })
        }
    )*};
}

bodies! {
    Read: take_read, read_lock read_lock_other try_read_lock timed_read_lock clock_read_lock;
    Write: take_write, write_lock write_lock_other try_write_lock timed_write_lock clock_write_lock;
}

fn clock_lock(object: &RwLock, side: Side, clock: clockid_t, time: &timespec, site: CallSite) -> c_int {
    let Some(clock) = abi::clock(clock) else { return EINVAL };
    match abi::deadline(clock, time) {
        Ok(deadline) => acquire_any(object, side, Patience::Until(deadline), site),
        Err(error) => error,
    }
}

/// Takes a private lock that is counted in one step, if it can.
#[inline(always)]
fn take_counted(object: &RwLock, side: Side) -> bool {
    match (mode::rwlocks(), side) {
        (RwLocks::Glibc, side) => glibc_lock(object, side, Patience::None) == 0,
        (_, Side::Read) => object.take_read(),
        (_, Side::Write) => object.take_write(),
    }
}

/// Any lock, in any mode.
fn acquire_any(object: &RwLock, side: Side, patience: Patience, site: CallSite) -> c_int {
    if mode::get().counted() {
        return acquire_counted(object, side, patience, site);
    }
    acquire(object, side, patience)
}

/// Under check: says so if it is none.
#[cold]
#[inline(never)]
fn look_at(object: &RwLock, site: CallSite) {
    if object.is_none() {
        // Not by one of the sorts that its bytes say: it is none.
        let writers = object.counted_private(Side::Write);
        stat::RECORDER.refused(writers, site, Some(Wrong::Uninitialised), false);
    }
}

#[inline(never)]
fn acquire_counted(object: &RwLock, side: Side, patience: Patience, site: CallSite) -> c_int {
    if check::is_on() {
        look_at(object, site);
    }
    let manner = object.manner(side);
    stat::acquire(
        object.counted(side),
        site,
        manner,
        patience,
        || true,
        |patience| acquire(object, side, patience),
    )
}

/// On our lock or on glibc's.
fn acquire(object: &RwLock, side: Side, patience: Patience) -> c_int {
    if !object.is_ours() {
        return glibc_lock(object, side, patience);
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

fn glibc_lock(object: &RwLock, side: Side, patience: Patience) -> c_int {
    // SAFETY: the caller's lock, in all of them.
    unsafe {
        match (side, patience) {
            (Side::Read, Patience::None) => real::pthread_rwlock_tryrdlock(object),
            (Side::Read, Patience::Forever) => real::pthread_rwlock_rdlock(object),
            (Side::Write, Patience::None) => real::pthread_rwlock_trywrlock(object),
            (Side::Write, Patience::Forever) => real::pthread_rwlock_wrlock(object),
            (_, Patience::Until(deadline)) => {
                let time = timespec { tv_sec: deadline.seconds, tv_nsec: i64::from(deadline.nanoseconds) };
                let clock = poundlock_linux::time::id(deadline.clock);
                match side {
                    Side::Read => real::pthread_rwlock_clockrdlock(object, clock, &time),
                    Side::Write => real::pthread_rwlock_clockwrlock(object, clock, &time),
                }
            }
        }
    }
}
