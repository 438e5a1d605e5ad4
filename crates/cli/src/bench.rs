//! `poundlock bench`: our locks against glibc's, on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use poundlock_bench::grid::compare::Results;
use poundlock_bench::grid::result::{Directory, Kind};
use poundlock_bench::plan::{self, Preset};
use poundlock_bench::report::{self, Report};
use poundlock_bench::{
    Context, Error, figures, floor, grid, handover, misc, page, programs, rwlock, sem, spin, startup,
    uncontended, worker,
};
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
    StartUp(Measured<startup::Options>),
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

/// The defaults are those of a full run, near three quarters of an hour.
#[derive(clap::Args)]
struct Grid {
    /// Something of everything, in a few minutes; other options change it
    #[arg(long)]
    quick: bool,
    /// Only these sorts of work: grid, modal, sleeping-holder, hogs, buckets, lock-bench
    #[arg(long, value_name = "KIND,..", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Compare with these locks [default: all that are not ours and can be had]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    locks: Vec<String>,
    /// The lock of ours that is compared [default: poundlock]
    #[arg(long, value_name = "NAME")]
    ours: Option<String>,
    /// Numbers of threads [default: 1,2,4,8,16,64,250 for the grid, and each other kind's own]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Microseconds of work inside the critical sections of the grid [default: 0,0.2,2,20]
    #[arg(long, value_name = "US,..", value_delimiter = ',')]
    critical: Vec<f64>,
    /// Microseconds of work between two critical sections of a thread of the grid [default: 0,0.4,1,10]
    #[arg(long, value_name = "US,..", value_delimiter = ',')]
    think: Vec<f64>,
    /// Rounds in which each lock is measured once at each point [default: 3]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Seconds of a measurement with few threads; it is longer with many [default: 0.08]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Use only that many of the allowed CPUs
    #[arg(long, value_name = "N")]
    cpus: Option<usize>,
    /// Keep each thread on one CPU, in turn
    #[arg(long)]
    pin: bool,
    /// The directory for the results [default: a new one in the current directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run whose results lie in DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "quick", "kinds", "locks", "ours", "threads", "critical", "think", "rounds", "seconds", "cpus", "pin", "out",
    ])]
    resume: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Figures {
    /// Only these locks (glibc always takes part)
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    locks: Vec<String>,
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
    let figures = plan::run(&context()?, options).map_err(failure)?;
    finish(&figures, json, shown)
}

fn sembench(args: Sembench) -> Result<(), Failure> {
    let Measured { options, shown } = args.measured;
    let (json, plot) = Output::open_both(shown.json.as_deref(), ("--plot", args.plot.as_deref()))?;
    let figures = plan::run(&context()?, &options).map_err(failure)?;
    let printed = print_beside(&report::text(&figures, shown.targets), &[&json, &plot]);
    let drawn = match (plot, figures.picture()) {
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
        None => grid_options(&args).and_then(|options| grid::Job::new(&context, &options, args.out)),
    }
    .map_err(failure)?;
    for absent in job.absent() {
        say(format_args!("{} is left out: {}", absent.name, absent.why));
    }
    let path = job.path().display();
    let minutes = job.left().map_err(failure)?.as_secs_f64() / 60.0;
    say(format_args!("results go to {path}; about {minutes:.1} minutes to go"));
    match job.run(&context).map_err(failure)? {
        grid::Ended::Interrupted { made, of } => Err(Failure::new(
            status::INTERRUPTED,
            format_args!(
                "interrupted: {made} of {of} measurements are in {path}; to go on: poundlock bench grid --resume {path}"
            ),
        )),
        grid::Ended::Complete => {
            print(&report::text(&job.figures().map_err(failure)?, false))?;
            print(&format!("\nResults: {path}\n"))
        }
    }
}

fn grid_options(args: &Grid) -> Result<grid::Options, Error> {
    let mut options = if args.quick { grid::Options::quick() } else { grid::Options::default() };
    options.kinds = args.kinds.iter().map(|name| Kind::parse(name)).collect::<Result<_, _>>()?;
    let about_the_grid = options.kinds.is_empty() || options.kinds.contains(&Kind::Grid);
    if !(about_the_grid || (args.critical.is_empty() && args.think.is_empty())) {
        return Err(Error::Options(
            "--critical and --think are about the kind grid, which is left out".to_owned(),
        ));
    }
    options.locks = args.locks.clone();
    options.ours = args.ours.clone();
    options.threads = or(&args.threads, options.threads);
    options.critical_us = or(&args.critical, options.critical_us);
    options.think_us = or(&args.think, options.think_us);
    options.rounds = args.rounds.unwrap_or(options.rounds);
    options.seconds = args.seconds.unwrap_or(options.seconds);
    options.cpus = args.cpus;
    options.pin = args.pin;
    Ok(options)
}

/// What was named, or else what there is.
fn or<T: Clone>(named: &[T], otherwise: Vec<T>) -> Vec<T> {
    if named.is_empty() { otherwise } else { named.to_vec() }
}

fn floors(args: Measured<floor::Options>) -> Result<(), Failure> {
    let json = Output::open(args.shown.json.as_deref())?;
    let figures = floor::run(&context()?, &args.options).map_err(failure)?;
    finish(&figures, json, &args.shown)
}

fn all_figures(args: Figures) -> Result<(), Failure> {
    let mut options = figures::Options::default();
    options.misc.locks = args.locks.iter().filter(|lock| *lock != "glibc").cloned().collect();
    options.uncontended.locks = args.locks.clone();
    options.handover.locks = args.locks.clone();
    options.uncontended.seconds *= args.time_factor;
    options.handover.pin = args.pin;
    options.handover.seconds *= args.time_factor;
    options.spin.seconds *= args.time_factor;
    options.rwlock.seconds *= args.time_factor;
    options.misc.seconds *= args.time_factor;
    options.sem.seconds *= args.time_factor;
    options.sem.sleepers = args.sleepers;
    if let Some(rounds) = args.rounds {
        options.uncontended.rounds = rounds;
        options.handover.rounds = rounds;
        options.spin.rounds = rounds;
        options.rwlock.rounds = rounds;
        options.misc.rounds = rounds;
        options.sem.rounds = rounds;
        options.start_up.rounds = rounds;
    }
    let (json, page) = Output::open_both(args.shown.json.as_deref(), ("--out", args.out.as_deref()))?;
    let figures = figures::run(&context()?, &options).map_err(failure)?;
    let written = match page {
        Some(page) => page.write(&figures.markdown(args.shown.targets)),
        None => print_beside(&figures.markdown(args.shown.targets), &[&json]),
    };
    // What cannot be written takes nothing else with it.
    let saved = write_json(&figures, json);
    written.and(saved)
}

fn page_of(args: Page) -> Result<(), Failure> {
    let directory = Directory::at(args.directory);
    let page = if args.markdown {
        grid::Figures::read(&directory).map_err(failure)?.markdown()
    } else {
        page::html(&Results::read(&directory).map_err(failure)?)
    };
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
