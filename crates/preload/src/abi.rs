//! C's times and clocks.

use core::ffi::c_int;

use libc::{clockid_t, timespec};
use poundlock_core::platform::{Clock, Deadline};

/// The clocks that timed calls know.
pub(crate) fn clock(id: clockid_t) -> Option<Clock> {
    match id {
        libc::CLOCK_REALTIME => Some(Clock::Realtime),
        libc::CLOCK_MONOTONIC => Some(Clock::Monotonic),
        _ => None,
    }
}

/// A time of the program's.
///
/// # Errors
/// `EINVAL` if its nanoseconds are out of range.
///
/// # Safety
/// `time` points to a `timespec`.
pub(crate) unsafe fn deadline(clock: Clock, time: *const timespec) -> Result<Deadline, c_int> {
    // SAFETY: the caller's.
    let time = unsafe { &*time };
    match u32::try_from(time.tv_nsec) {
        Ok(nanoseconds) if nanoseconds < 1_000_000_000 => {
            Ok(Deadline { clock, seconds: time.tv_sec, nanoseconds })
        }
        _ => Err(libc::EINVAL),
    }
}
