//! Throughput of threads that take turns.

use serde::Serialize;

use crate::contender::{self, DEFAULT};
use crate::error::Result;
use crate::plan::{Column, Common, Plan, Preset, Rows, check_run, check_threads, check_us, in_rounds, table};
use crate::report::{Limit, Table, Target};
use crate::worker::drive;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Only these locks (glibc always takes part)
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Numbers of threads
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [2, 4, 8, 16, 64])]
    pub threads: Vec<usize>,
    /// Microseconds of work inside the critical section
    #[arg(long = "critical", value_name = "US", default_value_t = 2.0)]
    pub critical_us: f64,
    /// Microseconds of work between two critical sections of a thread
    #[arg(long = "think", value_name = "US", default_value_t = 1.0)]
    pub think_us: f64,
    /// Seconds for each contender and number of threads in a round
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub seconds: f64,
    /// How often, and on how many CPUs.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common<5>,
    /// Keep each thread on one CPU: on a machine that others use as well, threads may else share one and not
    /// contend
    #[arg(long)]
    pub pin: bool,
}

/// The most acquisitions a second that any lock allows: there is one critical section at a time, and each
/// thread that has a CPU needs it for the section and for thinking.
fn ideal(threads: usize, cpus: usize, critical_us: f64, think_us: f64) -> f64 {
    let one_at_a_time = 1e6 / critical_us;
    let by_cpu = threads.min(cpus) as f64 * 1e6 / (critical_us + think_us);
    one_at_a_time.min(by_cpu)
}

impl Preset for Options {
    const TITLE: &'static str = "Handover";
    const TARGETS: &'static str = "Targets (they are about the default lock; the others for comparison)";

    fn check(&self) -> Result<()> {
        check_run(self.common.rounds, self.seconds, 3600.0)?;
        check_threads(&self.threads, 1)?;
        check_us("--critical", &[self.critical_us])?;
        check_us("--think", &[self.think_us])
    }

    fn common(&self) -> (usize, Option<usize>) {
        (self.common.rounds, self.common.cpus)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let locks = contender::choose(contender::symbols(), &self.locks, &["glibc"], "lock")?;
        for &threads in &self.threads {
            for who in &locks {
                let Some(turns) = plan.turns(who, threads, (self.critical_us, self.think_us), self.seconds)
                else {
                    continue;
                };
                // Who waits for a mutex sleeps, and is to be woken.
                let turns = drive::Task {
                    warm_up_ns: 0,
                    drain_ns: Some(60_000_000_000),
                    finish: true,
                    pin: self.pin,
                    ..turns
                };
                let ideal = ideal(threads, plan.cpus.len(), self.critical_us, self.think_us);
                let labels = vec![("threads", threads.into()), ("ideal", ideal.into())];
                plan.work("rows", format!("{threads} threads"), who, labels, turns);
            }
        }
        plan.of("rows", "of_glibc", "throughput", vec![("lock", "glibc".into())]);
        let two = ideal(2, plan.cpus.len(), self.critical_us, self.think_us);
        plan.of("rows", "of_own_two", "throughput", vec![("threads", 2.into()), ("ideal", two.into())]);
        Ok(())
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let row = rows.of("rows").filter(|row| row.who == DEFAULT).last()?;
        Some(format!(
            "With {} threads on {} CPUs {DEFAULT} makes {} times the acquisitions of glibc's default mutex.",
            row.label("threads"),
            rows.cpus,
            row.get("of_glibc")?.words()
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        format!(
            "Threads that each lock, work {} microseconds, unlock, and work {} microseconds on their own, on \
                {} CPU{}{}, for {} s \
             a round. Everybody is called through pointers from the dynamic linker, in processes of their \
             own; that the lock \
             excludes is checked. The ideal is what no lock can exceed: one critical section at a time \
             (1/C), and no more threads \
             at work than CPUs. {}",
            self.critical_us,
            self.think_us,
            rows.cpus,
            if rows.cpus == 1 { "" } else { "s" },
            if self.pin { ", each thread kept on one of them" } else { "" },
            self.seconds,
            in_rounds(self.common.rounds, rows)
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        use Column::{Label, Median, Spread};
        let (lock, threads) = (Label("lock", "lock"), Label("threads", "threads"));
        let columns = [
            lock,
            threads,
            Spread("acquisitions/s", "throughput", 1.0, 0),
            Spread("of glibc", "of_glibc", 1.0, 2),
            Median("of own 2", "of_own_two", 1.0, 2),
            Median("of ideal", "of_ideal", 1.0, 2),
            Median("Jain", "jain", 1.0, 2),
            Median("CPU ns/acq.", "cpu_ns", 1.0, 0),
            Median("sleeps/acq.", "voluntary", 1.0, 3),
            Median("preempted/acq.", "involuntary", 1.0, 3),
            Median("others", "others", 1.0, 2),
        ];
        let title = format!("Critical section {} us, think {} us", self.critical_us, self.think_us);
        vec![table(title, 2, &columns, rows.of("rows"))]
    }

    /// They are about critical sections of 2 microseconds, 1 microsecond in between, and 2 CPUs. Other work
    /// has none.
    fn targets(&self, rows: &Rows) -> Vec<Target> {
        if self.critical_us != 2.0 || self.think_us != 1.0 || rows.cpus != 2 {
            return Vec::new();
        }
        let target = |title: &str, limit: f64, threads: usize, figure: &'static str| {
            let ours =
                rows.of("rows").filter(|row| row.is("threads", threads) && !row.who.starts_with("glibc"));
            let title = format!("{threads} threads: throughput of {title}");
            Target::new(title, Limit::AtLeast(limit), "", ours.map(|row| (row.who, row.get(figure))))
        };
        vec![
            target("glibc's", 1.5, 2, "of_glibc"),
            target("glibc's", 1.0, 64, "of_glibc"),
            target("our own at 2", 0.9, 64, "of_own_two"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{by_default, tests::made_up};

    #[test]
    fn targets_follow_from_the_rows_and_are_about_one_work() {
        let figure = |_: &str, who: &str, label: &dyn Fn(&str) -> serde_json::Value| match (
            who,
            label("threads") == 2,
        ) {
            ("glibc", true) => 100.0,
            ("glibc", false) => 150.0,
            (_, true) => 160.0,
            (_, false) => 136.0,
        };
        let options = by_default::<Options>();
        let figures = made_up(&options, 2, figure);
        assert_eq!(figures.target("2 threads: throughput of glibc's", DEFAULT), (1.6, "reached"));
        assert_eq!(figures.target("64 threads: throughput of glibc's", DEFAULT), (0.907, "missed"));
        assert_eq!(figures.target("64 threads: throughput of our own", DEFAULT), (0.85, "missed"));
        let json = serde_json::to_value(made_up(&options, 4, figure)).unwrap();
        assert_eq!(json["targets"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn the_ideal_knows_both_bounds() {
        // One section at a time: 2 microseconds each. Long thinking: the two CPUs are the bound. A single
        // thread.
        assert_eq!(ideal(2, 2, 2.0, 1.0), 500_000.0);
        assert_eq!(ideal(64, 2, 1.0, 9.0), 200_000.0);
        assert_eq!(ideal(1, 2, 2.0, 2.0), 250_000.0);
    }
}
