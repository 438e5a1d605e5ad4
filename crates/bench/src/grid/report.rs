//! The figures of a run as tables.

use super::compare::{CLOSE, FAIR, Figure, Results, Verdict};
use super::result::{Directory, Kind};
use crate::error::Result;
use crate::floor;
use crate::machine::Machine;
use crate::report::{self, Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;

/// What a directory says.
#[derive(Clone, Debug)]
pub struct Figures(Results);

impl Figures {
    /// Reads a directory.
    ///
    /// # Errors
    /// If it holds no results, or damaged ones.
    pub fn read(directory: &Directory) -> Result<Figures> {
        Results::read(directory).map(Figures)
    }

    /// The results behind the tables.
    pub fn results(&self) -> &Results {
        &self.0
    }

    /// The tables as a page of their own.
    pub fn markdown(&self) -> String {
        format!(
            "# The grid\n\nWritten by `poundlock bench report --markdown` of the results of the command below; do not edit. The figures are \
             that machine's, at that commit: run the command for yours.\n\n{}",
            report::markdown(self, false)
        )
    }
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Locks that people use, side by side"
    }

    fn method(&self) -> String {
        method(&self.0)
    }

    fn machine(&self) -> &Machine {
        &self.0.run.machine
    }

    fn tables(&self) -> Vec<Table> {
        let results = &self.0;
        let mut tables = vec![peers_table(results)];
        tables.extend(results.floors.as_ref().map(floor::table));
        tables.extend(Kind::ALL.into_iter().flat_map(|kind| kind_tables(results, kind)));
        tables.extend([
            against_table(results),
            standing_table(results),
            crowd_table(results),
            failures_table(results),
        ]);
        tables.push(targets_table(&results.run.ours, &results.targets()));
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    /// They are a table of their own here: each says at which point, and there is one lock only.
    fn targets(&self) -> &[Target] {
        &[]
    }
}

/// How the figures came about, in paragraphs that an empty line parts.
pub(crate) fn method(results: &Results) -> String {
    let run = &results.run;
    let made: usize = (0..run.rounds).map(|round| results.made(round)).sum();
    let all = results.planned() * run.rounds;
    let kept = if run.pinned { ", each thread kept on one of them" } else { "" };
    let progress = match all - made {
        0 => String::new(),
        missing => format!(" {missing} of {all} measurements are not made yet."),
    };
    format!(
        "Every lock is called through the same pointers to C functions, so that none is inlined. Each measurement runs \
         in a process of its own, on {cpus} CPU{plural}{kept}. Work inside and outside critical sections is a chain of \
         multiplications whose length was measured once for all locks ({ns:.3} ns a step); the work outside varies by \
         half, so that threads do not march in step. First an interval in which nothing is timed gives throughput, CPU \
         time (user and system, of the whole process), context switches and Jain's index of the threads' acquisitions; \
         then one in which each acquisition is timed gives the waits, the reading of the clock included. A wait that \
         had not ended counts as long as it had lasted. A lock that let two threads in at once gives no figure.\n\n\
         {rounds} rounds; in each, points come in random order, and at a point all locks in random order, so that \
         whatever disturbs the machine disturbs everybody. A figure is the median over the rounds, the spread their \
         minimum and maximum; a ratio is taken inside each round before its median over the rounds. The best peer at a \
         point is the one with the largest median throughput there: with few rounds also the luckiest, which errs to \
         our disadvantage. \"Others\" is the share of the CPUs that went to other processes meanwhile: where it is \
         not near 0, the figures are worth less.{progress}",
        cpus = run.cpus.len(),
        plural = if run.cpus.len() == 1 { "" } else { "s" },
        ns = run.calibration.ns_per_step,
        rounds = run.rounds,
    )
}

fn peers_table(results: &Results) -> Table {
    let mut table = Table::new("Who takes part", 3, &["lock", "from", "what it is"]);
    for peer in &results.run.peers {
        table.rows.push(vec![peer.name.clone(), peer.origin.clone(), peer.description.clone()]);
    }
    for absent in &results.run.absent {
        table.rows.push(vec![absent.name.clone(), "left out".to_owned(), absent.why.clone()]);
    }
    table
}

/// Nanoseconds as microseconds.
fn microseconds(summary: Option<Summary>) -> String {
    summary.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns.median / 1000.0))
}

/// A table of ours against the others, and one of what waiting costs.
fn kind_tables(results: &Results, kind: Kind) -> [Table; 2] {
    let (ours, name) = (results.ours(), &results.run.ours);
    let versus = [
        "point",
        "best peer",
        "its acquisitions/ms",
        name,
        "of the best",
        "spread",
        "thriftiest",
        "its CPU ns",
        name,
        "of it",
        "others",
    ];
    let mut throughput = Table::new(kind.words(), 2, &versus);
    let headings = [
        "point",
        "p50 us",
        "p99",
        "p99.9",
        "max",
        "p99.9 of glibc's",
        "spread",
        "Jain",
        "preempted",
        "sleeps",
    ];
    let mut waits = Table::new(format!("{}: waits for {name}", kind.words()), 1, &headings);
    let glibc = results.find("glibc");
    for point in results.points(kind) {
        let of = |peer: usize, figure| results.summary(point, peer, figure);
        let our = |figure| of(ours, figure);
        let who = |peer: Option<usize>| {
            peer.map_or_else(|| "-".to_owned(), |peer| results.run.peers[peer].name.clone())
        };
        let per_ms = |throughput: Option<Summary>| {
            throughput
                .map_or_else(|| "-".to_owned(), |per_second| format!("{:.1}", per_second.median / 1000.0))
        };
        let best = results.best(point);
        let against = results.against_best(point).map(|versus| versus.ratio);
        let thrifty = results.against_thriftiest(point);
        let thriftiest = thrifty.as_ref().map(|versus| versus.peer);
        let label = results.run.points[point].name.clone();
        throughput.rows.push(vec![
            label.clone(),
            who(best),
            per_ms(best.and_then(|best| of(best, Figure::Throughput))),
            per_ms(our(Figure::Throughput)),
            median(against, 2),
            spread(against, 2),
            who(thriftiest),
            median(thriftiest.and_then(|peer| of(peer, Figure::Cpu)), 0),
            median(our(Figure::Cpu), 0),
            median(thrifty.map(|versus| versus.ratio), 2),
            median(our(Figure::Others), 2),
        ]);
        let of_glibc = glibc.and_then(|glibc| results.versus(point, glibc, Figure::P999));
        waits.rows.push(vec![
            label,
            microseconds(our(Figure::P50)),
            microseconds(our(Figure::P99)),
            microseconds(our(Figure::P999)),
            microseconds(our(Figure::Max)),
            median(of_glibc.map(|versus| versus.ratio), 2),
            spread(of_glibc.map(|versus| versus.ratio), 2),
            median(our(Figure::Jain), 2),
            median(our(Figure::Involuntary), 4),
            median(our(Figure::Voluntary), 3),
        ]);
    }
    [throughput, waits]
}

/// Over the grid, against each peer.
fn against_table(results: &Results) -> Table {
    let headings = ["peer", "geometric mean", "spread", "worst", "at", "best", "at", "points"];
    let title = format!("Throughput of {} over the grid, of each peer's", results.run.ours);
    let mut table = Table::new(title, 1, &headings);
    let mut row = |who: String, together: Option<super::compare::Together>| {
        let Some(together) = together else { return };
        let by_median = |a: &&super::compare::Versus, b: &&super::compare::Versus| {
            a.ratio.median.total_cmp(&b.ratio.median)
        };
        let (Some(worst), Some(best)) =
            (together.points.iter().min_by(by_median), together.points.iter().max_by(by_median))
        else {
            return;
        };
        let point = |versus: &super::compare::Versus| results.run.points[versus.point].name.clone();
        table.rows.push(vec![
            who,
            format!("{:.2}", together.mean),
            range(together.spread),
            format!("{:.2}", worst.ratio.median),
            point(worst),
            format!("{:.2}", best.ratio.median),
            point(best),
            together.points.len().to_string(),
        ]);
    };
    for peer in results.competitors() {
        row(results.run.peers[peer].name.clone(), results.grid_against(peer));
    }
    row("the best at each point".to_owned(), results.grid_against_best());
    let fair = format!("the best of those as fair, or of a Jain's index of {FAIR}");
    row(fair, results.grid_against_the_fair());
    table
}

/// How close anybody comes to being the best everywhere.
fn standing_table(results: &Results) -> Table {
    let below = format!("below {CLOSE}");
    let headings = ["lock", "geometric mean", "worst", &below, "points"];
    let mut table =
        Table::new("Each lock over the grid, of the best of all others at each point", 1, &headings);
    let mut standings: Vec<_> = results
        .competitors()
        .chain([results.ours()])
        .filter_map(|peer| Some((peer, results.standing(peer)?)))
        .collect();
    standings.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    for (peer, standing) in standings {
        table.rows.push(vec![
            results.run.peers[peer].name.clone(),
            format!("{:.2}", standing.mean),
            format!("{:.2}", standing.worst),
            standing.behind.to_string(),
            standing.points.to_string(),
        ]);
    }
    table
}

fn range(spread: Option<(f64, f64)>) -> String {
    spread.map_or_else(|| "-".to_owned(), |(min, max)| format!("{min:.2}..{max:.2}"))
}

/// What many threads get of what two get.
fn crowd_table(results: &Results) -> Table {
    let run = &results.run;
    let most = results.points(Kind::Grid).map(|point| run.points[point].threads).max().unwrap_or(0);
    let glibc = results.find("glibc");
    let headings = ["section us", "think us", &run.ours, "spread", "glibc", "spread"];
    let title = format!("Throughput with {most} threads, of that with 2");
    let mut table = Table::new(title, 2, &headings);
    for many in results.points(Kind::Grid).filter(|&point| most > 2 && run.points[point].threads == most) {
        let work = |point: usize| (run.points[point].critical_us, run.points[point].think_us);
        let two = results
            .points(Kind::Grid)
            .find(|&point| run.points[point].threads == 2 && work(point) == work(many));
        let Some(two) = two else { continue };
        let of_two = |peer| {
            let rounds = |point| results.rounds(point, peer, Figure::Throughput);
            Summary::of_ratios(&rounds(many), &rounds(two))
        };
        let (ours, glibc) = (of_two(results.ours()), glibc.and_then(of_two));
        let (critical_us, think_us) = work(many);
        table.rows.push(vec![
            critical_us.to_string(),
            think_us.to_string(),
            median(ours, 2),
            spread(ours, 2),
            median(glibc, 2),
            spread(glibc, 2),
        ]);
    }
    table
}

/// What gave no figure: how often, and why the first time.
fn failures_table(results: &Results) -> Table {
    let mut table = Table::new("Measurements without a figure", 4, &["lock", "point", "rounds", "why"]);
    let mut last: Option<(&str, &str)> = None;
    for failure in results.failures() {
        let round = (failure.round + 1).to_string();
        match table.rows.last_mut() {
            Some(row) if last == Some((failure.lock, failure.point)) => row[2] += &format!(", {round}"),
            _ => table.rows.push(vec![
                failure.lock.to_owned(),
                failure.point.to_owned(),
                round,
                failure.why.to_owned(),
            ]),
        }
        last = Some((failure.lock, failure.point));
    }
    table
}

fn targets_table(ours: &str, targets: &[Verdict]) -> Table {
    let headings = ["target", "limit", "figure", "", "spread", "at", "missed by"];
    let mut table = Table::new(format!("Targets, for {ours}"), 1, &headings);
    for target in targets {
        let reached = match target.reached() {
            Some(true) => "reached",
            Some(false) => "missed",
            None => "not measured",
        };
        table.rows.push(vec![
            target.figure.clone(),
            match target.limit {
                Limit::AtMost(limit) => format!("at most {limit:.2}"),
                Limit::AtLeast(limit) => format!("at least {limit:.2}"),
            },
            target.value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")),
            reached.to_owned(),
            range(target.spread),
            target.at.clone(),
            if target.of == 0 { "-".to_owned() } else { format!("{} of {}", target.short, target.of) },
        ]);
    }
    table
}
