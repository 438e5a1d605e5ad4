//! Programs and files that tests need and that may not be there.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Says that tests are left out for want of something, once a process, and how to get it.
///
/// # Panics
/// `POUNDLOCK_REAL=require` is in the environment.
#[track_caller]
pub fn missing(what: &str, how: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

    assert!(
        std::env::var_os("POUNDLOCK_REAL").is_none_or(|value| value != "require"),
        "POUNDLOCK_REAL=require, and {what} is missing ({how})"
    );
    if REPORTED.lock().expect("no panic holds this lock").insert(what.to_owned()) {
        // Not eprintln!: the test harness would keep the line to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs {what} ({how})");
    }
}

/// The path of `program`, which is part of a package of Debian and Ubuntu; if it is not installed, none, as
/// [`missing`] has it.
#[track_caller]
#[must_use]
pub fn need(program: &str, package: &str) -> Option<PathBuf> {
    need_that_runs(program, package, &[])
}

/// As [`need`], of a program that ends with status 0 if it is run with these arguments: it may be there
/// without what comes with the package. Without arguments it is not run.
#[track_caller]
#[must_use]
pub fn need_that_runs(program: &str, package: &str, args: &[&str]) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        args.is_empty() || Command::new(path).args(args).output().is_ok_and(|output| output.status.success())
    };
    found_or_missing(find(program).filter(runs), program, package)
}

/// As [`need`], of a file that lies in one of several places.
#[track_caller]
#[must_use]
pub fn need_file(what: &str, mut places: impl Iterator<Item = PathBuf>, package: &str) -> Option<PathBuf> {
    found_or_missing(places.find(|file| file.is_file()), what, package)
}

#[track_caller]
fn found_or_missing(found: Option<PathBuf>, what: &str, package: &str) -> Option<PathBuf> {
    if found.is_none() {
        missing(what, &format!("apt-get install {package}"));
    }
    found
}

/// The path of `program`, if it is installed.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    // The distribution's directories first: in PATH may lie a shell script that chooses between versions, and
    // the test is about the program. Servers lie where PATH does not lead.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let distribution = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
    let directories = distribution.into_iter().chain(std::env::split_paths(&path));
    directories.map(|directory| directory.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
