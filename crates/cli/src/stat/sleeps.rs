//! Where threads slept, as samples of their stacks tell: the rows of the report, and what else of the
//! threads' time there is to account for.

use std::collections::BTreeMap;

use poundlock_statfile::Snapshot;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::holders::sleeping;
use super::names::{Known, NO_STACK, Names, StackId};
use super::report::{Report, ratio};
use super::sampler::{Estimate, Outcome, Process, Purpose, Sleep, Waker, placed};
use super::text::{path, percent};
use crate::observe::symbols::{Space, Symbols, file_name};

/// Functions that are named behind the first one of a stack, in a row and in a list of several.
const CALLERS: usize = 6;
const FEW: usize = 2;

/// Sleeps of one sort at one place, in threads of one name of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sleeper {
    pub(super) program: String,
    pub(super) threads: String,
    pub(super) what: Sleep,
    pub(super) waker: Waker,
    pub(super) purpose: Purpose,
    pub(super) stack: StackId,
}

/// A row.
pub(super) struct Row {
    pub(super) of: Sleeper,
    pub(super) sum: Estimate,
}

/// Threads that all wait for each other, each with its stack.
pub(super) struct Stuck {
    pub(super) for_ns: u64,
    pub(super) threads: Vec<(String, Sleep, StackId)>,
}

/// The addresses of programs.
struct Spaces<'a> {
    symbols: &'a Symbols,
    known: Vec<(&'a Snapshot, Space<'a>, Known)>,
}

impl<'a> Spaces<'a> {
    fn stack(&mut self, process: &'a Process, place: u32, names: &mut Names) -> StackId {
        let Some(place) = place.checked_sub(1).and_then(|at| process.sleeps.places.get(at as usize)) else {
            return NO_STACK;
        };
        let program: &'a Snapshot = &process.sleeps.programs[place.program];
        // Forked processes have the same files at the same addresses.
        let same = self.known.iter().position(|(known, ..)| {
            known.modules == program.modules && (known.pid == program.pid || known.exe == program.exe)
        });
        let at = same.unwrap_or_else(|| {
            self.known.push((program, self.symbols.space(program), Known::default()));
            self.known.len() - 1
        });
        let (_, space, known) = &mut self.known[at];
        names.stack(&place.stack, space, known)
    }
}

/// All rows, most time first.
pub(super) fn rows(outcome: &Outcome, symbols: &Symbols, names: &mut Names) -> (Vec<Row>, Option<Stuck>) {
    let mut spaces = Spaces { symbols, known: Vec::new() };
    let mut found: BTreeMap<Sleeper, Estimate> = BTreeMap::new();
    for process in &outcome.processes {
        for sum in &process.sleeps.sums {
            let of = Sleeper {
                program: if process.exe.is_empty() { process.name.clone() } else { file_name(&process.exe) },
                threads: sum.threads.to_string(),
                what: sum.what.clone(),
                waker: sum.waker,
                purpose: sum.purpose,
                stack: spaces.stack(process, sum.place, names),
            };
            let entry = found.entry(of).or_default();
            entry.ns += sum.sum.ns;
            entry.samples += sum.sum.samples;
        }
    }
    // Stacks are read of some samples only.
    let are_alike = |a: &Sleeper, b: &Sleeper| Sleeper { stack: a.stack, ..b.clone() } == *a;
    let found = placed(found, |of| of.stack != NO_STACK, are_alike);
    let mut rows: Vec<Row> = found.into_iter().map(|(of, sum)| Row { of, sum }).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.sum.ns));
    let stuck = outcome.stuck.as_ref().map(|stuck| Stuck {
        for_ns: stuck.for_ns,
        threads: stuck
            .threads
            .iter()
            .map(|thread| {
                let process = outcome.processes.iter().find(|process| process.pid == thread.pid);
                let place = process.map_or(NO_STACK, |process| spaces.stack(process, thread.place, names));
                (format!("{} ({})", thread.name, thread.tid), thread.what.clone(), place)
            })
            .collect(),
    });
    (rows, stuck)
}

/// A sleep with its place: `asleep in epoll_wait() at wait_event (server.c:12) < serve`.
pub(super) fn place(names: &Names, what: &Sleep, stack: StackId) -> String {
    place_of(names, what, stack, CALLERS)
}

fn place_of(names: &Names, what: &Sleep, stack: StackId, callers: usize) -> String {
    match stack {
        NO_STACK => sleeping(what),
        stack => format!("{} at {}", sleeping(what), path(names, stack, callers)),
    }
}

impl Row {
    pub(super) fn place(&self, names: &Names) -> String {
        place(names, &self.of.what, self.of.stack)
    }

    /// The same in few words.
    pub(super) fn brief(&self, names: &Names) -> String {
        place_of(names, &self.of.what, self.of.stack, FEW)
    }

    /// Whether the rest of the report has it: a wait that the program's file, or the calls that were seen,
    /// tell.
    pub(super) fn is_counted(&self, futexes_are_seen: bool) -> bool {
        match &self.of.what {
            Sleep::Lock | Sleep::Condition | Sleep::Barrier | Sleep::Semaphore | Sleep::Join => true,
            Sleep::Futex => futexes_are_seen,
            Sleep::Call(name) => name == crate::observe::calls::FUTEX,
            Sleep::Signal | Sleep::OutsideCalls | Sleep::Hidden => false,
        }
    }

    /// Whether it is a wait that another thread of the program ends by its work, or by letting go of a lock
    /// that is made of such waits.
    pub(super) fn is_for_work(&self) -> bool {
        matches!(self.of.what, Sleep::Condition | Sleep::Barrier | Sleep::Semaphore)
    }

    /// Whether it may be a wait for a lock that nobody counts: one of the program's threads ends it, or
    /// nothing is known of it.
    pub(super) fn may_be_a_lock(&self, futexes_are_seen: bool) -> bool {
        let is_unknown = self.of.what == Sleep::Hidden;
        let is_of_program = matches!(self.of.waker, Waker::Program | Waker::Signals)
            && self.of.what != Sleep::Signal
            && !matches!(&self.of.what, Sleep::Call(name) if name.starts_with("wait"));
        !self.is_counted(futexes_are_seen) && (is_of_program || is_unknown || self.of.what == Sleep::Futex)
    }

    /// Who it is, and what is known of why.
    pub(super) fn remark(&self) -> String {
        let purpose = match (self.of.purpose, self.of.waker) {
            (Purpose::Idle, Waker::Program | Waker::Signals) => "; idle, or a wake-up is missing",
            (Purpose::Idle, _) => "; idle",
            (Purpose::Events, _) => "; between requests",
            (Purpose::Blocked, Waker::Program) => "; only the program itself ends it",
            (Purpose::Blocked, Waker::Signals) => "; the program itself ends it, or a signal",
            (Purpose::Blocked, _) => "",
        };
        format!("{} of {}{purpose}", self.of.threads, self.of.program)
    }
}

/// A part of the time of threads that had something to do, in words.
pub(super) struct Part {
    pub(super) text: String,
    pub(super) ns: u64,
}

/// Where the time of threads that had something to do went, most first: with locks, CPU time and each place.
pub(super) fn parts(report: &Report) -> Vec<Part> {
    let Some(sampled) = &report.sampled else { return Vec::new() };
    let times = &sampled.total;
    let both = times.running_ns.saturating_add(times.ready_ns.unwrap_or(0));
    let less = |ns: u64| ns - (ratio(times.spinning.ns, both).min(1.0) * ns as f64) as u64;
    let mut parts = vec![
        Part { text: "running".to_owned(), ns: less(times.running_ns) },
        Part { text: "ready without a CPU".to_owned(), ns: less(times.ready_ns.unwrap_or(0)) },
        Part { text: sleeping(&Sleep::Lock), ns: times.locks().ns },
    ];
    let mut places: BTreeMap<String, u64> = BTreeMap::new();
    for row in
        report.sleeps.iter().filter(|row| row.of.purpose == Purpose::Blocked && row.of.what != Sleep::Lock)
    {
        *places.entry(row.brief(&report.names)).or_default() += row.sum.ns;
    }
    parts.extend(places.into_iter().map(|(text, ns)| Part { text, ns }));
    parts.retain(|part| part.ns > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    parts
}

/// The place with the most time among these rows, with that time: rows whose brief text is the same are one
/// place, of which the row with the most time is given.
pub(super) fn longest<'a>(names: &Names, rows: impl Iterator<Item = &'a Row>) -> Option<(&'a Row, u64)> {
    let mut places: BTreeMap<String, (&Row, u64)> = BTreeMap::new();
    for row in rows {
        let (most, ns) = places.entry(row.brief(names)).or_insert((row, 0));
        *ns += row.sum.ns;
        if row.sum.ns > most.sum.ns {
            *most = row;
        }
    }
    places.into_values().max_by_key(|(_, ns)| *ns)
}

/// The first parts in words, and the rest in one: `61.2 % running, 20.0 % asleep in read() at load (a.c:7)`.
pub(super) fn account(parts: &[Part], all: u64, shown: usize) -> String {
    let name = |part: &Part| format!("{} {}", percent(ratio(part.ns, all)), part.text);
    let large = parts.iter().take(shown).take_while(|part| ratio(part.ns, all) >= 0.01).count();
    let mut words: Vec<String> = parts[..large].iter().map(name).collect();
    let rest: u64 = parts[large..].iter().map(|part| part.ns).sum();
    if ratio(rest, all) >= 0.001 {
        words.push(format!("{} elsewhere", percent(ratio(rest, all))));
    }
    words.join(", ")
}

/// A row in the JSON document.
#[derive(Serialize)]
pub(super) struct RowJson<'a> {
    program: &'a str,
    /// The name of the threads.
    threads: &'a str,
    #[serde(serialize_with = "what")]
    what: &'a Sleep,
    /// Innermost first; empty if it is not known.
    stack: &'a RawValue,
    /// Whether threads were kept from work, waited for requests in between, or had nothing to do.
    purpose: Purpose,
    /// Who can end such a sleep.
    ended_by: Waker,
    /// Thread time, which `samples` samples stand for.
    ns: u64,
    samples: u64,
}

fn what<S: Serializer>(what: &Sleep, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&sleeping(what))
}

pub(super) fn json(report: &Report) -> Vec<RowJson<'_>> {
    report
        .sleeps
        .iter()
        .map(|row| RowJson {
            program: &row.of.program,
            threads: &row.of.threads,
            what: &row.of.what,
            stack: report.names.json(row.of.stack),
            purpose: row.of.purpose,
            ended_by: row.of.waker,
            ns: row.sum.ns,
            samples: row.sum.samples,
        })
        .collect()
}
