//! What the processes of a run left: the directory in which they leave it, and how it is read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use poundlock_statfile::{LockStats, Locks, Snapshot};
use serde::{Deserialize, Serialize};

use super::sampler::Outcome;
use crate::launch::Ended;
use crate::message::say;
use crate::observe::place::{files, is_alive, pid_of};
use crate::observe::strangers::{self, Seen};

/// What the directory is called, up to a part that chance picks.
pub(super) const PREFIX: &str = "poundlock-stat-";

/// In the directory: what was run.
const ABOUT: &str = "about.json";

/// What a later `--read` has to know.
#[derive(Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) command: Vec<String>,
    pub(super) lock: String,
    pub(super) rwlock: String,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub(super) start_ns: u64,
}

impl Begun {
    pub(super) fn write(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::write(dir.join(ABOUT), serde_json::to_vec(self)?)
    }

    pub(super) fn read(dir: &Path) -> std::io::Result<Begun> {
        Ok(serde_json::from_slice(&std::fs::read(dir.join(ABOUT))?)?)
    }
}

/// The directories of all runs that are ours to see, with what was run and its processes.
pub(crate) fn runs() -> Vec<(PathBuf, String)> {
    let parents = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
    let entries = parents.iter().filter_map(|parent| parent.read_dir().ok()).flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
    let about = |entry: std::fs::DirEntry| {
        let begun = Begun::read(&entry.path()).ok()?;
        let mut pids: Vec<u32> = files(&entry.path()).iter().filter_map(|(path, _)| pid_of(path)).collect();
        pids.sort_unstable();
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        Some((entry.path(), format!("{}: processes {}", begun.command.join(" "), pids.join(", "))))
    };
    ours.filter_map(about).collect()
}

/// Has the longest waits and holds begin anew.
pub(super) fn forget_longest(dir: &Path) {
    for (path, _) in files(dir) {
        match poundlock_statfile::forget_longest(&path) {
            Ok(()) | Err(poundlock_statfile::Error::NotAStatFile) => {}
            Err(error) => {
                let name = path.file_stem().unwrap_or_default().display();
                say(format_args!("the longest waits of process {name} are those since its start: {error}"));
            }
        }
    }
}

/// The locks of a process.
enum Apart {
    InFile(Box<Locks>),
    Read(Vec<LockStats>),
}

/// What the processes left.
#[derive(Default)]
pub(super) struct Figures {
    /// In the order in which they started; their locks are apart, as there may be a million.
    pub(super) snapshots: Vec<Snapshot>,
    locks: Vec<RefCell<Option<Apart>>>,
    /// Processes that loaded our library and could not be measured.
    unmeasured: Vec<u32>,
}

impl Figures {
    /// Reads what every process left.
    pub(super) fn read(dir: &Path, now_ns: u64) -> Figures {
        let mut figures = Figures::default();
        let mut read = Vec::new();
        for (path, len) in files(dir) {
            match poundlock_statfile::read_apart(&path, now_ns) {
                Ok(process) => read.push(process),
                // A file of no length is the library's word for one that it could not make larger. Any other
                // process was killed before it had used a lock, and has nothing to say.
                Err(poundlock_statfile::Error::NotAStatFile) => {
                    figures.unmeasured.extend(pid_of(&path).filter(|_| len == 0));
                }
                Err(error) => {
                    let name = path.file_stem().unwrap_or_default();
                    say(format_args!("the figures of process {} cannot be read: {error}", name.display()));
                }
            }
        }
        read.sort_by_key(|(snapshot, _)| (snapshot.start_ns, snapshot.pid));
        for (snapshot, locks) in read {
            figures.snapshots.push(snapshot);
            figures.locks.push(RefCell::new(Some(Apart::InFile(Box::new(locks)))));
        }
        figures.unmeasured.sort_unstable();
        figures.unmeasured.dedup();
        figures
    }

    /// What was seen from outside.
    pub(super) fn seen(mut snapshots: Vec<Snapshot>) -> Figures {
        let apart =
            |snapshot: &mut Snapshot| RefCell::new(Some(Apart::Read(std::mem::take(&mut snapshot.locks))));
        let locks = snapshots.iter_mut().map(apart).collect();
        Figures { snapshots, locks, unmeasured: Vec::new() }
    }

    /// Calls `each` with every lock of a process, the first time that they are asked for.
    pub(super) fn each_lock(&self, process: usize, each: impl FnMut(LockStats)) {
        match self.locks.get(process).and_then(RefCell::take) {
            Some(Apart::InFile(locks)) => locks.each(each),
            Some(Apart::Read(locks)) => locks.into_iter().for_each(each),
            None => {}
        }
    }

    /// All processes with their locks.
    pub(super) fn whole(mut self) -> Vec<Snapshot> {
        let mut snapshots = std::mem::take(&mut self.snapshots);
        for (process, snapshot) in snapshots.iter_mut().enumerate() {
            self.each_lock(process, |lock| snapshot.locks.push(lock));
        }
        snapshots
    }

    /// Says what the figures leave out.
    pub(super) fn remark(&self, ended: &Ended, command: &OsStr, sampled: Option<&Outcome>) {
        let command = command.display();
        let Figures { snapshots, unmeasured, .. } = self;
        let measured = |pid| snapshots.iter().any(|snapshot| snapshot.pid == pid);
        if unmeasured.contains(&ended.pid) && !measured(ended.pid) {
            let what = if snapshots.is_empty() { "nothing" } else { "only what it started" };
            say(format_args!(
                "{command} loaded our library, which could not make its file for the figures: {what} was measured"
            ));
        } else if snapshots.is_empty() && unmeasured.is_empty() {
            say(format_args!(
                "{command} did not load our library: nothing was measured, and it ran on its own locks"
            ));
        } else if !measured(ended.pid) {
            say(format_args!(
                "{command} itself did not load our library: only processes that it started were measured"
            ));
        }
        for &pid in unmeasured.iter().filter(|&&pid| pid != ended.pid && !measured(pid)) {
            say(format_args!("process {pid} was not measured: no file could be made for its figures"));
        }
        self.remark_on_strangers(ended, sampled);
        let seen = sampled.map_or(&[][..], |sampled| &sampled.processes[..]);
        for (&pid, snapshot) in self.last().iter().filter(|&(&pid, _)| pid != ended.pid) {
            let outer =
                seen.iter().find(|process| process.pid == pid).map_or(pid, |process| process.outer_pid);
            if !is_alive(outer) {
                continue;
            }
            // The very last program may not have loaded our library.
            let now = std::fs::read_link(format!("/proc/{outer}/exe"))
                .unwrap_or_else(|_| PathBuf::from(&snapshot.exe));
            let name = now.file_name().unwrap_or(OsStr::new("?")).display();
            say(format_args!("process {pid} ({name}) is still running: its figures end here"));
        }
    }

    /// Says which programs of the command ran without our library, and what to do about that.
    fn remark_on_strangers(&self, ended: &Ended, sampled: Option<&Outcome>) {
        let seen = sampled.map_or(&[][..], |sampled| &sampled.processes[..]);
        let seen: Vec<Seen> = seen
            .iter()
            .map(|process| Seen {
                pid: process.pid,
                parent: process.parent,
                exe: process.exe.clone(),
                name: process.name.clone(),
            })
            .collect();
        let left: Vec<(u32, &str)> =
            self.snapshots.iter().map(|snapshot| (snapshot.pid, snapshot.exe.as_str())).collect();
        for line in strangers::remarks(ended.pid, seen.iter(), &left, &self.unmeasured, ("measured", "stat"))
        {
            say(line);
        }
    }

    /// The last program of each process: it may have gone through several.
    fn last(&self) -> BTreeMap<u32, &Snapshot> {
        self.snapshots.iter().map(|snapshot| (snapshot.pid, snapshot)).collect()
    }
}

/// When the last of the processes ended; `None` while one of them runs, or if one was killed.
pub(super) fn ended_ns(dir: &Path) -> Option<u64> {
    let ends = files(dir)
        .into_iter()
        .filter_map(|(path, _)| Some(poundlock_statfile::Live::open(&path).ok()?.ended_ns()));
    // An exec ends a file as well: the process goes on in its next one, which has no end yet.
    ends.collect::<Option<Vec<_>>>()?.into_iter().max()
}
