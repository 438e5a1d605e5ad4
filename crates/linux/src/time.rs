//! Clocks and times: the standard library's and C's.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use core::time::Duration;

use libc::{clockid_t, timespec};
use poundlock_core::platform::{Clock, Deadline};

use crate::futex;

/// That long from now, within the clock's range. Async-signal-safe.
pub fn after(timeout: Duration) -> Deadline {
    let then = futex::in_nanoseconds(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    Deadline { clock: Clock::Monotonic, seconds: then.tv_sec, nanoseconds: then.tv_nsec as u32 }
}

/// How long it is until then; zero if that has passed.
pub fn left(deadline: &Deadline) -> timespec {
    let now = futex::now(id(deadline.clock));
    let borrowed = i64::from(i64::from(deadline.nanoseconds) < now.tv_nsec);
    let tv_sec = deadline.seconds.saturating_sub(now.tv_sec).saturating_sub(borrowed);
    let tv_nsec = i64::from(deadline.nanoseconds) - now.tv_nsec + borrowed * 1_000_000_000;
    if tv_sec < 0 { timespec { tv_sec: 0, tv_nsec: 0 } } else { timespec { tv_sec, tv_nsec } }
}

/// C's `clock_gettime`, or a function like it.
pub type ReadClock = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;

static READER: AtomicPtr<()> = AtomicPtr::new(libc::clock_gettime as *mut ());

/// Reads the clocks by this function from now on, instead of the one named `clock_gettime`. A library may
/// show the program times of its own under that name (libfaketime does); the kernel, which ends our waits,
/// does not know them. Async-signal-safe if the function is.
///
/// # Safety
/// The function does what C's does, and stays loaded.
pub unsafe fn read_clocks_by(function: ReadClock) {
    READER.store(function as *mut (), Relaxed);
}

/// The function that reads the clocks. Relaxed: any thread may use either function at any time.
#[inline]
pub(crate) fn reader() -> ReadClock {
    // SAFETY: the address of a function of this type, by the initial value and by `read_clocks_by`.
    unsafe { core::mem::transmute(READER.load(Relaxed)) }
}

/// What C calls a clock.
pub const fn id(clock: Clock) -> clockid_t {
    match clock {
        Clock::Realtime => libc::CLOCK_REALTIME,
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
    }
}

/// A clock of C's, if waits know it.
pub fn clock(id: clockid_t) -> Option<Clock> {
    match id {
        libc::CLOCK_REALTIME => Some(Clock::Realtime),
        libc::CLOCK_MONOTONIC => Some(Clock::Monotonic),
        _ => None,
    }
}

/// A time of C's; `None` if its nanoseconds are out of range.
pub fn deadline(clock: Clock, time: &timespec) -> Option<Deadline> {
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000)?;
    Some(Deadline { clock, seconds: time.tv_sec, nanoseconds })
}
