//! `poundlock sim`: our locks on machines that are not there.

mod check;
mod fit;
mod goals;
mod here;
pub(crate) mod page;
mod profile;
mod ranges;
mod reproduce;
mod run;
pub(crate) mod sheet;
mod targets;
mod validate;

use std::fmt::Display;
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use poundlock_bench::floor;
use poundlock_bench::plan::by_default;
use poundlock_bench::progress::steps as progress;
use poundlock_sim::experiment::{self, Outcome, Work};
use poundlock_sim::workload::jobs::Profile;
use poundlock_sim::{Hypervisor, Machine, NANOSECOND, Picoseconds, locks, published};

use crate::bench;
use crate::message::{Failure, say, status};
use crate::output::{counted, print};

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
    Run(run::Args),
    /// Compare the default mutex with the locks of others, and print which targets it reaches
    Targets(targets::Args),
    /// Print a published table with our figure beside each of its figures
    Reproduce(reproduce::Args),
    /// Find the numbers that the model leaves open, from figures of before a change
    Fit(fit::Args),
    /// Run the locks under schedules that real machines have once a year, with a checker
    Check(check::Args),
    /// Compare what the simulator predicts for this machine with what is measured on it
    Validate(validate::Args),
    /// Measure this machine, and print a file that describes it
    Measure,
}

#[derive(clap::Args)]
struct List {
    /// A machine, by name or file, a hypervisor, or a workload's jobs (`aim7-3.7`): its numbers
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Does it.
pub(crate) fn main(args: Args) -> ExitCode {
    let result = match args.what {
        What::List(list) => self::list(&list),
        What::Run(args) => run::main(&args),
        What::Targets(args) => targets::main(&args),
        What::Reproduce(args) => reproduce::main(&args),
        What::Fit(args) => fit::main(&args),
        What::Check(args) => check::main(&args),
        What::Validate(args) => validate::main(&args),
        What::Measure => measure(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn list(args: &List) -> Result<(), Failure> {
    if let Some(name) = &args.name {
        return print(&numbers(name)?);
    }
    let row = |name: &str, about: &str| [name.to_owned(), about.to_owned()];
    let mut machines: Vec<_> =
        Machine::known().iter().map(|machine| row(machine.name(), machine.about())).collect();
    machines.push(row("here", "this one, measured when it is asked for"));
    let hypervisors: Vec<_> =
        Hypervisor::known().iter().map(|known| row(known.name(), known.about())).collect();
    let workloads: Vec<_> = Work::names().iter().map(|name| row(name, &about(name))).collect();
    let tables: Vec<_> = published::tables().iter().map(|table| row(table.name, table.about)).collect();
    print(&format!(
        "Machines:\n{}\nHypervisors:\n{}\nWorkloads:\n{}\nTables:\n{}\nLocks:\n  {}\n\
         Semaphore arrays, for sembench:\n  {}\n",
        columns(&machines),
        columns(&hypervisors),
        columns(&workloads),
        columns(&tables),
        locks::names().collect::<Vec<_>>().join(" "),
        Work::Sembench { wakes: 1 }.locks().join(" ")
    ))
}

/// What a workload is, in a line.
fn about(workload: &str) -> String {
    match (workload, workload.split_once(':')) {
        (_, Some(("kernel-build-4.0", _))) => "compilers that build a kernel; seconds".to_owned(),
        (_, Some((_, mix))) => format!("users of AIM7 who draw jobs of the mix {mix}; jobs a minute"),
        ("readers", _) => {
            "threads that share a readers-writer lock, as in `poundlock bench rwlock`".to_owned()
        }
        ("grid", _) => "threads that take turns at one lock, as in `poundlock bench grid`".to_owned(),
        _ => format!("as in `poundlock bench {workload}`"),
    }
}

fn columns(rows: &[[String; 2]]) -> String {
    let width = rows.iter().map(|[name, _]| name.len()).max().unwrap_or(0);
    rows.iter().map(|[name, about]| format!("  {name:width$}  {about}\n")).collect()
}

/// The numbers of a machine, a hypervisor or a profile, each with its source.
fn numbers(name: &str) -> Result<String, Failure> {
    if let Some(profile) = Profile::known().iter().find(|known| name == known.name()) {
        let objects: Vec<_> =
            profile.objects().map(|(name, about)| [name, about].map(str::to_owned)).collect();
        return Ok(format!(
            "{}. Its objects:\n{}\nSeconds that a run is idle; microseconds that jobs compute; how often \
                they use an object; \
             nanoseconds that they hold it; 256ths of the uses that write:\n{}",
            profile.name(),
            columns(&objects),
            sources(profile.sources())
        ));
    }
    if let Some(hypervisor) = Hypervisor::known().iter().find(|known| known.name() == name) {
        return Ok(format!("{}\nNanoseconds.\n\n{}", hypervisor.about(), sources(hypervisor.sources())));
    }
    let machine = machine(name)?;
    Ok(format!(
        "{}: {}\nNanoseconds, except counts and load_share and sibling, which are 256ths.\n\n{}",
        machine.name(),
        machine.about(),
        sources(machine.sources())
    ))
}

fn sources<N: Display, S: Display>(numbers: Vec<(N, f64, S)>) -> String {
    let row = |(name, value, source): (N, f64, S)| [format!("{name} = {value}"), source.to_string()];
    columns(&numbers.into_iter().map(row).collect::<Vec<_>>())
}

/// This machine's floors, and the CPUs that they are of.
fn floors() -> Result<floor::Figures, Failure> {
    floor::run(&bench::context()?, &by_default()).map_err(bench::failure)
}

/// This machine, as a file describes one; and how long a turn of arithmetic took meanwhile, in picoseconds.
pub(crate) fn here() -> Result<(String, u32), Failure> {
    let figures = floors()?;
    let turn_ps = figures.floors.futex_sleep_wake_ns.turn_ns * 1000.0;
    Ok((here::description(&figures.floors, &figures.cpus), turn_ps as u32))
}

fn measure() -> Result<(), Failure> {
    print(&here()?.0)
}

/// The machine of this name, or that the file describes.
pub(crate) fn machine(name: &str) -> Result<Machine, Failure> {
    let wrong = |line: String| Failure::new(status::USAGE, line);
    if name == "here" {
        let figures = floors()?;
        return here::machine(&figures.floors, &figures.cpus);
    }
    if name.ends_with(".toml") {
        let unusable = |error| Failure::new(status::OURS, format_args!("{name}: {error}"));
        let text = std::fs::read_to_string(name).map_err(|error| unusable(error.to_string()))?;
        return Machine::parse(&text).map_err(|error| unusable(error.to_string()));
    }
    let machines = Machine::known();
    let names: Vec<_> = machines.iter().map(|machine| machine.name().to_owned()).collect();
    machines.into_iter().find(|machine| machine.name() == name).ok_or_else(|| {
        wrong(format!(
            "no machine is called '{name}'; there are {} and here; the name of a file that describes one \
                ends in .toml",
            names.join(", ")
        ))
    })
}

/// The same machine with another answer to what a node is.
fn with_node(machine: &Machine, node: &str) -> Result<Machine, Failure> {
    let wrong = |error| Failure::new(status::USAGE, format_args!("--node: {error}"));
    machine.with_node(node).map_err(wrong)
}

/// A machine's CPUs and sockets, in words, and what a node is if that is something else.
fn shape(machine: &Machine) -> String {
    let (cpus, sockets) =
        (counted(machine.cpus() as u64, "CPU"), counted(machine.sockets().into(), "socket"));
    let node = match machine.node_is() {
        Machine::SOCKET => String::new(),
        other => format!(", a node is a {other}"),
    };
    format!("{cpus} of {sockets}{node}")
}

pub(crate) fn lock(name: &str) -> Result<&'static str, Failure> {
    one_of(&locks::names().collect::<Vec<_>>(), name)
}

/// The lock of this name, of those that a workload can use.
fn one_of(names: &[&'static str], name: &str) -> Result<&'static str, Failure> {
    names.iter().copied().find(|known| *known == name).ok_or_else(|| {
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

/// Does all runs, tells a terminal how far they are, and says how fast they were.
fn runs(
    count: usize,
    run: impl Fn(usize) -> Result<Outcome, String> + Sync,
    name: impl Fn(usize) -> String + Sync,
) -> Result<Vec<Outcome>, Failure> {
    let bar = progress(count);
    let before = cpu_time();
    let outcomes = experiment::each(count, run, |at| {
        bar.set_message(name(at));
        bar.inc(1);
    });
    bar.finish_and_clear();
    let used = cpu_time().saturating_sub(before);
    let outcomes: Vec<Outcome> =
        outcomes.into_iter().collect::<Result<_, _>>().map_err(|line| Failure::new(status::OURS, line))?;
    say_speed(outcomes.iter().map(|outcome| outcome.accesses).sum(), used);
    Ok(outcomes)
}

/// Says how fast this host simulates: so many accesses in so much CPU time.
fn say_speed(accesses: u64, used: Duration) {
    let used = used.as_secs_f64();
    say(format_args!(
        "{accesses} simulated accesses in {used:.2} s of CPU time: {:.0} a second",
        accesses as f64 / used.max(1e-9)
    ));
}

/// What this process has used so far.
fn cpu_time() -> Duration {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is to a timespec, which the call fills in; the clock always exists.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, now.as_mut_ptr());
        now.assume_init()
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
