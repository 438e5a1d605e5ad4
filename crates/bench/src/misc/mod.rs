//! OSv's benchmark of mutexes, point by point, over every lock that we have and the C library's: sizes, the uncontended
//! lock, the hand-off by itself, incrementing threads, trylock, and a checker that yields inside.

mod contender;
mod published;
mod report;

use std::mem;
use std::time::Duration;

use poundlock_core::adaptive::RawAdaptive as RawMutex;
use poundlock_core::condvar::RawCondvar;
use poundlock_core::handoff::{Handoff, RawHandoff};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::RawSpin;
use poundlock_linux::Linux;
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
use crate::worker::{self, Answer, misc, turns};

pub use crate::worker::misc::{Next, Operation};
pub use contender::{Contender, OurMutex};
pub use published::{PUBLISHED, Published};

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The locks; the floor, glibc's mutex, the hand-off mutex with and without spinning, and the queue spinlock take part
    /// always. All if empty.
    pub locks: Vec<Contender>,
    /// Numbers of incrementing threads. Two, and one for each CPU, are measured always.
    pub threads: Vec<usize>,
    /// Microseconds of work inside the critical section. None at all is measured always.
    pub critical_us: Vec<f64>,
    /// Seconds for each contender at each point in a round; twice that where threads share the CPUs.
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
            threads: vec![2, 4, 20],
            critical_us: vec![0.0, 1.0],
            // Four threads on two CPUs either fall into a convoy of sleepers or do not: it takes this many to tell.
            seconds: 0.05,
            rounds: 11,
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
        if self.threads.iter().any(|&threads| !(2..=10_000).contains(&threads)) {
            return error("--threads must name numbers from 2 to 10000");
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return error("--seconds must lie above 0 and at most at 3600");
        }
        if self.critical_us.iter().any(|us| !(0.0..=1e6).contains(us)) {
            return error("--critical must lie between 0 and 1000000 microseconds");
        }
        Ok(())
    }
}

/// How large a lock is.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// Which lock, or family of locks.
    pub lock: &'static str,
    /// Bytes.
    pub plain: usize,
    /// Bytes of the recursive form, if there is one.
    pub recursive: Option<usize>,
    /// Bytes of the condition variable that goes with it, if there is one.
    pub condvar: Option<usize>,
}

/// The sizes, in bytes.
pub fn sizes() -> Vec<Size> {
    let condvar = Some(mem::size_of::<RawCondvar<Linux>>());
    let pthread = mem::size_of::<libc::pthread_mutex_t>();
    vec![
        Size {
            lock: "glibc, and ours behind its symbols",
            plain: pthread,
            recursive: Some(pthread),
            condvar: Some(mem::size_of::<libc::pthread_cond_t>()),
        },
        Size {
            lock: "pthread_spin, and ours behind its symbols",
            plain: mem::size_of::<libc::pthread_spinlock_t>(),
            recursive: None,
            condvar: None,
        },
        Size { lock: "poundlock", plain: mem::size_of::<RawPoundlock<Linux>>(), recursive: None, condvar },
        Size {
            lock: "baseline to any-negative",
            plain: mem::size_of::<RawMutex<Linux>>(),
            recursive: None,
            condvar,
        },
        Size {
            lock: "handoff, every policy",
            plain: mem::size_of::<RawHandoff<Linux>>(),
            recursive: Some(mem::size_of::<Handoff<Linux>>()),
            condvar,
        },
        Size {
            lock: "qspin, every form",
            plain: mem::size_of::<RawSpin<Linux>>(),
            recursive: None,
            condvar: None,
        },
    ]
}

/// What one thread needs for an operation.
#[derive(Clone, Debug, Serialize)]
pub struct Alone {
    /// The contender.
    pub lock: Contender,
    /// What it does.
    pub operation: Operation,
    /// Nanoseconds.
    pub ns: Summary,
    /// Of a bare compare-and-swap and exchange in the same process.
    pub of_bare: Option<Summary>,
    /// Nanoseconds in each round.
    pub rounds: Vec<Option<f64>>,
}

/// What it takes to pass a lock on.
#[derive(Clone, Debug, Serialize)]
pub struct Pass {
    /// The contender.
    pub lock: Contender,
    /// What the next owner does meanwhile.
    pub next: Next,
    /// Nanoseconds from before the unlock to the end of the next owner's lock: the median in each round, over the rounds.
    pub pass_ns: Summary,
    /// Nanoseconds of the unlock, likewise.
    pub unlock_ns: Summary,
    /// Of glibc's default mutex in the same round.
    pub of_glibc: Option<Summary>,
}

/// Incrementing threads.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Threads.
    pub threads: usize,
    /// Whether each is kept on a CPU of its own.
    pub pinned: bool,
    /// Microseconds of work inside the critical section.
    pub critical_us: f64,
    /// The contender.
    pub lock: Contender,
    /// Nanoseconds from one acquisition to the next, whoever's it is.
    pub ns: Summary,
    /// Of glibc's default mutex in the same round.
    pub of_glibc: Option<Summary>,
    /// Of the hand-off mutex without spinning in the same round.
    pub of_none: Option<Summary>,
    /// Of the queue spinlock in the same round.
    pub of_qspin: Option<Summary>,
    /// How many times as long the hand-off mutex without spinning took, in the same round.
    pub faster_than_none: Option<Summary>,
    /// Of the policy with the smallest median at this point, in the same round; for the hand-off mutex.
    pub of_best_policy: Option<Summary>,
    /// Jain's index.
    pub jain: Option<Summary>,
    /// The share of the threads that never acquired the lock.
    pub unserved: Option<Summary>,
    /// CPU nanoseconds for each acquisition.
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

/// What the checker saw: nothing wrong, or there would be no figures.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The contender.
    pub lock: Contender,
    /// Threads.
    pub threads: usize,
    /// Sections in which somebody yielded and nobody else came, in all rounds together.
    pub sections: f64,
    /// Nanoseconds a section.
    pub ns: Summary,
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
    /// Bytes.
    pub sizes: Vec<Size>,
    /// One thread.
    pub alone: Vec<Alone>,
    /// Two threads that pass the lock to and fro; empty if there is one CPU only.
    pub passes: Vec<Pass>,
    /// Threads that increment a counter.
    pub increments: Vec<Row>,
    /// Threads that yield inside.
    pub checked: Vec<Checked>,
    /// The source's figures.
    pub published: Vec<Published>,
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// A measurement that all contenders make side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Alone,
    Pass(Next),
    Increment { threads: usize, critical_us: f64 },
    Check { threads: usize },
}

impl Point {
    fn admits(self, lock: Contender) -> bool {
        match self {
            Point::Alone => true,
            // To others it is glibc's default mutex with a look at the owner.
            _ if lock == Contender::GlibcRecursive => false,
            Point::Pass(Next::Asleep) => lock.sleeps(),
            _ => lock.waits(),
        }
    }
}

fn points(options: &Options, cpus: usize) -> Vec<Point> {
    let mut points = vec![Point::Alone];
    if cpus >= 2 {
        points.extend([Point::Pass(Next::JustCame), Point::Pass(Next::Asleep)]);
    }
    let mut threads: Vec<usize> = [2, cpus].into_iter().chain(options.threads.iter().copied()).collect();
    threads.retain(|&threads| threads >= 2);
    threads.sort_unstable();
    threads.dedup();
    let mut critical = vec![0.0];
    for &us in &options.critical_us {
        if !critical.contains(&us) {
            critical.push(us);
        }
    }
    for critical_us in critical {
        points.extend(threads.iter().map(|&threads| Point::Increment { threads, critical_us }));
    }
    points.push(Point::Check { threads: (2 * cpus).max(4) });
    points
}

/// A contender at a point, with an entry for each round.
struct Measured {
    point: Point,
    lock: Contender,
    alone: Vec<(Operation, Vec<Option<f64>>)>,
    passes: Vec<(f64, f64)>,
    samples: Vec<Option<Sample>>,
}

impl Measured {
    fn new(point: Point, lock: Contender) -> Measured {
        let operations = if point == Point::Alone { Operation::of(lock) } else { Vec::new() };
        let alone = operations.into_iter().map(|operation| (operation, Vec::new())).collect();
        Measured { point, lock, alone, passes: Vec::new(), samples: Vec::new() }
    }

    /// Nanoseconds from one acquisition to the next, in each round.
    fn ns(&self) -> Vec<Option<f64>> {
        self.samples.iter().map(|sample| sample.map(|sample| 1e9 / sample.throughput)).collect()
    }
}

/// Measures.
///
/// # Errors
/// If the options make no sense, or a worker fails: above all, if a lock does not exclude.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    options.check()?;
    let cpus = affinity::some(options.cpus)?;
    let alone_on = affinity::one(None)?;
    let machine = Machine::describe(&context.command);
    let locks = Contender::with_references(&options.locks);
    let calibration = Calibration::measure();
    let points = points(options, cpus.len());
    let mut measured: Vec<Measured> = points
        .iter()
        .flat_map(|&point| locks.iter().map(move |&lock| (point, lock)))
        .filter(|&(point, lock)| point.admits(lock))
        .map(|(point, lock)| Measured::new(point, lock))
        .collect();
    // A point at a time, in random order: what is compared with each other is measured side by side.
    let name = |index: usize| match points[index] {
        Point::Alone => "one thread".to_owned(),
        Point::Pass(_) => "hand-off".to_owned(),
        Point::Increment { threads, critical_us } => format!("{threads} threads, {critical_us} us"),
        Point::Check { .. } => "checker".to_owned(),
    };
    rounds(options.rounds, points.len(), name, |index| {
        let point = points[index];
        let mut here: Vec<&mut Measured> = measured.iter_mut().filter(|one| one.point == point).collect();
        fastrand::shuffle(&mut here);
        if point == Point::Alone {
            return measure_alone(context, &mut here, options, alone_on);
        }
        here.into_iter().try_for_each(|one| measure(context, one, options, &calibration, &cpus))
    })?;
    Ok(Figures::of(machine, options, cpus.len(), [calibration, Calibration::measure()], &measured))
}

/// Slices that an operation's time alone is cut into, as in [`crate::uncontended`].
const SLICES: u32 = 50;
/// The share of [`Options::seconds`] that one thread has for an operation.
const ALONE: f64 = 0.25;

fn measure_alone(context: &Context, here: &mut [&mut Measured], options: &Options, cpu: usize) -> Result<()> {
    let timed: Vec<_> =
        here.iter().flat_map(|one| one.alone.iter().map(|(operation, _)| (one.lock, *operation))).collect();
    let seconds = options.seconds * ALONE;
    let takes = Duration::from_secs_f64(seconds * 2.0 * timed.len() as f64);
    let slice_ns = (seconds * 1e9 / f64::from(SLICES)) as u64;
    let process = Process::plain("one thread");
    let task = worker::Task::Misc(misc::Task::Alone { timed, cpu, slices: SLICES, slice_ns });
    let Answer::Misc(misc::Answer::Alone(answer)) = context.measure(process, task, takes)? else {
        return Err(Error::another_question(process.name));
    };
    for one in here {
        for (operation, ns) in &mut one.alone {
            let result = answer.iter().find(|(who, what, _)| *who == one.lock && what == operation);
            ns.push(result.map(|(_, _, ns)| ns.median));
        }
    }
    Ok(())
}

fn measure(
    context: &Context,
    one: &mut Measured,
    options: &Options,
    calibration: &Calibration,
    cpus: &[usize],
) -> Result<()> {
    let contender = one.lock;
    let turns = |threads: usize, critical_us: f64| {
        let pin = threads <= cpus.len();
        let seconds = options.seconds * if pin { 1.0 } else { 2.0 };
        turns::Task {
            threads,
            critical_steps: calibration.steps(critical_us),
            think_steps: 0,
            warm_up_ns: (seconds * 0.1e9) as u64,
            duration_ns: (seconds * 1e9) as u64,
            // Whoever sleeps is to come to its end; spinners may need many time slices.
            drain_ns: if contender.sleeps() { 30_000_000_000 } else { (seconds * 0.3e9) as u64 },
            cpus: cpus.to_vec(),
            pin,
            probe: false,
        }
    };
    let task = match one.point {
        Point::Alone => return Err(Error::Options("one thread alone is not measured here".to_owned())),
        Point::Pass(next) => misc::Task::Pass {
            contender,
            next,
            cpus: [cpus[0], cpus[1]],
            duration_ns: (options.seconds * 1e9) as u64,
        },
        Point::Increment { threads, critical_us } => {
            misc::Task::Increment { contender, turns: turns(threads, critical_us) }
        }
        Point::Check { threads } => misc::Task::Check { contender, turns: turns(threads, 0.0) },
    };
    let takes = Duration::from_secs_f64(options.seconds * 2.2) + Duration::from_secs(30);
    let process = Process::plain(contender.name());
    match context.measure(process, worker::Task::Misc(task), takes)? {
        Answer::Misc(misc::Answer::Pass(passes)) => {
            one.passes.push((passes.pass_ns.median, passes.unlock_ns.median));
        }
        Answer::Misc(misc::Answer::Turns(answer)) => one.samples.push(Sample::of(&answer)),
        _ => return Err(Error::another_question(process.name)),
    }
    Ok(())
}

impl Figures {
    fn of(
        machine: Machine,
        options: &Options,
        cpus: usize,
        [calibration, calibration_after]: [Calibration; 2],
        measured: &[Measured],
    ) -> Figures {
        let mut figures = Figures {
            machine,
            options: options.clone(),
            cpus,
            calibration,
            calibration_after,
            sizes: sizes(),
            alone: alone(measured),
            passes: passes(measured),
            increments: increments(measured, cpus),
            checked: checked(measured),
            published: PUBLISHED.to_vec(),
            targets: Vec::new(),
        };
        figures.targets = report::targets(&figures);
        figures
    }
}

fn alone(measured: &[Measured]) -> Vec<Alone> {
    let timed =
        || measured.iter().flat_map(|one| one.alone.iter().map(move |(what, ns)| (one.lock, *what, ns)));
    let bare = timed().find(|&(who, what, _)| who == Contender::Bare && what == Operation::LockUnlock);
    timed()
        .filter_map(|(lock, operation, rounds)| {
            Some(Alone {
                lock,
                operation,
                ns: Summary::of(rounds.iter().copied().flatten())?,
                of_bare: bare.and_then(|(_, _, bare)| Summary::of_ratios(rounds, bare)),
                rounds: rounds.clone(),
            })
        })
        .collect()
}

fn passes(measured: &[Measured]) -> Vec<Pass> {
    let ns =
        |one: &Measured| -> Vec<Option<f64>> { one.passes.iter().map(|&(pass, _)| Some(pass)).collect() };
    measured
        .iter()
        .filter_map(|one| {
            let Point::Pass(next) = one.point else { return None };
            let glibc = find(measured, one.point, Contender::Glibc);
            Some(Pass {
                lock: one.lock,
                next,
                pass_ns: Summary::of(one.passes.iter().map(|&(pass, _)| pass))?,
                unlock_ns: Summary::of(one.passes.iter().map(|&(_, unlock)| unlock))?,
                of_glibc: glibc.and_then(|glibc| Summary::of_ratios(&ns(one), &ns(glibc))),
            })
        })
        .collect()
}

fn find(measured: &[Measured], point: Point, lock: Contender) -> Option<&Measured> {
    measured.iter().find(|one| one.point == point && one.lock == lock)
}

fn median_ns(one: &Measured) -> Option<f64> {
    Summary::of(one.ns().into_iter().flatten()).map(|ns| ns.median)
}

fn increments(measured: &[Measured], cpus: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in measured {
        let Point::Increment { threads, critical_us } = one.point else { continue };
        let ns = one.ns();
        let Some(summary) = Summary::of(ns.iter().copied().flatten()) else { continue };
        let ratio_to = |other: Option<&Measured>| Summary::of_ratios(&ns, &other?.ns());
        let here = |lock| find(measured, one.point, lock);
        let best = measured
            .iter()
            .filter(|other| other.point == one.point && other.lock.is_policy())
            .filter_map(|other| Some((other, median_ns(other)?)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(other, _)| other);
        let of = |figure: fn(&Sample) -> f64| Summary::of(one.samples.iter().flatten().map(figure));
        rows.push(Row {
            threads,
            pinned: threads <= cpus,
            critical_us,
            lock: one.lock,
            ns: summary,
            of_glibc: ratio_to(here(Contender::Glibc)),
            of_none: ratio_to(here(Contender::HANDOFF_NONE)),
            of_qspin: ratio_to(here(Contender::QSPIN)),
            faster_than_none: here(Contender::HANDOFF_NONE)
                .and_then(|none| Summary::of_ratios(&none.ns(), &ns)),
            of_best_policy: if one.lock.is_policy() { ratio_to(best) } else { None },
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

fn checked(measured: &[Measured]) -> Vec<Checked> {
    measured
        .iter()
        .filter_map(|one| {
            let Point::Check { threads } = one.point else { return None };
            Some(Checked {
                lock: one.lock,
                threads,
                sections: one.samples.iter().flatten().map(|sample| sample.acquisitions).sum(),
                ns: Summary::of(one.ns().into_iter().flatten())?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
