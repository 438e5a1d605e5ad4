//! `poundlock stat`: a program run with its locks measured, and a report of where it waited.

mod arrays;
mod events;
mod json;
mod report;
mod symbols;
mod table;
mod variables;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use poundlock_core::names::{Choice, RwLocks};
use poundlock_linux::sem::Which;
use poundlock_statfile::Snapshot;

use crate::launch::{self, Ended};
use crate::message::{Failure, say, status};
use crate::program::{self, reason};
use crate::{library, locks, run, semaphores};

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
    let lock = locks::parse(&args.run.lock)?;
    let rwlocks = locks::parse_rwlocks(&args.run.rwlock)?;
    args.run.semaphores()?;
    let program = launch::find(&args.run.command)?;
    // The program's own locks are measured by our library as well.
    program::check(&program)?;
    let mut environment = library::environment(lock, rwlocks)?;
    environment.extend(semaphores(args, lock).map(semaphores::change));
    // Before the program has run for an hour is the time to find that its report cannot be written.
    let json = args.json.as_deref().map(json::Output::open).transpose()?;
    let dir = figures_dir()?;
    environment.push((OsStr::new(library::STAT_VARIABLE), Some(dir.path().into())));

    let ended = launch::run(&program, &args.run.command, &environment)?;
    let snapshots = read(dir.path(), monotonic_ns());
    remark(&snapshots, &ended, &args.run.command[0]);
    let written = report(args, (lock, rwlocks), &ended, &snapshots, json);
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

/// The semaphore arrays that were asked for. A program that keeps its locks keeps its arrays.
fn semaphores(args: &Args, lock: Choice) -> Option<&str> {
    args.run.semaphores.as_deref().or(lock.keeps_everything().then_some(Which::Kernel.name()))
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

/// A directory of our own for the processes' files: in memory, since every counter that is touched is a page of a
/// file, which a disk's file system would have to find blocks for; elsewhere if there is no such place.
fn figures_dir() -> Result<tempfile::TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("poundlock-stat-");
    let dir = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
    // A server that we start as root and that then becomes another user has to make files here as well. Like everybody
    // else it may do that, but not see or remove those of others.
    let writable = |dir: &tempfile::TempDir| std::fs::set_permissions(dir, Permissions::from_mode(0o1733));
    dir.and_then(|dir| writable(&dir).map(|()| dir)).map_err(|error| {
        Failure::new(status::OURS, format_args!("a directory for the figures: {}", reason(&error)))
    })
}

/// Reads what every process left, in the order in which they started.
fn read(dir: &Path, now_ns: u64) -> Vec<Snapshot> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            say(format_args!("{}: {}", dir.display(), reason(&error)));
            return Vec::new();
        }
    };
    let mut snapshots = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        // Others may have put something here: a pipe, say, would keep us waiting.
        let is_file = entry.file_type().is_ok_and(|file_type| file_type.is_file());
        if path.extension() != Some(OsStr::new("stat")) || !is_file {
            continue;
        }
        match poundlock_statfile::read(&path, now_ns) {
            Ok(snapshot) => snapshots.push(snapshot),
            // A process that was killed before it had used a lock has nothing to say.
            Err(poundlock_statfile::Error::NotAStatFile) => {}
            Err(error) => {
                let name = path.file_stem().unwrap_or_default();
                say(format_args!("the figures of process {} cannot be read: {error}", name.display()));
            }
        }
    }
    snapshots.sort_by_key(|snapshot| (snapshot.start_ns, snapshot.pid));
    snapshots
}

/// Says what the figures leave out.
fn remark(snapshots: &[Snapshot], ended: &Ended, command: &OsStr) {
    let command = command.display();
    if snapshots.is_empty() {
        say(format_args!(
            "{command} did not load our library: nothing was measured, and it ran on its own locks"
        ));
    } else if !snapshots.iter().any(|snapshot| snapshot.pid == ended.pid) {
        say(format_args!(
            "{command} itself did not load our library: only processes that it started were measured"
        ));
    }
    for snapshot in snapshots {
        if snapshot.pid != ended.pid && is_alive(snapshot.pid) {
            let name = Path::new(&snapshot.exe).file_name().unwrap_or(OsStr::new("?")).display();
            say(format_args!("process {} ({name}) is still running: its figures end here", snapshot.pid));
        }
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
