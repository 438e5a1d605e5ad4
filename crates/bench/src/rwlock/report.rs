//! The figures as tables, and what they are to reach.

use super::{Alone, Contender, Figures, Row, Side, Waits};
use crate::machine::Machine;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;

pub(super) fn targets(figures: &Figures) -> Vec<Target> {
    let mut targets = alone(&figures.alone);
    // They are about 2 CPUs.
    if figures.cpus == 2 {
        targets.extend(crowd(&figures.rows));
    }
    targets.retain(|target| !target.results.is_empty());
    targets
}

fn alone(rows: &[Alone]) -> Vec<Target> {
    let reads = |whose: fn(Contender) -> bool| {
        rows.iter().filter(move |row| row.side == Side::Read && whose(row.lock))
    };
    vec![
        Target::new(
            "one thread: time of parking_lot's read pair",
            Limit::AtMost(1.1),
            "",
            reads(|lock| matches!(lock, Contender::Ours(_))).map(|row| (row.lock.name(), row.of_parking_lot)),
        ),
        Target::new(
            "one thread, call for call: the preloaded read pair's time of glibc's",
            Limit::AtMost(0.9),
            "",
            reads(|lock| lock == Contender::Preloaded).map(|row| (row.lock.name(), row.of_glibc)),
        ),
    ]
}

/// What the targets for threads that share the CPUs are about.
const CROWD: (usize, f64) = (16, 1.0);

fn crowd(rows: &[Row]) -> Vec<Target> {
    let (threads, writers) = CROWD;
    let here = || rows.iter().filter(|row| (row.threads, row.writers) == CROWD && row.lock.is_ours());
    let point = format!("{threads} threads, {writers} % writers");
    vec![
        Target::new(
            format!("{point}: throughput of the best of the others'"),
            Limit::AtLeast(1.0),
            "",
            here().map(|row| (row.lock.name(), row.of_best.map(|best| best.ratio))),
        ),
        Target::new(
            format!("{point}: a writer's longest wait by the mean"),
            Limit::AtMost(10.0),
            "",
            here().map(|row| (row.lock.name(), row.writer_waits.max_of_mean)),
        ),
    ]
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Readers-writer locks"
    }

    fn method(&self) -> String {
        let options = &self.options;
        let plural = if self.cpus == 1 { "" } else { "s" };
        let mut method = format!(
            "Readers-writer locks of Poundlock, of the C library, and of crates and packages. Ours, Rust's own and parking_lot's are \
             inlined, as a Rust program has them; the others are called through pointers, usync's too. \"mutex\" is our mutex, which \
             readers take as writers do: where it has the better figures, sharing does not pay. That a writer excludes \
             everybody is checked: writers make two words unequal for as long as they are inside.\n\n\
             One thread: time of a lock and an unlock that nobody contends with, as a reader and as a writer, on one CPU, with a \
             second thread alive; everybody in turn in one process, but for the preloaded symbols, which have a process of their \
             own with what they are compared with beside them. The floor is an atomic addition and a subtraction for a \
             reader, a compare-and-swap and a store for a writer.\n\n\
             Threads that read and write: each locks, works {read} us as a reader or {write} us as a writer, unlocks, and works \
             {think} us on its own; a generator says whether it writes, with the same seed for every lock. They are kept on a CPU each where there \
             are no more of them than the {cpus} CPU{plural} used, else wherever the scheduler puts them. The work is a chain of \
             multiplications whose length was measured once for all contenders ({before:.3} ns a step before the rounds, \
             {after:.3} ns after them). Throughput and waits are measured one after the other, for no wait is timed in the \
             former. A wait that has not ended with its interval counts as long as it has lasted; it includes the time of a \
             thread that could have the lock and has no CPU. Threads that starve are left to end with their process.\n\n\
             {rounds} rounds; in each, points come in random order, and at a point all contenders in random order: {seconds:.3} s each \
             for throughput and as long for waits, twice that for more threads than CPUs, after a tenth of it to warm up. A \
             figure is the median over the rounds, the spread their minimum and maximum; a ratio is taken inside each round before \
             its median over the rounds. \"Of the best\" is the smallest of the ratios to each of the others' locks. \"Others\" is \
             the share of the CPUs that went to other processes meanwhile: where it is not near 0, the figures are worth less.",
            read = options.read_us,
            write = options.write_us,
            think = options.think_us,
            cpus = self.cpus,
            before = self.calibration.ns_per_step,
            after = self.calibration_after.ns_per_step,
            rounds = options.rounds,
            seconds = options.seconds,
        );
        if !self.absent.is_empty() {
            method += "\n\nLeft out:";
            for absent in &self.absent {
                method += &format!(" {} ({}).", absent.lock, absent.why);
            }
        }
        method
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tables(&self) -> Vec<Table> {
        vec![
            alone_table(&self.alone),
            throughput_table(&self.rows),
            waits_table("Waits of writers", &self.rows, |row| &row.writer_waits),
            waits_table("Waits of readers", &self.rows, |row| &row.reader_waits),
        ]
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn targets_title(&self) -> &'static str {
        "Targets (they are about rw-phase-fair; the others for comparison)"
    }
}

fn alone_table(rows: &[Alone]) -> Table {
    let headings = [
        "lock",
        "as",
        "ns a pair",
        "spread",
        "of the floor",
        "spread",
        "of parking_lot",
        "spread",
        "of glibc",
        "spread",
    ];
    let mut table = Table::new("One thread", 2, &headings);
    for row in rows {
        table.rows.push(vec![
            row.lock.to_string(),
            row.side.name().to_owned(),
            median(Some(row.ns), 2),
            spread(Some(row.ns), 2),
            median(row.of_bare, 2),
            spread(row.of_bare, 2),
            median(row.of_parking_lot, 2),
            spread(row.of_parking_lot, 2),
            median(row.of_glibc, 2),
            spread(row.of_glibc, 2),
        ]);
    }
    table
}

fn throughput_table(rows: &[Row]) -> Table {
    let headings = [
        "lock",
        "threads",
        "writers %",
        "operations/s",
        "spread",
        "of the best",
        "spread",
        "which is",
        "of glibc",
        "Jain",
        "unserved %",
        "CPU ns/op.",
        "sleeps/op.",
        "preempted/op.",
        "others",
    ];
    let mut table = Table::new("Throughput and fairness", 1, &headings);
    for row in rows {
        let best = row.of_best.map(|best| best.ratio);
        table.rows.push(vec![
            row.lock.to_string(),
            row.threads.to_string(),
            row.writers.to_string(),
            median(Some(row.throughput), 0),
            spread(Some(row.throughput), 0),
            median(best, 2),
            spread(best, 2),
            row.of_best.map_or_else(|| "-".to_owned(), |best| best.lock.to_string()),
            median(row.of_glibc, 2),
            median(row.jain, 2),
            median(row.unserved.map(|share| share.scaled(100.0)), 0),
            median(row.cpu_ns, 0),
            median(row.voluntary, 4),
            median(row.involuntary, 4),
            median(row.others, 2),
        ]);
    }
    table
}

fn waits_table(title: &str, rows: &[Row], whose: fn(&Row) -> &Waits) -> Table {
    let headings = [
        "lock",
        "threads",
        "writers %",
        "mean us",
        "p50",
        "p99",
        "p99.9",
        "max",
        "spread",
        "max by the mean",
        "spread",
    ];
    let mut table = Table::new(title, 1, &headings);
    for row in rows {
        let waits = whose(row);
        let us = |ns: Option<Summary>| ns.map(|ns| ns.scaled(1e-3));
        table.rows.push(vec![
            row.lock.to_string(),
            row.threads.to_string(),
            row.writers.to_string(),
            median(us(waits.mean_ns), 2),
            median(us(waits.p50_ns), 2),
            median(us(waits.p99_ns), 1),
            median(us(waits.p999_ns), 1),
            median(us(waits.max_ns), 0),
            spread(us(waits.max_ns), 0),
            median(waits.max_of_mean, 1),
            spread(waits.max_of_mean, 1),
        ]);
    }
    table
}
