//! What a checked process shows: its log, and what its threads hold and wait for now.

use std::path::Path;
use std::sync::Arc;

use poundlock_statfile::check::{ClassKey, LockId, Mode, Serial};
use poundlock_statfile::{Error, Live, LiveHold, LiveThread, LockKind, Log, Logged, LoggedLock, Module};

use super::report::NoRoom;

/// The file of a process.
pub(super) struct Feed {
    live: Live,
    log: Log,
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

impl From<&LoggedLock> for Described {
    fn from(lock: &LoggedLock) -> Self {
        Described { address: lock.address, kind: lock.kind, created_at: Arc::default() }
    }
}

/// A hold that goes on.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) lock: LockId,
    pub(super) mode: Mode,
    /// Tells it from every other hold of the thread.
    pub(super) sequence: u32,
    pub(super) stack: Arc<[u64]>,
    live: Option<LiveHold>,
}

impl Hold {
    /// One without a process.
    #[cfg(test)]
    pub(super) fn of(lock: u32, mode: Mode, sequence: u32) -> Self {
        Hold { lock: LockId(lock), mode, sequence, stack: Arc::default(), live: None }
    }
}

/// A wait that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) lock: LockId,
    pub(super) kind: LockKind,
    /// How it is asked for.
    pub(super) mode: Mode,
    /// Where the program has it.
    pub(super) address: u64,
    /// Tells it from every other wait of the thread.
    pub(super) began: u64,
    /// As the process names the lock in waits and holds.
    pub(super) tag: u64,
    /// It ends by itself, at a time.
    pub(super) timed: bool,
    /// The thread whose end it is, as a `pthread_t`.
    pub(super) joins: Option<u64>,
}

impl Feed {
    /// `None` if the file is not finished.
    pub(super) fn open(path: &Path) -> Result<Option<Feed>, Error> {
        match Live::open(path) {
            Ok(live) => Ok(Some(Feed { live, log: Log::in_steps(Feed::AT_ONCE) })),
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
        self.live.exe()
    }

    pub(super) fn modules(&self) -> Vec<Module> {
        self.live.modules()
    }

    /// As many events are passed on at a time: few enough to be judged before the process has filled its log.
    pub(super) const AT_ONCE: u64 = 1 << 14;

    /// What has come since the last time, [`Feed::AT_ONCE`] events at most, and whether there is more. Of a
    /// process that is gone, what it was killed in the middle of is passed over.
    pub(super) fn events(&mut self, gone: bool) -> (Vec<Logged>, bool) {
        self.log.skip_torn = gone;
        let mut events = Vec::new();
        let more = self.live.events(&mut self.log, &mut |logged| events.push(logged));
        (events, more)
    }

    pub(super) fn describe(&self, lock: LockId) -> Option<Described> {
        let lock = self.live.describe(lock)?;
        Some(Described { address: lock.address, kind: lock.kind, created_at: lock.created_at })
    }

    /// The stack of the call that initialised all locks of a class; empty if it is one lock.
    pub(super) fn class_stack(&self, class: ClassKey) -> Arc<[u64]> {
        self.live.class_stack(class)
    }

    pub(super) fn checkable(&self) -> u64 {
        self.live.checkable()
    }

    pub(super) fn look(&mut self, threads: &mut Vec<LiveThread>) {
        self.live.look(threads);
    }

    pub(super) fn serial(&self, record: usize) -> Serial {
        self.live.serial(record)
    }

    /// The thread as a `pthread_t`; 0 if it is unknown.
    pub(super) fn pthread(&self, record: usize) -> u64 {
        self.live.pthread(record)
    }

    pub(super) fn wait(&self, record: usize) -> Option<Wait> {
        let wait = self.live.wait(record)?;
        let lock = self.live.lock_id(wait.tag);
        let described = self.live.describe(lock)?;
        let shown = Wait {
            lock,
            kind: described.kind,
            mode: self.live.wait_mode(record),
            address: described.address,
            began: wait.began,
            tag: wait.tag,
            timed: self.live.wait_is_timed(record),
            joins: self.live.wait_join(record),
        };
        // What was read belongs to it if it went on all the while.
        (self.live.wait(record) == Some(wait)).then_some(shown)
    }

    pub(super) fn wait_stack(&self, record: usize) -> Arc<[u64]> {
        self.live.wait_stack(record)
    }

    pub(super) fn holds(&self, record: usize) -> Vec<Hold> {
        self.live.holds(record).into_iter().map(|hold| self.hold(hold)).collect()
    }

    fn hold(&self, hold: LiveHold) -> Hold {
        Hold {
            lock: self.live.lock_id(hold.tag),
            mode: hold.mode,
            sequence: hold.sequence,
            stack: self.live.hold_stack(&hold),
            live: Some(hold),
        }
    }

    /// The thread that ended while it held what is waited for, and its hold.
    pub(super) fn left_by(&self, wait: &Wait, threads: &[LiveThread]) -> Option<(Serial, Hold)> {
        let ended = self.live.ended();
        let holders = self.live.ended_holders(&ended, threads, wait.tag).into_iter();
        holders.map(|(thread, hold)| (self.live.serial(thread.record), self.hold(hold))).next()
    }

    /// Asks the process to log the end of a hold. Whether it could be asked.
    pub(super) fn watch(&self, hold: &Hold) -> bool {
        hold.live.as_ref().is_some_and(|hold| self.live.watch(hold))
    }

    pub(super) fn no_room(&self) -> NoRoom {
        let unseen = self.live.unseen();
        NoRoom {
            events: unseen.events + self.log.torn,
            edges: unseen.orders,
            pairs: unseen.pairs,
            findings: unseen.findings,
            within: unseen.within,
            locks: unseen.locks,
            holds: unseen.holds,
            guards: unseen.guards,
            operations: unseen.operations,
            ..NoRoom::default()
        }
    }
}
