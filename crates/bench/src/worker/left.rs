//! Leaves the statistics of a program with many locks, for which its threads have waited often: the recorder
//! is called as that program would have called it, by one thread that is each of its threads in turn, so that
//! a wait takes no longer than to count it.

use std::cell::Cell;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::AtomicU32;

use poundlock_statfile::LockKind;
use poundlock_statfile::writer::{CallSite, Host, LockRef, Manner, Options, Recorder};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How many threads the program had.
pub(crate) const THREADS: usize = 4;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Where to leave them.
    pub(crate) directory: PathBuf,
    /// Each is acquired once by each thread.
    pub(crate) locks: u32,
    /// Waits for locks that chance picks.
    pub(crate) waits: u64,
}

struct Program;

static RECORDER: Recorder<Program> = Recorder::new();

thread_local! {
    static WORD: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

// SAFETY: a plain thread-local cell without a destructor, null at first. [`run`] changes it between calls of
// the recorder only: then the calling thread is another one of the program's.
unsafe impl Host for Program {
    fn word() -> *mut u8 {
        WORD.get()
    }

    fn set_word(word: *mut u8) {
        WORD.set(word);
    }

    fn recorder() -> &'static Recorder<Self> {
        &RECORDER
    }
}

pub(crate) fn run(task: &Task) -> Result<()> {
    let directory = CString::new(task.directory.as_os_str().as_bytes())
        .map_err(|_| Error::Failed("a zero in a path".to_owned()))?;
    if !RECORDER.init(&directory, b"glibc", b"glibc", Options::DEFAULT) {
        return Err(Error::Failed(format!("no statistics in {}", task.directory.display())));
    }
    let words: Vec<AtomicU32> = (0..task.locks).map(|_| AtomicU32::new(0)).collect();
    let lock = |index: usize| LockRef {
        word: &words[index],
        // As an array of a program's would lie.
        address: (1 << 32) + 40 * index,
        kind: LockKind::Mutex,
        writers: None,
    };
    // A place in this program, which the report can find; further out than all that is on the stack, so that
    // nothing lies around it. A call returns behind its last byte.
    let site = CallSite { pc: run as fn(&Task) -> Result<()> as usize + 1, sp: usize::MAX / 2 };
    let mut threads = [ptr::null_mut(); THREADS];
    let mut be = |thread: usize, act: &mut dyn FnMut()| {
        WORD.set(threads[thread]);
        act();
        threads[thread] = WORD.get();
    };
    for thread in 0..THREADS {
        be(thread, &mut || {
            for index in 0..words.len() {
                RECORDER.acquired(lock(index), site, Manner::LOCK);
                RECORDER.released(lock(index), site);
            }
        });
    }
    let mut random = SmallRng::seed_from_u64(1);
    for wait in 0..task.waits {
        let lock = lock(random.random_range(0..words.len()));
        let (holder, waiter) = (wait as usize % THREADS, (wait as usize + 1) % THREADS);
        let mut begun = None;
        be(holder, &mut || RECORDER.acquired(lock, site, Manner::LOCK));
        be(waiter, &mut || begun = Some(RECORDER.wait_begin(lock, site, Manner::LOCK)));
        be(holder, &mut || _ = RECORDER.released(lock, site));
        be(waiter, &mut || {
            if let Some(begun) = begun.take() {
                RECORDER.acquired_after_wait(lock, begun, site, Manner::LOCK);
            }
            RECORDER.released(lock, site);
        });
    }
    RECORDER.finish();
    Ok(())
}
