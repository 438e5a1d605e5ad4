//! Tests that must not meet others, and threads that are seen asleep.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{scratch, target_directory};

/// Names the test that a process was started for.
const ALONE: &str = "POUNDLOCK_TEST_ALONE";
/// Set by what runs all tests: a directory for one test.
pub(crate) const SCRATCH: &str = "POUNDLOCK_TEST_SCRATCH";

/// Whether all that tests start is built, because all of them are run.
#[must_use]
pub fn all_is_built() -> bool {
    std::env::var_os(SCRATCH).is_some()
}

/// For a test that changes, or counts, what belongs to its whole process: true once it has run again in a
/// process of its own, and passed there. False in that process, where it is to go on.
///
/// # Panics
/// It did not pass.
#[track_caller]
pub fn elsewhere() -> bool {
    let thread = std::thread::current();
    let test = thread.name().expect("the harness names a test's thread after the test");
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return false;
    }
    let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
    // Nor does it share its semaphores with the tests beside this one.
    command.args([test, "--exact", "--nocapture"]).env(ALONE, test).env_remove("POUNDLOCK_IPC_DIR");
    let status = command.status();
    let status = status.expect("a test can be started");
    assert!(status.success(), "{test}, in a process of its own: {status}");
    true
}

/// Keeps tests of this name from running at the same time, also in other processes, until it is dropped.
///
/// # Panics
/// A file in the target directory cannot be locked.
#[must_use]
pub fn one_at_a_time(name: &str) -> File {
    let path = target_directory().join(format!("tmp/{name}.lock"));
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("the target directory is ours");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // SAFETY: our descriptor.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0, "{}", path.display());
    file
}

/// Whether a thread of this process sleeps.
#[must_use]
pub fn asleep(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
}

/// A directory that `make` fills with what several tests use: once for all that run together, else once for
/// each call.
///
/// # Panics
/// The target directory cannot be written to.
pub fn once_a_run(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let Some(scratch) = std::env::var_os(SCRATCH).map(PathBuf::from) else {
        let directory = scratch();
        make(&directory);
        return directory;
    };
    let directory = scratch.parent().expect("a test's directory lies in the run's").join(name);
    let done = directory.with_extension("done");
    let _alone = one_at_a_time(name);
    if !done.exists() {
        std::fs::create_dir_all(&directory).expect("the run's directory is ours");
        make(&directory);
        std::fs::write(done, "").expect("the run's directory is ours");
    }
    directory
}
