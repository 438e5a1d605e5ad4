//! C11's `mtx_*` and `cnd_*`: the same objects, other names and other results.

use core::ffi::c_int;

use libc::{EBUSY, ENOMEM, ETIMEDOUT, timespec};

use crate::cond;
use crate::entry::{CANCEL, export, export_wait};
use crate::mode;
use crate::mutex::{self, Patience, lock_checked};
use crate::object::{Cond, Mutex};
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
    mtx_init(&Mutex, c_int) -> init;
    mtx_lock(&Mutex) -> lock;
    mtx_trylock(&Mutex) -> try_lock;
    mtx_timedlock(&Mutex, &timespec) -> timed_lock;
    mtx_unlock(&Mutex) -> unlock;
    cnd_init(&Cond) -> init_condition;
}
export_wait! {
    cnd_wait(&Cond, &Mutex), cond::prepare_wait, wait, finish
}
export_wait! {
    cnd_timedwait(&Cond, &Mutex, &timespec),
    cond::prepare_timed_wait, timed_wait, finish
}

/// Exports a function that is pthread's but for its results.
macro_rules! export_as {
    ($($(#[$doc:meta])* $name:ident($object:ty) = $pthread:path, $body:ident;)*) => {
        export! {
            $($(#[$doc])* $name(&$object) -> $body;)*
        }
        $(
        extern "C" fn $body(object: &$object, pc: usize, sp: usize) -> c_int {
            result($pthread(object, pc, sp))
        }
        )*
    };
}

export_as! {
    mtx_destroy(Mutex) = mutex::destroy, destroy;
    cnd_destroy(Cond) = cond::destroy, destroy_condition;
    cnd_signal(Cond) = cond::signal_at, signal;
    cnd_broadcast(Cond) = cond::broadcast_at, broadcast;
}

extern "C" fn init(object: &Mutex, kind: c_int, address: usize, stack: usize) -> c_int {
    let mode = mode::get();
    // What is set is also glibc's mutex of that kind.
    object.init(RECURSIVE.contains(&kind));
    if mode.counted() {
        stat::RECORDER.created(object.counted(mode.glibc()), CallSite { pc: address, sp: stack });
    }
    thrd::SUCCESS
}

extern "C" fn lock(mutex: &Mutex, address: usize, stack: usize) -> c_int {
    result(lock_checked(mutex, Patience::Forever, CallSite { pc: address, sp: stack }))
}

extern "C" fn try_lock(mutex: &Mutex, address: usize, stack: usize) -> c_int {
    result(lock_checked(mutex, Patience::None, CallSite { pc: address, sp: stack }))
}

extern "C" fn timed_lock(mutex: &Mutex, time: &timespec, address: usize, stack: usize) -> c_int {
    result(mutex::timed_lock(mutex, time, address, stack))
}

extern "C" fn init_condition(cond: &Cond, address: usize, stack: usize) -> c_int {
    result(cond::init_default(cond, address, stack))
}

extern "C" fn unlock(mutex: &Mutex, address: usize, stack: usize) -> c_int {
    result(mutex::unlock_checked(mutex, CallSite { pc: address, sp: stack }))
}

extern "C" fn wait(cond: &Cond, mutex: &Mutex, time: usize, clock: usize, pc: usize, sp: usize) -> c_int {
    result(cond::wait(cond, mutex, time, clock, pc, sp))
}

extern "C" fn timed_wait(
    cond: &Cond,
    mutex: &Mutex,
    time: &timespec,
    clock: usize,
    pc: usize,
    sp: usize,
) -> c_int {
    result(cond::timed_wait(cond, mutex, time, clock, pc, sp))
}

extern "C" fn finish(cond: &Cond, mutex: &Mutex, error: c_int, pc: usize) -> c_int {
    result(cond::finish(cond, mutex, error, pc))
}
