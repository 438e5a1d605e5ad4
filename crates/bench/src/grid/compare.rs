//! What the samples of a run say: medians and spreads, ratios against each and against the best of the
//! others, targets.
//!
//! Ratios are taken inside a round and the median over the rounds, as everywhere ([`Summary::of_ratios`]).
//! The best of the others at a point is the one with the largest median throughput there; with the fewest
//! rounds it is therefore the luckiest as well, which errs to our disadvantage.

use super::result::{Directory, Floors, Kind, Outcome, Point, Run, Sample};
use crate::Summary;
use crate::error::{Error, Result};
use crate::report::{Limit, Target};

/// The contender that does nothing: what the driver costs. It is nobody's competitor.
pub(crate) use poundlock_peers::EMPTY;
/// The C library's default, with which waits are compared.
pub(crate) const GLIBC: &str = "glibc";

/// The numbers of threads that targets are about.
const MANY_THREADS: usize = 250;
const TWO_THREADS: usize = 2;
const WAIT_THREADS: usize = 64;
/// Seconds over which threads are to get equal shares; in less some may not even have run.
const FAIR_SECONDS: f64 = 1.0;
/// The Jain's index that is fair enough.
pub(crate) const FAIR: f64 = 0.9;
/// No point is to lie below, of the best peer's throughput there.
pub(crate) const CLOSE: f64 = 0.9;
/// Each single peer is to be outrun by this factor.
pub(crate) const EACH: f64 = 1.15;
/// A peer is thrifty to the point only if it gets this share of our throughput.
const THRIFTY_THROUGHPUT: f64 = 0.9;

/// A run with its measurements in their places.
#[derive(Clone, Debug)]
pub struct Results {
    pub(crate) run: Run,
    /// What no lock can undercut, if that was measured.
    pub(crate) floors: Option<Floors>,
    /// By point, lock and round.
    outcomes: Vec<Option<Outcome>>,
    /// What is to be reached, and what is.
    pub(super) targets: Vec<Target>,
}

/// Our lock against another at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Versus {
    pub(crate) point: usize,
    pub(crate) peer: usize,
    /// Our figure as a multiple of the other's, inside each round.
    pub(crate) ratio: Summary,
}

/// A lock against the best of all others at each point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Standing {
    /// The geometric mean.
    pub(crate) mean: f64,
    /// The smallest.
    pub(crate) worst: f64,
    /// At how many points it lies below [`CLOSE`].
    pub(crate) behind: usize,
    /// At how many there is a figure.
    pub(crate) points: usize,
}

/// Ratios at many points as one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Together {
    /// The geometric means of the rounds that have every point; if no round has, that of the points' medians.
    pub(crate) mean: Summary,
    /// The points, the worst first.
    pub(crate) points: Vec<Versus>,
}

impl Results {
    /// Reads a directory.
    ///
    /// # Errors
    /// If it holds no results, damaged ones, or files of different runs.
    pub fn read(directory: &Directory) -> Result<Results> {
        let (run, floors, samples) = (directory.run()?, directory.floors()?, directory.samples()?);
        Self::of(run, floors, samples)
            .map_err(|what| Error::Failed(format!("{}: {what}", directory.path().display())))
    }

    /// Puts samples into their places; of two for one place the later counts.
    ///
    /// # Errors
    /// If a sample has no place in the run, or if the run contradicts itself; a line says what is wrong.
    pub(crate) fn of(
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
        let mut results = Results { run, floors, outcomes: vec![None; places], targets: Vec::new() };
        for sample in samples {
            let place = results
                .place_of(&sample)
                .map_err(|what| format!("samples.jsonl {what}: these files are not of one run"))?;
            results.outcomes[place] = Some(sample.outcome);
        }
        results.targets = results.judged();
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
    pub(crate) fn outcome(&self, point: usize, peer: usize, round: usize) -> Option<&Outcome> {
        self.outcomes[self.place(point, peer, round)].as_ref()
    }

    /// Our lock, as an index into [`Run::peers`].
    pub(crate) fn ours(&self) -> usize {
        self.find(&self.run.ours).unwrap_or(0)
    }

    /// The lock of that name, as an index into [`Run::peers`].
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.run.peers.iter().position(|peer| peer.name == name)
    }

    /// The locks that ours is compared with, as indices into [`Run::peers`].
    pub(crate) fn competitors(&self) -> impl Iterator<Item = usize> + '_ {
        let peers = self.run.peers.iter().enumerate();
        peers.filter(|(_, peer)| !peer.ours && peer.name != EMPTY).map(|(index, _)| index)
    }

    /// The points of a kind, as indices into [`Run::points`].
    pub(crate) fn points(&self, kind: Kind) -> impl Iterator<Item = usize> + '_ {
        let points = self.run.points.iter().enumerate();
        points.filter(move |(_, point)| point.kind == kind).map(|(index, _)| index)
    }

    /// A figure of a lock at a point in each round.
    pub(crate) fn rounds(&self, point: usize, peer: usize, figure: &str) -> Vec<Option<f64>> {
        (0..self.run.rounds).map(|round| self.figure(point, peer, round, figure)).collect()
    }

    fn figure(&self, point: usize, peer: usize, round: usize, figure: &str) -> Option<f64> {
        match self.outcome(point, peer, round)? {
            Outcome::Figures(figures) => figures.get(figure).copied(),
            Outcome::Failed(_) => None,
        }
    }

    /// A figure of a lock at a point, over the rounds.
    pub(crate) fn summary(&self, point: usize, peer: usize, figure: &str) -> Option<Summary> {
        Summary::of(self.rounds(point, peer, figure).into_iter().flatten())
    }

    /// A figure of ours as a multiple of a peer's.
    pub(crate) fn versus(&self, point: usize, peer: usize, figure: &str) -> Option<Versus> {
        let ratio = ratios(&self.rounds(point, self.ours(), figure), &self.rounds(point, peer, figure))?;
        Some(Versus { point, peer, ratio })
    }

    /// The competitor with the largest median throughput at a point.
    pub(crate) fn best(&self, point: usize) -> Option<usize> {
        self.best_of(point, self.competitors())
    }

    /// The same among those that are as fair as ours there, or have a Jain's index of [`FAIR`].
    pub(crate) fn best_of_the_fair(&self, point: usize) -> Option<usize> {
        let jain = |peer| Some(self.summary(point, peer, "jain")?.median);
        let enough = jain(self.ours())?.min(FAIR);
        self.best_of(point, self.competitors().filter(|&peer| jain(peer).is_some_and(|jain| jain >= enough)))
    }

    fn best_of(&self, point: usize, peers: impl Iterator<Item = usize>) -> Option<usize> {
        let throughputs =
            peers.filter_map(|peer| Some((peer, self.summary(point, peer, "throughput")?.median)));
        throughputs.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(peer, _)| peer)
    }

    /// Our throughput as a multiple of the best competitor's.
    pub(crate) fn against_best(&self, point: usize) -> Option<Versus> {
        self.versus(point, self.best(point)?, "throughput")
    }

    /// Our CPU time for an acquisition as a multiple of that of the thriftiest competitor that is nearly as
    /// fast.
    pub(crate) fn against_thriftiest(&self, point: usize) -> Option<Versus> {
        let enough = self.summary(point, self.ours(), "throughput")?.median * THRIFTY_THROUGHPUT;
        let median = |peer, figure| Some(self.summary(point, peer, figure)?.median);
        let thriftiest = self
            .competitors()
            .filter(|&peer| median(peer, "throughput").is_some_and(|throughput| throughput >= enough))
            .filter_map(|peer| Some((peer, median(peer, "cpu_ns")?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.versus(point, thriftiest.0, "cpu_ns")
    }

    /// Our throughput as a multiple of others' over the grid: at each point that of the best competitor, of
    /// the best that is as fair, or of one.
    pub(crate) fn grid_against_best(&self) -> Option<Together> {
        self.together(|point| self.best(point))
    }

    pub(crate) fn grid_against_the_fair(&self) -> Option<Together> {
        self.together(|point| self.best_of_the_fair(point))
    }

    pub(crate) fn grid_against(&self, peer: usize) -> Option<Together> {
        self.together(|_| Some(peer))
    }

    /// A lock over the grid as ours is judged: its median throughput at each point as a multiple of the best
    /// median of the others there, among ours and its competitors. Points where it or all others have no
    /// figure are left out.
    pub(crate) fn standing(&self, peer: usize) -> Option<Standing> {
        let throughput = |point, peer| Some(self.summary(point, peer, "throughput")?.median);
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

    fn together(&self, peer: impl Fn(usize) -> Option<usize>) -> Option<Together> {
        let versus = |point| self.versus(point, peer(point)?, "throughput");
        let mut points: Vec<Versus> = self.points(Kind::Grid).filter_map(versus).collect();
        points.sort_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median));
        let in_round = |round: usize| {
            let of = |point, peer| self.figure(point, peer, round, "throughput");
            let versus =
                |versus: &Versus| ratio(of(versus.point, self.ours())?, of(versus.point, versus.peer)?);
            geometric_mean(points.iter().map(versus).collect::<Option<Vec<f64>>>()?)
        };
        let medians = || geometric_mean(points.iter().map(|versus| versus.ratio.median));
        let mean = Summary::of((0..self.run.rounds).filter_map(in_round)).or_else(|| Summary::of(medians()));
        Some(Together { mean: mean?, points })
    }

    /// Measurements that gave no figure: point, lock, round and why.
    pub(crate) fn failures(&self) -> Vec<(usize, usize, usize, &str)> {
        let places = self.outcomes.iter().enumerate();
        let failed = places.filter_map(|(index, outcome)| match outcome {
            Some(Outcome::Failed(why)) => Some((index, why.as_str())),
            _ => None,
        });
        let (peers, rounds) = (self.run.peers.len(), self.run.rounds);
        failed
            .map(|(index, why)| (index / rounds / peers, index / rounds % peers, index % rounds, why))
            .collect()
    }

    /// How many measurements of a round were made, failed ones among them.
    pub(crate) fn made(&self, round: usize) -> usize {
        let of_round = self.outcomes.iter().skip(round).step_by(self.run.rounds);
        of_round.filter(|outcome| outcome.is_some()).count()
    }

    /// How many measurements a round has.
    pub(crate) fn planned(&self) -> usize {
        self.run.points.len() * self.run.peers.len()
    }

    fn judged(&self) -> Vec<Target> {
        let grid: Vec<usize> = self.points(Kind::Grid).collect();
        let of =
            |threads| grid.iter().copied().filter(move |&point| self.run.points[point].threads == threads);
        let best = self.grid_against_best();
        let (mean, points) = best.map_or((None, Vec::new()), |best| (Some(best.mean), best.points));
        let over = |what: &str| format!("Throughput over the grid, against {what}");
        let mut targets = vec![
            self.target(
                over("the best peer at each point: geometric mean"),
                Limit::AtLeast(1.0),
                mean.map(|mean| (mean, String::new())),
                points.iter().map(|versus| versus.ratio),
            ),
            self.worst(over("the best peer at each point: worst point"), Limit::AtLeast(CLOSE), points),
        ];
        let each = self.competitors().filter_map(|peer| Some((self.grid_against(peer)?.mean, peer)));
        let each: Vec<(Summary, usize)> = each.collect();
        let hardest = each.iter().min_by(|a, b| a.0.median.total_cmp(&b.0.median));
        targets.push(self.target(
            over("each single peer: geometric mean, hardest peer"),
            Limit::AtLeast(EACH),
            hardest.map(|(mean, peer)| (*mean, format!("against {}", self.run.peers[*peer].name))),
            each.iter().map(|(mean, _)| *mean),
        ));
        // With 250 threads as a multiple of that with 2, for each section and think time.
        let many = of(MANY_THREADS).filter_map(|many| {
            let two = of(TWO_THREADS).find(|&two| self.same_work(many, two))?;
            let ratio = self.of_other(many, two, self.ours())?;
            Some(Versus { point: many, peer: self.ours(), ratio })
        });
        let thrifty = grid.iter().filter_map(|&point| self.against_thriftiest(point)).collect();
        let waits =
            |glibc| of(WAIT_THREADS).filter_map(move |point| self.versus(point, glibc, "waits.p999_ns"));
        let waits = self.find(GLIBC).into_iter().flat_map(waits).collect();
        let long_enough = |&point: &usize| {
            let Point { threads, seconds, .. } = self.run.points[point];
            let ratio = self.summary(point, self.ours(), "jain")?;
            let enough = threads > 1 && seconds >= FAIR_SECONDS;
            enough.then_some(Versus { point, peer: self.ours(), ratio })
        };
        let fairness = grid.iter().filter_map(long_enough).collect();
        let best = |kind| self.points(kind).filter_map(|point| self.against_best(point)).collect();
        for (what, limit, points) in [
            (
                "Throughput with 250 threads, of that with 2: worst section",
                Limit::AtLeast(0.95),
                many.collect(),
            ),
            (
                "CPU time an operation, against the thriftiest peer with 0.9 of our throughput: worst point",
                Limit::AtMost(1.1),
                thrifty,
            ),
            ("99.9 % of waits with 64 threads, against glibc: worst point", Limit::AtMost(1.0), waits),
            ("Jain's index over a second, over the grid: worst point", Limit::AtLeast(FAIR), fairness),
            (
                "With a hog on each CPU, throughput against the best peer: worst point",
                Limit::AtLeast(0.95),
                best(Kind::Hogs),
            ),
            (
                "With a sleeping holder, throughput against the best peer: worst point",
                Limit::AtLeast(0.95),
                best(Kind::SleepingHolder),
            ),
        ] {
            targets.push(self.worst(what.to_owned(), limit, points));
        }
        // A lock that fails at its worst points would have the best figures at the others.
        let failed = self.failures().iter().filter(|(_, peer, ..)| *peer == self.ours()).count();
        let made = self.outcomes.iter().any(Option::is_some).then_some(failed as f64);
        let failed = made.and_then(|failed| Summary::of([failed])).map(|failed| (failed, String::new()));
        let none = "Measurements of ours without a figure".to_owned();
        targets.push(self.target(none, Limit::AtMost(0.0), failed, []));
        targets.retain(|target| !target.results.is_empty());
        targets
    }

    /// The figure that is judged and where that was, and those that it is the worst or the mean of.
    fn target(
        &self,
        figure: String,
        limit: Limit,
        judged: Option<(Summary, String)>,
        all: impl IntoIterator<Item = Summary>,
    ) -> Target {
        let missed: Vec<bool> = all.into_iter().map(|one| !limit.reached_by(one.median)).collect();
        let (judged, at) = judged.unzip();
        let mut notes: Vec<String> = at.into_iter().filter(|at| !at.is_empty()).collect();
        if missed.len() > 1 {
            let short = missed.iter().filter(|missed| **missed).count();
            notes.push(format!("{short} of {} miss it", missed.len()));
        }
        let notes = if notes.is_empty() { notes.concat() } else { format!(" ({})", notes.join("; ")) };
        Target::new(figure + &notes, limit, "", [(self.run.ours.clone(), judged)])
    }

    /// The point that is furthest on the wrong side.
    fn worst(&self, figure: String, limit: Limit, points: Vec<Versus>) -> Target {
        let by_median = |a: &&Versus, b: &&Versus| a.ratio.median.total_cmp(&b.ratio.median);
        let worst = match limit {
            Limit::AtLeast(_) => points.iter().min_by(by_median),
            Limit::AtMost(_) => points.iter().max_by(by_median),
        };
        let at = worst.map(|worst| {
            let (point, peer) = (&self.run.points[worst.point].name, &self.run.peers[worst.peer].name);
            let against = if worst.peer == self.ours() { String::new() } else { format!(", against {peer}") };
            (worst.ratio, format!("{point}{against}"))
        });
        self.target(figure, limit, at, points.iter().map(|versus| versus.ratio))
    }

    /// A lock's throughput at a point as a multiple of its own at another.
    pub(crate) fn of_other(&self, point: usize, other: usize, peer: usize) -> Option<Summary> {
        let rounds = |point| self.rounds(point, peer, "throughput");
        ratios(&rounds(point), &rounds(other))
    }

    /// Whether threads do the same at two points of the grid.
    pub(crate) fn same_work(&self, a: usize, b: usize) -> bool {
        let work = |point: usize| (self.run.points[point].critical_us, self.run.points[point].think_us);
        work(a) == work(b)
    }
}

/// Round by round; rounds in which a ratio means nothing do not count.
fn ratios(values: &[Option<f64>], reference: &[Option<f64>]) -> Option<Summary> {
    Summary::of(values.iter().zip(reference).filter_map(|(value, reference)| ratio((*value)?, (*reference)?)))
}

fn ratio(value: f64, reference: f64) -> Option<f64> {
    (reference > 0.0).then_some(value / reference)
}

/// `None` of no values.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.into_iter().fold((0.0, 0_u32), |(sum, n), value| (sum + value.ln(), n + 1));
    (n > 0).then(|| (sum / f64::from(n)).exp())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::result::Peer;
    use super::*;
    use crate::Machine;
    use crate::plan;
    use crate::work::Calibration;

    pub(crate) fn peer(name: &str, ours: bool) -> Peer {
        Peer { name: name.into(), description: String::new(), origin: String::new(), ours, spins: false }
    }

    /// Two others and ours at these points, in three rounds.
    pub(crate) fn run(points: Vec<Point>) -> Run {
        Run {
            version: super::super::result::VERSION,
            machine: Machine::describe("test"),
            started: 0,
            calibration: Calibration { ns_per_step: 1.0 },
            peers: vec![peer("glibc", false), peer("fast", false), peer("variant", true), peer("ours", true)],
            absent: vec![],
            ours: "ours".into(),
            points,
            rounds: 3,
            cpus: vec![0, 1],
            pinned: false,
        }
    }

    /// Acquisitions a second; the rest is the same for everybody.
    pub(crate) fn sample(point: usize, lock: &str, round: usize, throughput: f64) -> Sample {
        let each = [("cpu_ns", 1e6 / throughput), ("ns", 1e9 / throughput)];
        let each = each.into_iter().filter(|(_, value)| value.is_finite());
        let rates = [
            ("throughput", throughput),
            ("jain", 1.0),
            ("others", 0.0),
            ("involuntary", 0.0),
            ("voluntary", 0.1),
        ];
        let figures = each.chain(rates).map(|(name, value)| (name.to_owned(), value));
        let waits = ["p50", "p99", "p999", "max"].map(|quantile| (format!("waits.{quantile}_ns"), 1000.0));
        let figures = figures.chain(waits).collect();
        Sample { point, lock: lock.into(), round, outcome: Outcome::Figures(figures) }
    }

    fn change(sample: Sample, figure: &str, value: f64) -> Sample {
        let Outcome::Figures(figures) = sample.outcome else { panic!("no figures") };
        let figures: plan::Sample = figures.into_iter().chain([(figure.to_owned(), value)]).collect();
        Sample { outcome: Outcome::Figures(figures), ..sample }
    }

    /// Three rounds in which everybody at each point makes so many acquisitions a second: of those of
    /// [`run`], in their order, none with 0. `also` may change a sample.
    fn results(
        points: &[(Kind, usize, f64)],
        rates: &[[u32; 4]],
        also: impl Fn(Sample) -> Sample,
    ) -> Results {
        let points = points.iter().map(|&(kind, threads, us)| Point::new(kind, threads, us, 1.0, 0.5));
        let run = run(points.collect());
        let mut samples = Vec::new();
        for (point, rates) in rates.iter().enumerate() {
            for (peer, &rate) in run.peers.iter().zip(rates).filter(|(_, rate)| **rate > 0) {
                samples.extend((0..3).map(|round| also(sample(point, &peer.name, round, rate.into()))));
            }
        }
        Results::of(run, None, samples).unwrap()
    }

    /// A target's value and verdict, and its words, in which it is told where.
    #[track_caller]
    fn target<'a>(results: &'a Results, figure: &str) -> (f64, &'static str, &'a str) {
        let mut found = results.targets.iter().filter(|target| target.figure.starts_with(figure));
        let target = found.next().unwrap_or_else(|| panic!("no {figure} in {:?}", results.targets));
        assert!(found.next().is_none() && target.results.len() == 1, "{target:?}");
        let value = (target.results[0].value * 1e3).round() / 1e3;
        (value, target.results[0].verdict.word(), &target.figure)
    }

    #[test]
    fn the_best_of_the_others_is_the_reference_at_each_point() {
        let points = [(Kind::Grid, 2, 0.2), (Kind::Grid, 4, 0.2)];
        // The variant is of ours as well: nobody to be compared with, however fast.
        let results = results(&points, &[[100, 200, 10_000, 100], [400, 50, 0, 800]], |sample| sample);
        assert_eq!((results.best(0), results.best(1)), (results.find("fast"), results.find("glibc")));
        // A half and twice.
        let best = "Throughput over the grid, against the best peer at each point";
        let mean = format!("{best}: geometric mean (1 of 2 miss it)");
        assert_eq!(target(&results, &mean), (1.0, "reached", mean.as_str()));
        let worst =
            format!("{best}: worst point (2 threads, 0.2 us, think 1 us, against fast; 1 of 2 miss it)");
        assert_eq!(target(&results, &worst), (0.5, "missed", worst.as_str()));
        // Against glibc 1 and 2, against the fast one 0.5 and 16.
        let each = target(&results, "Throughput over the grid, against each single peer");
        assert_eq!((each.0, each.1), (1.414, "reached"));
        assert!(each.2.ends_with("(against glibc; 0 of 2 miss it)"), "{}", each.2);
    }

    #[test]
    fn every_lock_is_held_against_the_best_of_the_others() {
        let points = [(Kind::Grid, 2, 0.2), (Kind::Grid, 4, 0.2), (Kind::Hogs, 4, 0.2)];
        let rates = [[100, 200, 10_000, 400], [400, 0, 0, 100], [400, 0, 0, 0]];
        let results = results(&points, &rates, |sample| sample);
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
        let of = |ours| {
            let unfair = |sample: Sample| {
                let jain = match sample.lock.as_str() {
                    "glibc" => 0.95,
                    "fast" => 0.5,
                    _ => ours,
                };
                change(sample, "jain", jain)
            };
            let results = results(&[(Kind::Grid, 4, 0.2)], &[[100, 400, 0, 200]], unfair);
            let mean = |together: Option<Together>| together.map(|together| together.mean.median);
            assert_eq!(mean(results.grid_against_best()), Some(0.5));
            mean(results.grid_against_the_fair())
        };
        // Fairer than need be is not asked of anybody.
        assert_eq!([1.0, 0.6, 0.4].map(of), [Some(2.0), Some(2.0), Some(0.5)]);
    }

    #[test]
    fn ratios_are_taken_inside_a_round() {
        let rate = |lock: &str| if lock == "glibc" { 4000.0 } else { 2000.0 };
        let busier = |sample: Sample| {
            let rate = rate(&sample.lock) / 10_f64.powf(sample.round as f64);
            change(sample, "throughput", rate)
        };
        let results = results(&[(Kind::Grid, 2, 0.0)], &[[1, 0, 0, 1]], busier);
        let ratio = results.against_best(0).unwrap().ratio;
        assert_eq!((ratio.min, ratio.median, ratio.max, ratio.n), (0.5, 0.5, 0.5, 3));
    }

    #[test]
    fn many_threads_are_compared_with_two_at_the_same_work() {
        // There is nothing to compare the last one with.
        let points = [(2, 0.2), (250, 0.2), (2, 2.0), (250, 2.0), (250, 20.0)];
        let points = points.map(|(threads, us)| (Kind::Grid, threads, us));
        let rates = [100, 99, 1000, 900, 1].map(|ours| [0, 0, 0, ours]);
        let results = results(&points, &rates, |sample| sample);
        let many = target(&results, "Throughput with 250 threads");
        assert_eq!((many.0, many.1), (0.9, "missed"));
        assert!(many.2.ends_with("(250 threads, 2 us, think 1 us; 1 of 2 miss it)"), "{}", many.2);
    }

    #[test]
    fn only_those_who_keep_up_are_thrifty() {
        // 10 ns an acquisition, but too slow; 40 ns; and ours 50 ns.
        let cpu = |sample: Sample| {
            let ns = [("glibc", 10.0), ("fast", 40.0), ("ours", 50.0)];
            let ns = ns.into_iter().find(|(lock, _)| *lock == sample.lock).map_or(0.0, |(_, ns)| ns);
            change(sample, "cpu_ns", ns)
        };
        let results = results(&[(Kind::Grid, 2, 0.2)], &[[89, 90, 0, 100]], cpu);
        let cpu = target(&results, "CPU time an operation");
        assert_eq!((cpu.0, cpu.1), (1.25, "missed"));
        assert!(cpu.2.ends_with("against fast)"), "{}", cpu.2);
    }

    #[test]
    fn waits_and_fairness_are_about_many_threads_and_long_enough_intervals() {
        // The last is measured for half a second.
        let points = [(Kind::Grid, 64, 0.2), (Kind::Grid, 16, 0.2), (Kind::Grid, 8, 0.2)];
        let ours = |sample: Sample| match (sample.lock.as_str(), sample.point) {
            ("ours", 0) => change(change(sample, "jain", 0.91), "waits.p999_ns", 900.0),
            ("ours", 1) => change(sample, "waits.p999_ns", 99_000.0),
            ("ours", 2) => change(sample, "jain", 0.1),
            _ => sample,
        };
        let results = results(&points, &[[100, 0, 0, 100], [100, 0, 0, 100], [0, 0, 0, 100]], ours);
        let waits = target(&results, "99.9 %");
        assert_eq!((waits.0, waits.1), (0.9, "reached"));
        let fair = target(&results, "Jain's index");
        assert_eq!((fair.0, fair.1), (0.91, "reached"));
        assert!(fair.2.ends_with("0 of 2 miss it)"), "{}", fair.2);
    }

    #[test]
    fn scenarios_have_targets_of_their_own() {
        let points = [(Kind::Hogs, 8, 2.0), (Kind::SleepingHolder, 8, 2.0)];
        let results = results(&points, &[[100, 0, 0, 95], [100, 0, 0, 94]], |sample| sample);
        assert_eq!(target(&results, "With a hog on each CPU").1, "reached");
        assert_eq!(target(&results, "With a sleeping holder").1, "missed");
        // And nothing is said about the grid, of which there is none.
        assert_eq!(results.targets.len(), 3);
        assert_eq!(results.grid_against_best(), None);
    }

    #[test]
    fn what_failed_counts_for_nothing_but_is_not_forgotten() {
        let why = "the lock does not exclude".to_owned();
        let fails = |sample: Sample| match (sample.lock.as_str(), sample.point) {
            ("ours", 1) => Sample { outcome: Outcome::Failed(why.clone()), ..sample },
            _ => sample,
        };
        let points = [(Kind::Grid, 2, 0.2), (Kind::Grid, 4, 0.2)];
        let results = results(&points, &[[100, 0, 0, 200], [100, 0, 0, 200]], fails);
        assert_eq!(results.grid_against_best().map(|best| best.mean.median), Some(2.0));
        assert_eq!(results.failures(), [0, 1, 2].map(|round| (1, results.ours(), round, why.as_str())));
        let without = target(&results, "Measurements of ours without a figure");
        assert_eq!((without.0, without.1), (3.0, "missed"));
        assert_eq!((results.made(0), results.planned()), (4, 8));
    }
}
