//! Whole programs, as they are and under `poundlock run`.
//!
//! Programs differ in what limits them, and most wait for locks little: what this shows is that ours does
//! them no harm, and which of them gain.

mod known;
mod served;

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use poundlock_names::LockName;
use serde::{Serialize, Serializer};

use crate::clock::{self, Usage};
use crate::error::{Error, Result};
use crate::launch::{self, Context};
use crate::machine::Machine;
use crate::progress;
use crate::report::{Limit, Report, Table, Target, median, spread};
use crate::stats::Summary;
use known::{Known, Work};

/// No program is to be slower.
const AS_FAST: Limit = Limit::AtLeast(0.98);
/// Whoever is faster by that much in three of four rounds gains.
const GAIN: f64 = 1.02;

/// What to measure and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// The mutexes of ours; the default if empty.
    pub locks: Vec<LockName>,
    /// Names of the known programs; all that are installed if empty.
    pub only: Vec<String>,
    /// A command and its arguments, to be measured instead of the known programs if not empty.
    pub command: Vec<OsString>,
    /// Rounds in which each program runs once on each lock.
    pub rounds: usize,
    /// Measure programs that end with another exit code than 0, too.
    pub ignore_failure: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            locks: Vec::new(),
            only: Vec::new(),
            command: Vec::new(),
            rounds: 11,
            ignore_failure: false,
        }
    }
}

/// The names of the programs that are known.
pub fn names() -> impl Iterator<Item = &'static str> {
    known::ALL.iter().map(|known| known.name)
}

/// A program on a lock.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The program.
    pub program: String,
    /// The lock.
    #[serde(serialize_with = "name")]
    pub lock: LockName,
    /// Milliseconds that its work takes: the whole command, or of a server all its answers.
    pub ms: Summary,
    /// Milliseconds of CPU time, of the program and its children.
    pub cpu_ms: Summary,
    /// How many times as fast as on the C library's locks, in the same round.
    pub speed: Option<Summary>,
    /// CPU time as a multiple of that on the C library's locks.
    pub cpu: Option<Summary>,
    /// The command's exit code in each round.
    pub exit_codes: Vec<i32>,
}

fn name<S: Serializer>(lock: &LockName, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(lock.name())
}

/// The figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// What they were measured on.
    pub machine: Machine,
    /// Rounds.
    pub rounds: usize,
    /// Programs that are not installed, a line each.
    pub absent: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// What Poundlock wants to reach.
    pub targets: Vec<Target>,
}

/// A program that is ready to run.
struct Ready {
    name: String,
    work: Work,
    /// Its files; removed when the run is over.
    directory: tempfile::TempDir,
}

/// What one run of a program took.
struct Took {
    ms: f64,
    cpu_ms: f64,
    exit_code: i32,
}

/// Measures.
///
/// # Errors
/// If the preload library or a named program is missing, or a program does not succeed.
pub fn run(context: &Context, options: &Options) -> Result<Figures> {
    if options.rounds == 0 {
        return Err(Error::Options("at least one round is needed".to_owned()));
    }
    let library = context.library()?;
    let locks = locks(&options.locks);
    let (ready, absent) = prepare(options)?;
    let machine = Machine::describe(&context.command);

    let places: Vec<(usize, usize)> =
        (0..ready.len()).flat_map(|program| (0..locks.len()).map(move |lock| (program, lock))).collect();
    let mut taken: Vec<Vec<Took>> = places.iter().map(|_| Vec::new()).collect();
    let what = |place: usize| {
        let (program, lock) = places[place];
        format!("{} on {}", ready[program].name, locks[lock])
    };
    progress::rounds(options.rounds, places.len(), what, |place| {
        let (program, lock) = places[place];
        let start = |argv: &[OsString]| command(context, library, locks[lock], argv);
        taken[place].push(measure(&ready[program], &start, options.ignore_failure).map_err(|error| {
            Error::Options(format!("{} on {}: {error}", ready[program].name, locks[lock]))
        })?);
        Ok(())
    })?;

    let mut rows = Vec::new();
    for (&(program, lock), took) in places.iter().zip(&taken) {
        // Places of a program begin with that of the reference.
        let reference = &taken[program * locks.len()];
        let ratio = |of: fn(&Took, &Took) -> f64| {
            let ratios = took.iter().zip(reference).map(|(took, reference)| of(took, reference));
            if lock == 0 { None } else { Summary::of(ratios) }
        };
        let ms = Summary::of(took.iter().map(|took| took.ms));
        let cpu_ms = Summary::of(took.iter().map(|took| took.cpu_ms));
        if let (Some(ms), Some(cpu_ms)) = (ms, cpu_ms) {
            rows.push(Row {
                program: ready[program].name.clone(),
                lock: locks[lock],
                ms,
                cpu_ms,
                speed: ratio(|took, reference| reference.ms / took.ms),
                cpu: ratio(|took, reference| took.cpu_ms / reference.cpu_ms),
                exit_codes: took.iter().map(|took| took.exit_code).collect(),
            });
        }
    }
    let targets = ready
        .iter()
        .map(|Ready { name, .. }| {
            let of = rows.iter().filter(|row| row.program == *name && row.lock != LockName::Glibc);
            let results = of.map(|row| (row.lock.name(), row.speed));
            Target::new(format!("{name}: speed, of that on the C library's locks"), AS_FAST, "", results)
        })
        .collect();
    Ok(Figures { machine, rounds: options.rounds, absent, rows, targets })
}

/// The reference first.
fn locks(wanted: &[LockName]) -> Vec<LockName> {
    let mut locks = vec![LockName::Glibc];
    let default = [LockName::DEFAULT];
    for &lock in if wanted.is_empty() { &default } else { wanted } {
        if !locks.contains(&lock) {
            locks.push(lock);
        }
    }
    locks
}

fn prepare(options: &Options) -> Result<(Vec<Ready>, Vec<String>)> {
    let directory = || {
        let made = tempfile::Builder::new().prefix("poundlock-bench-").tempdir();
        made.map_err(Error::system("cannot make a temporary directory"))
    };
    if let Some(program) = options.command.first() {
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        let work = Work::Command(options.command.clone());
        return Ok((vec![Ready { name, work, directory: directory()? }], Vec::new()));
    }
    if let Some(stranger) = options.only.iter().find(|name| !names().any(|known| known == **name)) {
        let names: Vec<_> = names().collect();
        return Err(Error::Options(format!(
            "no program is called '{stranger}'; there are {}",
            names.join(", ")
        )));
    }
    let mut ready = Vec::new();
    let mut absent = Vec::new();
    for known in known::ALL {
        let named = options.only.iter().any(|name| name == known.name);
        if !(named || options.only.is_empty()) {
            continue;
        }
        match missing(known) {
            Some(why) if named => return Err(Error::Options(why)),
            Some(why) => absent.push(why),
            None => {
                let directory = directory()?;
                let work = (known.prepare)(directory.path())?;
                ready.push(Ready { name: known.name.to_owned(), work, directory });
            }
        }
    }
    if ready.is_empty() {
        return Err(Error::Options(format!("nothing to measure: {}", absent.join("; "))));
    }
    Ok((ready, absent))
}

fn missing(known: &Known) -> Option<String> {
    known.needs.iter().find(|program| known::installed(program).is_none()).map(|program| {
        format!("{}: {program} is not installed (Debian and Ubuntu: {})", known.name, known.package)
    })
}

/// The program as it is, or under `poundlock run`.
fn command(context: &Context, library: &Path, lock: LockName, argv: &[OsString]) -> Command {
    let mut command = if lock == LockName::Glibc {
        Command::new(&argv[0])
    } else {
        let mut run = Command::new(&context.program);
        run.args(["run", "--lock", lock.name(), "--"]).arg(&argv[0]);
        // The library that we measure, however it was found.
        run.env("POUNDLOCK_PRELOAD_LIB", library);
        run
    };
    command.args(&argv[1..]);
    launch::unchosen(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn measure(ready: &Ready, start: &dyn Fn(&[OsString]) -> Command, ignore_failure: bool) -> Result<Took> {
    let directory = ready.directory.path();
    let before = Usage::of_children();
    let (ms, exit_code) = match &ready.work {
        Work::Command(argv) => to_its_end(&mut start(argv), ignore_failure)?,
        Work::Served(service) => (served::answers(service, directory, start)?, 0),
    };
    Ok(Took { ms, cpu_ms: Usage::of_children().since(&before).cpu_ns as f64 / 1e6, exit_code })
}

/// Exit codes by which `run`, like `env` and the shells, says that there was no program to speak of.
const NOT_RUN: RangeInclusive<i32> = 125..=127;

/// Milliseconds from the start of a command to its end, and its exit code. That is 0 unless failures are
/// ignored; a command that did not run, and one that a signal ended, have no figure in either case.
fn to_its_end(command: &mut Command, ignore_failure: bool) -> Result<(f64, i32)> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let begin = clock::now_ns();
    let output = command.output().map_err(Error::system(format!("cannot start {shown}")))?;
    let ns = clock::now_ns() - begin;
    let ignorable = output.status.code().filter(|code| *code == 0 || !NOT_RUN.contains(code));
    if let Some(code) = ignorable.filter(|code| *code == 0 || ignore_failure) {
        return Ok((ns as f64 / 1e6, code));
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .map_or_else(String::new, |line| format!(": {line}"));
    let hint = if ignorable.is_some() { "; -i measures it all the same" } else { "" };
    Err(Error::Options(format!("it did not succeed ({}){last}{hint}", output.status)))
}

impl Figures {
    fn verdict(row: &Row) -> &'static str {
        let Limit::AtLeast(least) = AS_FAST else { return "" };
        match row.speed {
            Some(speed) if speed.q1 >= GAIN => "gains",
            Some(speed) if speed.median < least => "slower",
            _ => "",
        }
    }
}

impl Report for Figures {
    fn title(&self) -> &'static str {
        "Whole programs"
    }

    fn method(&self) -> String {
        let absent = if self.absent.is_empty() {
            String::new()
        } else {
            format!(" Left out: {}.", self.absent.join("; "))
        };
        let ended = |row: &Row| {
            let failed = row.exit_codes.iter().filter(|code| **code != 0).count();
            let mut codes: Vec<i32> = row.exit_codes.iter().copied().filter(|code| *code != 0).collect();
            codes.sort_unstable();
            codes.dedup();
            let codes: Vec<_> = codes.iter().map(i32::to_string).collect();
            (failed > 0).then(|| {
                let (program, lock, of) = (&row.program, row.lock.name(), row.exit_codes.len());
                format!("{program} on {lock} ended with {} in {failed} of {of} rounds", codes.join(" or "))
            })
        };
        let failures: Vec<String> = self.rows.iter().filter_map(ended).collect();
        let failures = if failures.is_empty() {
            String::new()
        } else {
            format!(" Exit codes other than 0 were ignored: {}.", failures.join("; "))
        };
        format!(
            "Each program does a fixed amount of work: from the start of the command to its end, `poundlock run` included; of \
             memcached and Apache, from the first of their clients' requests to the last answer. {} rounds, in each all programs \
             on all locks in random order; speed and CPU time are compared inside a round, and the figures are medians. \
             A program gains that was faster by 2 % in three rounds of four.{absent}{failures}",
            self.rounds,
        )
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn tables(&self) -> Vec<Table> {
        let headings =
            ["program", "lock", "", "ms", "spread", "of glibc's speed", "spread", "CPU ms", "of glibc's"];
        let mut table =
            Table::new("Programs on the C library's locks and under `poundlock run`", 3, &headings);
        for row in &self.rows {
            table.rows.push(vec![
                row.program.clone(),
                row.lock.name().to_owned(),
                Self::verdict(row).to_owned(),
                median(Some(row.ms), 0),
                spread(Some(row.ms), 0),
                median(row.speed, 2),
                spread(row.speed, 2),
                median(Some(row.cpu_ms), 0),
                median(row.cpu, 2),
            ]);
        }
        vec![table]
    }

    fn targets(&self) -> &[Target] {
        &self.targets
    }
}

/// A path as an argument.
fn argument(path: PathBuf) -> OsString {
    path.into_os_string()
}

/// A command line of words.
fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(|&word| OsStr::new(word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context {
            program: "/x/poundlock".into(),
            worker: vec![],
            library: Ok("/x/lib.so".into()),
            command: String::new(),
        }
    }

    #[test]
    fn a_program_runs_as_it_is_or_under_run() {
        let line = |lock| {
            let command = command(&context(), Path::new("/x/lib.so"), lock, &words(&["true", "--run"]));
            let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
            format!("{} {}", command.get_program().to_string_lossy(), args.join(" "))
        };
        assert_eq!(line(LockName::Glibc), "true --run");
        assert_eq!(line(LockName::Handoff), "/x/poundlock run --lock handoff -- true --run");
    }

    #[test]
    fn the_reference_is_always_there_once() {
        let ours = LockName::DEFAULT;
        assert_eq!(locks(&[]), [LockName::Glibc, ours]);
        assert_eq!(locks(&[ours, LockName::Glibc, ours]), [LockName::Glibc, ours]);
    }

    #[test]
    fn strangers_are_refused_with_the_names_there_are() {
        let error = |only: &[&str]| {
            let only = only.iter().map(|&name| name.to_owned()).collect();
            run(&context(), &Options { only, ..Options::default() }).unwrap_err().to_string()
        };
        let message = error(&["xz", "emacs"]);
        assert!(message.contains("'emacs'") && message.contains("memcached"), "{message}");
    }

    #[test]
    fn a_command_that_fails_gives_no_figure() {
        let end = |script: &str, ignore| {
            let mut command = Command::new("sh");
            to_its_end(command.args(["-c", script]).stderr(Stdio::piped()), ignore)
                .map(|(_, code)| code)
                .map_err(|error| error.to_string())
        };
        let message = end("echo no >&2; exit 3", false).unwrap_err();
        assert!(message.contains("did not succeed (exit status: 3): no; -i measures"), "{message}");
        assert_eq!(end("echo no >&2; exit 3", true), Ok(3));
        assert_eq!(end("exit 0", true), Ok(0));
        // It did not run, or it crashed.
        for script in ["exit 125", "exit 126", "exit 127", "kill -SEGV $$"] {
            for ignore in [false, true] {
                let message = end(script, ignore).unwrap_err();
                assert!(message.contains("did not succeed") && !message.contains("-i"), "{message}");
            }
        }
    }
}
