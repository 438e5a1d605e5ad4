//! The picture as JSON.

use serde::Serialize;

use super::Origin;
use super::picture::{Picture, Seen};
use super::waits::{Holder, Kind, Maker};

/// Of the document: it changes when something in it is taken away or gets another meaning.
const VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    version: u32,
    /// `process` or `core`.
    source: &'static str,
    pid: u32,
    program: &'a str,
    /// How long the look at all threads took, from the first stop to the end of the last one; null of a core.
    looked_ns: Option<u64>,
    /// The longest that a thread stood still.
    longest_stop_ns: Option<u64>,
    /// All that the command did.
    took_ns: u64,
    threads: Vec<ThreadJson<'a>>,
    locks: Vec<LockJson<'a>>,
    /// Threads of which each waits for the next, and the last for the first: indices into `threads`.
    deadlocks: &'a [Vec<usize>],
    /// The same, in a sentence each.
    sentences: Vec<String>,
    /// Whether the process ran with our library, and whether what it records of its locks was read.
    library: bool,
    recorded: bool,
}

/// Several processes.
#[derive(Serialize)]
pub(super) struct Several<'a> {
    version: u32,
    processes: &'a [Document<'a>],
}

impl<'a> Several<'a> {
    pub(super) fn of(processes: &'a [Document<'a>]) -> Self {
        Several { version: VERSION, processes }
    }
}

#[derive(Serialize)]
struct ThreadJson<'a> {
    tid: u32,
    /// Its id in its own namespace.
    inner_tid: u32,
    /// Empty if unknown.
    name: &'a str,
    state: &'a str,
    stood_still_ns: u64,
    /// Innermost first.
    stack: &'a [String],
    /// Frames that were found by their looks.
    guessed_frames: usize,
    /// The line to look at.
    line: &'a str,
    waits_for: Option<WaitJson>,
    /// Locks that others wait for: indices into `locks`.
    holds: &'a [usize],
}

#[derive(Serialize)]
struct WaitJson {
    /// Index into `locks`.
    lock: usize,
    kind: Kind,
    /// Of a condition variable, its mutex: index into `locks`.
    mutex: Option<usize>,
    /// Whether the thread stood in this wait before and after the holder was read.
    steady: bool,
    /// Indices into `threads`.
    held_by: Vec<usize>,
}

#[derive(Serialize)]
struct LockJson<'a> {
    /// Null if it was not found.
    address: Option<String>,
    kind: Kind,
    made_by: Maker,
    name: &'a str,
    declared_at: Option<&'a str>,
    /// Nothing says what it is, but it looks like this.
    looks_like: bool,
    holder: HolderJson<'a>,
    taken_at: Option<&'a str>,
}

#[derive(Serialize)]
struct HolderJson<'a> {
    /// `threads`, `readers`, `nobody`, `ended`, `unknown`, `none`.
    known: &'static str,
    /// Their ids, as their own process has them.
    tids: Vec<u32>,
    readers: Option<u32>,
    why: Option<&'a str>,
    /// The name of a thread that has ended, if it is recorded.
    name: Option<&'a str>,
}

impl<'a> HolderJson<'a> {
    fn of(holder: &'a Holder) -> Self {
        let new = |known| HolderJson { known, tids: Vec::new(), readers: None, why: None, name: None };
        match holder {
            Holder::Thread(id) => HolderJson { tids: vec![*id], ..new("threads") },
            Holder::Threads(ids) => HolderJson { tids: ids.clone(), ..new("threads") },
            Holder::Readers(count) => HolderJson { readers: Some(*count), ..new("readers") },
            Holder::Nobody => new("nobody"),
            Holder::Ended(thread) => HolderJson {
                tids: thread.iter().map(|(tid, _)| *tid).collect(),
                name: thread.as_ref().map(|(_, name)| name.as_str()),
                ..new("ended")
            },
            Holder::Unknown(why) => HolderJson { why: Some(why), ..new("unknown") },
            Holder::NotHeld => new("none"),
        }
    }
}

impl<'a> Document<'a> {
    pub(super) fn of(picture: &'a Picture, origin: &'a Origin, took_ns: u64, sentences: Vec<String>) -> Self {
        let live = origin.looked();
        Document {
            version: VERSION,
            source: if live.is_some() { "process" } else { "core" },
            pid: origin.pid().unwrap_or(0),
            program: origin.program(),
            looked_ns: live.map(|(wall, _)| wall),
            longest_stop_ns: live.map(|(_, longest)| longest),
            took_ns,
            threads: picture.threads.iter().map(thread).collect(),
            locks: picture
                .locks
                .iter()
                .map(|lock| LockJson {
                    address: (lock.address != 0).then(|| format!("{:#x}", lock.address)),
                    kind: lock.kind,
                    made_by: lock.maker,
                    name: &lock.name,
                    declared_at: lock.declared_at.as_deref(),
                    looks_like: lock.looks,
                    holder: HolderJson::of(&lock.holder),
                    taken_at: lock.taken_at.as_deref(),
                })
                .collect(),
            deadlocks: &picture.cycles,
            sentences,
            library: picture.has_library,
            recorded: picture.has_record,
        }
    }
}

fn thread(seen: &Seen) -> ThreadJson<'_> {
    ThreadJson {
        tid: seen.tid,
        inner_tid: seen.inner,
        name: &seen.name,
        state: if seen.waits.is_some() { "waits" } else { &seen.state },
        stood_still_ns: seen.stood_ns,
        stack: &seen.whole_stack,
        guessed_frames: seen.guessed,
        line: &seen.line,
        waits_for: seen.waits.as_ref().map(|wait| WaitJson {
            lock: wait.lock,
            kind: wait.kind,
            mutex: wait.mutex,
            steady: wait.steady,
            held_by: wait.held_by.clone(),
        }),
        holds: &seen.holds,
    }
}
