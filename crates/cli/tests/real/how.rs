//! The ways to run a program, and a running one.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::LIMIT;
use crate::report::Report;
use crate::support::{self, Started};

/// A way to run a program. `None` is the default lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// On glibc, without Poundlock: the control.
    Plain,
    /// `poundlock run`.
    Run(Option<&'static str>),
    /// `poundlock stat`.
    Stat(Option<&'static str>),
}

/// A command prepared to run in one of the ways.
pub(crate) struct Launch {
    how: How,
    command: Command,
    /// `program` and its arguments, as the report is to name them.
    words: Vec<String>,
    /// Holds the report.
    dir: TempDir,
}

/// What a finished command leaves.
pub(crate) struct Finished {
    pub(crate) stdout: String,
    pub(crate) stdout_bytes: Vec<u8>,
    pub(crate) stderr: String,
    /// From `stat` only; already checked for sanity.
    pub(crate) report: Option<Report>,
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
                for name in ["LD_PRELOAD", "POUNDLOCK_LOCK", "POUNDLOCK_STAT_DIR"] {
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
                command.arg("--json").arg(dir.path().join("report.json")).arg("--").arg(program);
                command
            }
        };
        command.args(args);
        let words = std::iter::once(program.as_os_str())
            .chain(args.iter().map(AsRef::as_ref))
            .map(|word| word.to_str().expect("the tests use UTF-8 only").to_owned())
            .collect();
        Launch { how: self, command, words, dir }
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

    /// Runs to the end, with `input` as standard input; fails if it does not exit with status 0 in time.
    #[track_caller]
    pub(crate) fn finish_with_input(mut self, input: &[u8]) -> Finished {
        let output = support::run_limited_with_input(&mut self.command, input, LIMIT);
        self.finished(output)
    }

    /// As [`Launch::finish_with_input`], with empty input.
    #[track_caller]
    pub(crate) fn finish(self) -> Finished {
        self.finish_with_input(b"")
    }

    #[track_caller]
    pub(crate) fn start(mut self) -> Running {
        let started = support::start(&mut self.command);
        Running { inner: Some((self, started)) }
    }

    #[track_caller]
    fn finished(self, output: Output) -> Finished {
        support::expect_status(&output, 0);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut report = None;
        if let How::Stat(lock) = self.how {
            let lock = lock.unwrap_or("any-negative");
            report = Some(Report::read(&self.dir.path().join("report.json"), &self.words, lock));
            assert!(stderr.contains("acquisitions"), "no table on standard error:\n{stderr}");
        }
        Finished {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stdout_bytes: output.stdout,
            stderr,
            report,
        }
    }
}

impl Running {
    /// Sends a signal to what was started: `poundlock`, or the program itself where it runs plainly.
    pub(crate) fn signal(&self, signal: i32) {
        self.started().kill(signal);
    }

    /// Calls `ready` until it has something. Fails, with what was written, if the command ends before or [`LIMIT`] is
    /// over.
    #[track_caller]
    pub(crate) fn wait_until<T>(&mut self, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(LIMIT);
        loop {
            if let Some(value) = ready() {
                return value;
            }
            let ended = self.has_ended();
            if ended || Instant::now() > deadline {
                let (launch, started) = self.inner.take().expect("not finished");
                if !ended {
                    started.kill_group(libc::SIGKILL);
                }
                let output = started.finish(LIMIT);
                panic!(
                    "{:?} {}: {what} never came about\n{}",
                    launch.how,
                    launch.words[0],
                    transcript(&output)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end; fails if that is not exit status 0 in time.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        let (launch, started) = self.inner.take().expect("finished once");
        launch.finished(started.finish(LIMIT))
    }

    fn has_ended(&self) -> bool {
        // Field 3, behind the name in parentheses, which may hold anything. A zombie's id is still its own.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.started().id())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('Z'))
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

fn transcript(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        support::ending(output.status),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
