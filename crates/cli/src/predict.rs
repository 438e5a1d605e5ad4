//! `poundlock predict`: what would help a recorded program, before anybody changes a line.

mod steps;
mod what;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use poundlock_sim::workload::replay::{Kind, Replay, Replayed};
use poundlock_sim::{Machine, Picoseconds, Settings, Simulation, experiment};
use poundlock_statfile::LockKind;
use serde::Serialize;

use crate::message::{Failure, say, status};
use crate::record::recording::{Process, Recording};
use crate::results::{Output, print_beside, write_json};
use crate::sim;
use steps::Lives;
use what::{Change, World};

/// What to predict from, and what.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What `poundlock record` has written
    #[arg(value_name = "FILE", default_value = "poundlock.recording")]
    recording: PathBuf,
    /// One question: a lock as the table names it, and `gone`, `half`, `split N` or `rw`; several are combined
    #[arg(long, value_name = "LOCK: CHANGE")]
    what_if: Vec<String>,
    /// On which machine: a name that `poundlock sim list` shows, a file that describes one, or `here`, this one
    #[arg(long, value_name = "MACHINE", default_value = "here")]
    machine: String,
    /// With so many CPUs of it, each of them a core of one socket
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Vec<u32>,
    /// With so many times the threads
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Other locks to try [default: all that `run` knows and that can be simulated]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    lock: Vec<String>,
    /// How many stretches of the recording are replayed, at most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    stretches: u32,
    /// What all that is left to chance is made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the figures to FILE as JSON as well; instead of the text if it is `-`, standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A replay that is off by more is not to be trusted, and one that is off by more yet says nothing.
const DOUBTFUL: f64 = 0.15;
const USELESS: f64 = 0.40;
/// A stretch with fewer acquisitions says little.
const FEWEST: f64 = 50.0;
/// Locks with a smaller share of the threads' time are not asked about.
const LEAST_SHARE: f64 = 0.005;

/// Says it.
pub(crate) fn main(args: Args) -> ExitCode {
    match predict(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// A figure over stretches: the middle one, the least and the most.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Range {
    median: f64,
    least: f64,
    most: f64,
}

impl Range {
    fn of(mut values: Vec<f64>) -> Range {
        values.sort_by(f64::total_cmp);
        match values[..] {
            [] => Range { median: f64::NAN, least: f64::NAN, most: f64::NAN },
            _ => Range { median: values[values.len() / 2], least: values[0], most: values[values.len() - 1] },
        }
    }

    fn text(self) -> String {
        format!("{:.2} ({:.2}..{:.2})", self.median, self.least, self.most)
    }
}

/// A question, with its answer: the rate, of that of the program as it was, on the same machine.
#[derive(Serialize)]
struct Answer {
    lock: String,
    change: String,
    rate: Range,
}

#[derive(Serialize)]
struct Report {
    command: Vec<String>,
    machine: String,
    recorded_on: String,
    stretches: usize,
    /// Acquisitions a second: simulated, of measured.
    self_test: Range,
    /// Seconds of waiting in a second: measured, simulated; by lock.
    locks: Vec<Row>,
    answers: Vec<Answer>,
    advice: String,
}

#[derive(Serialize)]
struct Row {
    lock: String,
    kind: String,
    acquisitions_a_second: f64,
    waiting: f64,
    waiting_simulated: f64,
    held: f64,
}

/// The recording, ready to be replayed.
struct Ready<'a> {
    process: &'a Process,
    lives: Vec<Lives>,
    machine: Machine,
    seed: u64,
}

impl Ready<'_> {
    /// The lock that stands for one of a process, by what it ran on.
    fn kind<'n>(&self, lock: u32, mutex: &'n str) -> Kind<'n> {
        match self.process.locks[lock as usize].of_kind() {
            LockKind::RwReaders
            | LockKind::RwWriters
            | LockKind::SharedRwReaders
            | LockKind::SharedRwWriters => Kind::Shared("reader-preferring"),
            LockKind::Spinlock if mutex == "glibc" => Kind::Exclusive("test-and-set"),
            _ => Kind::Exclusive(mutex),
        }
    }

    fn replay(&self, stretch: usize, world: &World<'_>, machine: &Machine) -> Result<Replayed, Failure> {
        let length = self.lives[stretch].length;
        let replay =
            Replay { threads: &world.threads, locks: &world.locks, warm_up: length, time: 3 * length };
        let simulation = Simulation::new(machine, Settings::DEFAULT, self.seed + stretch as u64);
        replay.run_in(simulation).map_err(|stuck| {
            Failure::new(
                status::OURS,
                format_args!("the replay of stretch {stretch} stands still: {stuck:?}"),
            )
        })
    }

    /// The rate of each stretch, in acquisitions a second of one copy, with this change to the world.
    fn rates<'n>(
        &self,
        mutex: &'n str,
        machine: &Machine,
        times: u32,
        change: impl Fn(usize, &mut World<'n>) + Sync,
    ) -> Result<Vec<(f64, Replayed)>, Failure> {
        let run = |stretch: usize| {
            let mut world = World::new(&self.lives[stretch], |lock| self.kind(lock, mutex));
            change(stretch, &mut world);
            world.multiply(times);
            let replayed = self.replay(stretch, &world, machine)?;
            let count: u64 = replayed.waits.iter().map(|waits| waits.acquisitions).sum();
            Ok((count as f64 * 1e12 / (3 * self.lives[stretch].length) as f64, replayed))
        };
        experiment::each(self.lives.len(), run, |_| ()).into_iter().collect()
    }

    /// The numbers of all locks of this name, in a stretch.
    fn named(&self, stretch: usize, name: &str) -> Vec<u32> {
        let is = |lock: &u32| self.process.locks[*lock as usize].name == name;
        let locks = self.lives[stretch].locks.iter().enumerate();
        locks.filter(|(_, lock)| is(lock)).map(|(number, _)| number as u32).collect()
    }
}

fn predict(args: &Args) -> Result<(), Failure> {
    let json = Output::open(args.json.as_deref())?;
    let recording = Recording::open(&args.recording)?;
    let changes = args.what_if.iter().map(|text| question(text)).collect::<Result<Vec<_>, _>>()?;
    let wrong = |line: String| Failure::new(status::USAGE, line);
    let events = |process: &&Process| {
        let threads = process.stretches.iter().flat_map(|stretch| &stretch.threads);
        threads.map(|thread| thread.events.len()).sum::<usize>()
    };
    let process = recording.processes.iter().max_by_key(events);
    let process = process.ok_or_else(|| wrong(format!("{}: no process", args.recording.display())))?;
    let mut lives: Vec<Lives> =
        process.stretches.iter().map(|stretch| Lives::of(process, stretch, recording.overhead)).collect();
    lives.retain(|lives| {
        let count = lives.rate() * lives.length as f64 / 1e12;
        lives.length > 0 && count >= FEWEST
    });
    if lives.is_empty() {
        return Err(wrong(format!(
            "{}: no stretch has {FEWEST} acquisitions: there is nothing to predict from",
            args.recording.display()
        )));
    }
    // Spread over the run; not the first, in which programs start.
    let wanted = args.stretches as usize;
    if lives.len() > wanted {
        let step = lives.len() as f64 / wanted as f64;
        lives = (0..wanted).map(|at| lives[(at as f64 * step + step / 2.0) as usize].clone()).collect();
    }
    let machine = sim::machine(&args.machine)?;
    let ready = Ready { process, lives, machine, seed: args.seed };
    let report = answer(args, &recording, &ready, &changes)?;
    print_beside(&text(&report), &[&json])?;
    write_json(&report, json)
}

/// A lock's name and what becomes of it.
fn question(text: &str) -> Result<(String, Change), Failure> {
    let parts = text.rsplit_once(':').and_then(|(lock, change)| Some((lock.trim(), Change::parse(change)?)));
    parts.map(|(lock, change)| (lock.to_owned(), change)).ok_or_else(|| {
        let line = format!("--what-if '{text}': say LOCK: gone, LOCK: half, LOCK: split N, or LOCK: rw");
        Failure::new(status::USAGE, line)
    })
}

fn answer(
    args: &Args,
    recording: &Recording,
    ready: &Ready<'_>,
    changes: &[(String, Change)],
) -> Result<Report, Failure> {
    let mutex = recording.lock.as_str();
    let mutex = if poundlock_sim::locks::names().any(|known| known == mutex) { mutex } else { "glibc" };
    let as_it_was = ready.rates(mutex, &ready.machine, 1, |_, _| {})?;
    let ratios = as_it_was.iter().zip(&ready.lives).map(|((rate, _), lives)| rate / lives.rate());
    let self_test = Range::of(ratios.collect());
    let rows = rows(ready, &as_it_was);
    let mut report = Report {
        command: recording.command.clone(),
        machine: ready.machine.name().to_owned(),
        recorded_on: format!("{}, {} CPUs", recording.cpu, recording.cpus),
        stretches: ready.lives.len(),
        self_test,
        locks: rows,
        answers: Vec::new(),
        advice: String::new(),
    };
    let off = (self_test.median - 1.0).abs();
    if off > USELESS {
        report.advice = format!(
            "the replay has {:.2} of the measured rate: too far off to predict anything; the program waits for \
             what locks do not show",
            self_test.median
        );
        return Ok(report);
    }
    let before: Vec<f64> = as_it_was.iter().map(|(rate, _)| *rate).collect();
    let against = |rates: Vec<(f64, Replayed)>| {
        Range::of(rates.iter().zip(&before).map(|((rate, _), before)| rate / before).collect())
    };
    let mut add = |lock: String, change: String, rates: Vec<(f64, Replayed)>| {
        report.answers.push(Answer { lock, change, rate: against(rates) });
    };
    if !changes.is_empty() {
        for (lock, _) in changes {
            if !(0..ready.lives.len()).any(|stretch| !ready.named(stretch, lock).is_empty()) {
                let line =
                    format!("--what-if: no lock is called '{lock}'; there are {}", names(&report.locks));
                return Err(Failure::new(status::USAGE, line));
            }
        }
        let rates = ready.rates(mutex, &ready.machine, 1, |stretch, world| {
            for (lock, change) in changes {
                world.change(&ready.named(stretch, lock), *change);
            }
        })?;
        let words: Vec<String> = changes.iter().map(|(lock, change)| format!("{lock}: {change}")).collect();
        add(words.join(", "), "together".to_owned(), rates);
        return Ok(report);
    }
    let matter: Vec<String> = report
        .locks
        .iter()
        .filter(|row| row.waiting.max(row.waiting_simulated) >= LEAST_SHARE)
        .take(5)
        .map(|row| row.lock.clone())
        .collect();
    for lock in &matter {
        for change in [Change::Gone, Change::Half, Change::Split(2), Change::Split(4), Change::Split(16)] {
            let rates = ready.rates(mutex, &ready.machine, 1, |stretch, world| {
                world.change(&ready.named(stretch, lock), change);
            })?;
            add(lock.clone(), change.to_string(), rates);
        }
    }
    for name in other_locks(args)? {
        if name != mutex {
            add(
                "every mutex".to_owned(),
                format!("is {name}"),
                ready.rates(name, &ready.machine, 1, |_, _| {})?,
            );
        }
    }
    for &cpus in &args.cpus {
        let machine = ready.machine.flat(cpus);
        let rates = ready.rates(mutex, &machine, args.threads, |_, _| {})?;
        let words =
            if args.threads == 1 { String::new() } else { format!(", {} times the threads", args.threads) };
        add("the machine".to_owned(), format!("has {cpus} CPUs{words}"), rates);
    }
    report.advice = advice(&report);
    Ok(report)
}

fn other_locks(args: &Args) -> Result<Vec<&'static str>, Failure> {
    if args.lock.is_empty() {
        return Ok(vec!["poundlock", "any-negative", "handoff", "qspin-pv", "glibc"]);
    }
    args.lock.iter().map(|name| sim::lock(name)).collect()
}

/// The locks by name, most waiting first.
fn rows(ready: &Ready<'_>, replayed: &[(f64, Replayed)]) -> Vec<Row> {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let share = 1.0 / ready.lives.len() as f64;
    for (lives, (_, replayed)) in ready.lives.iter().zip(replayed) {
        for (number, &lock) in lives.locks.iter().enumerate() {
            let lock = &ready.process.locks[lock as usize];
            let row = rows.entry(&lock.name).or_insert_with(|| Row {
                lock: lock.name.clone(),
                kind: lock.kind.clone(),
                acquisitions_a_second: 0.0,
                waiting: 0.0,
                waiting_simulated: 0.0,
                held: 0.0,
            });
            let measured = lives.measured.get(number).copied().unwrap_or_default();
            row.acquisitions_a_second += measured.acquisitions * share;
            row.waiting += measured.waited * share;
            row.held += measured.held * share;
            let waited: Picoseconds = replayed.waits.get(number).map_or(0, |waits| waits.waited);
            row.waiting_simulated += waited as f64 / (3 * lives.length) as f64 * share;
        }
    }
    let mut rows: Vec<Row> = rows.into_values().filter(|row| row.acquisitions_a_second > 0.0).collect();
    rows.sort_by(|a, b| b.waiting.total_cmp(&a.waiting).then(b.held.total_cmp(&a.held)));
    rows
}

fn names(rows: &[Row]) -> String {
    rows.iter().take(10).map(|row| row.lock.as_str()).collect::<Vec<_>>().join(", ")
}

/// What to do first, in a sentence.
fn advice(report: &Report) -> String {
    let best = report.answers.iter().filter(|answer| answer.change != Change::Gone.to_string());
    let best = best.max_by(|a, b| a.rate.median.total_cmp(&b.rate.median));
    match best {
        Some(answer) if answer.rate.median >= 1.05 && answer.rate.least > 1.0 => format!(
            "first: {} {}: {:.2} times the work ({:.2}..{:.2})",
            answer.lock, answer.change, answer.rate.median, answer.rate.least, answer.rate.most
        ),
        _ => "none of this would gain a twentieth: locks are not what this program waits for".to_owned(),
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let off = (report.self_test.median - 1.0).abs();
    let warning = if off > DOUBTFUL { "  (doubtful)" } else { "" };
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}\n", report.advice);
    let _ = writeln!(
        text,
        "{}: {} stretches, recorded on {}; replayed on {}",
        report.command.join(" "),
        report.stretches,
        report.recorded_on,
        report.machine
    );
    let _ = writeln!(text, "self-test: {} of the measured rate{warning}\n", report.self_test.text());
    let _ = writeln!(text, "{:>12} {:>9} {:>10} {:>7}  lock", "takes/s", "waiting", "simulated", "held");
    for row in report.locks.iter().take(10) {
        let _ = writeln!(
            text,
            "{:>12.0} {:>9.3} {:>10.3} {:>7.3}  {} ({}){warning}",
            row.acquisitions_a_second, row.waiting, row.waiting_simulated, row.held, row.lock, row.kind
        );
    }
    if !report.answers.is_empty() {
        let _ = writeln!(text, "\nwork done, of what it is:");
        for answer in &report.answers {
            let _ =
                writeln!(text, "  {:>20}  {}: {}{warning}", answer.rate.text(), answer.lock, answer.change);
        }
    }
    if off > DOUBTFUL {
        say("the replay is off by more than 15 %: take what it says with care");
    }
    text
}
