//! `poundlock bench`: our locks against glibc's, on this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use poundlock_bench::grid::compare::Results;
use poundlock_bench::grid::result::Directory;
use poundlock_bench::plan::{self, Preset};
use poundlock_bench::report::{self, Report};
use poundlock_bench::{
    Context, Error, figures, floor, grid, handover, misc, page, programs, rwlock, sem, spin, startup,
    uncontended, worker,
};
use poundlock_names::LockName;
use serde::Serialize;

use crate::library;
use crate::message::{Failure, say, status};
use crate::output::{Output, command_line, print, print_beside, write_json};

/// Which benchmark.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand)]
enum Which {
    /// Time of a lock and an unlock that nobody contends for
    Uncontended(Measured<uncontended::Options>),
    /// Throughput of threads that take turns
    Handover(Measured<handover::Options>),
    /// Spinlocks: alone, between two threads, and with more threads than CPUs
    Spin(Box<Measured<spin::Options>>),
    /// Readers-writer locks: alone, and with threads of which some write: throughput, waits, fairness
    Rwlock(Box<Measured<rwlock::Options>>),
    /// OSv's benchmark of mutexes: sizes, hand-off, incrementing threads, trylock, a checker
    MiscMutex(Measured<misc::Options>),
    /// Semaphore arrays as sembench measures them: threads that sleep and are woken, single calls, sleepers
    Sembench(Box<Sembench>),
    /// Time that a program takes longer to start
    StartUp(StartUp),
    /// Whole programs, as they are and under `poundlock run`
    Programs(Programs),
    /// The locks that people use, ours among them, over a grid of threads and work
    Grid(Box<Grid>),
    /// What no lock can undercut on this machine, and what the grid's driver adds to each
    Floor(Floor),
    /// All of them, as a Markdown page
    Figures(Figures),
    /// Results of the grid as one HTML page, for a browser without a network
    Report(Page),
    /// Measure one contender, as the other benchmarks ask on standard input
    #[command(hide = true)]
    Worker,
}

/// What is measured, and where the figures go.
#[derive(clap::Args)]
struct Measured<O: clap::Args> {
    #[command(flatten)]
    options: O,
    #[command(flatten)]
    shown: Shown,
}

/// Where the figures go, and what is shown of them.
#[derive(clap::Args)]
struct Shown {
    /// Write the figures to FILE as JSON as well; instead of the tables if it is `-`, standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show also what Poundlock's developers want to reach, and what is reached
    #[arg(long)]
    targets: bool,
}

#[derive(clap::Args)]
struct Sembench {
    /// Threads that sleep
    #[arg(short = 't', long, value_name = "N", default_value_t = sem::Options::default().threads)]
    threads: usize,
    /// How many are woken at a time
    #[arg(short = 'w', long, value_name = "N", default_value_t = sem::Options::default().wake)]
    wake: usize,
    /// Only these: kernel (or 0; takes part always), before, after, shared-line, combining, futex (or 2),
    /// nanosleep (or 1)
    #[arg(short = 'o', long, value_name = "NAME,..", value_delimiter = ',')]
    mechanisms: Vec<String>,
    /// Seconds for each of them in a round; single calls and sleepers take shares of it
    #[arg(short = 'r', long, value_name = "S", default_value_t = sem::Options::default().seconds)]
    seconds: f64,
    /// Keep each thread on a CPU, in turn
    #[arg(short = 'b', long)]
    bind: bool,
    /// Rounds in which everybody takes part once
    #[arg(long, value_name = "N", default_value_t = sem::Options::default().rounds)]
    rounds: usize,
    /// Numbers of threads that sleep in one array while one is woken
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = sem::Options::default().sleepers)]
    sleepers: Vec<usize>,
    /// Leave the sleepers out, which take most of a short run
    #[arg(long, conflicts_with_all = ["sleepers", "plot"])]
    no_sleepers: bool,
    /// Use only that many of the allowed CPUs
    #[arg(long, value_name = "N")]
    cpus: Option<usize>,
    /// Draw the cost of a wake-up against the number of sleepers to FILE as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown,
}

#[derive(clap::Args)]
struct StartUp {
    /// The program to start; it should do nothing
    #[arg(long, value_name = "FILE", default_value_os_t = startup::Options::default().program)]
    program: PathBuf,
    /// How often to start it each way
    #[arg(long, value_name = "N", default_value_t = startup::Options::default().rounds)]
    rounds: usize,
    #[command(flatten)]
    shown: Shown,
}

#[derive(clap::Args)]
struct Programs {
    /// Only these locks of ours (the C library's always take part) [default: the one that `run` takes]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    locks: Vec<String>,
    /// Only these of the known programs
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', conflicts_with = "command")]
    only: Vec<String>,
    /// Rounds in which each program runs once on each lock
    #[arg(long, value_name = "N", default_value_t = programs::Options::default().rounds)]
    rounds: usize,
    /// Measure programs that end with another exit code than 0, too
    #[arg(short, long)]
    ignore_failure: bool,
    #[command(flatten)]
    shown: Shown,
    /// Measure this instead of the known programs: a command that ends by itself
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct Grid {
    #[command(flatten)]
    options: grid::Options,
    /// The directory for the results [default: a new one in the current directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run whose results lie in DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "quick", "kinds", "locks", "ours", "threads", "critical_us", "think_us", "rounds", "seconds", "cpus", "pin", "out",
    ])]
    resume: Option<PathBuf>,
    /// Show also what Poundlock's developers want to reach, and what is reached
    #[arg(long)]
    targets: bool,
}

#[derive(clap::Args)]
struct Floor {
    /// Slices of each measurement
    #[arg(long, value_name = "N", default_value_t = floor::Options::default().slices)]
    slices: u32,
    /// Seconds of a slice
    #[arg(long, value_name = "S", default_value_t = floor::Options::default().seconds)]
    seconds: f64,
    /// Use only that many of the allowed CPUs
    #[arg(long, value_name = "N")]
    cpus: Option<usize>,
    #[command(flatten)]
    shown: Shown,
}

#[derive(clap::Args)]
struct Figures {
    /// Only these locks (glibc always takes part)
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    locks: Vec<String>,
    /// Numbers of threads that contend, from 2 on [default: each benchmark's own]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Write the page to FILE rather than to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Multiply every duration: below 1 is quicker and rougher
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    time_factor: f64,
    /// Rounds of each benchmark [default: each one's own]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Keep each thread of `handover` on one CPU
    #[arg(long)]
    pin: bool,
    /// Numbers of threads that sleep in one array in `sembench`
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = sem::Options::short().sleepers)]
    sleepers: Vec<usize>,
    #[command(flatten)]
    shown: Shown,
}

#[derive(clap::Args)]
struct Page {
    /// The directory that the run left
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write the figures as tables in Markdown rather than as a page for browsers
    #[arg(long)]
    markdown: bool,
    /// Show also what Poundlock's developers want to reach, and what is reached
    #[arg(long)]
    targets: bool,
    /// Write the page to FILE rather than to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn main(args: Args) -> ExitCode {
    let done = match args.which {
        Which::Worker => worker::serve(),
        Which::Uncontended(args) => measure(&args.options, &args.shown),
        Which::Handover(args) => measure(&args.options, &args.shown),
        Which::Spin(args) => measure(&args.options, &args.shown),
        Which::Rwlock(args) => measure(&args.options, &args.shown),
        Which::MiscMutex(args) => measure(&args.options, &args.shown),
        Which::Sembench(args) => sembench(*args),
        Which::StartUp(args) => start_up(args),
        Which::Programs(args) => whole_programs(args),
        Which::Grid(args) => grid(*args),
        Which::Floor(args) => floors(args),
        Which::Figures(args) => all_figures(args),
        Which::Report(args) => page_of(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn measure<P: Preset>(options: &P, shown: &Shown) -> Result<(), Failure> {
    let json = Output::open(shown.json.as_deref())?;
    let figures = plan::run(&context()?, options)?;
    finish(&figures, json, shown)
}

fn sembench(args: Sembench) -> Result<(), Failure> {
    let mechanisms: Result<Vec<_>, Error> =
        args.mechanisms.iter().map(|name| sem::Mechanism::parse(name)).collect();
    let options = sem::Options {
        mechanisms: mechanisms?,
        threads: args.threads,
        wake: args.wake,
        seconds: args.seconds,
        bind: args.bind,
        rounds: args.rounds,
        sleepers: if args.no_sleepers { Vec::new() } else { args.sleepers },
        cpus: args.cpus,
    };
    let (json, plot) = Output::open_both(args.shown.json.as_deref(), ("--plot", args.plot.as_deref()))?;
    let figures = sem::run(&context()?, &options)?;
    let printed = print_beside(&report::text(&figures, args.shown.targets), &[&json, &plot]);
    let drawn = match (plot, figures.plot()?) {
        (Some(output), Some(picture)) => output.write(&picture),
        _ => Ok(()),
    };
    // What cannot be written takes nothing else with it.
    let saved = write_json(&figures, json);
    printed.and(drawn).and(saved)
}

fn start_up(args: StartUp) -> Result<(), Failure> {
    let options = startup::Options { program: args.program, rounds: args.rounds };
    let json = Output::open(args.shown.json.as_deref())?;
    let figures = startup::run(&context()?, &options)?;
    finish(&figures, json, &args.shown)
}

fn whole_programs(args: Programs) -> Result<(), Failure> {
    let mutex = |name: &String| {
        LockName::parse(name).ok_or_else(|| {
            let names: Vec<_> = LockName::ALL.into_iter().map(LockName::name).collect();
            Error::Options(format!("no mutex is called '{name}'; there are {}", names.join(", ")))
        })
    };
    let options = programs::Options {
        locks: args.locks.iter().map(mutex).collect::<Result<_, _>>()?,
        only: args.only,
        command: args.command,
        rounds: args.rounds,
        ignore_failure: args.ignore_failure,
    };
    let json = Output::open(args.shown.json.as_deref())?;
    let figures = programs::run(&context()?, &options)?;
    finish(&figures, json, &args.shown)
}

fn grid(args: Grid) -> Result<(), Failure> {
    let context = context()?;
    let job = match args.resume {
        Some(directory) => grid::Job::resume(&context, directory),
        None => grid::Job::new(&context, &args.options, args.out),
    }?;
    for absent in job.absent() {
        say(format_args!("{} is left out: {}", absent.name, absent.why));
    }
    let path = job.path().display();
    let minutes = job.left()?.as_secs_f64() / 60.0;
    say(format_args!("results go to {path}; about {minutes:.1} minutes to go"));
    match job.run(&context)? {
        grid::Ended::Interrupted { made, of } => Err(Failure::new(
            status::INTERRUPTED,
            format_args!(
                "interrupted: {made} of {of} measurements are in {path}; to go on: poundlock bench grid --resume {path}"
            ),
        )),
        grid::Ended::Complete => {
            print(&report::text(&job.results()?, args.targets))?;
            print(&format!("\nResults: {path}\n"))
        }
    }
}

fn floors(args: Floor) -> Result<(), Failure> {
    let options = floor::Options { slices: args.slices, seconds: args.seconds, cpus: args.cpus };
    let json = Output::open(args.shown.json.as_deref())?;
    let figures = floor::run(&context()?, &options)?;
    finish(&figures, json, &args.shown)
}

fn all_figures(args: Figures) -> Result<(), Failure> {
    let mut options = figures::Options::default();
    options.uncontended.locks = args.locks.clone();
    options.handover.locks = args.locks.clone();
    options.misc.locks = args.locks.iter().filter(|lock| *lock != "glibc").cloned().collect();
    options.handover.pin = args.pin;
    options.sem.sleepers = args.sleepers;
    if !args.threads.is_empty() {
        let handover = &mut options.handover.threads;
        for threads in
            [handover, &mut options.spin.threads, &mut options.rwlock.threads, &mut options.misc.threads]
        {
            threads.clone_from(&args.threads);
        }
    }
    for (seconds, rounds) in [
        (&mut options.uncontended.seconds, &mut options.uncontended.rounds),
        (&mut options.handover.seconds, &mut options.handover.common.rounds),
        (&mut options.spin.seconds, &mut options.spin.common.rounds),
        (&mut options.rwlock.seconds, &mut options.rwlock.common.rounds),
        (&mut options.misc.seconds, &mut options.misc.common.rounds),
        (&mut options.sem.seconds, &mut options.sem.rounds),
    ] {
        *seconds *= args.time_factor;
        *rounds = args.rounds.unwrap_or(*rounds);
    }
    options.start_up.rounds = args.rounds.unwrap_or(options.start_up.rounds);
    let (json, page) = Output::open_both(args.shown.json.as_deref(), ("--out", args.out.as_deref()))?;
    let figures = figures::run(&context()?, &options)?;
    let written = match page {
        Some(page) => page.write(&figures.markdown(args.shown.targets)),
        None => print_beside(&figures.markdown(args.shown.targets), &[&json]),
    };
    // What cannot be written takes nothing else with it.
    let saved = write_json(&figures, json);
    written.and(saved)
}

fn page_of(args: Page) -> Result<(), Failure> {
    let results = Results::read(&Directory::at(args.directory))?;
    let write = if args.markdown { grid::markdown } else { page::html };
    let page = write(&results, args.targets);
    match Output::open(args.out.as_deref())? {
        Some(file) => file.write(&page),
        None => print(&page),
    }
}

fn finish<R: Report + Serialize>(figures: &R, json: Option<Output>, shown: &Shown) -> Result<(), Failure> {
    // What cannot be written takes nothing else with it.
    let printed = print_beside(&report::text(figures, shown.targets), &[&json]);
    let saved = write_json(figures, json);
    printed.and(saved)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        failure(error)
    }
}

pub(crate) fn failure(error: Error) -> Failure {
    let status = match error {
        Error::Options(_) => status::USAGE,
        _ => status::OURS,
    };
    Failure::new(status, error)
}

pub(crate) fn context() -> Result<Context, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(status::OURS, format_args!("where this command lies: {error}")))?;
    Ok(Context {
        program,
        worker: vec!["bench".into(), "worker".into()],
        library: library::find().map_err(|failure| failure.line),
        command: command_line(std::env::args_os().skip(1)),
    })
}
