//! A domain for the unit tests of what is inside.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::domain::{self, Domain};

#[path = "../tests/children.rs"]
mod children;

pub(crate) use children::*;

/// The domain of the unit tests, for one at a time.
pub(crate) fn domain() -> (&'static Domain, MutexGuard<'static, ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    extern "C" fn remove_directory() {
        if let Some(directory) = DIRECTORY.get() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let directory = DIRECTORY.get_or_init(|| {
        // SAFETY: a function of ours.
        unsafe { libc::atexit(remove_directory) };
        format!("/dev/shm/poundlock-unit-{}", std::process::id()).into()
    });
    // SAFETY: under the lock; no other unit test of this crate reads the environment.
    unsafe { std::env::set_var("POUNDLOCK_IPC_DIR", directory) };
    (domain::get().unwrap(), one)
}
