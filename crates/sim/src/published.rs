//! The tables that the sources published, and the runs that reproduce them.
//!
//! A table is a list of comparisons: a figure before a change and after it. What the model leaves open is fitted to figures *before*
//! only (and to data sheets); those *after* are predicted. A figure that cannot be had from a run says why.

use std::collections::HashMap;

use crate::experiment::{Experiment, Outcome, Work};
use crate::machine::{Error, Machine, Picoseconds};
use crate::workload::aim7::Profile;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name: that of its file.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Of what its figures are.
    pub unit: &'static str,
    /// Line by line.
    pub rows: Vec<Comparison>,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Which case.
    pub label: String,
    /// Before the change. Fitted.
    pub before: Figure,
    /// After it. Predicted, unless it is before the next one.
    pub after: Figure,
    /// The change in percent, where that is all that was published.
    pub change: Option<f64>,
}

/// A figure of the source's, and how to get ours.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The source's, if it gives one.
    pub published: Option<f64>,
    /// The run that ours comes from.
    pub run: Run,
    /// Which of the run's figures it is.
    pub pick: usize,
}

/// A run. The same one may serve several figures.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Run {
    /// The machine's name.
    pub machine: &'static str,
    /// How many of its sockets.
    pub sockets: u32,
    /// How many hardware threads of a core.
    pub threads_a_core: u32,
    /// The kernel's version.
    pub kernel: &'static str,
    /// AIM7's mix.
    pub mix: String,
    /// How many users.
    pub users: u32,
    /// The lock that changes.
    pub lock: &'static str,
}

/// Simulated time that is counted.
const TIME: Picoseconds = 200_000_000_000;
/// All figures are of this seed.
const SEED: u64 = 1;

/// Where `Experiment` puts its figures.
mod pick {
    pub(super) const JOBS_A_MINUTE: usize = 0;
    pub(super) const WAITING_FOR_ANON_VMA: usize = 2;
}

impl Run {
    /// Runs it.
    ///
    /// # Errors
    /// If the lock loses a wake-up, or the machine has not so many sockets.
    pub fn run(&self, machines: &[Machine], profiles: &[Profile]) -> Result<Outcome, String> {
        let whole = machines.iter().find(|machine| machine.name() == self.machine);
        let whole = whole.ok_or_else(|| format!("no machine is called '{}'", self.machine))?;
        let part = whole.part(self.sockets, self.threads_a_core).map_err(|error: Error| error.to_string())?;
        Experiment {
            machine: &part,
            work: Work::Aim7 { kernel: self.kernel.to_owned(), mix: self.mix.clone() },
            profiles,
            lock: self.lock,
            threads: self.users,
            seed: SEED,
            time: TIME,
        }
        .run()
    }
}

/// A file of `reference/`, row by row, each a map from a column's name.
fn rows(text: &str) -> Vec<HashMap<String, String>> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    reader.deserialize().filter_map(Result::ok).collect()
}

fn number(row: &HashMap<String, String>, column: &str) -> Option<f64> {
    row.get(column)?.parse().ok()
}

/// A user count in the middle of a range as the tables write it: `1100-2000`, `200_1000`.
fn middle(range: &str) -> u32 {
    let mut ends = range.split(['-', '_']).filter_map(|end| end.parse::<u32>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => (first + last) / 2,
        (Some(only), None) => only,
        _ => 1,
    }
}

const WESTMERE: &str = "westmere-ex-8s";

fn on_westmere(mix: &str, users: u32, sockets: u32, threads_a_core: u32) -> impl Fn(&'static str) -> Run {
    let mix = mix.to_owned();
    move |lock| Run {
        machine: WESTMERE,
        sockets,
        threads_a_core,
        kernel: "3.7",
        mix: mix.clone(),
        users,
        lock,
    }
}

fn high_systime() -> Table {
    let comparison = |row: &HashMap<String, String>| {
        let (range, nodes, smt) = (&row["user_range"], number(row, "nodes")? as u32, &row["hyperthreading"]);
        let run = on_westmere("high_systime", middle(range), nodes, if smt == "on" { 2 } else { 1 });
        Some(Comparison {
            label: format!("{range} users, {nodes} nodes, HT {smt}"),
            before: Figure {
                published: number(row, "jpm_without"),
                run: run("baseline"),
                pick: pick::JOBS_A_MINUTE,
            },
            after: Figure {
                published: number(row, "jpm_with"),
                run: run("fewer-atomics"),
                pick: pick::JOBS_A_MINUTE,
            },
            change: None,
        })
    };
    Table {
        name: "mutex_high_systime_jpm",
        about: "AIM7 high_systime: fewer atomic operations in the mutex's slow path",
        unit: "jobs a minute",
        rows: rows(include_str!("../reference/mutex_high_systime_jpm.csv"))
            .iter()
            .filter_map(comparison)
            .collect(),
    }
}

fn slow_path() -> Table {
    let comparison = |row: &HashMap<String, String>| {
        let nodes = number(row, "nodes")? as u32;
        let run = on_westmere("high_systime", middle("1100-2000"), nodes, 1);
        let figure = |published, lock| Figure { published, run: run(lock), pick: pick::WAITING_FOR_ANON_VMA };
        Some(Comparison {
            label: format!("{nodes} nodes"),
            before: figure(number(row, "without"), "baseline"),
            after: figure(number(row, "with"), "fewer-atomics"),
            change: None,
        })
    };
    Table {
        name: "mutex_slowpath_time",
        about: "AIM7 high_systime, 1500 users: CPU time in the mutex's slow path (ours: all spinning for the mutex, which the source counts apart)",
        unit: "% of CPU time",
        rows: rows(include_str!("../reference/mutex_slowpath_time.csv"))
            .iter()
            .filter_map(comparison)
            .collect(),
    }
}

fn fserver(before: (&str, &'static str), after: (&str, &'static str)) -> Vec<Comparison> {
    let comparison = |row: &HashMap<String, String>| {
        let (range, nodes) = (&row["user_range"], number(row, "nodes")? as u32);
        let run = on_westmere("fserver", middle(range), nodes, 1);
        let figure = |(column, lock): (&str, &'static str)| Figure {
            published: number(row, column),
            run: run(lock),
            pick: pick::JOBS_A_MINUTE,
        };
        Some(Comparison {
            label: format!("{range} users, {nodes} nodes, {} to {}", before.1, after.1),
            before: figure(before),
            after: figure(after),
            change: None,
        })
    };
    rows(include_str!("../reference/mutex_fserver_jpm.csv")).iter().filter_map(comparison).collect()
}

fn fserver_queue() -> Table {
    let (without, fewer, queue) =
        (("jpm_without", "baseline"), ("jpm_fewer_atomics", "fewer-atomics"), ("jpm_mcs_queue", "mcs-queue"));
    let mut rows = fserver(without, fewer);
    rows.extend(fserver(fewer, queue));
    Table {
        name: "mutex_fserver_jpm",
        about: "AIM7 fserver: fewer atomic operations, and then spinners queued by MCS",
        unit: "jobs a minute",
        rows,
    }
}

fn others(
    name: &'static str,
    about: &'static str,
    text: &str,
    before: &'static str,
    after: &'static str,
) -> Table {
    let mut comparisons = Vec::new();
    for row in rows(text) {
        for range in ["10_100", "200_1000", "1100_2000"] {
            let mix = &row["workload"];
            let run = on_westmere(mix, middle(range), 8, 1);
            let figure = |lock| Figure { published: None, run: run(lock), pick: pick::JOBS_A_MINUTE };
            comparisons.push(Comparison {
                label: format!("{mix}, {} users", range.replace('_', "-")),
                before: figure(before),
                after: figure(after),
                change: number(&row, &format!("users_{range}")),
            });
        }
    }
    Table { name, about, unit: "jobs a minute", rows: comparisons }
}

/// All tables that can be reproduced so far.
pub fn tables() -> Vec<Table> {
    vec![
        high_systime(),
        slow_path(),
        others(
            "mutex_fewer_atomics_other_workloads",
            "the other mixes of AIM7, 8 nodes without hyperthreading: fewer atomic operations",
            include_str!("../reference/mutex_fewer_atomics_other_workloads.csv"),
            "baseline",
            "fewer-atomics",
        ),
        fserver_queue(),
        others(
            "mutex_mcs_queue_other_workloads",
            "the other mixes of AIM7, 8 nodes without hyperthreading: spinners queued by MCS",
            include_str!("../reference/mutex_mcs_queue_other_workloads.csv"),
            "fewer-atomics",
            "mcs-queue",
        ),
    ]
}
