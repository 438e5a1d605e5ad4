//! A thread that follows the processes of a run, and tells what it finds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use poundlock_statfile::LockKind;

use crate::launch::BlockedSignals;
use crate::observe::place::{by_process, monotonic_ns};
use crate::observe::proc;
use crate::observe::strangers::Seen as Stranger;
use crate::observe::symbols::Symbols;

use super::arrays::{self, Place, Waiting};
use super::blind::Blind;
use super::collector::Collector;
use super::deadlock::Party;
use super::finding::Finding;
use super::kinds::{Kind, advice};
use super::process::Process;
use super::report::{NoRoom, Seen};
use super::tell;

/// Between two rounds, in nanoseconds: at least the first, and so long that rounds take this part of a CPU.
const PAUSE_NS: (u64, u64) = (2_000_000, 50_000_000);
const SHARE: u64 = 40;
/// Between two searches for processes: from the first to the second, which is reached in steps.
const SEARCH_NS: (u64, u64) = (2_000_000, 50_000_000);

/// How to follow.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Where the processes leave their files.
    pub(super) dir: PathBuf,
    pub(super) held_over_ns: Option<u64>,
    /// Sets of other locks held that are kept of one order of two locks.
    pub(super) guard_sets: usize,
    /// What is deadlocked is ended.
    pub(super) ends: bool,
    /// `CLOCK_MONOTONIC` at the start of the run.
    pub(super) begin_ns: u64,
}

impl Settings {
    /// Between two looks at what threads hold: short against the limit.
    pub(super) fn holds_look_ns(&self) -> u64 {
        self.held_over_ns.map_or(u64::MAX, |limit| (limit / 8).clamp(1_000_000, 20_000_000))
    }

    fn pause_ns(&self) -> u64 {
        PAUSE_NS.0.min(self.holds_look_ns())
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) findings: Vec<Finding>,
    pub(super) suppressed: Vec<(String, u64)>,
    pub(super) further: u64,
    pub(super) seen: Seen,
    pub(super) no_room: NoRoom,
    /// The processes whose locks are not all checked.
    pub(super) blind: Vec<Blind>,
    /// The programs that processes were seen to be.
    pub(super) programs: Vec<Stranger>,
    /// The programs that left a file, with their processes in their own namespaces.
    pub(super) left: Vec<(u32, String)>,
    /// Processes that could not make one.
    pub(super) unmeasured: Vec<u32>,
    /// Those that run on.
    pub(super) running: Vec<u32>,
    /// Those whose file was cut short while they were followed.
    pub(super) cut: Vec<u32>,
    /// Why files of processes could not be read, and whose.
    pub(super) unreadable: BTreeMap<String, Vec<u32>>,
    /// Whether the program was ended because of a deadlock.
    pub(super) ended_it: bool,
}

/// The thread.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Found>>,
}

#[derive(Default)]
struct Shared {
    stopped: Mutex<bool>,
    stop: Condvar,
    ended_it: AtomicBool,
}

impl Shared {
    fn stopped(&self) -> MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher {
    /// Starts to follow. All signals are blocked in its thread.
    pub(super) fn start(settings: Settings, collector: Collector) -> std::io::Result<Watcher> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let before = BlockedSignals::all();
        let run = move || Watch::new(settings, collector).run(&of_thread);
        let thread = std::thread::Builder::new().name("watcher".into()).spawn(run);
        drop(before);
        Ok(Watcher { shared, thread: Some(thread?) })
    }

    /// Whether the program was ended because of a deadlock.
    pub(super) fn ended_it(&self) -> bool {
        self.shared.ended_it.load(Ordering::Acquire)
    }

    /// Follows to the end of what is there, stops, and says what was found.
    pub(super) fn finish(mut self) -> Found {
        self.stop().unwrap_or_default()
    }

    fn stop(&mut self) -> Option<Found> {
        *self.shared.stopped() = true;
        self.shared.stop.notify_all();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread knows.
struct Watch {
    settings: Settings,
    collector: Collector,
    symbols: Symbols,
    processes: Vec<Process>,
    /// Files that are followed, or were, or cannot be.
    settled: HashSet<PathBuf>,
    /// Descendants of ours: each with its id in its own namespace.
    descendants: HashMap<u32, u32>,
    /// The programs that processes were seen to be last, by their ids in their own namespaces.
    programs: BTreeMap<u32, Stranger>,
    found: Found,
    search_at: u64,
    search_pause: u64,
    /// Deadlocks through semaphore arrays.
    arrays: arrays::Before,
}

impl Watch {
    fn new(settings: Settings, collector: Collector) -> Self {
        Watch {
            settings,
            collector,
            symbols: Symbols::new(),
            processes: Vec::new(),
            settled: HashSet::new(),
            descendants: HashMap::new(),
            programs: BTreeMap::new(),
            found: Found::default(),
            search_at: 0,
            search_pause: SEARCH_NS.0,
            arrays: arrays::Before::default(),
        }
    }

    fn run(mut self, shared: &Shared) -> Found {
        let mut stopped = shared.stopped();
        while !*stopped {
            drop(stopped);
            let before = cost();
            self.round(false);
            if self.settings.ends
                && self.collector.is_deadlocked()
                && !shared.ended_it.swap(true, Ordering::AcqRel)
            {
                self.end_program();
            }
            let pause = ((cost() - before) * SHARE).clamp(self.settings.pause_ns(), PAUSE_NS.1);
            stopped = shared.stopped();
            if !*stopped {
                let waited = shared.stop.wait_timeout(stopped, Duration::from_nanos(pause));
                stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        drop(stopped);
        self.round(true);
        self.finish(shared.ended_it.load(Ordering::Acquire))
    }

    /// One round; the last one looks for processes whenever that was done last.
    fn round(&mut self, last: bool) {
        let now = monotonic_ns();
        if last || now >= self.search_at {
            self.discover();
            self.search_pause = (self.search_pause * 3 / 2).min(SEARCH_NS.1);
            self.search_at = now + self.search_pause;
        }
        let since = now.saturating_sub(self.settings.begin_ns);
        let mut at = 0;
        while at < self.processes.len() {
            // Asked before its log is read: what it has logged by then is there.
            let gone = self.is_over(at);
            let process = &mut self.processes[at];
            process.follow(gone, since, &self.settings, &self.symbols, &mut self.collector);
            if gone {
                let process = self.processes.swap_remove(at);
                self.add_sums(&process);
                // Nobody needs it any more, and it is memory. The process's next program may take its name.
                let _ = std::fs::remove_file(&process.path);
                self.settled.remove(&process.path);
            } else {
                at += 1;
            }
        }
        self.look_at_arrays(since);
    }

    /// Looks for threads that wait for each other through semaphore arrays.
    fn look_at_arrays(&mut self, now: u64) {
        let mut seen = Vec::new();
        if self.processes.iter().any(Process::waits_for_arrays) {
            let waiting: Vec<Waiting<'_>> = self.processes.iter().map(Process::waiting).collect();
            for cycle in arrays::deadlocks(&waiting, &holders) {
                let party = |&(process, party): &Place| &waiting[process].parties[party];
                if cycle.iter().all(|place| self.processes[place.0].stand(party(place))) {
                    let key = |place: &Place| {
                        let party = party(place);
                        (self.processes[place.0].opened, party.record, party.wait.began)
                    };
                    let parties: Vec<(usize, Party)> =
                        cycle.iter().map(|place| (place.0, party(place).clone())).collect();
                    seen.push((cycle.iter().map(key).collect(), parties));
                }
            }
        }
        for deadlock in self.arrays.lasting(seen, now) {
            let finding = self.through_arrays(&deadlock, now);
            self.collector.deadlock(finding);
        }
    }

    /// A deadlock of these threads, each with the place of its process.
    fn through_arrays(&mut self, deadlock: &[(usize, Party)], now: u64) -> Finding {
        let mut finding = Finding::new(Kind::Deadlock, now);
        let mut waits: Vec<String> = Vec::new();
        let mut processes: Vec<usize> = deadlock.iter().map(|(process, _)| *process).collect();
        processes.sort_unstable();
        processes.dedup();
        for &process in &processes {
            let parties: Vec<Party> =
                deadlock.iter().filter(|(of, _)| *of == process).map(|(_, party)| party.clone()).collect();
            let (place, mut told) = self.processes[process].tell_parties(&parties, now, &self.symbols);
            let first = finding.locks.len();
            told.stacks.iter_mut().for_each(|stack| stack.lock = stack.lock.map(|lock| first + lock));
            finding.locks.append(&mut told.locks);
            finding.stacks.append(&mut told.stacks);
            waits.append(&mut told.waits);
            for party in parties.iter().filter(|party| party.wait.kind == LockKind::Array) {
                let (id, number) = LockKind::of_array(party.wait.address);
                let pids: Vec<String> = holders(id, number).iter().map(u32::to_string).collect();
                let noun = if pids.len() == 1 { "process" } else { "processes" };
                let note = format!(
                    "semaphore {number} of array {id} is held by {noun} {}, by SEM_UNDO: none of its threads goes on",
                    tell::list(&pids)
                );
                if !finding.notes.contains(&note) {
                    finding.notes.push(note);
                }
            }
            if finding.process.pid == 0 {
                finding.process = place;
            }
        }
        let named = waits.iter().take(tell::NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        finding.headline = tell::for_each_other(waits.len(), &named);
        finding.advice = advice::ARRAY;
        finding
    }

    /// Whether a process will log nothing more there: it is gone, or another program by now.
    fn is_over(&self, at: usize) -> bool {
        let process = &self.processes[at];
        let newer = |other: &Process| other.inner == process.inner && other.opened > process.opened;
        !process.is_alive() || (process.has_ended() && self.processes.iter().any(newer))
    }

    fn add_sums(&mut self, process: &Process) {
        if !process.is_whole() {
            self.found.cut.push(process.outer);
        }
        self.found.blind.extend(process.blind());
        let (seen, no_room) = process.sums();
        let sum = &mut self.found.seen;
        sum.processes += seen.processes;
        sum.threads += seen.threads;
        sum.locks += seen.locks;
        sum.nested_locks += seen.nested_locks;
        sum.orders += seen.orders;
        sum.orders_of_classes += seen.orders_of_classes;
        self.found.no_room.add(&no_room);
    }

    /// Finds processes and their files.
    fn discover(&mut self) {
        self.find_descendants();
        for (inner, files) in by_process(&self.settings.dir) {
            for path in files.into_values() {
                if !self.settled.contains(&path) {
                    self.open(inner, path);
                }
            }
        }
    }

    fn open(&mut self, inner: u32, path: PathBuf) {
        let descendants = &self.descendants;
        let outer = |inner: u32| {
            let known = descendants.iter().find(|(_, of)| **of == inner).map(|(&outer, _)| outer);
            known.unwrap_or(inner)
        };
        match Process::open(&path, self.found.left.len(), outer, self.settings.guard_sets) {
            Ok(Some(process)) => {
                self.found.left.push((process.inner, process.exe().to_owned()));
                self.processes.push(process);
                self.settled.insert(path);
            }
            // Not finished yet, or never to be: its length says which. What is no more was killed in the middle.
            Ok(None) => {}
            Err(error) => {
                self.found.unreadable.entry(error.to_string()).or_default().push(inner);
                self.settled.insert(path);
            }
        }
    }

    fn find_descendants(&mut self) {
        let mut pids = proc::children_of(std::process::id());
        let mut seen: HashSet<u32> = pids.iter().map(|&(pid, _)| pid).collect();
        let mut at = 0;
        let mut there = HashMap::new();
        while let Some(&(pid, parent)) = pids.get(at) {
            at += 1;
            pids.extend(proc::children_of(pid).into_iter().filter(|(child, _)| seen.insert(*child)));
            let inner = self.descendants.get(&pid).copied().or_else(|| proc::inner_pid(pid)).unwrap_or(pid);
            there.insert(pid, inner);
            let Ok(exe) = std::fs::read_link(format!("/proc/{pid}/exe")) else { continue };
            let exe = exe.to_string_lossy().into_owned();
            let parent = there.get(&parent).copied().unwrap_or(parent);
            // What counts is the last one: between a fork and an exec it is its parent's.
            let name = proc::Stat::read(pid).map_or_else(String::new, |stat| stat.name);
            self.programs.insert(inner, Stranger { pid: inner, parent, exe, name });
        }
        self.descendants = there;
    }

    /// Ends all that runs below us.
    fn end_program(&mut self) {
        self.find_descendants();
        let pids: Vec<u32> = self.descendants.keys().copied().collect();
        let followed =
            self.processes.iter().filter(|process| process.is_alive()).map(|process| process.outer);
        for pid in pids.into_iter().chain(followed) {
            if let Ok(pid) = libc::pid_t::try_from(pid) {
                // SAFETY: takes two numbers.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }

    fn finish(mut self, ended_it: bool) -> Found {
        let since = monotonic_ns().saturating_sub(self.settings.begin_ns);
        for mut process in std::mem::take(&mut self.processes) {
            process.settle(since, &self.symbols, &mut self.collector);
            self.found.running.push(process.outer);
            self.add_sums(&process);
        }
        let files: BTreeMap<u32, BTreeMap<u32, PathBuf>> = by_process(&self.settings.dir);
        for (pid, path) in
            files.into_iter().flat_map(|(pid, of)| of.into_values().map(move |path| (pid, path)))
        {
            // A file of no length is the library's word for one that it could not make larger.
            if !self.settled.contains(&path) && path.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                self.found.unmeasured.push(pid);
            }
        }
        let (findings, suppressed, further) = self.collector.finish();
        let programs = self.programs.into_values().collect();
        Found { findings, suppressed, further, ended_it, programs, ..self.found }
    }
}

/// The processes that have taken from a semaphore of an array with `SEM_UNDO`.
fn holders(id: u32, number: u16) -> Vec<u32> {
    let mut processes = Vec::new();
    poundlock_semarray::holders(id.cast_signed(), number.into(), |process, _| processes.push(process));
    processes
}

/// The CPU time of this thread.
fn cost() -> u64 {
    proc::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}
