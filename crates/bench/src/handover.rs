//! Throughput of threads that take turns.

use std::time::Duration;

use serde::Serialize;

use crate::abi::Kind;
use crate::affinity;
use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::launch::{Context, Process};
use crate::machine::Machine;
use crate::progress::rounds;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::sample::Sample;
use crate::stats::Summary;
use crate::work::Calibration;
use crate::worker::{self, Answer};

/// How long threads that have been told to stop may take to do so.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The locks; glibc's default mutex takes part always. All if empty.
    pub locks: Vec<Contender>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Microseconds of work inside the critical section.
    pub critical_us: f64,
    /// Microseconds of work between two critical sections of a thread.
    pub think_us: f64,
    /// Seconds for each contender and number of threads in a round.
    pub seconds: f64,
    /// Rounds in which everybody takes part once.
    pub rounds: usize,
    /// How many of the allowed CPUs to use; all if not given.
    pub cpus: Option<usize>,
    /// Keep each thread on one CPU, in turn. Where others use the machine, the scheduler may keep two threads on
    /// one CPU for a whole round, and then they never contend.
    pub pin: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            locks: Vec::new(),
            threads: vec![2, 4, 8, 16, 64],
            critical_us: 2.0,
            think_us: 1.0,
            seconds: 0.5,
            rounds: 5,
            cpus: None,
            pin: false,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let error = |message: &str| Err(Error::Options(message.to_owned()));
        if self.rounds == 0 {
            return error("at least one round is needed");
        }
        if self.threads.is_empty() || self.threads.iter().any(|&threads| threads == 0 || threads > 10_000) {
            return error("--threads must name numbers from 1 to 10000");
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return error("--seconds must lie above 0 and at most at 3600");
        }
        for (name, us) in [("--critical", self.critical_us), ("--think", self.think_us)] {
            if !(0.0..=1e6).contains(&us) {
                return error(&format!("{name} must lie between 0 and 1000000 microseconds"));
            }
        }
        Ok(())
    }
}

/// A contender with a number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Threads.
    pub threads: usize,
    /// The contender.
    pub lock: Contender,
    /// Acquisitions a second.
    pub throughput: Summary,
    /// Of glibc's default mutex in the same round.
    pub of_glibc: Option<Summary>,
    /// Of the same lock with 2 threads in the same round; `None` if 2 threads were not measured.
    pub of_own_two: Option<Summary>,
    /// Of the ideal for this number of threads: no lock can be above 1.
    pub of_ideal: Option<Summary>,
    /// Jain's index.
    pub jain: Option<Summary>,
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

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What they were measured on.
    pub machine: Machine,
    /// How.
    pub options: Options,
    /// CPUs that the threads could use.
    pub cpus: usize,
    /// What a step of work took before the rounds; all contenders work by it.
    pub calibration: Calibration,
    /// What a step took after them: if it differs, so did the machine.
    pub calibration_after: Calibration,
    /// The figures.
    pub rows: Vec<Row>,
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// The most acquisitions a second that any lock allows: there is one critical section at a time, and each
/// thread that has a CPU needs it for the section and for thinking.
fn ideal(threads: usize, cpus: usize, critical_us: f64, think_us: f64) -> f64 {
    let one_at_a_time = 1e6 / critical_us;
    let by_cpu = threads.min(cpus) as f64 * 1e6 / (critical_us + think_us);
    one_at_a_time.min(by_cpu)
}

/// Measures.
///
/// # Errors
/// If the options make no sense, the preload library is missing, or a worker fails.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    options.check()?;
    let cpus = affinity::some(options.cpus)?;
    let machine = Machine::describe(&context.command);
    let locks = Contender::with_reference(&options.locks);
    if locks.iter().any(|lock| lock.is_ours()) {
        context.library()?;
    }
    let calibration = Calibration::measure();

    let points: Vec<(usize, Contender)> =
        options.threads.iter().flat_map(|&threads| locks.iter().map(move |&lock| (threads, lock))).collect();
    let mut samples: Vec<Vec<Option<Sample>>> = vec![Vec::with_capacity(options.rounds); points.len()];
    let name = |index: usize| format!("{}, {} threads", points[index].1, points[index].0);
    rounds(options.rounds, points.len(), name, |index| {
        let (threads, lock) = points[index];
        let turns = worker::turns::Task {
            threads,
            critical_steps: calibration.steps(options.critical_us),
            think_steps: calibration.steps(options.think_us),
            warm_up_ns: 0,
            duration_ns: (options.seconds * 1e9) as u64,
            drain_ns: PATIENCE.as_nanos() as u64,
            cpus: cpus.clone(),
            pin: options.pin,
            probe: false,
        };
        let kind = if lock == Contender::GlibcAdaptive { Kind::Adaptive } else { Kind::Default };
        let task = worker::Task::Handover(worker::handover::Task { kind, turns });
        let takes = Duration::from_secs_f64(options.seconds) + PATIENCE;
        let Answer::Handover(answer) = context.measure(Process::of(lock), task, takes)? else {
            return Err(Error::another_question(lock.name()));
        };
        samples[index].push(Sample::of(&answer));
        Ok(())
    })?;
    let calibration_after = Calibration::measure();
    let rows =
        rows(&points, &samples, |threads| ideal(threads, cpus.len(), options.critical_us, options.think_us));
    let targets = targets(&rows, options, cpus.len());
    Ok(Figures {
        machine,
        options: options.clone(),
        cpus: cpus.len(),
        calibration,
        calibration_after,
        rows,
        targets,
    })
}

fn rows(
    points: &[(usize, Contender)],
    samples: &[Vec<Option<Sample>>],
    ideal: impl Fn(usize) -> f64,
) -> Vec<Row> {
    let throughputs = |point: (usize, Contender)| -> Option<Vec<Option<f64>>> {
        let index = points.iter().position(|&other| other == point)?;
        Some(samples[index].iter().map(|sample| sample.map(|sample| sample.throughput)).collect())
    };
    let mut rows = Vec::new();
    for (&(threads, lock), samples) in points.iter().zip(samples) {
        let of = |figure: fn(&Sample) -> f64| Summary::of(samples.iter().flatten().map(figure));
        let Some(throughput) = of(|sample| sample.throughput) else { continue };
        let own = throughputs((threads, lock));
        let ratio_to =
            |other: (usize, Contender)| Summary::of_ratios(own.as_deref()?, throughputs(other).as_deref()?);
        rows.push(Row {
            threads,
            lock,
            throughput,
            of_glibc: ratio_to((threads, Contender::Glibc)),
            of_own_two: ratio_to((2, lock)),
            of_ideal: Summary::of(samples.iter().flatten().map(|sample| sample.throughput / ideal(threads))),
            jain: of(|sample| sample.jain),
            cpu_ns: of(|sample| sample.cpu_ns),
            voluntary: of(|sample| sample.voluntary),
            involuntary: of(|sample| sample.involuntary),
            others: Summary::of(samples.iter().flatten().filter_map(|sample| sample.others)),
            rounds: samples.iter().flatten().copied().collect(),
        });
    }
    rows
}

/// The targets are about critical sections of 2 microseconds, 1 microsecond in between, and 2 CPUs. Other
/// work has none.
fn targets(rows: &[Row], options: &Options, cpus: usize) -> Vec<Target> {
    if options.critical_us != 2.0 || options.think_us != 1.0 || cpus != 2 {
        return Vec::new();
    }
    let ours = |threads: usize, figure: fn(&Row) -> Option<Summary>| {
        rows.iter()
            .filter(move |row| row.threads == threads && row.lock.is_ours())
            .map(move |row| (row.lock.name(), figure(row)))
    };
    let targets = vec![
        Target::new("2 threads: throughput of glibc's", Limit::AtLeast(1.5), "", ours(2, |row| row.of_glibc)),
        Target::new(
            "64 threads: throughput of glibc's",
            Limit::AtLeast(1.0),
            "",
            ours(64, |row| row.of_glibc),
        ),
        Target::new(
            "64 threads: throughput of our own at 2",
            Limit::AtLeast(0.9),
            "",
            ours(64, |row| row.of_own_two),
        ),
    ];
    targets.into_iter().filter(|target| !target.results.is_empty()).collect()
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Handover"
    }

    fn method(&self) -> String {
        format!(
            "Threads that each lock, work {} microseconds, unlock, and work {} microseconds on their own, on {} \
             CPU{}{}. The work is a chain of multiplications whose length was measured once for all contenders \
             ({:.3} ns a step before the rounds, {:.3} ns after them). Everybody is called through pointers \
             from the dynamic linker, in processes of their own; that the lock excludes is checked. {} rounds of \
             {} s, in each of which every contender takes part once with every number of threads, in random order. \
             A figure is the median over the rounds, the spread their minimum and maximum; a ratio is taken inside \
             each round before its median over the rounds. The ideal is what no lock can exceed: one critical \
             section at a time (1/C), and no more threads at work than CPUs. \"Others\" is the share of the CPUs \
             that went to other processes meanwhile: where it is not near 0, the figures are worth less.",
            self.options.critical_us,
            self.options.think_us,
            self.cpus,
            if self.cpus == 1 { "" } else { "s" },
            if self.options.pin { ", each thread kept on one of them" } else { "" },
            self.calibration.ns_per_step,
            self.calibration_after.ns_per_step,
            self.options.rounds,
            self.options.seconds,
        )
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tables(&self) -> Vec<Table> {
        let mut table = Table::new(
            format!("Critical section {} us, think {} us", self.options.critical_us, self.options.think_us),
            2,
            &[
                "lock",
                "threads",
                "acquisitions/s",
                "spread",
                "of glibc",
                "spread",
                "of own 2",
                "of ideal",
                "Jain",
                "CPU ns/acq.",
                "sleeps/acq.",
                "preempted/acq.",
                "others",
            ],
        );
        for row in &self.rows {
            table.rows.push(vec![
                row.lock.to_string(),
                row.threads.to_string(),
                median(Some(row.throughput), 0),
                spread(Some(row.throughput), 0),
                median(row.of_glibc, 2),
                spread(row.of_glibc, 2),
                median(row.of_own_two, 2),
                median(row.of_ideal, 2),
                median(row.jain, 2),
                median(row.cpu_ns, 0),
                median(row.voluntary, 3),
                median(row.involuntary, 3),
                median(row.others, 2),
            ]);
        }
        vec![table]
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Contender = Contender::DEFAULT;

    fn throughput(throughput: f64) -> Option<Sample> {
        Some(Sample {
            acquisitions: 1.0,
            throughput,
            jain: 1.0,
            unserved: 0.0,
            cpu_ns: 1.0,
            voluntary: 0.0,
            involuntary: 0.0,
            others: None,
        })
    }

    fn made_up() -> Vec<Row> {
        let points = [(2, Contender::Glibc), (2, OURS), (64, Contender::Glibc), (64, OURS)];
        // The second round of three runs at half speed.
        let samples = [100.0, 160.0, 150.0, 136.0]
            .map(|rate| vec![throughput(rate), throughput(rate / 2.0), throughput(rate)]);
        rows(&points, &samples, |_| 200.0)
    }

    #[test]
    fn targets_follow_from_the_rows() {
        let targets = targets(&made_up(), &Options::default(), 2);
        let found: Vec<_> =
            targets.iter().map(|target| (target.results[0].value, target.results[0].reached)).collect();
        assert_eq!(found, [(1.6, true), (136.0 / 150.0, false), (0.85, false)]);
    }

    #[test]
    fn other_work_and_other_machines_have_no_targets() {
        let rows = made_up();
        assert!(targets(&rows, &Options { critical_us: 1.0, ..Options::default() }, 2).is_empty());
        assert!(targets(&rows, &Options::default(), 4).is_empty());
    }

    #[test]
    fn rounds_pair_up() {
        let rows = made_up();
        let own = rows[3].of_own_two.unwrap();
        assert_eq!((own.min, own.max), (0.85, 0.85));
        assert_eq!(rows[1].of_ideal.unwrap().median, 0.8);
    }

    #[test]
    fn the_ideal_knows_both_bounds() {
        // One section at a time: 2 microseconds each.
        assert_eq!(ideal(2, 2, 2.0, 1.0), 500_000.0);
        // Long thinking: the two CPUs are the bound.
        assert_eq!(ideal(64, 2, 1.0, 9.0), 200_000.0);
        // A single thread.
        assert_eq!(ideal(1, 2, 2.0, 2.0), 250_000.0);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let refused = |options: Options| options.check().unwrap_err().to_string();
        assert!(refused(Options { rounds: 0, ..Options::default() }).contains("round"));
        assert!(refused(Options { threads: vec![2, 0], ..Options::default() }).contains("--threads"));
        assert!(refused(Options { threads: vec![], ..Options::default() }).contains("--threads"));
        assert!(refused(Options { seconds: 0.0, ..Options::default() }).contains("--seconds"));
        assert!(refused(Options { seconds: f64::NAN, ..Options::default() }).contains("--seconds"));
        assert!(refused(Options { critical_us: -1.0, ..Options::default() }).contains("--critical"));
        assert!(refused(Options { think_us: f64::INFINITY, ..Options::default() }).contains("--think"));
        Options::default().check().unwrap();
    }
}
