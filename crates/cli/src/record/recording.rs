//! What a recorded program did: the file that `record` writes and `predict` reads.
//!
//! One line says what it is; the rest is JSON, which ends with the file. Each event is four numbers: when, in
//! nanoseconds since its stretch began; what; which lock of its process; and where, or something else.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use poundlock_measure::Summary;
use poundlock_statfile::{LockKind, Snapshot, What};
use serde::{Deserialize, Serialize};

use crate::message::{Failure, say, status};
use crate::observe::place::by_process;
use crate::observe::symbols::Symbols;
use crate::stat::class::Grouping;
use crate::stat::names::Known;

/// The first line, up to the version.
const MAGIC: &str = "poundlock recording ";
const VERSION: u32 = 3;

/// See the module's documentation.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Recording {
    /// The command.
    pub(crate) command: Vec<String>,
    /// What it ran on.
    pub(crate) lock: String,
    pub(crate) rwlock: String,
    /// From its start to its end.
    pub(crate) wall_ns: u64,
    /// The CPU's model, and how many there were.
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// What the simulator wants to know of that machine, as `poundlock sim measure` says it.
    pub(crate) machine: String,
    /// How long a turn of [`compute`](poundlock_statfile::speed::compute) took when that was measured, in
    /// picoseconds; 0 if that is not known.
    pub(crate) turn_ps: u32,
    /// How many of those other programs used meanwhile, on average.
    pub(crate) others: f64,
    pub(crate) overhead: Overhead,
    pub(crate) processes: Vec<Process>,
}

/// What measuring takes, in nanoseconds, where the program does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Overhead {
    /// Between an acquisition and a release, in a stretch.
    pub(crate) inside_ns: u64,
    /// Between a release and an acquisition, in a stretch.
    pub(crate) outside_ns: u64,
    /// For both together, where nothing is written down: what `stat` costs.
    #[serde(default)]
    pub(crate) stat_ns: u64,
    /// How long a turn of [`compute`](poundlock_statfile::speed::compute) took then, in picoseconds; 0 if
    /// that is not known.
    #[serde(default)]
    pub(crate) turn_ps: u32,
}

impl Overhead {
    /// On a CPU on which a turn takes this time.
    pub(crate) fn at(self, turn_ps: Option<u32>) -> Overhead {
        let Some(turn_ps) = turn_ps.filter(|_| self.turn_ps > 0) else { return self };
        let there = |ns: u64| ns.saturating_mul(turn_ps.into()) / u64::from(self.turn_ps);
        Overhead {
            inside_ns: there(self.inside_ns),
            outside_ns: there(self.outside_ns),
            stat_ns: there(self.stat_ns),
            turn_ps,
        }
    }
}

/// A process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) program: String,
    pub(crate) locks: Vec<Lock>,
    /// Lines of the program, by number.
    pub(crate) places: Vec<String>,
    pub(crate) stretches: Vec<Stretch>,
    /// From the begin of the first stretch to the end.
    pub(crate) lived_ns: u64,
    /// Whether there was no more room before its end.
    pub(crate) is_full: bool,
}

/// A lock that was used in a stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lock {
    /// What people call it and its like.
    pub(crate) name: String,
    /// What it is, in words.
    pub(crate) kind: String,
    /// [`LockKind`].
    pub(crate) kind_number: u8,
    /// Its address.
    pub(crate) address: u64,
    /// How often it was acquired in the process's whole life, and how long threads waited for it.
    pub(crate) acquisitions: u64,
    pub(crate) wait_ns: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stretch {
    /// Since the process's start.
    pub(crate) began_ns: u64,
    pub(crate) length_ns: u64,
    pub(crate) threads: Vec<Thread>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    /// The CPU on which it was seen first.
    #[serde(default)]
    pub(crate) cpu: Option<u32>,
    /// How long a turn of [`compute`](poundlock_statfile::speed::compute) took there then, in
    /// picoseconds.
    #[serde(default)]
    pub(crate) turn_ps: Option<u32>,
    /// When, what, lock, and more about it.
    pub(crate) events: Vec<(u64, u8, u32, u64)>,
}

/// What an event is: the third of its numbers stands for a lock, the fourth for a place.
pub(crate) const ACQUIRED: u8 = 1;
pub(crate) const WAITS: u8 = 2;
pub(crate) const ACQUIRED_AFTER: u8 = 3;
pub(crate) const GAVE_UP: u8 = 4;
pub(crate) const RELEASED: u8 = 5;
pub(crate) const BLOCKS: u8 = 6;
pub(crate) const UNBLOCKED: u8 = 7;
/// It was given up: its time was up.
pub(crate) const TIMED_OUT: u8 = 8;
pub(crate) const WAKES: u8 = 9;
pub(crate) const WAKES_ALL: u8 = 10;
/// The third number: how often it gave up its CPU by itself; the fourth: its CPU time so far, in nanoseconds.
pub(crate) const CPU: u8 = 11;

/// As acquired, by a thread that would not have waited.
pub(crate) const TRIED: u8 = 12;
/// It gives its CPU to others that are ready, until `UNBLOCKED`.
pub(crate) const YIELDS: u8 = 13;
/// What the event before was about ended now: a call that woke a thread, or the writing down.
pub(crate) const ENDED: u8 = 14;

/// A lock of which nothing is known.
pub(crate) const NO_LOCK: u32 = 0;

impl Recording {
    /// What the processes of a run have left.
    pub(crate) fn read(dir: &Path, now_ns: u64) -> Recording {
        let mut recording = Recording {
            cpus: poundlock_measure::affinity::allowed().map_or(1, |cpus| cpus.len()),
            ..Recording::default()
        };
        recording.cpu = poundlock_measure::Machine::describe("").cpu;
        for (_, files) in by_process(dir) {
            for path in files.into_values() {
                match Process::read(&path, now_ns) {
                    Ok(process) => recording.processes.extend(process),
                    Err(poundlock_statfile::Error::NotAStatFile) => {}
                    Err(error) => say(format_args!("{}: {error}", path.display())),
                }
            }
        }
        recording
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{MAGIC}{VERSION}")?;
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)
    }

    /// A recording that was written to a file.
    pub(crate) fn open(path: &Path) -> Result<Recording, Failure> {
        let wrong = |why: &str| Failure::new(status::OURS, format_args!("{}: {why}", path.display()));
        let text = std::fs::read(path).map_err(|error| wrong(&crate::program::reason(&error)))?;
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let version = std::str::from_utf8(first).ok().and_then(|line| line.strip_prefix(MAGIC));
        let version: u32 = version
            .and_then(|version| version.parse().ok())
            .ok_or_else(|| wrong("no recording: `poundlock record -o FILE -- COMMAND` makes one"))?;
        if version != VERSION {
            return Err(wrong(&format!(
                "a recording of version {version}, and this command reads version {VERSION}: record it anew"
            )));
        }
        let recording: Recording = serde_json::from_slice(&text[first.len()..]).map_err(|error| {
            let why = if error.is_eof() { "it is cut off" } else { "it is damaged" };
            wrong(&format!("{why}: record it anew ({error})"))
        })?;
        if recording.processes.iter().any(|process| !process.is_sound()) {
            return Err(wrong(
                "it is damaged: it speaks of locks or places that it does not have: record it anew",
            ));
        }
        Ok(recording)
    }

    pub(crate) fn events(&self) -> usize {
        self.processes.iter().map(Process::events).sum()
    }

    /// The usual gaps between events of a program that does nothing: where they are, of the time that a turn
    /// took there, in the middle of all.
    pub(crate) fn least_gaps(&self) -> Overhead {
        let stretches = self.processes.iter().flat_map(|process| &process.stretches);
        let of = |thread: &Thread| {
            let gap = |between: (u8, u8)| {
                let pairs = thread.events.windows(2).filter(|pair| (pair[0].1, pair[1].1) == between);
                Some(Summary::of(pairs.map(|pair| (pair[1].0 - pair[0].0) as f64))?.median as u64)
            };
            Some(Overhead {
                inside_ns: gap((ACQUIRED, RELEASED))?,
                outside_ns: gap((RELEASED, ACQUIRED))?,
                stat_ns: 0,
                turn_ps: thread.turn_ps?,
            })
        };
        let mut gaps: Vec<Overhead> = stretches.flat_map(|stretch| &stretch.threads).filter_map(of).collect();
        gaps.sort_by_key(|gaps| gaps.outside_ns * 1_000_000 / u64::from(gaps.turn_ps.max(1)));
        gaps.get(gaps.len() / 2).copied().unwrap_or_default()
    }
}

impl Process {
    fn read(path: &Path, now_ns: u64) -> Result<Option<Process>, poundlock_statfile::Error> {
        let snapshot = poundlock_statfile::read(path, now_ns)?;
        let recorded = poundlock_statfile::read_stretches(path)?;
        if recorded.stretches.iter().all(|stretch| stretch.threads.is_empty()) {
            return Ok(None);
        }
        let tables = Tables::new(&snapshot, &recorded.stretches);
        let stretches = recorded.stretches.iter().map(|stretch| Stretch {
            began_ns: stretch.began_ns.saturating_sub(snapshot.start_ns),
            length_ns: stretch.until_ns.saturating_sub(stretch.began_ns),
            threads: stretch
                .threads
                .iter()
                .map(|life| {
                    // Each begins with one.
                    let first = life.events.iter().find_map(|event| match event.what {
                        What::Cpu { on, turn_ps, .. } => Some((on, turn_ps)),
                        _ => None,
                    });
                    let (cpu, turn_ps) = first.unwrap_or_default();
                    let events = life.events.iter().map(|event| tables.event(event, stretch.began_ns));
                    Thread { tid: life.tid, cpu, turn_ps, events: events.collect() }
                })
                .collect(),
        });
        let stretches = stretches.collect();
        Ok(Some(Process {
            pid: snapshot.pid,
            program: snapshot.exe.clone(),
            locks: tables.locks,
            places: tables.places,
            stretches,
            lived_ns: recorded.stretches.first().map_or(0, |first| now_ns.saturating_sub(first.began_ns)),
            is_full: recorded.is_full,
        }))
    }

    pub(crate) fn events(&self) -> usize {
        let threads = self.stretches.iter().flat_map(|stretch| &stretch.threads);
        threads.map(|thread| thread.events.len()).sum()
    }

    /// Whether all numbers are those of something, and times do not go back.
    fn is_sound(&self) -> bool {
        let events = |thread: &Thread| {
            thread.events.windows(2).all(|pair| pair[0].0 <= pair[1].0)
                && thread.events.iter().all(|&(_, what, lock, more)| {
                    what == CPU || ((lock as usize) < self.locks.len() && (more as usize) < self.places.len())
                })
        };
        self.stretches.iter().flat_map(|stretch| &stretch.threads).all(events)
    }
}

/// The locks and places that the events speak of.
struct Tables {
    by_slot: HashMap<u32, u32>,
    locks: Vec<Lock>,
    by_address: HashMap<u64, u64>,
    places: Vec<String>,
}

impl Tables {
    fn new(snapshot: &Snapshot, stretches: &[poundlock_statfile::Stretch]) -> Tables {
        let none = Lock { name: "?".to_owned(), kind: "lock".to_owned(), ..Lock::default() };
        let mut tables = Tables {
            by_slot: HashMap::new(),
            locks: vec![none],
            by_address: HashMap::new(),
            places: vec!["?".to_owned()],
        };
        let symbols = Symbols::new();
        let space = symbols.space(snapshot);
        let events = || stretches.iter().flat_map(|stretch| &stretch.threads).flat_map(|life| &life.events);
        let used: std::collections::HashSet<u32> = events().map(|event| event.lock).collect();
        let (mut grouping, mut known) = (Grouping::new(), Known::default());
        let mut groups = Vec::new();
        for lock in snapshot.locks.iter().filter(|lock| used.contains(&lock.slot) && lock.address != 0) {
            let place = grouping.place(snapshot.pid, lock, &space, &mut known);
            grouping.count(place, snapshot.pid, lock);
            tables.by_slot.insert(lock.slot, tables.locks.len() as u32);
            groups.push((tables.locks.len(), place));
            tables.locks.push(Lock {
                name: String::new(),
                kind: crate::stat::text::noun(lock.kind).to_owned(),
                kind_number: lock.kind as u8,
                address: lock.address,
                acquisitions: lock.acquisitions,
                wait_ns: lock.wait_total_ns,
            });
        }
        for sorted in grouping.sorts() {
            for &(lock, _) in groups.iter().filter(|(_, place)| sorted.groups.contains(place)) {
                tables.locks[lock].name.clone_from(&sorted.class.name);
            }
        }
        let places: std::collections::BTreeSet<u64> = events().map(|event| event.place).collect();
        for address in places.into_iter().filter(|place| *place != 0) {
            let frames = space.call(address);
            let text = frames.iter().find(|frame| !frame.is_plumbing).or(frames.first());
            if let Some(frame) = text {
                tables.by_address.insert(address, tables.places.len() as u64);
                tables.places.push(frame.text.clone());
            }
        }
        tables
    }

    fn event(&self, event: &poundlock_statfile::Event, began_ns: u64) -> (u64, u8, u32, u64) {
        let at = event.at_ns.saturating_sub(began_ns);
        let lock = self.by_slot.get(&event.lock).copied().unwrap_or(NO_LOCK);
        let place = self.by_address.get(&event.place).copied().unwrap_or(0);
        match event.what {
            What::Acquired { tried: false } => (at, ACQUIRED, lock, place),
            What::Acquired { tried: true } => (at, TRIED, lock, place),
            What::Waits => (at, WAITS, lock, place),
            What::AcquiredAfter => (at, ACQUIRED_AFTER, lock, place),
            What::GaveUp => (at, GAVE_UP, lock, place),
            What::Released => (at, RELEASED, lock, place),
            What::Blocks => (at, BLOCKS, lock, place),
            What::Unblocked { timed_out: false } => (at, UNBLOCKED, lock, place),
            What::Unblocked { timed_out: true } => (at, TIMED_OUT, lock, place),
            What::Ended => (at, ENDED, lock, place),
            What::Yields => (at, YIELDS, lock, place),
            What::Wakes { all: false } => (at, WAKES, lock, place),
            What::Wakes { all: true } => (at, WAKES_ALL, lock, place),
            What::Cpu { ns, gave_up, .. } => (at, CPU, gave_up, ns),
        }
    }
}

impl Lock {
    /// What it is.
    pub(crate) fn of_kind(&self) -> LockKind {
        LockKind::from_byte(self.kind_number)
    }

    /// The address by which both sides of a readers-writer lock are known.
    pub(crate) fn whole(&self) -> u64 {
        match self.of_kind() {
            LockKind::RwWriters | LockKind::SharedRwWriters => self.address - LockKind::WRITERS as u64,
            _ => self.address,
        }
    }
}
