//! `poundlock torture`: a lock under real threads, signals, cancellation, forks and sudden exits, against a
//! checker of mutual exclusion and of progress.
//!
//! With `--semaphores`, semaphore arrays under many processes instead, against books that must balance:
//! `arrays`.
//!
//! The threads run in a child process, this command once more: see `poundlock-torture`, which also has the
//! watchdog. Here are the options, what the child is told, and what people are.

mod arrays;

use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::SystemTime;

use poundlock_core::qspin::Form;
use poundlock_names::{Choice, LockName, Named, RwLocks};
use poundlock_torture::{ARRAYS, BODY, ChildArgs, MAX_PROCESSES, MAX_THREADS, Outcome, Report, Watch};

use crate::message::{Failure, say, status};
use crate::output::print;
use crate::{library, locks};

/// Exit status when a check failed.
const VIOLATION: u8 = status::NO;

/// What to torture, and for how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The locks to torture: a mutex, a spinlock, or both with a comma between them; `poundlock locks` lists
    /// them, and `glibc` is the program's own
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
    /// Seconds without progress by any thread that count as a hang; a single thread may wait twice, a
    /// signalled one half as long
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

/// Runs the child and watches it.
pub(crate) fn main(args: Args) -> ExitCode {
    match torture(&args) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn torture(args: &Args) -> Result<ExitCode, Failure> {
    let plan = Plan::new(args)?;
    poundlock_torture::heed_signals();
    let mut child = plan.start()?;
    let outcome = plan.watch().watch(&mut child);
    if let Outcome::Violated { .. } = outcome
        && let Some(file) = &args.backtrace
        && let Err(why) = poundlock_torture::backtrace(child.id(), file)
    {
        say(format_args!("torture: {why}"));
    }
    poundlock_torture::end(&mut child);
    let cleared = plan.clear_up();
    let (line, details) = match (outcome, cleared) {
        (Outcome::Interrupted { signal, milliseconds }, _) => {
            let seconds = milliseconds as f64 / 1000.0;
            say(format_args!(
                "torture: interrupted after {seconds:.1} s, without a violation until then ({plan})"
            ));
            return Ok(ExitCode::from(128u8.wrapping_add(signal as u8)));
        }
        (Outcome::Passed(report), Ok(())) => {
            print(&plan.report(&report))?;
            return Ok(ExitCode::SUCCESS);
        }
        (Outcome::Passed(_), Err(line)) => (line, Vec::new()),
        (Outcome::Violated { line, details }, _) => (line, details),
    };
    say(format_args!("torture: violation: {line} ({plan})"));
    for detail in details {
        say(format_args!("torture: {detail}"));
    }
    Ok(ExitCode::from(VIOLATION))
}

/// What the child is told.
struct Plan {
    subject: Subject,
    environment: Vec<library::Change>,
    cpus: usize,
    child: ChildArgs,
}

/// What is tortured.
enum Subject {
    Locks(Choice, RwLocks),
    Arrays(arrays::Arrays),
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Plan { cpus, child: ChildArgs { threads, seed, .. }, .. } = self;
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
        let most = if args.semaphores.is_some() { MAX_PROCESSES } else { MAX_THREADS };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        // How many threads may wait for one spinlock at once where waiters keep their CPUs: with more than
        // there are CPUs, each hand-over takes a time slice of every waiter that spins in place of the holder
        // or of the next in line, and a run would look at little else. Enough for a pending waiter, a queue
        // head and a queue behind it.
        let few = u32::try_from(cpus + 2).unwrap_or(MAX_THREADS);
        let milliseconds = |seconds: f64| (seconds * 1000.0) as u64;
        let mut child = ChildArgs {
            threads: args.threads.unwrap_or_else(|| u32::try_from(8 * cpus + 3).unwrap_or(most)).min(most),
            spinners: few,
            shared_spinners: few,
            reads_once: 0,
            key: 0,
            milliseconds: milliseconds(args.seconds),
            patience_ms: milliseconds(args.patience),
            seed: args.seed.unwrap_or_else(any_seed),
            library: None,
        };
        let ours = match &subject {
            Subject::Locks(lock, rwlocks) => {
                // Of one process alone those whose waiters halt or yield take any number.
                let form = lock.spinlock().unwrap_or_else(poundlock_linux::machine::spinlock);
                if !lock.keeps_everything() && !matches!(form, Form::Native | Form::NativeNuma) {
                    child.spinners = MAX_THREADS;
                }
                child.reads_once = u8::from(*rwlocks == RwLocks::PhaseFair);
                !keeps_all(*lock, *rwlocks)
            }
            Subject::Arrays(arrays) => {
                child.key = arrays.key();
                !arrays.are_the_kernels()
            }
        };
        child.library = ours.then(|| "libpoundlock_preload".to_string());
        Ok(Plan { subject, environment, cpus, child })
    }

    fn watch(&self) -> Watch {
        Watch { milliseconds: self.child.milliseconds, patience_ms: self.child.patience_ms }
    }

    fn start(&self) -> Result<Child, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(status::OURS, format_args!("starting the child: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg(if matches!(self.subject, Subject::Locks(..)) { BODY } else { ARRAYS });
        command.args(self.child.to_strings());
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

    /// Removes what a dead child may have left. An error is a violation: something was left by one that had
    /// passed.
    fn clear_up(&self) -> Result<(), String> {
        match &self.subject {
            Subject::Locks(..) => Ok(()),
            Subject::Arrays(arrays) => arrays.clear_up(self.child.threads),
        }
    }

    fn report(&self, report: &Report) -> String {
        let mut text = String::new();
        let total: u64 = report.locks.iter().map(|(count, _)| count).sum();
        let seconds = self.child.milliseconds as f64 / 1000.0;
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

/// Whether the child has no lock of ours, and needs no library.
fn keeps_all(lock: Choice, rwlocks: RwLocks) -> bool {
    lock.keeps_everything() && rwlocks == RwLocks::Glibc
}

/// Not secret, only different each time.
fn any_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64).rotate_left(20) ^ u64::from(std::process::id())
}
