//! What the tests of the command need beside what all tests do: the command, with the preload library beside
//! it.

pub(crate) mod browser;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

pub(crate) use poundlock_testing::{
    LIMIT, Started, build, compile_c, compile_cpp, ending, expect_status, find, from_a_terminal, made,
    missing, need, need_file, need_that_runs, once_a_run, one_at_a_time, run_limited, run_limited_with_input,
    scratch, start, until,
};

/// A simulation that takes no time.
pub(crate) const SIM: [&str; 12] = [
    "sim",
    "run",
    "--machine",
    "phenom-4",
    "--workload",
    "grid",
    "--lock",
    "mcs",
    "--threads",
    "2",
    "--time",
    "1",
];

/// `poundlock`, with an environment that finds the preload library and holds nothing else of ours.
pub(crate) fn poundlock() -> Command {
    let mut cmd = poundlock_bare();
    cmd.env("POUNDLOCK_PRELOAD_LIB", preload_library());
    cmd
}

/// `poundlock` for tests that need no preload library: it is not built for them.
pub(crate) fn poundlock_bare() -> Command {
    let mut cmd = Command::new(env!("CARGO_BIN_EXE_poundlock"));
    for name in [
        "LD_PRELOAD",
        "POUNDLOCK_PRELOAD_LIB",
        "POUNDLOCK_LOCK",
        "POUNDLOCK_RWLOCK",
        "POUNDLOCK_STAT_DIR",
        "POUNDLOCK_STATS",
        "POUNDLOCK_CHECK",
        "POUNDLOCK_SEMAPHORES",
        "POUNDLOCK_IPC_DIR",
        "COLUMNS",
    ] {
        cmd.env_remove(name);
    }
    from_a_terminal(&mut cmd);
    cmd
}

/// The preload library.
pub(crate) fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| poundlock_testing::preload_library())
}

/// The user that nobody is.
const NOBODY: u32 = 65534;

/// A directory to which every user may write, with a copy of each of these files. `None`, and said so,
/// without the rights to become another user.
pub(crate) fn for_everybody(files: &[&Path]) -> Option<tempfile::TempDir> {
    // SAFETY: takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: needs root, to become another user");
        return None;
    }
    let place = tempfile::Builder::new().prefix("poundlock-test-").tempdir_in("/tmp").expect("a directory");
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    for file in files {
        std::fs::copy(file, place.path().join(file.file_name().expect("a file"))).expect("it can be copied");
    }
    Some(place)
}

/// Has a command run as a user without any rights.
pub(crate) fn as_nobody(command: &mut Command) -> &mut Command {
    command.uid(NOBODY).gid(NOBODY).current_dir("/")
}

/// What programs in C begin with: the helpers of `tests/dropin`.
pub(crate) const PROLOGUE: &str =
    concat!("#define _GNU_SOURCE\n", include_str!("../../../../tests/dropin/check.h"));

/// For programs in C and C++ without [`PROLOGUE`]: `await_sleep` waits until the thread whose id a variable
/// will have sleeps.
macro_rules! await_sleep {
    () => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/stat/await_sleep.h"))
    };
}
pub(crate) use await_sleep;

/// Compiles a program that begins with [`PROLOGUE`].
#[track_caller]
pub(crate) fn program(body: &str) -> PathBuf {
    compile_c(&format!("{PROLOGUE}{body}"), &[])
}

/// As it ends a frame's text: where `mark` is in the body of a [`program`].
pub(crate) fn line_of(body: &str, mark: &str) -> String {
    let text = format!("{PROLOGUE}{body}");
    let line = text.lines().position(|line| line.contains(mark)).expect("the program has the mark") + 1;
    format!("program.c:{line})")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("these programs print UTF-8")
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON in a file.
#[track_caller]
pub(crate) fn parsed(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the JSON is there");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {value:#}"))
}

#[track_caller]
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is no list in {value:#}"))
}

/// The frames of a single lock's site.
#[track_caller]
pub(crate) fn stack<'a>(document: &'a Value, site: &Value) -> Vec<&'a str> {
    let place = site["stack"].as_u64().unwrap_or_else(|| panic!("no stack in {site}"));
    let stack = document["stacks"][place as usize].as_array();
    stack.unwrap_or_else(|| panic!("no stack {place}")).iter().map(|f| f.as_str().expect("a name")).collect()
}

/// Runs `poundlock stat` in this way, which is complete but for the options that show single locks and events,
/// `--json FILE` and what comes behind it: what was printed, the report, and the JSON.
#[track_caller]
pub(crate) fn measured(cmd: &mut Command, behind: &[&OsStr], status: i32) -> (String, String, Value) {
    let json = scratch().join("report.json");
    let output = run_limited(
        cmd.env("COLUMNS", "400").args(["--each", "--events", "--json"]).arg(&json).args(behind),
        LIMIT,
    );
    expect_status(&output, status);
    (stdout(&output), stderr(&output), parsed(&json))
}

/// Allocators that programs are started with, as far as they are installed.
pub(crate) fn allocators() -> impl Iterator<Item = &'static str> {
    let all = [("libjemalloc.so.2", "libjemalloc2"), ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")];
    all.into_iter().filter_map(|(library, package)| {
        let output = Command::new("true").env("LD_PRELOAD", library).output().expect("true runs");
        if output.stderr.is_empty() {
            return Some(library);
        }
        missing(library, &format!("apt-get install {package}"));
        None
    })
}
