//! Programs in C and C++, each compiled once.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::isolation::{SCRATCH, all_is_built};
use crate::{LIMIT, expect_status, run_limited};

/// The target directory, in which the test that asks was built.
///
/// # Panics
/// It was not built by cargo.
#[must_use]
pub fn target_directory() -> PathBuf {
    profile_directory().parent().expect("it lies in the target directory").to_owned()
}

/// The directory of programs and libraries of the profile that the test was built in.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    // PROFILE/deps/TEST, and PROFILE/PROGRAM.
    let mut directories = test.ancestors().skip(1);
    directories.find(|path| !path.ends_with("deps")).expect("a profile has a directory").to_owned()
}

/// The preload library as it is released, whatever profile the test was built in.
///
/// # Panics
/// It cannot be built.
#[track_caller]
#[must_use]
pub fn preload_library() -> PathBuf {
    built_as("release", "libpoundlock_preload.so", "poundlock-preload", &[])
}

/// A file that cargo makes of these targets of a package, in the profile that the test was built in. What
/// runs all tests has built it before.
///
/// # Panics
/// It cannot be built.
#[track_caller]
#[must_use]
pub fn built(file: &str, package: &str, targets: &[&str]) -> PathBuf {
    let directory = profile_directory();
    let name = directory.file_name().and_then(OsStr::to_str).filter(|name| *name != "debug");
    built_as(name.unwrap_or("dev"), file, package, targets)
}

#[track_caller]
fn built_as(profile: &str, file: &str, package: &str, targets: &[&str]) -> PathBuf {
    let directory = target_directory().join(if profile == "dev" { "debug" } else { profile });
    if !all_is_built() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", package]).args(targets).args(["--profile", profile]);
        cargo.arg("--target-dir").arg(target_directory()).current_dir(env!("CARGO_MANIFEST_DIR"));
        expect_status(&run_limited(&mut cargo, LIMIT), 0);
    }
    let path = directory.join(file);
    assert!(path.is_file(), "there is no {}", path.display());
    path
}

/// A new directory. What runs all tests removes it after the test; else it stays in the target directory.
///
/// # Panics
/// It cannot be made.
#[must_use]
pub fn scratch() -> PathBuf {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let parent = std::env::var_os(SCRATCH).map(PathBuf::from);
    let parent = parent.unwrap_or_else(|| target_directory().join("tmp"));
    let directory = parent.join(format!("{}.{serial}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a scratch directory can be made");
    directory
}

/// Builds `target` from a source by this command, which is complete but for `-o TARGET`, or takes it from an
/// earlier test that did just so. Headers count as the same if everything beside the source is.
///
/// # Panics
/// The compiler finds errors.
#[track_caller]
pub fn build(command: &mut Command, source: &Path, target: &Path) {
    let mut read = vec![source.to_owned()];
    let beside = std::fs::read_dir(source.parent().expect("a file lies in a directory"));
    let beside = beside.expect("it can be listed").map(|entry| entry.expect("it can be read").path());
    read.extend(beside.filter(|path| path.extension().is_some_and(|kind| kind == "h")));
    made(command.arg("-o").arg(target), &read, target);
}

/// Makes `target` by this command, which names it and reads these files, or takes it from an earlier test: in
/// this run or in one before, by the same program.
///
/// # Panics
/// The command fails.
#[track_caller]
pub fn made(command: &mut Command, read: &[PathBuf], target: &Path) {
    let mut hash = DefaultHasher::new();
    // Where tests have their files makes no difference.
    let mut line = format!("{command:?}");
    for place in places(target) {
        line = line.replace(&place, "$ORIGIN");
    }
    line.hash(&mut hash);
    if let Some(program) = command.get_program().to_str().and_then(crate::find)
        && let Ok(about) = std::fs::metadata(&program)
    {
        (about.len(), about.mtime()).hash(&mut hash);
    }
    let mut read = read.to_vec();
    read.sort();
    for path in read {
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).hash(&mut hash);
    }
    let kept = target_directory().join("tmp/compiled").join(format!("{:016x}", hash.finish()));
    if std::fs::hard_link(&kept, target).is_ok() {
        return;
    }
    let output = run_limited(command, LIMIT);
    assert!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    std::fs::create_dir_all(kept.parent().expect("in a directory")).expect("the target directory is ours");
    // Another test may have been faster: its file is as good.
    let _ = std::fs::hard_link(target, &kept);
}

/// Directories that are another one in each test, or in each run: that of the target, and that of the run.
fn places(target: &Path) -> impl Iterator<Item = String> {
    let own = target.parent().expect("a file lies in a directory").to_owned();
    let run = std::env::var_os(SCRATCH).map(PathBuf::from).and_then(|test| Some(test.parent()?.to_owned()));
    [Some(own), run].into_iter().flatten().map(|place| place.to_str().expect("tests use UTF-8").to_owned())
}

/// Compiles C source text with the system's `cc`, debug information and threads. The flags come after the
/// source, so that libraries may be among them. Reports name the source file `program.c`.
#[track_caller]
#[must_use]
pub fn compile_c(source: &str, extra_flags: &[&str]) -> PathBuf {
    compile("cc", "program.c", source, extra_flags)
}

/// Compiles C++ source text as [`compile_c`] does C. Reports name the source file `program.cpp`.
#[track_caller]
#[must_use]
pub fn compile_cpp(source: &str, extra_flags: &[&str]) -> PathBuf {
    compile("c++", "program.cpp", source, extra_flags)
}

#[track_caller]
fn compile(compiler: &str, name: &str, source: &str, extra_flags: &[&str]) -> PathBuf {
    let directory = scratch();
    let (file, program) = (directory.join(name), directory.join("program"));
    std::fs::write(&file, source).expect("the source can be written");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-pthread"]).arg(&file).args(extra_flags);
    build(&mut command, &file, &program);
    program
}

/// The versions of glibc's functions that a program or library asks for.
///
/// # Panics
/// It asks for none, or `readelf` is not understood.
#[track_caller]
#[must_use]
pub fn glibc_versions(file: &Path) -> BTreeSet<Vec<u32>> {
    let output = run_limited(Command::new("readelf").args(["--version-info", "--wide"]).arg(file), LIMIT);
    expect_status(&output, 0);
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    let versions: BTreeSet<Vec<u32>> = text
        .split("Name: GLIBC_")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .map(|version| version.split('.').map(|part| part.parse().expect("a number")).collect())
        .collect();
    assert!(!versions.is_empty(), "not understood:\n{text}");
    versions
}
