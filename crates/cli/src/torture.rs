//! `poundlock torture`: a lock under real threads, signals, cancellation, forks and sudden exits, against a checker of
//! mutual exclusion and of progress.
//!
//! With `--semaphores`, semaphore arrays under many processes instead, against books that must balance: `arrays`.
//!
//! The threads run in a child process: this command once more, started as `poundlock run` starts a program, so that the
//! pthread symbols are those that users get. Its body is C (`csrc/torture`, which also says why). Here are the options,
//! the child's watchdog and the report. The child writes lines on its standard output, a pipe:
//!
//! | line | meaning |
//! | --- | --- |
//! | `beat MS N` | the child's monitor is alive; MS of its own clock have passed, N critical sections were entered |
//! | `lock N NAME`, `count N TEXT` | the report |
//! | `done` | all checks passed |
//! | `violation TEXT` | a check failed; `thread ...` and `array ...` lines and `end` follow, and the child stands still |

mod arrays;
mod rwlocks;

use std::ffi::{CString, OsString, c_char, c_uint};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use poundlock_core::qspin::Form;
use poundlock_names::{Choice, LockName, Named, RwLocks};

use crate::message::{Failure, say, status};
use crate::output::print;
use crate::{library, locks};

/// Exit status when a check failed.
const VIOLATION: u8 = 1;

/// As many slots as the body has.
const MAX_THREADS: u32 = 4096;

/// How often the watchdog looks up, if nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// What to torture, and for how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The locks to torture: a mutex, a spinlock, or both with a comma between them; `poundlock locks` lists them, and
    /// `glibc` is the program's own
    #[arg(long, value_name = "NAME", default_value_t = LockName::DEFAULT.to_string())]
    lock: String,
    /// The readers-writer locks to torture beside them, as for `poundlock run`
    #[arg(long, value_name = "NAME")]
    rwlock: Option<String>,
    /// Torture semaphore arrays instead: whose, and perhaps which variant, as for `poundlock run`
    #[arg(long, value_name = "VALUE", conflicts_with = "lock")]
    semaphores: Option<String>,
    /// How long
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = positive_seconds)]
    seconds: f64,
    /// Worker threads; or worker processes, of up to 3 threads each, with --semaphores (at most 256 count)
    /// [default: 8 for each CPU, and 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(MAX_THREADS)))]
    threads: Option<u32>,
    /// Seed of every random choice, as printed by an earlier run [default: another each time]
    #[arg(long, value_name = "X", value_parser = seed)]
    seed: Option<u64>,
    /// Seconds without progress by any thread that count as a hang; a single thread may wait twice, a signalled one half
    /// as long
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = positive_seconds)]
    patience: f64,
    /// After a violation, write a backtrace of every thread, as gdb sees it, to this file
    #[arg(long, value_name = "FILE")]
    backtrace: Option<PathBuf>,
}

fn positive_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e7).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0.1 to 10000000".to_string()),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|error| error.to_string())
}

/// The hidden subcommand that the child process runs.
#[derive(clap::Args)]
pub(crate) struct BodyArgs {
    threads: u32,
    spinners: u32,
    shared_spinners: u32,
    /// Whether a thread may not read twice, whatever the kind: 0 or 1
    reads_once: u8,
    milliseconds: u64,
    patience_ms: u64,
    seed: u64,
    /// Part of the name of the library that must serve the pthread symbols
    library: Option<String>,
}

unsafe extern "C" {
    /// See `csrc/torture/body.c`. `library` is null or a string.
    fn poundlock_torture_body(
        library: *const c_char,
        threads: c_uint,
        spinners: c_uint,
        shared_spinners: c_uint,
        reads_once: bool,
        milliseconds: u64,
        patience_ms: u64,
        seed: u64,
    );
}

/// The child process.
pub(crate) fn body(args: BodyArgs) -> ExitCode {
    let library = args.library.and_then(|name| CString::new(name).ok());
    let pointer = library.as_deref().map_or(std::ptr::null(), |name| name.as_ptr());
    rwlocks::prepare();
    // SAFETY: the string lives until the call returns. The threads that the body starts have no Rust frame on their
    // stacks, and are gone when it returns; this thread is never cancelled.
    unsafe {
        poundlock_torture_body(
            pointer,
            args.threads,
            args.spinners,
            args.shared_spinners,
            args.reads_once != 0,
            args.milliseconds,
            args.patience_ms,
            args.seed,
        );
    }
    ExitCode::SUCCESS
}

/// Runs the child and watches it.
pub(crate) fn main(args: Args) -> ExitCode {
    match torture(&args) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn torture(args: &Args) -> Result<ExitCode, Failure> {
    let plan = Plan::new(args)?;
    heed_signals();
    let mut child = plan.start()?;
    let outcome = plan.watch(&mut child);
    if let Outcome::Interrupted { signal, milliseconds } = outcome {
        end(&mut child);
        let _ = plan.clear_up();
        let seconds = milliseconds as f64 / 1000.0;
        say(format_args!(
            "torture: interrupted after {seconds:.1} s, without a violation until then ({plan})"
        ));
        return Ok(ExitCode::from(128u8.wrapping_add(signal as u8)));
    }
    if let Outcome::Violated { line, details } = outcome {
        if let Some(file) = &args.backtrace {
            backtrace(child.id(), file);
        }
        end(&mut child);
        let _ = plan.clear_up();
        say(format_args!("torture: violation: {line} ({plan})"));
        for detail in details {
            say(format_args!("torture: {detail}"));
        }
        return Ok(ExitCode::from(VIOLATION));
    }
    let Outcome::Passed(report) = outcome else { unreachable!("the third of three outcomes") };
    end(&mut child);
    if let Err(line) = plan.clear_up() {
        say(format_args!("torture: violation: {line} ({plan})"));
        return Ok(ExitCode::from(VIOLATION));
    }
    print(&plan.report(&report))?;
    Ok(ExitCode::SUCCESS)
}

/// What the child is told.
struct Plan {
    subject: Subject,
    environment: Vec<library::Change>,
    threads: u32,
    cpus: usize,
    milliseconds: u64,
    patience_ms: u64,
    seed: u64,
}

/// What is tortured.
enum Subject {
    Locks(Choice, RwLocks),
    Arrays(arrays::Arrays),
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { threads, cpus, seed, .. } = self;
        match &self.subject {
            Subject::Locks(lock, rwlocks) => {
                write!(f, "lock {}", lock.mutex())?;
                if let Some(spinlock) = lock.spinlock() {
                    write!(f, ", spinlock {}", spinlock.name())?;
                }
                if *rwlocks != RwLocks::of(*lock, None) {
                    write!(f, ", rwlock {rwlocks}")?;
                }
                write!(f, ", {threads} threads")?;
            }
            Subject::Arrays(arrays) => write!(f, "semaphores {arrays}, {threads} processes")?,
        }
        write!(f, " on {cpus} CPUs, seed {seed:#x}")
    }
}

/// How it went.
enum Outcome {
    Passed(Report),
    Violated {
        line: String,
        details: Vec<String>,
    },
    /// By this signal, after so long.
    Interrupted {
        signal: i32,
        milliseconds: u64,
    },
}

/// What the child did.
#[derive(Default)]
struct Report {
    locks: Vec<(u64, String)>,
    counts: Vec<(u64, String)>,
}

impl Plan {
    fn new(args: &Args) -> Result<Plan, Failure> {
        let (subject, environment) = match &args.semaphores {
            Some(value) => {
                let (arrays, environment) = arrays::Arrays::new(value)?;
                (Subject::Arrays(arrays), environment)
            }
            None => {
                let (lock, rwlocks) = locks::parse_both(&args.lock, args.rwlock.as_deref())?;
                let environment = if keeps_all(lock, rwlocks) {
                    library::plain_environment()
                } else {
                    library::environment(lock, rwlocks)?
                };
                (Subject::Locks(lock, rwlocks), environment)
            }
        };
        let most = if args.semaphores.is_some() { arrays::MAX_PROCESSES } else { MAX_THREADS };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = args.threads.unwrap_or_else(|| u32::try_from(8 * cpus + 3).unwrap_or(most)).min(most);
        let milliseconds = |seconds: f64| (seconds * 1000.0) as u64;
        Ok(Plan {
            subject,
            environment,
            threads,
            cpus,
            milliseconds: milliseconds(args.seconds),
            patience_ms: milliseconds(args.patience),
            seed: args.seed.unwrap_or_else(any_seed),
        })
    }

    /// How many threads may wait for one spinlock at once where waiters keep their CPUs: with more than there are CPUs, each
    /// hand-over takes a time slice of every waiter that spins in place of the holder or of the next in line, and a run
    /// would look at little else. Enough for a pending waiter, a queue head and a queue behind it.
    fn few_spinners(&self) -> u32 {
        u32::try_from(self.cpus + 2).unwrap_or(MAX_THREADS)
    }

    /// The same for spinlocks of one process alone: those whose waiters halt or yield take any number.
    fn spinners(&self, lock: Choice) -> u32 {
        let form = lock.spinlock().unwrap_or_else(poundlock_linux::machine::spinlock);
        if lock.keeps_everything() || form == Form::Native { self.few_spinners() } else { MAX_THREADS }
    }

    fn start(&self) -> Result<Child, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(status::OURS, format_args!("starting the child: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        let times = [self.milliseconds, self.patience_ms, self.seed].map(|number| number.to_string());
        let plain = match &self.subject {
            Subject::Locks(lock, rwlocks) => {
                let spinners = [self.spinners(*lock), self.few_spinners()];
                command.arg(BODY).arg(self.threads.to_string());
                command.args(spinners.map(|number| number.to_string()));
                command.arg(u8::from(*rwlocks == RwLocks::PhaseFair).to_string()).args(times);
                keeps_all(*lock, *rwlocks)
            }
            Subject::Arrays(arrays) => {
                command.arg(ARRAYS).arg(self.threads.to_string()).args(times).arg(arrays.key().to_string());
                arrays.are_the_kernels()
            }
        };
        if !plain {
            command.arg("libpoundlock_preload");
        }
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // A group of its own, so that it can be ended with whatever it forked.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        command.spawn().map_err(failed)
    }

    /// Removes what a dead child may have left. An error is a violation: something was left by one that had passed.
    fn clear_up(&self) -> Result<(), String> {
        match &self.subject {
            Subject::Locks(..) => Ok(()),
            Subject::Arrays(arrays) => arrays.clear_up(self.threads),
        }
    }

    /// Reads what the child says until it has passed, failed, ended, or said nothing for too long.
    fn watch(&self, child: &mut Child) -> Outcome {
        let lines = lines_of(child);
        let violated = |line: String| Outcome::Violated { line, details: Vec::new() };
        let progress = std::io::stderr().is_terminal();
        let mut report = Report::default();
        let mut violation: Option<(String, Vec<String>)> = None;
        let mut silent = Duration::ZERO;
        let mut passed = 0;
        let patience = Duration::from_millis(self.patience_ms);
        loop {
            let signal = SIGNAL.load(Relaxed);
            if signal != 0 && violation.is_none() {
                clear(progress);
                return Outcome::Interrupted { signal, milliseconds: passed };
            }
            let line = match lines.recv_timeout(LOOK) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    // Counted in looks, not by the clock: a machine that was suspended is no hang.
                    silent += LOOK;
                    if silent < patience {
                        continue;
                    }
                    return match violation {
                        Some((line, details)) => Outcome::Violated { line, details },
                        None => violated(format!(
                            "the process stopped: no sign of life for {} s",
                            patience.as_secs_f64()
                        )),
                    };
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = match child.wait() {
                        Ok(status) => match (status.code(), status.signal()) {
                            (Some(code), _) => format!("with exit status {code}"),
                            (None, signal) => format!("of signal {}", signal.unwrap_or(0)),
                        },
                        Err(error) => format!("unaccountably: {error}"),
                    };
                    return match violation {
                        Some((line, details)) => Outcome::Violated { line, details },
                        None => violated(format!("the process ended early, {ended}")),
                    };
                }
            };
            silent = Duration::ZERO;
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match (word, &mut violation) {
                ("beat", _) => {
                    let mut numbers = rest.split(' ').map(|number| number.parse::<u64>().unwrap_or(0));
                    let (ms, sections) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                    passed = ms;
                    if progress {
                        let left = self.milliseconds.saturating_sub(ms) as f64 / 1000.0;
                        let _ = write!(
                            std::io::stderr(),
                            "\r{sections:12} critical sections, {left:.1} s to go\x1b[K"
                        );
                    }
                    if ms > self.milliseconds + 4 * self.patience_ms && violation.is_none() {
                        return violated(format!(
                            "the threads did not come to an end in {} s",
                            4.0 * patience.as_secs_f64()
                        ));
                    }
                }
                ("lock", None) => report.locks.extend(numbered(rest)),
                ("count", None) => report.counts.extend(numbered(rest)),
                ("done", None) => {
                    clear(progress);
                    return Outcome::Passed(report);
                }
                ("violation", None) => {
                    clear(progress);
                    violation = Some((rest.to_string(), Vec::new()));
                }
                ("thread" | "array", Some((_, details))) => details.push(line),
                ("end", Some(_)) => {
                    let (line, details) = violation.unwrap_or_default();
                    return Outcome::Violated { line, details };
                }
                (_, Some(_)) => {}
                (_, None) => {
                    return violated(format!("something wrote on the process's standard output: {line:?}"));
                }
            }
        }
    }

    fn report(&self, report: &Report) -> String {
        let mut text = String::new();
        let total: u64 = report.locks.iter().map(|(count, _)| count).sum();
        let seconds = self.milliseconds as f64 / 1000.0;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{total:>12}  critical sections, of which on");
        for (count, name) in &report.locks {
            let _ = writeln!(text, "{count:>12}    {name}");
        }
        let _ = writeln!(text);
        for (count, name) in &report.counts {
            let _ = writeln!(text, "{count:>12}  {name}");
        }
        // Last, where it is read.
        let _ = writeln!(text, "\n{self}: no violation in {seconds} s");
        text
    }
}

/// The hidden subcommand's name.
pub(crate) const BODY: &str = "torture-body";
/// That of the process that `--semaphores` watches.
pub(crate) const ARRAYS: &str = "torture-arrays";
/// That of what some of its children become.
pub(crate) const EXECUTED: &str = "torture-executed";

pub(crate) use arrays::{ArraysArgs, ExecutedArgs, body as arrays_body, executed};

/// Whether the child has no lock of ours, and needs no library.
fn keeps_all(lock: Choice, rwlocks: RwLocks) -> bool {
    lock.keeps_everything() && rwlocks == RwLocks::Glibc
}

/// The signal that asks us to end; 0 while there is none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Has the signals by which a run is ended noted, rather than end us: the seed would be lost, the child left.
fn heed_signals() {
    extern "C" fn note(signal: libc::c_int) {
        SIGNAL.store(signal, Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic and does nothing else. A signal that we were started to
        // ignore stays ignored.
        unsafe {
            if libc::signal(signal, note as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

/// Not secret, only different each time.
fn any_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64).rotate_left(20) ^ u64::from(std::process::id())
}

fn numbered(text: &str) -> Option<(u64, String)> {
    let (number, name) = text.split_once(' ')?;
    Some((number.parse().ok()?, name.to_string()))
}

fn clear(progress: bool) {
    if progress {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// The child's standard output, line by line, from a thread that does nothing else.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while let Ok(1..) = reader.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_string();
                line.clear();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

/// Ends the child and all that it forked.
fn end(child: &mut Child) {
    if let Ok(group) = libc::pid_t::try_from(child.id()) {
        // SAFETY: kill takes two numbers. The child was started as the leader of a group of its own, and the group's id
        // is not given out again while the child has not been waited for or another member is alive.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.wait();
}

/// The child stands still: gdb, if there is one, says where.
fn backtrace(pid: u32, file: &std::path::Path) {
    let arguments: [OsString; 6] = [
        "-p".into(),
        pid.to_string().into(),
        "-batch".into(),
        "-nx".into(),
        "-ex".into(),
        "thread apply all bt".into(),
    ];
    // Without what was preloaded into us: those may be the locks that are broken.
    let mut gdb = Command::new("gdb");
    gdb.args(arguments).env_remove("LD_PRELOAD").stdin(Stdio::null());
    match gdb.output() {
        Ok(output) => {
            // What it complained about explains what is missing.
            if let Err(error) = std::fs::write(file, [output.stdout, output.stderr].concat()) {
                say(format_args!("torture: {}: {error}", file.display()));
            }
        }
        Err(error) => say(format_args!("torture: no backtrace: gdb: {error}")),
    }
}
