//! What to measure: the points, and how long at each.

use std::time::Duration;

use clap::ValueEnum;

use super::result::{Kind, Point};
use crate::error::{Error, Result};
use crate::plan::{check_run, check_threads, check_us, ns};
use crate::work::Calibration;
use crate::worker::drive::{Inside, Subject, Task};

/// What to measure and for how long. The defaults are those of a full run, near three quarters of an hour.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Something of everything, in a few minutes; other options change it
    #[arg(long)]
    pub quick: bool,
    /// Only these sorts of work
    #[arg(long, value_name = "KIND,..", value_delimiter = ',', value_enum)]
    pub kinds: Vec<Kind>,
    /// Compare with these locks, further ones of ours among them [default: all that are not ours and can be
    /// had]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// The lock of ours that is compared [default: poundlock]
    #[arg(long, value_name = "NAME")]
    pub ours: Option<String>,
    /// Numbers of threads [default: 1,2,4,8,16,64,250 for the grid, and each other kind's own]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Microseconds of work inside the critical sections of the grid [default: 0,0.2,2,20]
    #[arg(long = "critical", value_name = "US,..", value_delimiter = ',')]
    pub critical_us: Vec<f64>,
    /// Microseconds of work between two critical sections of a thread of the grid [default: 0,0.4,1,10]
    #[arg(long = "think", value_name = "US,..", value_delimiter = ',')]
    pub think_us: Vec<f64>,
    /// Rounds in which each lock is measured once at each point [default: 3]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Seconds of a measurement with few threads; it is longer with many [default: 0.08]
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Use only that many of the allowed CPUs
    #[arg(long, value_name = "N")]
    pub cpus: Option<usize>,
    /// Keep each thread on one CPU, in turn
    #[arg(long)]
    pub pin: bool,
}

/// `modal`: microseconds of a long section. `sleeping-holder`: microseconds that the holder sleeps. Both: the
/// share of such sections.
const LONG_US: f64 = 200.0;
const SLEEP_US: f64 = 100.0;
const SHARE: f64 = 0.01;
/// `buckets`: different keys, and the exponent of their Zipf distribution: three in ten operations are on the
/// ten most popular of them.
const BUCKETS: usize = 100;
const KEYS: usize = 10_000;
const EXPONENT: f64 = 0.99;
/// `lock-bench`: operations of each thread, so many that none makes all of its own in a time slice: then
/// there would be no contention.
const OPERATIONS: u64 = 500_000;

impl Options {
    fn or<T: Copy>(&self, named: &[T], full: &[T], quick: &[T]) -> Vec<T> {
        if !named.is_empty() {
            named
        } else if self.quick {
            quick
        } else {
            full
        }
        .to_vec()
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 2 } else { 3 })
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 0.03 } else { 0.08 })
    }

    fn has(&self, kind: Kind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// # Errors
    /// If the options make no sense.
    pub(super) fn check(&self) -> Result<()> {
        check_run(self.rounds(), self.seconds(), 3600.0)?;
        check_threads(&self.or(&self.threads, &[1], &[1]), 1)?;
        check_us("--critical", &self.or(&self.critical_us, &[0.0], &[0.0]))?;
        check_us("--think", &self.or(&self.think_us, &[0.0], &[0.0]))?;
        if !(self.has(Kind::Grid) || (self.critical_us.is_empty() && self.think_us.is_empty())) {
            let message = "--critical and --think are about the kind grid, which is left out";
            return Err(Error::Options(message.to_owned()));
        }
        Ok(())
    }

    /// The points, each once.
    pub(super) fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &kind in Kind::value_variants().iter().filter(|kind| self.has(**kind)) {
            let (full, quick): (&[usize], &[usize]) = match kind {
                Kind::Grid => (&[1, 2, 4, 8, 16, 64, 250], &[2, 8, 64, 250]),
                Kind::LockBench => (&[32], &[32]),
                _ => (&[8, 64], &[8]),
            };
            for threads in self.or(&self.threads, full, quick) {
                let point =
                    |critical_us, think_us| Point::new(kind, threads, critical_us, think_us, self.seconds());
                match kind {
                    Kind::Grid => {
                        let think = self.or(&self.think_us, &[0.0, 0.4, 1.0, 10.0], &[0.0, 1.0]);
                        for critical in self.or(&self.critical_us, &[0.0, 0.2, 2.0, 20.0], &[0.2, 2.0]) {
                            points.extend(think.iter().map(|&think| point(critical, think)));
                        }
                    }
                    Kind::Modal => points.push(point(0.2, 1.0)),
                    Kind::SleepingHolder | Kind::Hogs => points.push(point(2.0, 1.0)),
                    Kind::Buckets => points.push(point(0.0, 0.4)),
                    // In the shape of the benchmark `lock-bench` of Rust's mutexes.
                    Kind::LockBench => {
                        let cases = [("extreme", 2), ("heavy", 64), ("light", 1000), ("no", 1_000_000)];
                        points.extend(cases.map(|(contention, locks)| {
                            let point = point(0.0, 0.0);
                            let name = point.name.replace(", ", &format!(", {contention} contention: "));
                            Point { name: format!("{name}, {locks} locks"), locks, ..point }
                        }));
                    }
                }
            }
        }
        // A number that was named twice is still measured once.
        let mut names = std::collections::HashSet::new();
        points.retain(|point: &Point| names.insert(point.name.clone()));
        points
    }
}

/// How many times [`Options::seconds`] the two intervals last. With many threads the scheduler's time slices
/// need longer to even out. With 64 of them it is a second, by default: that is over which we ask for
/// fairness.
const fn lengths(kind: Kind, threads: usize) -> (f64, f64) {
    match (kind, threads) {
        // The most that it may take: a lock with which nobody starves is done much sooner.
        (Kind::LockBench, _) => (10.0, 5.0),
        (Kind::Grid, ..=8) => (1.0, 0.5),
        (Kind::Grid, ..=32) => (2.0, 1.0),
        (Kind::Grid, ..=100) => (12.5, 2.0),
        (Kind::Grid, _) => (3.0, 2.0),
        // What is rare is to happen often enough.
        (_, ..=32) => (3.0, 2.0),
        (_, _) => (4.0, 2.0),
    }
}

fn count(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

impl Point {
    /// Work of a kind, whose short measurements take `seconds`.
    pub fn new(kind: Kind, threads: usize, critical_us: f64, think_us: f64, seconds: f64) -> Point {
        let (throughput, latency) = lengths(kind, threads);
        let name = match kind {
            Kind::Grid => format!("{}, {critical_us} us, think {think_us} us", count(threads)),
            _ => format!("{}, {}", kind.name(), count(threads)),
        };
        let locks = if kind == Kind::Buckets { BUCKETS } else { 1 };
        let (seconds, latency_seconds) = (seconds * throughput, seconds * latency);
        Point { kind, name, threads, critical_us, think_us, seconds, latency_seconds, locks }
    }

    /// What the threads do, in words.
    pub(crate) fn work(&self) -> String {
        let work = format!("section {} µs, think time {} µs", self.critical_us, self.think_us);
        let share = SHARE * 100.0;
        let what = match self.kind {
            Kind::Grid | Kind::Hogs => work,
            Kind::Modal => format!("{work}, {LONG_US} µs in {share} % of the sections"),
            Kind::SleepingHolder => {
                format!("{work}, the holder sleeps {SLEEP_US} µs in {share} % of the sections")
            }
            Kind::Buckets => format!(
                "think time {} µs, {} locks, {KEYS} keys, Zipf exponent {EXPONENT}",
                self.think_us, self.locks
            ),
            Kind::LockBench => format!("{} locks, {OPERATIONS} operations a thread", self.locks),
        };
        format!("{}, {what}", count(self.threads))
    }

    /// Before the measurement begins.
    fn warm_up_seconds(&self) -> f64 {
        if self.kind == Kind::LockBench { 0.0 } else { (self.seconds * 0.2).clamp(0.005, 0.1) }
    }

    /// About how long a measurement takes, with the start of its process and its threads.
    pub(super) fn takes(&self) -> Duration {
        // Of those that spin some starve, and get a little time to come to their ends.
        let starving = if self.threads > 4 { 0.025 } else { 0.0 };
        let start = 0.02 + 0.0002 * self.threads as f64 + starving;
        // Most locks are done with `lock-bench` long before the limit.
        let share = if self.kind == Kind::LockBench { 0.4 } else { 1.0 };
        let intervals = share * (self.seconds + self.latency_seconds);
        Duration::from_secs_f64(start + self.warm_up_seconds() + intervals)
    }

    /// The most that a measurement may take before it counts as hung, but for a grace.
    pub(super) fn limit(&self) -> Duration {
        // A reading that finds that nobody ran is taken up to three times.
        Duration::from_secs_f64(3.0 * self.seconds + self.latency_seconds + 10.0)
    }

    /// What a worker is asked.
    pub(super) fn task(&self, lock: &str, calibration: &Calibration, cpus: &[usize], pin: bool) -> Task {
        let (steps, share) = (calibration.steps(self.critical_us), SHARE);
        let inside = match self.kind {
            Kind::Grid | Kind::Hogs => Inside::Work { steps },
            Kind::Modal => Inside::Modal { steps, long_steps: calibration.steps(LONG_US), share },
            Kind::SleepingHolder => Inside::Sleep { steps, sleep_ns: (SLEEP_US * 1000.0) as u64, share },
            Kind::Buckets => Inside::Buckets { buckets: self.locks, keys: KEYS, exponent: EXPONENT },
            Kind::LockBench => Inside::Increments { locks: self.locks, operations: OPERATIONS },
        };
        Task {
            lock: Subject::Peer(lock.to_owned().into()),
            threads: self.threads,
            inside,
            think_steps: calibration.steps(self.think_us),
            vary: true,
            warm_up_ns: ns(self.warm_up_seconds()),
            throughput_ns: ns(self.seconds),
            latency_ns: ns(self.latency_seconds),
            cpus: cpus.to_vec(),
            pin,
            hogs: self.kind == Kind::Hogs,
            drain_ns: None,
            finish: false,
            probe: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_there_once_under_a_name_of_its_own() {
        let points = Options::default().points();
        let times = |wanted: Kind| points.iter().filter(|point| point.kind == wanted).count();
        let each: Vec<_> = Kind::value_variants().iter().map(|kind| times(*kind)).collect();
        assert_eq!(each, [7 * 4 * 4, 2, 2, 2, 2, 4]);
        let names: std::collections::HashSet<_> = points.iter().map(|point| &point.name).collect();
        assert_eq!(names.len(), points.len());
        let wanted = (Kind::Grid, 16, 0.2, 10.0);
        let work = |point: &&Point| (point.kind, point.threads, point.critical_us, point.think_us) == wanted;
        assert_eq!(points.iter().filter(work).count(), 1);
        let twice = Options { kinds: vec![Kind::Grid], threads: vec![2, 2], ..Options::default() };
        assert_eq!(twice.points().len(), 16);
        assert!(names.contains(&"lock-bench, no contention: 32 threads, 1000000 locks".to_owned()));
        // Fairness is measured over a second.
        let crowd = points.iter().filter(|point| point.kind == Kind::Grid && point.threads == 64);
        assert!(crowd.clone().count() == 16 && crowd.clone().all(|point| point.seconds >= 1.0));
    }

    #[test]
    fn a_full_run_takes_three_quarters_of_an_hour_and_a_quick_one_minutes() {
        // Ours and the fifteen others.
        let takes = |quick| {
            let options = Options { quick, ..Options::default() };
            let round: Duration = options.points().iter().map(Point::takes).sum();
            round.as_secs_f64() * (options.rounds() * 16) as f64 / 60.0
        };
        assert!((20.0..=45.0).contains(&takes(false)), "{}", takes(false));
        assert!((2.0..=4.0).contains(&takes(true)), "{}", takes(true));
    }

    #[test]
    fn tasks_have_the_steps_of_their_microseconds() {
        let calibration = Calibration { ns_per_step: 2.0 };
        for point in Options::default().points() {
            let task = point.task("x", &calibration, &[0, 1], false);
            assert_eq!(task.think_steps as f64, point.think_us * 500.0);
            assert_eq!(task.hogs, point.kind == Kind::Hogs);
            assert_eq!(task.throughput_ns, (point.seconds * 1e9) as u64);
            let inside = format!("{:?}", task.inside);
            let expected = match point.kind {
                Kind::Grid | Kind::Hogs => {
                    format!("Work {{ steps: {} }}", (point.critical_us * 500.0) as u64)
                }
                Kind::Modal => "Modal { steps: 100, long_steps: 100000, share: 0.01 }".to_owned(),
                Kind::SleepingHolder => "Sleep { steps: 1000, sleep_ns: 100000, share: 0.01 }".to_owned(),
                Kind::Buckets => "Buckets { buckets: 100, keys: 10000, exponent: 0.99 }".to_owned(),
                Kind::LockBench => format!("Increments {{ locks: {}, operations: 500000 }}", point.locks),
            };
            assert_eq!(inside, expected);
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let default = Options::default;
        for options in [
            Options { rounds: Some(0), ..default() },
            Options { threads: vec![2, 10_001], ..default() },
            Options { seconds: Some(f64::NAN), ..default() },
            Options { critical_us: vec![-1.0], ..default() },
            Options { think_us: vec![f64::INFINITY], ..default() },
            Options { kinds: vec![Kind::Hogs], think_us: vec![1.0], ..default() },
        ] {
            assert!(matches!(options.check(), Err(Error::Options(_))), "{options:?}");
        }
        default().check().unwrap();
        Options { quick: true, ..default() }.check().unwrap();
    }
}
