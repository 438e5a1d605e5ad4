//! Sleeping on a word and waking by address, private to the process. `errno` is left as it was.

use core::ptr;

use poundlock_core::platform::{Clock, Deadline, Until, Waited};

use crate::atomic::U32;

/// Runs a system call and puts `errno` back.
///
/// # Errors
/// The error number of a failed call.
pub fn keeping_errno(call: impl FnOnce() -> libc::c_long) -> Result<libc::c_long, libc::c_int> {
    // SAFETY: the address of the calling thread's errno is always valid for that thread.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = call();
    let failed = *errno;
    *errno = before;
    if result == -1 { Err(failed) } else { Ok(result) }
}

fn timespec(deadline: &Deadline) -> libc::timespec {
    libc::timespec { tv_sec: deadline.seconds, tv_nsec: i64::from(deadline.nanoseconds) }
}

/// That many nanoseconds from now, on the monotonic clock.
pub fn in_nanoseconds(nanoseconds: u64) -> libc::timespec {
    in_nanoseconds_of(libc::CLOCK_MONOTONIC, nanoseconds)
}

fn in_nanoseconds_of(clock: libc::clockid_t, nanoseconds: u64) -> libc::timespec {
    const SECOND: u64 = 1_000_000_000;
    let mut time = now(clock);
    time.tv_sec = time.tv_sec.saturating_add_unsigned(nanoseconds / SECOND);
    time.tv_nsec += (nanoseconds % SECOND) as i64;
    if time.tv_nsec >= SECOND as i64 {
        time.tv_nsec -= SECOND as i64;
        time.tv_sec = time.tv_sec.saturating_add(1);
    }
    time
}

pub(crate) fn wait(word: &U32, expected: u32, until: Until<'_>) -> Waited {
    let deadline = match until {
        Until::Woken => None,
        Until::Deadline(deadline) => Some(deadline),
        Until::Nanoseconds(nanoseconds) => {
            let time = in_nanoseconds(nanoseconds.into());
            return match wait_until(word, expected, libc::FUTEX_WAIT_BITSET, Some(&time)) {
                Err(libc::EINTR) => Waited::Interrupted,
                _ => Waited::Woken,
            };
        }
    };
    // The kernel calls a negative time invalid; it means long ago.
    if deadline.is_some_and(|deadline| deadline.seconds < 0) {
        return Waited::TimedOut;
    }
    // Where wake-ups may be lost, a sleeper looks after this long, or at its deadline if that comes before.
    const LOOK_AFTER: u64 = 10_000_000;
    let clock = deadline.map_or(Clock::Monotonic, |deadline| deadline.clock);
    let mut until = deadline.map(timespec);
    let mut looks = crate::rseq::broken();
    if looks {
        let look = in_nanoseconds_of(crate::time::id(clock), LOOK_AFTER);
        looks = until.is_none_or(|until| (look.tv_sec, look.tv_nsec) < (until.tv_sec, until.tv_nsec));
        until = if looks { Some(look) } else { until };
    }
    let operation = match clock {
        Clock::Realtime => libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME,
        Clock::Monotonic => libc::FUTEX_WAIT_BITSET,
    };
    match wait_until(word, expected, operation, until.as_ref()) {
        Err(libc::ETIMEDOUT) if looks => Waited::Woken,
        Err(libc::ETIMEDOUT) => Waited::TimedOut,
        Err(libc::EINTR) => Waited::Interrupted,
        _ => Waited::Woken,
    }
}

/// An absolute time needs the bitset form. Without a time the two are the same.
fn wait_until(
    word: &U32,
    expected: u32,
    operation: libc::c_int,
    time: Option<&libc::timespec>,
) -> Result<libc::c_long, libc::c_int> {
    let time = time.map_or(ptr::null(), ptr::from_ref);
    keeping_errno(|| {
        // SAFETY: the word and the time outlive the call, which reads them; it writes nothing.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                ptr::from_ref(word),
                operation | libc::FUTEX_PRIVATE_FLAG,
                expected,
                time,
                ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        }
    })
}

pub(crate) fn wake(word: *const U32, count: u32) {
    // An address that is no longer mapped, or holds something else by now, wakes no thread, or one for no
    // reason. Neither does harm, so the result does not matter.
    let count = count.min(i32::MAX as u32);
    let _ = keeping_errno(|| {
        // SAFETY: a private futex's wake-up uses the address as a name and does not access it.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count) }
    });
}

pub(crate) fn expired(deadline: &Deadline) -> bool {
    let now = now(crate::time::id(deadline.clock));
    (now.tv_sec, now.tv_nsec) >= (deadline.seconds, i64::from(deadline.nanoseconds))
}

pub(crate) fn nanoseconds() -> u64 {
    let now = now(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The time of a clock.
pub fn now(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec; these clocks exist on every kernel.
    unsafe { crate::time::reader()(clock, &mut now) };
    now
}
