//! `poundlock record`: a program run with what its threads do with locks written down, for `poundlock
//! predict`.

pub(crate) mod recording;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use poundlock_measure::Summary;
use poundlock_names::{Choice, LockName, RwLocks};
use poundlock_statfile::speed;

use crate::message::{Failure, say, status};
use crate::observe::file::Output;
use crate::observe::place::{self, monotonic_ns};
use crate::output::counted;
use crate::stat::Measured;
use crate::{launch, library, program, run};
use recording::{Overhead, Recording};

/// The library writes the process's life down in this number of chunks.
const VARIABLE: &str = "POUNDLOCK_TRACE";
/// How much is written down of each process, at most, unless it was said.
pub(crate) const ROOM_MIB: u32 = 64;
/// Bytes of a chunk.
const CHUNK: u64 = poundlock_statfile::layout::TRACE_PAGES * poundlock_statfile::layout::PAGE;

/// What to run, and where to write.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the recording to this file
    #[arg(short, long, value_name = "FILE", default_value = "poundlock.recording")]
    output: PathBuf,
    /// How much to write down of each process, at most: it is recorded in short stretches, spread over the
    /// run
    #[arg(long, value_name = "MIB", default_value_t = ROOM_MIB, value_parser = clap::value_parser!(u32).range(1..=1024))]
    room: u32,
    #[command(flatten)]
    run: run::Args,
}

/// Runs the command, writes the recording and passes the command's exit status on.
pub(crate) fn main(args: Args) -> ExitCode {
    match record(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn record(args: &Args) -> Result<u8, Failure> {
    let locks = args.run.locks(LockName::Glibc)?;
    args.run.semaphores()?;
    let program = launch::find(&args.run.command)?;
    program::check(&program)?;
    place::check_file_size()?;
    let output = Output::open(&args.output)?;
    let mut measured = Measured::new(&args.run, &program, locks)?;
    let recorder = Recorder::begin(output, args.room, &args.run, locks, &mut measured)?;
    let ended = launch::run(&program, &args.run.command, &measured.environment)?;
    if let Some(words) = ended.obituary() {
        say(format_args!("{}: {words}", args.run.command[0].display()));
    }
    recorder.finish(&args.output, measured.dir.path(), &measured.command, &ended)?;
    Ok(ended.exit_code())
}

/// What writes a recording of a program that is measured.
pub(crate) struct Recorder {
    output: Output,
    /// What is known before.
    recording: Recording,
    before: Option<(f64, f64)>,
}

impl Recorder {
    /// Before the program starts: its library is told to record, in this number of MiB at most for each
    /// process.
    pub(crate) fn begin(
        output: Output,
        room_mib: u32,
        run: &run::Args,
        locks: (Choice, RwLocks),
        measured: &mut Measured,
    ) -> Result<Recorder, Failure> {
        let overhead = overhead(run, locks)?;
        let (machine, turn_ps) = crate::sim::here()?;
        let chunks = (u64::from(room_mib) << 20) / CHUNK;
        measured.environment.push((OsStr::new(VARIABLE), Some(chunks.to_string().into())));
        let (lock, rwlock) = (locks.0.to_string(), locks.1.to_string());
        let recording = Recording { lock, rwlock, overhead, machine, turn_ps, ..Recording::default() };
        Ok(Recorder { output, recording, before: cpu_time() })
    }

    /// The program has ended, and has left its figures here: the recording is written to the file of this
    /// name.
    pub(crate) fn finish(
        self,
        path: &Path,
        dir: &Path,
        command: &[String],
        ended: &launch::Ended,
    ) -> Result<(), Failure> {
        let Recording { lock, rwlock, overhead, machine, turn_ps, .. } = self.recording;
        let mut recording = Recording {
            command: command.to_vec(),
            lock,
            rwlock,
            overhead,
            machine,
            turn_ps,
            wall_ns: ended.wall_ns,
            ..Recording::read(dir, monotonic_ns())
        };
        if let (Some((all, own)), Some((all_then, own_then))) = (self.before, cpu_time()) {
            let others = (all_then - all) - (own_then - own);
            recording.others = (others / (ended.wall_ns as f64 / 1e9).max(1e-3)).max(0.0);
        }
        if recording.processes.is_empty() {
            let line = "no process used a lock while it was recorded: there is nothing to predict from";
            return Err(Failure::new(status::OURS, line));
        }
        let events = recording.events();
        let stretches: usize = recording.processes.iter().map(|process| process.stretches.len()).sum();
        self.output.write(|out| recording.write(out))?;
        say(format_args!(
            "{} in {} of {}: poundlock predict {}",
            counted(events as u64, "event"),
            counted(stretches as u64, "stretch"),
            counted(recording.processes.len() as u64, "process"),
            path.display()
        ));
        Ok(())
    }
}

/// CPU time in seconds: of all programs on all CPUs, what the host has taken included, and of our own and of
/// those that we have waited for.
fn cpu_time() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let busy: f64 = ticks.iter().take(8).sum::<f64>() - ticks.get(3)? - ticks.get(4)?;
    // SAFETY: takes a number.
    let a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let used = |who| {
        // SAFETY: zero bytes are a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: writes to what is ours.
        unsafe { libc::getrusage(who, &raw mut usage) };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    Some((busy / a_second, used(libc::RUSAGE_SELF) + used(libc::RUSAGE_CHILDREN)))
}

/// What writing down costs between two events, and what `stat` alone costs, on this machine now: a program of
/// ours that does nothing but lock and unlock is run first.
fn overhead(run: &run::Args, locks: (Choice, RwLocks)) -> Result<Overhead, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::new(status::OURS, program::reason(&error)))?;
    let measured = Measured::new(run, &own, locks)?;
    let environment = &measured.environment;
    let record = (OsStr::new(VARIABLE), Some("64".into()));
    let plain = if locks.0.keeps_everything() {
        library::plain_environment()
    } else {
        library::environment_for(&own, locks.0, locks.1)?
    };
    // A figure that is missing is taken for none.
    let costs = (0..5).filter_map(|_| {
        turns_a_pair(&own, environment.iter().chain([&record]))?;
        Some((turns_a_pair(&own, environment.iter())? - turns_a_pair(&own, plain.iter())?).max(0.0))
    });
    let turns = Summary::of(costs).map_or(0.0, |costs| costs.median);
    let gaps = Recording::read(measured.dir.path(), monotonic_ns()).least_gaps();
    Ok(Overhead { stat_ns: (turns * f64::from(gaps.turn_ps) / 1e3) as u64, ..gaps })
}

/// What that program says, with these changes to its environment.
fn turns_a_pair<'a>(own: &Path, changes: impl Iterator<Item = &'a library::Change>) -> Option<f64> {
    let mut command = Command::new(own);
    command.arg(BODY).stdin(Stdio::null()).stderr(Stdio::null());
    for (name, value) in changes {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    std::str::from_utf8(&command.output().ok()?.stdout).ok()?.trim().parse().ok()
}

/// The name of the program that only locks and unlocks.
pub(crate) const BODY: &str = "record-overhead";

/// It. It prints how long a pair took, in turns of [`compute`](speed::compute) then, which are as much longer
/// on a CPU that is slow at the moment.
pub(crate) fn body() -> ExitCode {
    const PARTS: usize = 200;
    const PAIRS: u32 = 1_000;
    const TURNS: u32 = 4_000;
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    let part = |_| {
        let begun = Instant::now();
        for _ in 0..PAIRS {
            // SAFETY: our own mutex, locked and unlocked by this thread.
            unsafe {
                libc::pthread_mutex_lock(&raw mut mutex);
                libc::pthread_mutex_unlock(&raw mut mutex);
            }
        }
        let pairs = begun.elapsed();
        speed::compute(TURNS);
        let turns = begun.elapsed() - pairs;
        pairs.as_secs_f64() / f64::from(PAIRS) * f64::from(TURNS) / turns.as_secs_f64()
    };
    if let Some(pairs) = Summary::of((0..PARTS).map(part)) {
        println!("{}", pairs.median);
    }
    ExitCode::SUCCESS
}
