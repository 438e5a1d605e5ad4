//! `semop` and `semtimedop`.

use core::mem::MaybeUninit;
use core::ptr;

use poundlock_core::platform::Deadline;
use poundlock_core::semarray::{Error, MOST_OPERATIONS, Op};

use poundlock_linux::time;

use crate::{Errno, config, domain, errno, process, rights, table, user};

/// Operations that are copied to a small buffer. Programs use one to three.
const FEW: usize = 8;

/// `semtimedop(2)` on an array of ours; without a timeout (null) `semop(2)`. The time is a duration.
///
/// # Errors
/// Those of the system call, in its order of checks.
///
/// # Safety
/// What `operations` and `timeout` point to, if it can be read, may be read. A pointer that cannot be is
/// EFAULT, unless memory at the same page could be read earlier and was unmapped since.
#[inline]
pub unsafe fn operate(
    id: i32,
    operations: *const Op,
    count: usize,
    timeout: *const libc::timespec,
) -> Result<(), Errno> {
    if count == 1 && timeout.is_null() {
        if !user::readable(operations.addr(), size_of::<Op>()) {
            return Err(libc::EFAULT);
        }
        // SAFETY: readable; any bytes are an operation.
        let operation = unsafe { operations.read_unaligned() };
        return apply(id, &[operation], None);
    }
    // SAFETY: the caller's.
    unsafe { operate_slowly(id, operations, count, timeout) }
}

/// As [`operate`], but goes on after a signal was handled, and waits until a time. False if that has passed,
/// or if an operation with `IPC_NOWAIT` would have had to wait: nothing has been done.
///
/// # Errors
/// Those of the system call but EINTR; EAGAIN without a deadline only.
pub fn operate_until(id: i32, operations: &[Op], deadline: Option<&Deadline>) -> Result<bool, Errno> {
    loop {
        let left = deadline.map(time::left);
        let left = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: that many operations, and a time if it is not null.
        match unsafe { operate(id, operations.as_ptr(), operations.len(), left) } {
            Ok(()) => return Ok(true),
            Err(libc::EINTR) => {}
            Err(libc::EAGAIN) if deadline.is_some() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

#[inline(never)]
unsafe fn operate_slowly(
    id: i32,
    operations: *const Op,
    count: usize,
    timeout: *const libc::timespec,
) -> Result<(), Errno> {
    let timeout = match timeout.is_null() {
        true => None,
        // SAFETY: the caller's.
        false => Some(unsafe { user::read(timeout) }?),
    };
    if count > config::operations() as usize {
        return Err(libc::E2BIG);
    }
    if count == 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's; checked.
    unsafe {
        if count <= FEW {
            copied::<FEW>(id, operations, count, timeout)
        } else {
            copied::<MOST_OPERATIONS>(id, operations, count, timeout)
        }
    }
}

/// Copies the operations first: others may change them while they are checked and applied.
unsafe fn copied<const ROOM: usize>(
    id: i32,
    operations: *const Op,
    count: usize,
    timeout: Option<libc::timespec>,
) -> Result<(), Errno> {
    let bytes = count * size_of::<Op>();
    if !user::readable(operations.addr(), bytes) {
        return Err(libc::EFAULT);
    }
    let mut copy = [const { MaybeUninit::<Op>::uninit() }; ROOM];
    let copy = &mut copy[..count];
    // SAFETY: readable; any bytes are operations. As bytes, for C's may be unaligned.
    let copy = unsafe {
        ptr::copy_nonoverlapping(operations.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), bytes);
        &*(ptr::from_ref(copy) as *const [Op])
    };
    let patience = match timeout {
        None => None,
        Some(time) => {
            if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
                return Err(libc::EINVAL);
            }
            Some((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
        }
    };
    apply(id, copy, patience)
}

#[inline(always)]
fn apply(id: i32, operations: &[Op], patience: Option<u64>) -> Result<(), Errno> {
    // Before a mapping is entered: in a forked child this clears the marks of the parent's threads.
    process::required()?;
    let entered = match table::enter(id) {
        Some(entered) => entered,
        None => first(id)?,
    };
    rights::check(&entered, operations)?;
    let result = entered.array.operate(operations, patience);
    drop(entered);
    result.map_err(failed)
}

#[cold]
fn failed(error: Error) -> Errno {
    // It may have slept in an array that was removed.
    table::reclaim();
    errno(error)
}

/// The process's first use of an array.
#[cold]
#[inline(never)]
fn first(id: i32) -> Result<table::Entered, Errno> {
    table::open(domain::get().ok_or(libc::EINVAL)?, id)
}
