//! `poundlock stat`: a program run with its locks measured, and a report of where it waited.

mod arrays;
mod events;
mod json;
mod report;
// Not all of it is reported yet.
#[allow(dead_code, unused_imports)]
mod sampler;
mod symbols;
mod table;
mod threads;
mod uncounted;
mod variables;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use poundlock_names::{Choice, RwLocks};
use poundlock_statfile::Snapshot;
use poundlock_statfile::writer::Options;

use crate::launch::{self, Ended};
use crate::message::{Failure, say, status};
use crate::program::{self, reason};
use crate::{library, run, semaphores};

/// What to run, and how to report it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many locks to show, each with its call sites; 0 for all of them
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Write the figures of all locks to this file, as JSON; `-` is standard output, after the program's own
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    run: run::Args,
}

/// Runs the command, reports on its locks and passes its exit status on.
pub(crate) fn main(args: Args) -> ExitCode {
    match stat(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn stat(args: &Args) -> Result<u8, Failure> {
    let (lock, rwlocks) = args.run.locks()?;
    args.run.semaphores()?;
    let program = launch::find(&args.run.command)?;
    // The program's own locks are measured by our library as well.
    program::check(&program)?;
    check_file_size()?;
    let mut environment = library::environment_for(&program, lock, rwlocks)?;
    environment.extend(args.run.arrays(lock).map(semaphores::change));
    // Before the program has run for an hour is the time to find that its report cannot be written.
    let json = args.json.as_deref().map(json::Output::open).transpose()?;
    let dir = figures_dir()?;
    environment.push((OsStr::new(library::STAT_VARIABLE), Some(dir.path().into())));

    let sampler = sampler::Sampler::start(dir.path(), sampler::Whom::Children);
    let ended = launch::run(&program, &args.run.command, &environment)?;
    let threads = sampler.map(sampler::Sampler::finish).unwrap_or_default();
    let figures = read(dir.path(), monotonic_ns());
    remark(&figures, &ended, &args.run.command[0]);
    let written = report(args, (lock, rwlocks), &ended, &figures.snapshots, json);
    for line in threads::lines(&threads) {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
    match written {
        Ok(()) => Ok(ended.exit_code()),
        // The command's own failure says more than ours.
        Err(failure) if ended.status.success() => Err(failure),
        Err(failure) => {
            say(&failure.line);
            Ok(ended.exit_code())
        }
    }
}

fn report(
    args: &Args,
    locks: (Choice, RwLocks),
    ended: &Ended,
    snapshots: &[Snapshot],
    json: Option<json::Output>,
) -> Result<(), Failure> {
    let symbols = symbols::Symbols::new();
    let shown = if args.top == 0 { usize::MAX } else { args.top };
    // Looking names up takes time: what is not going to be read is not looked up.
    let named = if json.is_some() { usize::MAX } else { shown };
    let report = report::Report::new(&args.run.command, locks, ended, snapshots, &symbols, named);
    // Both are attempted, whatever becomes of the other.
    let table = table::print(&report, shown);
    if let Some(json) = json {
        json.write(&report)?;
    }
    // Standard error being closed is no reason to fail a command that has succeeded.
    let _ = table;
    Ok(())
}

/// With a limit on file sizes that leaves no room for the figures the program would run for nothing. A
/// program may set itself one: [`remark`] says that then.
fn check_file_size() -> Result<(), Failure> {
    let Some(least) = Options::DEFAULT.sizes.last().copied() else { return Ok(()) };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the buffer is one `rlimit`.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    if !known || limit.rlim_cur >= least {
        return Ok(());
    }
    let (limit, least) = (limit.rlim_cur, least >> 20);
    Err(Failure::new(
        status::OURS,
        format_args!(
            "the limit on file sizes (ulimit -f) is {limit} bytes, and the figures need {least} MiB: raise it"
        ),
    ))
}

/// A directory of our own for the processes' files: in memory, since every counter that is touched is a page
/// of a file, which a disk's file system would have to find blocks for; elsewhere if there is no such place.
fn figures_dir() -> Result<tempfile::TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("poundlock-stat-");
    let dir = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
    // A server that we start as root and that then becomes another user has to make files here as well. Like
    // everybody else it may do that, but not see or remove those of others.
    let writable = |dir: &tempfile::TempDir| std::fs::set_permissions(dir, Permissions::from_mode(0o1733));
    dir.and_then(|dir| writable(&dir).map(|()| dir)).map_err(|error| {
        Failure::new(status::OURS, format_args!("a directory for the figures: {}", reason(&error)))
    })
}

/// What the processes left.
#[derive(Default)]
struct Figures {
    /// In the order in which they started.
    snapshots: Vec<Snapshot>,
    /// Processes that loaded our library and could not be measured.
    unmeasured: Vec<u32>,
}

/// Reads what every process left.
fn read(dir: &Path, now_ns: u64) -> Figures {
    let mut figures = Figures::default();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            say(format_args!("{}: {}", dir.display(), reason(&error)));
            return figures;
        }
    };
    for entry in entries.flatten() {
        let path = entry.path();
        // Others may have put something here: a pipe, say, would keep us waiting.
        let is_file = entry.file_type().is_ok_and(|file_type| file_type.is_file());
        if path.extension() != Some(OsStr::new("stat")) || !is_file {
            continue;
        }
        match poundlock_statfile::read(&path, now_ns) {
            Ok(snapshot) => figures.snapshots.push(snapshot),
            // A file of no length is the library's word for one that it could not make larger. Any other
            // process was killed before it had used a lock, and has nothing to say.
            Err(poundlock_statfile::Error::NotAStatFile) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let pid: Option<u32> = name.split('.').next().and_then(|pid| pid.parse().ok());
                let empty = entry.metadata().is_ok_and(|metadata| metadata.len() == 0);
                figures.unmeasured.extend(pid.filter(|_| empty));
            }
            Err(error) => {
                let name = path.file_stem().unwrap_or_default();
                say(format_args!("the figures of process {} cannot be read: {error}", name.display()));
            }
        }
    }
    figures.snapshots.sort_by_key(|snapshot| (snapshot.start_ns, snapshot.pid));
    figures.unmeasured.sort_unstable();
    figures.unmeasured.dedup();
    figures
}

/// Says what the figures leave out.
fn remark(figures: &Figures, ended: &Ended, command: &OsStr) {
    let command = command.display();
    let Figures { snapshots, unmeasured } = figures;
    let measured = |pid| snapshots.iter().any(|snapshot| snapshot.pid == pid);
    if unmeasured.contains(&ended.pid) && !measured(ended.pid) {
        let what = if snapshots.is_empty() { "nothing" } else { "only what it started" };
        say(format_args!(
            "{command} loaded our library, which could not make its file for the figures: {what} was measured"
        ));
    } else if snapshots.is_empty() && unmeasured.is_empty() {
        say(format_args!(
            "{command} did not load our library: nothing was measured, and it ran on its own locks"
        ));
    } else if !measured(ended.pid) {
        say(format_args!(
            "{command} itself did not load our library: only processes that it started were measured"
        ));
    }
    for &pid in unmeasured.iter().filter(|&&pid| pid != ended.pid && !measured(pid)) {
        say(format_args!("process {pid} was not measured: no file could be made for its figures"));
    }
    // The last program of each process: it may have gone through several.
    let last: BTreeMap<u32, &Snapshot> = snapshots.iter().map(|snapshot| (snapshot.pid, snapshot)).collect();
    for (&pid, snapshot) in last.iter().filter(|&(&pid, _)| pid != ended.pid && is_alive(pid)) {
        // ... of which the very last one may not have loaded our library.
        let now =
            std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_else(|_| PathBuf::from(&snapshot.exe));
        let name = now.file_name().unwrap_or(OsStr::new("?")).display();
        say(format_args!("process {pid} ({name}) is still running: its figures end here"));
    }
}

fn is_alive(pid: u32) -> bool {
    // A dead process that nobody has waited for yet still has its entry: it is in state Z (or X).
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// `CLOCK_MONOTONIC`, on which the library's figures are.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the buffer is one `timespec`; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
