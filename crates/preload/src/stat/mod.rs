//! The statistics recorder of this process: `poundlock-statfile`'s, on a thread-local word of ours.
//!
//! A thin adapter. The pthread layer calls it only while statistics are on ([`init`] returned true), as:
//!
//! | moment | call |
//! | --- | --- |
//! | library start | [`init`] |
//! | in a forked child, first thing | [`fork_child`] |
//! | library end | [`finish`] |
//! | lock initialised by a call / destroyed | [`created`] / [`destroyed`] |
//! | acquired without waiting (recursive: outermost only) | [`acquired`] |
//! | about to wait, before queueing | [`wait_begin`] |
//! | ... and then holding the lock / having run out of time | [`acquired_after_wait`] / [`abandoned_wait`] |
//! | ... and then refused without a wait | drop the [`Wait`] |
//! | about to release (outermost), still holding the lock | [`released`] |

use core::ffi::CStr;

pub(crate) use poundlock_statfile::writer::{CallSite, LockRef, Wait};
use poundlock_statfile::writer::{Host, Options, Recorder};

struct Process;

static RECORDER: Recorder<Process> = Recorder::new();

// SAFETY: the word is thread-local, null in a new thread, and a plain load and store of a thread's own memory.
unsafe impl Host for Process {
    #[inline(always)]
    fn word() -> *mut u8 {
        poundlock_linux::tls::stat()
    }

    #[inline(always)]
    fn set_word(word: *mut u8) {
        poundlock_linux::tls::set_stat(word);
    }

    fn recorder() -> &'static Recorder<Self> {
        &RECORDER
    }
}

/// Begins recording if `POUNDLOCK_STAT_DIR` names a directory where that is possible. Returns whether it did.
/// Two threads may call it at once: one does it.
pub(crate) fn init(lock_name: &str) -> bool {
    // SAFETY: a C string constant; the result is used before anything can change the environment.
    let directory = unsafe { libc::getenv(c"POUNDLOCK_STAT_DIR".as_ptr()) };
    if directory.is_null() {
        return false;
    }
    // SAFETY: `getenv` gives a C string.
    let directory = unsafe { CStr::from_ptr(directory) };
    !directory.is_empty() && RECORDER.init(directory, lock_name.as_bytes(), Options::DEFAULT)
}

/// See [`Recorder::fork_child`].
pub(crate) fn fork_child() {
    RECORDER.fork_child();
}

/// See [`Recorder::finish`].
pub(crate) fn finish() {
    RECORDER.finish();
}

/// See [`Recorder::created`].
pub(crate) fn created(lock: LockRef<'_>, site: CallSite) {
    RECORDER.created(lock, site);
}

/// See [`Recorder::destroyed`].
pub(crate) fn destroyed(lock: LockRef<'_>) {
    RECORDER.destroyed(lock);
}

/// See [`Recorder::acquired`].
#[inline(always)]
pub(crate) fn acquired(lock: LockRef<'_>) {
    RECORDER.acquired(lock);
}

/// See [`Recorder::released`].
#[inline(always)]
pub(crate) fn released(lock: LockRef<'_>) {
    RECORDER.released(lock);
}

/// See [`Recorder::wait_begin`].
pub(crate) fn wait_begin(lock: LockRef<'_>, site: CallSite) -> Wait {
    RECORDER.wait_begin(lock, site)
}

/// See [`Recorder::acquired_after_wait`].
pub(crate) fn acquired_after_wait(lock: LockRef<'_>, wait: Wait) {
    RECORDER.acquired_after_wait(lock, wait);
}

/// See [`Recorder::abandoned_wait`].
pub(crate) fn abandoned_wait(lock: LockRef<'_>, wait: Wait) {
    RECORDER.abandoned_wait(lock, wait);
}
