//! What a checked process shows: its log, and what its threads hold and wait for now.

use std::path::Path;
use std::sync::Arc;

use poundlock_statfile::check::{ClassKey, Event, LockId, Mode, Serial};
use poundlock_statfile::{Error, Live, LiveThread, LockKind, Module};

use super::report::NoRoom;

/// The file of a process.
pub(super) struct Feed {
    live: Live,
}

/// Something in the log.
pub(super) struct Logged {
    /// Its place there.
    pub(super) moment: u64,
    /// The thread, in the process's own namespace.
    pub(super) tid: u32,
    pub(super) event: Event,
}

/// A lock.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// Where the program has it.
    pub(super) address: u64,
    pub(super) kind: LockKind,
    /// The stack that initialised it; empty if unknown.
    pub(super) created_at: Arc<[u64]>,
}

/// A hold that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) lock: LockId,
    pub(super) mode: Mode,
    /// Tells it from every other hold of the thread.
    pub(super) sequence: u64,
    pub(super) stack: Arc<[u64]>,
}

/// A wait that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) lock: LockId,
    pub(super) kind: LockKind,
    /// Where the program has it.
    pub(super) address: u64,
    /// Tells it from every other wait of the thread.
    pub(super) began: u64,
}

impl Feed {
    /// `None` if the file is not finished.
    pub(super) fn open(path: &Path) -> Result<Option<Feed>, Error> {
        match Live::open(path) {
            Ok(live) => Ok(Some(Feed { live })),
            Err(Error::NotAStatFile) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.live.is_whole()
    }

    pub(super) fn pid(&self) -> u32 {
        self.live.pid()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.live.ended_ns().is_some()
    }

    pub(super) fn exe(&self) -> String {
        String::new()
    }

    pub(super) fn modules(&self) -> Vec<Module> {
        Vec::new()
    }

    /// Calls `each` with what has come since the last time. Of a process that is gone, what it was killed in the
    /// middle of is passed over.
    pub(super) fn events(&mut self, gone: bool, each: &mut dyn FnMut(Logged)) {
        let _ = (gone, each);
    }

    pub(super) fn describe(&self, lock: LockId) -> Option<Described> {
        let _ = lock;
        None
    }

    /// The stack of the call that initialised all locks of a class; empty if it is one lock.
    pub(super) fn class_stack(&self, class: ClassKey) -> Arc<[u64]> {
        let _ = class;
        Arc::default()
    }

    pub(super) fn look(&mut self, threads: &mut Vec<LiveThread>) {
        self.live.look(threads);
    }

    pub(super) fn serial(&self, record: usize) -> Serial {
        Serial(record as u32)
    }

    pub(super) fn wait(&self, record: usize) -> Option<Wait> {
        let wait = self.live.wait(record)?;
        let lock = self.live.lock(wait.tag)?;
        let object = match lock.kind {
            LockKind::RwWriters | LockKind::SharedRwWriters => {
                lock.address.saturating_sub(LockKind::WRITERS as u64)
            }
            _ => lock.address,
        };
        Some(Wait {
            lock: LockId((wait.tag >> 32) as u32),
            kind: lock.kind,
            address: object,
            began: wait.began,
        })
    }

    pub(super) fn wait_stack(&self, record: usize) -> Arc<[u64]> {
        let _ = record;
        Arc::default()
    }

    pub(super) fn holds(&self, record: usize) -> Vec<Hold> {
        let _ = record;
        Vec::new()
    }

    /// Asks the process to log the end of a hold. Whether it could be asked.
    pub(super) fn watch(&self, record: usize, hold: &Hold) -> bool {
        let _ = (record, hold);
        false
    }

    pub(super) fn no_room(&self) -> NoRoom {
        NoRoom::default()
    }
}
