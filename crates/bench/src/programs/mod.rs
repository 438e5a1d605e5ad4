//! Whole programs, as they are and under `poundlock run`.
//!
//! Programs differ in what limits them, and most wait for locks little: what this shows is that ours does
//! them no harm, and which of them gain.

mod known;
mod served;
mod validated;

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use poundlock_names::LockName;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::launch::{self, Context};
use crate::plan::{Absent, Labels, Plan, Preset, Row, Rows, Sample};
use crate::report::{Limit, Table, Target, median, spread};
use crate::{Usage, clock};
use known::{Known, Work};
pub use validated::{Validated, table, validated};

/// No program is to be slower.
const AS_FAST: f64 = 0.98;
/// Whoever is faster by that much in three of four rounds gains.
const GAIN: f64 = 1.02;

/// What to measure and how often.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Only these locks of ours (the C library's always take part) [default: the one that `run` takes]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = mutex)]
    #[serde(serialize_with = "names_of")]
    pub locks: Vec<LockName>,
    /// Only these of the known programs
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', conflicts_with = "command")]
    pub only: Vec<String>,
    /// Rounds in which each program runs once on each lock
    #[arg(long, value_name = "N", default_value_t = 11)]
    pub rounds: usize,
    /// Share of their usual work that the known programs do; Java's, Python's and stress-ng's do all of it at
    /// least
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub work: f64,
    /// Measure programs that end with another exit code than 0, too
    #[arg(short, long)]
    pub ignore_failure: bool,
    /// Measure this instead of the known programs: a command that ends by itself
    #[arg(last = true, value_name = "COMMAND")]
    #[serde(skip)]
    pub command: Vec<OsString>,
}

fn mutex(name: &str) -> std::result::Result<LockName, String> {
    LockName::parse(name).ok_or_else(|| {
        let names: Vec<_> = LockName::ALL.into_iter().map(LockName::name).collect();
        format!("no mutex is called '{name}'; there are {}", names.join(", "))
    })
}

/// A share of the programs' usual work.
pub(crate) fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().map_err(|_| "it is a number".to_owned())?;
    if share > 0.0 && share <= 100.0 {
        Ok(share)
    } else {
        Err("it lies above 0, and at 100 at most".to_owned())
    }
}

/// How a report says that the programs did another share than all of it.
pub(crate) fn of_usual(share: f64) -> String {
    if share == 1.0 { String::new() } else { format!(" Their work was {share} times the usual.") }
}

fn names_of<S: serde::Serializer>(locks: &[LockName], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(locks.iter().map(|lock| lock.name()))
}

/// A program that is ready to run.
struct Ready {
    name: String,
    work: Work,
    /// Its files; removed when the run is over.
    directory: tempfile::TempDir,
}

fn directory() -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("poundlock-bench-").tempdir();
    made.map_err(Error::system("cannot make a temporary directory"))
}

impl Ready {
    fn new(known: &Known, share: f64) -> Result<Ready> {
        let directory = directory()?;
        let work = (known.prepare)(directory.path(), share)?;
        Ok(Ready { name: known.name.to_owned(), work, directory })
    }
}

/// Programs that take locks often, to be run as they are and under `poundlock stat`; and who is not
/// installed.
pub(crate) fn counted(share: f64) -> Result<(Vec<Counted>, Absent)> {
    of(known::COUNTED, share)
}

/// The same of those to be run under `poundlock check`.
pub(crate) fn checked() -> Result<(Vec<Counted>, Absent)> {
    of(known::CHECKED, 1.0)
}

fn of(all: &[Known], share: f64) -> Result<(Vec<Counted>, Absent)> {
    let (mut ready, mut absent) = (Vec::new(), Vec::new());
    for known in all {
        match missing(known.needs, known.package) {
            Some(why) => absent.push((known.name, why)),
            None => ready.push(Counted { name: known.name, ready: Rc::new(Ready::new(known, share)?) }),
        }
    }
    Ok((ready, absent))
}

/// One of them.
#[derive(Clone)]
pub(crate) struct Counted {
    pub(crate) name: &'static str,
    ready: Rc<Ready>,
}

impl Counted {
    /// How long it takes over its work, in milliseconds by its own clock, or its clients'; and of `stat` the
    /// share of a CPU that looks at its threads take, in per cent.
    pub(crate) fn measure(&self, context: &Context, stat: bool) -> Result<Sample> {
        let library = context.library()?;
        let directory = self.ready.directory.path();
        let (report, document) = (directory.join("report"), directory.join("report.json"));
        let start = |argv: &[OsString]| {
            let mut command = if stat {
                let mut command = Command::new(&context.program);
                command.args(["stat", "--lock", "glibc", "--output"]).arg(&report);
                command.arg("--json").arg(&document).arg("--").arg(&argv[0]);
                // The library that we measure, however it was found.
                command.env("POUNDLOCK_PRELOAD_LIB", library);
                command
            } else {
                Command::new(&argv[0])
            };
            command.args(&argv[1..]);
            launch::unchosen(&mut command);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let failed = |why: String| Error::Failed(format!("{}: {why}", self.name));
        let ms = match &self.ready.work {
            Work::Served(service) => served::answers(service, directory, &start)?,
            Work::Command(argv) => {
                let mut command = start(argv);
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                let output =
                    command.output().map_err(Error::system(format!("cannot start {}", self.name)))?;
                let told = [output.stdout, output.stderr].concat();
                let told = String::from_utf8_lossy(&told);
                let seconds = Some(&*told).filter(|_| output.status.success()).and_then(own_seconds);
                seconds.ok_or_else(|| failed(format!("it did not say how long it took: {told}")))? * 1e3
            }
        };
        let mut sample = Sample::from([("ms".to_owned(), ms)]);
        if stat {
            let read = |file| std::fs::read_to_string(file).map_err(Error::system("cannot read the report"));
            let report = read(&report)?;
            if !report.contains("locks measured") {
                return Err(failed(format!("it was not measured: {report}")));
            }
            let document: serde_json::Value = serde_json::from_str(&read(&document)?)
                .map_err(|error| failed(format!("the report is no JSON: {error}")))?;
            let sampled = |name: &str| document["sampled"][name].as_f64().unwrap_or(0.0);
            sample.insert("looks".to_owned(), 100.0 * sampled("cost_ns") / sampled("watched_ns").max(1.0));
        }
        Ok(sample)
    }
}

/// A way to run a program, to see what checking costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As it is.
    Bare,
    /// Under `poundlock run`.
    Run,
    /// Under `poundlock check`.
    Check,
    /// Under valgrind's helgrind, for this number of seconds at most.
    Helgrind(u64),
}

/// Where valgrind is.
pub(crate) fn valgrind() -> Option<PathBuf> {
    known::installed("valgrind")
}

impl Counted {
    /// How long it takes from its start to its end, of a server how long its clients take, in milliseconds.
    /// Nothing if it did not end under helgrind.
    pub(crate) fn checked_ms(&self, context: &Context, way: Way) -> Result<Option<f64>> {
        let library = context.library()?;
        let directory = self.ready.directory.path();
        let report = directory.join("check.json");
        let start = |argv: &[OsString]| {
            let mut command = match way {
                Way::Bare => Command::new(&argv[0]),
                Way::Run | Way::Check => {
                    let mut command = Command::new(&context.program);
                    command.arg(if way == Way::Run { "run" } else { "check" });
                    if way == Way::Check {
                        command.arg("--json").arg(&report);
                    }
                    command.arg("--").arg(&argv[0]);
                    // The library that we measure, however it was found.
                    command.env("POUNDLOCK_PRELOAD_LIB", library);
                    command
                }
                Way::Helgrind(seconds) => {
                    let mut command = Command::new("timeout");
                    // Valgrind keeps a JVM's other signals waiting.
                    command.arg("--signal=KILL").arg(seconds.to_string());
                    command.arg(valgrind().unwrap_or_else(|| "valgrind".into()));
                    command.args(["--tool=helgrind", "-q", "--log-file=/dev/null"]).arg(&argv[0]);
                    command
                }
            };
            command.args(&argv[1..]);
            launch::unchosen(&mut command);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command
        };
        let measured = measure(&self.ready, &start, false);
        if matches!(way, Way::Helgrind(_)) {
            return Ok(measured.ok().map(|sample| sample["ms"]));
        }
        let failed = |why: String| Error::Failed(format!("{} ({way:?}): {why}", self.name));
        let sample = measured.map_err(|error| failed(error.to_string()))?;
        if way == Way::Check {
            let report = std::fs::read_to_string(&report).map_err(Error::system("cannot read the report"))?;
            let report: Value = serde_json::from_str(&report).map_err(|error| failed(error.to_string()))?;
            if report["seen"]["threads"].as_u64().is_none_or(|threads| threads == 0) {
                return Err(failed("it was not checked".to_owned()));
            }
        }
        Ok(Some(sample["ms"]))
    }
}

/// How long a program says that it worked, in seconds: `in 1.5 s` or, by sysbench, `total time: 1.5s`.
fn own_seconds(told: &str) -> Option<f64> {
    told.lines().find_map(|line| {
        let time = match line.trim().strip_prefix("total time:") {
            Some(time) => time,
            None => line.rsplit_once(" in ")?.1.strip_suffix(" s")?,
        };
        time.trim().trim_end_matches('s').parse().ok()
    })
}

impl Options {
    /// The locks, the reference first, without repeats.
    fn all_locks(&self) -> Vec<LockName> {
        let default = [LockName::DEFAULT];
        let mut locks = vec![LockName::Glibc];
        for &lock in if self.locks.is_empty() { &default[..] } else { &self.locks } {
            if !locks.contains(&lock) {
                locks.push(lock);
            }
        }
        locks
    }

    /// The programs, and who is not installed.
    fn prepare(&self) -> Result<(Vec<Ready>, Absent)> {
        if let Some(program) = self.command.first() {
            let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
            let work = Work::Command(self.command.clone());
            return Ok((vec![Ready { name, work, directory: directory()? }], Vec::new()));
        }
        let known = |name: &String| known::ALL.iter().any(|known| known.name == *name);
        if let Some(stranger) = self.only.iter().find(|name| !known(name)) {
            let names: Vec<_> = known::ALL.iter().map(|known| known.name).collect();
            let message = format!("no program is called '{stranger}'; there are {}", names.join(", "));
            return Err(Error::Options(message));
        }
        let (mut ready, mut absent) = (Vec::new(), Vec::new());
        for known in known::ALL {
            let named = self.only.iter().any(|name| name == known.name);
            if !(named || self.only.is_empty()) {
                continue;
            }
            match missing(known.needs, known.package) {
                Some(why) if named => return Err(Error::Failed(format!("{}: {why}", known.name))),
                Some(why) => absent.push((known.name, why)),
                None => ready.push(Ready::new(known, self.work)?),
            }
        }
        if ready.is_empty() {
            let absent: Vec<_> = absent.iter().map(|(name, why)| format!("{name}: {why}")).collect();
            return Err(Error::Failed(format!("nothing to measure: {}", absent.join("; "))));
        }
        Ok((ready, absent))
    }
}

impl Preset for Options {
    const TITLE: &'static str = "Whole programs";
    const TARGETS: &'static str = "Targets (they are about the default lock; the others for comparison)";

    fn common(&self) -> (usize, Option<usize>) {
        (self.rounds, None)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let library = plan.context.library()?.to_owned();
        let (ready, absent) = self.prepare()?;
        plan.absent = absent;
        for program in ready.into_iter().map(Rc::new) {
            for lock in self.all_locks() {
                let (program, library, ignore_failure) =
                    (Rc::clone(&program), library.clone(), self.ignore_failure);
                let labels = vec![("program", program.name.clone().into())];
                plan.here("rows", program.name.clone(), lock.name(), labels, move |context| {
                    let start = |argv: &[OsString]| command(context, &library, lock, argv);
                    measure(&program, &start, ignore_failure)
                        .map_err(|error| Error::Failed(format!("{} on {lock}: {error}", program.name)))
                });
            }
        }
        let reference = || vec![("lock", LockName::Glibc.name().into())];
        let not_itself = |labels: &Labels| !labels.contains(&("lock", LockName::Glibc.name().into()));
        plan.of("rows", "speed", "ms", reference()).how(|own, reference| reference / own).only(not_itself);
        plan.of("rows", "cpu", "cpu_ms", reference()).only(not_itself);
        Ok(())
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let told = |verdict: &str| rows.of("rows").filter(|row| self::verdict(row) == verdict).count();
        let of = rows.of("rows").filter(|row| row.get("speed").is_some()).count();
        Some(format!(
            "Of {of} comparisons with the C library's locks {} gain and {} are slower.",
            told("gains"),
            told("slower")
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        let failures: Vec<String> = rows.of("rows").filter_map(failures).collect();
        let failures = if failures.is_empty() {
            String::new()
        } else {
            format!(" Exit codes other than 0 were ignored: {}.", failures.join("; "))
        };
        format!(
            "Each program does a fixed amount of work: from the start of the command to its end, `poundlock \
                run` included; of \
             memcached and Apache, from the first of their clients' requests to the last answer. {} rounds, \
             in each the programs \
             in random order, and each on all locks in random order; speed and CPU time are compared inside \
             a round, and the \
             figures are medians. A program gains that was faster by 2 % in three rounds of four.{}{failures}",
            self.rounds,
            of_usual(self.work),
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        let headings =
            ["program", "lock", "", "ms", "spread", "of glibc's speed", "spread", "CPU ms", "of glibc's"];
        let mut table =
            Table::new("Programs on the C library's locks and under `poundlock run`", 3, &headings);
        for row in rows.of("rows") {
            table.rows.push(vec![
                row.label("program").as_str().unwrap_or_default().to_owned(),
                row.who.to_owned(),
                verdict(row).to_owned(),
                median(row.get("ms"), 0),
                spread(row.get("ms"), 0),
                median(row.get("speed"), 2),
                spread(row.get("speed"), 2),
                median(row.get("cpu_ms"), 0),
                median(row.get("cpu"), 2),
            ]);
        }
        vec![table]
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let target = |[program]: [Value; 1]| {
            let of = rows.of("rows").filter(|row| row.is("program", program.clone()));
            let name = program.as_str().unwrap_or_default();
            let figure = format!("{name}: speed, of that on the C library's locks");
            Target::new(figure, Limit::AtLeast(AS_FAST), "", of.map(|row| (row.who, row.get("speed"))))
        };
        rows.values("rows", ["program"]).into_iter().map(target).collect()
    }

    fn extra(&self, rows: &Rows) -> Vec<(&'static str, Value)> {
        let absent: Vec<_> = rows.absent.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        vec![("rounds", self.rounds.into()), ("work", self.work.into()), ("absent", json!(absent))]
    }
}

fn verdict(row: &Row) -> &'static str {
    match row.get("speed") {
        Some(speed) if speed.q1 >= GAIN => "gains",
        Some(speed) if speed.median < AS_FAST => "slower",
        _ => "",
    }
}

/// With which codes other than 0 a program ended, if it did.
fn failures(row: &Row) -> Option<String> {
    let mut codes: Vec<f64> = row.rounds().iter().map(|round| round["exit_code"]).collect();
    let of = codes.len();
    codes.retain(|code| *code != 0.0);
    let failed = codes.len();
    codes.sort_unstable_by(f64::total_cmp);
    codes.dedup();
    let codes: Vec<_> = codes.iter().map(f64::to_string).collect();
    let (program, lock) = (row.label("program"), row.who);
    let what = format!("{} on {lock} ended with {}", program.as_str()?, codes.join(" or "));
    (failed > 0).then(|| format!("{what} in {failed} of {of} rounds"))
}

fn missing(needs: &[&str], package: &str) -> Option<String> {
    let program = needs.iter().find(|program| known::installed(program).is_none())?;
    Some(format!("{program} is not installed (Debian and Ubuntu: {package})"))
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

fn measure(ready: &Ready, start: &dyn Fn(&[OsString]) -> Command, ignore_failure: bool) -> Result<Sample> {
    let directory = ready.directory.path();
    let before = Usage::of_children();
    let (ms, exit_code) = match &ready.work {
        Work::Command(argv) => to_its_end(&mut start(argv), ignore_failure)?,
        Work::Served(service) => (served::answers(service, directory, start)?, 0),
    };
    let cpu_ms = Usage::of_children().since(&before).cpu_ns as f64 / 1e6;
    let figures = [("ms", ms), ("cpu_ms", cpu_ms), ("exit_code", f64::from(exit_code))];
    Ok(figures.map(|(name, value)| (name.to_owned(), value)).into())
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
    Err(Error::Failed(format!("it did not succeed ({}){last}{hint}", output.status)))
}

/// A command line of words.
fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(|&word| OsStr::new(word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::by_default;

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
    fn programs_say_how_long_they_took() {
        let sysbench = "General statistics:\n    total time:                          0.9317s\n";
        assert_eq!(own_seconds(sysbench), Some(0.9317));
        assert_eq!(own_seconds("made in 3 steps\nlogtally: 4 lines by 8 threads in 0.517 s\n"), Some(0.517));
        assert_eq!(own_seconds("in no time"), None);
    }

    #[test]
    fn the_reference_is_always_there_once() {
        let ours = LockName::DEFAULT;
        for named in [&[][..], &[ours, LockName::Glibc, ours]] {
            let options = Options { locks: named.to_vec(), ..by_default() };
            assert_eq!(options.all_locks(), [LockName::Glibc, ours]);
        }
    }

    #[test]
    fn strangers_are_refused_with_the_names_there_are() {
        let options = Options { only: vec!["xz".to_owned(), "emacs".to_owned()], ..by_default() };
        let message = options.prepare().err().unwrap().to_string();
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
