//! What the default mutex is to reach on simulated machines, and how far a run of points gets.

use poundlock_bench::report::Limit;
use poundlock_sim::experiment::Outcome;
use serde::Serialize;

/// The queue lock that most goals compare with.
const QUEUE: &str = "mcs";
/// The machine with a goal of its own.
const LARGEST: &str = "numaconnect-512";
/// Jain's index and the longest time without a turn need this much simulated time, in milliseconds.
pub(super) const LONG: f64 = 100.0;
/// A lock is thrifty to a point only if it gets this share of our throughput.
const THRIFTY_THROUGHPUT: f64 = 0.9;

/// Threads, and what they do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) threads: u32,
    pub(super) critical_us: f64,
    pub(super) think_us: f64,
}

impl Point {
    /// Whether the threads have more to do inside than one can do.
    fn is_contended(self) -> bool {
        f64::from(self.threads) * self.critical_us > self.critical_us + self.think_us
    }

    fn name(self) -> String {
        format!("{} threads, {} / {} us", self.threads, self.critical_us, self.think_us)
    }
}

/// A lock at a point.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Seen {
    /// Acquisitions.
    pub(super) thousands_a_second: f64,
    /// Of all threads, for an acquisition.
    pub(super) cpu_us: f64,
    pub(super) jain: f64,
    /// Cache lines' transfers for an acquisition.
    pub(super) transfers: f64,
    /// The longest time of any thread between two acquisitions.
    pub(super) longest_ms: f64,
}

impl Seen {
    /// Of a run of the grid.
    pub(super) fn of(outcome: &Outcome) -> Option<Seen> {
        Some(Seen {
            thousands_a_second: outcome.figure("thousands a second")?,
            cpu_us: outcome.figure("CPU time, us each")?,
            jain: outcome.figure("Jain's index")?,
            transfers: outcome.figure("transfers each")?,
            longest_ms: outcome.figure("longest without, ms")?,
        })
    }
}

/// All of a machine.
pub(super) struct Machine<'a> {
    pub(super) name: &'a str,
    pub(super) cpus: u32,
    /// How long each point was simulated.
    pub(super) ms: f64,
    /// Ours first.
    pub(super) locks: &'a [&'static str],
    /// For each point a figure of each lock.
    pub(super) points: Vec<(Point, Vec<Seen>)>,
}

/// A goal, and what was found.
#[derive(Debug, Serialize)]
pub(super) struct Goal {
    pub(super) about: String,
    pub(super) limit: Limit,
    /// What is left of it where it could be seen.
    pub(super) found: Option<Found>,
}

#[derive(Debug, Serialize)]
pub(super) struct Found {
    /// What the limit is for.
    pub(super) figure: f64,
    pub(super) verdict: &'static str,
    /// Of all points.
    pub(super) geometric_mean: f64,
    pub(super) worst: f64,
    pub(super) at: String,
    /// There.
    pub(super) ours: f64,
    /// There, if it is compared.
    pub(super) theirs: Option<(&'static str, f64)>,
    pub(super) points: usize,
}

/// What bounds a machine's throughput where there is a CPU for each thread: geometric means of the queue
/// lock's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Bounds {
    /// Of a lock whose changes of the owner take no time.
    pub(super) free_changes: f64,
    /// Of the best other lock at each point.
    pub(super) best_other: f64,
}

/// Ours and theirs at a point; without theirs, ours is the figure.
struct Pair {
    at: Point,
    ours: f64,
    theirs: Option<(&'static str, f64)>,
}

impl Pair {
    fn figure(&self) -> f64 {
        match self.theirs {
            None => self.ours,
            Some((_, theirs)) => self.ours / theirs,
        }
    }
}

/// What of the points the limit is for.
#[derive(Clone, Copy)]
enum Of {
    Worst,
    Mean,
}

fn geometric_mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0.0), |(sum, count), figure| (sum + figure.ln(), count + 1.0));
    f64::exp(sum / count)
}

fn goal(about: impl Into<String>, limit: Limit, of: Of, pairs: &[Pair]) -> Goal {
    let worse = |a: &&Pair, b: &&Pair| {
        let order = a.figure().total_cmp(&b.figure());
        if matches!(limit, Limit::AtMost(_)) { order.reverse() } else { order }
    };
    let found = pairs.iter().min_by(worse).map(|worst| {
        let mean = geometric_mean(pairs.iter().map(Pair::figure));
        let figure = match of {
            Of::Worst => worst.figure(),
            Of::Mean => mean,
        };
        Found {
            figure,
            verdict: limit.judges(figure, figure).word(),
            geometric_mean: mean,
            worst: worst.figure(),
            at: worst.at.name(),
            ours: worst.ours,
            theirs: worst.theirs,
            points: pairs.len(),
        }
    });
    Goal { about: about.into(), limit, found }
}

fn ours(at: Point, figure: f64) -> Pair {
    Pair { at, ours: figure, theirs: None }
}

impl Machine<'_> {
    /// The points with so many threads.
    fn points(&self, more_than_cpus: bool) -> impl Iterator<Item = (Point, &[Seen])> {
        let belongs = move |point: &Point| (point.threads > self.cpus) == more_than_cpus;
        self.points.iter().filter(move |(point, _)| belongs(point)).map(|(point, seen)| (*point, &seen[..]))
    }

    /// Throughput. That of a lock which nobody got counts as one acquisition, or ratios would be of no use.
    fn rate(&self, seen: &Seen) -> f64 {
        seen.thousands_a_second.max(1.0 / self.ms)
    }

    /// Throughput against that of a lock, where there is a CPU for each thread.
    fn against(&self, lock: &'static str) -> Vec<Pair> {
        let Some(index) = self.locks.iter().skip(1).position(|known| *known == lock) else {
            return Vec::new();
        };
        let pair = |(at, seen): (Point, &[Seen])| Pair {
            at,
            ours: self.rate(&seen[0]),
            theirs: Some((lock, self.rate(&seen[index + 1]))),
        };
        self.points(false).map(pair).collect()
    }

    /// What the goals of throughput can be held against, if the queue lock took part.
    pub(super) fn bounds(&self) -> Option<Bounds> {
        let queue = self.against(QUEUE);
        let theirs = |pair: &Pair| pair.theirs.map_or(f64::NAN, |(_, theirs)| theirs);
        let free = queue.iter().map(|pair| {
            let Point { threads, critical_us, think_us } = pair.at;
            let rate = (f64::from(threads) / (critical_us + think_us)).min(1.0 / critical_us);
            1000.0 * rate / theirs(pair)
        });
        let best = self.against_best(false);
        let best = best.iter().zip(&queue).map(|(best, queue)| theirs(best) / theirs(queue));
        (!queue.is_empty())
            .then(|| Bounds { free_changes: geometric_mean(free), best_other: geometric_mean(best) })
    }

    /// Throughput against its own with all CPUs, where threads are more.
    fn against_all_cpus(&self) -> Vec<Pair> {
        let all = |at: Point| {
            let whole = Point { threads: self.cpus, ..at };
            self.points.iter().find(|(point, _)| *point == whole).map(|(_, seen)| self.rate(&seen[0]))
        };
        let pair = |(at, seen): (Point, &[Seen])| {
            Some(Pair { at, ours: self.rate(&seen[0]), theirs: Some(("with all CPUs", all(at)?)) })
        };
        self.points(true).filter_map(pair).collect()
    }

    /// Throughput against that of the best other lock.
    fn against_best(&self, more_than_cpus: bool) -> Vec<Pair> {
        let pair = |(at, seen): (Point, &[Seen])| {
            let others = seen.iter().zip(self.locks).skip(1);
            let others = others.map(|(other, &lock)| (lock, self.rate(other)));
            let best = others.max_by(|a, b| a.1.total_cmp(&b.1))?;
            Some(Pair { at, ours: self.rate(&seen[0]), theirs: Some(best) })
        };
        self.points(more_than_cpus).filter_map(pair).collect()
    }

    /// CPU time against that of the thriftiest lock that is nearly as fast, which may be ours, where threads
    /// are more than CPUs.
    fn against_thriftiest(&self) -> Vec<Pair> {
        let pair = |(at, seen): (Point, &[Seen])| {
            let enough = THRIFTY_THROUGHPUT * self.rate(&seen[0]);
            let fast = seen.iter().zip(self.locks).filter(|(any, _)| self.rate(any) >= enough);
            let thriftiest = fast.min_by(|a, b| a.0.cpu_us.total_cmp(&b.0.cpu_us))?;
            Some(Pair { at, ours: seen[0].cpu_us, theirs: Some((*thriftiest.1, thriftiest.0.cpu_us)) })
        };
        self.points(true).filter_map(pair).collect()
    }

    /// All of them.
    pub(super) fn goals(&self) -> Vec<Goal> {
        use Limit::{AtLeast, AtMost};
        let mut goals = vec![
            goal("throughput of mcs's, worst point", AtLeast(0.95), Of::Worst, &self.against(QUEUE)),
            goal("throughput of mcs's, geometric mean", AtLeast(1.1), Of::Mean, &self.against(QUEUE)),
            goal("throughput of cna's, geometric mean", AtLeast(1.0), Of::Mean, &self.against("cna")),
            goal("throughput of cohort's, geometric mean", AtLeast(1.0), Of::Mean, &self.against("cohort")),
        ];
        let contended = self.points(false).filter(|(at, _)| at.is_contended());
        let transfers: Vec<_> = contended.map(|(at, seen)| ours(at, seen[0].transfers)).collect();
        goals.push(goal(
            "transfers an acquisition, contended, worst point",
            AtMost(8.0),
            Of::Worst,
            &transfers,
        ));
        let crowded = "more threads than CPUs";
        goals.push(goal(
            format!("{crowded}: throughput of its own with all CPUs, worst point"),
            AtLeast(0.9),
            Of::Worst,
            &self.against_all_cpus(),
        ));
        goals.push(goal(
            format!("{crowded}: throughput of the best other lock's, worst point"),
            AtLeast(1.0),
            Of::Worst,
            &self.against_best(true),
        ));
        goals.push(goal(
            format!(
                "{crowded}: CPU time of the thriftiest with {THRIFTY_THROUGHPUT} of our rate, worst point"
            ),
            AtMost(1.25),
            Of::Worst,
            &self.against_thriftiest(),
        ));
        let long = if self.ms >= LONG { &self.points[..] } else { &[] };
        let jain: Vec<_> = long.iter().map(|(at, seen)| ours(*at, seen[0].jain)).collect();
        goals.push(goal(
            format!("Jain's index over {} ms, worst point", self.ms),
            AtLeast(0.9),
            Of::Worst,
            &jain,
        ));
        let longest: Vec<_> = long.iter().map(|(at, seen)| ours(*at, seen[0].longest_ms)).collect();
        goals.push(goal("longest time of a thread without a turn, ms", AtMost(100.0), Of::Worst, &longest));
        if self.name == LARGEST {
            let point = Point { threads: self.cpus, critical_us: 1.0, think_us: 10.0 };
            let seen = self.points.iter().find(|(at, _)| *at == point).map(|(_, seen)| seen[0]);
            let of = |figure: fn(Seen) -> f64| seen.map(|seen| ours(point, figure(seen)));
            let rate = of(|seen| seen.thousands_a_second);
            goals.push(goal(
                format!("{}: thousands a second", point.name()),
                AtLeast(200.0),
                Of::Worst,
                rate.as_slice(),
            ));
            let cpu = of(|seen| seen.cpu_us);
            goals.push(goal(
                format!("{}: CPU time, us each", point.name()),
                AtMost(100.0),
                Of::Worst,
                cpu.as_slice(),
            ));
        }
        goals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(thousands_a_second: f64, cpu_us: f64) -> Seen {
        Seen { thousands_a_second, cpu_us, jain: 0.95, transfers: 6.0, longest_ms: 4.0 }
    }

    fn point(threads: u32, critical_us: f64) -> Point {
        Point { threads, critical_us, think_us: 10.0 }
    }

    const LOCKS: [&str; 3] = ["poundlock", "mcs", "glibc"];

    fn machine(points: Vec<(Point, Vec<Seen>)>) -> Machine<'static> {
        Machine { name: "small", cpus: 8, ms: 100.0, locks: &LOCKS, points }
    }

    #[track_caller]
    fn found<'a>(goals: &'a [Goal], about: &str) -> &'a Found {
        let goal = goals.iter().find(|goal| goal.about.contains(about)).unwrap();
        goal.found.as_ref().unwrap_or_else(|| panic!("{goal:?}"))
    }

    #[test]
    fn goals_follow_from_the_points() {
        let machine = machine(vec![
            (point(4, 1.0), vec![seen(90.0, 1.0), seen(100.0, 1.0), seen(10.0, 1.0)]),
            (point(8, 1.0), vec![seen(160.0, 1.0), seen(100.0, 1.0), seen(10.0, 1.0)]),
            (point(16, 1.0), vec![seen(120.0, 6.0), seen(10.0, 1.0), seen(150.0, 4.0)]),
        ]);
        let goals = machine.goals();
        let worst = found(&goals, "mcs's, worst");
        assert_eq!((worst.figure, worst.verdict, &*worst.at), (0.9, "missed", "4 threads, 1 / 10 us"));
        // Four and eight threads a period of eleven microseconds, and a hundred thousand a second.
        let bounds = machine.bounds().unwrap();
        assert!((bounds.free_changes - 32f64.sqrt() / 1.1).abs() < 1e-9, "{bounds:?}");
        assert!((bounds.best_other - 1.0).abs() < 1e-9, "{bounds:?}");
        let mean = found(&goals, "mcs's, geometric");
        assert!((mean.figure - 1.2).abs() < 1e-9 && mean.verdict == "reached", "{mean:?}");
        let own = found(&goals, "its own");
        assert_eq!((own.figure, own.theirs, own.verdict), (0.75, Some(("with all CPUs", 160.0)), "missed"));
        let best = found(&goals, "best other");
        assert_eq!((best.figure, best.theirs), (0.8, Some(("glibc", 150.0))));
        // The thriftiest has no throughput to speak of.
        let cpu = found(&goals, "thriftiest");
        assert_eq!((cpu.figure, cpu.theirs, cpu.verdict), (1.5, Some(("glibc", 4.0)), "missed"));
        assert_eq!(cpu.points, 1);
        assert_eq!(found(&goals, "Jain").verdict, "reached");
        assert_eq!(found(&goals, "Jain").points, 3);
        // Sixteen threads are too many, and the others have less to do inside than one can do.
        assert!(goals.iter().any(|goal| goal.about.contains("transfers") && goal.found.is_none()));
    }

    #[test]
    fn a_lock_that_nobody_gets_and_one_that_wastes_nothing() {
        let none = Seen { jain: 0.0, ..seen(0.0, 5_000.0) };
        let goals = machine(vec![
            (point(8, 1.0), vec![none, seen(100.0, 1.0), none]),
            (point(16, 1.0), vec![seen(200.0, 3.0), seen(100.0, 1.0), none]),
            (point(32, 1.0), vec![none, none, none]),
        ])
        .goals();
        // One acquisition in 100 ms.
        assert_eq!(found(&goals, "mcs's, worst").ours, 0.01);
        assert_eq!(found(&goals, "its own").worst, 1.0);
        assert!(found(&goals, "its own").geometric_mean > 1.0);
        let cpu = found(&goals, "thriftiest");
        assert_eq!((cpu.figure, cpu.theirs, cpu.verdict), (1.0, Some(("poundlock", 3.0)), "reached"));
    }

    #[test]
    fn what_was_not_simulated_has_no_verdict() {
        let mut machine = machine(vec![(point(4, 5.0), vec![seen(90.0, 1.0); 3])]);
        machine.ms = 20.0;
        let goals = machine.goals();
        for about in ["cna's", "its own", "best other", "thriftiest", "Jain", "longest"] {
            let goal = goals.iter().find(|goal| goal.about.contains(about)).unwrap();
            assert!(goal.found.is_none(), "{goal:?}");
        }
        assert_eq!(found(&goals, "transfers").points, 1);
        assert_eq!(found(&goals, "mcs's, worst").figure, 1.0);
    }
}
