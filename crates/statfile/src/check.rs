//! What a checked process leaves: the order in which its threads took locks, and misuse that it saw itself.
//!
//! These are plain values, as the command reads them. How they lie in the file is in [`crate::layout`].

use std::sync::Arc;

/// A lock: the word of its slot, which no other lock of the process ever has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId(pub u32);

/// Locks that count as one sort: those that one call initialised, or one lock alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassKey(pub u32);

impl ClassKey {
    /// The bit that tells the stack of the initialising call from a lock's own word.
    pub const BY_STACK: u32 = 1 << 31;
}

/// A thread: its number among those of the process, which is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(pub u32);

/// How a lock is held, or asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// By one thread alone.
    Exclusive = 0,
    /// By a reader, whom other readers do not keep out, waiting writers neither.
    Read = 1,
    /// By a reader who waits behind writers that wait.
    FairRead = 2,
    /// A condition variable: waited for, or signalled.
    Condition = 3,
}

impl Mode {
    /// The mode that is stored as `byte`; an unknown byte reads as exclusive.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Mode {
        match byte {
            1 => Mode::Read,
            2 => Mode::FairRead,
            3 => Mode::Condition,
            _ => Mode::Exclusive,
        }
    }
}

/// A lock that a thread held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// Which.
    pub lock: LockId,
    /// How.
    pub mode: Mode,
}

/// A lock at one end of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Which, and how.
    pub held: Held,
    /// Its class.
    pub class: ClassKey,
    /// Where it was taken, innermost first; empty if unknown.
    pub stack: Arc<[u64]>,
    /// The moment at which it was made.
    pub made: u64,
}

/// A thread took `to`, or was about to wait for it, while it held `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The thread.
    pub thread: Serial,
    /// What it held.
    pub from: End,
    /// What it asked for.
    pub to: End,
    /// What else it held when it asked for `to`, the longest held first.
    pub guards: Vec<Held>,
    /// It held more than `guards` has room for.
    pub more: bool,
}

/// Something in the log of a checked process, in the order of the log: its place there is a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An order of two locks, or evidence of one that was known.
    Edge(Edge),
    /// A lock that is part of an edge is no more.
    Died(LockId),
    /// A thread that held nothing took a readers-writer lock to write, or waits to. Once a thread and lock.
    Wrote {
        /// The thread.
        thread: Serial,
        /// The lock.
        lock: LockId,
        /// Its class.
        class: ClassKey,
        /// The moment at which it was made.
        made: u64,
    },
    /// A condition variable was signalled by a thread that held these locks, other than the mutex of its waits:
    /// once for each set of them. An edge from it to a lock means something only as long as every signal came
    /// with that lock held.
    Signalled {
        /// The condition variable.
        lock: LockId,
        /// What was held.
        held: Vec<Held>,
    },
    /// The program said where a lock stands in the order of its class.
    Placed {
        /// The lock.
        lock: LockId,
        /// Its place: a lock is taken after those of lower places.
        place: u64,
    },
    /// Misuse.
    Misuse(Misuse),
    /// How this thread is called, as the event's name says, of which the log speaks from here on; or was called at
    /// its end. In a forked child the thread may be one of its parent.
    Named(Serial),
}

/// Misuse that the process saw itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misuse {
    /// What it was.
    pub what: Wrong,
    /// By which thread.
    pub thread: Serial,
    /// The lock; `None` if it has no place in the table.
    pub lock: Option<LockId>,
    /// Where the lock is.
    pub address: u64,
    /// Where it happened, innermost first.
    pub stack: Arc<[u64]>,
    /// Where the other thing happened (the first acquisition, the destruction), if there is one.
    pub other_stack: Arc<[u64]>,
    /// The thread of the other thing.
    pub other_thread: Option<Serial>,
    /// Another lock or address, or a signal's number, as `what` says.
    pub number: u64,
}

/// In [`Misuse::number`] of a [`Wrong::Handler`]: the interrupted thread holds that very lock, so the handler
/// waits for ever. The other stack is where it was taken.
pub const DIRECT: u64 = 1 << 8;
/// The same: the thread is the one that can be interrupted. The other stack is that of the handler; else it is
/// the other way round.
pub const OUTSIDE: u64 = 1 << 9;
/// In [`Misuse::number`]: the bits that are a signal's number.
pub const SIGNAL: u64 = 0xff;

/// What can be wrong that a process sees itself. The numbers are those in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Wrong {
    /// A lock taken by the thread that holds it.
    Relock = 1,
    /// An unlock of a lock that another thread holds.
    UnlockOther = 2,
    /// An unlock of a lock that nobody holds.
    UnlockFree = 3,
    /// A lock destroyed, or initialised again, while it was held.
    DestroyHeld = 4,
    /// Destroyed while threads waited for it.
    DestroyWaited = 5,
    /// Its memory freed while it was held or waited for.
    FreeHeld = 6,
    /// Held, and on a stack frame that is gone.
    FrameGone = 7,
    /// Used without ever having been initialised.
    Uninitialised = 8,
    /// Used after its destruction.
    Destroyed = 9,
    /// Used, and a copy of one that was locked: `number` is the word of that one.
    Copied = 10,
    /// Held by a thread that ended.
    ExitHeld = 11,
    /// Taken in a forked child, where a thread held it that is not there.
    ForkHeld = 12,
    /// A second mutex with one condition variable at one time. `number` is the word of the first one.
    TwoMutexes = 13,
    /// A signal by a thread that has never had the mutex, of which `number` is the word.
    LoneSignal = 14,
    /// Taken in a signal handler, and held by a thread that can be interrupted by it. `number` is the signal,
    /// with [`DIRECT`] or [`OUTSIDE`].
    Handler = 15,
    /// Read again by a reader whom a waiting writer can keep out.
    Reread = 16,
    /// A hold that the command asked about is over: `number` is its sequence number.
    LetGo = 17,
}

impl Wrong {
    const ALL: [Wrong; 17] = [
        Wrong::Relock,
        Wrong::UnlockOther,
        Wrong::UnlockFree,
        Wrong::DestroyHeld,
        Wrong::DestroyWaited,
        Wrong::FreeHeld,
        Wrong::FrameGone,
        Wrong::Uninitialised,
        Wrong::Destroyed,
        Wrong::Copied,
        Wrong::ExitHeld,
        Wrong::ForkHeld,
        Wrong::TwoMutexes,
        Wrong::LoneSignal,
        Wrong::Handler,
        Wrong::Reread,
        Wrong::LetGo,
    ];

    /// What is stored as `byte`.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Wrong> {
        Wrong::ALL.into_iter().find(|wrong| *wrong as u8 == byte)
    }
}
