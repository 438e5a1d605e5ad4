//! The report as JSON.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use super::arrays::ArrayJson;
use super::events::bounds;
use super::report::{Lock, RanOn, Report, Time};
use super::uncounted::Uncounted;
use crate::message::{Failure, status};
use crate::output;
use crate::program::reason;

#[derive(Serialize)]
struct Document<'a> {
    command: &'a [String],
    /// What `--lock` said.
    lock: String,
    /// The mutex, named there or the default.
    mutex: &'static str,
    /// The form of the program's spinlocks, named there or chosen for this machine.
    spinlock: &'static str,
    /// Whose the program's readers-writer locks were to be, and with which policy.
    rwlock: &'static str,
    /// What the processes ran on: something else, if one of them chose for what it started.
    ran_on: &'a [RanOn],
    wall_ns: u64,
    /// Of all processes that loaded the library.
    threads: u64,
    /// Those that used a lock: their lives are the `thread_time_ns`.
    locking_threads: u64,
    processes: usize,
    thread_time_ns: u64,
    ending: &'a str,
    dropped_locks: u64,
    locks: &'a [Lock],
    /// Every event of the locks' slow paths that has no duration; empty if none happened.
    events: Vec<Event>,
    /// Those that have one; empty if there were no events at all.
    durations: Vec<Durations>,
    /// Semaphore arrays of ours that were used, most spinning first.
    arrays: Vec<ArrayJson>,
    /// Whether there were more than there was room for.
    dropped_arrays: bool,
    /// What is not among the `locks`.
    uncounted: &'a Uncounted,
}

#[derive(Serialize)]
struct Event {
    name: &'static str,
    count: u64,
    /// In the thread to which it happened most. Threads of which one began after the other's end may count as
    /// one.
    most: u64,
}

#[derive(Serialize)]
struct Durations {
    name: &'static str,
    count: u64,
    ns: Time,
    /// Those in which there are any, shortest first.
    buckets: Vec<Bucket>,
}

/// How many took `from_ns` or longer, but not `to_ns`, the next power of two.
#[derive(Serialize)]
struct Bucket {
    from_ns: u64,
    to_ns: u64,
    count: u64,
}

/// A file that is known to be writable.
pub(super) enum Output {
    /// Written beside its final place and moved there when it is complete, so that no reader sees half of it.
    Replace { temporary: NamedTempFile, path: PathBuf },
    /// A pipe or device, which must not be replaced by a file.
    Stream { file: File, path: PathBuf },
    /// What was asked for by `-`: after all that the command prints.
    Standard,
}

impl Output {
    /// Makes sure that the report can be written to `path`.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        Self::try_open(path).map_err(|error| failure(path, &error))
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        if output::is_standard(path) {
            return Ok(Output::Standard);
        }
        // Through a symbolic link it is the file behind it that is replaced.
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
            Err(error) => return Err(error),
        };
        match target.metadata() {
            Ok(meta) if meta.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Ok(meta) if !meta.is_file() => {
                let file = OpenOptions::new().write(true).open(&target)?;
                return Ok(Output::Stream { file, path: path.to_path_buf() });
            }
            // It would be replaced whatever its mode says; but a file that its owner made read-only is meant
            // to stay.
            Ok(_) => drop(OpenOptions::new().append(true).open(&target)?),
            Err(_) => {}
        }
        let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = tempfile::Builder::new()
            .prefix(".poundlock-stat-")
            .suffix(".json")
            // Less what the umask takes away, as for any new file.
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(dir)?;
        Ok(Output::Replace { temporary, path: target })
    }

    /// Writes the report.
    pub(super) fn write(self, report: &Report) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(&document(report))
            .map_err(|error| Failure::new(status::OURS, format_args!("the report as JSON: {error}")))?;
        text.push(b'\n');
        match self {
            Output::Standard => io::stdout().write_all(&text).map_err(|error| output::refused(&error)),
            Output::Stream { mut file, path } => {
                file.write_all(&text).map_err(|error| failure(&path, &error))
            }
            Output::Replace { mut temporary, path } => {
                temporary.write_all(&text).map_err(|error| failure(&path, &error))?;
                temporary.persist(&path).map_err(|error| failure(&path, &error.error))?;
                Ok(())
            }
        }
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        status::OURS,
        format_args!("the report cannot be written to {}: {}", path.display(), reason(error)),
    )
}

fn document(report: &Report) -> Document<'_> {
    let events = report.events.counts.iter().map(|(event, count)| Event {
        name: event.name(),
        count: count.total,
        most: count.most,
    });
    let durations = report.events.durations.iter().map(|(event, durations)| Durations {
        name: event.name(),
        count: durations.count,
        ns: Time { total: durations.total_ns, max: durations.max_ns },
        buckets: durations
            .buckets
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .map(|(n, &count)| Bucket { from_ns: bounds(n).0, to_ns: bounds(n).1, count })
            .collect(),
    });
    Document {
        command: &report.command,
        lock: report.lock.to_string(),
        mutex: report.locks_asked.mutex,
        spinlock: report.locks_asked.spinlock,
        rwlock: report.locks_asked.rwlock,
        ran_on: &report.ran_on,
        wall_ns: report.wall_ns,
        threads: report.threads,
        locking_threads: report.locking_threads,
        processes: report.processes,
        thread_time_ns: report.thread_time_ns,
        ending: &report.ending,
        dropped_locks: report.dropped_locks,
        locks: &report.locks,
        events: events.collect(),
        durations: durations.collect(),
        arrays: report.arrays.json(),
        dropped_arrays: report.arrays.dropped,
        uncounted: &report.uncounted,
    }
}
