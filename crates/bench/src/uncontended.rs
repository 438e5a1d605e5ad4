//! What a lock costs that nobody contends for.

use std::time::Duration;

use poundlock_names::LockName;
use serde::Serialize;

use crate::abi::{Abi, Kind};
use crate::affinity;
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::launch::{Context, Process};
use crate::machine::Machine;
use crate::progress::rounds;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;
use crate::worker::{self, Answer};

pub use crate::worker::uncontended::Operation;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The locks; glibc's default mutex takes part always. All if empty.
    pub locks: Vec<Contender>,
    /// Rounds in which everybody takes part once.
    pub rounds: usize,
    /// Seconds for each operation of each contender in a round.
    pub seconds: f64,
    /// The CPU to measure on; the last allowed one if none is named.
    pub cpu: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options { locks: Vec::new(), rounds: 9, seconds: 0.04, cpu: None }
    }
}

/// How many threads the measured process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// A second thread is alive, asleep in a read.
    Two,
    /// There is and was one thread only.
    One,
}

/// An operation of a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Threads of the process.
    pub threads: Threads,
    /// The contender; `None` for what is inlined and for floors.
    pub lock: Option<Contender>,
    /// What was timed.
    pub operation: Operation,
    /// Whether statistics were on.
    pub stat: bool,
    /// Nanoseconds a pair.
    pub ns: Summary,
    /// Of the time of glibc's default mutex in the same round, same operation and threads.
    pub of_glibc: Option<Summary>,
    /// Of the time of the bare compare-and-swap and exchange, for the Rust types.
    pub of_bare: Option<Summary>,
    /// Of the time of parking_lot's mutex, for the mutex of our crate.
    pub of_parking_lot: Option<Summary>,
    /// Nanoseconds more than with statistics off, in the same round.
    pub stat_adds_ns: Option<Summary>,
    /// Nanoseconds a pair in each round.
    pub rounds: Vec<Option<f64>>,
}

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What they were measured on.
    pub machine: Machine,
    /// How.
    pub options: Options,
    /// Whether the C library was found.
    pub c_library: bool,
    /// The figures.
    pub rows: Vec<Row>,
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// A process to measure in.
struct Run {
    lock: Option<Contender>,
    threads: Threads,
    stat: bool,
    operations: Vec<Operation>,
}

/// Slices that an operation's time in a round is cut into. Operations take turns slice by slice, and the
/// median over the slices leaves out those in which the thread was preempted.
const SLICES: u32 = 100;

fn plan(locks: &[Contender], c_library: bool) -> Vec<Run> {
    use Operation::*;
    let mut runs = Vec::new();
    for threads in [Threads::Two, Threads::One] {
        for &contender in locks {
            let lock = Some(contender);
            let mut operations = vec![LockUnlock, TrylockUnlock];
            if contender != Contender::GlibcAdaptive {
                operations.push(RecursiveLockUnlock);
            }
            if threads == Threads::Two {
                operations.push(SleptLockUnlock);
            }
            runs.push(Run { lock, threads, stat: false, operations });
            if contender.is_ours() && threads == Threads::Two {
                runs.push(Run { lock, threads, stat: true, operations: vec![LockUnlock] });
            }
        }
    }
    let mut operations = vec![BareCasExchange];
    operations.extend(locks.iter().filter_map(|lock| match lock {
        Contender::Poundlock(lock) => Operation::rust_type(*lock),
        _ => None,
    }));
    if locks.iter().any(|lock| lock.is_ours()) {
        operations.extend([CrateMutex, ParkingLotMutex]);
        operations.extend(c_library.then_some(CLibrary));
    }
    operations.push(AtomicAdd);
    if cfg!(target_arch = "x86_64") {
        operations.push(TimeStamp);
    }
    operations.extend([EmptyLoop, BareCalls, BareStoreCalls, EmptyCalls]);
    runs.push(Run { lock: None, threads: Threads::Two, stat: false, operations });
    runs
}

/// Measures.
///
/// # Errors
/// If the options make no sense, the preload library is missing, or a worker fails.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    if options.rounds == 0 {
        return Err(Error::Options("at least one round is needed".to_owned()));
    }
    if !(options.seconds > 0.0 && options.seconds <= 60.0) {
        return Err(Error::Options("--seconds must lie above 0 and at most at 60".to_owned()));
    }
    let cpu = affinity::one(options.cpu)?;
    let machine = Machine::describe(&context.command);
    let locks = Contender::with_reference(&options.locks);
    if locks.iter().any(|lock| lock.is_ours()) {
        context.library()?;
    }
    let c_library = Abi::c_library().is_ok();
    let runs = plan(&locks, c_library);
    let mut samples: Vec<Vec<Vec<Option<f64>>>> =
        runs.iter().map(|run| vec![Vec::new(); run.operations.len()]).collect();

    let name = |index: usize| runs[index].lock.map_or("floors", Contender::name).to_owned();
    rounds(options.rounds, runs.len(), name, |index| {
        let run = &runs[index];
        let task = worker::uncontended::Task {
            operations: run.operations.clone(),
            kind: if run.lock == Some(Contender::GlibcAdaptive) { Kind::Adaptive } else { Kind::Default },
            second_thread: run.threads == Threads::Two,
            cpu,
            slices: SLICES,
            slice_ns: (options.seconds * 1e9 / f64::from(SLICES)) as u64,
        };
        let takes = Duration::from_secs_f64(options.seconds * 2.0 * run.operations.len() as f64);
        let who = run.lock.unwrap_or(Contender::Glibc);
        let process = Process { stat: run.stat, ..Process::of(who) };
        let Answer::Uncontended(answer) = context.measure(process, worker::Task::Uncontended(task), takes)?
        else {
            return Err(Error::another_question(who.name()));
        };
        for (&operation, samples) in run.operations.iter().zip(&mut samples[index]) {
            let result = answer.results.iter().find(|(answered, _)| *answered == operation);
            samples.push(result.map(|(_, ns)| ns.median));
        }
        Ok(())
    })?;
    let rows = rows(&runs, &samples);
    let targets = targets(&rows);
    Ok(Figures { machine, options: options.clone(), c_library, rows, targets })
}

fn rows(runs: &[Run], samples: &[Vec<Vec<Option<f64>>>]) -> Vec<Row> {
    let find = |lock, threads, stat, operation| -> Option<&[Option<f64>]> {
        let index =
            runs.iter().position(|run| run.lock == lock && run.threads == threads && run.stat == stat)?;
        let position = runs[index].operations.iter().position(|&other| other == operation)?;
        Some(&samples[index][position])
    };
    let mut rows = Vec::new();
    for (run, samples) in runs.iter().zip(samples) {
        for (&operation, samples) in run.operations.iter().zip(samples) {
            let Some(ns) = Summary::of(samples.iter().copied().flatten()) else { continue };
            let ratio_to = |other: Option<&[Option<f64>]>| Summary::of_ratios(samples, other?);
            let same = match operation {
                Operation::CLibrary => Some(Operation::LockUnlock),
                _ => run.lock.map(|_| operation),
            };
            let glibc = same.and_then(|same| find(Some(Contender::Glibc), run.threads, false, same));
            let bare = match run.lock {
                None => find(None, run.threads, false, Operation::BareCasExchange),
                Some(_) => None,
            };
            let parking_lot = match operation {
                Operation::CrateMutex => find(None, run.threads, false, Operation::ParkingLotMutex),
                _ => None,
            };
            let off = if run.stat { find(run.lock, run.threads, false, operation) } else { None };
            rows.push(Row {
                threads: run.threads,
                lock: run.lock,
                operation,
                stat: run.stat,
                ns,
                of_glibc: ratio_to(glibc),
                of_bare: ratio_to(bare),
                of_parking_lot: ratio_to(parking_lot),
                stat_adds_ns: off.and_then(|off| Summary::of_differences(samples, off)),
                rounds: samples.clone(),
            });
        }
    }
    rows
}

fn targets(rows: &[Row]) -> Vec<Target> {
    let ours = |threads: Threads, stat: bool, figure: fn(&Row) -> Option<Summary>| {
        rows.iter()
            .filter(move |row| {
                row.threads == threads && row.stat == stat && row.operation == Operation::LockUnlock
            })
            .filter_map(move |row| {
                let lock = row.lock.filter(|lock| lock.is_ours())?;
                Some((lock.name(), figure(row)))
            })
    };
    let rust = LockName::ALL.into_iter().filter_map(|lock| {
        let operation = Operation::rust_type(lock)?;
        let row = rows.iter().find(|row| row.operation == operation)?;
        Some((lock.name(), row.of_bare))
    });
    let of = |operation: Operation, figure: fn(&Row) -> Option<Summary>| {
        let rows = rows.iter().filter(move |row| row.operation == operation);
        rows.map(move |row| (LockName::Poundlock.name(), figure(row)))
    };
    let targets = vec![
        Target::new(
            "lock + unlock, a second thread alive: time of glibc's",
            Limit::AtMost(0.85),
            "",
            ours(Threads::Two, false, |row| row.of_glibc),
        ),
        Target::new("Rust type, inlined: time of compare-and-swap + exchange", Limit::AtMost(1.15), "", rust),
        Target::new(
            "C library, lock + unlock: time of glibc's",
            Limit::AtMost(0.85),
            "",
            of(Operation::CLibrary, |row| row.of_glibc),
        ),
        Target::new(
            "poundlock::Mutex, inlined: time of parking_lot::Mutex",
            Limit::AtMost(1.05),
            "",
            of(Operation::CrateMutex, |row| row.of_parking_lot),
        ),
        Target::new(
            "lock + unlock in a process with one thread: time of glibc's",
            Limit::AtMost(1.1),
            "",
            ours(Threads::One, false, |row| row.of_glibc),
        ),
        Target::new(
            "added by statistics to lock + unlock",
            Limit::AtMost(15.0),
            "ns",
            ours(Threads::Two, true, |row| row.stat_adds_ns),
        ),
    ];
    targets.into_iter().filter(|target| !target.results.is_empty()).collect()
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Uncontended"
    }

    fn method(&self) -> String {
        format!(
            "Time of a lock and an unlock by one thread that nobody contends with, kept on one CPU. Functions of \
             the C ABI are called through pointers from the dynamic linker, on a mutex of their own, each \
             contender in processes of its own; what a Rust program would inline is inlined. {} rounds, in each \
             of which every contender takes part once, in random order; {} ms an operation and round. A figure is \
             the median over the rounds, the spread their minimum and maximum; a ratio is taken inside each \
             round before its median over the rounds. Nothing is subtracted: what the driver costs is listed.{}",
            self.options.rounds,
            self.options.seconds * 1000.0,
            if self.c_library {
                ""
            } else {
                " The C library was not found: install it by `cargo cinstall`, or name the file in POUNDLOCK_C_LIBRARY."
            },
        )
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        for (threads, title) in [
            (Threads::Two, "A second thread is alive"),
            (Threads::One, "A process with one thread, where glibc does without atomics"),
        ] {
            let mut table =
                Table::new(title, 2, &["lock", "operation", "ns a pair", "spread", "of glibc", "spread"]);
            for row in self.rows.iter().filter(|row| row.threads == threads && !row.stat) {
                let Some(lock) = row.lock else { continue };
                table.rows.push(vec![
                    lock.to_string(),
                    row.operation.words().to_owned(),
                    median(Some(row.ns), 2),
                    spread(Some(row.ns), 2),
                    median(row.of_glibc, 2),
                    spread(row.of_glibc, 2),
                ]);
            }
            tables.push(table);
        }
        let mut stat = Table::new(
            "Statistics, a second thread alive",
            2,
            &["lock", "operation", "ns a pair", "spread", "adds ns", "spread"],
        );
        for row in self.rows.iter().filter(|row| row.stat) {
            stat.rows.push(vec![
                row.lock.map_or_else(String::new, |lock| lock.to_string()),
                row.operation.words().to_owned(),
                median(Some(row.ns), 2),
                spread(Some(row.ns), 2),
                median(row.stat_adds_ns, 2),
                spread(row.stat_adds_ns, 2),
            ]);
        }
        if !stat.rows.is_empty() {
            tables.push(stat);
        }
        let mut floors = Table::new(
            "Rust types, the C library, and the floors",
            1,
            &[
                "operation",
                "ns",
                "spread",
                "of compare-and-swap + exchange",
                "spread",
                "of glibc",
                "of parking_lot",
            ],
        );
        for row in self.rows.iter().filter(|row| row.lock.is_none()) {
            floors.rows.push(vec![
                row.operation.words().to_owned(),
                median(Some(row.ns), 2),
                spread(Some(row.ns), 2),
                median(row.of_bare, 2),
                spread(row.of_bare, 2),
                median(row.of_glibc, 2),
                median(row.of_parking_lot, 2),
            ]);
        }
        tables.push(floors);
        tables
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Contender = Contender::DEFAULT;

    /// Figures of two rounds, of which the second runs at half speed, made from one table of times.
    fn made_up() -> Vec<Row> {
        let runs = plan(&[Contender::Glibc, OURS], true);
        let samples: Vec<Vec<Vec<Option<f64>>>> = runs
            .iter()
            .map(|run| {
                run.operations
                    .iter()
                    .map(|operation| {
                        let ns = match (run.lock, run.threads, run.stat) {
                            (Some(Contender::Glibc), Threads::Two, _) => 10.0,
                            (Some(_), Threads::Two, false) => 8.0,
                            (Some(_), Threads::Two, true) => 20.0,
                            (Some(Contender::Glibc), Threads::One, _) => 2.0,
                            (Some(_), Threads::One, _) => 3.0,
                            (None, ..) if *operation == Operation::BareCasExchange => 5.0,
                            (None, ..) => 5.5,
                        };
                        vec![Some(ns), Some(2.0 * ns)]
                    })
                    .collect()
            })
            .collect();
        rows(&runs, &samples)
    }

    #[test]
    fn targets_follow_from_the_rows() {
        let targets = targets(&made_up());
        let found: Vec<_> =
            targets.iter().map(|target| (target.results[0].value, target.results[0].reached)).collect();
        assert_eq!(found, [(0.8, true), (1.1, true), (0.55, true), (1.0, true), (1.5, false), (18.0, false)]);
        assert!(
            targets.iter().all(|target| target.results.len() == 1 && target.results[0].lock == OURS.name())
        );
    }

    #[test]
    fn every_measured_operation_has_a_row_and_statistics_only_ours() {
        let rows = made_up();
        // For glibc and ours 3 operations with each number of threads and one only with two; statistics.
        let floors = rows.iter().filter(|row| row.lock.is_none()).count();
        assert_eq!(rows.len() - floors, 2 * (2 * 3 + 1) + 1);
        assert!(rows.iter().filter(|row| row.stat).all(|row| row.lock == Some(OURS)));
    }

    #[test]
    fn glibc_alone_has_no_targets() {
        let runs = plan(&[Contender::Glibc], false);
        let samples: Vec<_> = runs.iter().map(|run| vec![vec![Some(1.0)]; run.operations.len()]).collect();
        assert!(targets(&rows(&runs, &samples)).is_empty());
    }
}
