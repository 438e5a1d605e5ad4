//! What to measure: the points, and how long at each.

use std::time::Duration;

use super::result::{Kind, Point};
use crate::error::{Error, Result};
use crate::work::Calibration;
use crate::worker::drive::{Inside, Subject, Task};

/// What to measure and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sorts of work; all if empty.
    pub kinds: Vec<Kind>,
    /// The locks that ours is compared with, and further ones of ours; everybody else's if empty.
    pub locks: Vec<String>,
    /// The lock of ours that the comparison is about; `poundlock` if not given.
    pub ours: Option<String>,
    /// Numbers of threads, for every kind; each kind's own if empty.
    pub threads: Vec<usize>,
    /// The grid's own.
    pub grid_threads: Vec<usize>,
    /// Those of the scenarios beside it; `lock-bench` has 32.
    pub scenario_threads: Vec<usize>,
    /// Microseconds of work inside the critical sections of the grid.
    pub critical_us: Vec<f64>,
    /// Microseconds of work between them.
    pub think_us: Vec<f64>,
    /// Rounds in which each lock is measured once at each point.
    pub rounds: usize,
    /// Seconds of a measurement with few threads; with many it is longer.
    pub seconds: f64,
    /// How many of the allowed CPUs the threads share; all if not given.
    pub cpus: Option<usize>,
    /// Whether each thread stays on one of them.
    pub pin: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kinds: Vec::new(),
            locks: Vec::new(),
            ours: None,
            threads: Vec::new(),
            grid_threads: vec![1, 2, 4, 8, 16, 64, 250],
            scenario_threads: vec![8, 64],
            critical_us: vec![0.0, 0.2, 2.0, 20.0],
            think_us: vec![0.0, 0.4, 1.0, 10.0],
            rounds: 3,
            seconds: 0.08,
            cpus: None,
            pin: false,
        }
    }
}

impl Options {
    /// Something of everything, in a few minutes.
    pub fn quick() -> Options {
        Options {
            grid_threads: vec![2, 8, 64, 250],
            scenario_threads: vec![8],
            critical_us: vec![0.2, 2.0],
            think_us: vec![0.0, 1.0],
            rounds: 2,
            seconds: 0.03,
            ..Options::default()
        }
    }

    /// # Errors
    /// If the options make no sense.
    pub(super) fn check(&self) -> Result<()> {
        let error = |message: &str| Err(Error::Options(message.to_owned()));
        if self.rounds == 0 {
            return error("at least one round is needed");
        }
        let threads = self.threads.iter().chain(&self.grid_threads).chain(&self.scenario_threads);
        if threads.into_iter().any(|threads| !(1..=10_000).contains(threads)) {
            return error("--threads must name numbers from 1 to 10000");
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return error("--seconds must lie above 0 and at most at 3600");
        }
        for (name, list) in [("--critical", &self.critical_us), ("--think", &self.think_us)] {
            if list.is_empty() {
                return error(&format!("{name} must name a duration"));
            }
            if list.iter().any(|us| !(0.0..=1e6).contains(us)) {
                return error(&format!("{name} must lie between 0 and 1000000 microseconds"));
            }
        }
        Ok(())
    }

    /// The points, each once.
    pub(super) fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for kind in Kind::ALL.into_iter().filter(|kind| self.kinds.is_empty() || self.kinds.contains(kind)) {
            match kind {
                Kind::Grid => points.extend(self.grid()),
                Kind::LockBench => points.extend(self.lock_bench()),
                _ => {
                    points.extend(self.threads_of(&self.scenario_threads).map(|n| self.scenario(kind, n)));
                }
            }
        }
        // A number that was named twice is still measured once.
        let mut names = std::collections::HashSet::new();
        points.retain(|point: &Point| names.insert(point.name.clone()));
        points
    }

    /// The numbers that were asked for, or else `own`.
    fn threads_of<'a>(&'a self, own: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
        if self.threads.is_empty() { own } else { &self.threads }.iter().copied()
    }

    fn point(&self, kind: Kind, threads: usize, critical_us: f64, think_us: f64) -> Point {
        let (throughput, latency) = lengths(kind, threads);
        let (seconds, latency_seconds) = (self.seconds * throughput, self.seconds * latency);
        Point { seconds, latency_seconds, ..Point::new(kind, threads, critical_us, think_us) }
    }

    fn grid(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for threads in self.threads_of(&self.grid_threads) {
            for &critical_us in &self.critical_us {
                points.extend(self.think_us.iter().map(|&think_us| Point {
                    name: format!("{}, {critical_us} us, think {think_us} us", count(threads)),
                    ..self.point(Kind::Grid, threads, critical_us, think_us)
                }));
            }
        }
        points
    }

    fn scenario(&self, kind: Kind, threads: usize) -> Point {
        let (critical_us, think_us) = match kind {
            Kind::Modal => (0.2, 1.0),
            Kind::SleepingHolder | Kind::Hogs => (2.0, 1.0),
            Kind::Buckets => (0.0, 0.4),
            Kind::Grid | Kind::LockBench => (0.0, 1.0),
        };
        let name = format!("{}, {}", kind.name(), count(threads));
        Point { name, ..self.point(kind, threads, critical_us, think_us) }
    }

    /// Contention from extreme to none, in the shape of the benchmark `lock-bench` of Rust's mutexes.
    fn lock_bench(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for threads in self.threads_of(&[32]) {
            let cases = [("extreme", 2), ("heavy", 64), ("light", 1000), ("no", 1_000_000)];
            points.extend(cases.map(|(contention, locks)| Point {
                name: format!("lock-bench, {contention} contention: {}, {locks} locks", count(threads)),
                locks: Some(locks),
                ..self.point(Kind::LockBench, threads, 0.0, 0.0)
            }));
        }
        points
    }
}

fn count(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
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

impl Point {
    /// Before the measurement begins.
    fn warm_up_seconds(&self) -> f64 {
        if self.operations.is_some() { 0.0 } else { (self.seconds * 0.2).clamp(0.005, 0.1) }
    }

    /// About how long a measurement takes, with the start of its process and its threads.
    pub(super) fn takes(&self) -> Duration {
        // Of those that spin some starve, and get a little time to come to their ends.
        let starving = if self.threads > 4 { 0.025 } else { 0.0 };
        let start = 0.02 + 0.0002 * self.threads as f64 + starving;
        let intervals = match self.kind {
            // Most locks are done long before the limit.
            Kind::LockBench => 0.4 * (self.seconds + self.latency_seconds),
            _ => self.seconds + self.latency_seconds,
        };
        Duration::from_secs_f64(start + self.warm_up_seconds() + intervals)
    }

    /// The most that a measurement may take before it counts as hung, but for a grace.
    pub(super) fn limit(&self) -> Duration {
        // A reading that finds that nobody ran is taken up to three times.
        Duration::from_secs_f64(3.0 * self.seconds + self.latency_seconds + 10.0)
    }

    /// What a worker is asked.
    pub(super) fn task(&self, lock: &str, calibration: &Calibration, cpus: &[usize], pin: bool) -> Task {
        let steps = calibration.steps(self.critical_us);
        let share = self.share.unwrap_or(0.0);
        let inside = match self.kind {
            Kind::Grid | Kind::Hogs => Inside::Work { steps },
            Kind::Modal => {
                let long_steps = calibration.steps(self.long_us.unwrap_or(0.0));
                Inside::Modal { steps, long_steps, share }
            }
            Kind::SleepingHolder => {
                let sleep_ns = (self.sleep_us.unwrap_or(0.0) * 1000.0) as u64;
                Inside::Sleep { steps, sleep_ns, share }
            }
            Kind::Buckets => Inside::Buckets {
                buckets: self.locks.unwrap_or(1),
                keys: self.keys.unwrap_or(1),
                exponent: self.exponent.unwrap_or(1.0),
            },
            Kind::LockBench => Inside::Increments {
                locks: self.locks.unwrap_or(1),
                operations: self.operations.unwrap_or(1),
            },
        };
        let ns = |seconds: f64| (seconds * 1e9) as u64;
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
    fn the_whole_grid_has_every_point_once() {
        let options = Options { kinds: vec![Kind::Grid], ..Options::default() };
        let points = options.points();
        assert_eq!(points.len(), 7 * 4 * 4);
        assert!(points.iter().all(|point| point.kind == Kind::Grid));
        let wanted = (16, 0.2, 10.0);
        let found =
            points.iter().filter(|point| (point.threads, point.critical_us, point.think_us) == wanted);
        assert_eq!(found.count(), 1);
        let twice = Options { threads: vec![2, 2], ..options };
        assert_eq!(twice.points().len(), 16);
    }

    #[test]
    fn every_scenario_is_there() {
        let points = Options::default().points();
        for kind in Kind::ALL {
            assert!(points.iter().any(|point| point.kind == kind), "{kind:?}");
        }
        let mut names: Vec<_> = points.iter().map(|point| &point.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), points.len(), "names are unique");
        let locks: Vec<_> =
            points.iter().filter(|point| point.kind == Kind::LockBench).map(|point| point.locks).collect();
        assert_eq!(locks, [Some(2), Some(64), Some(1000), Some(1_000_000)]);
    }

    #[test]
    fn fairness_is_measured_over_a_second() {
        let points = Options::default().points();
        let crowd = points.iter().filter(|point| point.kind == Kind::Grid && point.threads == 64);
        assert!(crowd.clone().count() == 16 && crowd.clone().all(|point| point.seconds >= 1.0));
    }

    #[test]
    fn a_full_run_takes_three_quarters_of_an_hour_and_a_quick_one_minutes() {
        // Ours and the fifteen others.
        let takes = |options: &Options| {
            let round: Duration = options.points().iter().map(Point::takes).sum();
            round.as_secs_f64() * (options.rounds * 16) as f64 / 60.0
        };
        assert!((20.0..=45.0).contains(&takes(&Options::default())), "{}", takes(&Options::default()));
        assert!((2.0..=4.0).contains(&takes(&Options::quick())), "{}", takes(&Options::quick()));
    }

    #[test]
    fn tasks_have_the_steps_of_their_microseconds() {
        let calibration = Calibration { ns_per_step: 2.0 };
        for point in Options::default().points() {
            let task = point.task("x", &calibration, &[0, 1], false);
            assert_eq!(task.think_steps as f64, point.think_us * 500.0);
            assert_eq!(task.hogs, point.kind == Kind::Hogs);
            assert_eq!(task.throughput_ns, (point.seconds * 1e9) as u64);
            match task.inside {
                Inside::Work { steps } => assert_eq!(steps as f64, point.critical_us * 500.0),
                Inside::Modal { steps, long_steps, share } => {
                    assert_eq!((steps, long_steps, share), (100, 100_000, 0.01));
                }
                Inside::Sleep { steps, sleep_ns, share } => {
                    assert_eq!((steps, sleep_ns, share), (1000, 100_000, 0.01));
                }
                Inside::Buckets { buckets, keys, exponent } => {
                    assert_eq!((buckets, keys, exponent), (100, 10_000, 0.99));
                }
                Inside::Increments { locks, operations } => {
                    assert_eq!((Some(locks), operations), (point.locks, 500_000));
                }
                other => panic!("{other:?} is no sort of work of the grid"),
            }
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let default = Options::default;
        for options in [
            Options { rounds: 0, ..default() },
            Options { threads: vec![0], ..default() },
            Options { threads: vec![2, 10_001], ..default() },
            Options { seconds: 0.0, ..default() },
            Options { seconds: f64::NAN, ..default() },
            Options { critical_us: vec![], ..default() },
            Options { critical_us: vec![-1.0], ..default() },
            Options { think_us: vec![f64::INFINITY], ..default() },
        ] {
            assert!(matches!(options.check(), Err(Error::Options(_))), "{options:?}");
        }
        default().check().unwrap();
        Options::quick().check().unwrap();
    }
}
