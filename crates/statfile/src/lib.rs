//! The file through which a measured process leaves its lock statistics.
//!
//! A process that is measured maps one sparse file, shared, and counts straight into it. Nothing has to be
//! written out at the end, so the figures survive any death of the process, `SIGKILL` included. [`read`]
//! makes a [`Snapshot`] of such a file, during the life of the process or after it. The layout, and what
//! holds about it at every moment, is in [`layout`].

pub mod check;
mod clock;
pub mod layout;
mod live;
mod packed;
mod reader;
mod snapshot;
pub mod speed;
mod traced;
pub mod writer;

pub use live::{
    Described, EndedRecord, Live, LiveHold, LiveLock, LiveThread, LiveWait, Log, Logged, LoggedLock, Unseen,
};
pub use reader::{Follower, Locks, forget_longest, read, read_apart};
pub use snapshot::{
    ArrayEnd, ArrayStats, Durations, EndedThread, Error, EventCount, Hold, HoldNow, Holder, LockKind,
    LockStats, Module, Site, Snapshot, ThreadStats, WaitNow,
};
pub use traced::{Event, Life, Recorded, Stretch, What, read_stretches};
