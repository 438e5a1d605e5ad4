//! What the tests of the recorder share: a recorder of their own, locks without any locking, and call sites.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use poundlock_statfile::writer::{CallSite, Host, LockRef, Manner, Options, Recorder};
use poundlock_statfile::{LockKind, LockStats, Snapshot};

/// Defines a type `$name` that hosts a recorder of its own, `$name::recorder()`.
macro_rules! host {
    ($name:ident) => {
        struct $name;

        const _: () = {
            static RECORDER: poundlock_statfile::writer::Recorder<$name> =
                poundlock_statfile::writer::Recorder::new();
            thread_local! {
                static WORD: std::cell::Cell<*mut u8> = const { std::cell::Cell::new(std::ptr::null_mut()) };
            }
            // SAFETY: a plain thread-local cell without a destructor, null at first.
            unsafe impl poundlock_statfile::writer::Host for $name {
                fn word() -> *mut u8 {
                    WORD.get()
                }
                fn set_word(word: *mut u8) {
                    WORD.set(word);
                }
                fn recorder() -> &'static poundlock_statfile::writer::Recorder<Self> {
                    &RECORDER
                }
            }
        };
    };
}

/// A directory that goes when it is dropped, and a recorder in it, hosted by a type of this name; its file is
/// small unless options say otherwise.
macro_rules! recording {
    ($name:ident: $directory:ident, $recorder:pat) => {
        recording!($name: $directory, $recorder, SMALL);
    };
    ($name:ident: $directory:ident, $recorder:pat, $options:expr) => {
        host!($name);
        let $directory = tempfile::tempdir().expect("a directory");
        let $recorder = start::<$name>($directory.path(), $options);
    };
}

/// Options for a small file.
pub(crate) const SMALL: Options = Options {
    sizes: &[64 << 20],
    locks: 1024,
    stacks: 256,
    modules: 512,
    arrays: 64,
    recycle_after: 1024,
    plain_clock: false,
    check: None,
    lone_signals: false,
    trace: 0,
};

/// Starts `H`'s recorder in `directory`.
pub(crate) fn start<H: Host>(directory: &Path, options: Options) -> &'static Recorder<H> {
    let name = CString::new(directory.as_os_str().as_bytes()).expect("no zero in a path");
    assert!(H::recorder().init(&name, b"test-lock", b"test-rwlock", options));
    H::recorder()
}

/// The only statistics file in `directory`.
pub(crate) fn only_file(directory: &Path) -> PathBuf {
    let mut files = files(directory);
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// All statistics files in `directory`.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Reads the only file, as of now.
pub(crate) fn snapshot(directory: &Path) -> Snapshot {
    poundlock_statfile::read(&only_file(directory), now()).expect("a good file")
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills our own variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The recorder's view of a lock: its word and an address.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Lock {
    pub(crate) word: AtomicU32,
}

impl Lock {
    pub(crate) fn address(&self) -> usize {
        &raw const *self as usize
    }

    pub(crate) fn seen(&self) -> LockRef<'_> {
        at(&self.word, self.address())
    }
}

/// A lock with no memory but its word, said to be at `address`.
pub(crate) fn at(word: &AtomicU32, address: usize) -> LockRef<'_> {
    LockRef { word, address, kind: LockKind::Mutex, writers: None }
}

/// The figures of the lock at `address`.
pub(crate) fn of(snapshot: &Snapshot, address: usize) -> &LockStats {
    let mut found = snapshot.locks.iter().filter(|lock| lock.address == address as u64);
    let first = found.next().expect("the lock is in the report");
    assert!(found.next().is_none(), "one entry per lock");
    first
}

/// The figures of an aggregate.
pub(crate) fn aggregate(snapshot: &Snapshot, kind: LockKind) -> Option<&LockStats> {
    snapshot.locks.iter().find(|lock| lock.kind == kind)
}

/// Where this is inlined: an address in the function and its stack pointer.
#[inline(always)]
pub(crate) fn here() -> CallSite {
    let (pc, sp): (usize, usize);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads two registers.
    unsafe {
        std::arch::asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            pc = out(reg) pc,
            sp = out(reg) sp,
            options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads two registers.
    unsafe {
        std::arch::asm!(
            "adr {pc}, .",
            "mov {sp}, sp",
            pc = out(reg) pc,
            sp = out(reg) sp,
            options(nomem, nostack, preserves_flags)
        );
    }
    CallSite { pc, sp }
}

/// An unknown place.
pub(crate) const NOWHERE: CallSite = CallSite { pc: 0, sp: 0 };

/// One uncontended acquisition and release.
pub(crate) fn pair<H: Host>(lock: LockRef<'_>) {
    H::recorder().acquired(lock, NOWHERE, Manner::LOCK);
    H::recorder().released(lock, NOWHERE);
}

/// One acquisition after a wait, and its release.
pub(crate) fn contended_pair<H: Host>(lock: LockRef<'_>, site: CallSite) {
    let wait = H::recorder().wait_begin(lock, site, Manner::LOCK);
    H::recorder().acquired_after_wait(lock, wait, site, Manner::LOCK);
    H::recorder().released(lock, site);
}

pub(crate) use {host, recording};
