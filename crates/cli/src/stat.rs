//! `poundlock stat`: a program run with its locks measured, its own or ours, and a report of where it waited.

mod arrays;
mod attached;
pub(crate) mod beside;
pub(crate) mod class;
mod compare;
mod diagnosis;
mod diff;
mod events;
mod figures;
mod holders;
pub(crate) mod inside;
mod json;
pub(crate) mod lost;
pub(crate) mod names;
mod page;
pub(crate) mod report;
pub(crate) mod sampler;
mod session;
mod sleeps;
mod stacks;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod text;
mod threads;
mod timeline;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use poundlock_measure::{Others, Usage};
use poundlock_names::{Choice, LockName, RwLocks};
use poundlock_statfile::Snapshot;

use crate::launch::Meanwhile as _;
use crate::message::{Failure, say, status};
use crate::observe::file::Output;
use crate::observe::place::{self, monotonic_ns};
use crate::{attach, launch, library, memory, output, program, run, semaphores};
pub(crate) use figures::runs;
use figures::{Begun, Figures};
use report::{About, Report, Wanted};
use sampler::Outcome;
use session::Session;
use text::Style;
pub(crate) use text::duration;

/// What to run, and how to report it.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    sub: Option<Sub>,
    /// How many rows to show; 0 for all of them
    #[arg(long, value_name = "N", default_value_t = text::DEFAULT_SHOWN)]
    top: usize,
    /// Print the findings and the table of locks only
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// Print all of the report; without, standard error gets 40 lines, a file all
    #[arg(long)]
    long: bool,
    /// Show single locks rather than groups of them, and put them into the JSON as well
    #[arg(long)]
    each: bool,
    /// Show what happened in the slow paths of our locks
    #[arg(long)]
    events: bool,
    /// Write the report to this file rather than to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write all figures to this file, as JSON; `-` is standard output, after the program's own
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the stacks that waited to this file, as inferno and flamegraph.pl read them, in microseconds
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Write the stacks that waited to this file, as speedscope reads them
    #[arg(long, value_name = "FILE")]
    speedscope: Option<PathBuf>,
    /// Write a page for a browser to this file: diagnosis, table, who waited when and for whom, threads
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a recording to this file as well, for `poundlock predict`
    #[cfg(feature = "sim")]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "read", "pid", "futex", "for"])]
    record: Option<PathBuf>,
    /// Leave out the first seconds: what the program does to start
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    delay: Option<Duration>,
    /// Measure for S seconds and report then; the program goes on
    #[arg(long, visible_alias = "seconds", value_name = "SECONDS", value_parser = seconds)]
    r#for: Option<Duration>,
    /// Report on the running program as often; so does SIGUSR2, sent to this command
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    every: Option<Duration>,
    /// Run the program on its own locks and on ours in turns, and compare
    #[arg(long, conflicts_with_all = [
        "lock", "each", "events", "folded", "speedscope", "html", "every", "top",
    ])]
    compare: bool,
    /// How often it runs on each to compare
    #[arg(long, value_name = "N", default_value_t = 5, requires = "compare")]
    rounds: usize,
    /// Compare a number that the program, or the client, prints: the last match of this expression, or of its
    /// first group
    #[arg(long, value_name = "REGEX", requires = "compare", value_parser = compare::metric::parse)]
    metric: Option<compare::metric::Metric>,
    /// The metric is better where it is lower, as times are
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// Compare servers: run this by `sh -c` against each, after --delay or once the server listens or sleeps,
    /// and end the server when it has ended
    #[arg(long, value_name = "COMMAND", requires = "compare")]
    client: Option<String>,
    /// Report on what POUNDLOCK_STATS named, or a `stat` that was killed left: a directory, or a file in it
    #[arg(long, value_name = "PATH", conflicts_with_all = [
        "command", "lock", "rwlock", "semaphores", "delay", "for", "every", "compare",
    ])]
    read: Option<PathBuf>,
    /// Watch running processes, with commas between them: their waits for all locks that sleep, by futex
    /// calls
    #[arg(
        long,
        value_name = "PID",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=i32::MAX as i64),
        conflicts_with_all = ["command", "lock", "rwlock", "semaphores", "compare", "read", "events"],
    )]
    pid: Vec<u32>,
    /// Watch the command in the same way, which loads nothing into it: for locks that are not pthread's, and
    /// for static programs
    #[arg(long, conflicts_with_all = ["lock", "rwlock", "semaphores", "compare", "read", "events"])]
    futex: bool,
    /// How stacks are taken, where futex calls are watched
    #[arg(long, value_enum, value_name = "HOW", default_value_t, hide_possible_values = true)]
    stacks: attach::Stacks,
    #[command(flatten)]
    run: run::Args,
}

/// What is done with reports.
#[derive(clap::Subcommand)]
enum Sub {
    /// Put two reports side by side (a program of that name is run by `stat -- diff`)
    Diff(diff::Args),
}

/// A duration in seconds, of which parts count.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "not a number of seconds above 0".to_owned())
}

/// The files that a report goes to.
#[derive(Default)]
struct Files {
    text: Option<Output>,
    json: Option<Output>,
    folded: Option<Output>,
    speedscope: Option<Output>,
    html: Option<Output>,
}

impl Files {
    /// Before the program has run for an hour is the time to find that its report cannot be written.
    fn open(args: &Args) -> Result<Files, Failure> {
        let named = [
            ("-o", &args.output),
            ("--json", &args.json),
            ("--folded", &args.folded),
            ("--speedscope", &args.speedscope),
            ("--html", &args.html),
        ];
        let to_standard = named.iter().filter(|(_, path)| path.as_deref().is_some_and(output::is_standard));
        let to_standard: Vec<String> = to_standard.map(|(name, _)| format!("{name} -")).collect();
        if to_standard.len() > 1 {
            return Err(Failure::new(
                status::USAGE,
                format_args!(
                    "{} cannot all have standard output: name files for all but one of them",
                    to_standard.join(" and ")
                ),
            ));
        }
        let open = |path: &Option<PathBuf>| path.as_deref().map(Output::open).transpose();
        Ok(Files {
            text: open(&args.output)?,
            json: open(&args.json)?,
            folded: open(&args.folded)?,
            speedscope: open(&args.speedscope)?,
            html: open(&args.html)?,
        })
    }
}

/// Runs the command, reports on its locks and passes its exit status on.
pub(crate) fn main(args: Args) -> ExitCode {
    let code = match (&args.sub, &args.read) {
        (Some(Sub::Diff(files)), _) => diff::main(files),
        (None, Some(dir)) => read(&args, dir),
        (None, None) if !args.pid.is_empty() => attached::processes(&args),
        (None, None) if args.futex => attached::command(&args),
        (None, None) => stat(&args),
    };
    match code {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn stat(args: &Args) -> Result<u8, Failure> {
    let (lock, rwlocks) = args.run.locks(LockName::Glibc)?;
    args.run.semaphores()?;
    let program = launch::find(&args.run.command)?;
    // The program's own locks are measured by our library as well.
    if let Err(refusal) = program::check_preload(&program) {
        return if refusal.runs && !wants_library(args) {
            attached::instead(args, &program, refusal.failure)
        } else {
            Err(refusal.failure)
        };
    }
    place::check_file_size()?;
    if args.compare {
        compare::contradictions(args)?;
        return compare::main(args, &program, Files::open(args)?);
    }
    let files = Files::open(args)?;
    let locks = (lock, rwlocks);
    let mut measured = Measured::new(&args.run, &program, locks)?;
    let record = recorder(args, locks, &mut measured)?;
    let Measured { environment, dir, command } = measured;
    let mut session = Session::begin(args, dir.path(), command, (lock, rwlocks), files);
    let ended = launch::run_with(&program, &args.run.command, &environment, &mut session)?;
    session.linger();
    if !session.is_over() {
        let figures = Figures::read(dir.path(), monotonic_ns());
        let sampled = session.sampled();
        figures.remark(&ended, &args.run.command[0], sampled.as_ref());
        session.finish(&figures, sampled, ended.in_words());
    }
    let recorded = record(dir.path(), &ended);
    match session.outcome().and(recorded) {
        Ok(()) => Ok(ended.exit_code()),
        // The command's own failure says more than ours.
        Err(failure) if ended.status.success() => Err(failure),
        Err(failure) => {
            say(&failure.line);
            Ok(ended.exit_code())
        }
    }
}

/// Whether something was asked for that only our library in the program does.
fn wants_library(args: &Args) -> bool {
    #[cfg(feature = "sim")]
    let recorded = args.record.is_some();
    #[cfg(not(feature = "sim"))]
    let recorded = false;
    let run = &args.run;
    let other_locks = run.lock.is_some() || run.rwlock.is_some() || run.semaphores.is_some();
    other_locks || args.compare || args.events || recorded
}

/// Writes the recording of a program that has ended, from the directory of its figures.
type Record<'a> = Box<dyn FnOnce(&Path, &launch::Ended) -> Result<(), Failure> + 'a>;

/// What does so, if that is wanted.
#[cfg(feature = "sim")]
fn recorder<'a>(
    args: &'a Args,
    locks: (Choice, RwLocks),
    measured: &mut Measured,
) -> Result<Record<'a>, Failure> {
    use crate::record::{ROOM_MIB, Recorder};
    let Some(path) = &args.record else { return Ok(Box::new(|_, _| Ok(()))) };
    let recorder = Recorder::begin(Output::open(path)?, ROOM_MIB, &args.run, locks, measured)?;
    let command = measured.command.clone();
    Ok(Box::new(move |dir, ended| recorder.finish(path, dir, &command, ended)))
}

#[cfg(not(feature = "sim"))]
fn recorder<'a>(_: &'a Args, _: (Choice, RwLocks), _: &mut Measured) -> Result<Record<'a>, Failure> {
    Ok(Box::new(|_, _| Ok(())))
}

/// What a program is measured with.
pub(crate) struct Measured {
    /// The changes to its environment.
    pub(crate) environment: Vec<library::Change>,
    /// Where its processes leave their figures.
    pub(crate) dir: tempfile::TempDir,
    /// It, in words.
    pub(crate) command: Vec<String>,
}

impl Measured {
    pub(crate) fn new(
        run: &run::Args,
        program: &Path,
        (lock, rwlocks): (Choice, RwLocks),
    ) -> Result<Measured, Failure> {
        let mut environment = library::environment_for(program, lock, rwlocks)?;
        environment.extend(run.arrays(lock).map(semaphores::change));
        let dir = place::directory(figures::PREFIX)?;
        environment.push((OsStr::new(library::STAT_VARIABLE), Some(dir.path().into())));
        let command: Vec<String> =
            run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let begun = Begun {
            command: command.clone(),
            lock: lock.to_string(),
            rwlock: rwlocks.to_string(),
            start_ns: monotonic_ns(),
        };
        // Nobody needs it unless we are killed, or there is no memory for the report.
        let _ = begun.write(dir.path());
        memory::keep(dir.path());
        Ok(Measured { environment, dir, command })
    }
}

/// What others do on the machine while something is measured.
struct Neighbours {
    others: Others,
    own_ns: u64,
}

impl Neighbours {
    fn watch() -> Neighbours {
        Neighbours { others: Others::watch(), own_ns: Self::own_ns() }
    }

    /// CPU time of this process and of those that it has waited for.
    fn own_ns() -> u64 {
        Usage::of_this_process().cpu_ns + Usage::of_children().cpu_ns
    }

    /// The line that says how much they disturb, if they do. What runs still has been seen by the sampler.
    fn warning(&self, sampled: Option<&Outcome>) -> Option<String> {
        let own_ns = Self::own_ns().saturating_sub(self.own_ns);
        let own_ns = own_ns.max(sampled.map_or(0, |sampled| sampled.total.running_ns));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        poundlock_measure::busy_run_line(self.others.sure_share(own_ns, cpus), cpus)
    }
}

/// Says what the figures in a directory leave out.
pub(crate) fn remark(dir: &Path, ended: &launch::Ended, command: &OsStr) {
    Figures::read(dir, monotonic_ns()).remark(ended, command, None);
}

/// Reports on what is left of a run.
fn read(args: &Args, dir: &Path) -> Result<u8, Failure> {
    let files = Files::open(args)?;
    let wrong = |why: &str| Failure::new(status::OURS, format_args!("{}: {why}", dir.display()));
    const WHERE: &str =
        "(POUNDLOCK_STATS names it; of a `stat` that was killed it is /dev/shm/poundlock-stat-*)";
    if !dir.exists() {
        return Err(wrong(&format!("no directory of figures {WHERE}")));
    }
    let ended_ns = figures::ended_ns(dir);
    let now_ns = ended_ns.unwrap_or_else(monotonic_ns);
    let figures = Figures::read(dir, now_ns);
    if figures.snapshots.is_empty() {
        return Err(wrong(&format!("no process left figures there {WHERE}")));
    }
    let begun = Begun::read(dir).ok();
    let first = figures.snapshots.iter().map(|snapshot| snapshot.start_ns).min().unwrap_or(now_ns);
    let ending = match ended_ns {
        Some(_) => "all have ended",
        None if !place::followed(dir).is_empty() => "still running",
        None => "the end is not known",
    };
    let exe = figures.snapshots[0].exe.clone();
    let lock = begun.as_ref().map_or(&figures.snapshots[0].lock, |begun| &begun.lock);
    let rwlock = begun.as_ref().map_or(&figures.snapshots[0].rwlock, |begun| &begun.rwlock);
    let lock = Choice::parse(lock).unwrap_or_default();
    let wall_ns = now_ns.saturating_sub(begun.as_ref().map_or(first, |begun| begun.start_ns));
    let command = begun.as_ref().map_or_else(|| vec![exe], |begun| begun.command.clone());
    let about = About {
        lock,
        rwlocks: RwLocks::of(lock, RwLocks::parse(rwlock)),
        compare: compare::command_line(Some(args), &command, wall_ns, ended_ns.is_some()),
        busy: None,
        wall_ns,
        ending: ending.to_owned(),
        now_ns,
        delayed: false,
        futexes: None,
        way: None,
        beside_library: false,
        beside: None,
        command,
    };
    report(args, about, &[], &figures, None, files)?;
    Ok(0)
}

fn report(
    args: &Args,
    about: About,
    before: &[Snapshot],
    figures: &Figures,
    sampled: Option<Outcome>,
    files: Files,
) -> Result<(), Failure> {
    let style = Style::of(args);
    let shown = style.shown;
    let mut json = files.json.map(Output::start);
    let begun = args.each && json.is_some();
    let locks = json.as_mut().filter(|_| args.each).map(|json| json as &mut dyn std::io::Write);
    let wanted = Wanted { each: args.each.then_some(shown), json: locks };
    let report = Report::new(about, before, figures, sampled, wanted).map_err(|error| {
        Failure::new(status::OURS, format_args!("the report: {}", program::reason(&error)))
    })?;
    let diagnosis = diagnosis::of(&report);
    // All are attempted, whatever becomes of the others. Standard error being closed is no reason to fail a
    // command that has succeeded.
    let mut results = Vec::new();
    match files.text {
        None => {
            let _ = std::io::stderr().lock().write_all(text::text(&report, &diagnosis, style).as_bytes());
        }
        Some(file) => {
            let style = style.in_a_file();
            results.push(file.write(|out| out.write_all(text::text(&report, &diagnosis, style).as_bytes())));
        }
    }
    results.extend(files.folded.map(|file| file.write(|out| stacks::folded(&report, out))));
    results.extend(files.speedscope.map(|file| file.write(|out| stacks::speedscope(&report, out))));
    let page = |out: &mut dyn std::io::Write| out.write_all(page::html(&report, &diagnosis).as_bytes());
    results.extend(files.html.map(|file| file.write(page)));
    results.extend(json.map(|mut file| {
        let written = json::write(&report, &diagnosis, begun, &mut file);
        file.finish(written)
    }));
    results.into_iter().collect()
}
