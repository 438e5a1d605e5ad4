//! C's times and clocks.

use core::ffi::c_int;

use libc::timespec;
use poundlock_core::platform::{Clock, Deadline};
pub(crate) use poundlock_linux::time::clock;

use crate::real;

/// What a call is willing to do if somebody else holds what it wants.
#[derive(Clone, Copy)]
pub(crate) enum Patience<Time> {
    /// Nothing.
    None,
    /// Wait until then.
    Until(Time),
    /// Wait.
    Forever,
}

/// A time of the program's, as the kernel's clock has it. The two differ only where a library behind ours
/// shows the program times of its own. If ours did not come first, that library would have changed this time.
///
/// # Errors
/// `EINVAL` if its nanoseconds are out of range.
pub(crate) fn deadline(clock: Clock, time: &timespec) -> Result<Deadline, c_int> {
    let deadline = poundlock_linux::time::deadline(clock, time).ok_or(libc::EINVAL)?;
    Ok(match real::clock_of_the_program() {
        None => deadline,
        Some(shown) => on_the_kernels_clock(&deadline, shown),
    })
}

pub(crate) fn is_invalid(time: &timespec) -> bool {
    poundlock_linux::time::deadline(Clock::Realtime, time).is_none()
}

/// A time of another clock, as far ahead on the kernel's. It may be later by the time between the two looks,
/// never earlier.
#[cold]
fn on_the_kernels_clock(deadline: &Deadline, shown: real::Clocks) -> Deadline {
    let id = poundlock_linux::time::id(deadline.clock);
    let read = |function: poundlock_linux::time::ReadClock| {
        let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: fills our own variable.
        unsafe { function(id, &mut now) };
        now
    };
    let (theirs, kernels) = (read(shown.shown), read(shown.kernel));
    const SECOND: i64 = 1_000_000_000;
    // Each in its range, so that the sum is within three seconds.
    let nanoseconds = i64::from(deadline.nanoseconds) - theirs.tv_nsec + kernels.tv_nsec;
    let seconds = deadline.seconds.saturating_sub(theirs.tv_sec).saturating_add(kernels.tv_sec);
    Deadline {
        clock: deadline.clock,
        seconds: seconds.saturating_add(nanoseconds.div_euclid(SECOND)),
        nanoseconds: nanoseconds.rem_euclid(SECOND) as u32,
    }
}
