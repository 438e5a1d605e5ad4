//! `poundlock sim run`: a workload on a machine, once for each lock and number of threads.

use std::path::PathBuf;

use poundlock_sim::experiment::{Experiment, Guest, Outcome, Work};
use poundlock_sim::model::Model;
use poundlock_sim::{Hypervisor, Machine};
use serde::Serialize;

use super::page::{Section, html};
use super::profile;
use super::ranges::Numbers;
use super::sheet::Sheet;
use super::{MS, US, machine, one_of, runs, shape, time, with_node};
use crate::message::{Failure, status};
use crate::output::counted;
use crate::results::{Output, print_beside};
use poundlock_bench::plot::{Line, Look, lines};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The machine: a name that `poundlock sim list` shows, or a file that describes one and ends in .toml
    #[arg(long, value_name = "MACHINE")]
    machine: String,
    /// The workload: a name that `poundlock sim list` shows
    #[arg(long, value_name = "NAME")]
    workload: String,
    /// The locks
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', required = true)]
    lock: Vec<String>,
    /// Numbers of threads, or of users: 8, 1,2,4, 10-80 or 200-1000:200
    #[arg(long, value_name = "RANGE")]
    threads: Numbers,
    /// What all that is left to chance is made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Use only the first N sockets of the machine
    #[arg(long, value_name = "N")]
    sockets: Option<u32>,
    /// Use one hardware thread of each core
    #[arg(long)]
    no_smt: bool,
    /// What the locks take for a node: `socket`, or the name of one of the machine's groups of cores
    /// [default: what the machine's description says]
    #[arg(long, value_name = "NAME", conflicts_with = "guest")]
    node: Option<String>,
    /// Run in a virtual machine of this hypervisor: a name that `poundlock sim list` shows
    #[arg(long, value_name = "HYPERVISOR")]
    guest: Option<String>,
    /// How many virtual CPUs it has [default with --pinned: as many as the machine]
    #[arg(long, value_name = "N", requires = "guest",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    vcpus: Option<u32>,
    /// Each virtual CPU has a real one for itself, and the guest knows the machine's sockets
    #[arg(long, requires = "guest")]
    pinned: bool,
    /// Microseconds of work inside the critical section, in the grid and of readers [default: 1]
    #[arg(long, value_name = "US")]
    critical: Option<f64>,
    /// Microseconds of work between two critical sections of a thread, in the grid [default: 4] and of
    /// readers [default: 1]
    #[arg(long, value_name = "US")]
    think: Option<f64>,
    /// How many per cent of the operations write, among readers [default: 0]
    #[arg(long, value_name = "PERCENT")]
    writers: Option<f64>,
    /// Simulated milliseconds that are counted, after a warm-up [default: 500 in AIM7, otherwise 20]
    #[arg(long, value_name = "MS")]
    time: Option<f64>,
    /// Show which words and which steps of the lock need transfers of cache lines, and why, in the grid and
    /// in misc-mutex
    #[arg(long)]
    profile: bool,
    /// Write the figures to FILE as JSON as well; instead of the table if it is `-`, standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the first of the figures over the numbers of threads, on a page in FILE
    #[arg(long, value_name = "FILE.html")]
    plot: Option<PathBuf>,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    machine: &'a str,
    sockets: u32,
    cpus: usize,
    node: &'a str,
    guest: Option<&'a Guest>,
    workload: String,
    seed: u64,
    simulated_ms: f64,
    runs: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    lock: &'static str,
    threads: u32,
    figures: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Vec<profile::Access<'a>>>,
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let wrong = |line: String| Failure::new(status::USAGE, line);
    let whole = machine(&args.machine)?;
    let threads_a_core = if args.no_smt { 1 } else { whole.threads_a_core() };
    let machine = whole
        .part(args.sockets.unwrap_or(whole.sockets()), threads_a_core)
        .map_err(|error| wrong(error.to_string()))?;
    let machine = args.node.as_ref().map_or(Ok(machine.clone()), |node| with_node(&machine, node))?;
    let guest = guest(args, &machine)?;
    let mut work = Work::parse(&args.workload).map_err(wrong)?;
    if let Work::Grid { critical, think } | Work::Readers { critical, think, .. } = &mut work {
        if let Some(us) = args.critical {
            *critical = time("--critical", us, US, 0.0)?;
        }
        if let Some(us) = args.think {
            *think = time("--think", us, US, 0.0)?;
        }
    } else if args.critical.is_some() || args.think.is_some() {
        return Err(wrong("--critical and --think belong to the workloads 'grid' and 'readers'".to_owned()));
    }
    match (&mut work, args.writers) {
        (_, None) => {}
        (Work::Readers { writers, .. }, Some(percent)) if (0.0..=100.0).contains(&percent) => {
            *writers = (percent * 1000.0).round() as u32;
        }
        _ => return Err(wrong("--writers is a percentage, of the workload 'readers'".to_owned())),
    }
    if args.profile && !work.has_profile() {
        return Err(wrong("--profile belongs to the workloads 'grid' and 'misc-mutex'".to_owned()));
    }
    let default = if matches!(work, Work::Jobs { .. }) { 500.0 } else { 20.0 };
    let ms = args.time.unwrap_or(default);
    let time = time("--time", ms, MS, 0.001)?;
    let known = work.locks();
    let locks = args.lock.iter().map(|name| one_of(&known, name)).collect::<Result<Vec<_>, _>>()?;
    let (json, plot) = Output::open_both(args.json.as_deref(), ("--plot", args.plot.as_deref()))?;
    let cases: Vec<_> =
        args.threads.iter().flat_map(|threads| locks.iter().map(move |&lock| (threads, lock))).collect();
    let model = Model::known();
    let outcomes = runs(
        cases.len(),
        |at| {
            let (threads, lock) = cases[at];
            let (machine, guest, work, seed) = (&machine, guest.clone(), work.clone(), args.seed);
            let run = Experiment { machine, guest, work, model: &model, lock, threads, seed, time };
            if args.profile { run.profile() } else { run.run() }
        },
        |at| format!("{}, {} threads", cases[at].1, cases[at].0),
    )?;
    let header = format!(
        "{} on {}, {}{}, seed {}, {ms} simulated ms",
        work.name(),
        machine.name(),
        shape(&machine),
        guest.as_ref().map_or(String::new(), said),
        args.seed
    );
    let sheet = sheet(&cases, &outcomes);
    let runs = cases.iter().zip(&outcomes).map(|(&(threads, lock), outcome)| Row {
        lock,
        threads,
        figures: outcome.figures.iter().map(|figure| (figure.name.clone(), figure.value.into())).collect(),
        profile: outcome.profile.as_ref().map(profile::document),
    });
    let document = Document {
        machine: machine.name(),
        sockets: machine.sockets(),
        cpus: machine.cpus(),
        node: machine.node_is(),
        guest: guest.as_ref(),
        workload: work.name(),
        seed: args.seed,
        simulated_ms: ms,
        runs: runs.collect(),
    };
    // What cannot be written takes nothing else with it.
    let mut text = format!("{header}\n\n{}", sheet.text());
    for ((threads, lock), outcome) in cases.iter().zip(&outcomes) {
        if let Some(profile) = &outcome.profile {
            let threads = counted((*threads).into(), "thread");
            text += &format!("\n{lock}, {threads}: an acquisition's transfers\n\n{}", profile::text(profile));
        }
    }
    let printed = print_beside(&text, &[&json, &plot]);
    let saved = json.map_or(Ok(()), |file| file.json(&document));
    let drawn = plot
        .map_or(Ok(()), |file| file.write(&page(&header, &work.name(), &locks, &cases, &outcomes, sheet)?));
    printed.and(saved).and(drawn)
}

/// The virtual machine that was asked for.
fn guest(args: &Args, machine: &Machine) -> Result<Option<Guest>, Failure> {
    let wrong = |line: String| Failure::new(status::USAGE, line);
    let Some(name) = &args.guest else { return Ok(None) };
    let hypervisors = Hypervisor::known();
    if !hypervisors.iter().any(|known| known.name() == name) {
        let names: Vec<_> = hypervisors.iter().map(Hypervisor::name).collect();
        return Err(wrong(format!("no hypervisor is called '{name}'; there are {}", names.join(", "))));
    }
    let cpus = machine.cpus() as u32;
    let vcpus = match args.vcpus {
        Some(vcpus) if args.pinned && vcpus != cpus => {
            return Err(wrong(format!(
                "a guest that is pinned has as many CPUs as its machine: {cpus}, not {vcpus}"
            )));
        }
        Some(vcpus) => vcpus,
        None if args.pinned => cpus,
        None => return Err(wrong("--guest needs --vcpus or --pinned".to_owned())),
    };
    Ok(Some(Guest { hypervisor: name.clone(), vcpus, pinned: args.pinned }))
}

/// It, in the header.
fn said(guest: &Guest) -> String {
    let what = if guest.pinned { "pinned virtual CPU" } else { "virtual CPU" };
    format!(", a guest of {} with {}", guest.hypervisor, counted(guest.vcpus.into(), what))
}

fn sheet(cases: &[(u32, &str)], outcomes: &[Outcome]) -> Sheet {
    let names = outcomes.first().into_iter().flat_map(|outcome| &outcome.figures);
    let mut header = vec!["threads".to_owned(), "lock".to_owned()];
    header.extend(names.map(|figure| figure.name.clone()));
    let row = |(&(threads, lock), outcome): (&(u32, &str), &Outcome)| {
        let mut row = vec![threads.to_string(), lock.to_owned()];
        row.extend(outcome.figures.iter().map(|figure| format!("{:.*}", figure.decimals, figure.value)));
        row
    };
    Sheet { header, rows: cases.iter().zip(outcomes).map(row).collect(), words: &[1] }
}

fn page(
    about: &str,
    workload: &str,
    locks: &[&str],
    cases: &[(u32, &str)],
    outcomes: &[Outcome],
    sheet: Sheet,
) -> Result<String, Failure> {
    let first = |outcome: &Outcome| outcome.figures.first().map(|figure| figure.value);
    let line = |(index, lock): (usize, &&str)| {
        let mine = cases.iter().zip(outcomes).filter(|(case, _)| case.1 == *lock);
        let mut points: Vec<_> =
            mine.filter_map(|(case, outcome)| Some((f64::from(case.0), first(outcome)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { look: Look::nth(index), name: String::new(), points, spread: Vec::new() }
    };
    let drawn: Vec<Line> = locks.iter().enumerate().map(line).collect();
    let figure = sheet.header.get(2).map_or("", String::as_str);
    let section = Section {
        name: workload.to_owned(),
        about: about.to_owned(),
        legend: drawn.iter().zip(locks).map(|(line, lock)| (line.look, (*lock).to_owned())).collect(),
        chart: lines(&drawn, "threads", figure)?,
        sheet,
        notes: Vec::new(),
    };
    html("sim", "Locks on a simulated machine", "The same command draws the same page each time.", &[section])
}
