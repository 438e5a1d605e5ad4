//! Semaphore arrays.

use core::ffi::c_int;
use core::{ptr, slice};

use libc::{EINVAL, ETIMEDOUT, clockid_t, timespec};
use poundlock_core::platform::Deadline;
use poundlock_core::semarray::Op;
use poundlock_semarray as semarray;

use crate::time;

/// In an operation's flags: it does not wait. As `IPC_NOWAIT`.
pub const POUNDLOCK_SEMSET_NOWAIT: i16 = 0o4000;
/// In an operation's flags: it is undone when the process ends, however it ends. As `SEM_UNDO`.
pub const POUNDLOCK_SEMSET_UNDO: i16 = 0o10000;

const _: () = assert!(POUNDLOCK_SEMSET_NOWAIT == Op::NOWAIT && POUNDLOCK_SEMSET_UNDO == Op::UNDO);

/// What is done to one semaphore, as a part of what is done at once: `struct sembuf` of `<sys/sem.h>`.
#[repr(C)]
pub struct poundlock_semset_op_t {
    /// Which one, from 0 on.
    pub sem_num: u16,
    /// Above 0: is added to its value. Below 0: is taken off, as soon as the value is as large. 0: waits
    /// until that is 0.
    pub sem_op: i16,
    /// `POUNDLOCK_SEMSET_NOWAIT`, `POUNDLOCK_SEMSET_UNDO`, both or 0.
    pub sem_flg: i16,
}

const _: () = assert!(size_of::<poundlock_semset_op_t>() == size_of::<Op>());
const _: () = assert!(align_of::<poundlock_semset_op_t>() == align_of::<Op>());

/// What C gave, as a slice; it may point anywhere if there is nothing.
///
/// # Safety
/// So many are there, for as long as the result is used.
unsafe fn several<'a, T>(first: *const T, count: usize) -> &'a [T] {
    // SAFETY: the caller's.
    if count == 0 { &[] } else { unsafe { slice::from_raw_parts(first, count) } }
}

/// # Safety
/// `id` can be written to, and so many values read.
unsafe fn get(id: *mut c_int, key: c_int, values: *const u16, count: usize, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    match semarray::find_or_make(key, flags, unsafe { several(values, count) }) {
        Ok(found) => {
            // SAFETY: the caller's.
            unsafe { id.write(found) };
            0
        }
        Err(error) => error,
    }
}

/// As [`get`], of a key's.
///
/// # Safety
/// As there.
unsafe fn keyed(id: *mut c_int, key: c_int, values: *const u16, count: usize, flags: c_int) -> c_int {
    if key == libc::IPC_PRIVATE {
        return EINVAL;
    }
    // SAFETY: the caller's.
    unsafe { get(id, key, values, count, flags) }
}

/// Makes an array of `count` semaphores with these values, for this process and those that it forks: there is
/// no key. It goes when the process ends, or is killed, or calls `poundlock_semset_close`.
///
/// Semaphore arrays are System V's, without a system call where nobody has to wait: several semaphores are
/// operated on at once, all or none, among threads or processes of one user, of which any may be killed at
/// any time. They lie in `/dev/shm`; `poundlock ipcs` lists them. See docs/SEMAPHORES.md. None of the
/// functions is async-signal-safe.
///
/// Returns 0, with the array's id in `id`; `EINVAL` if there are none, or too many; `ERANGE` for a value
/// above 32,767; `ENOMEM` or `ENOSPC` if there is no room; `ENOSYS` if `/dev/shm` is not to be written to, or
/// `POUNDLOCK_SEMAPHORES=kernel` in the environment forbids it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_private(id: *mut c_int, values: *const u16, count: usize) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { get(id, libc::IPC_PRIVATE, values, count, 0) }
}

/// Finds the array of a key, which is not 0 and often one of ftok(3). It stays until it is removed.
///
/// Returns 0, with the array's id in `id`; `ENOENT` if the key has none; `EINVAL` if it is 0; `EACCES` if it
/// is another user's; `ENOMEM` or `ENOSPC` if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_open(id: *mut c_int, key: c_int) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { keyed(id, key, ptr::null(), 0, 0) }
}

/// Makes an array of `count` semaphores with these values for a key: nobody sees it before it has them. It
/// stays until it is removed.
///
/// Returns 0, with the array's id in `id`; `EEXIST` if the key has one; otherwise as
/// `poundlock_semset_private` and `poundlock_semset_open`. `ENOSYS` also if the kernel has one with that key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_create(
    id: *mut c_int,
    key: c_int,
    values: *const u16,
    count: usize,
) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { keyed(id, key, values, count, libc::IPC_CREAT | libc::IPC_EXCL) }
}

/// As `poundlock_semset_open` if the key has an array, else as `poundlock_semset_create`.
///
/// Returns what these do; `EINVAL` also if there is one with fewer semaphores.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_open_or_create(
    id: *mut c_int,
    key: c_int,
    values: *const u16,
    count: usize,
) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { keyed(id, key, values, count, libc::IPC_CREAT) }
}

/// # Safety
/// So many operations are there.
unsafe fn operate(
    id: c_int,
    ops: *const poundlock_semset_op_t,
    count: usize,
    deadline: Option<&Deadline>,
) -> c_int {
    // SAFETY: the caller's; an operation of C's is one.
    match semarray::operate_until(id, unsafe { several(ops.cast(), count) }, deadline) {
        Ok(true) => 0,
        Ok(false) => ETIMEDOUT,
        Err(error) => error,
    }
}

/// Does all of it at once, as soon as that is possible. What the calling thread did before is seen by whoever
/// takes what it gave.
///
/// Returns 0; or, with nothing done: `EAGAIN` if one that is not to wait would have to; `EIDRM` if the array
/// was removed meanwhile, `EINVAL` if before, or if there are no operations; `EFBIG` if there is no such
/// semaphore; `E2BIG` for more than 500 operations; `ERANGE` if a value would get above 32,767; `EACCES` if
/// the array is another user's; `ENOMEM` or `ENOSPC` if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_operate(
    id: c_int,
    ops: *const poundlock_semset_op_t,
    count: usize,
) -> c_int {
    // SAFETY: the caller's operations.
    unsafe { operate(id, ops, count, None) }
}

/// As `poundlock_semset_operate`, waiting until a time of `clock` at most, which is `CLOCK_MONOTONIC` or
/// `CLOCK_REALTIME`; a clock that is set meanwhile does not matter. What is possible at once is done whatever
/// the time.
///
/// Returns what that does, and `ETIMEDOUT` if the time has passed, or if an operation that is not to wait
/// would have to; `EINVAL` also for another clock, or nanoseconds that are not below 1,000,000,000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_clockoperate(
    id: c_int,
    ops: *const poundlock_semset_op_t,
    count: usize,
    clock: clockid_t,
    abstime: *const timespec,
) -> c_int {
    // SAFETY: the caller's time.
    match unsafe { time::deadline(clock, abstime) } {
        // SAFETY: the caller's operations.
        Ok(deadline) => unsafe { operate(id, ops, count, Some(&deadline)) },
        Err(error) => error,
    }
}

/// What C is told of what has no other result.
fn status(done: Result<(), c_int>) -> c_int {
    done.err().unwrap_or(0)
}

/// How many semaphores the array has, which is never 0.
///
/// Returns 0, with the number in `count`; `EINVAL` or `EIDRM` if there is no such array; `EACCES` if it is
/// another user's; `ENOMEM` or `ENOSPC` if there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_count(id: c_int, count: *mut usize) -> c_int {
    match semarray::length(id) {
        Ok(length) => {
            // SAFETY: the caller's memory.
            unsafe { count.write(length) };
            0
        }
        Err(error) => error,
    }
}

/// The values of all its semaphores, at one moment.
///
/// Returns what `poundlock_semset_count` does; `EINVAL` also if it has not `count` semaphores.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_values(id: c_int, values: *mut u16, count: usize) -> c_int {
    if count == 0 {
        return EINVAL;
    }
    // SAFETY: the caller's memory, which is there if there is any.
    status(semarray::values(id, unsafe { slice::from_raw_parts_mut(values, count) }))
}

/// Sets all values, and forgets what was to be undone.
///
/// Returns what `poundlock_semset_values` does, and `ERANGE` for a value above 32,767.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_set_values(id: c_int, values: *const u16, count: usize) -> c_int {
    // SAFETY: the caller's memory.
    status(semarray::set_values(id, unsafe { several(values, count) }))
}

/// Removes the array, for everybody: who waits gets `EIDRM`.
///
/// Returns 0; `EINVAL` or `EIDRM` if there is no such array; `EPERM` if it is another user's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_remove(id: c_int) -> c_int {
    status(semarray::remove(id).map(drop))
}

/// The end of an array's use by this process: removes it if it is one of `poundlock_semset_private` which
/// this very process made.
///
/// Returns what `poundlock_semset_remove` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poundlock_semset_close(id: c_int) -> c_int {
    status(semarray::close(id))
}
