//! `poundlock bench`: our locks against glibc's, on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use poundlock_bench::grid::compare::Results;
use poundlock_bench::grid::result::Directory;
use poundlock_bench::plan::{self, Preset};
use poundlock_bench::report::{self, Report};
use poundlock_bench::{
    Context, Error, check, figures, floor, grid, handover, misc, page, programs, rwlock, sem, spin, startup,
    stat, uncontended, worker,
};
use serde::Serialize;

use crate::library;
use crate::message::{Failure, say, status};
use crate::output::print;
use crate::results::{Output, command_line, print_beside, write_json};

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
    StartUp(Measured<startup::Options>),
    /// What `poundlock check` costs the program that it looks at, with valgrind's helgrind beside it
    Check(Measured<check::Options>),
    /// What `poundlock stat` costs the program that it measures, and how long its report takes
    Stat(Measured<stat::Options>),
    /// Whole programs, as they are and under `poundlock run`
    Programs(Box<Measured<programs::Options>>),
    /// The locks that people use, ours among them, over a grid of threads and work
    Grid(Box<Grid>),
    /// What no lock can undercut on this machine, and what the grid's driver adds to each
    Floor(Measured<floor::Options>),
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
    #[command(flatten)]
    measured: Measured<sem::Options>,
    /// Draw the cost of a wake-up against the number of sleepers to FILE as SVG
    #[arg(long, value_name = "FILE", conflicts_with = "no_sleepers")]
    plot: Option<PathBuf>,
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
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = sem::sleepers())]
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
        Which::StartUp(args) => measure(&args.options, &args.shown),
        Which::Check(args) => measure(&args.options, &args.shown),
        Which::Stat(args) => measure(&args.options, &args.shown),
        Which::Programs(args) => measure(&args.options, &args.shown),
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
    finish(&figures.report, &figures, json, shown)
}

fn sembench(args: Sembench) -> Result<(), Failure> {
    let Measured { options, shown } = args.measured;
    let (json, plot) = Output::open_both(shown.json.as_deref(), ("--plot", args.plot.as_deref()))?;
    let figures = plan::run(&context()?, &options)?;
    let printed = print_beside(&report::text(&figures.report, shown.targets), &[&json, &plot]);
    let drawn = match (plot, &figures.picture) {
        (Some(output), Some(picture)) => output.write(picture),
        _ => Ok(()),
    };
    // What cannot be written takes nothing else with it.
    let saved = write_json(&figures, json);
    printed.and(drawn).and(saved)
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
                "interrupted: {made} of {of} measurements are in {path}; to go on: poundlock bench grid \
                    --resume {path}"
            ),
        )),
        grid::Ended::Complete => {
            print(&report::text(&job.results()?.report(), args.targets))?;
            print(&format!("\nResults: {path}\n"))
        }
    }
}

fn floors(args: Measured<floor::Options>) -> Result<(), Failure> {
    let json = Output::open(args.shown.json.as_deref())?;
    let figures = floor::run(&context()?, &args.options)?;
    finish(&figures.report(), &figures, json, &args.shown)
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
        (&mut options.sem.seconds, &mut options.sem.common.rounds),
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

fn finish(
    report: &Report,
    figures: &impl Serialize,
    json: Option<Output>,
    shown: &Shown,
) -> Result<(), Failure> {
    // What cannot be written takes nothing else with it.
    let printed = print_beside(&report::text(report, shown.targets), &[&json]);
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
