//! Readers-writer locks: alone, and with threads of which some write: throughput, waits of readers and of writers, fairness.

mod contender;
mod report;

use std::time::Duration;

use poundlock_names::LockName;
use serde::Serialize;

use crate::affinity;
use crate::error::{Error, Result};
use crate::launch::{Context, Process};
use crate::machine::Machine;
use crate::progress::rounds;
use crate::report::Target;
use crate::sample::Sample;
use crate::stats::Summary;
use crate::work::Calibration;
use crate::worker::rwlock::{self, Crowd};
use crate::worker::{self, Answer};

pub use crate::worker::rwlock::Side;
pub use contender::{Contender, Peer};
pub use poundlock_core::rwlock::Preference as Policy;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The locks; the floor, glibc's and parking_lot's take part always. All if empty.
    pub locks: Vec<Contender>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// How many per cent of the operations write.
    pub writers: Vec<f64>,
    /// Microseconds of work of a reader inside.
    pub read_us: f64,
    /// Microseconds of work of a writer inside.
    pub write_us: f64,
    /// Microseconds of work between two critical sections of a thread.
    pub think_us: f64,
    /// Seconds for each contender at each point in a round.
    pub seconds: f64,
    /// Rounds in which everybody takes part once.
    pub rounds: usize,
    /// How many of the allowed CPUs the threads share; all if not given.
    pub cpus: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            locks: Vec::new(),
            threads: vec![2, 16],
            writers: vec![1.0, 10.0],
            read_us: 1.0,
            write_us: 1.0,
            think_us: 1.0,
            seconds: 0.1,
            rounds: 5,
            cpus: None,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let error = |message: &str| Err(Error::Options(message.to_owned()));
        if self.rounds == 0 {
            return error("at least one round is needed");
        }
        if self.threads.is_empty() || self.threads.iter().any(|&threads| !(2..=10_000).contains(&threads)) {
            return error("--threads must name numbers from 2 to 10000");
        }
        if self.writers.is_empty() || self.writers.iter().any(|percent| !(0.0..=100.0).contains(percent)) {
            return error("--writers must name percentages from 0 to 100");
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return error("--seconds must lie above 0 and at most at 3600");
        }
        for (name, us) in [("--read", self.read_us), ("--write", self.write_us), ("--think", self.think_us)] {
            if !(0.0..=1e6).contains(&us) {
                return error(&format!("{name} must lie between 0 and 1000000 microseconds"));
            }
        }
        Ok(())
    }
}

/// A contender alone.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// The contender.
    pub lock: Contender,
    /// As what it is locked.
    pub side: Side,
    /// Nanoseconds for a lock and an unlock.
    pub ns: Summary,
    /// Of the floor in the same process.
    pub of_bare: Option<Summary>,
    /// Of parking_lot's in the same process.
    pub of_parking_lot: Option<Summary>,
    /// Of glibc's default in the same process.
    pub of_glibc: Option<Summary>,
    /// Nanoseconds in each round.
    pub rounds: Vec<Option<f64>>,
}

/// A contender at a point.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Threads.
    pub threads: usize,
    /// How many per cent of the operations write.
    pub writers: f64,
    /// The contender.
    pub lock: Contender,
    /// Operations a second, of readers and writers together.
    pub throughput: Summary,
    /// Of the best of the others' locks.
    pub of_best: Option<OfBest>,
    /// Of glibc's default in the same round.
    pub of_glibc: Option<Summary>,
    /// Jain's index of the threads' operations.
    pub jain: Option<Summary>,
    /// The share of the threads that never acquired the lock.
    pub unserved: Option<Summary>,
    /// CPU nanoseconds for each operation, work included.
    pub cpu_ns: Option<Summary>,
    /// Voluntary context switches for each operation.
    pub voluntary: Option<Summary>,
    /// Involuntary context switches for each operation.
    pub involuntary: Option<Summary>,
    /// The share of the CPUs that other processes had.
    pub others: Option<Summary>,
    /// How long readers wait.
    pub reader_waits: Waits,
    /// How long writers wait.
    pub writer_waits: Waits,
    /// The rounds.
    pub rounds: Vec<Sample>,
}

/// A ratio to the hardest of the others to reach.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OfBest {
    /// Whose it is.
    pub lock: Contender,
    /// The smallest of the ratios to each. Each is a median over the rounds; the best of each round would be the best of its luck.
    pub ratio: Summary,
}

/// Waits, each figure over the rounds that had any.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    /// All of them, divided by their number.
    pub mean_ns: Option<Summary>,
    /// Half of them are no longer.
    pub p50_ns: Option<Summary>,
    /// 99 of 100 are no longer.
    pub p99_ns: Option<Summary>,
    /// 999 of 1000 are no longer.
    pub p999_ns: Option<Summary>,
    /// The longest.
    pub max_ns: Option<Summary>,
    /// The longest, divided by the mean of the same round.
    pub max_of_mean: Option<Summary>,
}

impl Waits {
    fn of(rounds: &[Option<rwlock::Waits>]) -> Waits {
        let over = |figure: fn(&rwlock::Waits) -> f64| Summary::of(rounds.iter().flatten().map(figure));
        Waits {
            mean_ns: over(|waits| waits.mean_ns),
            p50_ns: over(|waits| waits.p50_ns),
            p99_ns: over(|waits| waits.p99_ns),
            p999_ns: over(|waits| waits.p999_ns),
            max_ns: over(|waits| waits.max_ns),
            // The clock may not tell waits from none.
            max_of_mean: over(|waits| waits.max_ns / waits.mean_ns.max(1.0)),
        }
    }
}

/// A lock that could not take part.
#[derive(Clone, Debug, Serialize)]
pub struct Absent {
    /// Which.
    pub lock: Contender,
    /// Why, and what to do about it.
    pub why: String,
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
    /// Who could not take part.
    pub absent: Vec<Absent>,
    /// What a step of work took before the rounds; all contenders work by it.
    pub calibration: Calibration,
    /// What a step took after them: if it differs, so did the machine.
    pub calibration_after: Calibration,
    /// One thread.
    pub alone: Vec<Alone>,
    /// Threads of which some write.
    pub rows: Vec<Row>,
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// Some threads, of whose operations some write.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    threads: usize,
    writers: f64,
}

fn points(options: &Options) -> Vec<Point> {
    let writers = |&threads: &usize| options.writers.iter().map(move |&writers| Point { threads, writers });
    options.threads.iter().flat_map(writers).collect()
}

/// A contender at a point: a sample for each round, `None` where nobody acquired the lock.
struct Measured {
    point: Point,
    lock: Contender,
    samples: Vec<Option<Sample>>,
    readers: Vec<Option<rwlock::Waits>>,
    writers: Vec<Option<rwlock::Waits>>,
}

/// Nanoseconds in each round.
type Rounds = Vec<Option<f64>>;

/// A process of contenders alone.
struct Solo {
    /// Whether the process needs the preload library.
    preloaded: bool,
    locks: Vec<((Contender, Side), Rounds)>,
}

/// Everybody in one process but for the preloaded, which has one of its own with what it is compared with.
fn solos(locks: &[Contender]) -> Vec<Solo> {
    let solo = |preloaded, locks: Vec<Contender>| Solo {
        preloaded,
        locks: locks.into_iter().flat_map(|lock| Side::ALL.map(|side| ((lock, side), Vec::new()))).collect(),
    };
    let (preloaded, mut others): (Vec<_>, Vec<_>) =
        locks.iter().partition(|&&lock| lock == Contender::Preloaded);
    let own = preloaded
        .into_iter()
        .map(|lock| solo(true, vec![Contender::Bare, Contender::Glibc, Contender::ParkingLot, lock]));
    [solo(false, std::mem::take(&mut others))].into_iter().chain(own).collect()
}

/// Measures.
///
/// # Errors
/// If the options make no sense, the preload library or a lock that was asked for is missing, or a worker fails.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    options.check()?;
    let cpus = affinity::some(options.cpus)?;
    let alone_on = affinity::one(None)?;
    let machine = Machine::describe(&context.command);
    let (locks, absent) = taking_part(context, options)?;
    let calibration = Calibration::measure();
    let mut solos = solos(&locks);
    let points = points(options);
    let mut measured: Vec<Measured> = points
        .iter()
        .flat_map(|&point| locks.iter().filter(|lock| lock.waits()).map(move |&lock| (point, lock)))
        .map(|(point, lock)| Measured {
            point,
            lock,
            samples: Vec::new(),
            readers: Vec::new(),
            writers: Vec::new(),
        })
        .collect();
    // A point at a time, in random order: what is compared with each other is measured side by side.
    let name = |index: usize| match points.get(index) {
        None => "one thread".to_owned(),
        Some(point) => format!("{} threads, {} % writers", point.threads, point.writers),
    };
    rounds(options.rounds, points.len() + 1, name, |index| {
        let Some(point) = points.get(index) else {
            return solos.iter_mut().try_for_each(|solo| measure_alone(context, solo, options, alone_on));
        };
        let mut here: Vec<&mut Measured> = measured.iter_mut().filter(|one| one.point == *point).collect();
        fastrand::shuffle(&mut here);
        here.into_iter().try_for_each(|one| measure_crowd(context, one, options, &calibration, &cpus))
    })?;
    let mut figures = Figures {
        machine,
        options: options.clone(),
        cpus: cpus.len(),
        absent,
        calibration,
        calibration_after: Calibration::measure(),
        alone: alone(&solos),
        rows: rows(&measured),
        targets: Vec::new(),
    };
    figures.targets = report::targets(&figures);
    Ok(figures)
}

/// Who takes part, and who cannot. One that was asked for must be there.
fn taking_part(context: &Context, options: &Options) -> Result<(Vec<Contender>, Vec<Absent>)> {
    let (mut locks, mut absent) = (Vec::new(), Vec::new());
    for lock in Contender::with_references(&options.locks) {
        let why = match lock {
            Contender::Preloaded => lacks(context)?,
            _ => lock.absent(),
        };
        match why {
            None => locks.push(lock),
            Some(why) if options.locks.contains(&lock) => {
                return Err(Error::Library(format!("{lock}: {why}")));
            }
            Some(why) => absent.push(Absent { lock, why }),
        }
    }
    Ok((locks, absent))
}

/// The process of a contender.
fn process(lock: Contender) -> Process {
    let preloaded = lock == Contender::Preloaded;
    Process { ours: preloaded.then_some(LockName::DEFAULT.name()), ..Process::plain(lock.name()) }
}

/// Why the preload library has no readers-writer locks, if it has none. A worker looks: the library changes the process that it is
/// brought into.
fn lacks(context: &Context) -> Result<Option<String>> {
    context.library()?;
    let process = process(Contender::Preloaded);
    match context.measure(process, worker::Task::Rwlock(rwlock::Task::Look), Duration::ZERO)? {
        Answer::Rwlock(rwlock::Answer::Look(why)) => Ok(why),
        _ => Err(Error::another_question(process.name)),
    }
}

/// Slices that a contender's time alone is cut into, as in [`crate::uncontended`].
const SLICES: u32 = 50;

fn measure_alone(context: &Context, solo: &mut Solo, options: &Options, cpu: usize) -> Result<()> {
    let mut contenders: Vec<Contender> = solo.locks.iter().map(|((lock, _), _)| *lock).collect();
    contenders.dedup();
    // Each side takes half of a contender's time.
    let takes = Duration::from_secs_f64(options.seconds * 2.0 * contenders.len() as f64);
    let slice_ns = (options.seconds * 0.5e9 / f64::from(SLICES)) as u64;
    let task = rwlock::Task::Alone { contenders, cpu, slices: SLICES, slice_ns };
    let process =
        if solo.preloaded { process(Contender::Preloaded) } else { Process::plain("readers-writer locks") };
    let Answer::Rwlock(rwlock::Answer::Alone(answer)) =
        context.measure(process, worker::Task::Rwlock(task), takes)?
    else {
        return Err(Error::another_question(process.name));
    };
    for (who, samples) in &mut solo.locks {
        samples.push(answer.iter().find(|(answered, _)| answered == who).map(|(_, ns)| ns.median));
    }
    Ok(())
}

fn measure_crowd(
    context: &Context,
    one: &mut Measured,
    options: &Options,
    calibration: &Calibration,
    cpus: &[usize],
) -> Result<()> {
    let Point { threads, writers } = one.point;
    let fits = threads <= cpus.len();
    // The scheduler's time slices need longer to even out.
    let seconds = options.seconds * if fits { 1.0 } else { 2.0 };
    let crowd = Crowd {
        threads,
        writers: writers / 100.0,
        read_steps: calibration.steps(options.read_us),
        write_steps: calibration.steps(options.write_us),
        think_steps: calibration.steps(options.think_us),
        warm_up_ns: (seconds * 0.1e9) as u64,
        throughput_ns: (seconds * 1e9) as u64,
        waits_ns: (seconds * 1e9) as u64,
        // Whoever does not starve needs no longer; the others would need many time slices.
        drain_ns: (seconds * 0.3e9) as u64,
        cpus: cpus.to_vec(),
        // Those that could have a CPU each must not share one by the scheduler's whim.
        pin: fits,
    };
    let process = process(one.lock);
    let task = worker::Task::Rwlock(rwlock::Task::Crowd { contender: one.lock, crowd });
    let takes = Duration::from_secs_f64(seconds * 2.4);
    let Answer::Rwlock(rwlock::Answer::Crowd(answer)) = context.measure(process, task, takes)? else {
        return Err(Error::another_question(process.name));
    };
    one.samples.push(Sample::of(&answer.turns));
    one.readers.push(answer.readers);
    one.writers.push(answer.writers);
    Ok(())
}

fn alone(solos: &[Solo]) -> Vec<Alone> {
    let mut rows = Vec::new();
    for solo in solos {
        for ((lock, side), samples) in &solo.locks {
            // The references in the company of the preloaded lock are there for its ratios.
            if solo.preloaded && *lock != Contender::Preloaded {
                continue;
            }
            let of = |other: Contender| {
                let (_, reference) = solo.locks.iter().find(|(who, _)| *who == (other, *side))?;
                Summary::of_ratios(samples, reference)
            };
            let Some(ns) = Summary::of(samples.iter().copied().flatten()) else { continue };
            rows.push(Alone {
                lock: *lock,
                side: *side,
                ns,
                of_bare: of(Contender::Bare),
                of_parking_lot: of(Contender::ParkingLot),
                of_glibc: of(Contender::Glibc),
                rounds: samples.clone(),
            });
        }
    }
    rows
}

impl Measured {
    fn throughputs(&self) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| sample.map(|sample| sample.throughput)).collect()
    }
}

fn rows(measured: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in measured {
        let of = |figure: fn(&Sample) -> f64| Summary::of(one.samples.iter().flatten().map(figure));
        let Some(throughput) = of(|sample| sample.throughput) else { continue };
        let own = one.throughputs();
        let here = || measured.iter().filter(|other| other.point == one.point);
        let ratio = |other: &Measured| Summary::of_ratios(&own, &other.throughputs());
        let peers = here().filter(|other| other.lock.is_peer());
        let ratios = peers.filter_map(|other| Some(OfBest { lock: other.lock, ratio: ratio(other)? }));
        rows.push(Row {
            threads: one.point.threads,
            writers: one.point.writers,
            lock: one.lock,
            throughput,
            of_best: ratios.min_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median)),
            of_glibc: here().find(|other| other.lock == Contender::Glibc).and_then(ratio),
            jain: of(|sample| sample.jain),
            unserved: of(|sample| sample.unserved),
            cpu_ns: of(|sample| sample.cpu_ns),
            voluntary: of(|sample| sample.voluntary),
            involuntary: of(|sample| sample.involuntary),
            others: Summary::of(one.samples.iter().flatten().filter_map(|sample| sample.others)),
            reader_waits: Waits::of(&one.readers),
            writer_waits: Waits::of(&one.writers),
            rounds: one.samples.iter().flatten().copied().collect(),
        });
    }
    rows
}

#[cfg(test)]
mod tests;
