//! Floors: what no lock can undercut on this machine, and what the driver adds to every lock.

use std::time::Duration;

use serde::Serialize;

use crate::Machine;
use crate::Summary;
use crate::affinity;
use crate::error::{Error, Result};
use crate::grid::result::Floors;
use crate::launch::{Context, Process};
use crate::report::{Report, Table, median, spread};
use crate::worker::{Answer, Task, floor};

/// How to measure.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Slices of each measurement
    #[arg(long, value_name = "N", default_value_t = 31)]
    pub slices: u32,
    /// Seconds of a slice
    #[arg(long, value_name = "S", default_value_t = 0.002)]
    pub seconds: f64,
    /// Use only that many of the allowed CPUs
    #[arg(long, value_name = "N")]
    pub cpus: Option<usize>,
}

impl Options {
    fn check(&self) -> Result<()> {
        if !(1..=10_000).contains(&self.slices) {
            return Err(Error::Options("--slices must lie between 1 and 10000".to_owned()));
        }
        if !(self.seconds > 0.0 && self.seconds <= 60.0) {
            return Err(Error::Options("--seconds must lie above 0 and at most at 60".to_owned()));
        }
        Ok(())
    }
}

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What they were measured on.
    pub machine: Machine,
    /// How.
    pub options: Options,
    /// The CPUs in use.
    pub cpus: Vec<usize>,
    /// The floors.
    #[serde(flatten)]
    pub floors: Floors,
}

/// Measures.
///
/// # Errors
/// If the options make no sense or the worker fails.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    options.check()?;
    let cpus = affinity::some(options.cpus)?;
    let floors = measure(context, &cpus, options)?;
    Ok(Figures { machine: Machine::describe(&context.command), options: options.clone(), cpus, floors })
}

/// Measures on these CPUs, in a process of its own.
pub(crate) fn measure(context: &Context, cpus: &[usize], options: &Options) -> Result<Floors> {
    let task = floor::Task {
        cpus: cpus.to_vec(),
        pairs: pairs(cpus),
        slices: options.slices,
        slice_ns: (options.seconds * 1e9) as u64,
    };
    // The driver takes nine slices, each other measurement one or, where the machine is slow, a few.
    let slices = 9 + 10 * (task.pairs.len() + 5);
    let takes = Duration::from_secs_f64(options.seconds * f64::from(options.slices) * slices as f64);
    match context.measure(Process::plain("floors"), Task::Floor(task), takes)? {
        Answer::Floor(floors) => Ok(*floors),
        _ => Err(Error::another_question("floors")),
    }
}

/// How many pairs of CPUs are measured at most.
const PAIRS: usize = 16;

/// All pairs, or as many as we have time for, evenly spread over near and far ones.
fn pairs(cpus: &[usize]) -> Vec<(usize, usize)> {
    let all: Vec<(usize, usize)> = cpus
        .iter()
        .enumerate()
        .flat_map(|(index, &from)| cpus[index + 1..].iter().map(move |&to| (from, to)))
        .collect();
    if all.len() <= PAIRS {
        return all;
    }
    (0..PAIRS).map(|n| all[n * (all.len() - 1) / (PAIRS - 1)]).collect()
}

impl Figures {
    /// The figures, to be read.
    pub fn report(&self) -> Report {
        let method = format!(
            "What no lock can undercut here. Bare atomics: on one CPU, inlined, on a word that nobody else \
                uses. A cache \
             line's way: half of a round trip between two threads, kept on a CPU each, that look at nothing \
             else. A sleep \
             and a wake-up: two threads sleep in a futex until it is their turn, and wake each other; what \
             they take, by \
             the number of real sleeps. On one CPU the switch is included; on two the woken one's was idle. \
             The driver: \
             what the grid's loop costs around two calls, through pointers, of functions that do nothing; \
             each lock of the \
             grid pays it. The timing: the wait that the loop shows for a lock that does nothing.\n\n\
             {} slices of {} ms each; a figure is the median over them, the spread their minimum and \
             maximum.",
            self.options.slices,
            self.options.seconds * 1000.0
        );
        Report {
            title: "Floors",
            answer: String::new(),
            others: None,
            method,
            machine: self.machine.clone(),
            listing: String::new(),
            tables: vec![table(&self.floors)],
            targets: Vec::new(),
            targets_title: "",
        }
    }
}

/// The floors as a table.
pub(crate) fn table(floors: &Floors) -> Table {
    let mut table = Table::new("Floors, ns", 1, &["what", "ns", "spread"]);
    let mut row = |what: String, ns: Summary, decimals: usize| {
        table.rows.push(vec![what, median(Some(ns), decimals), spread(Some(ns), decimals)]);
    };
    row("load + store".to_owned(), floors.bare_load_store_ns, 2);
    row("compare-and-swap + store".to_owned(), floors.bare_cas_store_ns, 2);
    row("compare-and-swap + exchange".to_owned(), floors.bare_cas_ns, 2);
    row("a pause in a spin loop".to_owned(), floors.pause_ns, 1);
    for line in &floors.line_transfer_ns {
        row(format!("a cache line, CPU {} to CPU {}, one way", line.from, line.to), line.ns, 1);
    }
    row("a futex sleep and its wake-up, same CPU".to_owned(), floors.futex_sleep_wake_ns.same_cpu, 0);
    if let Some(ns) = floors.futex_sleep_wake_ns.other_cpu {
        row("a futex sleep and its wake-up, from another CPU".to_owned(), ns, 0);
    }
    row("a futex call that wakes nobody".to_owned(), floors.futex_sleep_wake_ns.nobody, 0);
    row("a switch by sched_yield".to_owned(), floors.futex_sleep_wake_ns.switch, 0);
    let queues = floors.futex_sleep_wake_ns.queues;
    row("a futex call that wakes a thread of its CPU, which waits".to_owned(), queues, 0);
    if let Some(wake) = floors.futex_sleep_wake_ns.other {
        row("a futex call that wakes a thread of another CPU".to_owned(), wake.call, 0);
        row("from that call until the thread runs".to_owned(), wake.runs, 0);
    }
    row("the same by a thread of its CPU".to_owned(), floors.futex_sleep_wake_ns.preempts, 0);
    row("the driver, for each lock and unlock".to_owned(), floors.driver_ns, 2);
    row("the timing, in each wait".to_owned(), floors.timing_ns, 0);
    if let Some(interrupts) = floors.interrupts {
        let a_second = interrupts.a_second;
        row(format!("an interrupt of more than 10 us, {a_second:.0} a second"), interrupts.takes_ns, 0);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::by_default;

    #[test]
    fn pairs_of_few_cpus_are_all_there() {
        assert_eq!(pairs(&[3]), []);
        assert_eq!(pairs(&[1, 4, 7]), [(1, 4), (1, 7), (4, 7)]);
    }

    #[test]
    fn pairs_of_many_cpus_are_a_spread_sample() {
        let cpus: Vec<usize> = (0..64).collect();
        let pairs = pairs(&cpus);
        assert_eq!(pairs.len(), PAIRS);
        assert_eq!((pairs[0], pairs[PAIRS - 1]), ((0, 1), (62, 63)));
        let mut different = pairs.clone();
        different.dedup();
        assert_eq!(different, pairs);
        assert!(pairs.iter().all(|(from, to)| from < to));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for options in [
            Options { slices: 0, ..by_default() },
            Options { seconds: 0.0, ..by_default() },
            Options { seconds: f64::NAN, ..by_default() },
            Options { seconds: 1e9, ..by_default() },
        ] {
            assert!(matches!(options.check(), Err(Error::Options(_))), "{options:?}");
        }
        by_default::<Options>().check().unwrap();
    }
}
