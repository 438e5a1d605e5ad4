//! The figures of one run, with names in place of addresses: what the table and the JSON both show.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;

use poundlock_names::{Choice, LockName, Named, RwLocks};
use poundlock_statfile::{LockKind, LockStats, Snapshot};
use serde::{Serialize, Serializer};

use super::arrays::Arrays;
use super::events::Events;
use super::symbols::{Frame, Space, Symbols, file_name};
use super::uncounted::Uncounted;
use crate::launch::Ended;

/// One run.
pub(super) struct Report {
    pub(super) command: Vec<String>,
    pub(super) lock: Choice,
    /// The locks that were asked for.
    pub(super) locks_asked: RanOn,
    /// Those that the processes were on: others, if one of them chose for what it started. In the order of
    /// their starts; those asked for if there were no processes.
    pub(super) ran_on: Vec<RanOn>,
    pub(super) wall_ns: u64,
    /// How the command ended, in words.
    pub(super) ending: String,
    /// Threads of all processes.
    pub(super) threads: u64,
    /// Those that used a lock.
    pub(super) locking_threads: u64,
    pub(super) processes: usize,
    /// The time that the threads that used a lock lived, together.
    pub(super) thread_time_ns: u64,
    /// Locks for which there was no room, counted together.
    pub(super) dropped_locks: u64,
    /// Most waiting first.
    pub(super) locks: Vec<Lock>,
    /// What happened in the locks' slow paths.
    pub(super) events: Events,
    /// Semaphore arrays of ours.
    pub(super) arrays: Arrays,
    /// What is not in the table.
    pub(super) uncounted: Uncounted,
}

/// What processes ran on.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub(super) struct RanOn {
    pub(super) mutex: &'static str,
    /// The spinlock that was named or, if none was, chosen: a child of ours sees the machine that we see.
    pub(super) spinlock: &'static str,
    /// Whose readers-writer locks were, and with which policy.
    pub(super) rwlock: &'static str,
    /// The programs.
    pub(super) programs: BTreeSet<String>,
}

impl RanOn {
    fn of(choice: Choice, rwlocks: RwLocks) -> Self {
        let programs = BTreeSet::new();
        RanOn { mutex: choice.mutex().name(), spinlock: spinlock(choice), rwlock: rwlocks.name(), programs }
    }

    /// As the preloaded library understood what it recorded.
    fn by_process(snapshots: &[Snapshot]) -> Vec<RanOn> {
        let mut all: Vec<RanOn> = Vec::new();
        for snapshot in snapshots {
            let choice = Choice::parse(&snapshot.lock).unwrap_or_default();
            let rwlocks = RwLocks::of(choice, RwLocks::parse(&snapshot.rwlock));
            let this = RanOn::of(choice, rwlocks);
            let same =
                |of: &RanOn| (of.mutex, of.spinlock, of.rwlock) == (this.mutex, this.spinlock, this.rwlock);
            let place = all.iter().position(same).unwrap_or_else(|| {
                all.push(this.clone());
                all.len() - 1
            });
            all[place].programs.insert(file_name(&snapshot.exe));
        }
        all
    }
}

/// One lock.
#[derive(Serialize)]
pub(super) struct Lock {
    pub(super) pid: u32,
    #[serde(serialize_with = "in_hex")]
    pub(super) address: u64,
    #[serde(serialize_with = "in_words")]
    pub(super) kind: LockKind,
    /// A variable of that address, if the lock is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) variable: Option<String>,
    /// Where it was initialised or, for a variable, declared. Empty where that is not known.
    pub(super) created_at: String,
    pub(super) acquisitions: u64,
    pub(super) contended: u64,
    pub(super) wait_ns: Time,
    pub(super) hold_ns: Time,
    /// What part of the threads' time went into waiting for it.
    pub(super) share: f64,
    /// Most waiting first.
    pub(super) sites: Vec<Site>,
}

fn in_hex<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

fn in_words<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(kind)
}

/// The sum of some durations, and the longest, in nanoseconds.
#[derive(Serialize)]
pub(super) struct Time {
    pub(super) total: u64,
    pub(super) max: u64,
}

/// One place where threads waited.
#[derive(Serialize)]
pub(super) struct Site {
    /// Innermost first.
    pub(super) stack: Vec<String>,
    /// The frames that are of interest: indices into the stack. All of them where none is.
    #[serde(skip)]
    pub(super) interesting: Vec<usize>,
    pub(super) contended: u64,
    pub(super) wait_ns: u64,
}

impl Report {
    /// Merges the processes' figures. Only the first `named` locks get names.
    pub(super) fn new(
        command: &[OsString],
        (lock, rwlocks): (Choice, RwLocks),
        ended: &Ended,
        snapshots: &[Snapshot],
        symbols: &Symbols,
        named: usize,
    ) -> Self {
        // A process that went from program to program left a file for each, and went on with one thread.
        let mut threads: HashMap<u32, (u64, u64)> = HashMap::new();
        for snapshot in snapshots {
            let (started, locking) = threads.entry(snapshot.pid).or_insert((1, 0));
            *started += u64::from(snapshot.started);
            *locking = (*locking).max(u64::from(snapshot.threads));
        }
        let asked = RanOn::of(lock, rwlocks);
        let mut ran_on = RanOn::by_process(snapshots);
        if ran_on.is_empty() {
            ran_on.push(asked.clone());
        }
        let mut raw: Vec<(usize, &LockStats)> = snapshots
            .iter()
            .enumerate()
            .flat_map(|(index, snapshot)| snapshot.locks.iter().map(move |lock| (index, lock)))
            .collect();
        raw.sort_by_key(|(index, lock)| {
            use std::cmp::Reverse;
            (Reverse((lock.wait_total_ns, lock.contended, lock.acquisitions)), *index, lock.address)
        });
        let spaces: Vec<Space> = snapshots.iter().map(|snapshot| symbols.space(snapshot)).collect();
        let thread_time_ns = snapshots.iter().map(|snapshot| snapshot.thread_time_ns).sum();
        let locks = raw.into_iter().enumerate().map(|(rank, (index, lock))| {
            let space = (rank < named).then(|| &spaces[index]);
            Lock::new(snapshots[index].pid, lock, space, thread_time_ns)
        });
        Report {
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            lock,
            locks_asked: asked,
            ran_on,
            wall_ns: ended.wall_ns,
            ending: ended.in_words(),
            // Some start threads by other means than the C library's.
            threads: threads.values().map(|&(started, locking)| started.max(locking)).sum(),
            locking_threads: snapshots.iter().map(|snapshot| u64::from(snapshot.threads)).sum(),
            processes: threads.len(),
            thread_time_ns,
            dropped_locks: snapshots.iter().map(|snapshot| snapshot.dropped_locks).sum(),
            locks: locks.collect(),
            events: Events::new(snapshots),
            arrays: Arrays::new(snapshots),
            uncounted: Uncounted::new(snapshots),
        }
    }

    /// Whether the program used any spinlock.
    pub(super) fn has_spinlocks(&self) -> bool {
        self.locks.iter().any(|lock| lock.kind == LockKind::Spinlock)
    }

    /// Whether it used any readers-writer lock.
    pub(super) fn has_rwlocks(&self) -> bool {
        self.locks.iter().any(|lock| side(lock.kind).is_some())
    }

    /// Whether locks of more than one process are shown, so that an address alone does not tell which one it
    /// is.
    pub(super) fn several_processes(&self) -> bool {
        self.locks.iter().any(|lock| lock.pid != self.locks[0].pid)
    }
}

fn spinlock(choice: Choice) -> &'static str {
    if choice.keeps_everything() {
        LockName::Glibc.name()
    } else {
        choice.spinlock().unwrap_or_else(poundlock_linux::machine::spinlock).name()
    }
}

/// Of which side of a readers-writer lock a row speaks, if of any.
pub(super) fn side(kind: LockKind) -> Option<&'static str> {
    match kind {
        LockKind::RwReaders | LockKind::SharedRwReaders => Some("readers"),
        LockKind::RwWriters | LockKind::SharedRwWriters => Some("writers"),
        _ => None,
    }
}

/// a / b, and 0 where there was nothing.
pub(super) fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

impl Lock {
    fn new(pid: u32, stats: &LockStats, space: Option<&Space>, thread_time_ns: u64) -> Self {
        let mut variable = None;
        let mut created_at = String::new();
        if let Some(space) = space.filter(|_| stats.address != 0) {
            if let Some(found) = space.variable(stats.object()) {
                variable = Some(found.name);
                created_at = found.declared_at.unwrap_or_default();
            }
            if !stats.created_at.is_empty() {
                created_at = creation(&stats.created_at, space);
            }
        }
        Lock {
            pid,
            address: stats.object(),
            kind: stats.kind,
            variable,
            created_at,
            acquisitions: stats.acquisitions,
            contended: stats.contended,
            wait_ns: Time { total: stats.wait_total_ns, max: stats.wait_max_ns },
            hold_ns: Time { total: stats.hold_total_ns, max: stats.hold_max_ns },
            share: ratio(stats.wait_total_ns, thread_time_ns),
            sites: space.map(|space| sites(stats, space)).unwrap_or_default(),
        }
    }
}

/// The line that initialised a lock. One in a library says little by itself: then the line of the program
/// that led there is given as well.
fn creation(stack: &[u64], space: &Space) -> String {
    let innermost = space.call(stack[0]);
    let mut text = innermost.first().map(|frame| frame.text.clone()).unwrap_or_default();
    if !space.in_program(stack[0]) {
        let mut outer = stack.iter().filter(|&&address| space.in_program(address));
        if let Some(frame) =
            outer.find_map(|&address| space.call(address).iter().find(|f| !f.is_plumbing).cloned())
        {
            text += ", via ";
            text += &frame.text;
        }
    }
    text
}

/// The places where threads waited. Two of the same names (two return addresses in one line) are one place.
fn sites(stats: &LockStats, space: &Space) -> Vec<Site> {
    let mut sites: Vec<Site> = Vec::new();
    let mut known: HashMap<Vec<String>, usize> = HashMap::new();
    for raw in &stats.sites {
        let frames: Vec<Frame> = raw.stack.iter().flat_map(|&address| space.call(address).to_vec()).collect();
        let mut interesting: Vec<usize> =
            (0..frames.len()).filter(|&index| !frames[index].is_plumbing).collect();
        if interesting.is_empty() {
            interesting = (0..frames.len()).collect();
        }
        let stack: Vec<String> = frames.into_iter().map(|frame| frame.text).collect();
        let index = *known.entry(stack.clone()).or_insert_with(|| {
            sites.push(Site { stack, interesting, contended: 0, wait_ns: 0 });
            sites.len() - 1
        });
        sites[index].contended += raw.contended;
        sites[index].wait_ns += raw.wait_ns;
    }
    sites.sort_by_key(|site| std::cmp::Reverse((site.wait_ns, site.contended)));
    sites
}
