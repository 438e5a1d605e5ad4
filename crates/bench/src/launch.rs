//! Starts worker processes and brings their answers home.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::error::{Error, Result};
use crate::sem::Mechanism;
use crate::worker::{Answer, Request, Task};

/// Where the benchmark runs from.
#[derive(Clone, Debug)]
pub struct Context {
    /// This executable, which is also the worker's.
    pub program: PathBuf,
    /// The arguments that make it call [`crate::worker::serve`].
    pub worker: Vec<OsString>,
    /// The preload library, or why it was not found.
    pub library: std::result::Result<PathBuf, String>,
    /// The command line, for the record.
    pub command: String,
}

/// What a worker process is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    /// The contender, in messages.
    pub(crate) name: &'static str,
    /// The lock that the preload library is told to use; `None` if the process does without the library.
    pub(crate) ours: Option<&'static str>,
    /// Whether statistics are on.
    pub(crate) stat: bool,
    /// Whether the process is under check.
    pub(crate) check: bool,
    /// By what the process's semaphore arrays are, if it has any.
    pub(crate) semaphores: Option<Mechanism>,
}

impl Process {
    /// The process of a contender that needs neither the library nor statistics.
    pub(crate) fn plain(name: &'static str) -> Process {
        Process { name, ours: None, stat: false, check: false, semaphores: None }
    }
}

/// How much longer than its measurement a worker may take before it counts as hung, and how many times as
/// long on a machine that has other things to do.
const GRACE: Duration = Duration::from_secs(30);
const BUSY: u32 = 20;

impl Context {
    /// The preload library.
    ///
    /// # Errors
    /// If it was not found.
    pub fn library(&self) -> Result<&Path> {
        self.library.as_deref().map_err(|why| Error::Library(why.clone()))
    }

    /// Has `task` done in a process of its own; `takes` is what the measurement takes.
    pub(crate) fn measure(&self, process: Process, task: Task, takes: Duration) -> Result<Answer> {
        let mut command = self.command();
        let library = match process.ours {
            Some(lock) => {
                command.env("POUNDLOCK_LOCK", lock);
                Some(self.library()?.to_owned())
            }
            None => None,
        };
        let statistics = if process.stat || process.check {
            let directory = statistics_directory()?;
            command.env("POUNDLOCK_STAT_DIR", directory.path());
            if process.check {
                command.env("POUNDLOCK_CHECK", "1");
            }
            Some(directory)
        } else {
            None
        };
        let arrays = match process.semaphores {
            Some(mechanism) if mechanism.is_ours() => {
                // Of its own, so that it meets no other arrays and leaves none behind.
                let directory = memory_directory("arrays")?;
                command.env("POUNDLOCK_IPC_DIR", directory.path());
                command.env("POUNDLOCK_SEMAPHORES", format!("ours,{mechanism}"));
                Some(directory)
            }
            _ => None,
        };
        let answer = ask(&mut command, process.name, &Request { library, task }, BUSY * takes + GRACE)?;
        drop(arrays);
        if let Some(directory) = statistics {
            if process.check {
                checked(process.name, directory.path())?;
            } else {
                counted(process.name, directory.path(), &answer)?;
            }
        }
        Ok(answer)
    }

    /// The worker's command, in an environment where nothing but the request chooses the lock.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.worker);
        unchosen(&mut command);
        command
    }
}

/// Has a command begin in an environment that chooses no locks.
pub(crate) fn unchosen(command: &mut Command) {
    for variable in VARIABLES {
        command.env_remove(variable);
    }
}

/// What chooses locks, in the environment.
const VARIABLES: [&str; 8] = [
    "LD_PRELOAD",
    "POUNDLOCK_LOCK",
    "POUNDLOCK_RWLOCK",
    "POUNDLOCK_STAT_DIR",
    "POUNDLOCK_STATS",
    "POUNDLOCK_CHECK",
    "POUNDLOCK_SEMAPHORES",
    "POUNDLOCK_IPC_DIR",
];

/// A directory for statistics, as `poundlock stat` has it.
pub(crate) fn statistics_directory() -> Result<tempfile::TempDir> {
    memory_directory("statistics")
}

/// A directory, in memory where there is one, that vanishes with its handle.
fn memory_directory(what: &str) -> Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    // Arrays that others could reach would be left to the kernel.
    builder.prefix("poundlock-bench-").permissions(fs::Permissions::from_mode(0o700));
    builder
        .tempdir_in("/dev/shm")
        .or_else(|_| builder.tempdir())
        .map_err(Error::system(format!("cannot make a directory for {what}")))
}

/// Makes sure that the statistics in `directory` are those of the measurement: were they off, or another
/// lock's, they would look wonderfully cheap.
fn counted(lock: &str, directory: &Path, answer: &Answer) -> Result<()> {
    let Answer::Figures(samples) = answer else { return Ok(()) };
    let acquired = samples.iter().map(|sample| sample["acquisitions"] as u64).sum();
    let mut counted = 0;
    for entry in fs::read_dir(directory).map_err(Error::system("cannot look for statistics"))? {
        let path = entry.map_err(Error::system("cannot look for statistics"))?.path();
        if path.extension().is_none_or(|extension| extension != "stat") {
            continue;
        }
        let snapshot = poundlock_statfile::read(&path, clock::now_ns())
            .map_err(|error| Error::worker(lock, format!("its statistics are unreadable: {error}")))?;
        if snapshot.lock != lock {
            return Err(Error::worker(lock, format!("the library used {} instead", snapshot.lock)));
        }
        counted += snapshot.locks.iter().map(|lock| lock.acquisitions).sum::<u64>();
    }
    if counted < acquired {
        let message = format!("{acquired} acquisitions, of which the statistics know {counted}");
        return Err(Error::worker(lock, message));
    }
    Ok(())
}

/// Makes sure that the process was under check.
fn checked(lock: &str, directory: &Path) -> Result<()> {
    let mut looked_at = false;
    for entry in fs::read_dir(directory).map_err(Error::system("cannot look for a log"))? {
        let path = entry.map_err(Error::system("cannot look for a log"))?.path();
        let live = poundlock_statfile::Live::open(&path)
            .map_err(|error| Error::worker(lock, format!("its log is unreadable: {error}")))?;
        if live.lock_name() != lock {
            return Err(Error::worker(lock, format!("the library used {} instead", live.lock_name())));
        }
        looked_at |= live.is_checked();
    }
    if looked_at { Ok(()) } else { Err(Error::worker(lock, "it was not checked")) }
}

fn ask(command: &mut Command, contender: &str, request: &Request, limit: Duration) -> Result<Answer> {
    let problem = |message: String| Error::worker(contender, message);
    let request = serde_json::to_vec(request).map_err(|error| problem(error.to_string()))?;
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::system("cannot start a worker"))?;
    let mut child = Killed(child);
    if let Some(mut stdin) = child.0.stdin.take() {
        stdin.write_all(&request).map_err(Error::system("cannot ask the worker"))?;
    }
    let mut stdout = child.0.stdout.take().ok_or_else(|| problem("it has no output".to_owned()))?;
    let (send, answered) = mpsc::channel();
    // It ends with the worker, whom `Killed` ends if need be.
    thread::spawn(move || {
        let mut all = Vec::new();
        let read = stdout.read_to_end(&mut all);
        send.send(read.map(|_| all))
    });
    let answer = answered.recv_timeout(limit);
    let answer = answer.map_err(|_| problem(format!("no answer within {} s: it hangs", limit.as_secs())))?;
    let answer = answer.map_err(|error| problem(format!("cannot read the answer: {error}")))?;
    // Its output is closed, so it is about to end; if not, `Killed` sees to that.
    let status = child.0.wait().map_err(Error::system("cannot wait for the worker"))?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Failed(message)) => Err(problem(message)),
        Ok(answer) if status.success() => Ok(answer),
        _ => Err(problem(format!("the worker ended without an answer ({status})"))),
    }
}

/// A child that does not outlive its handle.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail if it has been waited for already, which is well.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn request() -> Request {
        let task = crate::worker::alone::Task {
            timed: vec![],
            second_thread: false,
            cpu: 0,
            slices: 1,
            slice_ns: 1,
        };
        Request { library: None, task: Task::Alone(task) }
    }

    #[test]
    fn workers_that_hang_die_or_fail_are_reported_in_words() {
        for (script, limit, says) in [
            ("exec sleep 1000", Duration::from_millis(50), "it hangs"),
            ("cat >/dev/null; kill -9 $$", GRACE, "signal: 9"),
            (r#"cat >/dev/null; echo '{"Failed":"out of luck"}'"#, GRACE, "x: out of luck"),
        ] {
            let start = Instant::now();
            let error =
                ask(Command::new("/bin/sh").args(["-c", script]), "x", &request(), limit).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert!(start.elapsed() < Duration::from_secs(100), "the limit does not limit");
        }
    }

    #[test]
    fn ours_needs_the_library() {
        let context = Context {
            program: "/nonexistent".into(),
            worker: vec![],
            library: Err("there is no library".to_owned()),
            command: String::new(),
        };
        let process = Process { ours: Some("poundlock"), ..Process::plain("poundlock") };
        let error = context.measure(process, request().task, Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "there is no library");
    }

    #[test]
    fn statistics_that_do_not_know_of_the_acquisitions_are_found_out() {
        let directory = tempfile::tempdir().unwrap();
        let answer = |acquisitions| Answer::Figures(vec![[("acquisitions".to_owned(), acquisitions)].into()]);
        let error = counted("x", directory.path(), &answer(7.0)).unwrap_err();
        assert_eq!(error.to_string(), "x: 7 acquisitions, of which the statistics know 0");
        counted("x", directory.path(), &answer(0.0)).unwrap();
        fs::write(directory.path().join("1.0.stat"), "what is this").unwrap();
        let error = counted("x", directory.path(), &answer(0.0)).unwrap_err();
        assert!(error.to_string().contains("unreadable"), "{error}");
    }
}
