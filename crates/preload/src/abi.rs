//! C's times and clocks.

use core::ffi::c_int;

use libc::timespec;
use poundlock_core::platform::{Clock, Deadline};
pub(crate) use poundlock_linux::time::clock;

/// A time of the program's.
///
/// # Errors
/// `EINVAL` if its nanoseconds are out of range.
///
/// # Safety
/// `time` points to a `timespec`.
pub(crate) unsafe fn deadline(clock: Clock, time: *const timespec) -> Result<Deadline, c_int> {
    // SAFETY: the caller's.
    poundlock_linux::time::deadline(clock, unsafe { &*time }).ok_or(libc::EINVAL)
}
