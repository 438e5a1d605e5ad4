//! A process that runs, or hangs.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::maps::Maps;
use super::stop::{self, Copied};
use super::{Memory, Thread};
use crate::message::{Failure, status};
use crate::observe::calls::{self, Call, Doing};
use crate::observe::proc::{self, Task};

/// The memory of a live process.
pub(crate) struct Live {
    pid: u32,
    file: Option<File>,
}

impl Live {
    pub(crate) fn new(pid: u32) -> Live {
        let pid = proc::memory_of(pid);
        Live { pid, file: File::open(format!("/proc/{pid}/mem")).ok() }
    }
}

impl Memory for Live {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
        // SAFETY: writes into the buffer, no more than it holds.
        let len = unsafe {
            libc::process_vm_readv(self.pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0)
        };
        if let Ok(len) = usize::try_from(len) {
            return len;
        }
        // A sandbox may refuse the call, and leave the file.
        self.file.as_ref().and_then(|file| file.read_at(buffer, address).ok()).unwrap_or(0)
    }
}

/// All threads of a process, each as it was at a moment of its own.
pub(crate) struct Look {
    pub(crate) threads: Vec<Thread>,
    /// From the first stop to the end of the last one.
    pub(crate) wall_ns: u64,
}

/// Copies all threads. One that starts meanwhile is looked for again; one that ends is left out.
///
/// # Errors
/// If there is no such process, or we may not look into it.
pub(crate) fn look(pid: u32, memory: &Live) -> Result<Look, Failure> {
    let begun = Instant::now();
    let mut threads: Vec<Thread> = Vec::new();
    let mut known = std::collections::HashSet::new();
    // A program that starts threads all the time is left after some rounds.
    for _ in 0..4 {
        let tids = proc::tasks(pid).ok_or_else(|| no_such(pid))?;
        let new: Vec<u32> = tids.into_iter().filter(|tid| known.insert(*tid)).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            let copied = stop::copy(pid, tid, memory).map_err(|error| refused(pid, &error))?;
            let Some(Copied { doing, registers, stack, stood_ns }) = copied else { continue };
            let doing = settled(doing, registers.as_ref().and_then(|registers| registers.call));
            threads.push(Thread { tid, inner: tid, name: String::new(), doing, registers, stack, stood_ns });
        }
    }
    let wall_ns = begun.elapsed().as_nanos() as u64;
    let task = |thread: &Thread| Task::new(pid, thread.tid, false);
    for thread in &mut threads {
        let task = task(thread);
        thread.name = task.name().unwrap_or_default();
        thread.inner = task.inner_id().unwrap_or(thread.tid);
    }
    if threads.is_empty() { Err(no_such(pid)) } else { Ok(Look { threads, wall_ns }) }
}

/// What a thread did when its registers were copied: it may have begun or ended a call just before.
fn settled(doing: Doing, stopped_in: Option<Call>) -> Doing {
    match (doing, stopped_in) {
        // The kernel goes on with a call under another number.
        (Doing::Running | Doing::Outside { .. }, Some(call)) => Doing::Call { call, sp: 0, pc: 0 },
        (Doing::Call { call, sp, pc }, Some(now)) if call != now => {
            let _ = (sp, pc);
            Doing::Call { call: now, sp: 0, pc: 0 }
        }
        (doing, _) => doing,
    }
}

/// What tells that a thread has not run between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Still {
    doing: Doing,
    run: u64,
    arrivals: u64,
}

impl Still {
    /// As of now; `None` if the thread is gone, or runs.
    pub(crate) fn of(pid: u32, tid: u32) -> Option<Still> {
        let doing = calls::doing(pid, tid).ok()?;
        if !matches!(doing, Doing::Call { .. }) {
            return None;
        }
        let sums = Task::new(pid, tid, false).sums()?;
        Some(Still { doing, run: sums.run, arrivals: sums.arrivals })
    }

    /// Whether the thread is in the wait in which it was copied. It was woken for that, and has gone on.
    pub(crate) fn is_as_copied(&self, thread: &Thread) -> bool {
        let (Doing::Call { call: now, sp, .. }, Doing::Call { call: then, sp: sp_then, .. }) =
            (self.doing, thread.doing)
        else {
            return false;
        };
        let same_futex = now.futex().is_some() && now.futex() == then.futex();
        (now == then || same_futex) && (sp_then == 0 || sp == sp_then)
    }
}

/// The mappings.
pub(crate) fn maps(pid: u32) -> Result<Maps, Failure> {
    match proc::read_text(format!("/proc/{}/maps", proc::memory_of(pid))) {
        Ok(text) => Ok(Maps::parse(&text)),
        Err(error) => Err(refused(pid, &error)),
    }
}

fn failure(line: impl Display) -> Failure {
    Failure::new(status::OURS, line)
}

fn no_such(pid: u32) -> Failure {
    failure(format_args!("there is no process {pid}: `ps` and `pgrep` tell which there are"))
}

/// Checks what can be known of a process before it is stopped.
///
/// # Errors
/// In one line, what is wrong, and how to have it right.
pub(crate) fn check(pid: u32) -> Result<(), Failure> {
    check_id(pid)?;
    let status = proc::read_text(format!("/proc/{pid}/status")).map_err(|_| no_such(pid))?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map(str::trim);
    if let Some(tracer) = tracer.filter(|tracer| *tracer != "0") {
        let name = tracer.parse().map(proc::name_of).unwrap_or_default();
        return Err(failure(format_args!(
            "process {pid} is traced by process {tracer} ({}), and there can be one tracer only: end that first",
            name
        )));
    }
    Ok(())
}

/// Checks that we have no rights that whoever has started us lacks.
///
/// # Errors
/// In one line, what is wrong, and how to have it right.
pub(crate) fn check_our_rights() -> Result<(), Failure> {
    // SAFETY: takes a number.
    if unsafe { libc::getauxval(libc::AT_SECURE) } == 0 {
        return Ok(());
    }
    Err(failure(
        "this command is installed set-user-id or with capabilities, by which everybody could look into any \
         process: take them away (chmod u-s,g-s; setcap -r), and use sudo",
    ))
}

/// Checks that there is such a process, and that it is one that can be watched.
///
/// # Errors
/// In one line, what is wrong, and how to have it right.
pub(crate) fn check_id(pid: u32) -> Result<(), Failure> {
    check_our_rights()?;
    let status = proc::read_text(format!("/proc/{pid}/status")).map_err(|_| no_such(pid))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if let Some(leader) = field("Tgid:").filter(|leader| *leader != pid.to_string()) {
        return Err(failure(format_args!("{pid} is a thread of process {leader}: ask for that")));
    }
    if field("State:").is_some_and(|state| state.starts_with(['Z', 'X'])) {
        let threads = field("Threads:").unwrap_or("1");
        if threads == "1" || threads == "0" {
            return Err(failure(format_args!(
                "process {pid} has ended; its parent has not asked for it yet"
            )));
        }
    }
    if pid == std::process::id() {
        return Err(failure("this is the command itself: name another process"));
    }
    let kernel = field("Kthread:").is_some_and(|is| is == "1") || field("VmSize:").is_none();
    let exe = format!("/proc/{}/exe", proc::memory_of(pid));
    if kernel && std::fs::read_link(&exe).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Err(failure(format_args!("process {pid} has no memory of its own: it is the kernel's")));
    }
    let mut class = [0; 5];
    if File::open(&exe).is_ok_and(|exe| exe.read_exact_at(&mut class, 0).is_ok()) && class == *b"\x7fELF\x01"
    {
        return Err(failure(format_args!("process {pid} is a program of 32 bits, which is not supported")));
    }
    Ok(())
}

/// Why we may not look into a process, and how to be allowed.
fn refused(pid: u32, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => return no_such(pid),
        Some(libc::EPERM | libc::EACCES) => {}
        _ => return failure(format_args!("process {pid} cannot be looked into: {error}")),
    }
    let status = proc::read_text(format!("/proc/{pid}/status")).unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = uid.and_then(|ids| ids.split_whitespace().next()).and_then(|id| id.parse::<u32>().ok());
    // SAFETY: takes no arguments.
    let ours = unsafe { libc::geteuid() };
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim();
    let line = if ours == 0 {
        if scope == "3" {
            "nobody may trace here until the machine starts anew (kernel.yama.ptrace_scope is 3)".to_owned()
        } else {
            "root lacks CAP_SYS_PTRACE here: of a container, give it to `docker run --cap-add=SYS_PTRACE`, and \
             see that no seccomp profile refuses ptrace; or run this on the host"
                .to_owned()
        }
    } else if uid.is_some_and(|uid| uid != ours) {
        format!("it is another user's (uid {}): run this with sudo", uid.unwrap_or(0))
    } else if !matches!(scope, "" | "0") {
        format!(
            "kernel.yama.ptrace_scope is {scope}: run this with sudo, or let users look into their own \
             processes: sudo sysctl kernel.yama.ptrace_scope=0"
        )
    } else {
        "it has more rights than you, or says that nobody may look (prctl PR_SET_DUMPABLE): run this with sudo"
            .to_owned()
    };
    failure(format_args!("process {pid} may not be looked into: {line}"))
}
