//! The figures as tables, as the source's program prints them, and what they are to reach.

use super::{Alone, Cost, Figures, Held, Mechanism, Operation, Pair, Published, Round, Row, Sleep};
use crate::machine::Machine;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;
use crate::worker::sem::NAP;

/// What the targets are about.
const TARGET_THREADS: usize = 250;
const TARGET_WAKE: usize = 64;
/// A linear pass takes twice as long for twice the sleepers; the caches may make it this much worse.
const GROWTH: f64 = 2.0 * 1.3;

pub(super) fn targets(figures: &Figures) -> Vec<Target> {
    let options = &figures.options;
    let alone = figures.alone.iter().filter(|row| row.operation == Operation::One && row.mechanism.is_ours());
    let mut targets = vec![Target::new(
        "one thread, one operation: times the kernel's rate",
        Limit::AtLeast(5.0),
        "",
        alone.map(|row| (row.mechanism.name(), row.times_the_kernels_rate)),
    )];
    if (options.threads, options.wake, options.bind) == (TARGET_THREADS, TARGET_WAKE, true) {
        let what = format!("-t {TARGET_THREADS} -w {TARGET_WAKE} -b");
        let ours = || figures.burns.iter().filter(|row| row.mechanism.is_ours());
        targets.extend([
            Target::new(
                format!("{what}: burns a second, of the kernel's"),
                Limit::AtLeast(1.0),
                "",
                ours().map(|row| (row.mechanism.name(), row.of_kernel)),
            ),
            Target::new(
                format!("{what}: CPU time lost to spinning"),
                Limit::AtMost(1.1),
                "%",
                ours().map(|row| (row.mechanism.name(), percent(row.spinning))),
            ),
            Target::new(
                format!("{what}: contended acquisitions"),
                Limit::AtMost(6.0),
                "%",
                ours().map(|row| (row.mechanism.name(), percent(row.contended))),
            ),
        ]);
    }
    for sleep in Sleep::ALL {
        let worst = Mechanism::ALL.into_iter().filter(|mechanism| mechanism.is_array());
        targets.push(Target::new(
            format!("sleepers, {}: growth with a doubling, the worst", sleep.words()),
            Limit::AtMost(GROWTH),
            "",
            worst.map(|mechanism| (mechanism.name(), worst_growth(&figures.crowds, mechanism, sleep))),
        ));
    }
    targets.retain(|target| !target.results.is_empty());
    targets
}

/// The doubling with the largest median.
fn worst_growth(costs: &[Cost], mechanism: Mechanism, sleep: Sleep) -> Option<Summary> {
    let growths = costs.iter().filter(|cost| cost.mechanism == mechanism && cost.sleep == sleep);
    growths.filter_map(|cost| cost.growth).max_by(|a, b| a.median.total_cmp(&b.median))
}

fn percent(share: Option<Summary>) -> Option<Summary> {
    let Summary { median, q1, q3, min, max, n } = share?;
    let percent = |share: f64| share * 100.0;
    let (median, q1, q3) = (percent(median), percent(q1), percent(q3));
    Some(Summary { median, q1, q3, min: percent(min), max: percent(max), n })
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Semaphore arrays, as sembench measures them"
    }

    fn method(&self) -> String {
        let options = &self.options;
        let plural = if self.cpus == 1 { "" } else { "s" };
        let bound = if options.bind {
            "each kept on one of them in turn, the main thread wherever the scheduler puts it"
        } else {
            "wherever the scheduler puts them"
        };
        let mut method = format!(
            "Threads that sleep and are woken: {threads} threads on {cpus} CPU{plural}, {bound}. Each puts itself on a \
             list and sleeps on a semaphore of its own; the main thread takes up to {wake} at a time off the list and \
             wakes them with calls of up to 64 operations. Where nobody is on the list it yields. A burn of the main \
             thread is a turn that woke somebody, a burn of a worker is a wake-up that it served; at the end as many \
             must have been served as were made. All semaphores lie in one array. `futex` gives each thread a word, \
             and each wake-up a system call; with `nanosleep` nobody is woken, and the threads look every {nap} ms. \
             The kernel does not say what its arrays' locks cost: a dash.\n\n\
             One thread: on one CPU, with a second thread alive; +1 and -1 in turn, nobody waits. Two threads: with a \
             CPU and a semaphore each, in one array, +1 and -1 in turn.\n\n",
            threads = options.threads,
            cpus = self.cpus,
            wake = options.wake,
            nap = NAP.as_millis(),
        );
        if !self.crowds.is_empty() {
            method += "Sleepers: the CPU time of the call that wakes, for each thread that it wakes, while ever more \
                       threads sleep in one array. All are on one CPU; what those whom the call wakes do on it \
                       before the call is over does not count.\n\n";
        }
        method += &format!(
            "{rounds} rounds; in each, points come in random order, and at a point all mechanisms in random order, each \
             in a process of its own, for {seconds:.3} s after a tenth of that to warm up (one thread's operations, two \
             threads and each number of sleepers for a share of it). A figure is the median over the rounds, the spread \
             their minimum and maximum; a ratio is taken inside each round before its median over the rounds. \
             \"Others\" is the share of the CPUs that went to other processes meanwhile: where it is not near 0, the \
             figures are worth less.",
            rounds = options.rounds,
            seconds = options.seconds,
        );
        method
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn listing(&self) -> String {
        let runs = self.burns.iter().map(|row| listing(self, row));
        runs.collect::<Vec<_>>().join("\n")
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![burns_table(&self.burns), published_table(self), alone_table(&self.alone)];
        if !self.pairs.is_empty() {
            tables.push(pairs_table(&self.pairs));
        }
        tables.extend(line_table(self));
        for sleep in Sleep::ALL {
            tables.extend(crowd_table(&self.crowds, sleep));
        }
        tables
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn targets_title(&self) -> &'static str {
        "Targets (they are about after; the others for comparison)"
    }
}

/// The round with the median rate in the words of the source's program and of its patch that reports.
fn listing(figures: &Figures, row: &Row) -> String {
    let round = &row.typical;
    let mut out = format!(
        "{} threads, waking {} at a time\n\
         using {}\n\
         main thread burns: {}\n\
         worker burn count total {} min {} max {} avg {:.0}\n\
         run time {} seconds {:.0} worker burns per second\n",
        figures.options.threads,
        figures.options.wake,
        row.mechanism.words(),
        round.main_burns,
        round.worker_burns,
        round.worker_min,
        round.worker_max,
        round.worker_avg,
        seconds(round.seconds),
        round.burns_per_second,
    );
    if let Some(held) = round.held {
        out += &format!(
            "lifetime {} seconds {} ns.\nfree {} contended {}\nwait {} avg {} 1/1000 cpu time {}\n",
            seconds(held.lifetime_ns as f64 / 1e9),
            held.lifetime_ns,
            held.free,
            held.contended,
            held.spun_ns,
            wait_avg(&held),
            permille(round),
        );
    }
    out
}

/// Whole where they are.
fn seconds(seconds: f64) -> String {
    if seconds >= 10.0 { format!("{seconds:.0}") } else { format!("{seconds:.2}") }
}

fn wait_avg(held: &Held) -> String {
    held.spun_ns.checked_div(held.contended).unwrap_or(0).to_string()
}

fn permille(round: &Round) -> String {
    round.spinning.map_or_else(|| "-".to_owned(), |share| format!("{:.0}", share * 1000.0))
}

fn burns_table(rows: &[Row]) -> Table {
    let headings = [
        "mechanism",
        "burns/s",
        "spread",
        "of kernel",
        "spread",
        "of before",
        "woken at a time",
        "CPU ns a burn",
        "sleeps",
        "preempted",
        "contended %",
        "spinning %",
        "others",
    ];
    let mut table = Table::new("Threads that sleep and are woken", 1, &headings);
    for row in rows {
        table.rows.push(vec![
            row.mechanism.to_string(),
            median(Some(row.burns_per_second), 0),
            spread(Some(row.burns_per_second), 0),
            median(row.of_kernel, 2),
            spread(row.of_kernel, 2),
            median(row.of_before, 2),
            median(Some(row.at_a_time), 1),
            median(Some(row.cpu_ns), 0),
            median(Some(row.voluntary), 2),
            median(Some(row.involuntary), 2),
            median(percent(row.contended), 2),
            median(percent(row.spinning), 2),
            median(row.others, 2),
        ]);
    }
    table
}

/// Ours beside the source's, line by line as the source prints them.
fn published_table(figures: &Figures) -> Table {
    let mut headings = vec!["figure", "published, before", "published, after"];
    headings.extend(figures.burns.iter().map(|row| row.mechanism.name()));
    let title = "Beside the figures that were published for a 4-core AMD Phenom (-t 250 -w 64 -o 0 -r 30 -b; times \
                 there in ticks, here in ns): the round with the median rate";
    let mut table = Table::new(title, 1, &headings);
    let mut line = |figure: &str, published: fn(&Published) -> u64, ours: &dyn Fn(&Round) -> String| {
        let mut row = vec![figure.to_owned()];
        row.extend(figures.published.iter().map(|side| published(side).to_string()));
        row.extend(figures.burns.iter().map(|row| ours(&row.typical)));
        table.rows.push(row);
    };
    let held = |figure: fn(&Held) -> String| {
        move |round: &Round| round.held.as_ref().map_or_else(|| "-".to_owned(), figure)
    };
    line("main thread burns", |side| side.main_burns, &|round| round.main_burns.to_string());
    line("worker burns, total", |side| side.worker_burns, &|round| round.worker_burns.to_string());
    line("worker burns, min", |side| side.worker_min, &|round| round.worker_min.to_string());
    line("worker burns, max", |side| side.worker_max, &|round| round.worker_max.to_string());
    line("worker burns, avg", |side| side.worker_avg, &|round| format!("{:.0}", round.worker_avg));
    line("run time, seconds", |side| side.seconds, &|round| seconds(round.seconds));
    line("worker burns per second", |side| side.burns_per_second, &|round| {
        format!("{:.0}", round.burns_per_second)
    });
    line("lifetime", |side| side.lifetime_ticks, &held(|held| held.lifetime_ns.to_string()));
    line("free", |side| side.free, &held(|held| held.free.to_string()));
    line("contended", |side| side.contended, &held(|held| held.contended.to_string()));
    line("wait", |side| side.wait_ticks, &held(|held| held.spun_ns.to_string()));
    line("wait, avg", |side| side.wait_avg_ticks, &held(wait_avg));
    line("1/1000 cpu time", |side| side.permille, &permille);
    table
}

fn alone_table(rows: &[Alone]) -> Table {
    let headings = [
        "call",
        "mechanism",
        "ns a call",
        "spread",
        "times the kernel's rate",
        "spread",
        "of a compare-and-swap",
    ];
    let mut table = Table::new("One thread", 2, &headings);
    for row in rows {
        // The floor is the same for all: once is enough.
        let bare = row.operation == Operation::Bare;
        if bare && row.mechanism != Mechanism::Kernel {
            continue;
        }
        table.rows.push(vec![
            row.operation.words().to_owned(),
            if bare { "-".to_owned() } else { row.mechanism.to_string() },
            median(Some(row.ns), 1),
            spread(Some(row.ns), 1),
            median(row.times_the_kernels_rate.filter(|_| !bare), 2),
            spread(row.times_the_kernels_rate.filter(|_| !bare), 2),
            median(row.of_bare, 1),
        ]);
    }
    table
}

fn pairs_table(rows: &[Pair]) -> Table {
    let headings =
        ["mechanism", "calls/s, both", "spread", "of kernel", "spread", "contended %", "spinning %"];
    let mut table = Table::new("Two threads with a CPU and a semaphore each, in one array", 1, &headings);
    for row in rows {
        table.rows.push(vec![
            row.mechanism.to_string(),
            median(Some(row.calls_per_second), 0),
            spread(Some(row.calls_per_second), 0),
            median(row.of_kernel, 2),
            spread(row.of_kernel, 2),
            median(percent(row.contended), 2),
            median(percent(row.spinning), 2),
        ]);
    }
    table
}

/// The source's question: does it pay to give the lock a cache line of its own?
fn line_table(figures: &Figures) -> Option<Table> {
    let headings = ["figure", "after", "shared-line", "after, of shared-line", "spread"];
    let mut table = Table::new("Does the lock's own cache line pay?", 1, &headings);
    let mut line = |figure: &str, decimals, [own, shared]: [Option<Summary>; 2], ratio: Option<Summary>| {
        if own.is_some() && shared.is_some() {
            table.rows.push(vec![
                figure.to_owned(),
                median(own, decimals),
                median(shared, decimals),
                median(ratio, 3),
                spread(ratio, 3),
            ]);
        }
    };
    let both = [Mechanism::After, Mechanism::SharedLine];
    let burns = both.map(|one| figures.burns.iter().find(|row| row.mechanism == one));
    let rate = |row: Option<&Row>| row.map(|row| row.burns_per_second);
    line("burns/s", 0, burns.map(rate), burns[0].and_then(|row| row.of_shared_line));
    line("contended acquisitions, %", 2, burns.map(|row| percent(row?.contended)), None);
    line("CPU time lost to spinning, %", 2, burns.map(|row| percent(row?.spinning)), None);
    let pairs = both.map(|one| figures.pairs.iter().find(|row| row.mechanism == one));
    let rate = |row: Option<&Pair>| row.map(|row| row.calls_per_second);
    line("two threads, calls/s", 0, pairs.map(rate), pairs[0].and_then(|row| row.of_shared_line));
    for operation in Operation::ALL.into_iter().filter(|&operation| operation != Operation::Bare) {
        let rows = both
            .map(|one| figures.alone.iter().find(|row| row.mechanism == one && row.operation == operation));
        let ratio =
            rows[0].zip(rows[1]).and_then(|(own, shared)| Summary::of_ratios(&own.rounds, &shared.rounds));
        let ns = rows.map(|row| row.map(|row| row.ns));
        line(&format!("one thread, {}, ns", operation.words()), 1, ns, ratio);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn crowd_table(costs: &[Cost], sleep: Sleep) -> Option<Table> {
    let here: Vec<&Cost> = costs.iter().filter(|cost| cost.sleep == sleep).collect();
    let taking_part: Vec<Mechanism> = Mechanism::ALL
        .into_iter()
        .filter(|&mechanism| here.iter().any(|cost| cost.mechanism == mechanism))
        .collect();
    let mut headings = vec!["sleepers"];
    headings.extend(taking_part.iter().map(|mechanism| mechanism.name()));
    let title = format!("Sleepers, {}: ns a wake-up, and its growth with a doubling", sleep.words());
    let mut table = Table::new(title, 1, &headings);
    let mut numbers: Vec<usize> = here.iter().map(|cost| cost.sleepers).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for number in numbers {
        let mut row = vec![number.to_string()];
        for &mechanism in &taking_part {
            let cost = here.iter().find(|cost| cost.sleepers == number && cost.mechanism == mechanism);
            row.push(cost.map_or_else(
                || "-".to_owned(),
                |cost| match cost.growth {
                    Some(growth) => format!("{:.0} ({:.2})", cost.ns.median, growth.median),
                    None => format!("{:.0}", cost.ns.median),
                },
            ));
        }
        table.rows.push(row);
    }
    (!table.rows.is_empty()).then_some(table)
}
