//! The figures as tables, and what they are to reach.

use poundlock_core::qspin::Form as Kind;

use super::{Alone, Contender, Cost, Figures, Row};
use crate::machine::Machine;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;

/// The forms of ours that stand beside the one that a target is about.
const COMPARED: [Contender; 4] = [
    Contender::NATIVE,
    Contender::PARAVIRTUAL,
    Contender::Large(Kind::Native),
    Contender::Preloaded(Kind::Native),
];

pub(super) fn targets(figures: &Figures) -> Vec<Target> {
    let mut targets = alone(&figures.alone);
    targets.extend(pair(&figures.pair, figures.options.think_us));
    // They are about 2 CPUs: with more, two threads do not fill the machine.
    if figures.cpus == 2 {
        targets.extend(crowd(&figures.crowd));
    }
    targets.retain(|target| !target.results.is_empty());
    targets
}

fn alone(rows: &[Alone]) -> Vec<Target> {
    let of = |locks: Vec<Contender>, figure: fn(&Alone) -> Option<Summary>| {
        let rows = rows.iter().filter(move |row| locks.contains(&row.lock));
        rows.map(move |row| (row.lock.name(), figure(row)))
    };
    let preloaded = Kind::ALL.map(Contender::Preloaded).to_vec();
    vec![
        Target::new(
            "one thread: time of a bare compare-and-swap + store",
            Limit::AtMost(1.1),
            "",
            of(COMPARED[..3].to_vec(), |row| row.of_bare),
        ),
        Target::new(
            "one thread: time of pthread_spin",
            Limit::AtMost(1.05),
            "",
            of(COMPARED[..3].to_vec(), |row| row.of_pthread_spin),
        ),
        Target::new(
            "one thread, call for call: the preloaded symbol's time of glibc's",
            Limit::AtMost(1.05),
            "",
            of(preloaded, |row| row.of_pthread_spin),
        ),
    ]
}

fn pair(rows: &[Row], think_us: f64) -> Vec<Target> {
    let compared = || rows.iter().filter(|row| COMPARED.contains(&row.lock));
    let mut targets = Vec::new();
    let mut lengths: Vec<f64> = rows.iter().map(|row| row.critical_us).collect();
    lengths.dedup();
    for us in lengths {
        let here = compared().filter(|row| row.critical_us == us);
        targets.push(Target::new(
            format!("2 threads, section {us} us, think {think_us} us: best of pthread_spin, ticket, MCS"),
            Limit::AtLeast(0.95),
            "",
            here.clone().map(|row| (row.lock.name(), row.of_best())),
        ));
        targets.push(Target::new(
            format!("2 threads, section {us} us, think {think_us} us: Jain's index"),
            Limit::AtLeast(0.95),
            "",
            here.map(|row| (row.lock.name(), row.jain)),
        ));
    }
    targets
}

fn crowd(rows: &[Row]) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut numbers: Vec<usize> = rows.iter().map(|row| row.threads).filter(|&threads| threads > 2).collect();
    numbers.dedup();
    for threads in numbers {
        let here = || {
            rows.iter().filter(move |row| {
                row.threads == threads
                    && matches!(row.lock, Contender::PARAVIRTUAL | Contender::Preloaded(Kind::Paravirtual))
            })
        };
        targets.push(Target::new(
            format!("{threads} threads: throughput of its own at 2"),
            Limit::AtLeast(0.8),
            "",
            here().map(|row| (row.lock.name(), row.of_own_two)),
        ));
        targets.push(Target::new(
            format!("{threads} threads: throughput of glibc's mutex"),
            Limit::AtLeast(0.95),
            "",
            here().map(|row| (row.lock.name(), row.of_glibc)),
        ));
    }
    targets
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Spinlocks"
    }

    fn method(&self) -> String {
        let options = &self.options;
        let plural = if self.cpus == 1 { "" } else { "s" };
        format!(
            "Spinlocks of one word, and glibc's default mutex. Rust types are inlined; what is behind the C ABI is \
             called through pointers from the dynamic linker. That a lock excludes is checked.\n\n\
             One thread: time of a lock and an unlock that nobody contends with, on one CPU, with a second thread \
             alive; everybody in turn in one process, but for the preloaded symbols, which have processes of their \
             own, each with what it is compared with beside it.\n\n\
             Threads that take turns: each locks, works, unlocks, and works on its own; kept on a CPU each where \
             there are no more of them than the {cpus} CPU{plural} used, else wherever the scheduler puts them. The \
             work is a chain of multiplications whose length was measured once for all contenders ({before:.3} ns a \
             step before the rounds, {after:.3} ns after them). Threads that starve are left to end with their \
             process.\n\n\
             {rounds} rounds; in each, points come in random order, and at a point all contenders in random order: \
             {pair:.3} s each for the pair and {crowd:.3} s for more threads, after a tenth of that to warm up. A \
             figure is the median over the rounds, the spread their minimum and maximum; a ratio is taken inside each \
             round before its median over the rounds. \"Of the best\" is the smallest of the ratios to pthread_spin, \
             ticket and mcs. \"Others\" is the share of the CPUs that went to other processes meanwhile: where it is \
             not near 0, the figures are worth less.\n\n\
             What a hand-over costs is measured in runs of their own, in which each holder takes the time when it \
             acquires and when it releases. Free is from a release to the next acquisition, if somebody waited at the \
             release; held is from an acquisition to its release. In a time above 1 ms the lock waited for the \
             scheduler: a time slice is some 3 ms.",
            cpus = self.cpus,
            before = self.calibration.ns_per_step,
            after = self.calibration_after.ns_per_step,
            rounds = options.rounds,
            pair = options.seconds * super::Scene::Pair.length(),
            crowd = options.seconds * super::Scene::Crowd.length(),
        )
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![alone_table(&self.alone)];
        if !self.pair.is_empty() {
            let think = self.options.think_us;
            tables.push(pair_table(&self.pair, format!("Two threads with a CPU each, think {think} us")));
        }
        let (critical, think) = (self.options.crowd_critical_us, self.options.crowd_think_us);
        let work = format!("critical section {critical} us, think {think} us");
        tables.push(crowd_table(&self.crowd, format!("Threads that share the CPUs, {work}")));
        tables.push(cost_table(&self.costs, format!("What a hand-over costs, {work}")));
        tables.push(events_table(&self.costs));
        tables
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn targets_title(&self) -> &'static str {
        "Targets (qspin is for threads with a CPU each, qspin-pv for those that share them; the others for comparison)"
    }
}

fn alone_table(rows: &[Alone]) -> Table {
    let headings =
        ["lock", "ns a pair", "spread", "of compare-and-swap + store", "spread", "of pthread_spin", "spread"];
    let mut table = Table::new("One thread", 1, &headings);
    for row in rows {
        table.rows.push(vec![
            row.lock.to_string(),
            median(Some(row.ns), 2),
            spread(Some(row.ns), 2),
            median(row.of_bare, 2),
            spread(row.of_bare, 2),
            median(row.of_pthread_spin, 2),
            spread(row.of_pthread_spin, 2),
        ]);
    }
    table
}

fn pair_table(rows: &[Row], title: String) -> Table {
    let headings = [
        "lock",
        "section us",
        "acquisitions/s",
        "spread",
        "of the best",
        "spread",
        "of pthread_spin",
        "of ticket",
        "of mcs",
        "of glibc",
        "Jain",
        "others",
    ];
    let mut table = Table::new(title, 1, &headings);
    for row in rows {
        table.rows.push(vec![
            row.lock.to_string(),
            row.critical_us.to_string(),
            median(Some(row.throughput), 0),
            spread(Some(row.throughput), 0),
            median(row.of_best(), 2),
            spread(row.of_best(), 2),
            median(row.of_pthread_spin, 2),
            median(row.of_ticket, 2),
            median(row.of_mcs, 2),
            median(row.of_glibc, 2),
            median(row.jain, 2),
            median(row.others, 2),
        ]);
    }
    table
}

fn crowd_table(rows: &[Row], title: String) -> Table {
    let headings = [
        "lock",
        "threads",
        "acquisitions/s",
        "spread",
        "of own 2",
        "spread",
        "of glibc",
        "spread",
        "Jain",
        "unserved %",
        "CPU ns/acq.",
        "sleeps/acq.",
        "preempted/acq.",
        "others",
    ];
    let mut table = Table::new(title, 1, &headings);
    for row in rows {
        table.rows.push(vec![
            row.lock.to_string(),
            row.threads.to_string(),
            median(Some(row.throughput), 0),
            spread(Some(row.throughput), 0),
            median(row.of_own_two, 3),
            spread(row.of_own_two, 3),
            median(row.of_glibc, 3),
            spread(row.of_glibc, 3),
            median(row.jain, 2),
            median(row.unserved.map(|share| share.scaled(100.0)), 0),
            median(row.cpu_ns, 0),
            median(row.voluntary, 3),
            median(row.involuntary, 3),
            median(row.others, 2),
        ]);
    }
    table
}

fn cost_table(costs: &[Cost], title: String) -> Table {
    let headings = [
        "lock",
        "threads",
        "acquisitions/s",
        "free p50 us",
        "p99",
        "p99.9",
        "max",
        "% of time in > 1 ms",
        "held p99 us",
        "p99.9",
        "max",
        "% of time in > 1 ms",
        "sleeps/acq.",
        "preempted/acq.",
    ];
    let mut table = Table::new(title, 1, &headings);
    for row in costs {
        let us = |summary: Option<Summary>| median(summary.map(|ns| ns.scaled(1e-3)), 1);
        table.rows.push(vec![
            row.lock.to_string(),
            row.threads.to_string(),
            median(Some(row.throughput), 0),
            us(row.free.p50_ns),
            us(row.free.p99_ns),
            us(row.free.p999_ns),
            us(row.free.max_ns),
            median(row.free.long_share.map(|share| share.scaled(100.0)), 1),
            us(row.held.p99_ns),
            us(row.held.p999_ns),
            us(row.held.max_ns),
            median(row.held.long_share.map(|share| share.scaled(100.0)), 1),
            median(row.voluntary, 3),
            median(row.involuntary, 3),
        ]);
    }
    table
}

fn events_table(costs: &[Cost]) -> Table {
    let counted: Vec<&Cost> = costs.iter().filter(|cost| !cost.events.is_empty()).collect();
    let mut headings = vec!["event".to_owned()];
    headings.extend(counted.iter().map(|cost| format!("{}, {}", cost.lock, cost.threads)));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in counted.iter().flat_map(|cost| &cost.events) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let title =
        "Lock events for 1000 acquisitions, by lock and threads (latencies: us for 1000 acquisitions)";
    let mut table = Table::new(title, 1, &headings);
    for name in names {
        let unit = if name.ends_with("latency") { 1.0 } else { 1000.0 };
        let mut row = vec![name.to_owned()];
        row.extend(counted.iter().map(|cost| {
            let event = cost.events.iter().find(|(event, _)| *event == name);
            median(event.map(|(_, each)| each.scaled(unit)), 1)
        }));
        table.rows.push(row);
    }
    table
}
