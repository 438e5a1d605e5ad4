//! `poundlock sim targets`: the default mutex against the locks of others, over machines, threads, sections
//! and think times, and which of its targets it reaches.

use std::path::PathBuf;

use poundlock_sim::Machine;
use poundlock_sim::experiment::{Experiment, Work};
use poundlock_sim::model::Model;
use serde::Serialize;

use super::goals::{self, Bounds, Goal, LONG, Point, Seen};
use super::ranges::Numbers;
use super::sheet::Sheet;
use super::{MS, US, lock, machine, runs, shape, time, with_node};
use crate::message::{Failure, status};
use crate::output::counted;
use crate::results::{Output, print_beside};

/// Of these, one part of another, and two with four cores in one socket, which is one cache and no distance.
const LEFT_OUT: [&str; 3] = ["westmere-ex-8x4", "phenom-4", "osv-4"];

/// What it is compared with.
const OTHERS: [&str; 7] = ["mcs", "cna", "cohort", "shfllock", "mcs-park", "rust-std", "glibc"];

#[derive(clap::Args)]
pub(super) struct Args {
    /// The machines: names that `poundlock sim list` shows, or files that describe them and end in .toml
    /// [default: all with several sockets or many cores, but for the guests' host]
    #[arg(long, value_name = "MACHINE,..", value_delimiter = ',')]
    machine: Vec<String>,
    /// What the locks take for a node: `socket`, or the name of a group of cores that each machine has
    /// [default: what a machine's description says]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Numbers of threads [default: 1, 2 and 4 a socket, half the CPUs, all, and 2 and 4 times as many]
    #[arg(long, value_name = "RANGE")]
    threads: Option<Numbers>,
    /// Microseconds of work inside the critical section
    #[arg(long, value_name = "US,..", value_delimiter = ',', default_values_t = [0.2, 1.0, 5.0])]
    critical: Vec<f64>,
    /// Microseconds of work between two critical sections of a thread
    #[arg(long, value_name = "US,..", value_delimiter = ',', default_values_t = [2.0, 10.0, 50.0])]
    think: Vec<f64>,
    /// The lock whose targets they are
    #[arg(long, value_name = "NAME", default_value = "poundlock")]
    ours: String,
    /// The locks that it is compared with
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_values_t = OTHERS.map(str::to_owned))]
    lock: Vec<String>,
    /// Simulated milliseconds that are counted, after a warm-up of a quarter as many; with fewer than 100 the
    /// targets of fairness have no figure
    #[arg(long, value_name = "MS", default_value_t = LONG)]
    time: f64,
    /// What all that is left to chance is made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the throughput of each lock at each point as well
    #[arg(long)]
    points: bool,
    /// Write the figures to FILE as JSON as well; instead of the tables if it is `-`, standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    seed: u64,
    simulated_ms: f64,
    machines: Vec<OfMachine<'a>>,
}

#[derive(Serialize)]
struct OfMachine<'a> {
    machine: &'a str,
    sockets: u32,
    cpus: usize,
    node: &'a str,
    targets: &'a [Goal],
    of_mcs: Option<Bounds>,
    points: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    lock: &'static str,
    #[serde(flatten)]
    point: Point,
    #[serde(flatten)]
    figures: Seen,
}

/// A run.
struct Case {
    machine: usize,
    point: Point,
    lock: &'static str,
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let machines: Vec<Machine> = if args.machine.is_empty() {
        Machine::known().into_iter().filter(|machine| !LEFT_OUT.contains(&machine.name())).collect()
    } else {
        args.machine.iter().map(|name| machine(name)).collect::<Result<_, _>>()?
    };
    let machines = match &args.node {
        Some(node) => machines.iter().map(|machine| with_node(machine, node)).collect::<Result<_, _>>()?,
        None => machines,
    };
    let mut locks = vec![lock(&args.ours)?];
    for name in &args.lock {
        let other = lock(name)?;
        if !locks.contains(&other) {
            locks.push(other);
        }
    }
    let counted_for = time("--time", args.time, MS, 0.001)?;
    for (option, values) in [("--critical", &args.critical), ("--think", &args.think)] {
        values.iter().try_for_each(|&us| time(option, us, US, 0.0).map(drop))?;
    }
    let json = Output::open(args.json.as_deref())?;
    let cases: Vec<Case> = (machines.iter().enumerate())
        .flat_map(|(index, machine)| points(args, machine).into_iter().map(move |point| (index, point)))
        .flat_map(|(machine, point)| locks.iter().map(move |&lock| Case { machine, point, lock }))
        .collect();
    let model = Model::known();
    let outcomes = runs(
        cases.len(),
        |at| {
            let Case { machine, point, lock } = &cases[at];
            let work =
                Work::Grid { critical: (point.critical_us * US) as u64, think: (point.think_us * US) as u64 };
            let (machine, threads) = (&machines[*machine], point.threads);
            let experiment = Experiment {
                machine,
                guest: None,
                work,
                model: &model,
                lock,
                threads,
                seed: args.seed,
                time: counted_for,
            };
            experiment.run()
        },
        |at| {
            format!(
                "{}, {}, {} threads",
                machines[cases[at].machine].name(),
                cases[at].lock,
                cases[at].point.threads
            )
        },
    )?;
    let seen = outcomes.iter().map(Seen::of).collect::<Option<Vec<_>>>();
    let seen = seen.ok_or_else(|| Failure::new(status::OURS, "the grid has no such figures"))?;
    let (mut text, mut all) = (String::new(), Vec::new());
    let mut at = 0;
    for (index, machine) in machines.iter().enumerate() {
        let mine = cases.iter().filter(|case| case.machine == index).count();
        let (cases, seen) = (&cases[at..at + mine], &seen[at..at + mine]);
        at += mine;
        let of_points = cases.chunks(locks.len()).zip(seen.chunks(locks.len()));
        let run = goals::Machine {
            name: machine.name(),
            cpus: machine.cpus() as u32,
            ms: args.time,
            locks: &locks,
            points: of_points.map(|(cases, seen)| (cases[0].point, seen.to_vec())).collect(),
        };
        let goals = run.goals();
        text += &format!(
            "{}, {}: {}, {} simulated ms after {} of warm-up, seed {}\n\n",
            machine.name(),
            shape(machine),
            counted(run.points.len() as u64, "point"),
            args.time,
            args.time / 4.0,
            args.seed
        );
        if args.points {
            text += &(throughputs(&run).text() + "\n");
        }
        text += &(sheet(&args.ours, &goals).text() + "\n");
        let bounds = run.bounds();
        if let Some(Bounds { free_changes, best_other }) = bounds {
            text += &format!(
                "Geometric means of mcs's throughput: {free_changes:.2} if a change of the owner took no time, \
                 {best_other:.2} of the best other lock at each point\n\n"
            );
        }
        all.push((goals, bounds, cases, seen));
    }
    text += &verdict(args, all.iter().flat_map(|(goals, ..)| goals));
    let document = Document {
        seed: args.seed,
        simulated_ms: args.time,
        machines: (machines.iter().zip(&all))
            .map(|(machine, (targets, bounds, cases, seen))| OfMachine {
                machine: machine.name(),
                sockets: machine.sockets(),
                cpus: machine.cpus(),
                node: machine.node_is(),
                targets,
                of_mcs: *bounds,
                points: (cases.iter().zip(*seen))
                    .map(|(case, seen)| Row { lock: case.lock, point: case.point, figures: *seen })
                    .collect(),
            })
            .collect(),
    };
    let printed = print_beside(&text, &[&json]);
    let saved = json.map_or(Ok(()), |file| file.json(&document));
    printed.and(saved)
}

/// The points of a machine.
fn points(args: &Args, machine: &Machine) -> Vec<Point> {
    let threads = match &args.threads {
        Some(threads) => threads.iter().collect(),
        None => {
            let (sockets, cpus) = (machine.sockets(), machine.cpus() as u32);
            let mut threads: Vec<u32> = [sockets, 2 * sockets, 4 * sockets, cpus / 2]
                .into_iter()
                .filter(|&some| some < cpus)
                .collect();
            threads.extend([cpus, 2 * cpus, 4 * cpus]);
            threads.retain(|&some| some > 0);
            threads.sort_unstable();
            threads.dedup();
            threads
        }
    };
    let mut points = Vec::new();
    for &critical_us in &args.critical {
        for &think_us in &args.think {
            points.extend(threads.iter().map(|&threads| Point { threads, critical_us, think_us }));
        }
    }
    points
}

fn sheet(ours: &str, goals: &[Goal]) -> Sheet {
    let header =
        ["target", "limit", "verdict", "geometric mean", "worst", "worst point", ours, "against", "points"];
    let row = |goal: &Goal| {
        let mut row = vec![goal.about.clone(), goal.limit.to_string()];
        let Some(found) = &goal.found else {
            row.extend(["not simulated", "-", "-", "-", "-", "-", "0"].map(str::to_owned));
            return row;
        };
        row.push(found.verdict.to_owned());
        row.extend([found.geometric_mean, found.worst].map(|figure| format!("{figure:.2}")));
        row.push(found.at.clone());
        row.push(short(found.ours));
        row.push(found.theirs.map_or("-".to_owned(), |(lock, theirs)| format!("{lock}: {}", short(theirs))));
        row.push(found.points.to_string());
        row
    };
    Sheet { header: header.map(str::to_owned).to_vec(), rows: goals.iter().map(row).collect(), words: &[0] }
}

/// A rate, or an index between 0 and 1.
fn short(figure: f64) -> String {
    format!("{figure:.*}", if figure < 10.0 { 2 } else { 1 })
}

/// Thousands a second of each lock at each point.
fn throughputs(run: &goals::Machine<'_>) -> Sheet {
    let mut header =
        ["thousands a second", "threads", "inside, us", "outside, us"].map(str::to_owned).to_vec();
    header.extend(run.locks.iter().map(|&lock| lock.to_owned()));
    let row = |(point, seen): &(Point, Vec<Seen>)| {
        let mut row = vec![String::new(), point.threads.to_string()];
        row.extend([point.critical_us, point.think_us].map(|us| us.to_string()));
        row.extend(seen.iter().map(|seen| format!("{:.1}", seen.thousands_a_second)));
        row
    };
    Sheet { header, rows: run.points.iter().map(row).collect(), words: &[0] }
}

/// The last line.
fn verdict<'a>(args: &Args, goals: impl Iterator<Item = &'a Goal>) -> String {
    let verdicts: Vec<_> = goals.map(|goal| goal.found.as_ref().map(|found| found.verdict)).collect();
    let seen = verdicts.iter().flatten().count();
    let reached = verdicts.iter().flatten().filter(|verdict| **verdict == "reached").count();
    let mut line = format!("{reached} of {} reached", counted(seen as u64, "target"));
    if seen < verdicts.len() {
        line += &format!(", {} not simulated", verdicts.len() - seen);
    }
    if args.machine.is_empty() {
        line += &format!("; left out: {}", LEFT_OUT.join(", "));
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_here_is_known() {
        for name in OTHERS {
            assert!(lock(name).is_ok(), "{name}");
        }
        let machines = Machine::known();
        for name in LEFT_OUT {
            assert!(machines.iter().any(|machine| machine.name() == name), "{name}");
        }
    }
}
