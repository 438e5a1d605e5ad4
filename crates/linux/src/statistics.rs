//! How locks that a program is linked with are counted: by the recorder that `poundlock stat` puts into its
//! process.
//!
//! The preloaded library has the recorder, and exports a [`Statistics`] by the name [`SYMBOL`]; the program's
//! locks look for it when the program starts. So a process has one recorder, whatever its locks are linked
//! with.

use core::ffi::CStr;
use core::sync::atomic::AtomicU32;

/// The name of the table, with the version of its layout.
pub const SYMBOL: &CStr = c"poundlock_statistics_3";

/// A lock, for the recorder.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lock {
    /// A word of the lock that belongs to the recorder; zero in a new lock.
    pub word: *const AtomicU32,
    /// Its address, for the report.
    pub address: usize,
    /// The byte of a `LockKind` of `poundlock-statfile`.
    pub kind: u32,
    /// How it is asked for, or was: [`READS`] or [`READS_FAIRLY`], and [`TRIES`], [`ALLOWS`] or [`TIMED`].
    pub how: u32,
    /// Of a readers-writer lock's readers: as `word`, of its writers; else null.
    pub writers: *const AtomicU32,
}

/// In [`Lock::how`]: by a reader, whom waiting writers do not keep out.
pub const READS: u32 = 1;
/// By a reader who waits behind writers that wait.
pub const READS_FAIRLY: u32 = 2;
/// By a call that does not wait.
pub const TRIES: u32 = 1 << 8;
/// The lock refuses the thread that has it, or lets it have it again.
pub const ALLOWS: u32 = 1 << 9;
/// By a call that waits until a time, and no longer.
pub const TIMED: u32 = 1 << 10;

/// Room for a wait that has begun; its contents are the recorder's. A wait that ends in neither way was none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Wait(pub [usize; 7]);

/// Calls to the recorder, by the thread to which the event happens. All are async-signal-safe.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Statistics {
    /// Whether this process is measured. Does not change.
    pub counts: extern "C" fn() -> bool,
    /// Acquired without waiting, at the place with that return address and that stack pointer after the return.
    pub acquired: unsafe extern "C" fn(&Lock, usize, usize),
    /// About to wait, at the place with that return address and that stack pointer after the return.
    pub wait_begins: unsafe extern "C" fn(&Lock, &mut Wait, usize, usize),
    /// Acquired after that wait, at its place.
    pub acquired_after: unsafe extern "C" fn(&Lock, &mut Wait),
    /// Given up after that wait.
    pub gave_up: unsafe extern "C" fn(&Lock, &mut Wait),
    /// About to be released, at the place with that return address and that stack pointer after the return.
    pub released: unsafe extern "C" fn(&Lock, usize, usize),
    /// The lock's memory is going to be something else.
    pub destroyed: unsafe extern "C" fn(&Lock),
}
