//! What `poundlock check` costs the program that it looks at, and what valgrind's helgrind costs.

use std::cell::Cell;
use std::rc::Rc;

use serde::Serialize;

use crate::affinity;
use crate::contender::DEFAULT;
use crate::error::Result;
use crate::launch::Process;
use crate::plan::{Labels, Plan, Preset, Rows, Sample, check_run};
use crate::programs::{self, Way};
use crate::report::{Limit, Table, Target, median, spread};
use crate::worker::alone::Operation;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Rounds in which everything is measured once each way
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Seconds for each lock that nobody contends for in a round
    #[arg(long, value_name = "S", default_value_t = 0.04)]
    pub seconds: f64,
    /// Rounds in which programs run under helgrind as well, if valgrind is installed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub helgrind: usize,
    /// Seconds after which a program under helgrind is ended, and has no figure
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub helgrind_limit: u64,
}

/// Slices that a lock's time in a round is cut into, whose median counts.
const SLICES: u32 = 100;

/// Locks that nobody contends for: what they are, their names to the worker, and whether another one is held.
const ALONE: [(&str, &str, Operation); 4] = [
    ("mutex", "library:mutex", Operation::LockUnlock),
    ("nested mutex", "library:mutex", Operation::Holding),
    ("spinlock", "library:spin", Operation::LockUnlock),
    ("nested spinlock", "library:spin", Operation::Holding),
];

/// What a lock and an unlock may cost more than under `run` while another lock is held, in nanoseconds.
const ADDS: Limit = Limit::AtMost(60.0);
/// How many times as long a program may take.
const SLOWER: Limit = Limit::AtMost(1.5);

fn words(what: &str) -> &str {
    match what {
        "mutex" => "lock + unlock of our mutex",
        "nested mutex" => "the same with another mutex held",
        "spinlock" => "lock + unlock of our spinlock",
        "nested spinlock" => "the same with another spinlock held",
        "sysbench-threads" => "sysbench threads",
        "xz" => "xz -T4",
        other => other,
    }
}

impl Preset for Options {
    const TITLE: &'static str = "What `poundlock check` costs";
    const TARGETS: &'static str = "Targets";
    const WHO: &'static str = "way";

    fn check(&self) -> Result<()> {
        check_run(self.rounds, self.seconds, 60.0)
    }

    fn common(&self) -> (usize, Option<usize>) {
        (self.rounds, None)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        plan.alone_on = affinity::one(None)?;
        for (what, key, operation) in ALONE {
            for (way, check) in [("run", false), ("check", true)] {
                let process = Process { ours: Some(DEFAULT), check, ..Process::plain(DEFAULT) };
                let labels = vec![("what", what.into())];
                let timed = (key.to_owned(), operation);
                plan.alone("alone", process, true, self.seconds, SLICES, vec![(way, timed, labels)]);
            }
        }
        let (ready, absent) = programs::checked()?;
        plan.absent = absent;
        let helgrind = self.helgrind > 0 && programs::valgrind().is_some();
        if self.helgrind > 0 && !helgrind {
            plan.absent.push(("helgrind", "not installed (Debian and Ubuntu: valgrind)".to_owned()));
        }
        for program in ready {
            let mut ways = vec![("bare", Way::Bare), ("run", Way::Run), ("check", Way::Check)];
            if helgrind {
                ways.push(("helgrind", Way::Helgrind(self.helgrind_limit)));
            }
            for (name, way) in ways {
                let labels = vec![("what", program.name.into())];
                let (point, program) = (program.name.to_owned(), program.clone());
                let left = Rc::new(Cell::new(if name == "helgrind" { self.helgrind } else { self.rounds }));
                plan.here("programs", point, name, labels, move |context| {
                    let Some(now) = left.get().checked_sub(1) else { return Ok(Sample::new()) };
                    left.set(now);
                    let ms = program.checked_ms(context, way)?;
                    Ok(ms.map(|ms| ("ms".to_owned(), ms)).into_iter().collect())
                });
            }
        }
        let with = |way: &'static str| vec![("way", way.into())];
        let check = |labels: &Labels| labels.contains(&("way", "check".into()));
        plan.of("alone", "adds", "ns", with("run")).how(|with, without| with - without).only(check);
        plan.of("programs", "slower", "ms", with("bare"));
        Ok(())
    }

    fn answer(&self, _rows: &Rows) -> Option<String> {
        None
    }

    fn method(&self, rows: &Rows) -> String {
        let helgrind = match (self.helgrind, rows.of("programs").any(|row| row.who == "helgrind")) {
            (rounds, true) => format!(
                " Under helgrind (`valgrind --tool=helgrind`) they run in {rounds} of the rounds, for {} s at most.",
                self.helgrind_limit
            ),
            _ => String::new(),
        };
        format!(
            "{} rounds, in each of which everything is measured once each way, in random order; a figure is \
             the median over the rounds, with their minimum and maximum, and compared inside a round. Locks \
             that nobody contends for: ours, under `run` and under `check`, {} ms each. Programs: as they are, \
             under `poundlock run`, and under `poundlock check`, which leaves them their own locks: from the \
             start of the command to its end, with the report; of memcached how long its clients take.{helgrind}",
            self.rounds,
            self.seconds * 1000.0,
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        let headings = ["lock", "under run", "under check", "ns more", "spread", "target"];
        let mut alone = Table::new("Locks that nobody contends for", 1, &headings);
        let find = |section: &str, who: &str, what: &str| rows.find(section, who, &[("what", what.into())]);
        for (what, _, operation) in ALONE {
            let ns = |who: &str| median(find("alone", who, what).and_then(|row| row.get("ns")), 2) + " ns";
            let adds = find("alone", "check", what).and_then(|row| row.get("adds"));
            let target = if operation == Operation::Holding { ADDS.to_string() } else { String::new() };
            alone.rows.push(vec![
                words(what).to_owned(),
                ns("run"),
                ns("check"),
                median(adds, 2),
                spread(adds, 2),
                target,
            ]);
        }
        let headings = [
            "program",
            "as it is",
            "under run",
            "under check",
            "times the time",
            "spread",
            "target",
            "under helgrind",
            "times the time",
        ];
        let mut table = Table::new("Programs", 1, &headings);
        for [what] in rows.values("programs", ["what"]) {
            let what = what.as_str().unwrap_or_default();
            let figure =
                |who: &str, figure: &str| find("programs", who, what).and_then(|row| row.get(figure));
            let ms = |who: &str| match figure(who, "ms") {
                None if who == "helgrind" && find("programs", who, what).is_some() => {
                    format!("not within {} s", self.helgrind_limit)
                }
                ms => median(ms, 0) + " ms",
            };
            table.rows.push(vec![
                words(what).to_owned(),
                ms("bare"),
                ms("run"),
                ms("check"),
                median(figure("check", "slower"), 2),
                spread(figure("check", "slower"), 2),
                SLOWER.to_string(),
                ms("helgrind"),
                median(figure("helgrind", "slower"), 1),
            ]);
        }
        for (name, _) in &rows.absent {
            let missing = ["-", "not installed", "", "", "", "", "", ""].map(str::to_owned);
            table.rows.push([words(name).to_owned()].into_iter().chain(missing).collect());
        }
        vec![alone, table]
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let mut targets = Vec::new();
        for row in rows.of("alone").filter(|row| row.who == "check") {
            let what = row.label("what");
            let Some(what) = what.as_str().filter(|what| what.starts_with("nested")) else { continue };
            let figure = format!("added to lock + unlock, {what}");
            targets.push(Target::new(figure, ADDS, "ns", [("check", row.get("adds"))]));
        }
        for row in rows.of("programs").filter(|row| row.who == "check") {
            let what = row.label("what");
            let figure = format!("{}: time, of that without", words(what.as_str().unwrap_or_default()));
            targets.push(Target::new(figure, SLOWER, "", [("check", row.get("slower"))]));
        }
        targets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{by_default, tests::made_up_of};

    #[test]
    fn targets_and_tables_follow_from_the_rows() {
        let figures = made_up_of(&by_default::<Options>(), 2, |cell, alone, speed| {
            if alone {
                return vec![("ns", if cell.who == "check" { 84.0 } else { 4.0 })];
            }
            vec![("ms", if cell.who == "check" { 1200.0 } else { 1000.0 / speed })]
        });
        assert_eq!(figures.target("added to lock + unlock, nested mutex", "check"), (80.0, "missed"));
        let rows: Vec<usize> = figures.report.tables.iter().map(|table| table.rows.len()).collect();
        assert_eq!(rows[0], ALONE.len());
        // With what is not installed.
        assert!(rows[1] >= 4, "{rows:?}");
    }
}
