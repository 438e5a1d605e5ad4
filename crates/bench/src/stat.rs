//! What `poundlock stat` costs: the program that it measures, and whoever waits for the report.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::Summary;
use crate::contender::DEFAULT;
use crate::error::{Error, Result};
use crate::launch::{self, Context, Process};
use crate::plan::{Labels, Plan, Preset, Row, Rows, Sample, check_run};
use crate::report::{Limit, Table, Target, median, spread};
use crate::worker::alone::Operation;
use crate::worker::{Task, left};
use crate::{affinity, clock, programs};

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Rounds in which everything is measured once each way
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Seconds for each lock that nobody contends for in a round
    #[arg(long, value_name = "S", default_value_t = 0.04)]
    pub seconds: f64,
    /// Share of their usual work that the programs do
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = programs::share)]
    pub work: f64,
    /// Locks of the program whose report is timed
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = many())]
    pub locks: u32,
    /// Waits for them
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub waits: u64,
}

/// As many locks have figures of their own.
fn many() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..1 << 20)
}

/// Slices that a lock's time in a round is cut into, whose median counts.
const SLICES: u32 = 100;

/// Locks that nobody contends for: what they are, and their names to the worker.
const ALONE: [(&str, &str); 2] = [("mutex", "library:mutex"), ("spinlock", "library:spin")];
/// Ways of reporting: by name, and their options.
const REPORTS: [(&str, &[&str]); 2] = [("text", &[]), ("everything", &["--each", "--top", "0"])];

/// The figure of a program that is to be kept, and its limit.
fn limit(program: &str) -> (&'static str, Limit) {
    match program {
        "logtally" => ("speed", Limit::AtLeast(0.95)),
        "locks" => ("slower", Limit::AtMost(3.0)),
        _ => ("speed", Limit::AtLeast(0.97)),
    }
}

fn words(what: &str) -> &str {
    match what {
        "mutex" => "lock + unlock of our mutex",
        "spinlock" => "lock + unlock of our spinlock",
        "logtally" => "logtally, 8 threads",
        "sysbench-threads" => "sysbench threads",
        "locks" => "100,000 locks at random, 4 threads",
        other => other,
    }
}

impl Preset for Options {
    const TITLE: &'static str = "What `poundlock stat` costs";
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
        for (what, key) in ALONE {
            for (way, stat) in [("run", false), ("stat", true)] {
                let process = Process { ours: Some(DEFAULT), stat, ..Process::plain(DEFAULT) };
                let timed = ((*key).to_owned(), Operation::LockUnlock);
                let labels = vec![("what", what.into())];
                plan.alone("alone", process, true, self.seconds, SLICES, vec![(way, timed, labels)]);
            }
        }
        let (ready, absent) = programs::counted(self.work)?;
        plan.absent = absent;
        for program in ready {
            for (way, stat) in [("bare", false), ("stat", true)] {
                let labels = vec![("what", program.name.into())];
                let (point, program) = (program.name.to_owned(), program.clone());
                plan.here("programs", point, way, labels, move |context| program.measure(context, stat));
            }
        }
        for waits in [0, self.waits] {
            let left = Rc::new(Left { locks: self.locks, waits, made: OnceCell::new() });
            for (way, options) in REPORTS {
                let (point, labels) = (format!("report, {waits} waits"), vec![("waits", waits.into())]);
                let left = Rc::clone(&left);
                plan.here("reports", point, way, labels, move |context| left.report(context, options));
            }
        }
        let with = |way: &'static str| vec![("way", way.into())];
        let stat = |labels: &Labels| labels.contains(&("way", "stat".into()));
        plan.of("alone", "adds", "ns", with("run")).how(|with, without| with - without).only(stat);
        plan.of("programs", "speed", "ms", with("bare")).how(|own, bare| bare / own).only(stat);
        plan.of("programs", "slower", "ms", with("bare")).only(stat);
        Ok(())
    }

    fn answer(&self, _rows: &Rows) -> Option<String> {
        None
    }

    fn method(&self, _rows: &Rows) -> String {
        format!(
            "{} rounds, in each of which everything is measured once each way, in random order; a figure is \
             the median over the rounds, with their minimum and maximum, and compared inside a round. Locks \
             that nobody contends for: ours, with statistics and without, {} ms each. Programs: as they are, \
             and under `poundlock stat --lock glibc`; their time is what they say of their work, or what \
             their clients measure, without start and report.{} Reports are of what a program of {} threads \
             with {} locks leaves, by `poundlock stat --read`, as text and with `--each --top 0 --json`, \
             `--html`, `--folded` and `--speedscope`; with their memory at its most.",
            self.rounds,
            self.seconds * 1000.0,
            programs::of_usual(self.work),
            left::THREADS,
            self.locks,
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        let headings =
            ["what", "without", "under stat", "", "figure", "spread", "target", "looks, % of a CPU"];
        let mut cost = Table::new("The measured program", 1, &headings);
        let pairs = [("alone", "run", "ns", 2), ("programs", "bare", "ms", 0)];
        for (section, bare, unit, decimals) in pairs {
            for row in rows.of(section).filter(|row| row.who == "stat") {
                let what = row.label("what");
                let without =
                    rows.find(section, bare, &[("what", what.clone())]).and_then(|row| row.get(unit));
                let what = what.as_str().unwrap_or_default();
                let (figure, limit) =
                    if section == "alone" { ("adds", Limit::AtMost(10.0)) } else { limit(what) };
                let in_words = match figure {
                    "adds" => "ns more",
                    "slower" => "times the time",
                    _ => "of the speed",
                };
                cost.rows.push(vec![
                    words(what).to_owned(),
                    format!("{} {unit}", median(without, decimals)),
                    format!("{} {unit}", median(row.get(unit), decimals)),
                    in_words.to_owned(),
                    median(row.get(figure), 2),
                    spread(row.get(figure), 2),
                    limit.to_string(),
                    median(row.get("looks"), 2),
                ]);
            }
        }
        for (name, _) in &rows.absent {
            let missing = ["-", "not installed", "", "", "", "", ""].map(str::to_owned);
            cost.rows.push([words(name).to_owned()].into_iter().chain(missing).collect());
        }
        let headings = ["report", "as", "s", "spread", "target", "MiB", "target"];
        let mut reports = Table::new("The report", 2, &headings);
        for row in rows.of("reports") {
            reports.rows.push(vec![
                of_waits(self.locks, row),
                row.who.to_owned(),
                median(row.get("s"), 2),
                spread(row.get("s"), 2),
                Limit::AtMost(SECONDS).to_string(),
                median(row.get("mib"), 0),
                Limit::AtMost(MEBIBYTES).to_string(),
            ]);
        }
        vec![cost, reports]
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let target = |figure: String, limit, unit, value: Option<Summary>| {
            Target::new(figure, limit, unit, [("stat", value)])
        };
        let mut targets = Vec::new();
        for row in rows.of("alone").filter(|row| row.who == "stat") {
            let what = row.label("what");
            let figure = format!("added to {}", words(what.as_str().unwrap_or_default()));
            targets.push(target(figure, Limit::AtMost(10.0), "ns", row.get("adds")));
        }
        for row in rows.of("programs").filter(|row| row.who == "stat") {
            let what = row.label("what");
            let what = what.as_str().unwrap_or_default();
            let (figure, limit) = limit(what);
            let in_words = if figure == "speed" { "speed, of that without" } else { "time, of that without" };
            targets.push(target(format!("{}: {in_words}", words(what)), limit, "", row.get(figure)));
            let looks = format!("{}: looks at its threads", words(what));
            targets.push(target(looks, LOOKS, "% of a CPU", row.get("looks")));
        }
        for row in rows.of("reports") {
            let what = format!("report of {}, {}", of_waits(self.locks, row), row.who);
            targets.push(target(format!("{what}: time"), Limit::AtMost(SECONDS), "s", row.get("s")));
            targets.push(target(format!("{what}: memory"), Limit::AtMost(MEBIBYTES), "MiB", row.get("mib")));
        }
        targets
    }
}

/// What looks at the threads may take, in per cent of a CPU.
const LOOKS: Limit = Limit::AtMost(1.0);
/// How long a report may take.
const SECONDS: f64 = 3.0;
/// And how much memory.
const MEBIBYTES: f64 = 500.0;

fn of_waits(locks: u32, row: &Row) -> String {
    match row.label("waits").as_u64() {
        None | Some(0) => format!("{locks} locks"),
        Some(waits) => format!("{locks} locks, {waits} waits"),
    }
}

/// What a program left.
struct Left {
    locks: u32,
    waits: u64,
    made: OnceCell<tempfile::TempDir>,
}

impl Left {
    fn made(&self, context: &Context) -> Result<&Path> {
        if let Some(made) = self.made.get() {
            return Ok(made.path());
        }
        let directory = launch::statistics_directory()?;
        let (locks, waits) = (self.locks, self.waits);
        let task = left::Task { directory: directory.path().to_owned(), locks, waits };
        context.measure(Process::plain("recorder"), Task::Left(task), Duration::from_secs(60))?;
        Ok(self.made.get_or_init(|| directory).path())
    }

    /// How long its report takes, and how much memory.
    fn report(&self, context: &Context, options: &[&str]) -> Result<Sample> {
        let directory = self.made(context)?;
        let mut command = Command::new(&context.program);
        command.args(["stat", "--read"]).arg(directory).args(options);
        let file = |name: &str| OsString::from(directory.join(name));
        command.arg("--output").arg(file("report"));
        if !options.is_empty() {
            for option in ["--json", "--html", "--folded", "--speedscope"] {
                command.arg(option).arg(file(&option[2..]));
            }
        }
        launch::unchosen(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let begin = clock::now_ns();
        let child = command.spawn().map_err(Error::system("cannot start a report"))?;
        let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: both are ours, and a `rusage` is valid when zeroed; the child is ours and waited for here
        // alone.
        let (ended, usage) = unsafe {
            let ended = libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, usage.as_mut_ptr());
            (ended, usage.assume_init())
        };
        let seconds = (clock::now_ns() - begin) as f64 / 1e9;
        if ended < 0 || status != 0 {
            return Err(Error::Failed(format!("the report did not succeed (status {status:#x})")));
        }
        let figures = [("s", seconds), ("mib", usage.ru_maxrss as f64 / 1024.0)];
        Ok(figures.map(|(name, value)| (name.to_owned(), value)).into())
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
                return vec![("ns", if cell.who == "stat" { 12.0 } else { 4.0 })];
            }
            vec![
                ("ms", if cell.who == "stat" { 1000.0 } else { 960.0 / speed }),
                ("s", 2.0),
                ("mib", 600.0),
                ("looks", 0.8),
            ]
        });
        assert_eq!(figures.target("added to lock + unlock of our mutex", "stat"), (8.0, "reached"));
        assert_eq!(
            figures.target("report of 1000000 locks, 10000000 waits, text: m", "stat"),
            (600.0, "missed")
        );
        let rows: Vec<usize> = figures.report.tables.iter().map(|table| table.rows.len()).collect();
        // With what is not installed.
        assert_eq!(rows, [ALONE.len() + 4, 2 * REPORTS.len()]);
    }
}
