//! A program of `tests/dropin`: how it is built, and how it is run with each lock.

use std::ffi::{CStr, OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use poundlock_core::qspin::Form;
use poundlock_names::{LockName, Named, RwLocks};

use crate::support::{LIMIT, ending, need, poundlock, run_limited, scratch, stderr};

/// The exit status of a program that the system does not let do what it is about; it says what on standard
/// error.
pub(crate) const NOT_PERMITTED: i32 = 77;

/// Threads, handlers and the like are given what they do not need.
pub(crate) const FLAGS: &[&str] =
    &["-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-pthread"];

/// The directory of the programs' sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/dropin")
        .canonicalize()
        .expect("tests/dropin exists")
}

/// The file of glibc that the functions of threads are in.
pub(crate) fn of_threads() -> &'static str {
    // SAFETY: takes no arguments, and returns a string that stays.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().expect("a number");
    let (_, minor) = version.split_once('.').expect("2.36, say");
    if minor.parse::<u32>().expect("a number") < 34 { "libpthread.so.0" } else { "libc.so.6" }
}

/// Whether there is a compiler for this source. C's is taken for granted.
#[track_caller]
pub(crate) fn compilable(source: &str) -> bool {
    !source.ends_with(".cpp") || need("c++", "g++").is_some()
}

/// The locks that a program is tried with.
#[derive(Clone, Copy)]
pub(crate) enum Locks {
    /// Each one whose code differs.
    All,
    /// Two of different sorts: for programs about the library's place in the process, which is the same with
    /// every lock.
    Two,
    /// None: the control alone.
    None,
    /// The one that is used if none is named.
    Default,
    /// Each form of the spinlock.
    Spin,
    /// Each choice of readers-writer locks.
    ReadersWriter,
    /// Those that keep to the kinds: our own of the default, and glibc's.
    ByKind,
    /// The spinlocks for more threads than CPUs: what the machine chooses, and the forms that do not keep
    /// their CPUs. On the others, glibc's among them, such a program takes minutes: there is no control.
    Crowd,
}

impl Locks {
    /// The arguments that choose each; none for the default.
    fn choices(self) -> Vec<Vec<&'static str>> {
        let locks = |name| vec!["--lock", name];
        match self {
            Locks::All => {
                // Those between baseline and any-negative have nothing that neither of the two has.
                let left_out = [LockName::Glibc, LockName::McsQueue, LockName::FewerAtomics];
                let ours =
                    LockName::ALL.into_iter().filter(|lock| !left_out.contains(lock) && !lock.is_variation());
                ours.map(|lock| locks(lock.name())).collect()
            }
            Locks::Two => vec![vec![], locks(LockName::AnyNegative.name())],
            Locks::None => vec![],
            Locks::Default => vec![vec![]],
            Locks::Spin => Form::ALL.into_iter().map(|kind| locks(kind.name())).collect(),
            Locks::Crowd => vec![vec![], locks(Form::Virtual.name()), locks(Form::Paravirtual.name())],
            Locks::ReadersWriter => {
                RwLocks::ALL.into_iter().map(|choice| vec!["--rwlock", choice.name()]).collect()
            }
            Locks::ByKind => vec![vec![], vec!["--rwlock", RwLocks::Glibc.name()]],
        }
    }
}

/// A compiled program.
pub(crate) struct Program {
    source: String,
    directory: PathBuf,
    executable: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// Compiles a program by itself.
    #[track_caller]
    pub(crate) fn compile(source: &str, flags: &[&str]) -> Self {
        let program = Self::new(source);
        build(&program.executable, source, flags);
        program
    }

    /// Compiles a library and a program that is linked with it.
    #[track_caller]
    pub(crate) fn link(source: &str, flags: &[&str], library: &str, library_flags: &[&str]) -> Self {
        let program = Self::new(source).library(library, library_flags);
        let directory = program.directory();
        let directory = directory.to_str().expect("the scratch directory's name is UTF-8");
        let path = "-Wl,-rpath,$ORIGIN";
        let place = format!("-L{directory}");
        let name = format!("-l{library}");
        let mut all = flags.to_vec();
        all.extend([place.as_str(), &name, path]);
        build(&program.executable, source, &all);
        program
    }

    fn new(source: &str) -> Self {
        let directory = scratch();
        let executable = directory.join(Path::new(source).file_stem().expect("a source has a name"));
        Program {
            source: source.to_string(),
            directory,
            executable,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Compiles a shared library into the program's directory.
    #[track_caller]
    pub(crate) fn library(self, name: &str, flags: &[&str]) -> Self {
        self.library_of(name, name, flags)
    }

    /// As [`Program::library`], where the source has another name.
    #[track_caller]
    pub(crate) fn library_of(self, name: &str, source: &str, flags: &[&str]) -> Self {
        let mut all = vec!["-shared", "-fPIC"];
        all.extend(flags);
        build(&self.library_path(name), &format!("{source}.c"), &all);
        self
    }

    pub(crate) fn library_path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("lib{name}.so"))
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.clone()
    }

    pub(crate) fn executable(&self) -> &Path {
        &self.executable
    }

    pub(crate) fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Runs it on plain glibc and with each lock.
    #[track_caller]
    pub(crate) fn check(&self, locks: Locks) {
        if !matches!(locks, Locks::Crowd) {
            self.expect_success("plain glibc", &mut self.finished(Command::new(&self.executable)));
        }
        self.check_ours(locks);
    }

    /// Runs it with each lock, where it has been run on plain glibc before.
    #[track_caller]
    pub(crate) fn check_ours(&self, locks: Locks) {
        for choice in locks.choices() {
            let mut cmd = poundlock();
            cmd.arg("run").args(&choice).arg("--").arg(&self.executable);
            let name = choice.last().unwrap_or(&"the default lock");
            self.expect_success(name, &mut self.finished(cmd));
        }
    }

    /// Runs it with its locks counted, on the default lock and on glibc's: the same paths, with a measurement
    /// at each step. The report is for standard error, so only the rest of the outcome is judged.
    #[track_caller]
    pub(crate) fn check_counted(&self) {
        for lock in [LockName::DEFAULT, LockName::Glibc] {
            let mut cmd = poundlock();
            cmd.args(["stat", "--lock", lock.name(), "--"]).arg(&self.executable);
            let output = run_limited(&mut self.finished(cmd), LIMIT);
            let is_counted = !stderr(&output).contains("nothing was measured");
            assert!(
                output.status.success() && output.stdout.is_empty() && is_counted,
                "{} on {}, counted: {}\n--- stdout\n{}\n--- stderr\n{}",
                self.source,
                lock.name(),
                ending(output.status),
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }

    fn finished(&self, mut cmd: Command) -> Command {
        cmd.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        cmd
    }

    #[track_caller]
    fn expect_success(&self, lock: &str, cmd: &mut Command) {
        let output = run_limited(cmd, LIMIT);
        if output.status.code() == Some(NOT_PERMITTED) {
            let why = String::from_utf8_lossy(&output.stderr);
            let _ = writeln!(std::io::stderr(), "SKIPPED: {} on {lock}: {}", self.source, why.trim_end());
            return;
        }
        expect_silent_success(&format!("{} on {lock}", self.source), &output);
    }
}

/// Status 0, and nothing on either stream: the programs write only what is wrong, and the library nothing at
/// all.
#[track_caller]
pub(crate) fn expect_silent_success(what: &str, output: &Output) {
    assert!(
        output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(),
        "{what}: {}\n--- stdout\n{}\n--- stderr\n{}",
        ending(output.status),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Compiles C or C++, by the source's extension. Libraries among the flags come after the source.
#[track_caller]
fn build(target: &Path, source: &str, flags: &[&str]) {
    let [compiler, standard] =
        if source.ends_with(".cpp") { ["c++", "-std=c++17"] } else { ["cc", "-std=gnu11"] };
    let source = sources().join(source);
    let mut cmd = Command::new(compiler);
    cmd.arg(standard).args(FLAGS).arg(&source).args(flags);
    crate::support::build(&mut cmd, &source, target);
}
