//! Whether a signal handler ends a wait on a futex.
//!
//! `semop` ends with EINTR when a signal handler has run, whatever the handler's flags. A timed wait on a
//! futex does the same. The kernel restarts an endless one after a handler with `SA_RESTART`, unseen. A timer
//! for each sleep takes a tenth of the cost of a sleep and wake-up, so sleeps have none as long as the
//! process has no such handler.
//!
//! That is looked up before the first sleep. Later handlers are announced by the library that interposes
//! `sigaction` ([`installed`]). Unseen ones are found when a timed wait ends: one sleeper of each process
//! always looks at intervals.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use poundlock_linux::parts::keeping_errno;

use crate::{domain, table};

/// Not looked up yet.
const UNKNOWN: u8 = 0;
/// No handler restarts.
const NONE: u8 = 1;
/// Some do, or did. For good.
const SOME: u8 = 2;

static HANDLERS: AtomicU8 = AtomicU8::new(UNKNOWN);

/// See [`Host::interrupts`](poundlock_core::semarray::Host::interrupts).
#[inline]
pub(crate) fn interrupts() -> bool {
    match HANDLERS.load(Relaxed) {
        UNKNOWN => look(),
        known => known == NONE,
    }
}

/// A handler with `SA_RESTART` is about to be installed: sleepers that would not see it run are to sleep in
/// another way. Async-signal-safe.
pub fn installed() {
    if HANDLERS.swap(SOME, Relaxed) == NONE {
        // It was not NONE before an array was slept on, so the domain is known.
        if let Some(domain) = domain::known() {
            table::for_each(domain, |mapping| mapping.array.rouse());
        }
    }
}

/// Now and then: looks for handlers that were not announced.
#[cold]
pub(crate) fn look_again() {
    if HANDLERS.load(Relaxed) == NONE && restart() {
        installed();
    }
}

#[cold]
fn look() -> bool {
    let found = if restart() { SOME } else { NONE };
    // Not over what was announced meanwhile.
    let _ = HANDLERS.compare_exchange(UNKNOWN, found, Relaxed, Relaxed);
    HANDLERS.load(Relaxed) == NONE
}

/// The kernel's structure on this architecture: the C library's has another form and hides its own two
/// signals.
#[repr(C)]
struct Action {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

/// Whether some signal has a handler with `SA_RESTART`. Not the two signals of the C library, whose handlers
/// do not matter here.
fn restart() -> bool {
    const SIGNALS: i32 = 64;
    const OF_THE_C_LIBRARY: core::ops::RangeInclusive<i32> = 32..=33;
    (1..=SIGNALS).filter(|signal| !OF_THE_C_LIBRARY.contains(signal)).any(|signal| {
        let mut action = MaybeUninit::<Action>::zeroed();
        // SAFETY: asks only; writes one structure of the kernel's, for a set of 8 bytes.
        let asked = keeping_errno(|| unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, ptr::null::<Action>(), action.as_mut_ptr(), 8)
        });
        // SAFETY: zero bytes are one, and the call may have written it.
        let action = unsafe { action.assume_init() };
        asked.is_ok()
            && action.handler != libc::SIG_DFL
            && action.handler != libc::SIG_IGN
            && action.flags & libc::SA_RESTART as libc::c_ulong != 0
    })
}
