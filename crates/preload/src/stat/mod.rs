//! The statistics recorder of this process: `poundlock-statfile`'s, on a thread-local word of ours.
//!
//! The pthread layer calls it only while statistics are on ([`init`] returned true), as:
//!
//! | moment | call of [`RECORDER`] |
//! | --- | --- |
//! | in a forked child, first thing / library end | [`fork_child`](Recorder::fork_child) / [`finish`](Recorder::finish) |
//! | lock initialised by a call / destroyed | [`created`](Recorder::created) / [`destroyed`](Recorder::destroyed) |
//! | acquired (recursive: outermost only) | [`acquire`], or what it is made of |
//! | about to release (outermost), still holding the lock | [`released`](Recorder::released) |
//!
//! [`thread_started`] counts threads, since a thread without a counted lock has no record. Semaphore arrays count themselves; here are
//! only [`array_used`] and [`remove_array`].
//!
//! What has no room for a word of ours has its [`LockRef`] from [`at`], and is initialised and destroyed by
//! [`created_at`] and [`destroyed_at`]. Lock events come by themselves, from the platform.

mod arrays;
mod linked;

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{EBUSY, EOWNERDEAD, ETIMEDOUT};

pub(crate) use arrays::{array_used, remove_array};
use poundlock_core::events::Event;
pub(crate) use poundlock_statfile::LockKind;
pub(crate) use poundlock_statfile::check::Mode;
pub(crate) use poundlock_statfile::writer::{CallSite, Ended, LockRef, Manner, Wake};
use poundlock_statfile::writer::{Host, Interrupted, Options, Recorder, Words};

use crate::abi::Patience;
use crate::{check, environment, interrupted};

pub(crate) struct Process;

/// This process's.
pub(crate) static RECORDER: Recorder<Process> = Recorder::new();

/// The words of what has no room for one: spinlocks, condition variables, semaphores, and what processes
/// share. In a forked child a copy of the parent's, as its locks are.
static WORDS: Words = Words::new();

// SAFETY: the word is thread-local, null in a new thread, and a plain load and store of a thread's own
// memory.
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

    #[inline(always)]
    fn interrupted() -> bool {
        interrupted::may_be()
    }

    fn handler(sp: usize) -> Option<Interrupted> {
        interrupted::now(sp)
    }

    #[inline(always)]
    fn handled_signals() -> u64 {
        interrupted::watched()
    }

    fn blocked_signals() -> u64 {
        interrupted::mask()
    }
}

/// Begins recording if the environment names a directory where that is possible. Returns whether it did.
/// Two threads may call it at once: one does it.
pub(crate) fn init(lock_name: &str, rwlock_name: &str) -> bool {
    let checked = check::find_out();
    let options = Options {
        check: checked.then(check::room),
        lone_signals: check::lone_signals(),
        trace: if checked { 0 } else { traced() },
        ..Options::DEFAULT
    };
    let begun = directory().is_some_and(|directory| {
        RECORDER.init(directory, lock_name.as_bytes(), rwlock_name.as_bytes(), options)
    });
    if begun {
        WORDS.open();
        if !checked {
            poundlock_linux::events::send_to(count);
        }
    }
    begun
}

/// In how many chunks the process's life is to be written down, by `poundlock record`.
fn traced() -> u32 {
    environment::variable(c"POUNDLOCK_TRACE").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
}

/// The directory for statistics: that of `poundlock stat`, or else the one that somebody named, which is made
/// if it is not there. Not one of another user than root and this process's: its owner could put links in the
/// place of files there.
fn directory() -> Option<&'static CStr> {
    if let Some(directory) =
        environment::variable(c"POUNDLOCK_STAT_DIR").filter(|directory| !directory.is_empty())
    {
        return Some(directory);
    }
    let directory =
        environment::variable(c"POUNDLOCK_STATS").filter(|directory| environment::is_whole(directory))?;
    let _errno = environment::Errno::keep();
    // If it cannot be made, or is something else, the recorder says so. SAFETY: a C string.
    unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, directory.as_ptr(), 0o700) };
    let owner = environment::owner(directory);
    // SAFETY: a question.
    if owner != 0 && owner != unsafe { libc::geteuid() } {
        let why = b": belongs to another user: there are no statistics";
        environment::complain(&[b"POUNDLOCK_STATS=", directory.to_bytes(), why]);
        return None;
    }
    Some(directory)
}

/// Events have the numbers of their discriminants, durations those of their places among the durations.
fn count(event: Event, amount: u64) {
    if event.is_duration() {
        let mut durations = Event::ALL.iter().filter(|event| event.is_duration());
        if let Some(number) = durations.position(|&other| other == event) {
            RECORDER.duration(number, amount);
        }
    } else {
        RECORDER.event(event as usize);
    }
}

/// The object at this address, which has no room for a word of ours.
#[inline]
pub(crate) fn at(address: usize, kind: LockKind) -> LockRef<'static> {
    LockRef { word: WORDS.word(address), address, kind, writers: None }
}

/// As [`at`], if that takes no call.
#[inline(always)]
pub(crate) fn at_once(address: usize, kind: LockKind) -> Option<LockRef<'static>> {
    WORDS.word_at_once(address).map(|word| LockRef { word, address, kind, writers: None })
}

/// Whether a word is the one of objects that found no room for one.
pub(crate) fn is_others(word: &AtomicU32) -> bool {
    WORDS.is_others(word)
}

/// The object at this address is initialised.
pub(crate) fn created_at(address: usize, kind: LockKind, site: CallSite) {
    let lock = at(address, kind);
    if WORDS.is_others(lock.word) {
        RECORDER.no_room();
    } else {
        RECORDER.created(lock, site);
    }
}

/// What is at this address, if anything is, is destroyed. Its word, 0 if it has none. Under check a spinlock,
/// which has no room for a mark, keeps its place: so that what is done with it afterwards is seen.
pub(crate) fn destroyed_at(address: usize, kind: LockKind, site: CallSite) -> u32 {
    ends_at(address, kind, site, check::is_on() && kind == LockKind::Spinlock)
}

/// As [`destroyed_at`], of what bears no mark of its end: nothing more is said of it.
pub(crate) fn ended_at(address: usize, kind: LockKind, site: CallSite) {
    ends_at(address, kind, site, false);
}

fn ends_at(address: usize, kind: LockKind, site: CallSite, keeps_its_place: bool) -> u32 {
    if check::is_on() {
        RECORDER.meets(at(address, kind));
    }
    let Some(word) = WORDS.known(address) else { return 0 };
    RECORDER.destroyed(LockRef { word, address, kind, writers: None }, site);
    let last = word.load(Relaxed);
    if !keeps_its_place {
        WORDS.free(address);
    }
    last
}

/// Takes a lock, in this manner, and counts that: `acquire` takes it with as much patience as it is told. Only
/// the `outermost` acquisition of a recursive lock counts.
pub(crate) fn acquire<Time>(
    lock: LockRef<'_>,
    site: CallSite,
    manner: Manner,
    patience: Patience<Time>,
    outermost: impl FnOnce() -> bool,
    acquire: impl Fn(Patience<Time>) -> c_int,
) -> c_int {
    let mut result = acquire(Patience::None);
    // A robust mutex whose owner has died is acquired with that error.
    if result == 0 || result == EOWNERDEAD {
        if outermost() {
            let tries = matches!(patience, Patience::None);
            RECORDER.acquired(lock, site, if tries { manner.trying() } else { manner });
        }
    } else if result == EBUSY && matches!(patience, Patience::None) {
        if check::is_on() {
            RECORDER.refused(lock, site, None, true);
        }
    } else if result == EBUSY {
        result = acquire_busy(lock, site, manner, patience, acquire);
    }
    result
}

/// As [`acquire`], of a lock that has just been found to be taken, by a caller that waits for it.
pub(crate) fn acquire_busy<Time>(
    lock: LockRef<'_>,
    site: CallSite,
    manner: Manner,
    patience: Patience<Time>,
    acquire: impl Fn(Patience<Time>) -> c_int,
) -> c_int {
    let timed = matches!(patience, Patience::Until(_));
    let wait = RECORDER.wait_begin(lock, site, if timed { manner.timed() } else { manner });
    let result = acquire(patience);
    match result {
        0 | EOWNERDEAD => RECORDER.acquired_after_wait(lock, wait, site, manner),
        ETIMEDOUT => RECORDER.abandoned_wait(lock, wait),
        // Refused at once: no wait at all.
        _ => drop(wait),
    }
    result
}
