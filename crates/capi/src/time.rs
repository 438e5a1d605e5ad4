//! C's times and clocks.

use core::ffi::c_int;

use libc::{EINVAL, ETIMEDOUT, clockid_t, timespec};
use poundlock_core::platform::{Clock, Deadline};

/// A time of the program's, on a clock that waits know.
///
/// # Errors
/// `EINVAL` if the clock is not one of those, or the nanoseconds are out of range.
///
/// # Safety
/// `time` points to a `timespec`.
pub(crate) unsafe fn deadline(clock: clockid_t, time: *const timespec) -> Result<Deadline, c_int> {
    let clock = match clock {
        libc::CLOCK_REALTIME => Clock::Realtime,
        libc::CLOCK_MONOTONIC => Clock::Monotonic,
        _ => return Err(EINVAL),
    };
    // SAFETY: the caller's.
    let time = unsafe { &*time };
    match u32::try_from(time.tv_nsec) {
        Ok(nanoseconds) if nanoseconds < 1_000_000_000 => {
            Ok(Deadline { clock, seconds: time.tv_sec, nanoseconds })
        }
        _ => Err(EINVAL),
    }
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
