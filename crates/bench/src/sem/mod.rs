//! The benchmark of semaphore arrays that the source's series was measured with, over the kernel's arrays,
//! ours, and futexes; beside it single calls, two threads in one array, pairs of processes and of threads
//! that wake each other, and wake-ups among ever more sleepers.

mod mechanism;
mod plot;
mod report;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::launch::Process;
use crate::plan::{Common, Plan, Preset, Rows, ns};
use crate::report::{Table, Target};
use crate::worker;
use crate::worker::sem::{Operation, Sides, Sleep, Task, What};

pub use mechanism::Mechanism;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Only these: kernel (or 0; takes part always), before, after, shared-line, combining, futex (or 2),
    /// nanosleep (or 1)
    #[arg(short = 'o', long, value_name = "NAME,..", value_delimiter = ',', hide_possible_values = true)]
    pub mechanisms: Vec<Mechanism>,
    /// Threads that sleep
    #[arg(short = 't', long, value_name = "N", default_value_t = 250)]
    pub threads: usize,
    /// How many are woken at a time
    #[arg(short = 'w', long, value_name = "N", default_value_t = 64)]
    pub wake: usize,
    /// Seconds for each of them in a round; single calls and sleepers take shares of it
    #[arg(short = 'r', long, value_name = "S", default_value_t = 2.0)]
    pub seconds: f64,
    /// Keep each thread on a CPU, in turn
    #[arg(short = 'b', long)]
    pub bind: bool,
    /// How often, and on how many CPUs.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common<3>,
    /// Numbers of threads that sleep in one array while one is woken
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = sleepers())]
    pub sleepers: Vec<usize>,
    /// Leave the sleepers out, which take most of a short run
    #[arg(long, conflicts_with = "sleepers")]
    pub no_sleepers: bool,
}

/// Numbers of sleepers, if none are named.
pub fn sleepers() -> Vec<usize> {
    (0..=10).map(|doublings| 10 << doublings).collect()
}

/// The fewest sleepers among whom some are woken.
const FEWEST: usize = 10;
/// The share of [`Options::seconds`] that goes before a measurement of it, unmeasured.
const WARM_UP: f64 = 0.1;
/// The share of it for each operation of one thread, and the slices that it is cut into.
const ALONE: f64 = 0.02;
const SLICES: u32 = 50;
/// The share of it for two threads in one array.
const PAIR: f64 = 0.1;
/// The share of it for each number of pairs that wake each other, and those numbers.
const WAKES: f64 = 0.2;
const PAIRS: [usize; 4] = [2, 4, 8, 16];
/// The share of it for each number of sleepers.
const CROWD: f64 = 0.02;
/// What each sleeper takes at the most, from its thread's start to its end, on a busy machine.
const SECONDS_A_SLEEPER: f64 = 0.01;

impl Options {
    /// The numbers of sleepers, each once, ascending.
    fn crowds(&self) -> Vec<usize> {
        let mut sleepers = if self.no_sleepers { Vec::new() } else { self.sleepers.clone() };
        sleepers.sort_unstable();
        sleepers.dedup();
        sleepers
    }

    fn takes_part(&self, mechanism: Mechanism) -> bool {
        self.mechanisms.is_empty() || self.mechanisms.contains(&mechanism) || mechanism == Mechanism::Kernel
    }

    /// Whether pairs of a mechanism wake each other: of the kernel's, the default, and what is named.
    fn wakes(&self, mechanism: Mechanism) -> bool {
        let default = matches!(mechanism, Mechanism::Kernel | Mechanism::After);
        mechanism.is_array() && (default || self.mechanisms.contains(&mechanism))
    }

    /// Whether a mechanism has sleepers of this sort.
    fn crowded(&self, mechanism: Mechanism, sleep: Sleep) -> bool {
        // Thousands of threads take their time. Some of ours differ in the lock only, which nobody contends
        // for there.
        let alike = matches!(mechanism, Mechanism::SharedLine | Mechanism::Combining);
        // A futex for each thread is the floor of waking one.
        let floor = (mechanism, sleep) == (Mechanism::Futex, Sleep::Own);
        floor || (mechanism.is_array() && (!alike || self.mechanisms.contains(&mechanism)))
    }
}

impl Preset for Options {
    const TITLE: &'static str = "Semaphore arrays, as sembench measures them";
    const TARGETS: &'static str = "Targets (they are about after; the others for comparison)";
    const WHO: &'static str = "mechanism";

    fn check(&self) -> Result<()> {
        let error = |message: &str| Err(Error::Options(message.to_owned()));
        if !(1..=10_000).contains(&self.threads) {
            return error("-t must lie between 1 and 10000 threads");
        }
        if !(1..=10_000).contains(&self.wake) {
            return error("-w must lie between 1 and 10000 threads");
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return error("-r must lie above 0 and at most at 3600 seconds");
        }
        if self.sleepers.iter().any(|sleepers| !(FEWEST..=30_000).contains(sleepers)) {
            return error("--sleepers must name numbers from 10 to 30000");
        }
        Ok(())
    }

    fn common(&self) -> (usize, Option<usize>) {
        (self.common.rounds, self.common.cpus)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let everybody: Vec<_> = Mechanism::ALL.into_iter().filter(|&one| self.takes_part(one)).collect();
        let arrays: Vec<_> = everybody.iter().copied().filter(|one| one.is_array()).collect();
        let (cpus, alone_on) = (plan.cpus.clone(), vec![plan.alone_on]);
        let run = |plan: &mut Plan, point: &str, mechanism, cpus: &[usize], share: f64, takes: f64, what| {
            let process = Process { semaphores: Some(mechanism), ..Process::plain(mechanism.name()) };
            let task = Task { mechanism, cpus: cpus.to_vec(), duration_ns: ns(self.seconds * share), what };
            plan.run(point.to_owned(), process, worker::Task::Sem(task), self.seconds * takes + 30.0)
        };
        for &one in &everybody {
            let what = What::Burns {
                threads: self.threads,
                wake: self.wake,
                bind: self.bind,
                warm_up_ns: ns(self.seconds * WARM_UP),
            };
            let point = format!("{} threads", self.threads);
            let burns = run(plan, &point, one, &cpus, 1.0, 1.0 + WARM_UP, what);
            plan.cell("burns", burns, 0, one.name(), vec![]);
        }
        let takes = ALONE * 3.0 * Operation::ALL.len() as f64;
        let alone: Vec<_> = arrays
            .iter()
            .map(|&one| run(plan, "one thread", one, &alone_on, ALONE, takes, What::Alone { slices: SLICES }))
            .collect();
        for (slot, operation) in Operation::ALL.into_iter().enumerate() {
            for (&one, &run) in arrays.iter().zip(&alone) {
                plan.cell("alone", run, slot, one.name(), vec![("operation", json!(operation))]);
            }
        }
        for &one in arrays.iter().filter(|_| cpus.len() >= 2) {
            let pair = run(plan, "two threads", one, &cpus, PAIR, PAIR, What::Pair);
            plan.cell("pairs", pair, 0, one.name(), vec![]);
        }
        for (sides, pairs) in Sides::ALL.into_iter().flat_map(|sides| PAIRS.map(|pairs| (sides, pairs))) {
            for &one in arrays.iter().filter(|&&one| self.wakes(one)) {
                let what = What::Wakes { sides, pairs };
                let point = format!("{pairs} pairs, {}", sides.words());
                let wakes = run(plan, &point, one, &cpus, WAKES, WAKES, what);
                let labels = vec![("sides", json!(sides)), ("number", pairs.into())];
                plan.cell("wakes", wakes, 0, one.name(), labels);
            }
        }
        let crowds = self.crowds();
        let most = crowds.last().copied().unwrap_or(0) as f64;
        for sleep in Sleep::ALL.into_iter().filter(|_| !crowds.is_empty()) {
            for &one in everybody.iter().filter(|&&one| self.crowded(one, sleep)) {
                let takes = CROWD * crowds.len() as f64 + most * SECONDS_A_SLEEPER / self.seconds;
                let what = What::Crowd { sleep, sleepers: crowds.clone() };
                let point = format!("sleepers, {}", sleep.words());
                let crowd = run(plan, &point, one, &alone_on, CROWD, takes, what);
                for (slot, &sleepers) in crowds.iter().enumerate() {
                    let labels = vec![("sleep", json!(sleep)), ("sleepers", sleepers.into())];
                    plan.cell("crowds", crowd, slot, one.name(), labels);
                }
            }
        }
        for (section, figure) in
            [("burns", "burns_per_second"), ("pairs", "calls_per_second"), ("alone", "ns")]
        {
            plan.of(section, "of_shared_line", figure, vec![("mechanism", "shared-line".into())]);
        }
        for (section, figure) in
            [("burns", "burns_per_second"), ("pairs", "calls_per_second"), ("crowds", "ns")]
        {
            plan.of(section, "of_kernel", figure, vec![("mechanism", "kernel".into())]);
        }
        for (name, figure) in [("mean_of_kernel", "waits.mean_ns"), ("longest_of_kernel", "waits.max_ns")] {
            plan.of("wakes", name, figure, vec![("mechanism", "kernel".into())]);
        }
        plan.of("burns", "of_before", "burns_per_second", vec![("mechanism", "before".into())]);
        plan.of("alone", "times_the_kernels_rate", "ns", vec![("mechanism", "kernel".into())])
            .how(|own, kernels| kernels / own);
        plan.of("alone", "of_bare", "ns", vec![("operation", "bare".into())]);
        Ok(())
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let one = [("operation", json!(Operation::One))];
        let rate = rows.find("alone", "after", &one)?.get("times_the_kernels_rate")?;
        let burns = rows.find("burns", "after", &[])?.get("of_kernel")?;
        Some(format!(
            "Of calls that need not wait, Poundlock's arrays make {:.2} ({:.2}..{:.2}) times as many as the \
                kernel's; with {} \
             threads that sleep and are woken, {:.2} ({:.2}..{:.2}) times the wake-ups.",
            rate.median, rate.min, rate.max, self.threads, burns.median, burns.min, burns.max
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        report::method(self, rows)
    }

    fn listing(&self, rows: &Rows) -> String {
        report::listing(self, rows)
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        report::tables(rows)
    }

    fn picture(&self, rows: &Rows) -> Result<Option<String>> {
        plot::svg(rows)
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        report::targets(self, rows)
    }

    fn extra(&self, _rows: &Rows) -> Vec<(&'static str, Value)> {
        let side = |side: usize| -> Map<String, Value> {
            report::PUBLISHED
                .map(|(_, key, published, _)| (key.to_owned(), published[side].into()))
                .into_iter()
                .collect()
        };
        let none = || Value::Array(Vec::new());
        vec![("published", json!([side(0), side(1)])), ("pairs", none()), ("crowds", none())]
    }
}
