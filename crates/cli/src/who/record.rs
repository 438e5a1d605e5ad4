//! The record file of a process under `poundlock stat`: who waits for what and who holds it, as the process
//! itself has noted it.

use std::path::Path;

use poundlock_statfile::{Live, LiveThread, LockKind};

use super::waits::{Found, Holder, Kind, Maker};
use crate::remote::maps::Maps;

/// It.
pub(super) struct Record {
    live: Live,
    threads: Vec<LiveThread>,
}

/// Who holds a lock, and where it was taken: a return address, 0 if unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) by: u32,
    pub(super) taken_at: u64,
    /// The name of the holder, if it has ended.
    pub(super) ended: Option<String>,
}

impl Record {
    /// Of the process with this id of its own, if it has one mapped. `place` says where a mapped file is.
    pub(super) fn find(maps: &Maps, inner: u32, place: impl Fn(u64) -> Option<String>) -> Option<Record> {
        let mut files: Vec<String> = Vec::new();
        for mapping in maps.0.iter().filter(|mapping| mapping.writable) {
            let name = mapping.path.strip_suffix(" (deleted)").unwrap_or(&mapping.path);
            if let Some(path) = place(mapping.start).filter(|_| name.ends_with(".stat"))
                && !files.contains(&path)
            {
                files.push(path);
            }
        }
        let mut lives = files.iter().filter_map(|path| Live::open(Path::new(path)).ok());
        let live = lives.find(|live| live.pid() == inner)?;
        let mut record = Record { live, threads: Vec::new() };
        record.live.look(&mut record.threads);
        Some(record)
    }

    /// What a thread waits for.
    pub(super) fn wait(&self, inner: u32, ours: bool) -> Option<Found> {
        let thread = self.threads.iter().find(|thread| thread.tid == inner)?;
        let lock = self.live.lock(self.live.wait(thread.record)?.tag)?;
        let beyond = LockKind::WRITERS as u64;
        let (kind, object) = match lock.kind {
            LockKind::Mutex | LockKind::SharedMutex | LockKind::RobustMutex | LockKind::PriorityMutex => {
                (Kind::Mutex, lock.address)
            }
            LockKind::Spinlock => (Kind::Spinlock, lock.address),
            LockKind::RwReaders | LockKind::SharedRwReaders => (Kind::RwRead, lock.address),
            LockKind::RwWriters | LockKind::SharedRwWriters => {
                (Kind::RwWrite, lock.address.wrapping_sub(beyond))
            }
            // Of these the stack tells more.
            _ => return None,
        };
        let is_ours = ours && lock.kind.is_acquired();
        let maker = if is_ours { Maker::Poundlock } else { Maker::Glibc };
        Some(Found::new(object, 0, kind, maker))
    }

    /// Who holds what a thread waits for.
    pub(super) fn holders(&self, inner: u32) -> Vec<Held> {
        let Some(thread) = self.threads.iter().find(|thread| thread.tid == inner) else { return Vec::new() };
        let Some(wait) = self.live.wait(thread.record) else { return Vec::new() };
        let ended = self.live.ended_holders(&self.live.ended(), &self.threads, wait.tag).into_iter();
        let ended = ended.map(|(thread, hold)| Held {
            by: thread.tid,
            taken_at: hold.acquired_at,
            ended: Some(thread.name),
        });
        let of = |tag: u64| {
            self.threads.iter().filter_map(move |thread| {
                let hold = self.live.hold(thread.record, tag)?;
                Some(Held { by: thread.tid, taken_at: hold.acquired_at, ended: None })
            })
        };
        ended.chain(self.live.held_as(wait.tag).into_iter().flatten().flat_map(of)).collect()
    }

    pub(super) fn holder(held: &[Held]) -> Holder {
        match held {
            [] => Holder::Nobody,
            // Whoever else reads under the lock: this one will not release it.
            [Held { by, ended: Some(name), .. }, ..] => Holder::Ended(Some((*by, name.clone()))),
            [one] => Holder::Thread(one.by),
            many => Holder::Threads(many.iter().map(|held| held.by).collect()),
        }
    }
}
