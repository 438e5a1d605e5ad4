//! `poundlock check`: a program run with its locks watched: deadlocks and misuse, found before they happen.

mod arrays;
mod blind;
mod collector;
#[cfg(test)]
mod damage;
mod deadlock;
mod feed;
mod finding;
mod json;
mod kinds;
mod long;
mod naming;
mod process;
mod report;
mod sarif;
mod suppress;
mod tell;
mod text;
mod watcher;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use poundlock_names::{Choice, LockName, RwLocks};
use poundlock_semarray::Which;

use crate::launch::{self, Ended, Meanwhile};
use crate::message::{Failure, say, status};
use crate::observe::file::Output;
use crate::observe::place::{self, followed, monotonic_ns};
use crate::observe::proc::name_of;
use crate::observe::strangers;
use crate::{library, locks, output, program, semaphores};

use collector::Collector;
pub(crate) use kinds::kinds;
use kinds::{Kind, Wanted};
use report::Report;
use suppress::Suppressions;
use watcher::{Found, Settings, Watcher};

/// What the directory of the processes' files is called, up to a part that chance picks.
const PREFIX: &str = "poundlock-check-";

/// How often is looked whether a process that goes on in the background has ended.
const LOOK: Duration = Duration::from_millis(200);

/// What to run, what to look for, and how to tell.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, help = kinds::help())]
    kind: Option<String>,
    /// Tell of locks that are held for longer, and across which call
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    held_over: Option<Duration>,
    /// Take POSIX semaphores for locks that begin at 1 and are posted by whoever waited for them
    #[arg(long)]
    semaphores: bool,
    /// Do not tell what this file has stanzas for; can be given more than once
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Write a stanza for each finding, to suppress it: to this file, or behind the report
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    gen_suppressions: Option<Option<PathBuf>>,
    /// Write the findings to this file rather than to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write them to this file as JSON; `-` is standard output, after the program's own
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write them to this file as SARIF 2.1.0, for code hosts and editors
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Remember at most N orders of two locks in a process, each in 32 bytes and more
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..))]
    max_orders: u32,
    /// Of one order of two locks keep at most N sets of other locks that were held with it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    max_guard_sets: u32,
    /// End with this status if anything was found, with 97 if findings can be missing because something found
    /// no room [default: the program's own status]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    error_exitcode: u8,
    /// What to do when threads wait for each other: `report` it and go on waiting, or `end` the program, with all
    /// that it started, and exit with status 98
    #[arg(long, value_name = "ACTION", default_value = "report")]
    on_deadlock: String,
    /// The locks to run on, as for `run` [default: glibc, the program's own]
    #[arg(long, value_name = "NAME")]
    lock: Option<String>,
    /// The readers-writer locks to run on, as for `run` [default: glibc; by-kind with a --lock of ours]
    #[arg(long, value_name = "NAME")]
    rwlock: Option<String>,
    /// The program to run, and its arguments; after `--` if its name begins with a hyphen
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A number of milliseconds.
fn milliseconds(text: &str) -> Result<Duration, String> {
    let ms = text.parse().ok().filter(|ms: &u64| (1..=86_400_000).contains(ms));
    ms.map(Duration::from_millis).ok_or_else(|| "not a number of milliseconds from 1 on".to_owned())
}

/// The files that findings go to.
struct Files {
    text: Option<Output>,
    json: Option<Output>,
    sarif: Option<Output>,
    stanzas: Option<Output>,
}

impl Files {
    /// Before the program has run for an hour is the time to find that one cannot be written.
    fn open(args: &Args) -> Result<Files, Failure> {
        let stanzas = args.gen_suppressions.as_ref().and_then(Option::as_ref);
        let named = [
            ("-o", args.output.as_ref()),
            ("--json", args.json.as_ref()),
            ("--sarif", args.sarif.as_ref()),
            ("--gen-suppressions", stanzas),
        ];
        let to_standard = named.iter().filter(|(_, path)| path.is_some_and(|path| output::is_standard(path)));
        let to_standard: Vec<&str> = to_standard.map(|(name, _)| *name).collect();
        if to_standard.len() > 1 {
            let line = format!(
                "{} cannot all have standard output: name files for all but one of them",
                to_standard.join(" and ")
            );
            return Err(Failure::new(status::USAGE, line));
        }
        let open = |path: Option<&PathBuf>| path.map(|path| Output::open(path)).transpose();
        Ok(Files {
            text: open(args.output.as_ref())?,
            json: open(args.json.as_ref())?,
            sarif: open(args.sarif.as_ref())?,
            stanzas: open(stanzas)?,
        })
    }
}

/// Runs the command, tells what is found, and passes its exit status on.
pub(crate) fn main(args: Args) -> ExitCode {
    match check(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

/// What the arguments say, once they make sense.
struct Plan {
    lock: Choice,
    rwlocks: RwLocks,
    program: PathBuf,
    wanted: Wanted,
    suppressions: Suppressions,
    ends: bool,
}

impl Plan {
    fn of(args: &Args) -> Result<Plan, Failure> {
        let ends = match args.on_deadlock.as_str() {
            "report" => false,
            "end" => true,
            other => {
                let line = format!("unknown action '{other}' for --on-deadlock: choose from report, end");
                return Err(Failure::new(status::USAGE, line));
            }
        };
        let mut wanted = Wanted::parse(args.kind.as_deref(), args.held_over.is_some())?;
        if ends {
            wanted.require(Kind::Deadlock);
        }
        let suppressions = Suppressions::read(&args.suppressions)?;
        let (lock, rwlocks) = locks::parse_both(
            args.lock.as_deref().unwrap_or(LockName::Glibc.name()),
            args.rwlock.as_deref(),
        )?;
        let program = launch::find(&args.command)?;
        program::check(&program)?;
        place::check_file_size()?;
        Ok(Plan { lock, rwlocks, program, wanted, suppressions, ends })
    }

    /// What the library in the program is asked for.
    fn asked(&self, args: &Args) -> OsString {
        let mut asked = "1".to_owned();
        let opt_ins = [
            (args.semaphores, "semaphores"),
            (self.wanted.has(Kind::LoneSignal), Kind::LoneSignal.name()),
            (self.wanted.has(Kind::Nesting), Kind::Nesting.name()),
        ];
        for (_, name) in opt_ins.into_iter().filter(|(wanted, _)| *wanted) {
            asked.push(',');
            asked += name;
        }
        asked += &format!(",orders={}", args.max_orders);
        asked.into()
    }
}

fn check(args: &Args) -> Result<u8, Failure> {
    let plan = Plan::of(args)?;
    let mut environment = library::environment_for(&plan.program, plan.lock, plan.rwlocks)?;
    let arrays = plan.lock.keeps_everything().then_some(Which::Kernel.name());
    environment.extend(arrays.map(semaphores::change));
    let files = Files::open(args)?;
    let dir = place::directory(PREFIX)?;
    environment.push((OsStr::new(library::STAT_VARIABLE), Some(dir.path().into())));
    environment.push((OsStr::new(library::CHECK_VARIABLE), Some(plan.asked(args))));

    let settings = Settings {
        dir: dir.path().to_owned(),
        held_over_ns: args.held_over.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
        guard_sets: args.max_guard_sets as usize,
        ends: plan.ends,
        begin_ns: monotonic_ns(),
    };
    let Plan { lock, rwlocks, program, wanted, suppressions, .. } = plan;
    let collector = Collector::new(wanted, suppressions, files.text.is_none());
    let watcher = Watcher::start(settings, collector).map_err(|error| {
        Failure::new(status::OURS, format_args!("a thread to watch: {}", program::reason(&error)))
    })?;
    let began = Instant::now();
    let ended = launch::run_with(&program, &args.command, &environment, &mut Nothing)?;
    if !watcher.ended_it() {
        linger(dir.path());
    }
    let found = watcher.finish();
    let wall_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let report = report(args, (lock, rwlocks), &ended, found, wall_ns);
    let code = if report.ended_it {
        status::DEADLOCK
    } else if args.error_exitcode != 0 && !report.findings.is_empty() {
        args.error_exitcode
    } else if args.error_exitcode != 0
        && (report.no_room.verdict().is_some() || (report.is_blind() && ended.exit_code() == 0))
    {
        status::INCOMPLETE
    } else {
        ended.exit_code()
    };
    match write(args, &report, files) {
        Ok(()) => Ok(code),
        // Another failure says more than ours.
        Err(failure) if code == 0 => Err(failure),
        Err(failure) => {
            say(&failure.line);
            Ok(code)
        }
    }
}

/// There is nothing to do while the command runs: a thread of its own watches it.
struct Nothing;

impl Meanwhile for Nothing {
    fn next(&mut self) -> Option<Duration> {
        Some(LOOK)
    }

    fn tick(&mut self) {}

    fn keeps(&mut self, _: libc::c_int) -> bool {
        false
    }
}

/// Waits for processes that go on in the background.
fn linger(dir: &std::path::Path) {
    let there = followed(dir);
    if there.is_empty() {
        return;
    }
    let mut names: Vec<String> = there.iter().map(|&pid| name_of(pid)).collect();
    names.dedup();
    let ids: Vec<String> = there.iter().map(u32::to_string).collect();
    say(format_args!(
        "{} ({}) goes on in the background and is followed until the end (Ctrl-C: the report now; it goes on then)",
        names.join(", "),
        ids.join(", ")
    ));
    launch::linger(&mut Nothing, &mut || !followed(dir).is_empty());
}

fn report(
    args: &Args,
    (lock, rwlocks): (Choice, RwLocks),
    ended: &Ended,
    found: Found,
    wall_ns: u64,
) -> Report {
    let command = args.command[0].display();
    let mut unseen = Vec::new();
    let left: Vec<(u32, &str)> = found.left.iter().map(|(pid, exe)| (*pid, exe.as_str())).collect();
    let checked = |pid: u32| left.iter().any(|(left, _)| *left == pid);
    let inner =
        found.programs.iter().map(|program| program.pid).find(|&pid| pid == ended.pid).unwrap_or(ended.pid);
    let unread: Vec<u32> = found.unreadable.values().flatten().copied().collect();
    if !checked(inner) {
        let what = if left.is_empty() { "nothing was checked" } else { "only what it started was checked" };
        unseen.push(if unread.contains(&inner) {
            format!("{command} left a file that cannot be read: {what}")
        } else if found.unmeasured.contains(&inner) {
            format!("{command} loaded our library, which could not make its file: {what}")
        } else {
            format!("{command} did not load our library: {what}")
        });
    }
    for pid in found.unmeasured.iter().filter(|&&pid| pid != inner && !checked(pid)) {
        unseen.push(format!("process {pid}: no file could be made for it"));
    }
    let unmeasured = [&found.unmeasured[..], &unread].concat();
    unseen.extend(strangers::remarks(inner, found.programs.iter(), &left, &unmeasured, ("checked", "check")));
    for pid in &found.cut {
        unseen
            .push(format!("process {pid} ({}): its file was cut short, with what came then", name_of(*pid)));
    }
    for (error, pids) in &found.unreadable {
        let processes = output::counted(pids.len() as u64, "process");
        unseen.push(format!("{processes} ({}...): the file cannot be read: {error}", pids[0]));
    }
    for pid in found.running {
        unseen.push(format!("process {pid} ({}) is still running: what it does from now on", name_of(pid)));
    }
    if found.further > 0 {
        unseen.push(format!(
            "{} are not told: there were too many",
            output::counted(found.further, "further finding")
        ));
    }
    Report {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        lock: lock.to_string(),
        rwlock: rwlocks.to_string(),
        ending: if found.ended_it { "ended because of a deadlock".to_owned() } else { ended.in_words() },
        wall_ns,
        findings: found.findings,
        suppressed: found.suppressed,
        seen: found.seen,
        unseen,
        blind: found.blind,
        no_room: found.no_room,
        ended_it: found.ended_it,
    }
}

/// All are attempted, whatever becomes of the others. Standard error being closed is no reason to fail a command
/// that has succeeded.
fn write(args: &Args, report: &Report, files: Files) -> Result<(), Failure> {
    let mut end = text::summary(report);
    if report.ended_it {
        end +=
            &format!("{}: the program was ended because of the deadlock (--on-deadlock end)\n", text::PREFIX);
    }
    if args.gen_suppressions.is_some() && files.stanzas.is_none() {
        end += &text::stanzas(report);
    }
    let mut results = Vec::new();
    match files.text {
        None => {
            let _ = std::io::stderr().lock().write_all(end.as_bytes());
        }
        Some(file) => {
            let several = report.findings.iter().any(|finding| finding.process != report.findings[0].process);
            let all: String = report
                .findings
                .iter()
                .map(|finding| {
                    let name = text::program_name(&finding.process.exe);
                    let process = several.then(|| format!("{name} (process {})", finding.process.pid));
                    text::finding(finding, process.as_deref()) + "\n"
                })
                .collect();
            results.push(file.write(|out| out.write_all((all + &end).as_bytes())));
        }
    }
    results.extend(files.sarif.map(|file| file.write(|out| sarif::write(report, out))));
    results
        .extend(files.stanzas.map(|file| file.write(|out| out.write_all(text::stanzas(report).as_bytes()))));
    results.extend(files.json.map(|file| file.write(|out| json::write(report, out))));
    results.into_iter().collect()
}
