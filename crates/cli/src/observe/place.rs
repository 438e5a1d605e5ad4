//! The directory in which the processes of a run leave their files, and who leaves one there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use poundlock_statfile::writer::Options;

use crate::library;
use crate::message::{Failure, say, status};
use crate::observe::proc::{Stat, read_text, tasks};
use crate::program::reason;

/// With a limit on file sizes that leaves no room for the figures the program would run for nothing. A
/// program may set itself one: `stat` says that then.
pub(crate) fn check_file_size() -> Result<(), Failure> {
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
pub(crate) fn directory(prefix: &str) -> Result<tempfile::TempDir, Failure> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    let dir = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir());
    // A server that we start as root and that then becomes another user has to make files here as well. Like
    // everybody else it may do that, but not see or remove those of others.
    let writable = |dir: &tempfile::TempDir| std::fs::set_permissions(dir, Permissions::from_mode(0o1733));
    dir.and_then(|dir| writable(&dir).map(|()| dir)).map_err(|error| {
        Failure::new(status::OURS, format_args!("a directory for the figures: {}", reason(&error)))
    })
}

/// The files of the processes, and their lengths: those in a directory, or one.
pub(crate) fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    if let Some(file) = std::fs::metadata(dir).ok().filter(std::fs::Metadata::is_file) {
        return vec![(dir.to_owned(), file.len())];
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            say(format_args!("{}: {}", dir.display(), reason(&error)));
            return Vec::new();
        }
    };
    // Others may have put something here: a pipe, say, would keep us waiting.
    let file = |entry: std::fs::DirEntry| {
        let of_ours = entry.file_name().as_bytes().ends_with(b".stat") && entry.file_type().ok()?.is_file();
        of_ours.then(|| (entry.path(), entry.metadata().map_or(0, |metadata| metadata.len())))
    };
    entries.flatten().filter_map(file).collect()
}

/// The statistics files, by process and number: those in a directory, or one.
pub(crate) fn by_process(dir: &Path) -> BTreeMap<u32, BTreeMap<u32, PathBuf>> {
    let mut files: BTreeMap<u32, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    if let Some((pid, count)) = numbers_of(dir)
        && dir.is_file()
    {
        return BTreeMap::from([(pid, BTreeMap::from([(count, dir.to_owned())]))]);
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        // A pipe in its place would keep us waiting.
        let is_file = || entry.file_type().is_ok_and(|file_type| file_type.is_file());
        if let Some((pid, count)) = numbers_of(&path)
            && is_file()
        {
            files.entry(pid).or_default().insert(count, path);
        }
    }
    files
}

/// The process and the number of a statistics file; `None` if the file has another kind of name.
pub(crate) fn numbers_of(path: &Path) -> Option<(u32, u32)> {
    let mut parts = path.file_name()?.to_str()?.split('.');
    let (pid, count) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (parts.next() == Some("stat") && parts.next().is_none()).then_some((pid, count))
}

/// The processes that leave figures in this directory, or will once they have used a lock.
pub(crate) fn followed(dir: &Path) -> Vec<u32> {
    let ours = std::process::id();
    let mut over = BTreeSet::new();
    // One that ended since the processes were listed may have left a child that is not in the list, as every
    // process on the way to a daemon does. A machine where others end all the time is not asked for ever.
    for _ in 0..LISTINGS {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut another = false;
        let mut found = Vec::new();
        for pid in pids.filter(|&pid| pid != ours) {
            let leaves = leaves_figures(pid, dir);
            if !is_alive(pid) {
                another |= over.insert(pid);
            } else if leaves {
                found.push(pid);
            }
        }
        if !found.is_empty() || !another {
            found.sort_unstable();
            return found;
        }
    }
    Vec::new()
}

/// How often processes are listed anew at most.
const LISTINGS: usize = 20;

pub(crate) fn pid_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.split('.').next()?.parse().ok()
}

/// Whether a process was started with our library and this directory, or has one of its files mapped: servers
/// write their titles over their environments.
fn leaves_figures(pid: u32, dir: &Path) -> bool {
    let process = format!("/proc/{pid}");
    let shown = |of: String| {
        let environment = std::fs::read(format!("{of}/environ")).ok()?;
        (!environment.is_empty()).then_some((of, environment))
    };
    // A first thread that has ended has no memory any more; the others show theirs.
    let others = || tasks(pid)?.into_iter().find_map(|tid| shown(format!("{process}/task/{tid}")));
    let (shown, environment) =
        shown(process.clone()).or_else(others).unwrap_or_else(|| (process.clone(), Vec::new()));
    let mut entries = environment.split(|&byte| byte == 0);
    let asked = [library::STAT_VARIABLE, library::STATS_VARIABLE]
        .map(|name| [name.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat());
    let has = |start: &[u8]| environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(start));
    if entries.any(|entry| asked.iter().any(|asked| entry == asked)) {
        return has(b"LD_PRELOAD=");
    }
    let Ok(maps) = read_text(format!("{shown}/maps")) else { return false };
    // Who only looks at a file, as `top` does, has it mapped as well.
    let dir = dir.to_string_lossy();
    maps.lines()
        .any(|line| line.contains(&*dir) && line.split(' ').nth(1).is_some_and(|mode| mode.contains('w')))
}

pub(crate) fn is_alive(pid: u32) -> bool {
    Stat::read(pid).is_some_and(|stat| !stat.is_over())
}

/// `CLOCK_MONOTONIC`, on which the library's figures are.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the buffer is one `timespec`; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
