//! What a statistics file says, in plain values: the merged view that reports are made from.

use core::fmt;
use std::sync::Arc;

use crate::layout::ARRAY_FIGURES;

/// Everything one process recorded about its locks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// The process.
    pub pid: u32,
    /// The name of the lock that the process ran on.
    pub lock: String,
    /// The name of its readers-writer lock.
    pub rwlock: String,
    /// The path of the program, as the kernel gave it.
    pub exe: String,
    /// `CLOCK_MONOTONIC` when recording began, in nanoseconds.
    pub start_ns: u64,
    /// How many threads used a lock, over the life of the process.
    pub threads: u32,
    /// How many threads it started with the C library's functions.
    pub started: u32,
    /// The sum over those threads of the time from the first use of a lock to the thread's end, or to the
    /// last moment at which it is known to have lived.
    pub thread_time_ns: u64,
    /// Every lock that was acquired or waited for, most waiting first.
    pub locks: Vec<LockStats>,
    /// The files that were mapped, in the order in which they were seen. Where two overlap (one was unmapped
    /// and another took its place) the later one is meant: see [`Snapshot::module_at`].
    pub modules: Vec<Module>,
    /// How many locks were counted together, in one entry of kind [`LockKind::Overflow`], because the lock
    /// table or the file was full.
    pub dropped_locks: u64,
    /// Waits of which neither the lock nor the place is known, because the file or the thread's share of it was
    /// full. They are in the entry of kind [`LockKind::Overflow`], as are waits of which only the place is
    /// known.
    pub dropped_waits: u64,
    /// Of as many acquisitions that nobody waited for, one is timed: see [`Hold`].
    pub sample_one_in: u32,
    /// What the threads did that used a lock, by record: one of a thread that has ended may be the next one's
    /// too. In the order of their first uses.
    pub records: Vec<ThreadStats>,
    /// How many operations were not counted: in a signal handler that interrupted the recorder, or without
    /// memory for them.
    pub lost_events: u64,
    /// What was counted with [`Recorder::event`](crate::writer::Recorder::event), by number. Empty if nothing
    /// was.
    pub events: Vec<EventCount>,
    /// What was counted with [`Recorder::duration`](crate::writer::Recorder::duration), by number. Empty if
    /// there were no events at all.
    pub durations: Vec<Durations>,
    /// The semaphore arrays that the process used, by id.
    pub arrays: Vec<ArrayStats>,
    /// Whether it used more of them than there was room for.
    pub dropped_arrays: bool,
}

/// A semaphore array that the process used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArrayStats {
    /// Its id.
    pub id: u32,
    /// What was known of it when the process removed it, if it did.
    pub end: Option<ArrayEnd>,
}

/// What is known of a semaphore array at its end. What `variant` and the figures mean is for the writer and
/// the reader of the file to agree on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArrayEnd {
    /// Its key.
    pub key: i32,
    /// How many semaphores it had.
    pub semaphores: u32,
    /// Which variant it was.
    pub variant: u32,
    /// What it did in its life.
    pub figures: [u64; ARRAY_FIGURES],
}

/// How often something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCount {
    /// To all threads.
    pub total: u64,
    /// To the thread to which it happened most. Threads of which one began after the other's end may count as
    /// one.
    pub most: u64,
}

/// How long things of one sort took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Durations {
    /// How many there were.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// How many took from 2^n to 2^(n+1) - 1 nanoseconds, for each n; the first counts those of 0 as well.
    pub buckets: Vec<u64>,
}

impl Snapshot {
    /// The module that `address` lies in.
    #[must_use]
    pub fn module_at(&self, address: u64) -> Option<&Module> {
        self.modules.iter().rev().find(|m| m.start <= address && address < m.end)
    }
}

/// One thread, or several of which each began after the end of the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadStats {
    /// The place of the record in the file, which stays the same.
    pub record: u32,
    /// The thread's id, of the last one.
    pub tid: u32,
    /// Whether it was there at the end, or is now.
    pub lives: bool,
    /// Of a thread that ended while it held `holds`.
    pub ended: Option<EndedThread>,
    /// `CLOCK_MONOTONIC` at the first use of a lock by the last one, in nanoseconds.
    pub started_ns: u64,
    /// How often it waited, for anything.
    pub contended: u64,
    /// How long.
    pub wait_ns: u64,
    /// How often it waited for locks ([`LockKind::is_acquired`]).
    pub lock_waits: u64,
    /// How long.
    pub lock_wait_ns: u64,
    /// What it is waiting for.
    pub waits: Option<WaitNow>,
    /// What it holds. Locks counted together are missing.
    pub holds: Vec<HoldNow>,
}

/// What is known of a thread that ended while it held locks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndedThread {
    /// The thread's name at its end.
    pub name: String,
    /// `CLOCK_MONOTONIC` at its end, in nanoseconds; 0 if unknown.
    pub at_ns: u64,
}

/// A wait that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitNow {
    /// [`LockStats::address`]; 0 for a lock counted with others.
    pub address: u64,
    /// What it is.
    pub kind: LockKind,
    /// `CLOCK_MONOTONIC` when it began, in nanoseconds.
    pub since_ns: u64,
    /// From where; empty if unknown.
    pub stack: Arc<[u64]>,
}

/// A hold that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HoldNow {
    /// [`LockStats::address`].
    pub address: u64,
    /// What it is.
    pub kind: LockKind,
    /// `CLOCK_MONOTONIC` when it began, in nanoseconds; `None` if that was not looked at.
    pub since_ns: Option<u64>,
    /// The return address of the call that acquired it; 0 if unknown.
    pub acquired_at: u64,
}

/// The figures of one lock, merged over all threads.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LockStats {
    /// Where the lock is (or was); 0 for the aggregates [`LockKind::Recycled`] and [`LockKind::Overflow`].
    pub address: u64,
    /// What kind of lock it is.
    pub kind: LockKind,
    /// Its place in the file's table. One that somebody waited for keeps it, and has it alone.
    pub slot: u32,
    /// The stack of the call that initialised it, innermost first; empty if it was initialised statically or
    /// nobody knows.
    pub created_at: Arc<[u64]>,
    /// How often it was acquired. Of what is not acquired ([`LockKind::is_acquired`]): how many calls there
    /// were.
    pub acquisitions: u64,
    /// How often a thread had to wait for it, waits that timed out and waits still going on included.
    pub contended: u64,
    /// How many of these waits ended because their time was up.
    pub timeouts: u64,
    /// The time spent in those waits.
    pub wait_total_ns: u64,
    /// The longest of them.
    pub wait_max_ns: u64,
    /// How many of them took from 2^n to 2^(n+1) - 1 nanoseconds, for each n: below 512 ns and from 2^33 on
    /// they are not told apart, and waits going on are missing. It ends with the last that is not 0.
    pub wait_buckets: Vec<u64>,
    /// The time it was held: an estimate. What is known for certain is [`LockStats::waited_holds`].
    pub hold_total_ns: u64,
    /// The longest hold that was timed. Every one that somebody waited for was.
    pub hold_max_ns: u64,
    /// How good the estimate is.
    pub hold: Hold,
    /// Holds that somebody waited for, all of them.
    pub waited_holds: u64,
    /// How long those were.
    pub waited_hold_ns: u64,
    /// How many of those were timed from the moment only at which somebody began to wait.
    pub waited_holds_cut: u64,
    /// How many of them took from 2^n to 2^(n+1) - 1 nanoseconds, as in `wait_buckets`.
    pub waited_hold_buckets: Vec<u64>,
    /// The part of the waits during which nobody had it who could be charged: between a release and the next
    /// acquisition, and where the holder is not known.
    pub handover_ns: u64,
    /// Who made others wait, most waiting first.
    pub holders: Vec<Holder>,
    /// Of a condition variable: how often it was signalled.
    pub signals: u64,
    /// Of a condition variable: how often all waiters were woken.
    pub broadcasts: u64,
    /// Of a condition variable: how many signals and broadcasts came from a thread that had the mutex.
    pub signals_with_mutex: u64,
    /// Of a condition variable: how many waits were followed by another one of the same thread, without its
    /// having released the mutex in between.
    pub in_vain: u64,
    /// Where threads waited, most waiting first.
    pub sites: Vec<Site>,
}

/// How [`LockStats::hold_total_ns`] was estimated: [`FIRST_HOLDS`](crate::layout::FIRST_HOLDS) holds of each
/// thread were timed, and later ones by chance. Holds that somebody waited for are not part of this.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Hold {
    /// How many holds were timed.
    pub samples: u64,
    /// How many there were.
    pub of: u64,
    /// The standard error of `hold_total_ns`: the estimate is off by more than twice that in one of twenty
    /// cases. 0 if all were timed; infinite if some were not and nothing is known of them.
    pub error_ns: f64,
}

/// A place from which a lock was acquired, and one from which it was released while others waited for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holder {
    /// The return address of the call that acquired it; 0 if unknown.
    pub acquired_at: u64,
    /// The stack of the release, innermost first; empty if unknown.
    pub stack: Arc<[u64]>,
    /// How often others waited for such a hold, until it was over. One that goes on is not among them, and has
    /// no stack.
    pub holds: u64,
    /// How long these holds were: at least, where only the end was timed.
    pub hold_ns: u64,
    /// The longest.
    pub hold_max_ns: u64,
    /// How long others waited for them: the sum over all who did.
    pub caused_ns: u64,
}

/// What kind of lock an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum LockKind {
    /// A mutual exclusion lock.
    #[default]
    Mutex = 1,
    /// A lock whose waiters spin.
    Spinlock = 2,
    /// A readers-writer lock, as its readers use it.
    RwReaders = 3,
    /// The same lock, as its writers do: its [`LockStats::address`] is [`LockKind::WRITERS`] beyond the
    /// lock's own.
    RwWriters = 4,
    /// A condition variable.
    Condition = 5,
    /// A barrier.
    Barrier = 6,
    /// A POSIX semaphore.
    Semaphore = 7,
    /// The end of a thread, as those who join it see it: its address is the thread's `pthread_t`.
    Join = 8,
    /// A mutex that processes share; it is the C library's.
    SharedMutex = 9,
    /// A robust mutex; it is the C library's.
    RobustMutex = 10,
    /// A mutex that inherits or has a priority; it is the C library's.
    PriorityMutex = 11,
    /// A futex that was waited for by `syscall`: of a language with locks of its own.
    Futex = 12,
    /// A readers-writer lock that processes share, as [`LockKind::RwReaders`]; it is the C library's.
    SharedRwReaders = 13,
    /// A readers-writer lock that processes share, as [`LockKind::RwWriters`].
    SharedRwWriters = 14,
    /// A semaphore of an array of ours, as its waiters see it. Its address is none: see [`LockKind::in_array`].
    Array = 15,
    /// Not one lock: all destroyed locks that nobody ever waited for and whose place in the table was needed
    /// for others.
    Recycled = 254,
    /// Not one lock: all locks for which there was no room.
    Overflow = 255,
}

impl LockKind {
    /// How far beyond a readers-writer lock the address lies by which its writers are counted: a lock has one
    /// place in the table for each address.
    pub const WRITERS: usize = 4;

    /// The kind that is stored as `byte`; an unknown byte reads as a mutex.
    #[must_use]
    pub const fn from_byte(byte: u8) -> LockKind {
        match byte {
            2 => LockKind::Spinlock,
            3 => LockKind::RwReaders,
            4 => LockKind::RwWriters,
            5 => LockKind::Condition,
            6 => LockKind::Barrier,
            7 => LockKind::Semaphore,
            8 => LockKind::Join,
            9 => LockKind::SharedMutex,
            10 => LockKind::RobustMutex,
            11 => LockKind::PriorityMutex,
            12 => LockKind::Futex,
            13 => LockKind::SharedRwReaders,
            14 => LockKind::SharedRwWriters,
            15 => LockKind::Array,
            254 => LockKind::Recycled,
            255 => LockKind::Overflow,
            _ => LockKind::Mutex,
        }
    }

    /// Whether another process may have the lock, or this one at another address.
    #[must_use]
    pub const fn may_be_shared(self) -> bool {
        matches!(
            self,
            LockKind::SharedMutex
                | LockKind::RobustMutex
                | LockKind::SharedRwReaders
                | LockKind::SharedRwWriters
        )
    }

    /// Whether a forked child has what the thread that forked held of this kind. A lock that processes share
    /// stays the parent's, and one that names its holder names the parent's thread in the child as well.
    #[must_use]
    pub const fn is_inherited(self) -> bool {
        !self.may_be_shared() && !matches!(self, LockKind::PriorityMutex)
    }

    /// Where the lock is that the program knows, which is counted at `address`.
    #[must_use]
    pub const fn object(self, address: u64) -> u64 {
        match self {
            LockKind::RwWriters | LockKind::SharedRwWriters => {
                address.saturating_sub(LockKind::WRITERS as u64)
            }
            _ => address,
        }
    }

    /// What stands for the address of this semaphore of an array: nothing of a process lies there.
    #[must_use]
    pub const fn in_array(id: u32, number: u16) -> u64 {
        1 << 62 | (id as u64) << 16 | number as u64
    }

    /// The array and the semaphore of such an address.
    #[must_use]
    pub const fn of_array(address: u64) -> (u32, u16) {
        ((address >> 16) as u32, address as u16)
    }

    /// Whether threads acquire and release it; of the others there are only waits and calls.
    #[must_use]
    pub const fn is_acquired(self) -> bool {
        !matches!(
            self,
            LockKind::Condition
                | LockKind::Barrier
                | LockKind::Semaphore
                | LockKind::Join
                | LockKind::Futex
                | LockKind::Array
        )
    }

    /// Whether it is the C library's whatever the process runs on.
    #[must_use]
    pub const fn is_foreign(self) -> bool {
        matches!(
            self,
            LockKind::SharedMutex
                | LockKind::RobustMutex
                | LockKind::PriorityMutex
                | LockKind::SharedRwReaders
                | LockKind::SharedRwWriters
        )
    }
}

impl LockStats {
    /// Where the object is that the program knows.
    #[must_use]
    pub const fn object(&self) -> u64 {
        self.kind.object(self.address)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LockKind::Mutex => "mutex",
            LockKind::Spinlock => "spinlock",
            LockKind::RwReaders => "readers-writer lock, readers",
            LockKind::RwWriters => "readers-writer lock, writers",
            LockKind::Condition => "condition variable",
            LockKind::Barrier => "barrier",
            LockKind::Semaphore => "semaphore",
            LockKind::Join => "end of a thread",
            LockKind::SharedMutex => "mutex, process-shared",
            LockKind::RobustMutex => "mutex, robust",
            LockKind::PriorityMutex => "mutex, priority-inheriting",
            LockKind::Futex => "futex",
            LockKind::SharedRwReaders => "readers-writer lock, process-shared, readers",
            LockKind::SharedRwWriters => "readers-writer lock, process-shared, writers",
            LockKind::Array => "semaphore of an array",
            LockKind::Recycled => "destroyed locks, never waited for",
            LockKind::Overflow => "locks beyond the table",
        })
    }
}

/// One place from which threads waited for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Site {
    /// Return addresses, innermost first: the first one is in the code that called the lock function.
    pub stack: Arc<[u64]>,
    /// How often threads waited here.
    pub contended: u64,
    /// How long, together.
    pub wait_ns: u64,
    /// The longest wait here.
    pub wait_max_ns: u64,
    /// How many of these waits ended because their time was up.
    pub timeouts: u64,
    /// Of a condition variable: as [`LockStats::in_vain`].
    pub in_vain: u64,
}

/// A file mapped into the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Module {
    /// The first address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Where in the file `start` is.
    pub offset: u64,
    /// The path, as in `/proc/self/maps`.
    pub path: String,
}

/// Why a file could not be read.
#[derive(Debug)]
pub enum Error {
    /// The system said so.
    Io(std::io::Error),
    /// It is not a statistics file, or its process died before it had written the header.
    NotAStatFile,
    /// It was written by another version of Poundlock.
    Version(u32),
    /// Its header contradicts itself.
    Corrupt(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(e) => write!(f, "{e}"),
            Error::NotAStatFile => write!(f, "not a Poundlock statistics file, or an unfinished one"),
            Error::Version(v) => write!(f, "written in layout version {v}, which this build does not read"),
            Error::Corrupt(what) => write!(f, "corrupt: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::Io(e)
    }
}
