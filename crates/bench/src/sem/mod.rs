//! The benchmark of semaphore arrays that the source's series was measured with, over the kernel's arrays,
//! ours, and futexes; beside it single calls, two threads in one array, and wake-ups among ever more
//! sleepers.

mod mechanism;
mod plot;
mod published;
mod report;

use std::time::Duration;

use serde::Serialize;

use crate::affinity;
use crate::error::{Error, Result};
use crate::launch::{Context, Process};
use crate::machine::Machine;
use crate::progress::rounds;
use crate::report::Target;
use crate::stats::Summary;
use crate::worker::{self, Answer, sem};

pub use crate::worker::sem::{Held, Operation, Sleep};
pub use mechanism::Mechanism;
pub use published::{PUBLISHED, Published};

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// By what threads sleep; the kernel's arrays take part always. All if empty.
    pub mechanisms: Vec<Mechanism>,
    /// Threads that sleep.
    pub threads: usize,
    /// How many are woken at a time.
    pub wake: usize,
    /// Seconds for each mechanism in a round; single calls, two threads and sleepers take shares of it.
    pub seconds: f64,
    /// Whether each thread stays on a CPU.
    pub bind: bool,
    /// Rounds in which everybody takes part once.
    pub rounds: usize,
    /// Numbers of sleepers among whom one is woken; no such measurement if empty.
    pub sleepers: Vec<usize>,
    /// How many of the allowed CPUs the threads share; all if not given.
    pub cpus: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mechanisms: Vec::new(),
            threads: 250,
            wake: 64,
            seconds: 2.0,
            bind: false,
            rounds: 3,
            sleepers: (0..=10).map(|doublings| 10 << doublings).collect(),
            cpus: None,
        }
    }
}

impl Options {
    /// What the targets are about, in as little time as gives figures, for the page of all benchmarks.
    pub fn short() -> Options {
        Options { seconds: 0.6, bind: true, ..Options::default() }
    }

    fn check(&self) -> Result<()> {
        let error = |message: &str| Err(Error::Options(message.to_owned()));
        if self.rounds == 0 {
            return error("at least one round is needed");
        }
        if !(1..=10_000).contains(&self.threads) {
            return error("-t must lie between 1 and 10000 threads");
        }
        if !(1..=10_000).contains(&self.wake) {
            return error("-w must lie between 1 and 10000 threads");
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return error("-r must lie above 0 and at most at 3600 seconds");
        }
        if self.sleepers.iter().any(|sleepers| !(FEWEST..=30_000).contains(sleepers)) {
            return error("--sleepers must name numbers from 10 to 30000");
        }
        Ok(())
    }

    /// The numbers of sleepers, each once, ascending.
    fn crowds(&self) -> Vec<usize> {
        let mut sleepers = self.sleepers.clone();
        sleepers.sort_unstable();
        sleepers.dedup();
        sleepers
    }
}

/// The fewest sleepers among whom some are woken.
const FEWEST: usize = 10;
/// The share of [`Options::seconds`] that goes before a measurement of it, unmeasured.
const WARM_UP: f64 = 0.1;
/// The share of it for each operation of one thread, and the slices that it is cut into.
const ALONE: f64 = 0.02;
const SLICES: u32 = 50;
/// The share of it for two threads in one array.
const PAIR: f64 = 0.1;
/// The share of it for each number of sleepers.
const CROWD: f64 = 0.02;

/// What a mechanism did in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Seconds.
    pub seconds: f64,
    /// Turns of the main thread that woke somebody.
    pub main_burns: u64,
    /// Turns in which nobody was on the list.
    pub idle: u64,
    /// Wake-ups served, of all threads.
    pub worker_burns: u64,
    /// Of the thread with the fewest.
    pub worker_min: u64,
    /// Of the thread with the most.
    pub worker_max: u64,
    /// The mean over the threads.
    pub worker_avg: f64,
    /// Wake-ups served a second.
    pub burns_per_second: f64,
    /// CPU nanoseconds for each wake-up.
    pub cpu_ns: f64,
    /// Times a thread gave up its CPU, for each wake-up.
    pub voluntary: f64,
    /// Times a thread was made to give up its CPU, for each wake-up.
    pub involuntary: f64,
    /// The share of the CPUs that other processes had.
    pub others: Option<f64>,
    /// What the array says of its lock.
    pub held: Option<Held>,
    /// The share of all CPUs' time that went on spinning for the array's lock.
    pub spinning: Option<f64>,
    /// The share of the acquisitions of that lock that did not find it free.
    pub contended: Option<f64>,
}

impl Round {
    /// What a worker measured; `None` if nobody was woken.
    fn of(burns: &sem::Burns, cpus: usize) -> Option<Round> {
        let total: u64 = burns.workers.iter().sum();
        if total == 0 {
            return None;
        }
        let seconds = burns.elapsed_ns as f64 / 1e9;
        let each = |n: u64| n as f64 / total as f64;
        Some(Round {
            seconds,
            main_burns: burns.main,
            idle: burns.idle,
            worker_burns: total,
            worker_min: burns.workers.iter().copied().min()?,
            worker_max: burns.workers.iter().copied().max()?,
            worker_avg: total as f64 / burns.workers.len() as f64,
            burns_per_second: total as f64 / seconds,
            cpu_ns: each(burns.cpu_ns),
            voluntary: each(burns.voluntary_switches),
            involuntary: each(burns.involuntary_switches),
            others: burns.others,
            held: burns.held,
            spinning: burns.held.map(|held| spinning(&held, cpus)),
            contended: burns.held.and_then(|held| contended(&held)),
        })
    }
}

/// The share of all CPUs' time in the array's life that went on spinning.
fn spinning(held: &Held, cpus: usize) -> f64 {
    held.spun_ns as f64 / (held.lifetime_ns as f64 * cpus as f64)
}

fn contended(held: &Held) -> Option<f64> {
    let acquisitions = held.free + held.contended;
    (acquisitions > 0).then(|| held.contended as f64 / acquisitions as f64)
}

/// Threads that sleep and are woken by a mechanism.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Wake-ups served a second.
    pub burns_per_second: Summary,
    /// Of the kernel's arrays in the same round.
    pub of_kernel: Option<Summary>,
    /// Of `before` in the same round.
    pub of_before: Option<Summary>,
    /// Of `shared-line` in the same round.
    pub of_shared_line: Option<Summary>,
    /// Wake-ups in a turn of the main thread.
    pub at_a_time: Summary,
    /// CPU nanoseconds for each wake-up.
    pub cpu_ns: Summary,
    /// Times a thread gave up its CPU, for each wake-up.
    pub voluntary: Summary,
    /// Times a thread was made to give up its CPU, for each wake-up.
    pub involuntary: Summary,
    /// The share of the CPUs that other processes had.
    pub others: Option<Summary>,
    /// The share of all CPUs' time that went on spinning for the array's lock.
    pub spinning: Option<Summary>,
    /// The share of the acquisitions of that lock that did not find it free.
    pub contended: Option<Summary>,
    /// The round with the median of the wake-ups served a second.
    pub typical: Round,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// What one thread needs for a call.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// What it does.
    pub operation: Operation,
    /// Nanoseconds a call.
    pub ns: Summary,
    /// How many of them the kernel's arrays could make fewer: their time, of ours, in the same round.
    pub times_the_kernels_rate: Option<Summary>,
    /// Of a bare compare-and-swap in the same process.
    pub of_bare: Option<Summary>,
    /// Nanoseconds in each round.
    pub rounds: Vec<Option<f64>>,
}

/// Two threads with a CPU and a semaphore each, in one array.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Calls a second, of both together.
    pub calls_per_second: Summary,
    /// Of the kernel's arrays in the same round.
    pub of_kernel: Option<Summary>,
    /// Of `shared-line` in the same round.
    pub of_shared_line: Option<Summary>,
    /// The share of the acquisitions of the array's lock that did not find it free.
    pub contended: Option<Summary>,
    /// The share of both CPUs' time that went on spinning for it.
    pub spinning: Option<Summary>,
}

/// Wake-ups among so many sleepers.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// For what they sleep, and how many are woken at a time.
    pub sleep: Sleep,
    /// Sleepers.
    pub sleepers: usize,
    /// Nanoseconds of the call that wakes, for each of the woken: the median in each round, over the rounds.
    pub ns: Summary,
    /// By how much that grew with each doubling since the next smaller number of sleepers, in the same round.
    pub growth: Option<Summary>,
    /// Of the kernel's arrays in the same round.
    pub of_kernel: Option<Summary>,
}

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What they were measured on.
    pub machine: Machine,
    /// How.
    pub options: Options,
    /// CPUs that threads could share.
    pub cpus: usize,
    /// Threads that sleep and are woken.
    pub burns: Vec<Row>,
    /// One thread.
    pub alone: Vec<Alone>,
    /// Two threads; empty if there is one CPU only.
    pub pairs: Vec<Pair>,
    /// Ever more sleepers.
    pub crowds: Vec<Cost>,
    /// The source's figures, before its series and after it.
    pub published: [Published; 2],
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// A measurement that all mechanisms make side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Burns,
    Alone,
    Pair,
    Crowd(Sleep),
}

impl Point {
    fn admits(self, mechanism: Mechanism, options: &Options) -> bool {
        // Thousands of threads take their time. Some of ours differ in the lock only, which nobody contends
        // for there.
        let alike = matches!(mechanism, Mechanism::SharedLine | Mechanism::Combining);
        let named = options.mechanisms.contains(&mechanism);
        match self {
            Point::Burns => true,
            Point::Alone | Point::Pair => mechanism.is_array(),
            // A futex for each thread is the floor of waking one.
            Point::Crowd(Sleep::Own) if mechanism == Mechanism::Futex => true,
            Point::Crowd(_) => mechanism.is_array() && (named || !alike),
        }
    }
}

fn points(options: &Options, cpus: usize) -> Vec<Point> {
    let mut points = vec![Point::Burns, Point::Alone];
    if cpus >= 2 {
        points.push(Point::Pair);
    }
    if !options.sleepers.is_empty() {
        points.extend(Sleep::ALL.map(Point::Crowd));
    }
    points
}

/// A mechanism at a point, with an entry for each round.
struct Measured {
    point: Point,
    mechanism: Mechanism,
    burns: Vec<Option<Round>>,
    alone: Vec<Vec<(Operation, f64)>>,
    pairs: Vec<sem::Pair>,
    crowds: Vec<Vec<(usize, f64)>>,
}

impl Measured {
    fn new(point: Point, mechanism: Mechanism) -> Measured {
        Measured {
            point,
            mechanism,
            burns: Vec::new(),
            alone: Vec::new(),
            pairs: Vec::new(),
            crowds: Vec::new(),
        }
    }

    /// Wake-ups served a second, in each round.
    fn rates(&self) -> Vec<Option<f64>> {
        self.burns.iter().map(|round| round.as_ref().map(|round| round.burns_per_second)).collect()
    }

    /// Nanoseconds a call, in each round.
    fn ns(&self, operation: Operation) -> Vec<Option<f64>> {
        let find = |round: &Vec<(Operation, f64)>| {
            round.iter().find(|(what, _)| *what == operation).map(|&(_, ns)| ns)
        };
        self.alone.iter().map(find).collect()
    }

    /// Calls of both threads a second, in each round.
    fn calls(&self) -> Vec<Option<f64>> {
        let rate = |pair: &sem::Pair| pair.calls.iter().sum::<u64>() as f64 * 1e9 / pair.elapsed_ns as f64;
        self.pairs.iter().map(|pair| Some(rate(pair))).collect()
    }

    /// Nanoseconds of a wake-up among so many sleepers, in each round.
    fn cost(&self, sleepers: usize) -> Vec<Option<f64>> {
        let find = |round: &Vec<(usize, f64)>| round.iter().find(|(n, _)| *n == sleepers).map(|&(_, ns)| ns);
        self.crowds.iter().map(find).collect()
    }
}

/// Measures.
///
/// # Errors
/// If the options make no sense, or a worker fails: above all, if a wake-up is lost.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    options.check()?;
    let cpus = affinity::some(options.cpus)?;
    let alone_on = affinity::one(None)?;
    let machine = Machine::describe(&context.command);
    let mechanisms = Mechanism::with_reference(&options.mechanisms);
    let points = points(options, cpus.len());
    let mut measured: Vec<Measured> = points
        .iter()
        .flat_map(|&point| mechanisms.iter().map(move |&mechanism| (point, mechanism)))
        .filter(|&(point, mechanism)| point.admits(mechanism, options))
        .map(|(point, mechanism)| Measured::new(point, mechanism))
        .collect();
    // A point at a time, in random order: what is compared with each other is measured side by side.
    let name = |index: usize| match points[index] {
        Point::Burns => format!("{} threads", options.threads),
        Point::Alone => "one thread".to_owned(),
        Point::Pair => "two threads".to_owned(),
        Point::Crowd(sleep) => format!("sleepers, {}", sleep.words()),
    };
    rounds(options.rounds, points.len(), name, |index| {
        let mut here: Vec<&mut Measured> =
            measured.iter_mut().filter(|one| one.point == points[index]).collect();
        fastrand::shuffle(&mut here);
        here.into_iter().try_for_each(|one| measure(context, one, options, &cpus, alone_on))
    })?;
    Ok(Figures::of(machine, options, cpus.len(), &measured))
}

fn measure(
    context: &Context,
    one: &mut Measured,
    options: &Options,
    cpus: &[usize],
    alone_on: usize,
) -> Result<()> {
    let mechanism = one.mechanism;
    let ns = |share: f64| (options.seconds * share * 1e9) as u64;
    let crowds = options.crowds();
    let (task, takes) = match one.point {
        Point::Burns => (
            sem::Task::Burns {
                mechanism,
                threads: options.threads,
                wake: options.wake,
                cpus: cpus.to_vec(),
                bind: options.bind,
                warm_up_ns: ns(WARM_UP),
                duration_ns: ns(1.0),
            },
            options.seconds * (1.0 + WARM_UP),
        ),
        Point::Alone => (
            sem::Task::Alone {
                mechanism,
                cpu: alone_on,
                slices: SLICES,
                slice_ns: ns(ALONE) / u64::from(SLICES),
            },
            options.seconds * ALONE * 3.0 * Operation::ALL.len() as f64,
        ),
        Point::Pair => (
            sem::Task::Pair { mechanism, cpus: [cpus[0], cpus[1]], duration_ns: ns(PAIR) },
            options.seconds * PAIR,
        ),
        Point::Crowd(sleep) => {
            let takes = options.seconds * CROWD * crowds.len() as f64
                + crowds.last().copied().unwrap_or(0) as f64 * SECONDS_A_SLEEPER;
            let task = sem::Task::Crowd {
                mechanism,
                sleep,
                sleepers: crowds,
                cpu: alone_on,
                duration_ns: ns(CROWD),
            };
            (task, takes)
        }
    };
    let process = Process { semaphores: Some(mechanism), ..Process::plain(mechanism.name()) };
    let takes = Duration::from_secs_f64(takes) + Duration::from_secs(30);
    match context.measure(process, worker::Task::Sem(task), takes)? {
        Answer::Sem(sem::Answer::Burns(burns)) => one.burns.push(Round::of(&burns, cpus.len())),
        Answer::Sem(sem::Answer::Alone(calls)) => {
            one.alone.push(calls.into_iter().map(|(operation, ns)| (operation, ns.median)).collect());
        }
        Answer::Sem(sem::Answer::Pair(pair)) => one.pairs.push(pair),
        Answer::Sem(sem::Answer::Crowd(costs)) => {
            one.crowds.push(costs.into_iter().map(|cost| (cost.sleepers, cost.ns.median)).collect());
        }
        _ => return Err(Error::another_question(mechanism.name())),
    }
    Ok(())
}

/// What each sleeper takes at the most, from its thread's start to its end, on a busy machine.
const SECONDS_A_SLEEPER: f64 = 0.01;

impl Figures {
    fn of(machine: Machine, options: &Options, cpus: usize, measured: &[Measured]) -> Figures {
        let mut figures = Figures {
            machine,
            options: options.clone(),
            cpus,
            burns: burns(measured),
            alone: alone(measured),
            pairs: pairs(measured),
            crowds: crowds(measured, &options.crowds()),
            published: PUBLISHED,
            targets: Vec::new(),
        };
        figures.targets = report::targets(&figures);
        figures
    }
}

fn find(measured: &[Measured], point: Point, mechanism: Mechanism) -> Option<&Measured> {
    measured.iter().find(|one| one.point == point && one.mechanism == mechanism)
}

/// The ratios of what `of` says of `one` to what it says of another mechanism at the same point.
fn ratios(
    measured: &[Measured],
    one: &Measured,
    other: Mechanism,
    of: impl Fn(&Measured) -> Vec<Option<f64>>,
) -> Option<Summary> {
    Summary::of_ratios(&of(one), &of(find(measured, one.point, other)?))
}

fn burns(measured: &[Measured]) -> Vec<Row> {
    let rows = measured.iter().filter(|one| one.point == Point::Burns);
    rows.filter_map(|one| {
        let rounds: Vec<&Round> = one.burns.iter().flatten().collect();
        let of = |figure: fn(&Round) -> f64| Summary::of(rounds.iter().map(|round| figure(round)));
        let known =
            |figure: fn(&Round) -> Option<f64>| Summary::of(rounds.iter().filter_map(|round| figure(round)));
        let burns_per_second = of(|round| round.burns_per_second)?;
        let distance = |round: &&&Round| (round.burns_per_second - burns_per_second.median).abs();
        let typical = rounds.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let compared = |other| ratios(measured, one, other, Measured::rates);
        Some(Row {
            mechanism: one.mechanism,
            burns_per_second,
            of_kernel: compared(Mechanism::Kernel),
            of_before: compared(Mechanism::Before),
            of_shared_line: compared(Mechanism::SharedLine),
            at_a_time: of(|round| round.worker_burns as f64 / round.main_burns.max(1) as f64)?,
            cpu_ns: of(|round| round.cpu_ns)?,
            voluntary: of(|round| round.voluntary)?,
            involuntary: of(|round| round.involuntary)?,
            others: known(|round| round.others),
            spinning: known(|round| round.spinning),
            contended: known(|round| round.contended),
            typical: (**typical).clone(),
            rounds: rounds.into_iter().cloned().collect(),
        })
    })
    .collect()
}

fn alone(measured: &[Measured]) -> Vec<Alone> {
    let mut rows = Vec::new();
    for operation in Operation::ALL {
        for one in measured.iter().filter(|one| one.point == Point::Alone) {
            let ns = one.ns(operation);
            let Some(summary) = Summary::of(ns.iter().copied().flatten()) else { continue };
            let kernel = find(measured, one.point, Mechanism::Kernel);
            rows.push(Alone {
                mechanism: one.mechanism,
                operation,
                ns: summary,
                times_the_kernels_rate: kernel
                    .and_then(|kernel| Summary::of_ratios(&kernel.ns(operation), &ns)),
                of_bare: Summary::of_ratios(&ns, &one.ns(Operation::Bare)),
                rounds: ns,
            });
        }
    }
    rows
}

fn pairs(measured: &[Measured]) -> Vec<Pair> {
    let rows = measured.iter().filter(|one| one.point == Point::Pair);
    rows.filter_map(|one| {
        let held = || one.pairs.iter().filter_map(|pair| pair.held);
        Some(Pair {
            mechanism: one.mechanism,
            calls_per_second: Summary::of(one.calls().into_iter().flatten())?,
            of_kernel: ratios(measured, one, Mechanism::Kernel, Measured::calls),
            of_shared_line: ratios(measured, one, Mechanism::SharedLine, Measured::calls),
            contended: Summary::of(held().filter_map(|held| contended(&held))),
            spinning: Summary::of(held().map(|held| spinning(&held, 2))),
        })
    })
    .collect()
}

fn crowds(measured: &[Measured], sleepers: &[usize]) -> Vec<Cost> {
    let mut rows = Vec::new();
    for one in measured {
        let Point::Crowd(sleep) = one.point else { continue };
        for (index, &number) in sleepers.iter().enumerate() {
            let ns = one.cost(number);
            let Some(summary) = Summary::of(ns.iter().copied().flatten()) else { continue };
            let growth = index.checked_sub(1).and_then(|index| {
                let fewer = sleepers[index];
                let doublings = (number as f64 / fewer as f64).log2();
                let before = one.cost(fewer);
                Summary::of(
                    ns.iter()
                        .zip(&before)
                        .filter_map(|(ns, before)| Some(((*ns)? / (*before)?).powf(1.0 / doublings))),
                )
            });
            rows.push(Cost {
                mechanism: one.mechanism,
                sleep,
                sleepers: number,
                ns: summary,
                growth,
                of_kernel: ratios(measured, one, Mechanism::Kernel, |one| one.cost(number)),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests;
