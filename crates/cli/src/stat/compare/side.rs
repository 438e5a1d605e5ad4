//! One run of one side: the program started anew, measured for its time or until its end, and ended.
//!
//! A run without `--for`, `--delay` and `--client` is the program's from its start to its end. Any other run
//! has phases ([`Phase`]). The next run begins when no process of this one lives and its ports are free.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use poundlock_measure::Usage;
use poundlock_names::{Choice, RwLocks};

use super::super::Args;
use super::super::figures::{Figures, PREFIX};
use super::super::report::ratio;
use super::Run;
use super::ports::{self, Port};
use crate::launch::{self, Ended, Meanwhile, Streams};
use crate::message::{Failure, say, status};
use crate::observe::place::{self, monotonic_ns};
use crate::observe::proc::name_of;
use crate::observe::proc::{self, Seen, Task, descendants};
use crate::{library, semaphores};

/// How long a process may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may take until it listens or sleeps, and a port until it is free: a connection that has
/// ended keeps one for a minute.
const UP: Duration = Duration::from_secs(90);
/// So long without CPU time is a sleep.
const ASLEEP: Duration = Duration::from_millis(500);
/// Pauses between looks at the processes, and at the client's end, whose time is known that well.
const LOOK: Duration = Duration::from_millis(50);
const CLIENT_LOOK: Duration = Duration::from_millis(2);

/// What the processes counted so far.
#[derive(Clone, Copy, Default)]
struct Totals {
    acquired: u64,
    waits: u64,
    wait_ns: u64,
    time_ns: u64,
    cpu_ns: u64,
}

impl Totals {
    /// What is in the directory; of CPU time what its processes had.
    fn read(dir: &Path, pids: &[u32]) -> Totals {
        let figures = Figures::read(dir, monotonic_ns());
        let time_ns = figures.snapshots.iter().map(|snapshot| snapshot.thread_time_ns).sum();
        let cpu_ns = pids.iter().filter_map(|&pid| proc::family_cpu_ns(pid)).sum();
        let mut totals = Totals { time_ns, cpu_ns, ..Totals::default() };
        for process in 0..figures.snapshots.len() {
            figures.each_lock(process, |lock| {
                if lock.kind.is_acquired() {
                    totals.acquired += lock.acquisitions;
                    totals.waits += lock.contended;
                    totals.wait_ns += lock.wait_total_ns;
                }
            });
        }
        totals
    }
}

/// How far a run is.
enum Phase {
    /// Until `--delay` is over, or the server listens or sleeps: it has used this much CPU time, and no more
    /// since then.
    Starting { cpu_ns: u64, since: Instant },
    /// Until the client's end, the end of `--for`, or the program's own end.
    Measured { since: Instant },
    /// The program has ended by itself; what it started may follow.
    Following { since: Instant },
    /// SIGTERM was sent then, and SIGKILL is after [`PATIENCE`].
    Ending { since: Instant, killed: bool },
}

struct Side<'a> {
    args: &'a Args,
    dir: &'a Path,
    begun: Instant,
    phase: Phase,
    before: Totals,
    /// At the end of the time that is measured, and how long that was.
    after: Option<(Totals, Duration)>,
    /// The program ended before anybody asked it to.
    by_itself: bool,
    /// The program's first process has ended and was waited for.
    outlived: bool,
    client: Option<Child>,
    /// Once it has ended by itself.
    client_took: Option<Duration>,
    /// What `--metric` reads, and where in it the time that is measured begins.
    output: Option<(File, u64)>,
    ports: Vec<Port>,
    /// A signal that asked us to end.
    interrupted: Option<libc::c_int>,
    failure: Option<(u8, String)>,
}

/// Whether runs are of a time that we say rather than the program's.
pub(super) fn is_timed(args: &Args) -> bool {
    args.r#for.is_some() || args.delay.is_some() || args.client.is_some()
}

/// Makes this process the parent of orphans among its descendants, so that none is out of sight.
pub(super) fn adopt() {
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// One run, and the wait for the end of all that it started.
pub(super) fn run(
    args: &Args,
    program: &Path,
    (lock, rwlocks): (Choice, RwLocks),
    round: usize,
) -> Result<Run, Failure> {
    let dir = place::directory(PREFIX)?;
    let mut environment = library::environment_for(program, lock, rwlocks)?;
    environment.extend(args.run.arrays(lock).map(semaphores::change));
    environment.push((OsStr::new(library::STAT_VARIABLE), Some(dir.path().into())));
    let output = args.metric.as_ref().map(|_| tempfile::tempfile()).transpose();
    let output =
        output.map_err(|error| Failure::new(status::OURS, format_args!("a temporary file: {error}")))?;
    let streams = match &output {
        Some(file) if args.client.is_none() => captured(file),
        _ => Streams::default(),
    };
    let now = Instant::now();
    let phase = match (args.delay, &args.client) {
        (None, None) => Phase::Measured { since: now },
        _ => Phase::Starting { cpu_ns: 0, since: now },
    };
    let mut side = Side {
        args,
        dir: dir.path(),
        begun: now,
        phase,
        before: Totals::default(),
        after: None,
        by_itself: false,
        outlived: false,
        client: None,
        client_took: None,
        output: output.map(|file| (file, 0)),
        ports: Vec::new(),
        interrupted: None,
        failure: None,
    };
    let cpu = Usage::of_children().cpu_ns;
    let ended = launch::run_on(program, &args.run.command, &environment, streams, &mut side)?;
    side.settle(&ended);
    if let Some(signal) = side.interrupted {
        return Err(Failure::new(128 + signal as u8, "interrupted: nothing is compared"));
    }
    let measured = side.measured_run(Usage::of_children().cpu_ns.saturating_sub(cpu));
    if measured.as_ref().is_ok_and(|run| round == 0 && run.acquisitions == 0 && run.time_ns == 0) {
        say("the command did not load our library: its waits are not known");
    }
    measured.map_err(|(status, why)| {
        Failure::new(status, format_args!("in round {} on {lock} {why}: nothing is compared", round + 1))
    })
}

/// Standard output and standard error, in a file.
fn captured(file: &File) -> Streams {
    let stream = || file.try_clone().ok().map(Stdio::from);
    Streams { input: None, output: stream(), error: stream() }
}

/// Signals the processes, parents first.
fn signal_all(pids: &[u32], signal: libc::c_int) {
    for &pid in pids {
        // SAFETY: takes numbers. The ids are of descendants that were alive a moment ago.
        unsafe { libc::kill(pid as libc::pid_t, signal) };
    }
}

impl Side<'_> {
    /// The client's processes, if it runs.
    fn clients(&self) -> Vec<u32> {
        let pid = self.client.as_ref().map(Child::id);
        pid.map(|pid| [vec![pid], descendants(pid)].concat()).unwrap_or_default()
    }

    /// The program's processes.
    fn pids(&self) -> Vec<u32> {
        let clients = self.clients();
        descendants(std::process::id()).into_iter().filter(|pid| !clients.contains(pid)).collect()
    }

    /// Whether the server can be asked: it listens, or all of its threads sleep.
    fn is_up(&mut self) -> bool {
        let pids = self.pids();
        let (listens, _) = ports::listening(&pids);
        let Phase::Starting { cpu_ns, since } = &mut self.phase else { return false };
        let now: u64 = pids.iter().filter_map(|&pid| proc::cpu_time_ns(pid)).sum();
        let is_ready = |&pid: &u32| {
            let tids = proc::tasks(pid).unwrap_or_default();
            tids.into_iter().any(|tid| Task::new(pid, tid, false).look() == Seen::Ready)
        };
        if now != *cpu_ns || pids.iter().any(is_ready) {
            (*cpu_ns, *since) = (now, Instant::now());
        }
        listens || (!pids.is_empty() && since.elapsed() >= ASLEEP)
    }

    /// From here on it counts; the client is started.
    fn measure(&mut self) {
        self.before = Totals::read(self.dir, &self.pids());
        if let Some((file, from)) = &mut self.output {
            *from = file.metadata().map_or(0, |metadata| metadata.len());
        }
        self.phase = Phase::Measured { since: Instant::now() };
        let Some(line) = &self.args.client else { return };
        let argv = ["sh", "-c", line].map(Into::into);
        let streams = match &self.output {
            Some((file, _)) => captured(file),
            None => Streams::default(),
        };
        let streams = Streams { input: Some(Stdio::null()), ..streams };
        let environment = library::plain_environment();
        match launch::command(Path::new("/bin/sh"), &argv, &environment, streams).spawn() {
            Ok(child) => self.client = Some(child),
            Err(error) => self.fail(status::OURS, format!("the client was not started: {error}")),
        }
    }

    /// The time that is measured is over.
    fn measured(&mut self, since: Instant) {
        let took = since.elapsed();
        let pids = self.pids();
        if pids.is_empty() && self.args.client.is_some() {
            return self.fail(status::OURS, "the command ended before its client did".to_owned());
        }
        self.after = Some((Totals::read(self.dir, &pids), took));
        self.end();
    }

    fn fail(&mut self, status: u8, why: String) {
        self.failure.get_or_insert((status, why));
        self.end();
    }

    /// Asks the client to end, or else the program.
    fn end(&mut self) {
        let (_, found) = ports::listening(&self.pids());
        self.ports.extend(found);
        self.signal(libc::SIGTERM);
        self.phase = Phase::Ending { since: Instant::now(), killed: false };
    }

    fn signal(&self, signal: libc::c_int) {
        let clients = self.clients();
        signal_all(&if clients.is_empty() { self.pids() } else { clients }, signal);
    }

    /// How the client ended, if it has.
    fn client_ended(&mut self) -> Option<ExitStatus> {
        let ended = self.client.as_mut()?.try_wait().ok()??;
        self.client = None;
        Some(ended)
    }

    /// The client ended by itself.
    fn served(&mut self, since: Instant, client: ExitStatus) {
        if client.success() {
            self.client_took = Some(since.elapsed());
            return self.measured(since);
        }
        let ended = Ended { pid: 0, status: client, wall_ns: 0 };
        let last = self.text().lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
        let last = last.map(|line| format!(" ({line})")).unwrap_or_default();
        let hint = match self.args.delay {
            None => "; --delay SECONDS leaves the server more time to start",
            Some(_) => "",
        };
        self.fail(ended.exit_code(), format!("the client ended with {}{last}{hint}", ended.in_words()));
    }

    /// The command's first process has ended: follows what goes on, and waits until all has ended and nothing
    /// keeps its ports.
    fn settle(&mut self, ended: &Ended) {
        self.outlived = true;
        let goes_on = !self.pids().is_empty() && (self.args.r#for.is_some() || self.args.client.is_some());
        match &self.phase {
            Phase::Ending { .. } | Phase::Following { .. } => {}
            _ if !ended.status.success() => {
                self.fail(ended.exit_code(), format!("the command ended with {}", ended.in_words()));
            }
            _ if goes_on || self.client.is_some() => {}
            Phase::Starting { .. } => self.ended_early(),
            Phase::Measured { since } => {
                let all = Duration::from_nanos(ended.wall_ns);
                let took = if is_timed(self.args) { since.elapsed() } else { all };
                self.ended_by_itself(took);
            }
        }
        launch::linger(self, &mut || !descendants(std::process::id()).is_empty());
        match &self.phase {
            Phase::Starting { .. } => self.ended_early(),
            Phase::Measured { since } => self.ended_by_itself(since.elapsed()),
            Phase::Following { .. } | Phase::Ending { .. } => {}
        }
        self.bury();
        let (begun, ports) = (Instant::now(), std::mem::take(&mut self.ports));
        let mut told = false;
        launch::linger(self, &mut || {
            let taken = ports::taken(&ports);
            if !taken.is_empty() && !told && begun.elapsed() >= Duration::from_secs(1) {
                told = true;
                say(format_args!(
                    "port {} is kept by connections that have ended (the server does not set SO_REUSEADDR): the next                      run begins when it is free, in a minute",
                    taken[0]
                ));
            }
            !taken.is_empty() && begun.elapsed() < UP
        });
    }

    fn ended_early(&mut self) {
        let why = match self.args.delay {
            Some(_) => "the command ended before --delay was over",
            None => "the command ended before its client was started",
        };
        self.fail(status::OURS, why.to_owned());
    }

    fn ended_by_itself(&mut self, took: Duration) {
        self.after = Some((Totals::read(self.dir, &[]), took));
        self.by_itself = true;
        self.phase = Phase::Following { since: Instant::now() };
    }

    /// Waits for children that have ended: those that were adopted.
    fn bury(&self) {
        let client = self.client.as_ref().map(Child::id);
        let children = proc::children_of(std::process::id()).into_iter().map(|(pid, _)| pid);
        for pid in children.filter(|pid| self.outlived && Some(*pid) != client) {
            // SAFETY: a null status is not written to.
            unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), libc::WNOHANG) };
        }
    }

    /// What was printed while it was measured, and at the end.
    fn text(&mut self) -> String {
        let Some((file, from)) = &mut self.output else { return String::new() };
        let mut bytes = Vec::new();
        // A file that cannot be read has no text: the failure that follows says that there is none.
        let _ = file.seek(SeekFrom::Start(*from)).and_then(|_| file.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The figures of the run; `cpu_ns` is what all processes took that have ended. Else a status, and why.
    fn measured_run(&mut self, cpu_ns: u64) -> Result<Run, (u8, String)> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (after, wall) = self.after.unwrap_or_default();
        let before = self.before;
        let metric = match &self.args.metric {
            Some(metric) => {
                let whose = if self.args.client.is_some() { "the client" } else { "the command" };
                Some(metric.read(&self.text(), whose).map_err(|why| (status::OURS, why))?)
            }
            None => None,
        };
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let after_cpu = if self.by_itself { cpu_ns } else { after.cpu_ns };
        let (wait_ns, time_ns) =
            (after.wait_ns.saturating_sub(before.wait_ns), after.time_ns.saturating_sub(before.time_ns));
        Ok(Run {
            wall_ns: ns(wall),
            cpu_ns: after_cpu.saturating_sub(before.cpu_ns),
            acquisitions: after.acquired.saturating_sub(before.acquired),
            waits: after.waits.saturating_sub(before.waits),
            wait_ns,
            time_ns,
            share: ratio(wait_ns, time_ns),
            metric,
            client_ns: self.client_took.map(ns),
            by_itself: self.by_itself,
        })
    }
}

impl Meanwhile for Side<'_> {
    fn next(&mut self) -> Option<Duration> {
        match &self.phase {
            Phase::Measured { .. } if self.client.is_some() => Some(CLIENT_LOOK),
            Phase::Measured { since } => match self.args.r#for {
                Some(time) => Some(time.saturating_sub(since.elapsed())),
                None => self.outlived.then_some(LOOK),
            },
            Phase::Starting { .. } => {
                let left = self.args.delay.map(|delay| delay.saturating_sub(self.begun.elapsed()));
                Some(left.map_or(LOOK, |left| left.min(LOOK)))
            }
            Phase::Following { .. } | Phase::Ending { .. } => Some(LOOK),
        }
    }

    fn tick(&mut self) {
        self.bury();
        match self.phase {
            Phase::Starting { .. } => {
                let is_time = match self.args.delay {
                    Some(delay) => self.begun.elapsed() >= delay,
                    None => self.is_up(),
                };
                if is_time {
                    self.measure();
                } else if self.args.delay.is_none() && self.begun.elapsed() >= UP {
                    let why = format!(
                        "the command neither listened nor slept within {} s, so that no client was started; --delay \
                         SECONDS says when to start it",
                        UP.as_secs()
                    );
                    self.fail(status::OURS, why);
                }
            }
            Phase::Measured { since } => {
                if let Some(ended) = self.client_ended() {
                    self.served(since, ended);
                } else if self.args.r#for.is_some_and(|time| since.elapsed() >= time) {
                    self.measured(since);
                }
            }
            Phase::Following { since } if since.elapsed() >= PATIENCE => {
                let who =
                    self.pids().first().map_or("it".to_owned(), |&pid| format!("{} ({pid})", name_of(pid)));
                let why =
                    format!("{who} went on in the background: --for SECONDS says how long to measure it");
                self.fail(status::OURS, why);
            }
            Phase::Ending { since, killed } => {
                if self.client_ended().is_some() {
                    self.end();
                } else if !killed && since.elapsed() >= PATIENCE {
                    say(format_args!(
                        "what was run did not end within {} s of SIGTERM: SIGKILL",
                        PATIENCE.as_secs()
                    ));
                    self.signal(libc::SIGKILL);
                    self.phase = Phase::Ending { since, killed: true };
                }
            }
            Phase::Following { .. } => {}
        }
    }

    /// The program's signals go on to it, but for those that end a run of a time that we say.
    fn keeps(&mut self, signal: libc::c_int) -> bool {
        let ends = launch::ENDING.contains(&signal);
        let ours = is_timed(self.args) || self.outlived;
        if ends {
            self.interrupted = Some(signal);
        }
        if ends && ours && !matches!(self.phase, Phase::Ending { .. }) {
            self.end();
        }
        self.outlived || (ends && ours)
    }

    fn is_over(&self) -> bool {
        self.interrupted.is_some() && descendants(std::process::id()).is_empty()
    }
}
