//! What the tests of semaphore arrays share: a domain of their own.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(crate) use crate::children::*;
use poundlock_core::semarray::Op;
use poundlock_semarray as semarray;

/// The directory of this program's domain. The first call makes it and tells the library; every test begins
/// with it.
pub(crate) fn domain() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    static OWNER: OnceLock<u32> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        extern "C" fn remove() {
            if let (Some(directory), Some(owner)) = (DIRECTORY.get(), OWNER.get())
                && *owner == std::process::id()
            {
                let _ = std::fs::remove_dir_all(directory);
            }
        }
        // A program that was started by a test uses that one's.
        if let Some(said) = std::env::var_os("POUNDLOCK_IPC_DIR") {
            return said.into();
        }
        let name = format!("poundlock-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let directory = Path::new("/dev/shm").join(name.replace(['(', ')'], ""));
        std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        OWNER.set(std::process::id()).unwrap();
        // SAFETY: under the `OnceLock` with which every test begins; no test reads the environment otherwise.
        unsafe { std::env::set_var("POUNDLOCK_IPC_DIR", &directory) };
        // SAFETY: a function of ours.
        unsafe { libc::atexit(remove) };
        directory
    })
}

/// A new private array.
pub(crate) fn private(semaphores: i32) -> i32 {
    domain();
    semarray::get(libc::IPC_PRIVATE, semaphores, 0o600).unwrap().expect("a private array is ours")
}

/// A key that no other test uses, nor one of another run: a process's number has 22 bits at most.
pub(crate) fn key(number: i32) -> i32 {
    0x4000_0000 + ((std::process::id() as i32) << 8) + number
}

pub(crate) const fn op(num: u16, change: i16, flags: i16) -> Op {
    Op { num, change, flags }
}

pub(crate) const NOWAIT: i16 = Op::NOWAIT;
pub(crate) const UNDO: i16 = Op::UNDO;

pub(crate) fn semop(id: i32, operations: &[Op]) -> Result<(), i32> {
    // SAFETY: a slice of ours.
    unsafe { semarray::operate(id, operations.as_ptr(), operations.len(), std::ptr::null()) }
}

/// Gives up after so many milliseconds.
pub(crate) fn semtimedop(id: i32, operations: &[Op], milliseconds: i64) -> Result<(), i32> {
    let time = libc::timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    // SAFETY: a slice and a time of ours.
    unsafe { semarray::operate(id, operations.as_ptr(), operations.len(), &time) }
}

pub(crate) fn ctl(id: i32, num: i32, command: i32, argument: usize) -> Result<i32, i32> {
    // SAFETY: the tests pass what the command asks for.
    unsafe { semarray::control(id, num, command, argument) }
}

pub(crate) fn value(id: i32, num: i32) -> i32 {
    ctl(id, num, libc::GETVAL, 0).unwrap()
}

pub(crate) fn remove(id: i32) {
    ctl(id, 0, libc::IPC_RMID, 0).unwrap();
}

/// Runs one test of this program as a program of its own, in this one's domain and with these variables.
pub(crate) fn again(test: &str, variables: &[(&str, OsString)]) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"]);
    command.env("POUNDLOCK_IPC_DIR", domain());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}
