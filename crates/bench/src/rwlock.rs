//! Readers-writer locks: alone, and with threads of which some write: throughput, waits of readers and of
//! writers, fairness.

use poundlock_core::rwlock::Preference;
use poundlock_names::Named;
use serde::Serialize;

use crate::contender::{self, Contender, RW_REFERENCES};
use crate::error::{Error, Result};
use crate::launch::Process;
use crate::plan::{
    Column, Common, Plan, Preset, Row, Rows, check_run, check_threads, check_us, in_rounds, ns, table,
};
use crate::report::{Limit, Table, Target};
use crate::worker::alone::Operation;
use crate::worker::drive::{Inside, Task as Work};
use crate::worker::symbols::Kind;
use crate::worker::{Answer, Task};

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Only these readers-writer locks (those that they are compared with take part always)
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [2, 16])]
    pub threads: Vec<usize>,
    /// How many per cent of the operations write
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_values_t = [1.0, 10.0])]
    pub writers: Vec<f64>,
    /// Microseconds of work of a reader inside the critical section
    #[arg(long = "read", value_name = "US", default_value_t = 1.0)]
    pub read_us: f64,
    /// Microseconds of work of a writer inside it
    #[arg(long = "write", value_name = "US", default_value_t = 1.0)]
    pub write_us: f64,
    /// Microseconds of work between two critical sections of a thread
    #[arg(long = "think", value_name = "US", default_value_t = 1.0)]
    pub think_us: f64,
    /// Seconds for each contender at each point in a round, and as long for its waits; twice that where
    /// threads share the CPUs
    #[arg(long, value_name = "S", default_value_t = 0.1)]
    pub seconds: f64,
    /// How often, and on how many CPUs.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common<5>,
}

fn is_ours(name: &str) -> bool {
    Preference::parse(name).is_some() || name == "preload-rwlock"
}

/// Whether it is one of somebody else's that threads can wait for.
fn is_peer(name: &str) -> bool {
    !is_ours(name) && !["mutex", "add+subtract"].contains(&name)
}

impl Options {
    /// Who takes part. One that was asked for must be there; the others are left out with a reason.
    fn taking_part(&self, plan: &mut Plan) -> Result<Vec<Contender>> {
        let mut locks =
            contender::choose(contender::rwlocks(), &self.locks, &RW_REFERENCES, "readers-writer lock")?;
        let mut gone = Vec::new();
        for who in &locks {
            let why = match who.library {
                Some(_) if cfg!(test) => None,
                // A worker looks: the library changes the process that it is brought into.
                Some(library) => {
                    plan.context.library()?;
                    let process = Process { ours: Some(library), ..Process::plain(who.name) };
                    match plan.context.measure(
                        process,
                        Task::Look(Kind::Readers),
                        std::time::Duration::ZERO,
                    )? {
                        Answer::Look(why) => why,
                        _ => return Err(Error::another_question(who.name)),
                    }
                }
                None => who.absent(),
            };
            match why {
                Some(why) if self.locks.iter().any(|name| name == who.name) => {
                    return Err(Error::Library(format!("{}: {why}", who.name)));
                }
                Some(why) => gone.push((who.name, why)),
                None => {}
            }
        }
        locks.retain(|who| gone.iter().all(|(name, _)| *name != who.name));
        plan.absent = gone;
        Ok(locks)
    }
}

impl Preset for Options {
    const TITLE: &'static str = "Readers-writer locks";
    const TARGETS: &'static str = "Targets (they are about rw-phase-fair; the others for comparison)";

    fn check(&self) -> Result<()> {
        check_run(self.common.rounds, self.seconds, 3600.0)?;
        check_threads(&self.threads, 2)?;
        if self.writers.is_empty() || self.writers.iter().any(|percent| !(0.0..=100.0).contains(percent)) {
            return Err(Error::Options("--writers must name percentages from 0 to 100".to_owned()));
        }
        check_us("--read", &[self.read_us])?;
        check_us("--write", &[self.write_us])?;
        check_us("--think", &[self.think_us])
    }

    fn common(&self) -> (usize, Option<usize>) {
        (self.common.rounds, self.common.cpus)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let locks = self.taking_part(plan)?;
        // Each side takes half of a contender's time.
        plan.alone_together("alone", &locks, &RW_REFERENCES, self.seconds / 2.0, |who| {
            let sides = [("read", Operation::Read), ("write", Operation::LockUnlock)];
            let timed = |(side, what): (&str, _)| {
                ((who.alone.clone().into_owned(), what), vec![("side", side.into())])
            };
            sides.map(timed).into()
        });
        for (&threads, &writers) in self.threads.iter().flat_map(|n| self.writers.iter().map(move |w| (n, w)))
        {
            // The scheduler's time slices need longer to even out.
            let seconds = self.seconds * if threads <= plan.cpus.len() { 1.0 } else { 2.0 };
            let steps = |us| plan.calibration.steps(us);
            let inside = Inside::Share {
                writers: writers / 100.0,
                read_steps: steps(self.read_us),
                write_steps: steps(self.write_us),
            };
            for who in &locks {
                let Some(turns) = plan.turns(who, threads, (0.0, self.think_us), seconds) else { continue };
                let labels = vec![("threads", threads.into()), ("writers", writers.into())];
                let task = Work { inside, latency_ns: ns(seconds), ..turns };
                plan.work("rows", format!("{threads} threads, {writers} % writers"), who, labels, task);
            }
        }
        for (name, other) in
            [("of_bare", "add+subtract"), ("of_parking_lot", "parking_lot"), ("of_glibc", "glibc")]
        {
            plan.of("alone", name, "ns", vec![("lock", other.into())]);
        }
        plan.of("rows", "of_glibc", "throughput", vec![("lock", "glibc".into())]);
        plan.of("rows", "of_best", "throughput", vec![]).best_of(is_peer, true);
        Ok(())
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let row = rows.of("rows").filter(|row| row.who == Preference::PhaseFair.name()).last()?;
        Some(format!(
            "With {} threads on {} CPUs, {} % of whose operations write, {} makes {} times the operations of \
                the fastest other \
             lock, {}.",
            row.label("threads"),
            rows.cpus,
            row.label("writers").as_f64()?,
            row.who,
            row.get("of_best")?.words(),
            row.label("best").as_str()?
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        format!(
            "Readers-writer locks of Poundlock, of the C library, and of crates and packages. \"mutex\" is \
                our mutex, which readers \
             take as writers do: where it has the better figures, sharing does not pay. That a writer \
             excludes everybody is \
             checked: writers make two words unequal for as long as they are inside.\n\n\
             One thread: time of a lock and an unlock that nobody contends with, as a reader and as a \
             writer, on one CPU, with a \
             second thread alive. Ours, Rust's own and parking_lot's are inlined, the others called through \
             pointers; everybody in \
             turn in one process, but for the preloaded symbols, which have a process of their own with what \
             they are compared with \
             beside them. The floor is an atomic addition and a subtraction for a reader, a compare-and-swap \
             and a store for a \
             writer.\n\n\
             Threads that read and write: each locks, works {} us as a reader or {} us as a writer, unlocks, \
             and works {} us on its \
             own; a generator says whether it writes, with the same seed for every lock. All locks are \
             called through pointers. \
             Threads are kept on a CPU each where there are no more of them than CPUs ({}), else wherever \
             the scheduler puts them. \
             Throughput and waits are measured one after the other, {:.3} s each, twice that for more \
             threads than CPUs. A wait that \
             has not ended with its interval counts as long as it has lasted; it includes the time of a \
             thread that could have the \
             lock and has no CPU. Threads that starve are left to end with their process. \"Of the best\" is \
             the smallest of the \
             ratios to each of the others' locks.\n\n{}",
            self.read_us,
            self.write_us,
            self.think_us,
            rows.cpus,
            self.seconds,
            in_rounds(self.common.rounds, rows)
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        use Column::{Label, Median, Spread};
        let alone = [
            Label("lock", "lock"),
            Label("as", "side"),
            Spread("ns a pair", "ns", 1.0, 2),
            Spread("of the floor", "of_bare", 1.0, 2),
            Spread("of parking_lot", "of_parking_lot", 1.0, 2),
            Spread("of glibc", "of_glibc", 1.0, 2),
        ];
        let point = [Label("lock", "lock"), Label("threads", "threads"), Label("writers %", "writers")];
        let throughput = [
            Spread("operations/s", "throughput", 1.0, 0),
            Spread("of the best", "of_best", 1.0, 2),
            Label("which is", "best"),
            Median("of glibc", "of_glibc", 1.0, 2),
            Median("Jain", "jain", 1.0, 2),
            Median("unserved %", "unserved", 100.0, 0),
            Median("CPU ns/op.", "cpu_ns", 1.0, 0),
            Median("sleeps/op.", "voluntary", 1.0, 4),
            Median("preempted/op.", "involuntary", 1.0, 4),
            Median("others", "others", 1.0, 2),
        ];
        let waits = |who: &str| {
            let name = |figure: &str| format!("{who}_waits.{figure}");
            let names = ["mean_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns", "max_of_mean"].map(name);
            let [mean, p50, p99, p999, max, by_mean] = &names;
            let waits = [
                Median("mean us", mean, 1e-3, 2),
                Median("p50", p50, 1e-3, 2),
                Median("p99", p99, 1e-3, 1),
                Median("p99.9", p999, 1e-3, 1),
                Spread("max", max, 1e-3, 0),
                Spread("max by the mean", by_mean, 1.0, 1),
            ];
            let columns = [point.as_slice(), &waits].concat();
            table(format!("Waits of {who}s"), 1, &columns, rows.of("rows"))
        };
        vec![
            table("One thread", 2, &alone, rows.of("alone")),
            table("Throughput and fairness", 1, &[point.as_slice(), &throughput].concat(), rows.of("rows")),
            waits("writer"),
            waits("reader"),
        ]
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let reads = |whose: fn(&str) -> bool, figure: &'static str| {
            let here = move |row: &&Row| row.is("side", "read") && whose(row.who);
            rows.of("alone").filter(here).map(move |row| (row.who, row.get(figure)))
        };
        let mut targets = vec![
            Target::new(
                "one thread: time of parking_lot's read pair",
                Limit::AtMost(1.1),
                "",
                reads(|who| Preference::parse(who).is_some(), "of_parking_lot"),
            ),
            Target::new(
                "one thread, call for call: the preloaded read pair's time of glibc's",
                Limit::AtMost(0.9),
                "",
                reads(|who| who == "preload-rwlock", "of_glibc"),
            ),
        ];
        // They are about 2 CPUs.
        if rows.cpus == 2 {
            let crowd = |figure: &'static str| {
                let here = |row: &&Row| row.is("threads", 16) && row.is("writers", 1.0) && is_ours(row.who);
                rows.of("rows").filter(here).map(move |row| (row.who, row.get(figure)))
            };
            targets.push(Target::new(
                "16 threads, 1 % writers: throughput of the best of the others'",
                Limit::AtLeast(1.0),
                "",
                crowd("of_best"),
            ));
            targets.push(Target::new(
                "16 threads, 1 % writers: a writer's longest wait by the mean",
                Limit::AtMost(10.0),
                "",
                crowd("writer_waits.max_of_mean"),
            ));
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{by_default, tests::made_up};

    #[test]
    fn targets_follow_from_the_rows_and_the_best_is_the_hardest_to_reach() {
        let options = by_default::<Options>();
        let figure = |section: &str, who: &str, _: &dyn Fn(&str) -> serde_json::Value| match (section, who) {
            ("alone", "parking_lot" | "preload-rwlock") => 10.0,
            ("alone", "glibc") => 20.0,
            ("alone", _) => 11.0,
            (_, "std") => 100.0,
            (_, "rw-phase-fair") => 110.0,
            (_, "mutex") => 1000.0,
            _ => 50.0,
        };
        let figures = made_up(&options, 2, figure);
        assert_eq!(figures.target("one thread: time of parking_lot", "rw-phase-fair"), (1.1, "reached"));
        assert_eq!(figures.target("one thread, call for call", "preload-rwlock"), (0.5, "reached"));
        assert_eq!(figures.target("16 threads, 1 % writers: throughput", "rw-phase-fair"), (1.1, "reached"));
        assert_eq!(figures.target("16 threads, 1 % writers: a writer's", "rw-phase-fair"), (5.0, "reached"));
        let json = serde_json::to_value(&figures).unwrap();
        let row = json["rows"].as_array().unwrap().iter().find(|row| row["lock"] == "rw-phase-fair").unwrap();
        assert_eq!(row["best"], "std");
        assert_eq!(
            made_up(&options, 8, figure).target("one thread, call", "preload-rwlock"),
            (0.5, "reached")
        );
    }
}
