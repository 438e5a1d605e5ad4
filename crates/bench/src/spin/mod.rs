//! Spinlocks: alone, between two threads that have a CPU each, and with more threads than CPUs.

mod contender;
mod report;

use std::time::Duration;

use poundlock_core::events::Event;
use poundlock_core::qspin::Form as Kind;
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
use crate::worker::probe::{self, Gaps};
use crate::worker::{self, Answer, spin, turns};

pub use contender::Contender;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The locks; the floor, glibc's, the ticket lock and MCS take part always. All if empty.
    pub locks: Vec<Contender>,
    /// Numbers of threads that share the CPUs. Two are measured always: each lock is compared with itself there.
    pub threads: Vec<usize>,
    /// Microseconds of work inside the critical section, between two threads with a CPU each.
    pub critical_us: Vec<f64>,
    /// Microseconds of work between two of their critical sections.
    pub think_us: f64,
    /// Microseconds of work inside the critical section of threads that share the CPUs.
    pub crowd_critical_us: f64,
    /// Microseconds of work between two of their critical sections.
    pub crowd_think_us: f64,
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
            threads: vec![4, 16, 64, 250],
            critical_us: vec![0.0, 0.1, 0.25, 0.5, 1.0, 2.0],
            think_us: 0.25,
            crowd_critical_us: 1.0,
            crowd_think_us: 1.0,
            seconds: 0.05,
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
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return error("--seconds must lie above 0 and at most at 3600");
        }
        if self.critical_us.is_empty() {
            return error("--critical must name a duration");
        }
        let think = ("--think", self.think_us);
        let crowd = ("--crowd-critical", self.crowd_critical_us);
        let crowd_think = ("--crowd-think", self.crowd_think_us);
        let critical = self.critical_us.iter().map(|&us| ("--critical", us));
        for (name, us) in critical.chain([think, crowd, crowd_think]) {
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
    /// Nanoseconds for a lock and an unlock.
    pub ns: Summary,
    /// Of a bare compare-and-swap and store in the same process.
    pub of_bare: Option<Summary>,
    /// Of glibc's `pthread_spin_*` in the same process.
    pub of_pthread_spin: Option<Summary>,
    /// Nanoseconds in each round.
    pub rounds: Vec<Option<f64>>,
}

/// A contender at a point.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Threads.
    pub threads: usize,
    /// Microseconds of work inside the critical section.
    pub critical_us: f64,
    /// Microseconds of work outside it.
    pub think_us: f64,
    /// The contender.
    pub lock: Contender,
    /// Acquisitions a second.
    pub throughput: Summary,
    /// Of glibc's `pthread_spin_*` in the same round.
    pub of_pthread_spin: Option<Summary>,
    /// Of the ticket lock in the same round.
    pub of_ticket: Option<Summary>,
    /// Of MCS in the same round.
    pub of_mcs: Option<Summary>,
    /// Of glibc's default mutex in the same round.
    pub of_glibc: Option<Summary>,
    /// Of the same lock with 2 threads in the same round, where CPUs are shared.
    pub of_own_two: Option<Summary>,
    /// Jain's index.
    pub jain: Option<Summary>,
    /// The share of the threads that never acquired the lock.
    pub unserved: Option<Summary>,
    /// CPU nanoseconds for each acquisition, work included.
    pub cpu_ns: Option<Summary>,
    /// Voluntary context switches for each acquisition.
    pub voluntary: Option<Summary>,
    /// Involuntary context switches for each acquisition.
    pub involuntary: Option<Summary>,
    /// The share of the CPUs that other processes had.
    pub others: Option<Summary>,
    /// The rounds.
    pub rounds: Vec<Sample>,
}

impl Row {
    /// Of the best of `pthread_spin`, the ticket lock and MCS: the smallest of the three ratios. Each is a median over
    /// the rounds; the best of each round would be the best of its luck.
    pub fn of_best(&self) -> Option<Summary> {
        let all: Option<Vec<Summary>> =
            [self.of_pthread_spin, self.of_ticket, self.of_mcs].into_iter().collect();
        all?.into_iter().min_by(|a, b| a.median.total_cmp(&b.median))
    }
}

/// Durations, each figure over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Durations {
    /// Half of them are no longer.
    pub p50_ns: Option<Summary>,
    /// 99 of 100 are no longer.
    pub p99_ns: Option<Summary>,
    /// 999 of 1000 are no longer.
    pub p999_ns: Option<Summary>,
    /// The longest.
    pub max_ns: Option<Summary>,
    /// The share of the time that passed in those above 1 ms.
    pub long_share: Option<Summary>,
}

/// What a hand-over costs a contender.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Threads.
    pub threads: usize,
    /// The contender.
    pub lock: Contender,
    /// Acquisitions a second, under the probe.
    pub throughput: Summary,
    /// From a release to the next acquisition, while somebody waits.
    pub free: Durations,
    /// From an acquisition to the release.
    pub held: Durations,
    /// Voluntary context switches for each acquisition.
    pub voluntary: Option<Summary>,
    /// Involuntary context switches for each acquisition.
    pub involuntary: Option<Summary>,
    /// Lock events for each acquisition, or, for those with a duration, nanoseconds for each acquisition: those that
    /// happened.
    pub events: Vec<(&'static str, Summary)>,
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
    /// What a step of work took before the rounds; all contenders work by it.
    pub calibration: Calibration,
    /// What a step took after them: if it differs, so did the machine.
    pub calibration_after: Calibration,
    /// One thread.
    pub alone: Vec<Alone>,
    /// Two threads with a CPU each; empty if there is one CPU only.
    pub pair: Vec<Row>,
    /// Threads that share the CPUs.
    pub crowd: Vec<Row>,
    /// What a hand-over costs where CPUs are shared.
    pub costs: Vec<Cost>,
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// In what company locks are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// Two threads, each kept on a CPU of its own.
    Pair,
    /// Threads that share the CPUs.
    Crowd,
    /// The same, with a look at each hand-over.
    Costs,
}

impl Scene {
    /// Who takes part. The preloaded symbols and the large layout run the same slow paths as the Rust types: where slow
    /// paths are most of the figure one of each will do.
    fn admits(self, lock: Contender) -> bool {
        use Contender::*;
        match self {
            Scene::Pair => lock.waits() && lock != Preloaded(Kind::Virtual),
            Scene::Crowd => {
                lock.waits() && !matches!(lock, Large(_) | Preloaded(Kind::Native | Kind::Virtual))
            }
            Scene::Costs => matches!(lock, PthreadSpin | Ticket | Mcs | Glibc | Rust(_)),
        }
    }

    /// How long a measurement takes, in [`Options::seconds`]: the scheduler's time slices need longer to even out.
    const fn length(self) -> f64 {
        match self {
            Scene::Pair => 1.0,
            Scene::Crowd | Scene::Costs => 2.0,
        }
    }
}

/// The work that threads do.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    scene: Scene,
    threads: usize,
    critical_us: f64,
    think_us: f64,
}

fn points(options: &Options, cpus: usize) -> Vec<Point> {
    let mut points = Vec::new();
    if cpus >= 2 {
        points.extend(options.critical_us.iter().map(|&critical_us| Point {
            scene: Scene::Pair,
            threads: 2,
            critical_us,
            think_us: options.think_us,
        }));
    }
    let crowd = |scene, threads| Point {
        scene,
        threads,
        critical_us: options.crowd_critical_us,
        think_us: options.crowd_think_us,
    };
    points.push(crowd(Scene::Crowd, 2));
    let more = options.threads.iter().filter(|&&threads| threads != 2);
    points.extend(more.map(|&threads| crowd(Scene::Crowd, threads)));
    points.extend(options.threads.iter().map(|&threads| crowd(Scene::Costs, threads)));
    points
}

/// A contender at a point: a sample for each round, `None` where nobody acquired the lock.
struct Measured {
    point: Point,
    lock: Contender,
    samples: Vec<Option<Sample>>,
    gaps: Vec<Gaps>,
}

/// A process of contenders alone.
struct Solo {
    /// What the preload library is told, if the process needs it.
    library: Option<&'static str>,
    /// Each with nanoseconds for each round.
    locks: Vec<(Contender, Vec<Option<f64>>)>,
}

/// Everybody in one process but for the preloaded ones, as the library chooses once a process. Each is there with
/// what it is compared with.
fn solos(locks: &[Contender]) -> Vec<Solo> {
    let solo = |library, locks: Vec<Contender>| Solo {
        library,
        locks: locks.into_iter().map(|lock| (lock, Vec::new())).collect(),
    };
    let (preloaded, others): (Vec<_>, Vec<_>) = locks.iter().partition(|lock| lock.preloaded().is_some());
    let with_references = |lock: Contender| vec![Contender::Bare, Contender::PthreadSpin, lock];
    let preloaded =
        preloaded.into_iter().map(|lock: Contender| solo(lock.preloaded(), with_references(lock)));
    [solo(None, others)].into_iter().chain(preloaded).collect()
}

/// Measures.
///
/// # Errors
/// If the options make no sense, the preload library is missing, or a worker fails.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    options.check()?;
    let cpus = affinity::some(options.cpus)?;
    let alone_on = affinity::one(None)?;
    let machine = Machine::describe(&context.command);
    let locks = Contender::with_references(&options.locks);
    if locks.iter().any(|lock| lock.preloaded().is_some()) {
        context.library()?;
    }
    let calibration = Calibration::measure();
    let mut solos = solos(&locks);
    let points = points(options, cpus.len());
    let mut measured: Vec<Measured> = points
        .iter()
        .flat_map(|&point| {
            locks.iter().filter(move |&&lock| point.scene.admits(lock)).map(move |&lock| (point, lock))
        })
        .map(|(point, lock)| Measured { point, lock, samples: Vec::new(), gaps: Vec::new() })
        .collect();
    // A point at a time, in random order: what is compared with each other is measured side by side.
    let name = |index: usize| match points.get(index) {
        None => "one thread".to_owned(),
        Some(point) => format!("{} threads, {} us", point.threads, point.critical_us),
    };
    rounds(options.rounds, points.len() + 1, name, |index| {
        let Some(point) = points.get(index) else {
            return solos.iter_mut().try_for_each(|solo| measure_alone(context, solo, options, alone_on));
        };
        let mut here: Vec<&mut Measured> = measured.iter_mut().filter(|one| one.point == *point).collect();
        fastrand::shuffle(&mut here);
        here.into_iter().try_for_each(|one| measure_turns(context, one, options, &calibration, &cpus))
    })?;
    let mut figures = Figures {
        machine,
        options: options.clone(),
        cpus: cpus.len(),
        calibration,
        calibration_after: Calibration::measure(),
        alone: alone(&solos),
        pair: rows(&measured, Scene::Pair),
        crowd: rows(&measured, Scene::Crowd),
        costs: costs(&measured),
        targets: Vec::new(),
    };
    figures.targets = report::targets(&figures);
    Ok(figures)
}

/// Slices that a contender's time alone is cut into, as in [`crate::uncontended`].
const SLICES: u32 = 50;

fn measure_alone(context: &Context, solo: &mut Solo, options: &Options, cpu: usize) -> Result<()> {
    let contenders: Vec<Contender> = solo.locks.iter().map(|(lock, _)| *lock).collect();
    let takes = Duration::from_secs_f64(options.seconds * 2.0 * contenders.len() as f64);
    let slice_ns = (options.seconds * 1e9 / f64::from(SLICES)) as u64;
    let task = spin::Task::Alone { contenders, cpu, slices: SLICES, slice_ns };
    let process = Process { ours: solo.library, ..Process::plain(solo.library.unwrap_or("spinlocks")) };
    let Answer::Spin(spin::Answer::Alone(answer)) =
        context.measure(process, worker::Task::Spin(task), takes)?
    else {
        return Err(Error::another_question(process.name));
    };
    for (lock, samples) in &mut solo.locks {
        samples.push(answer.iter().find(|(answered, _)| answered == lock).map(|(_, ns)| ns.median));
    }
    Ok(())
}

fn measure_turns(
    context: &Context,
    one: &mut Measured,
    options: &Options,
    calibration: &Calibration,
    cpus: &[usize],
) -> Result<()> {
    let Point { scene, threads, critical_us, think_us } = one.point;
    let seconds = options.seconds * scene.length();
    // Two that could have a CPU each must not share one by the scheduler's whim: what many get done is compared with
    // what two get done.
    let pin = threads <= cpus.len();
    let task = turns::Task {
        threads,
        critical_steps: calibration.steps(critical_us),
        think_steps: calibration.steps(think_us),
        warm_up_ns: (seconds * 0.1e9) as u64,
        duration_ns: (seconds * 1e9) as u64,
        // Whoever does not starve needs no longer; the others would need many time slices.
        drain_ns: (seconds * 0.3e9) as u64,
        cpus: cpus.to_vec(),
        pin,
        probe: scene == Scene::Costs,
    };
    let process = Process { ours: one.lock.preloaded(), ..Process::plain(one.lock.name()) };
    let task = worker::Task::Spin(spin::Task::Turns { contender: one.lock, turns: task });
    let takes = Duration::from_secs_f64(seconds * 1.1);
    let Answer::Spin(spin::Answer::Turns(answer)) = context.measure(process, task, takes)? else {
        return Err(Error::another_question(process.name));
    };
    one.samples.push(Sample::of(&answer));
    one.gaps.extend(answer.gaps);
    Ok(())
}

fn alone(solos: &[Solo]) -> Vec<Alone> {
    let mut rows = Vec::new();
    for solo in solos {
        let of = |other: Contender, samples: &[Option<f64>]| {
            let (_, reference) = solo.locks.iter().find(|(lock, _)| *lock == other)?;
            Summary::of_ratios(samples, reference)
        };
        for (lock, samples) in &solo.locks {
            // The references in the company of a preloaded lock are there for its ratios.
            if solo.library.is_some() && lock.preloaded().is_none() {
                continue;
            }
            let Some(ns) = Summary::of(samples.iter().copied().flatten()) else { continue };
            rows.push(Alone {
                lock: *lock,
                ns,
                of_bare: of(Contender::Bare, samples),
                of_pthread_spin: of(Contender::PthreadSpin, samples),
                rounds: samples.clone(),
            });
        }
    }
    rows
}

fn throughputs(measured: &[Measured], point: Point, lock: Contender) -> Option<Vec<Option<f64>>> {
    let one = measured.iter().find(|one| one.point == point && one.lock == lock)?;
    Some(one.samples.iter().map(|sample| sample.map(|sample| sample.throughput)).collect())
}

fn rows(measured: &[Measured], scene: Scene) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in measured.iter().filter(|one| one.point.scene == scene) {
        let of = |figure: fn(&Sample) -> f64| Summary::of(one.samples.iter().flatten().map(figure));
        let Some(throughput) = of(|sample| sample.throughput) else { continue };
        let own = throughputs(measured, one.point, one.lock);
        let ratio_to = |point: Point, lock: Contender| {
            Summary::of_ratios(own.as_deref()?, throughputs(measured, point, lock)?.as_slice())
        };
        let two = Point { threads: 2, ..one.point };
        rows.push(Row {
            threads: one.point.threads,
            critical_us: one.point.critical_us,
            think_us: one.point.think_us,
            lock: one.lock,
            throughput,
            of_pthread_spin: ratio_to(one.point, Contender::PthreadSpin),
            of_ticket: ratio_to(one.point, Contender::Ticket),
            of_mcs: ratio_to(one.point, Contender::Mcs),
            of_glibc: ratio_to(one.point, Contender::Glibc),
            of_own_two: if scene == Scene::Crowd { ratio_to(two, one.lock) } else { None },
            jain: of(|sample| sample.jain),
            unserved: of(|sample| sample.unserved),
            cpu_ns: of(|sample| sample.cpu_ns),
            voluntary: of(|sample| sample.voluntary),
            involuntary: of(|sample| sample.involuntary),
            others: Summary::of(one.samples.iter().flatten().filter_map(|sample| sample.others)),
            rounds: one.samples.iter().flatten().copied().collect(),
        });
    }
    rows
}

fn costs(measured: &[Measured]) -> Vec<Cost> {
    let mut costs = Vec::new();
    for one in measured.iter().filter(|one| one.point.scene == Scene::Costs) {
        let of = |figure: fn(&Sample) -> f64| Summary::of(one.samples.iter().flatten().map(figure));
        let Some(throughput) = of(|sample| sample.throughput) else { continue };
        let durations = |which: fn(&Gaps) -> &probe::Durations| {
            // Rounds in which there were none say nothing about how long they are.
            let over = |figure: fn(&probe::Durations) -> f64| {
                Summary::of(one.gaps.iter().map(which).filter(|durations| durations.count > 0).map(figure))
            };
            Durations {
                p50_ns: over(|durations| durations.p50_ns),
                p99_ns: over(|durations| durations.p99_ns),
                p999_ns: over(|durations| durations.p999_ns),
                max_ns: over(|durations| durations.max_ns),
                long_share: over(|durations| durations.long_share),
            }
        };
        let event = |event: &Event| {
            let each = one.gaps.iter().zip(&one.samples).filter_map(|(gaps, sample)| {
                // Events at the probe's beginning and end may belong to acquisitions beyond it; no matter.
                let acquisitions = sample.as_ref()?.acquisitions;
                Some(*gaps.events.get(*event as usize)? as f64 / acquisitions)
            });
            Summary::of(each).filter(|summary| summary.max > 0.0).map(|summary| (event.name(), summary))
        };
        costs.push(Cost {
            threads: one.point.threads,
            lock: one.lock,
            throughput,
            free: durations(|gaps| &gaps.free),
            held: durations(|gaps| &gaps.held),
            voluntary: of(|sample| sample.voluntary),
            involuntary: of(|sample| sample.involuntary),
            events: Event::ALL.iter().filter_map(event).collect(),
        });
    }
    costs
}

#[cfg(test)]
mod tests;
