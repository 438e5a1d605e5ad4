//! What the samples of a run say: medians and spreads, ratios against each and against the best of the
//! others, targets.
//!
//! Ratios are taken inside a round and the median over the rounds, as everywhere ([`Summary::of_ratios`]).
//! The best of the others at a point is the one with the largest median throughput there; with the fewest
//! rounds it is therefore the luckiest as well, which errs to our disadvantage.

use super::result::{Directory, Floors, Kind, Measured, Outcome, Point, Run, Sample};
use crate::error::{Error, Result};
use crate::report::Limit;
use crate::stats::Summary;

/// The contender that does nothing: what the driver costs. It is nobody's competitor.
pub const EMPTY: &str = "empty";
/// The C library's default, with which waits are compared.
const GLIBC: &str = "glibc";

/// The numbers of threads that targets are about.
const MANY_THREADS: usize = 250;
const TWO_THREADS: usize = 2;
const WAIT_THREADS: usize = 64;
/// Seconds over which threads are to get equal shares; in less some may not even have run.
const FAIR_SECONDS: f64 = 1.0;
/// The Jain's index that is fair enough.
pub const FAIR: f64 = 0.9;
/// No point is to lie below, of the best peer's throughput there.
pub const CLOSE: f64 = 0.9;
/// A peer is thrifty to the point only if it gets this share of our throughput.
const THRIFTY_THROUGHPUT: f64 = 0.9;

/// A figure of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Acquisitions a second.
    Throughput,
    /// CPU nanoseconds for each acquisition.
    Cpu,
    /// Half of the waits are no longer, in nanoseconds.
    P50,
    /// 99 of 100 waits are no longer.
    P99,
    /// 999 of 1000 waits are no longer.
    P999,
    /// The longest wait.
    Max,
    /// Jain's index.
    Jain,
    /// Times a thread was made to give up its CPU, for each acquisition.
    Involuntary,
    /// Times a thread gave up its CPU, for each acquisition.
    Voluntary,
    /// The share of the CPUs that went to other processes.
    Others,
}

impl Figure {
    /// The figure of a measurement; `None` where there is none: nothing can be said of each of no
    /// acquisitions.
    pub fn of(self, measured: &Measured) -> Option<f64> {
        let each = |count: u64| count as f64 / measured.operations as f64;
        let waited = |ns: u64| (measured.wait.count > 0).then_some(ns as f64);
        let value = match self {
            Figure::Throughput => measured.throughput(),
            Figure::Cpu => measured.cpu_ns_per_operation(),
            Figure::P50 => waited(measured.wait.p50)?,
            Figure::P99 => waited(measured.wait.p99)?,
            Figure::P999 => waited(measured.wait.p999)?,
            Figure::Max => waited(measured.wait.max)?,
            Figure::Jain => measured.jain,
            Figure::Involuntary => each(measured.involuntary),
            Figure::Voluntary => each(measured.voluntary),
            Figure::Others => measured.others?,
        };
        value.is_finite().then_some(value)
    }
}

/// A run with its measurements in their places.
#[derive(Clone, Debug)]
pub struct Results {
    /// What was to be measured.
    pub run: Run,
    /// What no lock can undercut, if that was measured.
    pub floors: Option<Floors>,
    /// By point, lock and round.
    outcomes: Vec<Option<Outcome>>,
}

/// A measurement that gave no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The point's name.
    pub point: &'a str,
    /// The lock's name.
    pub lock: &'a str,
    /// The round, from 0.
    pub round: usize,
    /// Why, in a line.
    pub why: &'a str,
}

/// Our lock against another at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Versus {
    /// The point, as an index into [`Run::points`].
    pub point: usize,
    /// The other, as an index into [`Run::peers`].
    pub peer: usize,
    /// Our figure as a multiple of the other's, inside each round.
    pub ratio: Summary,
}

/// A lock against the best of all others at each point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The geometric mean.
    pub mean: f64,
    /// The smallest.
    pub worst: f64,
    /// At how many points it lies below [`CLOSE`].
    pub behind: usize,
    /// At how many there is a figure.
    pub points: usize,
}

/// Ratios at many points as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// The geometric mean of the points' medians.
    pub mean: f64,
    /// The smallest and the largest geometric mean of a round that has every point; `None` if no round has.
    pub spread: Option<(f64, f64)>,
    /// The points.
    pub points: Vec<Versus>,
}

/// A figure to reach, and what was reached.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What is compared with what.
    pub figure: String,
    /// What it is to be.
    pub limit: Limit,
    /// What it is; `None` if the run did not measure it.
    pub value: Option<f64>,
    /// The smallest and the largest over the rounds.
    pub spread: Option<(f64, f64)>,
    /// Where that was, or against whom.
    pub at: String,
    /// How many points, or peers, it was the worst or the mean of, and how many of them miss the limit.
    pub of: usize,
    /// How many of them miss the limit by themselves.
    pub short: usize,
}

impl Verdict {
    /// Whether the limit is reached; `None` if the run did not measure it.
    pub fn reached(&self) -> Option<bool> {
        self.value.map(|value| self.limit.reached_by(value))
    }
}

impl Results {
    /// Reads a directory.
    ///
    /// # Errors
    /// If it holds no results, damaged ones, or files of different runs.
    pub fn read(directory: &Directory) -> Result<Results> {
        let (run, floors, samples) = (directory.run()?, directory.floors()?, directory.samples()?);
        Self::of(run, floors, samples)
            .map_err(|what| Error::Options(format!("{}: {what}", directory.path().display())))
    }

    /// Puts samples into their places; of two for one place the later counts.
    ///
    /// # Errors
    /// If a sample has no place in the run, or if the run contradicts itself; a line says what is wrong.
    pub fn of(
        run: Run,
        floors: Option<Floors>,
        samples: Vec<Sample>,
    ) -> std::result::Result<Results, String> {
        for (index, peer) in run.peers.iter().enumerate() {
            if run.peers[..index].iter().any(|earlier| earlier.name == peer.name) {
                return Err(format!("run.json lists the lock '{}' twice", peer.name));
            }
        }
        if !run.peers.iter().any(|peer| peer.name == run.ours) {
            return Err(format!("run.json is about the lock '{}', which it does not list", run.ours));
        }
        for point in &run.points {
            let times = [point.critical_us, point.think_us];
            if point.threads == 0 || times.iter().any(|us| !us.is_finite() || *us < 0.0) {
                return Err(format!("run.json: the point '{}' makes no sense", point.name));
            }
        }
        // A file of another's making may ask for anything; this is far more than any run takes.
        let places = run.points.len().checked_mul(run.peers.len()).and_then(|n| n.checked_mul(run.rounds));
        let Some(places) = places.filter(|&places| places <= 10_000_000) else {
            return Err("run.json asks for more measurements than there can be".to_owned());
        };
        let mut results = Results { run, floors, outcomes: vec![None; places] };
        for sample in samples {
            let place = results
                .place_of(&sample)
                .map_err(|what| format!("samples.jsonl {what}: these files are not of one run"))?;
            if let Outcome::Measured(measured) = &sample.outcome {
                let sound =
                    measured.seconds.is_finite() && measured.seconds > 0.0 && measured.jain.is_finite();
                if !sound {
                    let Sample { point, lock, round, .. } = &sample;
                    return Err(format!(
                        "samples.jsonl: nonsense of '{lock}' at point {point} in round {round}"
                    ));
                }
            }
            results.outcomes[place] = Some(sample.outcome);
        }
        Ok(results)
    }

    fn place_of(&self, sample: &Sample) -> std::result::Result<usize, String> {
        let Run { points, peers, rounds, .. } = &self.run;
        if sample.point >= points.len() {
            return Err(format!("has point {}, and run.json has {} points", sample.point, points.len()));
        }
        let Some(peer) = peers.iter().position(|peer| peer.name == sample.lock) else {
            return Err(format!("has the lock '{}', and run.json has not", sample.lock));
        };
        if sample.round >= *rounds {
            return Err(format!("has round {}, and run.json has {rounds} rounds", sample.round));
        }
        Ok(self.place(sample.point, peer, sample.round))
    }

    fn place(&self, point: usize, peer: usize, round: usize) -> usize {
        (point * self.run.peers.len() + peer) * self.run.rounds + round
    }

    /// The outcome of a measurement; `None` if it was not made.
    pub fn outcome(&self, point: usize, peer: usize, round: usize) -> Option<&Outcome> {
        self.outcomes[self.place(point, peer, round)].as_ref()
    }

    /// Our lock, as an index into [`Run::peers`].
    pub fn ours(&self) -> usize {
        self.find(&self.run.ours).unwrap_or(0)
    }

    /// The lock of that name, as an index into [`Run::peers`].
    pub fn find(&self, name: &str) -> Option<usize> {
        self.run.peers.iter().position(|peer| peer.name == name)
    }

    /// The locks that ours is compared with, as indices into [`Run::peers`].
    pub fn competitors(&self) -> impl Iterator<Item = usize> + '_ {
        let peers = self.run.peers.iter().enumerate();
        peers.filter(|(_, peer)| !peer.ours && peer.name != EMPTY).map(|(index, _)| index)
    }

    /// The points of a kind, as indices into [`Run::points`].
    pub fn points(&self, kind: Kind) -> impl Iterator<Item = usize> + '_ {
        let points = self.run.points.iter().enumerate();
        points.filter(move |(_, point)| point.kind == kind).map(|(index, _)| index)
    }

    /// A figure of a lock at a point in each round.
    pub fn rounds(&self, point: usize, peer: usize, figure: Figure) -> Vec<Option<f64>> {
        let measured = |round| match self.outcome(point, peer, round)? {
            Outcome::Measured(measured) => figure.of(measured),
            Outcome::Failed { .. } => None,
        };
        (0..self.run.rounds).map(measured).collect()
    }

    /// A figure of a lock at a point, over the rounds.
    pub fn summary(&self, point: usize, peer: usize, figure: Figure) -> Option<Summary> {
        Summary::of(self.rounds(point, peer, figure).into_iter().flatten())
    }

    /// A figure of ours as a multiple of a peer's.
    pub fn versus(&self, point: usize, peer: usize, figure: Figure) -> Option<Versus> {
        let ratio = ratios(&self.rounds(point, self.ours(), figure), &self.rounds(point, peer, figure))?;
        Some(Versus { point, peer, ratio })
    }

    /// The competitor with the largest median throughput at a point.
    pub fn best(&self, point: usize) -> Option<usize> {
        self.best_of(point, self.competitors())
    }

    /// The same among those that are as fair as ours there, or have a Jain's index of [`FAIR`].
    pub fn best_of_the_fair(&self, point: usize) -> Option<usize> {
        let jain = |peer| Some(self.summary(point, peer, Figure::Jain)?.median);
        let enough = jain(self.ours())?.min(FAIR);
        self.best_of(point, self.competitors().filter(|&peer| jain(peer).is_some_and(|jain| jain >= enough)))
    }

    fn best_of(&self, point: usize, peers: impl Iterator<Item = usize>) -> Option<usize> {
        let throughputs =
            peers.filter_map(|peer| Some((peer, self.summary(point, peer, Figure::Throughput)?.median)));
        throughputs.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(peer, _)| peer)
    }

    /// Our throughput as a multiple of the best competitor's.
    pub fn against_best(&self, point: usize) -> Option<Versus> {
        self.versus(point, self.best(point)?, Figure::Throughput)
    }

    /// Our CPU time for an acquisition as a multiple of that of the thriftiest competitor that is nearly as
    /// fast.
    pub fn against_thriftiest(&self, point: usize) -> Option<Versus> {
        let enough = self.summary(point, self.ours(), Figure::Throughput)?.median * THRIFTY_THROUGHPUT;
        let median = |peer, figure| Some(self.summary(point, peer, figure)?.median);
        let thriftiest = self
            .competitors()
            .filter(|&peer| median(peer, Figure::Throughput).is_some_and(|throughput| throughput >= enough))
            .filter_map(|peer| Some((peer, median(peer, Figure::Cpu)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.versus(point, thriftiest.0, Figure::Cpu)
    }

    /// Our throughput as a multiple of the best competitor's at each point of the grid.
    pub fn grid_against_best(&self) -> Option<Together> {
        let versus = self.points(Kind::Grid).filter_map(|point| self.against_best(point)).collect();
        self.together(versus, Figure::Throughput)
    }

    /// The same of the best competitor that is as fair.
    pub fn grid_against_the_fair(&self) -> Option<Together> {
        let fair = |point| self.versus(point, self.best_of_the_fair(point)?, Figure::Throughput);
        self.together(self.points(Kind::Grid).filter_map(fair).collect(), Figure::Throughput)
    }

    /// Our throughput as a multiple of a peer's over the grid.
    pub fn grid_against(&self, peer: usize) -> Option<Together> {
        let points = self.points(Kind::Grid);
        let versus = points.filter_map(|point| self.versus(point, peer, Figure::Throughput)).collect();
        self.together(versus, Figure::Throughput)
    }

    /// A lock over the grid as ours is judged: its median throughput at each point as a multiple of the best
    /// median of the others there, among ours and its competitors. Points where it or all others have no
    /// figure are left out.
    pub fn standing(&self, peer: usize) -> Option<Standing> {
        let throughput = |point, peer| Some(self.summary(point, peer, Figure::Throughput)?.median);
        let others = || self.competitors().chain([self.ours()]).filter(|&other| other != peer);
        let ratios: Vec<f64> = self
            .points(Kind::Grid)
            .filter_map(|point| {
                let best =
                    others().filter_map(|other| throughput(point, other)).max_by(|a, b| a.total_cmp(b));
                ratio(throughput(point, peer)?, best?)
            })
            .collect();
        Some(Standing {
            mean: geometric_mean(ratios.iter().copied())?,
            worst: ratios.iter().copied().min_by(|a, b| a.total_cmp(b))?,
            behind: ratios.iter().filter(|&&ratio| ratio < CLOSE).count(),
            points: ratios.len(),
        })
    }

    fn together(&self, points: Vec<Versus>, figure: Figure) -> Option<Together> {
        let mean = geometric_mean(points.iter().map(|versus| versus.ratio.median))?;
        let in_round = |round: usize| {
            let ratios: Option<Vec<f64>> = points
                .iter()
                .map(|versus| {
                    let of = |peer| match self.outcome(versus.point, peer, round)? {
                        Outcome::Measured(measured) => figure.of(measured),
                        Outcome::Failed { .. } => None,
                    };
                    ratio(of(self.ours())?, of(versus.peer)?)
                })
                .collect();
            geometric_mean(ratios?)
        };
        let spread = Summary::of((0..self.run.rounds).filter_map(in_round));
        Some(Together { mean, spread: spread.map(|spread| (spread.min, spread.max)), points })
    }

    /// Measurements that gave no figure.
    pub fn failures(&self) -> Vec<Failure<'_>> {
        let Run { points, peers, rounds, .. } = &self.run;
        let mut failures = Vec::new();
        for (index, point) in points.iter().enumerate() {
            for (number, peer) in peers.iter().enumerate() {
                for round in 0..*rounds {
                    if let Some(Outcome::Failed { failed }) = self.outcome(index, number, round) {
                        failures.push(Failure { point: &point.name, lock: &peer.name, round, why: failed });
                    }
                }
            }
        }
        failures
    }

    /// How many measurements of a round were made, failed ones among them.
    pub fn made(&self, round: usize) -> usize {
        let (points, peers) = (0..self.run.points.len(), 0..self.run.peers.len());
        let all = points.flat_map(|point| peers.clone().map(move |peer| (point, peer)));
        all.filter(|&(point, peer)| self.outcome(point, peer, round).is_some()).count()
    }

    /// How many measurements a round has.
    pub fn planned(&self) -> usize {
        self.run.points.len() * self.run.peers.len()
    }

    /// What is to be reached, and what is.
    pub fn targets(&self) -> Vec<Verdict> {
        let best = self.grid_against_best();
        let grid: Vec<usize> = self.points(Kind::Grid).collect();
        let points =
            |kind| self.points(kind).filter_map(|point| self.against_best(point)).collect::<Vec<_>>();
        let at_many: Vec<usize> = self.numbered(&grid, WAIT_THREADS);
        let waits = self.find(GLIBC).map_or_else(Vec::new, |glibc| {
            at_many.iter().filter_map(|&point| self.versus(point, glibc, Figure::P999)).collect()
        });
        let mut targets = vec![
            Verdict {
                figure: "Throughput over the grid, against the best peer at each point: geometric mean"
                    .into(),
                limit: Limit::AtLeast(1.0),
                value: best.as_ref().map(|best| best.mean),
                spread: best.as_ref().and_then(|best| best.spread),
                at: String::new(),
                of: best.as_ref().map_or(0, |best| best.points.len()),
                short: best.as_ref().map_or(0, |best| short(&best.points, Limit::AtLeast(1.0))),
            },
            self.worst(
                "Throughput over the grid, against the best peer at each point: worst point",
                Limit::AtLeast(CLOSE),
                &best.map_or_else(Vec::new, |best| best.points),
            ),
            self.against_each(),
            self.many_against_two(&grid),
            self.worst(
                "CPU time an operation, against the thriftiest peer with 0.9 of our throughput: worst point",
                Limit::AtMost(1.1),
                &grid.iter().filter_map(|&point| self.against_thriftiest(point)).collect::<Vec<_>>(),
            ),
            self.worst(
                "99.9 % of waits with 64 threads, against glibc: worst point",
                Limit::AtMost(1.0),
                &waits,
            ),
            self.least_fair(&grid),
        ];
        for (kind, what) in
            [(Kind::Hogs, "With a hog on each CPU"), (Kind::SleepingHolder, "With a sleeping holder")]
        {
            let figure = format!("{what}, throughput against the best peer: worst point");
            targets.push(self.worst(&figure, Limit::AtLeast(0.95), &points(kind)));
        }
        targets.push(self.without_figure());
        targets
    }

    /// The point that is furthest on the wrong side.
    fn worst(&self, figure: &str, limit: Limit, points: &[Versus]) -> Verdict {
        let by_median = |a: &&Versus, b: &&Versus| a.ratio.median.total_cmp(&b.ratio.median);
        let worst = match limit {
            Limit::AtLeast(_) => points.iter().min_by(by_median),
            Limit::AtMost(_) => points.iter().max_by(by_median),
        };
        let Run { points: all, peers, .. } = &self.run;
        Verdict {
            figure: figure.to_owned(),
            limit,
            value: worst.map(|worst| worst.ratio.median),
            spread: worst.map(|worst| (worst.ratio.min, worst.ratio.max)),
            at: worst.map_or_else(String::new, |worst| {
                let (point, peer) = (&all[worst.point].name, &peers[worst.peer].name);
                if worst.peer == self.ours() { point.clone() } else { format!("{point}, against {peer}") }
            }),
            of: points.len(),
            short: short(points, limit),
        }
    }

    fn against_each(&self) -> Verdict {
        let limit = Limit::AtLeast(1.15);
        let each: Vec<(usize, Together)> =
            self.competitors().filter_map(|peer| Some((peer, self.grid_against(peer)?))).collect();
        let worst = each.iter().min_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
        Verdict {
            figure: "Throughput over the grid, against each single peer: geometric mean, hardest peer".into(),
            limit,
            value: worst.map(|(_, together)| together.mean),
            spread: worst.and_then(|(_, together)| together.spread),
            at: worst.map_or_else(String::new, |(peer, _)| format!("against {}", self.run.peers[*peer].name)),
            of: each.len(),
            short: each.iter().filter(|(_, together)| !limit.reached_by(together.mean)).count(),
        }
    }

    /// Our throughput with 250 threads as a multiple of that with 2, for each section and think time.
    fn many_against_two(&self, grid: &[usize]) -> Verdict {
        let ours = |point| self.rounds(point, self.ours(), Figure::Throughput);
        let pairs = self.numbered(grid, MANY_THREADS).into_iter().filter_map(|many| {
            let two = self.numbered(grid, TWO_THREADS).into_iter().find(|&two| self.same_work(many, two))?;
            Some(Versus { point: many, peer: self.ours(), ratio: ratios(&ours(many), &ours(two))? })
        });
        let pairs: Vec<Versus> = pairs.collect();
        self.worst("Throughput with 250 threads, of that with 2: worst section", Limit::AtLeast(0.95), &pairs)
    }

    fn least_fair(&self, grid: &[usize]) -> Verdict {
        let limit = Limit::AtLeast(FAIR);
        let long_enough = |&&point: &&usize| {
            let Point { threads, seconds, .. } = self.run.points[point];
            threads > 1 && seconds >= FAIR_SECONDS
        };
        let fairness = |&point: &usize| Some((point, self.summary(point, self.ours(), Figure::Jain)?));
        let points: Vec<(usize, Summary)> = grid.iter().filter(long_enough).filter_map(fairness).collect();
        let worst = points.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median));
        Verdict {
            figure: "Jain's index over a second, over the grid: worst point".into(),
            limit,
            value: worst.map(|(_, summary)| summary.median),
            spread: worst.map(|(_, summary)| (summary.min, summary.max)),
            at: worst.map_or_else(String::new, |(point, _)| self.run.points[*point].name.clone()),
            of: points.len(),
            short: points.iter().filter(|(_, summary)| !limit.reached_by(summary.median)).count(),
        }
    }

    /// A lock that fails at its worst points would have the best figures at the others.
    fn without_figure(&self) -> Verdict {
        let limit = Limit::AtMost(0.0);
        let failures: Vec<Failure<'_>> =
            self.failures().into_iter().filter(|failure| failure.lock == self.run.ours).collect();
        let made: usize = (0..self.run.rounds)
            .flat_map(|round| (0..self.run.points.len()).map(move |point| (point, round)))
            .filter(|&(point, round)| self.outcome(point, self.ours(), round).is_some())
            .count();
        Verdict {
            figure: "Measurements of ours without a figure".into(),
            limit,
            value: (made > 0).then_some(failures.len() as f64),
            spread: None,
            at: failures.first().map_or_else(String::new, |first| format!("{}: {}", first.point, first.why)),
            of: made,
            short: failures.len(),
        }
    }

    fn numbered(&self, points: &[usize], threads: usize) -> Vec<usize> {
        points.iter().copied().filter(|&point| self.run.points[point].threads == threads).collect()
    }

    fn same_work(&self, a: usize, b: usize) -> bool {
        let work = |point: usize| -> (f64, f64) {
            let Point { critical_us, think_us, .. } = self.run.points[point];
            (critical_us, think_us)
        };
        work(a) == work(b)
    }
}

/// How many points miss the limit by themselves.
fn short(points: &[Versus], limit: Limit) -> usize {
    points.iter().filter(|versus| !limit.reached_by(versus.ratio.median)).count()
}

/// Round by round; rounds in which a ratio means nothing do not count.
fn ratios(values: &[Option<f64>], reference: &[Option<f64>]) -> Option<Summary> {
    Summary::of(values.iter().zip(reference).filter_map(|(value, reference)| ratio((*value)?, (*reference)?)))
}

fn ratio(value: f64, reference: f64) -> Option<f64> {
    (reference > 0.0).then_some(value / reference)
}

/// `None` of no values.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.into_iter().fold((0.0, 0_u32), |(sum, n), value| (sum + value.ln(), n + 1));
    (n > 0).then(|| (sum / f64::from(n)).exp())
}

#[cfg(test)]
mod tests {
    use super::super::result::{Peer, Wait};
    use super::*;
    use crate::machine::Machine;
    use crate::work::Calibration;

    fn peer(name: &str, ours: bool) -> Peer {
        Peer { name: name.into(), description: String::new(), origin: String::new(), ours, spins: false }
    }

    fn point(kind: Kind, threads: usize, critical_us: f64) -> Point {
        Point {
            name: format!("{}, {threads} threads, {critical_us} us", kind.name()),
            ..Point::new(kind, threads, critical_us, 1.0)
        }
    }

    /// Two others and ours at these points, in three rounds.
    fn run(points: Vec<Point>) -> Run {
        Run {
            version: super::super::result::VERSION,
            machine: Machine::describe("test"),
            command: String::new(),
            started: 0,
            calibration: Calibration { ns_per_step: 1.0 },
            peers: vec![peer("glibc", false), peer("fast", false), peer("variant", true), peer("ours", true)],
            absent: vec![],
            ours: "ours".into(),
            points,
            rounds: 3,
            seconds: 1.0,
            cpus: vec![0, 1],
            pinned: false,
        }
    }

    /// Acquisitions in a second; the rest is the same for everybody.
    fn sample(point: usize, lock: &str, round: usize, operations: u64) -> Sample {
        let measured = Measured {
            operations,
            seconds: 1.0,
            cpu_ns: 1_000_000,
            involuntary: 0,
            voluntary: 0,
            jain: 1.0,
            unserved: 0,
            others: Some(0.0),
            wait: Wait { p50: 10, p99: 20, p999: 1000, max: 2000, count: 5000, mean: 15.0 },
        };
        Sample { point, lock: lock.into(), round, outcome: Outcome::Measured(measured) }
    }

    fn change(sample: Sample, change: impl FnOnce(&mut Measured)) -> Sample {
        let Outcome::Measured(mut measured) = sample.outcome else { panic!("no figures") };
        change(&mut measured);
        Sample { outcome: Outcome::Measured(measured), ..sample }
    }

    /// The same acquisitions in each round.
    fn steady(point: usize, lock: &str, operations: u64) -> impl Iterator<Item = Sample> {
        (0..3).map(move |round| sample(point, lock, round, operations))
    }

    fn target(results: &Results, figure: &str) -> Verdict {
        let found: Vec<_> =
            results.targets().into_iter().filter(|target| target.figure.starts_with(figure)).collect();
        assert_eq!(found.len(), 1, "{figure}: {found:?}");
        found.into_iter().next().unwrap()
    }

    fn near(value: Option<f64>, expected: f64) {
        assert!(value.is_some_and(|value| (value - expected).abs() < 1e-9), "{value:?}, not {expected}");
    }

    #[test]
    fn the_best_of_the_others_is_the_reference_at_each_point() {
        let points = vec![point(Kind::Grid, 2, 0.2), point(Kind::Grid, 4, 0.2)];
        let samples = steady(0, "glibc", 100)
            .chain(steady(0, "fast", 200))
            .chain(steady(0, "ours", 100))
            .chain(steady(1, "glibc", 400))
            .chain(steady(1, "fast", 50))
            .chain(steady(1, "ours", 800))
            // Of ours as well: nobody to be compared with, however fast.
            .chain(steady(0, "variant", 10_000));
        let results = Results::of(run(points), None, samples.collect()).unwrap();
        assert_eq!((results.best(0), results.best(1)), (results.find("fast"), results.find("glibc")));
        let mean =
            target(&results, "Throughput over the grid, against the best peer at each point: geometric");
        // A half and twice.
        near(mean.value, 1.0);
        assert_eq!((mean.reached(), mean.of, mean.short), (Some(true), 2, 1));
        let worst = target(&results, "Throughput over the grid, against the best peer at each point: worst");
        near(worst.value, 0.5);
        assert_eq!((worst.reached(), worst.short), (Some(false), 1));
        assert!(worst.at.contains("2 threads") && worst.at.ends_with("against fast"), "{}", worst.at);
        // Against glibc 1 and 2, against the fast one 0.5 and 16.
        let each = target(&results, "Throughput over the grid, against each single peer");
        near(each.value, 2.0_f64.sqrt());
        assert_eq!((each.reached(), each.of, each.short), (Some(true), 2, 0));
        assert_eq!(each.at, "against glibc");
    }

    #[test]
    fn every_lock_is_held_against_the_best_of_the_others() {
        let points = vec![point(Kind::Grid, 2, 0.2), point(Kind::Grid, 4, 0.2), point(Kind::Hogs, 4, 0.2)];
        let samples = steady(0, "glibc", 100)
            .chain(steady(0, "fast", 200))
            .chain(steady(0, "ours", 400))
            .chain(steady(0, "variant", 10_000))
            .chain(steady(1, "glibc", 400))
            .chain(steady(1, "ours", 100))
            .chain(steady(2, "glibc", 400));
        let results = Results::of(run(points), None, samples.collect()).unwrap();
        let standing = |name| results.standing(results.find(name).unwrap());
        let expected = |mean, worst, behind, points| Some(Standing { mean, worst, behind, points });
        // A quarter of ours, then four times as much.
        assert_eq!(standing("glibc"), expected(1.0, 0.25, 1, 2));
        assert_eq!(standing("ours").map(|ours| (ours.worst, ours.behind)), Some((0.25, 1)));
        // No figure at the second point.
        assert_eq!(standing("fast"), expected(0.5, 0.5, 1, 1));
    }

    #[test]
    fn the_best_of_the_fair_is_as_fair_as_ours() {
        let unfair = |jain| move |sample| change(sample, |measured| measured.jain = jain);
        let points = vec![point(Kind::Grid, 4, 0.2)];
        let of = |ours| {
            let samples = steady(0, "glibc", 100)
                .map(unfair(0.95))
                .chain(steady(0, "fast", 400).map(unfair(0.5)))
                .chain(steady(0, "ours", 200).map(unfair(ours)));
            let results = Results::of(run(points.clone()), None, samples.collect()).unwrap();
            near(results.grid_against_best().map(|best| best.mean), 0.5);
            results.grid_against_the_fair().map(|fair| fair.mean)
        };
        // Fairer than need be is not asked of anybody.
        near(of(1.0), 2.0);
        near(of(0.6), 2.0);
        near(of(0.4), 0.5);
    }

    #[test]
    fn ratios_are_taken_inside_a_round() {
        let samples = (0..3).flat_map(|round| {
            let busy = 10_u64.pow(round);
            [sample(0, "glibc", round as usize, 4000 / busy), sample(0, "ours", round as usize, 2000 / busy)]
        });
        let results = Results::of(run(vec![point(Kind::Grid, 2, 0.0)]), None, samples.collect()).unwrap();
        let ratio = results.against_best(0).unwrap().ratio;
        assert_eq!((ratio.min, ratio.median, ratio.max, ratio.n), (0.5, 0.5, 0.5, 3));
    }

    #[test]
    fn many_threads_are_compared_with_two_at_the_same_work() {
        let points = vec![
            point(Kind::Grid, 2, 0.2),
            point(Kind::Grid, 250, 0.2),
            point(Kind::Grid, 2, 2.0),
            point(Kind::Grid, 250, 2.0),
            // Nothing to compare it with.
            point(Kind::Grid, 250, 20.0),
        ];
        let samples = [100, 99, 1000, 900, 1].into_iter().enumerate();
        let samples = samples.flat_map(|(index, operations)| steady(index, "ours", operations));
        let results = Results::of(run(points), None, samples.collect()).unwrap();
        let many = target(&results, "Throughput with 250 threads");
        near(many.value, 0.9);
        assert_eq!((many.reached(), many.of, many.short), (Some(false), 2, 1));
        assert!(many.at.contains("2 us"), "{}", many.at);
    }

    #[test]
    fn only_those_who_keep_up_are_thrifty() {
        let with_cpu = |lock: &str, operations, cpu_ns| {
            let lock = lock.to_owned();
            (0..3).map(move |round| {
                change(sample(0, &lock, round, operations), |measured| measured.cpu_ns = cpu_ns)
            })
        };
        // 10 ns an acquisition, but too slow; 40 ns; and ours 50 ns.
        let samples =
            with_cpu("glibc", 89, 890).chain(with_cpu("fast", 90, 3600)).chain(with_cpu("ours", 100, 5000));
        let results = Results::of(run(vec![point(Kind::Grid, 2, 0.2)]), None, samples.collect()).unwrap();
        let cpu = target(&results, "CPU time an operation");
        near(cpu.value, 1.25);
        assert_eq!(cpu.reached(), Some(false));
        assert!(cpu.at.ends_with("against fast"), "{}", cpu.at);
    }

    #[test]
    fn waits_and_fairness_are_about_many_threads_and_long_enough_intervals() {
        let mut short = point(Kind::Grid, 4, 0.2);
        short.seconds = 0.1;
        let points = vec![point(Kind::Grid, 64, 0.2), point(Kind::Grid, 8, 0.2), short];
        let mut samples = Vec::new();
        for round in 0..3 {
            samples.push(sample(0, "glibc", round, 100));
            samples.push(change(sample(0, "ours", round, 100), |measured| {
                (measured.wait.p999, measured.jain) = (900, 0.91);
            }));
            samples.push(sample(1, "glibc", round, 100));
            samples.push(change(sample(1, "ours", round, 100), |measured| measured.wait.p999 = 99_000));
            samples.push(change(sample(2, "ours", round, 100), |measured| measured.jain = 0.1));
        }
        let results = Results::of(run(points), None, samples).unwrap();
        let waits = target(&results, "99.9 %");
        near(waits.value, 0.9);
        assert_eq!((waits.reached(), waits.of), (Some(true), 1));
        let fair = target(&results, "Jain's index");
        near(fair.value, 0.91);
        assert_eq!((fair.reached(), fair.of), (Some(true), 2));
    }

    #[test]
    fn scenarios_have_targets_of_their_own() {
        let points = vec![point(Kind::Hogs, 8, 2.0), point(Kind::SleepingHolder, 8, 2.0)];
        let samples = steady(0, "glibc", 100)
            .chain(steady(0, "ours", 95))
            .chain(steady(1, "glibc", 100))
            .chain(steady(1, "ours", 94));
        let results = Results::of(run(points), None, samples.collect()).unwrap();
        assert_eq!(target(&results, "With a hog on each CPU").reached(), Some(true));
        assert_eq!(target(&results, "With a sleeping holder").reached(), Some(false));
        // And nothing is said about the grid, of which there is none.
        assert_eq!(target(&results, "Throughput with 250 threads").reached(), None);
        assert_eq!(results.grid_against_best(), None);
    }

    #[test]
    fn what_failed_counts_for_nothing_but_is_not_forgotten() {
        let points = vec![point(Kind::Grid, 2, 0.2), point(Kind::Grid, 4, 0.2)];
        let mut samples: Vec<_> = steady(0, "glibc", 100).chain(steady(0, "ours", 200)).collect();
        samples.push(sample(1, "glibc", 0, 100));
        let why = "the lock does not exclude".to_owned();
        let outcome = Outcome::Failed { failed: why.clone() };
        samples.push(Sample { point: 1, lock: "ours".into(), round: 0, outcome });
        let results = Results::of(run(points), None, samples).unwrap();
        near(results.grid_against_best().map(|best| best.mean), 2.0);
        let failures = results.failures();
        assert_eq!(failures.len(), 1);
        assert_eq!((failures[0].lock, failures[0].why), ("ours", why.as_str()));
        let without = target(&results, "Measurements of ours without a figure");
        assert_eq!((without.value, without.reached(), without.of), (Some(1.0), Some(false), 4));
        assert_eq!((results.made(0), results.made(1), results.planned()), (4, 2, 8));
    }
}
