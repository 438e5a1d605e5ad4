//! `poundlock predict`: what would help a recorded program, before anybody changes a line.

mod counted;
mod page;
mod shares;
mod steps;
mod validate;
mod what;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use poundlock_core::qspin::Form;
use poundlock_names::{Named, RwLocks};
use poundlock_sim::workload::replay::{Kind, Replay, Replayed, Step};
use poundlock_sim::{MICROSECOND, Machine, NANOSECOND, Picoseconds, Settings, Simulation, experiment};
use poundlock_statfile::LockKind;
use serde::Serialize;

use crate::message::{Failure, status};
use crate::output::counted;
use crate::record::recording::{self, Process, Recording};
use crate::results::{Output, print_beside, write_json};
use crate::sim;
use counted::Counted;
use steps::Lives;
use what::{Change, World};

/// What to predict from, and what.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What `poundlock record` has written
    #[arg(value_name = "FILE", default_value = "poundlock.recording")]
    recording: PathBuf,
    /// One question: locks as the table names them, and `gone`, `half`, `split N`, `rw`, `rw FILE:LINE,..`
    /// (who only reads) or `is NAME`; several are answered together
    #[arg(long, value_name = "LOCK: CHANGE")]
    what_if: Vec<String>,
    /// On which machine: `recorded`, a name that `poundlock sim list` shows, a file that describes one, or
    /// `here`
    #[arg(long, value_name = "MACHINE", default_value = "recorded")]
    machine: String,
    /// On N cores of it in one socket, each number in turn [default: 1 to 64 with the questions about locks]
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Vec<u32>,
    /// How many threads do what most threads do [default: in proportion to the CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Other locks to run it on, as `poundlock run --lock` takes them, or that `poundlock sim list` shows
    /// [default: poundlock, any-negative, handoff, qspin-pv and glibc]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    lock: Vec<String>,
    /// How many stretches of the recording are replayed, at most
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    stretches: u32,
    /// How often each is, each time with other chances [default: at least 16 replays in all, and two of each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    times: Option<u32>,
    /// What all that is left to chance is made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Instead: record programs, predict, and measure what comes out, on this machine: three minutes a round
    #[arg(long, conflicts_with_all = ["recording", "what_if", "machine", "cpus", "threads", "lock", "html"])]
    validate: bool,
    /// How often each program is recorded and measured for that; the medians count
    #[arg(long, value_name = "N", default_value_t = 3, requires = "validate", value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Write what comes out into this page of figures as well, in place of what it says of predictions on
    /// this CPU model
    #[arg(long, value_name = "FILE", requires = "validate")]
    figures: Option<PathBuf>,
    /// Write the figures to FILE as JSON as well; instead of the text if it is `-`, standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page for a browser to FILE as well; instead of the text if it is `-`
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A replay that is off by more is not to be trusted, and one that is off by more yet says nothing.
const DOUBTFUL: f64 = 0.15;
const USELESS: f64 = 0.40;
/// Replays of all stretches together, unless said otherwise: whether threads fall into a convoy, and when it
/// ends, is chance, and a few replays would say no more of that than a few runs do.
const REPLAYS: usize = 16;
/// A stretch with fewer acquisitions says little.
const FEWEST: f64 = 50.0;
/// Locks with a smaller share of the threads' time are not asked about, and not more than this number.
const LEAST_SHARE: f64 = 0.01;
const MOST: usize = 5;
/// What is not worth doing, as a share of the work.
const WORTH: f64 = 0.05;
/// Twice the CPUs bend the curve where they give less than this times the work.
const BEND: f64 = 1.5;
/// Calls and switches vary as they were seen to: nine of ten wake-ups took 0.84 to 1.1 of the median's time.
const SETTINGS: Settings = Settings { scatter: 32, ..Settings::DEFAULT };
const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Says it.
pub(crate) fn main(args: Args) -> ExitCode {
    match predict(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// A figure: of all stretches together (see [`Ready::together`]), and the least and the most of one.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Range {
    all: f64,
    least: f64,
    most: f64,
}

impl Range {
    fn text(self) -> String {
        format!("{:.2} ({:.2}..{:.2})", self.all, self.least, self.most)
    }
}

/// All that is said.
#[derive(Serialize)]
struct Report {
    command: Vec<String>,
    recorded_on: String,
    recorded_lock: String,
    machine: String,
    stretches: usize,
    /// How many CPUs other programs used meanwhile, on average.
    others: f64,
    /// The share of the threads' time in which they were blocked for what is not simulated.
    blocked: f64,
    self_test: SelfTest,
    locks: Vec<Row>,
    answers: Vec<Answer>,
    curve: Vec<Point>,
    bend: Option<String>,
    advice: String,
    /// What the recording does not say.
    left_out: Vec<String>,
}

/// The recording replayed as it was, beside what was measured.
#[derive(Serialize)]
struct SelfTest {
    /// Acquisitions a second, of those that were measured.
    rate: Range,
    /// By how much it is off: the rate, or the wait for a lock as a share of all threads' time, whichever is
    /// more.
    off: f64,
}

impl SelfTest {
    fn is_doubtful(&self) -> bool {
        self.off > DOUBTFUL
    }

    fn is_useless(&self) -> bool {
        self.off.is_nan() || self.off > USELESS
    }
}

/// Locks of one name. Seconds are those of all threads in a second.
#[derive(Serialize)]
struct Row {
    lock: String,
    kind: String,
    acquisitions_a_second: f64,
    waiting: f64,
    waiting_simulated: f64,
    held: f64,
}

/// A question, with its answer: work done, of what the program does as it is.
#[derive(Serialize)]
struct Answer {
    question: String,
    /// Whether anybody could do it.
    is_advice: bool,
    work: Range,
}

/// What it does on a number of CPUs, of what it does on those that it was recorded on.
#[derive(Serialize)]
struct Point {
    cpus: u32,
    threads: usize,
    work: Range,
    /// The lock that is waited for most, and how long, in seconds of all threads in a second.
    lock: Option<(String, f64)>,
}

/// What a program runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct On {
    mutex: &'static str,
    spinlock: &'static str,
    shared: &'static str,
}

impl On {
    const GLIBC: On = On { mutex: "glibc", spinlock: "test-and-set", shared: "glibc" };

    /// With `run --lock` and `--rwlock`, or with a lock that only the simulator has for all mutexes.
    fn of(lock: &str, rwlocks: Option<RwLocks>) -> Result<On, Failure> {
        let Ok(choice) = crate::locks::parse(lock) else {
            let lock = sim::lock(lock)?;
            return Ok(On { mutex: lock, spinlock: lock, shared: "rw-reader-preferring" });
        };
        let spinlock = match choice.spinlock() {
            Some(form) => form.name(),
            None if choice.keeps_everything() => On::GLIBC.spinlock,
            // As on machines with one node of memory.
            None => Form::Paravirtual.name(),
        };
        let shared = match RwLocks::of(choice, rwlocks) {
            RwLocks::Glibc => On::GLIBC.shared,
            RwLocks::ByKind => "rw-reader-preferring",
            RwLocks::PhaseFair => "rw-phase-fair",
        };
        Ok(On { mutex: choice.mutex().name(), spinlock, shared })
    }
}

/// The recording, ready to be replayed.
struct Ready<'a> {
    process: &'a Process,
    /// What it ran on.
    own: On,
    lives: Vec<Lives>,
    machine: Machine,
    times: usize,
    seed: u64,
}

/// A stretch is replayed for so long before anything is counted, or for its own length if that is more:
/// threads need a while to come into each other's way.
const WARM_UP: Picoseconds = 50_000 * MICROSECOND;
/// And for so long at most on other locks than the program's own, on which its threads were elsewhere: until
/// they have made [`SETTLES_AFTER`] acquisitions. `sysbench threads` falls into a convoy on the hand-off
/// mutex after 30,000 to 250,000, and stays in it.
const SETTLES: Picoseconds = 300_000 * MICROSECOND;
const SETTLES_AFTER: f64 = 250_000.0;
/// For so long it is counted. Threads fall into a convoy after a tenth of a second or two, and stay in it for
/// as long: shorter replays would not see it.
const COUNTED: Picoseconds = 100_000 * MICROSECOND;

/// For how long a stretch of this length is replayed before that, of a program with this number of
/// acquisitions a second; and whether it is on its own locks.
fn warm_up(own: bool, rate: f64, length: Picoseconds) -> Picoseconds {
    let settles = (SETTLES_AFTER / rate * 1e12) as Picoseconds;
    length.max(if own { WARM_UP } else { settles.clamp(WARM_UP, SETTLES) })
}

/// For how long a stretch of this length is counted.
fn counted_for(length: Picoseconds) -> Picoseconds {
    length.max(COUNTED)
}

/// What was measured in the replay of a stretch of this length, of each part of its time.
fn in_a_second(amount: u64, length: Picoseconds) -> f64 {
    amount as f64 / counted_for(length) as f64
}

/// What was counted in it.
fn a_second(count: u64, length: Picoseconds) -> f64 {
    in_a_second(count, length) * 1e12
}

/// One replay: the work done, which is acquisitions a second without those after waits for a condition
/// variable, and the rest.
type Run = (f64, Replayed);

fn rates(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|(rate, _)| *rate).collect()
}

impl Ready<'_> {
    /// The lock in the place of one of the process.
    fn kind(&self, lock: u32, on: On) -> Kind<'static> {
        match self.process.locks[lock as usize].of_kind() {
            LockKind::RwReaders
            | LockKind::RwWriters
            | LockKind::SharedRwReaders
            | LockKind::SharedRwWriters => Kind::Shared(on.shared),
            LockKind::Spinlock => Kind::Exclusive(on.spinlock),
            _ => Kind::Exclusive(on.mutex),
        }
    }

    fn replay(&self, at: usize, world: &World, machine: &Machine) -> Run {
        let lives = &self.lives[at / self.times];
        let length = lives.length;
        // On as many CPUs as there were, threads begin where they were. On others nothing is known of each.
        let (cpus, mut slow) = if machine.cpus() == self.machine.cpus() {
            (&world.lives.cpus[..], lives.slow.clone())
        } else {
            (&[][..], Vec::new())
        };
        slow.resize(machine.cpus(), steps::average(&lives.slow));
        let mut kinds = world.locks.iter().zip(&lives.locks);
        let own = kinds
            .all(|(part, &lock)| matches!(part.kind, Kind::Gone) || part.kind == self.kind(lock, self.own));
        let once = |threads: &[Vec<Step>], more: u32| {
            let before: Vec<u32> = lives.before.iter().map(|before| before + more).collect();
            let replay = Replay {
                threads,
                begins: &world.lives.begins,
                cpus,
                locks: &world.locks,
                before: &before,
                warm_up: warm_up(own, lives.rate(), length),
                time: counted_for(length),
            };
            let mut simulation = Simulation::new(machine, SETTINGS, self.seed + at as u64);
            simulation.slow_kernel(&slow);
            replay.run_in(simulation)
        };
        let moves = |replayed: &Replayed| replayed.waits.iter().any(|waits| waits.acquisitions > 0);
        // Who is awaited first may have come before the stretch began; and who is never seen to wake anybody
        // may have been left out of it. Threads of other programs go on even if ours do not.
        let mut replayed = once(&world.lives.threads, 0);
        if !replayed.as_ref().is_ok_and(moves) {
            replayed = once(&world.lives.threads, 1);
        }
        if !replayed.as_ref().is_ok_and(moves) {
            replayed = once(&world.unpaired(), 0);
        }
        // Threads that wait for each other for ever do nothing: no replay is further off.
        let Ok(replayed) = replayed else { return (0.0, Replayed::default()) };
        let count: u64 = replayed.waits.iter().map(|waits| waits.acquisitions).sum();
        (a_second(count, length), replayed)
    }

    /// Every stretch, as often as wanted, with this change to the world.
    fn runs(&self, on: On, machine: &Machine, change: impl Fn(usize, &mut World) + Sync) -> Vec<Run> {
        let run = |at: usize| {
            let stretch = at / self.times;
            let mut world =
                World::new(&self.lives[stretch], |lock| self.kind(lock, on), Kind::Shared(on.shared));
            change(stretch, &mut world);
            self.replay(at, &world, machine)
        };
        experiment::each(self.lives.len() * self.times, run, |_| ())
    }

    /// The rate of all stretches together: the work that was recorded in them, in the time that it takes at
    /// these rates. All replays of one take the same time, so that its rate is their mean: a part of them in
    /// a convoy stands for that part of the time. What cannot be replayed says nothing.
    fn together(&self, rates: &[f64]) -> f64 {
        let (mut work, mut time) = (0.0, 0.0);
        for (lives, rates) in self.lives.iter().zip(rates.chunks(self.times)) {
            let moving: Vec<f64> = rates.iter().copied().filter(|rate| *rate > 0.0).collect();
            if !moving.is_empty() {
                work += lives.rate();
                time += lives.rate() * moving.len() as f64 / moving.iter().sum::<f64>();
            }
        }
        work / time
    }

    /// These rates, of those.
    fn compare(&self, rates: &[f64], before: &[f64]) -> Range {
        let both = rates.iter().zip(before).filter(|(_, before)| **before > 0.0);
        let parts: Vec<f64> = both.map(|(rate, before)| rate / before).collect();
        Range {
            all: self.together(rates) / self.together(before),
            least: parts.iter().copied().fold(f64::NAN, f64::min),
            most: parts.iter().copied().fold(f64::NAN, f64::max),
        }
    }

    /// What these runs give, of what those gave.
    fn gain(&self, runs: &[Run], before: &[Run]) -> Range {
        self.compare(&rates(runs), &rates(before))
    }

    /// The numbers of all locks of this name, in a stretch. Where the name is (`in program`) can be left out.
    fn named(&self, stretch: usize, name: &str) -> Vec<u32> {
        let is = |lock: &u32| {
            let whole = &self.process.locks[*lock as usize].name;
            whole.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
        };
        let locks = self.lives[stretch].locks.iter().enumerate();
        locks.filter(|(_, lock)| is(lock)).map(|(number, _)| number as u32).collect()
    }

    fn apply(&self, stretch: usize, world: &mut World, lock: &str, change: &Change) {
        let is_at = |place: u32, lines: &[String]| {
            lines.iter().any(|line| self.process.places[place as usize].contains(line.as_str()))
        };
        world.change(&self.named(stretch, lock), change, is_at);
    }
}

fn predict(args: &Args) -> Result<(), Failure> {
    if args.validate {
        return validate::validate(args);
    }
    let (json, html) = Output::open_both(args.json.as_deref(), ("--html", args.html.as_deref()))?;
    let recording = Recording::open(&args.recording)?;
    let changes = args.what_if.iter().map(|text| question(text)).collect::<Result<Vec<_>, _>>()?;
    let others = other_locks(args)?;
    let ready = ready(args, &args.recording, &recording)?;
    let report = answer(args, &recording, &ready, &changes, &others)?;
    print_beside(&page::text(&report), &[&json, &html])?;
    write_json(&report, json)?;
    if let Some(html) = html {
        html.write(&page::html(&report)?)?;
    }
    Ok(())
}

/// What to replay: the process with most events, and stretches spread over its life.
fn ready<'a>(args: &Args, file: &Path, recording: &'a Recording) -> Result<Ready<'a>, Failure> {
    let wrong = |why: &str| Failure::new(status::OURS, format_args!("{}: {why}", file.display()));
    let process = recording
        .processes
        .iter()
        .max_by_key(|process| process.events())
        .ok_or_else(|| wrong("it has no process"))?;
    let roles = steps::roles(process);
    let counted = Counted::of(process);
    let recorded = described(&recording.machine).map_err(|error| {
        wrong(&format!("its machine is not described as here: record it again ({error})"))
    })?;
    let own = On::of(&recording.lock, RwLocks::parse(&recording.rwlock)).unwrap_or(On::GLIBC);
    let scheduler = recorded.scheduler();
    let both_ns = (scheduler.syscall + 2 * scheduler.switch) / NANOSECOND;
    let stretches = recording.processes.iter().flat_map(|process| &process.stretches);
    let turns = stretches.flat_map(|stretch| &stretch.threads).filter_map(|thread| thread.turn_ps);
    let measured_ps = Some(recording.turn_ps).filter(|ps| *ps > 0);
    let best_ps = turns.chain(measured_ps).min().unwrap_or(1);
    let turn_ps = [best_ps, measured_ps.unwrap_or(best_ps)];
    let costs = steps::Costs::of(process, recording.overhead, both_ns, turn_ps);
    let mut lives = Lives::all(process, &roles, &counted, costs);
    lives.retain(|lives| !lives.threads.is_empty() && lives.rate() * lives.length as f64 / 1e12 >= FEWEST);
    if lives.is_empty() {
        return Err(wrong(&format!(
            "no stretch has {FEWEST} acquisitions: there is nothing to predict from"
        )));
    }
    let wanted = args.stretches as usize;
    if lives.len() > wanted {
        // Not the first, in which programs start.
        let step = lives.len() as f64 / wanted as f64;
        lives = (0..wanted).map(|at| lives[(at as f64 * step + step / 2.0) as usize].clone()).collect();
    }
    let machine = match args.machine.as_str() {
        "recorded" => recorded,
        name => alone_on_cores(sim::machine(name)?),
    };
    let times = args.times.map_or(REPLAYS.div_ceil(lives.len()).max(2), |times| times as usize);
    Ok(Ready { process, own, lives, machine, times, seed: args.seed })
}

/// A lock's name and what becomes of it.
fn question(text: &str) -> Result<(String, Change), Failure> {
    let parts = text.split(": ").collect::<Vec<_>>();
    let question = match parts[..] {
        [ref lock @ .., change] if !lock.is_empty() => {
            Change::parse(change).map(|change| (lock.join(": "), change))
        }
        _ => None,
    };
    question.ok_or_else(|| {
        let line = format!(
            "--what-if '{text}': say 'LOCK: gone', 'LOCK: half', 'LOCK: split N', 'LOCK: rw', 'LOCK: rw \
             FILE:LINE,..', or 'LOCK: is NAME' with a lock that `poundlock sim list` shows"
        );
        Failure::new(status::USAGE, line)
    })
}

fn other_locks(args: &Args) -> Result<Vec<&str>, Failure> {
    if args.lock.is_empty() {
        return Ok(vec!["poundlock", "any-negative", "handoff", "qspin-pv", "glibc"]);
    }
    args.lock.iter().map(|name| On::of(name, None).map(|_| name.as_str())).collect()
}

/// What is known before anything is asked: the recording, and how far its replay is to be trusted. With the
/// replay.
fn test(recording: &Recording, ready: &Ready<'_>) -> Result<(Report, Vec<Run>), Failure> {
    let recorded = described(&recording.machine).unwrap_or_else(|_| ready.machine.clone());
    // What was measured has other programs and what `stat` costs. What is predicted is without them.
    let cpus = recording.cpus.max(1) as f64;
    let others = recording.others.clamp(0.0, cpus * 0.95);
    let outside = Outside::of(ready.process);
    let as_it_was = ready.runs(ready.own, &recorded, |_, _| {});
    let tried = if others > 0.0 || outside.is_some() {
        ready.runs(ready.own, &recorded, |stretch, world| {
            if outside.is_some() {
                world.measured(ready.lives[stretch].stat);
            }
            // CPUs are shared out evenly among those who are ready.
            world.beside(others * (ready.lives[stretch].ready / (cpus - others)).max(1.0));
        })
    } else {
        as_it_was.clone()
    };
    let locks = rows(ready, &tried, outside.as_ref());
    let measured = |at: usize| match &outside {
        Some(outside) => outside.rate,
        None => ready.lives[at / ready.times].rate(),
    };
    let all = tried.iter().enumerate().map(|(at, (work, replayed))| {
        let again: u64 = replayed.waits.iter().map(|waits| waits.again).sum();
        work + a_second(again, ready.lives[at / ready.times].length)
    });
    let measured: Vec<f64> = (0..tried.len()).map(measured).collect();
    let rate = ready.compare(&all.collect::<Vec<_>>(), &measured);
    let threads = ready.lives.iter().map(|lives| lives.threads.len()).sum::<usize>() as f64;
    let threads = (threads / ready.lives.len() as f64).max(1.0);
    let waits = locks.iter().map(|row| (row.waiting - row.waiting_simulated).abs() / threads);
    let off = waits.fold((rate.all - 1.0).abs(), f64::max);
    let report = Report {
        command: recording.command.clone(),
        recorded_on: format!("{}, {}", recording.cpu, counted(recording.cpus as u64, "CPU")),
        recorded_lock: recording.lock.clone(),
        machine: ready.machine.name().to_owned(),
        stretches: ready.lives.len(),
        others: recording.others,
        blocked: ready.lives.iter().map(|lives| lives.blocked).sum::<f64>() / ready.lives.len() as f64,
        self_test: SelfTest { rate, off },
        locks,
        answers: Vec::new(),
        curve: Vec::new(),
        bend: None,
        advice: String::new(),
        left_out: left_out(recording, ready),
    };
    Ok((report, as_it_was))
}

/// A machine by its description. What others on the same core cost is in what was recorded.
fn described(text: &str) -> Result<Machine, poundlock_sim::Error> {
    Machine::parse(text).map(alone_on_cores)
}

fn alone_on_cores(machine: Machine) -> Machine {
    if machine.has_siblings() { machine.flat(machine.cpus() as u32) } else { machine }
}

fn answer(
    args: &Args,
    recording: &Recording,
    ready: &Ready<'_>,
    changes: &[(String, Change)],
    others: &[&str],
) -> Result<Report, Failure> {
    let (mut report, as_it_was) = test(recording, ready)?;
    if report.self_test.is_useless() {
        report.advice = why_useless(&report);
        return Ok(report);
    }
    for (lock, _) in changes {
        if !(0..ready.lives.len()).any(|stretch| !ready.named(stretch, lock).is_empty()) {
            let known: Vec<&str> = report.locks.iter().take(10).map(|row| row.lock.as_str()).collect();
            let line = format!("--what-if: no lock is called '{lock}'; there are: {}", known.join("; "));
            return Err(Failure::new(status::USAGE, line));
        }
    }
    let base;
    let before = if args.machine == "recorded" {
        &as_it_was
    } else {
        base = ready.runs(ready.own, &ready.machine, |_, _| {});
        let question = format!("on {}", ready.machine.name());
        report.answers.push(Answer { question, is_advice: false, work: ready.gain(&base, &as_it_was) });
        &base
    };
    if changes.is_empty() {
        questions(ready, others, before, &mut report)?;
    } else {
        let runs = ready.runs(ready.own, &ready.machine, |stretch, world| {
            for (lock, change) in changes {
                ready.apply(stretch, world, lock, change);
            }
        });
        let words: Vec<String> = changes.iter().map(|(lock, change)| format!("{lock}: {change}")).collect();
        let work = ready.gain(&runs, before);
        report.answers.push(Answer { question: words.join("; "), is_advice: true, work });
    }
    let cpus = if args.cpus.is_empty() && changes.is_empty() { &CPUS[..] } else { &args.cpus };
    curve(args, ready, (recording.cpus, cpus), &as_it_was, changes, &mut report)?;
    report.advice = advice(&report);
    Ok(report)
}

/// Each lock that matters with each change, and other locks for all.
fn questions(ready: &Ready<'_>, others: &[&str], before: &[Run], report: &mut Report) -> Result<(), Failure> {
    let matter: Vec<String> = report
        .locks
        .iter()
        .filter(|row| row.waiting.max(row.waiting_simulated) >= LEAST_SHARE)
        .take(MOST)
        .map(|row| row.lock.clone())
        .collect();
    let changes = [
        Change::Gone,
        Change::Half,
        Change::Split(2),
        Change::Split(4),
        Change::Split(16),
        Change::ReadersWriter(Vec::new()),
    ];
    let others = others.iter().map(|name| Ok((name, On::of(name, None)?)));
    let mut others = others.collect::<Result<Vec<_>, Failure>>()?;
    others.retain(|(_, on)| *on != ready.own);
    let bar = poundlock_bench::progress::steps(matter.len() * changes.len() + others.len());
    for lock in &matter {
        for change in &changes {
            let runs = ready.runs(ready.own, &ready.machine, |stretch, world| {
                ready.apply(stretch, world, lock, change);
            });
            // What nobody can do, or only the author of the program can know.
            let is_advice = !matches!(change, Change::Gone | Change::ReadersWriter(_));
            let question = format!("{lock}: {change}");
            report.answers.push(Answer { question, is_advice, work: ready.gain(&runs, before) });
            bar.inc(1);
        }
    }
    for (name, on) in others {
        let runs = ready.runs(on, &ready.machine, |_, _| {});
        let question = format!("on {name}");
        report.answers.push(Answer { question, is_advice: true, work: ready.gain(&runs, before) });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// The same program on these numbers of CPUs, with threads in proportion unless they are given.
fn curve(
    args: &Args,
    ready: &Ready<'_>,
    (recorded, cpus): (usize, &[u32]),
    as_it_was: &[Run],
    changes: &[(String, Change)],
    report: &mut Report,
) -> Result<(), Failure> {
    let bar = poundlock_bench::progress::steps(cpus.len());
    for &cpus in cpus {
        let machine = ready.machine.flat(cpus);
        let members = |stretch: usize| match args.threads {
            Some(threads) => threads as usize,
            None => {
                (ready.lives[stretch].members(0).count() * cpus as usize).div_ceil(recorded.max(1)).max(1)
            }
        };
        let runs = ready.runs(ready.own, &machine, |stretch, world| {
            for (lock, change) in changes {
                ready.apply(stretch, world, lock, change);
            }
            world.resize(members(stretch));
        });
        let mut waits: HashMap<&str, f64> = HashMap::new();
        for (at, (_, replayed)) in runs.iter().enumerate() {
            let lives = &ready.lives[at / ready.times];
            for (waits_for, &lock) in replayed.waits.iter().zip(&lives.locks) {
                let share = in_a_second(waits_for.waited, lives.length) / runs.len() as f64;
                *waits.entry(&ready.process.locks[lock as usize].name).or_default() += share;
            }
        }
        let most = waits.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        report.curve.push(Point {
            cpus,
            threads: members(ready.lives.len() / 2),
            work: ready.gain(&runs, as_it_was),
            lock: most
                .filter(|(_, waiting)| *waiting >= LEAST_SHARE)
                .map(|(name, wait)| (name.to_owned(), wait)),
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let bends = report.curve.windows(2).find(|pair| {
        let doublings = f64::from(pair[1].cpus) / f64::from(pair[0].cpus);
        pair[1].work.all / pair[0].work.all < BEND.powf(doublings.log2())
    });
    report.bend = bends.map(|pair| match &pair[1].lock {
        Some((lock, waiting)) => format!(
            "more than {} gain little: at {}, {waiting:.1} threads wait for {lock}",
            counted(pair[0].cpus.into(), "CPU"),
            pair[1].cpus
        ),
        None => format!(
            "more than {} gain little, and not for a lock: there is no more to do",
            counted(pair[0].cpus.into(), "CPU")
        ),
    });
    Ok(())
}

/// What was measured outside the stretches, where nothing is written down: acquisitions a second of all
/// locks, and how long all threads waited for each lock in a second.
struct Outside {
    rate: f64,
    /// By the lock's address.
    waiting: HashMap<u64, f64>,
}

impl Outside {
    /// Nothing if that was too short.
    fn of(process: &Process) -> Option<Outside> {
        let inside_ns: u64 = process.stretches.iter().map(|stretch| stretch.length_ns).sum();
        let outside_ns = process.lived_ns.saturating_sub(inside_ns);
        if outside_ns < 2 * inside_ns {
            return None;
        }
        let seconds = outside_ns as f64 / 1e9;
        let (mut acquired, mut waited) = (0_u64, vec![0_u64; process.locks.len()]);
        for thread in process.stretches.iter().flat_map(|stretch| &stretch.threads) {
            let mut since = None;
            for &(time, what, lock, _) in &thread.events {
                match what {
                    recording::ACQUIRED
                    | recording::TRIED
                    | recording::ACQUIRED_AFTER
                    | recording::GAVE_UP => {
                        acquired += u64::from(what != recording::GAVE_UP);
                        let waits: Option<u64> = since.take();
                        waited[lock as usize] += waits.map_or(0, |since| time - since);
                    }
                    recording::WAITS => since = Some(time),
                    _ => {}
                }
            }
        }
        let is_acquired = |lock: &&recording::Lock| lock.of_kind().is_acquired();
        let all: u64 = process.locks.iter().filter(is_acquired).map(|lock| lock.acquisitions).sum();
        let mut waiting: HashMap<u64, f64> = HashMap::new();
        for (lock, inside) in process.locks.iter().zip(waited) {
            let ns = lock.wait_ns.saturating_sub(inside);
            *waiting.entry(lock.whole()).or_default() += ns as f64 / 1e9 / seconds;
        }
        Some(Outside { rate: all.saturating_sub(acquired) as f64 / seconds, waiting })
    }
}

/// The locks by name, most waiting first.
fn rows(ready: &Ready<'_>, runs: &[Run], outside: Option<&Outside>) -> Vec<Row> {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for (at, lives) in ready.lives.iter().enumerate() {
        let share = 1.0 / ready.lives.len() as f64;
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
            let waited = outside.and_then(|outside| outside.waiting.get(&lock.whole()).copied());
            row.waiting += waited.unwrap_or(measured.waited) * share;
            row.held += measured.held * share;
            for (_, replayed) in &runs[at * ready.times..(at + 1) * ready.times] {
                let waited = replayed.waits.get(number).map_or(0, |waits| waits.waited);
                row.waiting_simulated += in_a_second(waited, lives.length) * share / ready.times as f64;
            }
        }
    }
    let mut rows: Vec<Row> = rows.into_values().filter(|row| row.acquisitions_a_second > 0.0).collect();
    let most = |row: &Row| row.waiting.max(row.waiting_simulated);
    rows.sort_by(|a, b| most(b).total_cmp(&most(a)).then(b.held.total_cmp(&a.held)));
    rows
}

/// What the recording does not say of the program's life.
fn left_out(recording: &Recording, ready: &Ready<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let recorded: u64 = ready.process.stretches.iter().map(|stretch| stretch.length_ns).sum();
    let share = recorded as f64 / recording.wall_ns.max(1) as f64;
    lines.push(format!(
        "{:.0} % of the run was written down, in {}",
        share * 100.0,
        counted(ready.process.stretches.len() as u64, "stretch")
    ));
    if ready.process.is_full {
        lines.push("the room was used up before the program ended: record it with more --room".to_owned());
    }
    if recording.processes.len() > 1 {
        lines.push(format!(
            "of {}, only {} ({}), which did most with locks",
            counted(recording.processes.len() as u64, "process"),
            ready.process.program,
            ready.process.pid
        ));
    }
    lines
}

/// Why nothing is predicted.
fn why_useless(report: &Report) -> String {
    let reason = if report.others > DOUBTFUL {
        "other programs had the CPUs meanwhile: record it when nothing else runs"
    } else if report.blocked > 0.5 {
        "its threads are mostly blocked for what is not recorded, such as input, output and semaphores"
    } else {
        "what it waits for is not what was recorded"
    };
    format!(
        "nothing is predicted: the replay is off by {:.0} %, with {} of the measured rate; {reason}",
        report.self_test.off * 100.0,
        report.self_test.rate.text()
    )
}

/// What to do first, in a sentence.
fn advice(report: &Report) -> String {
    let gains =
        |answer: &&Answer| answer.is_advice && answer.work.all >= 1.0 + WORTH && answer.work.least > 1.0;
    let best = report.answers.iter().filter(gains);
    match best.max_by(|a, b| a.work.all.total_cmp(&b.work.all)) {
        Some(Answer { question, work, .. }) => {
            format!("first: {question}: {} times the work", work.text())
        }
        None => "none of this gains a twentieth in all stretches: locks are not what this program waits for"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_another_lock_it_settles_for_as_many_acquisitions_within_limits() {
        let ms = |ms: u64| ms * 1000 * MICROSECOND;
        assert_eq!(warm_up(true, 1e6, ms(10)), ms(50));
        assert_eq!(warm_up(false, 1e6, ms(10)), ms(250));
        assert_eq!(warm_up(false, 1e8, ms(10)), ms(50));
        for few in [1e3, 0.0] {
            assert_eq!(warm_up(false, few, ms(10)), ms(300));
        }
        assert_eq!(warm_up(true, 1e6, ms(400)), ms(400), "a stretch is replayed once before it counts");
    }
}
