//! The figures of a run as tables.

use clap::ValueEnum;

use super::compare::{CLOSE, EMPTY, FAIR, GLIBC, Results, Together};
use super::result::Kind;
use crate::Summary;
use crate::floor;
use crate::plan::{Column, Row, table};
use crate::report::{self, Report, Table, median, spread};

/// The figures as a Markdown page of their own.
pub fn markdown(results: &Results, targets: bool) -> String {
    format!(
        "# The grid\n\nWritten by `poundlock bench report --markdown` of the results of the command below; \
            do not edit. The figures are \
         that machine's, at that commit: run the command for yours.\n\n{}",
        report::markdown(&results.report(), targets)
    )
}

impl Results {
    /// The figures, to be read.
    pub fn report(&self) -> Report {
        let all = Kind::value_variants().iter().flat_map(|&kind| self.points(kind));
        let others = all.filter_map(|point| self.summary(point, self.ours(), "others"));
        let mut tables = vec![peers_table(self)];
        tables.extend(self.floors.as_ref().map(floor::table));
        tables.extend(Kind::value_variants().iter().flat_map(|&kind| kind_tables(self, kind)));
        tables.extend([
            against_table(self),
            standing_table(self),
            crowd_table(self),
            alone_table(self),
            failures_table(self),
        ]);
        tables.retain(|table| !table.rows.is_empty());
        Report {
            title: "Locks that people use, side by side",
            answer: answer(self).unwrap_or_default(),
            others: others.map(|others| others.median).max_by(f64::total_cmp),
            method: method(self),
            machine: self.run.machine.clone(),
            listing: String::new(),
            tables,
            targets: self.targets.clone(),
            targets_title: "Targets",
        }
    }
}

/// Ours beside everybody else's, over the grid.
fn answer(results: &Results) -> Option<String> {
    let (best, glibc) = (results.grid_against_best()?, results.grid_against(results.find(GLIBC)?)?);
    Some(format!(
        "At the {} points of the grid {} makes {} times the acquisitions of glibc's default mutex, and {} \
            times those of \
         whichever other lock is the fastest there: geometric means.",
        best.points.len(),
        results.run.ours,
        glibc.mean.words(),
        best.mean.words()
    ))
}

/// How the figures came about, in paragraphs that an empty line parts.
fn method(results: &Results) -> String {
    let run = &results.run;
    let made: usize = (0..run.rounds).map(|round| results.made(round)).sum();
    let all = results.planned() * run.rounds;
    let kept = if run.pinned { ", each thread kept on one of them" } else { "" };
    let progress = match all - made {
        0 => String::new(),
        missing => format!(" {missing} of {all} measurements are not made yet."),
    };
    format!(
        "Every lock is called through the same pointers to C functions, so that none is inlined. Each \
            measurement runs \
         in a process of its own, on {cpus} CPU{plural}{kept}. Work inside and outside critical sections is \
         a chain of \
         multiplications whose length was measured once for all locks ({ns:.3} ns a step); the work outside \
         varies by \
         half, so that threads do not march in step. First an interval in which nothing is timed gives \
         throughput, CPU \
         time (user and system, of the whole process), context switches and Jain's index of the threads' \
         acquisitions; \
         then one in which each acquisition is timed gives the waits, the reading of the clock included. A \
         wait that \
         had not ended counts as long as it had lasted. A lock that let two threads in at once gives no \
         figure.\n\n\
         {rounds} rounds; in each, points come in random order, and at a point all locks in random order, so \
         that \
         whatever disturbs the machine disturbs everybody. A figure is the median over the rounds, the \
         spread their \
         minimum and maximum; a ratio is taken inside each round before its median over the rounds. The best \
         peer at a \
         point is the one with the largest median throughput there: with few rounds also the luckiest, which \
         errs to \
         our disadvantage. Means of ratios are geometric, and the spread of a mean is that of the rounds' \
         own means. \
         Jain's index is 1 if all threads got the lock equally often, and 1/n if one of n got it always. \
         \"Others\" is the share of the CPUs that went to other processes meanwhile: where it is \
         not near 0, the figures are worth less.{progress}",
        cpus = run.cpus.len(),
        plural = if run.cpus.len() == 1 { "" } else { "s" },
        ns = run.calibration.ns_per_step,
        rounds = run.rounds,
    )
}

pub(crate) fn peers_table(results: &Results) -> Table {
    let mut table = Table::new("Who takes part", 3, &["lock", "from", "what it is"]);
    for peer in &results.run.peers {
        table.rows.push(vec![peer.name.clone(), peer.origin.clone(), peer.description.clone()]);
    }
    for absent in &results.run.absent {
        table.rows.push(vec![absent.name.clone(), "left out".to_owned(), absent.why.clone()]);
    }
    table
}

/// What ours does at a point, and who is the best there, and the thriftiest.
fn row(results: &Results, point: usize) -> Row {
    let name = |peer: usize| results.run.peers[peer].name.clone();
    let mut labels = vec![("point", results.run.points[point].name.clone().into())];
    let figures = ["throughput", "cpu_ns", "others", "jain", "involuntary", "voluntary"];
    let waits = ["waits.p50_ns", "waits.p99_ns", "waits.p999_ns", "waits.max_ns"];
    let own = figures.into_iter().chain(waits);
    let mut row: Vec<(&str, Option<Summary>)> =
        own.map(|figure| (figure, results.summary(point, results.ours(), figure))).collect();
    if let Some(best) = results.against_best(point) {
        labels.push(("best", name(best.peer).into()));
        row.push(("best's throughput", results.summary(point, best.peer, "throughput")));
        row.push(("of_best", Some(best.ratio)));
    }
    if let Some(thrifty) = results.against_thriftiest(point) {
        labels.push(("thriftiest", name(thrifty.peer).into()));
        row.push(("thriftiest's cpu_ns", results.summary(point, thrifty.peer, "cpu_ns")));
        row.push(("of_thriftiest", Some(thrifty.ratio)));
    }
    let glibc = results.find(GLIBC).and_then(|glibc| results.versus(point, glibc, "waits.p999_ns"));
    row.push(("waits of_glibc", glibc.map(|versus| versus.ratio)));
    let figures = row.into_iter().filter_map(|(name, summary)| Some((name.to_owned(), summary?)));
    Row::new(labels, figures.collect())
}

/// A table of ours against the others, and one of what waiting costs.
fn kind_tables(results: &Results, kind: Kind) -> [Table; 2] {
    use Column::{Label, Median, Spread};
    let name = &results.run.ours;
    let throughput = [
        Label("point", "point"),
        Label("best peer", "best"),
        Median("its acquisitions/ms", "best's throughput", 1e-3, 1),
        Median(name, "throughput", 1e-3, 1),
        Spread("of the best", "of_best", 1.0, 2),
        Label("thriftiest", "thriftiest"),
        Median("its CPU ns", "thriftiest's cpu_ns", 1.0, 0),
        Median(name, "cpu_ns", 1.0, 0),
        Median("of it", "of_thriftiest", 1.0, 2),
        Median("others", "others", 1.0, 2),
    ];
    let waits = [
        Label("point", "point"),
        Median("p50 us", "waits.p50_ns", 1e-3, 1),
        Median("p99", "waits.p99_ns", 1e-3, 1),
        Median("p99.9", "waits.p999_ns", 1e-3, 1),
        Median("max", "waits.max_ns", 1e-3, 1),
        Spread("p99.9 of glibc's", "waits of_glibc", 1.0, 2),
        Median("Jain", "jain", 1.0, 2),
        Median("preempted", "involuntary", 1.0, 4),
        Median("sleeps", "voluntary", 1.0, 3),
    ];
    let rows: Vec<Row> = results.points(kind).map(|point| row(results, point)).collect();
    [
        table(kind.words(), 2, &throughput, rows.iter()),
        table(format!("{}: waits for {name}", kind.words()), 1, &waits, rows.iter()),
    ]
}

/// Over the grid, against each peer, the hardest first.
pub(crate) fn against_table(results: &Results) -> Table {
    let headings = ["peer", "geometric mean", "spread", "worst", "at", "best", "at", "points"];
    let title = format!("Throughput of {} over the grid, of each peer's", results.run.ours);
    let mut table = Table::new(title, 1, &headings);
    let competitors = results.competitors();
    let each = competitors
        .filter_map(|peer| Some((results.run.peers[peer].name.clone(), results.grid_against(peer)?)));
    let mut each: Vec<(String, Together)> = each.collect();
    each.sort_by(|a, b| a.1.mean.median.total_cmp(&b.1.mean.median));
    let fair = format!("the best of those as fair, or of a Jain's index of {FAIR}");
    let best = [
        ("the best at each point".to_owned(), results.grid_against_best()),
        (fair, results.grid_against_the_fair()),
    ];
    each.extend(best.into_iter().filter_map(|(who, together)| Some((who, together?))));
    for (who, Together { mean, points }) in each {
        let mut row = vec![who, median(Some(mean), 2), spread(Some(mean), 2)];
        for versus in [&points[0], &points[points.len() - 1]] {
            row.push(median(Some(versus.ratio), 2));
            row.push(results.run.points[versus.point].name.clone());
        }
        row.push(points.len().to_string());
        table.rows.push(row);
    }
    table
}

/// How close anybody comes to being the best everywhere.
pub(crate) fn standing_table(results: &Results) -> Table {
    let below = format!("below {CLOSE}");
    let headings = ["lock", "geometric mean", "worst", &below, "points"];
    let mut table =
        Table::new("Each lock over the grid, of the best of all others at each point", 1, &headings);
    let all = results.competitors().chain([results.ours()]);
    let mut standings: Vec<_> = all.filter_map(|peer| Some((peer, results.standing(peer)?))).collect();
    standings.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    table.rows.extend(standings.into_iter().map(|(peer, standing)| {
        let [mean, worst] = [standing.mean, standing.worst].map(|ratio| format!("{ratio:.2}"));
        let [behind, points] = [standing.behind, standing.points].map(|number| number.to_string());
        vec![results.run.peers[peer].name.clone(), mean, worst, behind, points]
    }));
    table
}

/// What many threads get of what two get.
pub(crate) fn crowd_table(results: &Results) -> Table {
    let run = &results.run;
    let most = results.points(Kind::Grid).map(|point| run.points[point].threads).max().unwrap_or(0);
    let headings = ["section us", "think us", &run.ours, "spread", "glibc", "spread"];
    let title = format!("Throughput with {most} threads, of that with 2");
    let mut table = Table::new(title, 2, &headings);
    for many in results.points(Kind::Grid).filter(|&point| most > 2 && run.points[point].threads == most) {
        let two = |two: &usize| run.points[*two].threads == 2 && results.same_work(*two, many);
        let Some(two) = results.points(Kind::Grid).find(two) else { continue };
        let mut row = vec![run.points[many].critical_us.to_string(), run.points[many].think_us.to_string()];
        for peer in [Some(results.ours()), results.find(GLIBC)] {
            let ratio = peer.and_then(|peer| results.of_other(many, two, peer));
            row.extend([median(ratio, 2), spread(ratio, 2)]);
        }
        table.rows.push(row);
    }
    table
}

/// What each lock costs a thread that is alone, the cheapest first, and how much of it is the driver's.
pub(crate) fn alone_table(results: &Results) -> Table {
    let headings = ["lock", "ns", "spread", "without the driver"];
    let mut table = Table::new("One thread, nobody else: a lock and an unlock without work", 1, &headings);
    let alone = results.points(Kind::Grid).find(|&point| {
        let point = &results.run.points[point];
        (point.threads, point.critical_us, point.think_us) == (1, 0.0, 0.0)
    });
    let ns = |peer| results.summary(alone?, peer, "ns");
    let driver = results.find(EMPTY).and_then(ns).or(results.floors.as_ref().map(|floors| floors.driver_ns));
    let all = (0..results.run.peers.len()).filter(|&peer| results.run.peers[peer].name != EMPTY);
    let mut rows: Vec<(usize, Summary)> = all.filter_map(|peer| Some((peer, ns(peer)?))).collect();
    rows.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    table.rows.extend(rows.into_iter().map(|(peer, ns)| {
        let without = driver
            .map_or_else(|| "-".to_owned(), |driver| format!("{:.1}", (ns.median - driver.median).max(0.0)));
        vec![results.run.peers[peer].name.clone(), median(Some(ns), 1), spread(Some(ns), 1), without]
    }));
    table
}

/// What gave no figure: in which rounds, and why the first time.
pub(crate) fn failures_table(results: &Results) -> Table {
    let mut table = Table::new("Measurements without a figure", 4, &["lock", "point", "rounds", "why"]);
    let mut last = None;
    for (point, peer, round, why) in results.failures() {
        let round = (round + 1).to_string();
        match table.rows.last_mut() {
            Some(row) if last == Some((point, peer)) => row[2] += &format!(", {round}"),
            _ => {
                let (lock, point) = (&results.run.peers[peer].name, &results.run.points[point].name);
                table.rows.push(vec![lock.clone(), point.clone(), round, why.to_owned()]);
            }
        }
        last = Some((point, peer));
    }
    table
}
