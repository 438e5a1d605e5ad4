//! What the tests of the command need beside what all tests do: the command, with the preload library beside
//! it.

pub(crate) mod browser;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) use poundlock_testing::{
    LIMIT, Started, build, compile_c, compile_cpp, ending, expect_status, from_a_terminal, missing, need,
    need_file, need_that_runs, once_a_run, one_at_a_time, run_limited, run_limited_with_input, scratch,
    start, until,
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
