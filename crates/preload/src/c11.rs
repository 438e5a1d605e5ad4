//! C11's `mtx_*` and `cnd_*`: the same objects, other names and other results.

use core::ffi::c_int;

use libc::{EBUSY, ENOMEM, ETIMEDOUT, pthread_cond_t, pthread_mutex_t, timespec};

use crate::cond;
use crate::entry::{CANCEL, export, export_wait};
use crate::mode;
use crate::mutex::{self, Patience, lock_checked};
use crate::object::Mutex;
use crate::stat::{self, CallSite};

/// `thrd_*`, as glibc numbers them.
mod thrd {
    use core::ffi::c_int;
    pub(super) const SUCCESS: c_int = 0;
    pub(super) const BUSY: c_int = 1;
    pub(super) const ERROR: c_int = 2;
    pub(super) const NOMEM: c_int = 3;
    pub(super) const TIMEDOUT: c_int = 4;
}

/// `mtx_plain | mtx_recursive` and `mtx_timed | mtx_recursive`. glibc's mutexes are all timed. It takes every
/// other number, unknown kinds included, for one that is not recursive.
const RECURSIVE: [c_int; 2] = [1, 3];

fn result(error: c_int) -> c_int {
    match error {
        0 => thrd::SUCCESS,
        EBUSY => thrd::BUSY,
        ENOMEM => thrd::NOMEM,
        ETIMEDOUT => thrd::TIMEDOUT,
        CANCEL => CANCEL,
        _ => thrd::ERROR,
    }
}

export! {
    /// Initialises a mutex.
    mtx_init(*mut pthread_mutex_t, c_int) -> init;
    /// Acquires a mutex.
    mtx_lock(*mut pthread_mutex_t) -> lock;
    /// Acquires a mutex if it is free.
    mtx_trylock(*mut pthread_mutex_t) -> try_lock;
    /// Acquires a mutex, giving up at a time of the real-time clock.
    mtx_timedlock(*mut pthread_mutex_t, *const timespec) -> timed_lock;
}
export_wait! {
    /// Waits for a signal.
    cnd_wait(*mut pthread_cond_t, *mut pthread_mutex_t), cond::prepare_wait, wait, finish
}
export_wait! {
    /// Waits for a signal until a time of the real-time clock.
    cnd_timedwait(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec),
    cond::prepare_timed_wait, timed_wait, finish
}

/// Exports a function that is pthread's but for its results.
macro_rules! export_as {
    ($($(#[$doc:meta])* $name:ident($object:ty) = $pthread:path;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(object: *mut $object) -> c_int {
            // SAFETY: the caller's.
            result(unsafe { $pthread(object) })
        }
    )*};
}

export_as! {
    /// Releases a mutex.
    mtx_unlock(pthread_mutex_t) = mutex::pthread_mutex_unlock;
    /// Destroys a mutex; C has no use for the result.
    mtx_destroy(pthread_mutex_t) = mutex::pthread_mutex_destroy;
    /// Initialises a condition variable.
    cnd_init(pthread_cond_t) = cond::init_default;
    /// Destroys a condition variable; C has no use for the result.
    cnd_destroy(pthread_cond_t) = cond::pthread_cond_destroy;
    /// Wakes a waiter.
    cnd_signal(pthread_cond_t) = cond::pthread_cond_signal;
    /// Wakes all waiters.
    cnd_broadcast(pthread_cond_t) = cond::pthread_cond_broadcast;
}

unsafe extern "C" fn init(mutex: *mut pthread_mutex_t, kind: c_int, address: usize, stack: usize) -> c_int {
    let mode = mode::get();
    // SAFETY: the caller's memory for a mutex. What is set is also glibc's mutex of that kind.
    let object = unsafe { Mutex::at(mutex) };
    object.init(RECURSIVE.contains(&kind));
    if mode.counted() {
        stat::RECORDER.created(object.counted(mode.glibc()), CallSite { pc: address, sp: stack });
    }
    thrd::SUCCESS
}

unsafe extern "C" fn lock(mutex: *mut pthread_mutex_t, address: usize, stack: usize) -> c_int {
    // SAFETY: the caller's mutex.
    result(unsafe { lock_checked(mutex, Patience::Forever, CallSite { pc: address, sp: stack }) })
}

unsafe extern "C" fn try_lock(mutex: *mut pthread_mutex_t, address: usize, stack: usize) -> c_int {
    // SAFETY: the caller's mutex.
    result(unsafe { lock_checked(mutex, Patience::None, CallSite { pc: address, sp: stack }) })
}

unsafe extern "C" fn timed_lock(
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
    address: usize,
    stack: usize,
) -> c_int {
    // SAFETY: the caller's mutex and time.
    result(unsafe { mutex::timed_lock(mutex, time, address, stack) })
}

unsafe extern "C" fn wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's objects.
    result(unsafe { cond::wait(cond, mutex) })
}

unsafe extern "C" fn timed_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's objects.
    result(unsafe { cond::timed_wait(cond, mutex, time) })
}

unsafe extern "C" fn finish(mutex: *mut pthread_mutex_t, error: c_int) -> c_int {
    // SAFETY: the caller's mutex.
    result(unsafe { cond::finish(mutex, error) })
}
