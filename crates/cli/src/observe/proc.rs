//! What `/proc` says of processes and threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use poundlock_statfile::layout::printable;

use super::calls::{self, Call, Doing};

/// What a thread is doing, as far as one look tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// On a CPU, or ready for one.
    Ready,
    /// Asleep in this call.
    Call(Call),
    /// Asleep outside of a call.
    Outside,
    /// Asleep; in which call is not shown to us.
    Hidden,
    /// It has ended.
    Gone,
}

/// The kernel's sums of a thread since its start, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sums {
    /// On a CPU. Brought up to date at each tick.
    pub(crate) run: u64,
    /// Ready without a CPU, until it last got one. `None` where the kernel does not keep it.
    pub(crate) delay: Option<u64>,
    /// How often it got a CPU.
    pub(crate) arrivals: u64,
}

/// The files of one thread.
#[derive(Debug)]
pub(crate) struct Task {
    dir: PathBuf,
    /// Kept open: opening them takes three times as long as reading them.
    open: Option<(File, File)>,
}

impl Task {
    /// Thread `tid` of process `pid`. Keeps files open if that is possible, and `keep` allows it.
    pub(crate) fn new(pid: u32, tid: u32, keep: bool) -> Task {
        let dir = PathBuf::from(format!("/proc/{pid}/task/{tid}"));
        let both = || Some((File::open(dir.join("syscall")).ok()?, File::open(dir.join("schedstat")).ok()?));
        let open = if keep { both() } else { None };
        Task { dir, open }
    }

    /// Whether it has files open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// What it is doing.
    pub(crate) fn look(&self) -> Seen {
        self.look_closely().0
    }

    /// What it is doing, and as the kernel says it: with the place where it sleeps.
    pub(crate) fn look_closely(&self) -> (Seen, Doing) {
        let mut buffer = [0; 256];
        let read = match &self.open {
            Some((file, _)) => read_at_start(file, &mut buffer),
            None => read_file(&self.dir.join("syscall"), &mut buffer),
        };
        match read {
            Ok(text) => {
                let doing = calls::parse(text);
                let seen = match doing {
                    Doing::Running => Seen::Ready,
                    Doing::Call { call, .. } => Seen::Call(call),
                    // What has no registers may be a thread of the kernel's that works for the process.
                    Doing::Gone if self.state() == Seen::Gone => Seen::Gone,
                    Doing::Outside { .. } | Doing::Gone => Seen::Outside,
                };
                (seen, doing)
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => (Seen::Gone, Doing::Gone),
            Err(_) => (self.state(), Doing::Gone),
        }
    }

    /// Only whether it sleeps.
    fn state(&self) -> Seen {
        let mut buffer = [0; 1024];
        match read_file(&self.dir.join("stat"), &mut buffer).ok().and_then(Stat::parse) {
            None => Seen::Gone,
            Some(stat) if matches!(stat.state, 'Z' | 'X') => Seen::Gone,
            Some(stat) if stat.state == 'R' => Seen::Ready,
            Some(_) => Seen::Hidden,
        }
    }

    /// Its sums. `None` if it has ended.
    pub(crate) fn sums(&self) -> Option<Sums> {
        let mut buffer = [0; 1024];
        let read = match &self.open {
            Some((_, file)) => read_at_start(file, &mut buffer),
            None => read_file(&self.dir.join("schedstat"), &mut buffer),
        };
        if let Ok(text) = read {
            let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
            let (run, delay, arrivals) = (numbers.next()?, numbers.next()?, numbers.next()?);
            return Some(Sums { run, delay: Some(delay), arrivals });
        }
        // A kernel without that file; or the thread has ended, and this one is gone as well.
        let stat = Stat::parse(read_file(&self.dir.join("stat"), &mut buffer).ok()?)?;
        Some(Sums { run: stat.cpu_ticks.saturating_mul(tick_ns()), delay: None, arrivals: 0 })
    }

    /// Its name, safe to print.
    pub(crate) fn name(&self) -> Option<String> {
        name(&self.dir)
    }

    /// Its id in the innermost namespace that it is in.
    pub(crate) fn inner_id(&self) -> Option<u32> {
        inner_id(&self.dir)
    }

    /// Whether it has ended or is about to; see [`Stat::is_ending`].
    pub(crate) fn is_ending(&self) -> bool {
        let mut buffer = [0; 1024];
        let stat = read_file(&self.dir.join("stat"), &mut buffer).ok().and_then(Stat::parse);
        stat.is_none_or(|stat| stat.is_ending())
    }

    /// The processes that it started and that are its children still. `None` if the kernel does not tell.
    pub(crate) fn children(&self) -> Option<Vec<u32>> {
        let text = std::fs::read_to_string(self.dir.join("children")).ok()?;
        Some(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    state: char,
    pub(crate) parent: u32,
    /// The first thread has ended, or is about to and has left its memory.
    exits: bool,
    cpu_ticks: u64,
    /// CPU time of children that it has waited for.
    children_ticks: u64,
    /// Those that have not ended, and the first.
    threads: u64,
    /// In ticks since the machine's start: with the id, what tells a process from a later one.
    pub(crate) started: u64,
    /// The signals that are pending for this thread alone.
    pending: u64,
}

/// The kernel's flag of a thread that ends.
const PF_EXITING: u64 = 4;

impl Stat {
    /// Whether this thread ends, by itself or because a signal ends the process, which the kernel does by a
    /// `SIGKILL` to each thread. A first thread that has ended before the others is at its end.
    fn is_ending(&self) -> bool {
        let is_killed = self.pending & (1 << (libc::SIGKILL - 1)) != 0;
        is_killed || self.is_over() || (self.exits && self.state != 'Z')
    }

    /// Whether the process runs no more. Its entry stays until somebody has waited for it; its first thread
    /// may end long before the last one.
    pub(crate) fn is_over(&self) -> bool {
        (self.exits || matches!(self.state, 'Z' | 'X')) && self.threads <= 1
    }

    pub(crate) fn read(pid: u32) -> Option<Stat> {
        let mut buffer = [0; 1024];
        Stat::parse(read_file(Path::new(&format!("/proc/{pid}/stat")), &mut buffer).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name may hold anything, parentheses included.
        let (before, after) = (text.find('(')?, text.rfind(')')?);
        let mut fields = text.get(after + 2..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let mut number = |skip: usize| fields.nth(skip)?.parse::<u64>().ok();
        let exits = number(4)? & PF_EXITING != 0;
        let (user, system) = (number(4)?, number(0)?);
        let children_ticks = number(0)? + number(0)?;
        let threads = number(2)?;
        let started = number(1)?;
        let pending = number(8)?;
        let name = text.get(before + 1..after)?.to_string();
        let cpu_ticks = user + system;
        Some(Stat { name, state, parent, exits, cpu_ticks, children_ticks, threads, started, pending })
    }
}

/// The living processes that descend from this one, parents before their children. Of each orphan the parent
/// has to be known: see `PR_SET_CHILD_SUBREAPER`.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: Vec<(u32, Stat)> = pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(all.iter().filter(|(_, stat)| stat.parent == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    let over = |pid: &u32| all.iter().any(|(other, stat)| other == pid && stat.is_over());
    found.into_iter().skip(1).filter(|pid| !over(pid)).collect()
}

/// The ids of the threads of a process. `None` if it is gone, or is not shown to us.
pub(crate) fn tasks(pid: u32) -> Option<Vec<u32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    Some(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The thread by whose id `/proc` and the kernel lead to the memory of a process: the first one, or another
/// where that one has ended.
pub(crate) fn memory_of(pid: u32) -> u32 {
    let has_memory = |tid: &u32| std::fs::read_link(format!("/proc/{pid}/task/{tid}/exe")).is_ok();
    let is_there = || std::fs::read_link(format!("/proc/{pid}/exe")).err();
    if is_there().is_none_or(|error| error.kind() != io::ErrorKind::NotFound) {
        return pid;
    }
    tasks(pid).unwrap_or_default().into_iter().find(has_memory).unwrap_or(pid)
}

/// The children of a process, of all its threads, each with the process.
pub(crate) fn children_of(pid: u32) -> Vec<(u32, u32)> {
    let tids = tasks(pid).unwrap_or_default();
    let children = tids.into_iter().filter_map(|tid| Task::new(pid, tid, false).children());
    children.flatten().map(|child| (child, pid)).collect()
}

/// The id of a process in the innermost namespace that it is in.
pub(crate) fn inner_pid(pid: u32) -> Option<u32> {
    inner_id(Path::new(&format!("/proc/{pid}")))
}

fn inner_id(dir: &Path) -> Option<u32> {
    let status = read_text(dir.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The CPU time that a process has used, threads that have ended included.
pub(crate) fn cpu_time_ns(pid: u32) -> Option<u64> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    let mut clock = 0;
    // SAFETY: writes one `clockid_t`.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    clock_ns(clock)
}

/// The same with that of the children that it has waited for, of which only ticks are known.
pub(crate) fn family_cpu_ns(pid: u32) -> Option<u64> {
    Some(cpu_time_ns(pid)? + Stat::read(pid)?.children_ticks.saturating_mul(tick_ns()))
}

/// A clock, in nanoseconds.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the buffer is one `timespec`.
    let known = unsafe { libc::clock_gettime(clock, &raw mut now) } == 0;
    known.then_some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// How many files this process may have open at a time.
pub(crate) fn file_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the buffer is one `rlimit`.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

fn tick_ns() -> u64 {
    // SAFETY: takes a number.
    let rate = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(rate).unwrap_or(100).max(1)
}

/// The name of the process or thread of this directory, safe to print.
fn name(dir: &Path) -> Option<String> {
    let name = std::fs::read(dir.join("comm")).ok()?;
    Some(printable(name.strip_suffix(b"\n").unwrap_or(&name)))
}

/// What a process is called, safe to print; `?` if it is not there.
pub(crate) fn name_of(pid: u32) -> String {
    name(Path::new(&format!("/proc/{pid}"))).filter(|name| !name.is_empty()).unwrap_or_else(|| "?".to_owned())
}

/// A text that may hold names, of which each byte that is none of a character is replaced.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn read_file<'a>(path: &Path, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    read_at_start(&File::open(path)?, buffer)
}

fn read_at_start<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let len = file.read_at(buffer, 0)?;
    // A name may be cut in the middle of a character; all else is ASCII.
    buffer[..len].iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
    Ok(std::str::from_utf8(&buffer[..len]).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_end() {
        let text = "7 (a) R (b) S 3 7 7 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 4 0 84716 9 1 18446744073709551615 \
                    1 1 0 0 0 256";
        let stat = Stat::parse(text).expect("a line of stat");
        assert_eq!((&*stat.name, stat.state, stat.parent), ("a) R (b", 'S', 3));
        assert_eq!((stat.cpu_ticks, stat.children_ticks, stat.threads, stat.started), (11, 0, 4, 84716));
        assert!(stat.is_ending() && !Stat { pending: 0, ..stat }.is_ending());
        assert_eq!(Stat::parse("7 (cut"), None);
    }

    #[test]
    fn this_thread_is_ready_and_has_run() {
        let task = Task::new(std::process::id(), std::process::id(), true);
        let sums = task.sums().expect("the main thread is there");
        assert!(sums.run > 0 && cpu_time_ns(std::process::id()).is_some_and(|cpu| cpu >= sums.run / 2));
        assert!(task.name().is_some_and(|name| !name.is_empty()));
        assert_ne!(task.look(), Seen::Gone);
    }
}
