//! The tables that the sources published, and the runs that reproduce them.
//!
//! A table is a list of comparisons: a figure before a change and after it. Free numbers of the model are
//! fitted to figures *before* only (and to data sheets); those *after* are predicted. A figure without a run
//! says why.

mod guests;
mod handoff;
mod mutex;
mod semaphores;
mod spinlock;

use std::collections::HashMap;

use crate::experiment::{Experiment, Guest, Outcome, Work};
use crate::machine::{Error, Picoseconds};
use crate::model::Model;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name: that of its file.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// Whether free numbers were fitted to its figures of before.
    pub fitted: bool,
    /// Line by line.
    pub rows: Vec<Comparison>,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The case.
    pub label: String,
    /// Before the change.
    pub before: Figure,
    /// After it.
    pub after: Figure,
    /// The change in percent, where that is all that was published.
    pub change: Option<f64>,
}

impl Comparison {
    /// What is published of each of two locks, and the run that ours come from.
    fn of(
        label: String,
        pick: &'static str,
        run: impl Fn(&'static str) -> Run,
        before: (Option<f64>, &'static str),
        after: (Option<f64>, &'static str),
    ) -> Comparison {
        let figure = |(published, lock)| Figure { published, run: run(lock), pick };
        Comparison { label, before: figure(before), after: figure(after), change: None }
    }
}

/// A figure of the source's, and how to get ours.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The source's, if it gives one.
    pub published: Option<f64>,
    /// The run that ours comes from.
    pub run: Run,
    /// Which of the run's figures it is, by name.
    pub pick: &'static str,
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
    /// The virtual machine on it, if there is one.
    pub guest: Option<Guest>,
    /// What the threads do.
    pub work: Work,
    /// How many there are.
    pub threads: u32,
    /// The lock that changes.
    pub lock: &'static str,
    /// Simulated time that is counted.
    pub time: Picoseconds,
}

/// All figures are of this seed.
const SEED: u64 = 1;

impl Run {
    /// Runs it.
    ///
    /// # Errors
    /// If the lock loses a wake-up, or the machine has fewer sockets.
    pub fn run(&self, model: &Model) -> Result<Outcome, String> {
        let whole = model.machines.iter().find(|machine| machine.name() == self.machine);
        let whole = whole.ok_or_else(|| format!("no machine is called '{}'", self.machine))?;
        let part = whole.part(self.sockets, self.threads_a_core).map_err(|error: Error| error.to_string())?;
        Experiment {
            machine: &part,
            guest: self.guest.clone(),
            work: self.work.clone(),
            model,
            lock: self.lock,
            threads: self.threads,
            seed: SEED,
            time: self.time,
        }
        .run()
    }
}

/// A row of a file of `reference/`: a map from a column's name.
type Row = HashMap<String, String>;

/// A file of `reference/`, row by row.
fn rows(text: &str) -> Vec<Row> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    reader.deserialize().filter_map(Result::ok).collect()
}

/// The comparisons of a file of `reference/`.
fn compared(text: &str, row: impl Fn(&Row) -> Option<Comparison>) -> Vec<Comparison> {
    rows(text).iter().filter_map(row).collect()
}

fn number(row: &Row, column: &str) -> Option<f64> {
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

/// Why a published table cannot be reproduced, if it cannot.
pub fn why_not(table: &str) -> Option<&'static str> {
    match table {
        "osv_ycsb_workloadf" => Some("what Cassandra's threads do between two locks its source does not say"),
        _ => None,
    }
}

/// All tables that can be reproduced.
pub fn tables() -> Vec<Table> {
    let mut tables = mutex::tables();
    tables.extend(spinlock::tables());
    tables.extend(guests::tables());
    tables.extend(handoff::tables());
    tables.extend(semaphores::tables());
    tables
}
