//! How locks that a program is linked with are counted and checked: by the recorder that `poundlock stat` and
//! `poundlock check` put into its process.
//!
//! The preloaded library has the recorder, and exports a [`Statistics`] by the name [`SYMBOL`]; the program's
//! locks look for it when the program starts. So a process has one recorder, whatever its locks are linked
//! with, and its own locks stay its own: the recorder knows their addresses and no word of theirs but the one
//! that they lend it.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::AtomicU32;

/// The name of the table, in every version.
pub const SYMBOL: &CStr = c"poundlock_statistics";

/// The version of all that comes behind [`Statistics::of_another_version`].
pub const VERSION: u32 = 4;

/// What a lock is called, and how it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A mutex.
    Mutex = 1,
    /// A spinlock.
    Spinlock = 2,
    /// A readers-writer lock, by a reader whom waiting writers do not keep out.
    Reader = 3,
    /// The same, by a writer. Its address is [`WRITERS`] beyond the lock's.
    Writer = 4,
    /// A condition variable.
    Condition = 5,
    /// As [`Kind::Reader`], by one who waits behind writers that wait.
    FairReader = 6,
}

impl Kind {
    /// The byte of a `LockKind` of `poundlock-statfile`.
    const fn number(self) -> u32 {
        if let Kind::FairReader = self { Kind::Reader as u32 } else { self as u32 }
    }

    /// For [`Lock::how`].
    const fn how(self) -> u32 {
        match self {
            Kind::Reader => READS,
            Kind::FairReader => READS_FAIRLY,
            Kind::Mutex | Kind::Spinlock | Kind::Writer | Kind::Condition => 0,
        }
    }
}

/// How far beyond a readers-writer lock the address lies by which its writers are counted.
pub const WRITERS: usize = 4;

/// A lock, for the recorder.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Lock {
    /// A word of the lock that belongs to the recorder; zero in a new lock. Null: the lock has no room for
    /// one, and the recorder finds what it knows by the address.
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

impl Lock {
    /// The lock at this address, which has a word for the recorder. The readers' is followed by the writers'.
    #[inline(always)]
    #[must_use]
    pub const fn with_word(kind: Kind, word: *const AtomicU32, address: usize) -> Lock {
        let writers = match kind {
            Kind::Reader | Kind::FairReader => word.wrapping_add(1),
            Kind::Mutex | Kind::Spinlock | Kind::Writer | Kind::Condition => ptr::null(),
        };
        Lock { word, address, kind: kind.number(), how: kind.how(), writers }
    }

    /// The lock at this address, which has no room for a word.
    #[inline(always)]
    #[must_use]
    pub const fn at(kind: Kind, address: usize) -> Lock {
        let address = if let Kind::Writer = kind { address + WRITERS } else { address };
        Lock { word: ptr::null(), address, kind: kind.number(), how: kind.how(), writers: ptr::null() }
    }

    /// The same, asked for or held in this way as well: [`TRIES`], [`ALLOWS`], [`TIMED`].
    #[inline(always)]
    #[must_use]
    pub const fn that(self, how: u32) -> Lock {
        Lock { how: self.how | how, ..self }
    }
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

/// Room for a wait that has begun; its contents are the recorder's.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Wait(pub [usize; 7]);

/// Calls to the recorder, by the thread to which the event happens. All are async-signal-safe. Where a call
/// takes two numbers, they are the place in the program: its return address, and its stack pointer after the
/// return.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Statistics {
    /// [`VERSION`]. This and the next are the same in all versions.
    pub version: u32,
    /// Says that locks of this version are not seen.
    pub of_another_version: extern "C" fn(version: u32),
    /// Whether this process is measured. Does not change.
    pub counts: extern "C" fn() -> bool,
    /// Acquired without waiting.
    pub acquired: unsafe extern "C" fn(&Lock, usize, usize),
    /// About to wait. To be followed by one of the next two.
    pub wait_begins: unsafe extern "C" fn(&Lock, &mut Wait, usize, usize),
    /// Acquired after that wait, at its place.
    pub acquired_after: unsafe extern "C" fn(&Lock, &mut Wait),
    /// Given up after that wait.
    pub gave_up: unsafe extern "C" fn(&Lock, &mut Wait),
    /// About to be released.
    pub released: unsafe extern "C" fn(&Lock, usize, usize),
    /// About to be released, but nobody has it.
    pub released_free: unsafe extern "C" fn(&Lock, usize, usize),
    /// The calling thread is refused the release: it does not have it.
    pub not_released: unsafe extern "C" fn(&Lock, usize, usize),
    /// Initialised. Of a readers-writer lock its writers stand for all of it, here and below, if it has no
    /// word.
    pub created: unsafe extern "C" fn(&Lock, usize, usize),
    /// Destroyed: the lock's memory is going to be something else.
    pub destroyed: unsafe extern "C" fn(&Lock, usize, usize),
    /// Somebody wants to destroy it, and is refused because it is in use.
    pub not_destroyed: unsafe extern "C" fn(&Lock, usize, usize),
    /// About to wait for this condition variable, with this mutex, which the caller still has: for a while
    /// only, if the condition variable is asked for so.
    pub waits: unsafe extern "C" fn(&Lock, &Lock, usize, usize),
    /// That wait is over, with or without a signal, and the caller has the mutex again.
    pub woken: unsafe extern "C" fn(&Lock, &Lock, bool),
    /// About to wake one thread that waits for this condition variable, or all.
    pub wakes: unsafe extern "C" fn(&Lock, bool, usize, usize),
}

impl Statistics {
    /// The recorder, if it understands us and this process is measured.
    ///
    /// # Safety
    /// Null, or what a library that stays exports as [`SYMBOL`], in any version.
    #[must_use]
    pub unsafe fn of_this_process(table: *const Statistics) -> Option<&'static Statistics> {
        if table.is_null() {
            return None;
        }
        // SAFETY: the caller's; these two are in each version.
        let (version, of_another_version) = unsafe { ((*table).version, (*table).of_another_version) };
        if version != VERSION {
            of_another_version(VERSION);
            return None;
        }
        // SAFETY: it is this version.
        let table = unsafe { &*table };
        (table.counts)().then_some(table)
    }
}

/// The body of a naked function of one to four arguments: a jump to `$body`, which gets two more, the return
/// address and the stack pointer of the caller.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! go_on {
    (1, $body:path) => { $crate::go_on! { @ "rsi", "rdx", $body } };
    (2, $body:path) => { $crate::go_on! { @ "rdx", "rcx", $body } };
    (3, $body:path) => { $crate::go_on! { @ "rcx", "r8", $body } };
    (4, $body:path) => { $crate::go_on! { @ "r8", "r9", $body } };
    (@ $ret:literal, $sp:literal, $body:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            concat!("mov ", $ret, ", qword ptr [rsp]"),
            concat!("lea ", $sp, ", [rsp + 8]"),
            "jmp {body}",
            ".cfi_endproc",
            body = sym $body,
        )
    };
}

/// The body of a naked function of one to four arguments: a jump to `$body`, which gets two more, the return
/// address and the stack pointer of the caller.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! go_on {
    (1, $body:path) => { $crate::go_on! { @ "x1", "x2", $body } };
    (2, $body:path) => { $crate::go_on! { @ "x2", "x3", $body } };
    (3, $body:path) => { $crate::go_on! { @ "x3", "x4", $body } };
    (4, $body:path) => { $crate::go_on! { @ "x4", "x5", $body } };
    (@ $ret:literal, $sp:literal, $body:path) => {
        ::core::arch::naked_asm!(
            ".cfi_startproc",
            concat!("mov ", $ret, ", x30"),
            concat!("mov ", $sp, ", sp"),
            "b {body}",
            ".cfi_endproc",
            body = sym $body,
        )
    };
}
