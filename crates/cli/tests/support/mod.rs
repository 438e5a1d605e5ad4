//! What the tests of the command need beside what all tests do: the command, with the preload library beside it.

pub(crate) mod browser;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) use poundlock_testing::*;

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

/// The preload library, of the profile that this test was built in. Who runs all tests has built it; else it is built once a
/// process.
pub(crate) fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let command = Path::new(env!("CARGO_BIN_EXE_poundlock"));
        let library = command.with_file_name("libpoundlock_preload.so");
        if !all_is_built() {
            let profile = command.parent().and_then(Path::file_name).and_then(OsStr::to_str);
            let profile = profile.filter(|name| *name != "debug").unwrap_or("dev");
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "-p", "poundlock-preload", "--profile", profile, "--target-dir"]);
            cargo.arg(target_directory()).current_dir(env!("CARGO_MANIFEST_DIR"));
            expect_status(&run_limited(&mut cargo, LIMIT), 0);
        }
        assert!(library.is_file(), "there is no {}", library.display());
        library
    })
}
