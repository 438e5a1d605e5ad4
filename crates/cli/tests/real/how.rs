//! The ways to run a program, and a running one.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use poundlock_core::qspin::Form;
use poundlock_names::Named;
use tempfile::TempDir;

use crate::real::report::Report;
use crate::support::LIMIT;
use crate::support::{self, Started};

/// A way to run a program. `None` is the default: our lock under `run`, the program's own under `stat`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// On glibc, without Poundlock: the control.
    Plain,
    /// `poundlock run`.
    Run(Option<&'static str>),
    /// `poundlock stat`.
    Stat(Option<&'static str>),
    /// `poundlock check`: nothing may be found but what is true of the program, which it names.
    Check(Option<&'static str>),
}

/// A command prepared to run in one of the ways.
pub(crate) struct Launch {
    how: How,
    command: Command,
    /// `program` and its arguments, as the report is to name them.
    words: Vec<String>,
    /// Holds the report.
    dir: TempDir,
    /// Under `check`: what is true of the program.
    known: &'static [Known],
}

/// A finding of `check` that was looked into, and is true of a program: docs/CHECKING.md has it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) kind: &'static str,
    /// A function in one of its stacks.
    pub(crate) function: &'static str,
}

/// What a finished command leaves.
pub(crate) struct Finished {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    /// From `stat` only; already checked for sanity.
    pub(crate) report: Option<Report>,
}

impl Finished {
    /// Standard output, where it is text.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("standard output is text")
    }
}

/// A command that runs. Killed, with all it started, if the test ends without [`Running::finish`].
pub(crate) struct Running {
    /// `None` once finished.
    inner: Option<(Launch, Started)>,
}

impl How {
    pub(crate) fn launch<S: AsRef<OsStr>>(self, program: &Path, args: &[S]) -> Launch {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let mut command = match self {
            How::Plain => {
                let mut command = Command::new(program);
                for name in [
                    "LD_PRELOAD",
                    "POUNDLOCK_LOCK",
                    "POUNDLOCK_SEMAPHORES",
                    "POUNDLOCK_STAT_DIR",
                    "POUNDLOCK_CHECK",
                ] {
                    command.env_remove(name);
                }
                command
            }
            How::Run(lock) => {
                let mut command = support::poundlock();
                command.arg("run");
                lock_option(&mut command, lock);
                command.arg("--").arg(program);
                command
            }
            How::Stat(lock) => {
                let mut command = support::poundlock();
                command.arg("stat");
                lock_option(&mut command, lock);
                command.args(["--each", "--json"]).arg(dir.path().join("report.json")).arg("--").arg(program);
                command
            }
            How::Check(lock) => {
                let mut command = support::poundlock();
                command.arg("check");
                lock_option(&mut command, lock);
                command.arg("-o").arg(dir.path().join("report"));
                command.arg("--json").arg(dir.path().join("check.json")).arg("--").arg(program);
                command
            }
        };
        command.args(args);
        let words = std::iter::once(program.as_os_str())
            .chain(args.iter().map(AsRef::as_ref))
            .map(|word| word.to_str().expect("the tests use UTF-8 only").to_owned())
            .collect();
        Launch { how: self, command, words, dir, known: &[] }
    }
}

fn lock_option(command: &mut Command, lock: Option<&str>) {
    if let Some(lock) = lock {
        command.args(["--lock", lock]);
    }
}

impl Launch {
    pub(crate) fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Names what `check` finds, and is true of the program.
    pub(crate) fn known(mut self, known: &'static [Known]) -> Self {
        self.known = known;
        self
    }

    /// Runs to the end; fails if it does not exit with status 0 in time.
    #[track_caller]
    pub(crate) fn finish(self) -> Finished {
        self.start().finish()
    }

    #[track_caller]
    pub(crate) fn start(mut self) -> Running {
        let started = support::start(self.command.stdin(Stdio::null()));
        Running { inner: Some((self, started)) }
    }

    #[track_caller]
    fn finished(self, output: Output) -> Finished {
        support::expect_status(&output, 0);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut report = None;
        if let How::Stat(lock) = self.how {
            let lock = lock.unwrap_or("glibc");
            report = Some(Report::read(&self.dir.path().join("report.json"), &self.words, lock));
            // A spinlock's name alone leaves the mutex to us.
            let mutex = if Form::parse(lock).is_some() { "poundlock" } else { lock };
            let table = format!("\nlocks measured: mutex {mutex}");
            assert!(stderr.contains(&table), "no table on standard error:\n{stderr}");
        }
        if let How::Check(_) = self.how {
            self.expect_nothing_new();
        }
        Finished { stdout: output.stdout, stderr, report }
    }
}

impl Launch {
    /// Checks that nothing was found but what is known, and that something was looked at.
    #[track_caller]
    fn expect_nothing_new(&self) {
        let document = support::parsed(&self.dir.path().join("check.json"));
        let report = std::fs::read_to_string(self.dir.path().join("report")).expect("the text of the report");
        let is_known = |finding: &serde_json::Value| {
            let stacks = support::list(finding, "stacks").iter();
            let mut frames =
                stacks.flat_map(|stack| support::list(stack, "frames")).filter_map(|f| f.as_str());
            self.known.iter().any(|known| {
                finding["kind"] == known.kind && frames.any(|frame| frame.starts_with(known.function))
            })
        };
        let new = support::list(&document, "findings").iter().filter(|finding| !is_known(finding));
        let new: Vec<_> = new.map(|finding| &finding["headline"]).collect();
        assert!(new.is_empty(), "{:?} {}: {new:#?}\n{report}", self.how, self.words.join(" "));
        assert!(support::number(&document["seen"], "threads") > 0, "{report}");
        let unseen = document["unseen"].as_object().expect("what found no room");
        assert!(unseen.values().all(|count| count.as_u64().is_none_or(|count| count == 0)), "{report}");
    }
}

impl Running {
    /// Sends a signal to what was started: `poundlock`, or the program itself where it runs plainly.
    pub(crate) fn signal(&self, signal: i32) {
        self.started().kill(signal);
    }

    /// Calls `ready` until it has something. Fails, with what was written, if the command ends before or
    /// [`LIMIT`] is over.
    #[track_caller]
    pub(crate) fn wait_until<T>(&mut self, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(LIMIT);
        loop {
            if let Some(value) = ready() {
                return value;
            }
            if self.has_ended() {
                self.fail(&format!("ended before {what}"));
            }
            if Instant::now() > deadline {
                self.fail(&format!("no {what} after {LIMIT} s"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end; fails if that is not exit status 0 in time.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        let deadline = Instant::now() + Duration::from_secs(LIMIT);
        while !self.has_ended() {
            if Instant::now() > deadline {
                self.fail(&format!("did not end within {LIMIT} s"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let (launch, started) = self.inner.take().expect("finished once");
        launch.finished(started.finish(LIMIT))
    }

    /// Kills the command and fails with all there is to know: what it wrote, and where its threads stood.
    #[track_caller]
    fn fail(&mut self, why: &str) -> ! {
        let (launch, started) = self.inner.take().expect("not finished");
        let stacks = if ended(started.id()) { String::new() } else { stacks(started.id()) };
        started.kill_group(libc::SIGKILL);
        let output = started.finish(LIMIT);
        panic!(
            "{:?} {}: {why}; {}\n--- stdout\n{}\n--- stderr\n{}\n{stacks}",
            launch.how,
            launch.words.join(" "),
            support::ending(output.status),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn has_ended(&self) -> bool {
        ended(self.started().id())
    }

    fn started(&self) -> &Started {
        &self.inner.as_ref().expect("not finished").1
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((_, started)) = self.inner.take() {
            started.kill_group(libc::SIGKILL);
        }
    }
}

/// Whether a child of ours has ended. It has not been waited for, so that its id is still its own.
fn ended(id: i32) -> bool {
    process_fields(id).is_none_or(|(state, _)| state == "Z")
}

/// State and process group of a process: fields 3 and 5, behind the name in parentheses, which may hold
/// anything.
fn process_fields(id: i32) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
}

/// The stacks of all threads of the processes of a group, where gdb is installed.
fn stacks(group: i32) -> String {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|&id| process_fields(id).is_some_and(|(_, its_group)| its_group == group))
        .filter_map(|id| {
            let args = ["-batch", "-nx", "-ex", "thread apply all backtrace 12", "-p", &id.to_string()];
            let output = Command::new("timeout").arg("60").arg("gdb").args(args).output().ok()?;
            Some(format!("--- stacks of {id}\n{}\n", String::from_utf8_lossy(&output.stdout)))
        })
        .collect()
}
