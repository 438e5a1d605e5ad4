//! Spinlocks: alone, between two threads that have a CPU each, and with more threads than CPUs.

use serde::Serialize;

use crate::contender::{self, SPIN_REFERENCES};
use crate::error::Result;
use crate::plan::{
    Column, Common, Plan, Preset, Row, Rows, check_run, check_threads, check_us, in_rounds, table,
};
use crate::report::{Limit, Table, Target, median};
use crate::worker::alone::Operation;
use crate::worker::drive;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Only these spinlocks (those that they are compared with take part always)
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Numbers of threads that share the CPUs
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [4, 16, 64, 250])]
    pub threads: Vec<usize>,
    /// Microseconds of work inside the critical section, for two threads with a CPU each
    #[arg(long = "critical", value_name = "US,..", value_delimiter = ',',
        default_values_t = [0.0, 0.1, 0.25, 0.5, 1.0, 2.0])]
    pub critical_us: Vec<f64>,
    /// Microseconds of work between two of their critical sections
    #[arg(long = "think", value_name = "US", default_value_t = 0.25)]
    pub think_us: f64,
    /// Microseconds of work inside the critical section, for threads that share the CPUs
    #[arg(long = "crowd-critical", value_name = "US", default_value_t = 1.0)]
    pub crowd_critical_us: f64,
    /// Microseconds of work between two of their critical sections
    #[arg(long = "crowd-think", value_name = "US", default_value_t = 1.0)]
    pub crowd_think_us: f64,
    /// Seconds for each contender at each point in a round; twice that where threads share the CPUs
    #[arg(long, value_name = "S", default_value_t = 0.05)]
    pub seconds: f64,
    /// How often, and on how many CPUs.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common<5>,
}

/// Who takes part in a section. The preloaded symbols and the large layout run the same slow paths as the
/// Rust types: where slow paths are most of the figure one of each will do.
fn admits(section: &str, name: &str) -> bool {
    match section {
        "pair" => name != "preload-qspin-virt",
        "crowd" => !name.ends_with("-large") && !["preload-qspin", "preload-qspin-virt"].contains(&name),
        _ => ["pthread_spin", "ticket", "mcs", "glibc", "qspin", "qspin-virt", "qspin-pv"].contains(&name),
    }
}

impl Options {
    fn add(&self, plan: &mut Plan, section: &'static str, threads: usize, us: (f64, f64)) -> Result<()> {
        // The scheduler's time slices need longer to even out.
        let seconds = self.seconds * if section == "pair" { 1.0 } else { 2.0 };
        let locks = contender::choose(contender::spinlocks(), &self.locks, &SPIN_REFERENCES, "spinlock")?;
        for who in locks.iter().filter(|who| admits(section, who.name)) {
            let Some(turns) = plan.turns(who, threads, us, seconds) else { continue };
            let labels =
                vec![("threads", threads.into()), ("critical_us", us.0.into()), ("think_us", us.1.into())];
            let task = drive::Task { probe: section == "costs", ..turns };
            plan.work(section, format!("{section}, {threads} threads, {} us", us.0), who, labels, task);
        }
        Ok(())
    }
}

impl Preset for Options {
    const TITLE: &'static str = "Spinlocks";
    const TARGETS: &'static str = "Targets (qspin is for threads with a CPU each, qspin-pv for those that \
        share them; the others for comparison)";

    fn check(&self) -> Result<()> {
        check_run(self.common.rounds, self.seconds, 3600.0)?;
        check_threads(&self.threads, 2)?;
        check_us("--critical", &self.critical_us)?;
        check_us("--think", &[self.think_us])?;
        check_us("--crowd-critical", &[self.crowd_critical_us])?;
        check_us("--crowd-think", &[self.crowd_think_us])
    }

    fn common(&self) -> (usize, Option<usize>) {
        (self.common.rounds, self.common.cpus)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let locks = contender::choose(contender::spinlocks(), &self.locks, &SPIN_REFERENCES, "spinlock")?;
        plan.alone_together("alone", &locks, &["cas+store", "pthread_spin"], self.seconds, |who| {
            vec![((who.alone.clone().into_owned(), Operation::LockUnlock), vec![])]
        });
        if plan.cpus.len() >= 2 {
            for &us in &self.critical_us {
                self.add(plan, "pair", 2, (us, self.think_us))?;
            }
        }
        let crowd = (self.crowd_critical_us, self.crowd_think_us);
        // Each lock is compared with itself there.
        self.add(plan, "crowd", 2, crowd)?;
        for &threads in self.threads.iter().filter(|&&threads| threads != 2) {
            self.add(plan, "crowd", threads, crowd)?;
        }
        for &threads in &self.threads {
            self.add(plan, "costs", threads, crowd)?;
        }
        plan.of("alone", "of_bare", "ns", vec![("lock", "cas+store".into())]);
        plan.of("alone", "of_pthread_spin", "ns", vec![("lock", "pthread_spin".into())]);
        for section in ["pair", "crowd"] {
            for (name, other) in [
                ("of_pthread_spin", "pthread_spin"),
                ("of_ticket", "ticket"),
                ("of_mcs", "mcs"),
                ("of_glibc", "glibc"),
            ] {
                plan.of(section, name, "throughput", vec![("lock", other.into())]);
            }
        }
        let best = |who: &str| ["pthread_spin", "ticket", "mcs"].contains(&who);
        plan.of("pair", "of_best", "throughput", vec![]).best_of(best, true);
        plan.of("crowd", "of_own_two", "throughput", vec![("threads", 2.into())]);
        Ok(())
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let alone = rows.find("alone", "qspin", &[])?.get("of_pthread_spin")?;
        let crowd = rows.of("crowd").filter(|row| row.who == "qspin-pv").last()?;
        let glibc = crowd.get("of_glibc")?;
        Some(format!(
            "Alone, qspin takes {} of the time of pthread_spin; with {} threads on {} CPUs qspin-pv makes {} \
                times the \
             acquisitions of glibc's mutex.",
            alone.words(),
            crowd.label("threads"),
            rows.cpus,
            glibc.words()
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        format!(
            "Spinlocks of one word, and glibc's default mutex. That a lock excludes is checked.\n\n\
             One thread: time of a lock and an unlock that nobody contends with, on one CPU, with a second \
             thread alive; Rust types \
             are inlined, what is behind the C ABI is called through pointers from the dynamic linker. \
             Everybody in turn in one \
             process, but for the preloaded symbols, which have processes of their own, each with what it is \
             compared with beside \
             it.\n\n\
             Threads that take turns: each locks, works, unlocks, and works on its own; all locks are called \
             through pointers. They \
             are kept on a CPU each where there are no more of them than the {} CPUs used, else wherever the \
             scheduler puts them. \
             Threads that starve are left to end with their process. {:.3} s each for the pair and {:.3} s \
             for more threads, after a \
             tenth of that to warm up. \"Of the best\" is the smallest of the ratios to pthread_spin, ticket \
             and mcs.\n\n\
             What a hand-over costs is measured in runs of their own, in which each holder takes the time \
             when it acquires and when \
             it releases. Free is from a release to the next acquisition, if somebody waited at the release; \
             held is from an \
             acquisition to its release. In a time above 1 ms the lock waited for the scheduler: a time \
             slice is some 3 ms.\n\n{}",
            rows.cpus,
            self.seconds,
            self.seconds * 2.0,
            in_rounds(self.common.rounds, rows)
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        use Column::{Label, Median, Spread};
        let (lock, threads) = (Label("lock", "lock"), Label("threads", "threads"));
        let rate = Spread("acquisitions/s", "throughput", 1.0, 0);
        let alone = [
            lock,
            Spread("ns a pair", "ns", 1.0, 2),
            Spread("of compare-and-swap + store", "of_bare", 1.0, 2),
            Spread("of pthread_spin", "of_pthread_spin", 1.0, 2),
        ];
        let pair = [
            lock,
            Label("section us", "critical_us"),
            rate,
            Spread("of the best", "of_best", 1.0, 2),
            Median("of pthread_spin", "of_pthread_spin", 1.0, 2),
            Median("of ticket", "of_ticket", 1.0, 2),
            Median("of mcs", "of_mcs", 1.0, 2),
            Median("of glibc", "of_glibc", 1.0, 2),
            Median("Jain", "jain", 1.0, 2),
            Median("others", "others", 1.0, 2),
        ];
        let crowd = [
            lock,
            threads,
            rate,
            Spread("of own 2", "of_own_two", 1.0, 3),
            Spread("of glibc", "of_glibc", 1.0, 3),
            Median("Jain", "jain", 1.0, 2),
            Median("unserved %", "unserved", 100.0, 0),
            Median("CPU ns/acq.", "cpu_ns", 1.0, 0),
            Median("sleeps/acq.", "voluntary", 1.0, 3),
            Median("preempted/acq.", "involuntary", 1.0, 3),
            Median("others", "others", 1.0, 2),
        ];
        let costs = [
            lock,
            threads,
            Median("acquisitions/s", "throughput", 1.0, 0),
            Median("free p50 us", "free.p50_ns", 1e-3, 1),
            Median("p99", "free.p99_ns", 1e-3, 1),
            Median("p99.9", "free.p999_ns", 1e-3, 1),
            Median("max", "free.max_ns", 1e-3, 1),
            Median("% of time in > 1 ms", "free.long_share", 100.0, 1),
            Median("held p99 us", "held.p99_ns", 1e-3, 1),
            Median("p99.9", "held.p999_ns", 1e-3, 1),
            Median("max", "held.max_ns", 1e-3, 1),
            Median("% of time in > 1 ms", "held.long_share", 100.0, 1),
            Median("sleeps/acq.", "voluntary", 1.0, 3),
            Median("preempted/acq.", "involuntary", 1.0, 3),
        ];
        let work =
            format!("critical section {} us, think {} us", self.crowd_critical_us, self.crowd_think_us);
        let mut tables = vec![table("One thread", 1, &alone, rows.of("alone"))];
        if rows.of("pair").next().is_some() {
            let title = format!("Two threads with a CPU each, think {} us", self.think_us);
            tables.push(table(title, 1, &pair, rows.of("pair")));
        }
        tables.push(table(format!("Threads that share the CPUs, {work}"), 1, &crowd, rows.of("crowd")));
        tables.push(table(format!("What a hand-over costs, {work}"), 1, &costs, rows.of("costs")));
        tables.push(events_table(rows));
        tables
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        const ALONE: &[&str] = &["qspin", "qspin-pv", "qspin-large"];
        const PAIR: &[&str] = &["qspin", "qspin-pv", "qspin-large", "preload-qspin"];
        const CROWD: &[&str] = &["qspin-pv", "preload-qspin-pv"];
        const CALLED: &[&str] = &["preload-qspin", "preload-qspin-virt", "preload-qspin-pv"];
        let target = |title: String, limit, section, whose: &[&str], figure: &str, at: (&str, f64)| {
            let here = |row: &&Row| {
                whose.contains(&row.who) && (at.0.is_empty() || row.label(at.0).as_f64() == Some(at.1))
            };
            let results = rows.of(section).filter(here).map(|row| (row.who, row.get(figure)));
            Target::new(title, limit, "", results)
        };
        let all = ("", 0.0);
        let one = |what: &str, limit, whose, figure| {
            target(format!("one thread{what}"), Limit::AtMost(limit), "alone", whose, figure, all)
        };
        let mut targets = vec![
            one(": time of a bare compare-and-swap + store", 1.1, ALONE, "of_bare"),
            one(": time of pthread_spin", 1.05, ALONE, "of_pthread_spin"),
            one(", call for call: the preloaded symbol's time of glibc's", 1.03, CALLED, "of_pthread_spin"),
        ];
        for [us] in rows.values("pair", ["critical_us"]) {
            let us = us.as_f64().unwrap_or_default();
            let point = format!("2 threads, section {us} us, think {} us", self.think_us);
            for (title, figure) in
                [("best of pthread_spin, ticket, MCS", "of_best"), ("Jain's index", "jain")]
            {
                let title = format!("{point}: {title}");
                targets.push(target(title, Limit::AtLeast(0.95), "pair", PAIR, figure, ("critical_us", us)));
            }
        }
        // They are about 2 CPUs: with more, two threads do not fill the machine.
        for [threads] in rows.values("crowd", ["threads"]) {
            let threads = threads.as_u64().unwrap_or_default();
            if rows.cpus != 2 || threads <= 2 {
                continue;
            }
            for (title, limit, figure) in
                [("its own at 2", 0.8, "of_own_two"), ("glibc's mutex", 0.95, "of_glibc")]
            {
                let title = format!("{threads} threads: throughput of {title}");
                targets.push(target(
                    title,
                    Limit::AtLeast(limit),
                    "crowd",
                    CROWD,
                    figure,
                    ("threads", threads as f64),
                ));
            }
        }
        targets
    }
}

fn events_table(rows: &Rows) -> Table {
    let events = |row: &Row| -> Vec<String> {
        row.names().filter_map(|name| name.strip_prefix("events.")).map(str::to_owned).collect()
    };
    let counted: Vec<&Row> = rows.of("costs").filter(|row| !events(row).is_empty()).collect();
    let mut headings = vec!["event".to_owned()];
    headings.extend(counted.iter().map(|row| format!("{}, {}", row.who, row.label("threads"))));
    let mut names: Vec<String> = counted.iter().flat_map(|row| events(row)).collect();
    names.sort();
    names.dedup();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let title =
        "Lock events for 1000 acquisitions, by lock and threads (latencies: us for 1000 acquisitions)";
    let mut table = Table::new(title, 1, &headings);
    for name in names {
        let unit = if name.ends_with("latency") { 1.0 } else { 1000.0 };
        let cells = counted
            .iter()
            .map(|row| median(row.get(&format!("events.{name}")).map(|each| each.scaled(unit)), 1));
        table.rows.push([name.clone()].into_iter().chain(cells).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{by_default, tests::made_up};
    use crate::report::text;

    fn figure(section: &str, who: &str, label: &dyn Fn(&str) -> serde_json::Value) -> f64 {
        match (section, who) {
            ("alone", "cas+store") => 10.0,
            ("alone", "pthread_spin") => 12.0,
            ("alone", "qspin") => 11.0,
            ("alone", "preload-qspin" | "preload-qspin-virt" | "preload-qspin-pv") => 13.2,
            ("alone", _) => 12.6,
            ("pair", "qspin") => 94.0,
            ("pair", "ticket") => 100.0,
            ("pair", _) => 90.0,
            (_, "qspin-pv") if label("threads") == 2 => 200.0,
            (_, "qspin-pv") => 170.0,
            (_, "glibc") => 180.0,
            _ => 1.0,
        }
    }

    #[test]
    fn targets_follow_from_the_rows() {
        let options = by_default::<Options>();
        let figures = made_up(&options, 2, figure);
        let of = |target: &str, lock| figures.target(target, lock);
        assert_eq!(of("one thread: time of a bare", "qspin"), (1.1, "reached"));
        assert_eq!(of("one thread: time of pthread_spin", "qspin"), (0.917, "reached"));
        assert_eq!(of("one thread, call for call", "preload-qspin-virt"), (1.1, "missed"));
        for us in [0.0, 0.1, 0.25, 0.5, 1.0, 2.0] {
            let point = format!("2 threads, section {us} us, think 0.25 us: ");
            assert_eq!(of(&format!("{point}best"), "qspin"), (0.94, "missed"));
            assert_eq!(of(&format!("{point}Jain"), "qspin"), (0.99, "reached"));
        }
        for threads in [4, 16, 64, 250] {
            assert_eq!(
                of(&format!("{threads} threads: throughput of its own"), "qspin-pv"),
                (0.85, "reached")
            );
            assert_eq!(of(&format!("{threads} threads: throughput of glibc"), "qspin-pv"), (0.944, "missed"));
        }
        let text = text(&figures.report, false);
        assert!(text.contains("What a hand-over costs") && text.contains("slow paths"), "{text}");
        // With one CPU there is no pair, and with many no target for a crowd.
        let count = |cpus: usize, starts: &str| {
            let json = serde_json::to_value(made_up(&options, cpus, figure)).unwrap();
            let targets = json["targets"].as_array().unwrap().clone();
            targets.iter().filter(|target| target["figure"].as_str().unwrap().starts_with(starts)).count()
        };
        assert_eq!((count(1, "2 threads"), count(8, "64 threads"), count(8, "2 threads")), (0, 0, 12));
    }
}
