//! The figures as tables, and what they are to reach.

use super::{Alone, Checked, Contender, Figures, Next, Operation, Pass, Row};
use crate::machine::Machine;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;

pub(super) fn targets(figures: &Figures) -> Vec<Target> {
    let policies = |threads: usize, critical_us: f64| {
        figures.increments.iter().filter(move |row| {
            row.threads == threads && row.critical_us == critical_us && row.lock.is_policy()
        })
    };
    let compared = |lock: Contender| lock == Contender::HANDOFF || lock == Contender::Recursive;
    let alone = figures
        .alone
        .iter()
        .filter(|row| row.operation == Operation::LockUnlock && compared(row.lock))
        .map(|row| (row.lock.name(), row.of_bare));
    let mut targets = vec![Target::new(
        "one thread: time of a bare compare-and-swap + exchange",
        Limit::AtMost(1.3),
        "",
        alone,
    )];
    // They are about threads with a CPU each.
    if figures.cpus >= 2 {
        let spinning = || policies(2, 0.0).filter(|row| row.lock != Contender::HANDOFF_NONE);
        targets.push(Target::new(
            "2 threads with a CPU each, incrementing: times as fast as without spinning",
            Limit::AtLeast(10.0),
            "",
            spinning().map(|row| (row.lock.name(), row.faster_than_none)),
        ));
        targets.push(Target::new(
            "2 threads with a CPU each, incrementing: time of the queue spinlock",
            Limit::AtMost(1.5),
            "",
            spinning().map(|row| (row.lock.name(), row.of_qspin)),
        ));
    }
    // With more CPUs 20 threads are another matter.
    if figures.cpus == 2 {
        let mut sections: Vec<f64> = figures.increments.iter().map(|row| row.critical_us).collect();
        sections.dedup();
        for us in sections {
            let rows = policies(20, us).filter(|row| row.lock != Contender::HANDOFF_NONE);
            targets.push(Target::new(
                format!("20 threads, section {us} us: time without spinning"),
                Limit::AtMost(1.0),
                "",
                rows.map(|row| (row.lock.name(), row.of_none)),
            ));
        }
    }
    targets.retain(|target| !target.results.is_empty());
    targets
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Mutexes, as OSv's misc-mutex measures them"
    }

    fn method(&self) -> String {
        let options = &self.options;
        let plural = if self.cpus == 1 { "" } else { "s" };
        format!(
            "Every lock that we have as a Rust program has it, inlined, and the C library's, called through pointers \
             from the dynamic linker. That a lock excludes is checked throughout.\n\n\
             One thread: on one CPU, with a second thread alive; everybody in turn in one process.\n\n\
             The hand-off alone: two threads with a CPU each pass the lock to and fro. The owner unlocks when the other \
             has set out to lock a microsecond ago, or when the scheduler says that it sleeps; nobody competes with it. \
             Time from before the unlock to the end of the other's lock, reading the clock included: the median of a \
             run. The hand-off mutex also passes itself on in one thread, by its token and through its queue.\n\n\
             Incrementing threads: each locks, increments a counter, and unlocks; it does nothing else. Kept on a CPU \
             each where there are no more of them than the {cpus} CPU{plural} used, else wherever the scheduler puts \
             them. Nanoseconds are from one acquisition to the next, whoever's it is. Work inside the critical section \
             is a chain of multiplications whose length was measured once for all contenders ({before:.3} ns a step \
             before the rounds, {after:.3} ns after them). At its end the counter must be what the threads added up.\n\n\
             The checker: each thread yields its CPU inside and looks whether anybody else came. A lock that lets \
             somebody in gives no figures at all.\n\n\
             {rounds} rounds; in each, points come in random order, and at a point all contenders in random order, for \
             {pair:.3} s each, and {crowd:.3} s where threads share the CPUs, after a tenth of that to warm up. A figure \
             is the median over the rounds, the spread their minimum and maximum; a ratio is taken inside each round \
             before its median over the rounds. \"Others\" is the share of the CPUs that went to other processes \
             meanwhile: where it is not near 0, the figures are worth less.",
            cpus = self.cpus,
            before = self.calibration.ns_per_step,
            after = self.calibration_after.ns_per_step,
            rounds = options.rounds,
            pair = options.seconds,
            crowd = options.seconds * 2.0,
        )
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables = vec![sizes_table(self), alone_table(&self.alone), to_itself_table(&self.alone)];
        if !self.passes.is_empty() {
            tables.push(passes_table(&self.passes));
        }
        let mut sections: Vec<f64> = self.increments.iter().map(|row| row.critical_us).collect();
        sections.dedup();
        for us in sections {
            let rows = self.increments.iter().filter(|row| row.critical_us == us);
            let title = match us {
                0.0 => "Incrementing threads".to_owned(),
                _ => format!("Incrementing threads that work {us} us inside"),
            };
            tables.push(increments_table(rows, title));
        }
        tables.push(published_table(self));
        tables.push(policies_table(&self.increments));
        tables.push(checked_table(&self.checked));
        tables
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn targets_title(&self) -> &'static str {
        "Targets (they are about handoff, with the policy that it has if none is named; the others for comparison)"
    }
}

fn sizes_table(figures: &Figures) -> Table {
    let mut table = Table::new("Bytes", 1, &["lock", "plain", "recursive", "condition variable"]);
    let dash = |size: Option<usize>| size.map_or_else(|| "-".to_owned(), |size| size.to_string());
    for size in &figures.sizes {
        table.rows.push(vec![
            size.lock.to_owned(),
            size.plain.to_string(),
            dash(size.recursive),
            dash(size.condvar),
        ]);
    }
    table
}

/// A line for each lock, and what only the hand-off mutex can do in a table of its own.
fn alone_table(rows: &[Alone]) -> Table {
    let headings = [
        "lock",
        "lock + unlock ns",
        "spread",
        "of compare-and-swap + exchange",
        "spread",
        "once more, held already",
        "trylock + unlock",
        "trylock, held by another",
    ];
    let mut table = Table::new("One thread, ns", 1, &headings);
    for row in rows.iter().filter(|row| row.operation == Operation::LockUnlock) {
        let other = |operation: Operation| {
            let found = rows.iter().find(|other| other.lock == row.lock && other.operation == operation);
            median(found.map(|row| row.ns), 2)
        };
        table.rows.push(vec![
            row.lock.to_string(),
            median(Some(row.ns), 2),
            spread(Some(row.ns), 2),
            median(row.of_bare, 2),
            spread(row.of_bare, 2),
            other(Operation::Again),
            other(Operation::Trylock),
            other(Operation::TrylockHeld),
        ]);
    }
    table
}

fn to_itself_table(rows: &[Alone]) -> Table {
    let headings = ["lock", "operation", "ns", "spread", "of compare-and-swap + exchange", "spread"];
    let mut table = Table::new("The hand-off alone, to the same thread", 2, &headings);
    let own = |row: &&Alone| matches!(row.operation, Operation::ByToken | Operation::ThroughQueue);
    for row in rows.iter().filter(own) {
        table.rows.push(vec![
            row.lock.to_string(),
            row.operation.words().to_owned(),
            median(Some(row.ns), 2),
            spread(Some(row.ns), 2),
            median(row.of_bare, 2),
            spread(row.of_bare, 2),
        ]);
    }
    table
}

fn passes_table(rows: &[Pass]) -> Table {
    let headings =
        ["lock", "the next owner", "ns", "spread", "of glibc", "spread", "the unlock alone ns", "spread"];
    let mut table = Table::new("The hand-off alone, to another thread", 2, &headings);
    for row in rows {
        let next = match row.next {
            Next::JustCame => "came 1 us ago",
            Next::Asleep => "sleeps",
        };
        table.rows.push(vec![
            row.lock.to_string(),
            next.to_owned(),
            median(Some(row.pass_ns), 0),
            spread(Some(row.pass_ns), 0),
            median(row.of_glibc, 2),
            spread(row.of_glibc, 2),
            median(Some(row.unlock_ns), 0),
            spread(Some(row.unlock_ns), 0),
        ]);
    }
    table
}

fn increments_table<'a>(rows: impl Iterator<Item = &'a Row>, title: String) -> Table {
    let headings = [
        "lock",
        "threads",
        "ns",
        "spread",
        "of glibc",
        "of handoff:none",
        "of qspin",
        "Jain",
        "unserved %",
        "CPU ns",
        "sleeps",
        "preempted",
        "others",
    ];
    let mut table = Table::new(title, 1, &headings);
    for row in rows {
        let unserved = row.unserved.map(|share| share.median * 100.0);
        table.rows.push(vec![
            row.lock.to_string(),
            threads(row),
            median(Some(row.ns), 1),
            spread(Some(row.ns), 1),
            median(row.of_glibc, 2),
            median(row.of_none, 3),
            median(row.of_qspin, 2),
            median(row.jain, 2),
            unserved.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}")),
            median(row.cpu_ns, 0),
            median(row.voluntary, 3),
            median(row.involuntary, 3),
            median(row.others, 2),
        ]);
    }
    table
}

fn threads(row: &Row) -> String {
    if row.pinned { format!("{} pinned", row.threads) } else { row.threads.to_string() }
}

/// Ours beside the source's, as the source counts.
fn published_table(figures: &Figures) -> Table {
    let title = "Beside the figures that were published for OSv on 4 CPUs: time of one thread's increment, ns (with n \
                 threads, n times that from one acquisition to the next)";
    let headings = [
        "threads",
        "published, not spinning",
        "published, spinning",
        "times as fast",
        "handoff:none",
        "handoff",
        "times as fast as handoff:none",
    ];
    let mut table = Table::new(title, 1, &headings);
    for published in &figures.published {
        let row = |lock| {
            figures
                .increments
                .iter()
                .find(|row| row.threads == published.threads && row.critical_us == 0.0 && row.lock == lock)
        };
        let ns = |lock| {
            row(lock).map_or_else(
                || "-".to_owned(),
                |row| format!("{:.0}", row.ns.median * published.threads as f64),
            )
        };
        let pinned = row(Contender::HANDOFF).is_none_or(|row| row.pinned);
        table.rows.push(vec![
            format!("{}{}", published.threads, if pinned { "" } else { " (ours share the CPUs)" }),
            format!("{:.0}", published.without_ns),
            format!("{:.0}", published.with_ns),
            format!("{:.1}", published.without_ns / published.with_ns),
            ns(Contender::HANDOFF_NONE),
            ns(Contender::HANDOFF),
            median(row(Contender::HANDOFF).and_then(|row| row.faster_than_none), 1),
        ]);
    }
    table
}

/// For choosing the policy: each one at each point, and how far it is behind the best.
fn policies_table(rows: &[Row]) -> Table {
    let points: Vec<(usize, f64)> = rows.iter().fold(Vec::new(), |mut points, row| {
        if !points.contains(&(row.threads, row.critical_us)) {
            points.push((row.threads, row.critical_us));
        }
        points
    });
    let mut headings = vec!["policy".to_owned()];
    headings.extend(points.iter().map(|(threads, us)| format!("{threads} threads, {us} us")));
    headings.extend(["worst".to_owned(), "geometric mean".to_owned()]);
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let title = "Policies of the hand-off mutex: ns, and of the best one's at that point";
    let mut table = Table::new(title, 1, &headings);
    for policy in Contender::all().into_iter().filter(|contender| contender.is_policy()) {
        let at = |&(threads, us): &(usize, f64)| {
            rows.iter().find(|row| row.threads == threads && row.critical_us == us && row.lock == policy)
        };
        let ratios: Vec<f64> = points
            .iter()
            .filter_map(at)
            .filter_map(|row| row.of_best_policy)
            .map(|ratio| ratio.median)
            .collect();
        let (Some(worst), Some(mean)) = (Summary::of(ratios.iter().copied()), geometric_mean(&ratios)) else {
            continue;
        };
        let mut cells = vec![policy.to_string()];
        cells.extend(points.iter().map(|point| {
            at(point).map_or_else(
                || "-".to_owned(),
                |row| format!("{:.0} ({})", row.ns.median, median(row.of_best_policy, 2)),
            )
        }));
        cells.extend([format!("{:.2}", worst.max), format!("{mean:.2}")]);
        table.rows.push(cells);
    }
    table
}

pub(super) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

fn checked_table(rows: &[Checked]) -> Table {
    let headings = ["lock", "threads", "sections, all undisturbed", "ns a section", "spread"];
    let mut table = Table::new("The checker", 1, &headings);
    for row in rows {
        table.rows.push(vec![
            row.lock.to_string(),
            row.threads.to_string(),
            format!("{:.0}", row.sections),
            median(Some(row.ns), 0),
            spread(Some(row.ns), 0),
        ]);
    }
    table
}
