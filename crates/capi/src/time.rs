//! C's times and clocks.

use core::ffi::c_int;

use libc::{EINVAL, ETIMEDOUT, clockid_t, timespec};
use poundlock_core::platform::Deadline;
use poundlock_linux::time as linux;

/// A time of the program's, on a clock that waits know.
///
/// # Errors
/// `EINVAL` if the clock is not one of those, or the nanoseconds are out of range.
///
/// # Safety
/// `time` points to a `timespec`.
pub(crate) unsafe fn deadline(clock: clockid_t, time: *const timespec) -> Result<Deadline, c_int> {
    let clock = linux::clock(clock).ok_or(EINVAL)?;
    // SAFETY: the caller's.
    linux::deadline(clock, unsafe { &*time }).ok_or(EINVAL)
}

/// What C is told of a wait that ends at a time of the program's.
///
/// # Safety
/// As [`deadline`].
#[inline]
pub(crate) unsafe fn until(
    clock: clockid_t,
    time: *const timespec,
    wait: impl FnOnce(&Deadline) -> bool,
) -> c_int {
    // SAFETY: the caller's.
    match unsafe { deadline(clock, time) } {
        Ok(deadline) if wait(&deadline) => 0,
        Ok(_) => ETIMEDOUT,
        Err(error) => error,
    }
}
