//! `poundlock sim`: our locks on machines that are not there.

mod fit;
mod here;
mod ranges;
mod reproduce;
mod validate;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use poundlock_bench::floor;
use poundlock_sim::experiment::{self, AIM7, Experiment, Outcome, Work};
use poundlock_sim::workload::aim7::Profile;
use poundlock_sim::{Hypervisor, Machine, NANOSECOND, Picoseconds, locks, published};
use serde::Serialize;

use crate::bench;
use crate::message::{Failure, status};
use ranges::Numbers;

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List machines, workloads, tables and locks, or the numbers of one with their sources
    List(List),
    /// Run a workload on a machine, once for each lock and number of threads
    Run(Run),
    /// Print a published table with our figure beside each of its figures
    Reproduce(reproduce::Args),
    /// Find the numbers that the model of AIM7 leaves open, from figures of before a change
    Fit(fit::Args),
    /// Compare what the simulator predicts for this machine with what is measured on it
    Validate(validate::Args),
    /// Measure this machine, and print a file that describes it
    Measure,
}

#[derive(clap::Args)]
struct List {
    /// A machine, by name or file, a hypervisor, or a kernel's AIM7 (`aim7-3.7`): its numbers
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

#[derive(clap::Args)]
struct Run {
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
    /// Microseconds of work inside the critical section, in the grid [default: 1]
    #[arg(long, value_name = "US")]
    critical: Option<f64>,
    /// Microseconds of work between two critical sections of a thread, in the grid [default: 4]
    #[arg(long, value_name = "US")]
    think: Option<f64>,
    /// Simulated milliseconds that are counted, after a warm-up [default: 20 in the grid, 500 in AIM7]
    #[arg(long, value_name = "MS")]
    time: Option<f64>,
    /// Write the figures to FILE as JSON as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Does it.
pub(crate) fn main(args: Args) -> ExitCode {
    let result = match args.what {
        What::List(list) => self::list(&list),
        What::Run(run) => self::run(&run),
        What::Reproduce(args) => reproduce::main(&args),
        What::Fit(args) => fit::main(&args),
        What::Validate(args) => validate::main(&args),
        What::Measure => measure(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(|error| Failure::new(1, format_args!("standard output: {error}")))
}

fn list(args: &List) -> Result<(), Failure> {
    if let Some(name) = &args.name {
        return print(&numbers(name)?);
    }
    let machines = Machine::known();
    let mut rows: Vec<[String; 2]> = Vec::new();
    for machine in &machines {
        rows.push([machine.name().to_owned(), machine.about().to_owned()]);
    }
    rows.push(["here".to_owned(), "this one, measured when it is asked for".to_owned()]);
    let mut text = format!("Machines:\n{}", columns(&rows));
    text += "\nHypervisors:\n";
    text += &columns(
        &Hypervisor::known()
            .iter()
            .map(|known| [known.name(), known.about()].map(str::to_owned))
            .collect::<Vec<_>>(),
    );
    text += "\nWorkloads:\n";
    text += &columns(&Work::names().into_iter().map(|name| [name.clone(), about(&name)]).collect::<Vec<_>>());
    text += "\nTables:\n";
    text += &columns(
        &published::tables()
            .iter()
            .map(|table| [table.name, table.about].map(str::to_owned))
            .collect::<Vec<_>>(),
    );
    text += "\nLocks:\n  ";
    text += &locks::names().collect::<Vec<_>>().join(" ");
    text.push('\n');
    print(&text)
}

/// What a workload is, in a line.
fn about(workload: &str) -> String {
    match workload.split_once(':') {
        Some((_, mix)) => format!("users of AIM7 who draw jobs of the mix {mix}; jobs a minute"),
        None => "threads that take turns at one lock, as in `poundlock bench grid`".to_owned(),
    }
}

fn columns(rows: &[[String; 2]]) -> String {
    let width = rows.iter().map(|[name, _]| name.len()).max().unwrap_or(0);
    rows.iter().map(|[name, about]| format!("  {name:width$}  {about}\n")).collect()
}

/// The numbers of a machine, a hypervisor or a profile, each with its source.
fn numbers(name: &str) -> Result<String, Failure> {
    if let Some(profile) = Profile::known().iter().find(|known| name == format!("{AIM7}{}", known.kernel())) {
        let objects: Vec<_> =
            profile.objects().map(|(name, about)| [name, about].map(str::to_owned)).collect();
        return Ok(format!(
            "AIM7 on Linux {}. Its objects:\n{}\nSeconds that a run is idle; microseconds that jobs compute; how often they use an object; \
             nanoseconds that they hold it; 256ths of the uses that write:\n{}",
            profile.kernel(),
            columns(&objects),
            sources(profile.sources().into_iter())
        ));
    }
    if let Some(hypervisor) = Hypervisor::known().iter().find(|known| known.name() == name) {
        let numbers = hypervisor
            .sources()
            .into_iter()
            .map(|(name, value, source)| (name.to_owned(), value, source.to_owned()));
        return Ok(format!("{}\nNanoseconds.\n\n{}", hypervisor.about(), sources(numbers)));
    }
    let machine = machine(name)?;
    let numbers = machine
        .sources()
        .into_iter()
        .map(|(name, value, source)| (name.to_owned(), value, source.to_owned()));
    Ok(format!(
        "{}: {}\nNanoseconds, except counts and load_share and sibling, which are 256ths.\n\n{}",
        machine.name(),
        machine.about(),
        sources(numbers)
    ))
}

fn sources(numbers: impl Iterator<Item = (String, f64, String)>) -> String {
    columns(&numbers.map(|(name, value, source)| [format!("{name} = {value}"), source]).collect::<Vec<_>>())
}

/// This machine's floors, and the CPUs that they are of.
fn floors() -> Result<floor::Figures, Failure> {
    floor::run(&bench::context()?, &floor::Options::default()).map_err(bench::failure)
}

fn measure() -> Result<(), Failure> {
    let figures = floors()?;
    print(&here::description(&figures.floors, &figures.cpus))
}

/// The machine of this name, or that the file describes.
fn machine(name: &str) -> Result<Machine, Failure> {
    let wrong = |line: String| Failure::new(status::USAGE, line);
    if name == "here" {
        let figures = floors()?;
        return here::machine(&figures.floors, &figures.cpus);
    }
    if name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).map_err(|error| wrong(format!("{name}: {error}")))?;
        return Machine::parse(&text).map_err(|error| wrong(format!("{name}: {error}")));
    }
    let machines = Machine::known();
    let names: Vec<_> = machines.iter().map(|machine| machine.name().to_owned()).collect();
    machines.into_iter().find(|machine| machine.name() == name).ok_or_else(|| {
        wrong(format!(
            "no machine is called '{name}'; there are {} and here; the name of a file that describes one ends in .toml",
            names.join(", ")
        ))
    })
}

fn lock(name: &str) -> Result<&'static str, Failure> {
    locks::names().find(|known| *known == name).ok_or_else(|| {
        let names: Vec<_> = locks::names().collect();
        Failure::new(
            status::USAGE,
            format_args!("no lock can be simulated as '{name}'; there are {}", names.join(", ")),
        )
    })
}

/// Microseconds or milliseconds, as they were typed, in picoseconds.
fn time(option: &str, value: f64, unit: f64, least: f64) -> Result<Picoseconds, Failure> {
    if (least..=1e6).contains(&value) {
        Ok((value * unit) as Picoseconds)
    } else {
        Err(Failure::new(status::USAGE, format_args!("{option} must lie between {least} and 1000000")))
    }
}

const US: f64 = NANOSECOND as f64 * 1e3;
const MS: f64 = US * 1e3;

/// The document of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    machine: &'a str,
    sockets: u32,
    cpus: usize,
    workload: String,
    seed: u64,
    simulated_ms: f64,
    runs: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    lock: &'static str,
    threads: u32,
    figures: serde_json::Map<String, serde_json::Value>,
}

fn run(args: &Run) -> Result<(), Failure> {
    let wrong = |line: String| Failure::new(status::USAGE, line);
    let whole = machine(&args.machine)?;
    let threads_a_core = if args.no_smt { 1 } else { whole.threads_a_core() };
    let machine = whole
        .part(args.sockets.unwrap_or(whole.sockets()), threads_a_core)
        .map_err(|error| wrong(error.to_string()))?;
    let mut work = Work::parse(&args.workload).map_err(wrong)?;
    if let Work::Grid { critical, think } = &mut work {
        if let Some(us) = args.critical {
            *critical = time("--critical", us, US, 0.0)?;
        }
        if let Some(us) = args.think {
            *think = time("--think", us, US, 0.0)?;
        }
    } else if args.critical.is_some() || args.think.is_some() {
        return Err(wrong("--critical and --think belong to the workload 'grid'".to_owned()));
    }
    let default = if matches!(work, Work::Grid { .. }) { 20.0 } else { 500.0 };
    let ms = args.time.unwrap_or(default);
    let time = time("--time", ms, MS, 0.001)?;
    let locks = args.lock.iter().map(|name| lock(name)).collect::<Result<Vec<_>, _>>()?;
    let cases: Vec<_> =
        args.threads.iter().flat_map(|threads| locks.iter().map(move |&lock| (threads, lock))).collect();
    let profiles = Profile::known();
    let bar = progress(cases.len());
    let outcomes = experiment::each(
        cases.len(),
        |at| {
            let (threads, lock) = cases[at];
            let (machine, work, seed) = (&machine, work.clone(), args.seed);
            Experiment { machine, work, profiles: &profiles, lock, threads, seed, time }.run()
        },
        |at| {
            bar.set_message(format!("{}, {} threads", cases[at].1, cases[at].0));
            bar.inc(1);
        },
    );
    bar.finish_and_clear();
    let outcomes: Vec<Outcome> =
        outcomes.into_iter().collect::<Result<_, _>>().map_err(|line| Failure::new(1, line))?;
    if let Some(path) = &args.json {
        let runs = cases.iter().zip(&outcomes).map(|(&(threads, lock), outcome)| Row {
            lock,
            threads,
            figures: outcome
                .figures
                .iter()
                .map(|figure| (figure.name.clone(), figure.value.into()))
                .collect(),
        });
        let document = Document {
            machine: machine.name(),
            sockets: machine.sockets(),
            cpus: machine.cpus(),
            workload: work.name(),
            seed: args.seed,
            simulated_ms: ms,
            runs: runs.collect(),
        };
        write_json(path, &document)?;
    }
    let mut text = format!(
        "{} on {}, {} CPUs of {} sockets, seed {}, {ms} simulated ms\n\n",
        work.name(),
        machine.name(),
        machine.cpus(),
        machine.sockets(),
        args.seed
    );
    text += &table(&cases, &outcomes);
    print(&text)
}

fn write_json(path: &Path, document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::new(1, format_args!("the figures as JSON: {error}")))?;
    std::fs::write(path, text + "\n")
        .map_err(|error| Failure::new(1, format_args!("{}: {error}", path.display())))
}

fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left  {msg}") {
        bar.set_style(style);
    }
    bar
}

fn table(cases: &[(u32, &str)], outcomes: &[Outcome]) -> String {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = outcomes.first().into_iter().flat_map(|outcome| &outcome.figures);
    let mut header = vec![right("threads".to_owned()), Cell::new("lock")];
    header.extend(names.map(|figure| right(figure.name.clone())));
    table.set_header(header);
    for ((threads, lock), outcome) in cases.iter().zip(outcomes) {
        let mut row = vec![right(threads.to_string()), Cell::new(lock)];
        row.extend(
            outcome.figures.iter().map(|figure| right(format!("{:.*}", figure.decimals, figure.value))),
        );
        table.add_row(row);
    }
    table.trim_fmt() + "\n"
}
