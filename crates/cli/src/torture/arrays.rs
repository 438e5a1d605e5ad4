//! `poundlock torture --semaphores`: what is told to the child whose body is `csrc/torture/arrays.c`, and what it leaves.

use std::ffi::{CString, OsStr, c_char, c_int, c_uint};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;

use poundlock_linux::sem::Which;
use poundlock_names::{Choice, RwLocks};
use tempfile::TempDir;

use crate::message::{Failure, status};
use crate::program::reason;
use crate::{library, semaphores};

/// As many as the body has seats for.
pub(super) const MAX_PROCESSES: u32 = 256;
/// Threads of each, with a key of its own.
const LANES: u32 = 3;

/// The arrays that are tortured.
pub(super) struct Arrays {
    value: String,
    key: c_int,
    /// Where ours lie; none: the kernel's.
    domain: Option<TempDir>,
}

impl std::fmt::Display for Arrays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.value)
    }
}

impl Arrays {
    /// Those that a value of `--semaphores` names, and the environment for the child.
    pub(super) fn new(value: &str) -> Result<(Self, Vec<library::Change>), Failure> {
        let choice = semaphores::parse(value)?;
        // A thousand keys for each process that may do this at a time, private ones (0) not among them.
        let key = 0x5000_0000 + (std::process::id() as c_int & 0x3_ffff) * 1024;
        if choice.which == Which::Kernel {
            let arrays = Arrays { value: value.to_string(), key, domain: None };
            return Ok((arrays, library::plain_environment()));
        }
        // A domain of its own, so that what a violation leaves behind is nobody's.
        let mut builder = tempfile::Builder::new();
        // Another mode would not be trusted, and everything go to the kernel.
        builder.prefix("poundlock-torture-").permissions(Permissions::from_mode(0o700));
        let domain = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).map_err(|error| {
            Failure::new(status::OURS, format_args!("a directory for the arrays: {}", reason(&error)))
        })?;
        let mut environment = library::environment(Choice::default(), RwLocks::default())?;
        environment.push((OsStr::new(library::SEMAPHORES_VARIABLE), Some(value.into())));
        environment.push((OsStr::new(library::DOMAIN_VARIABLE), Some(domain.path().into())));
        Ok((Arrays { value: value.to_string(), key, domain: Some(domain) }, environment))
    }

    /// The first of the keys of the child.
    pub(super) fn key(&self) -> c_int {
        self.key
    }

    /// Whether no library of ours is needed.
    pub(super) fn are_the_kernels(&self) -> bool {
        self.domain.is_none()
    }

    /// Removes what is left; says what a child that passed should not have left.
    pub(super) fn clear_up(&self, processes: u32) -> Result<(), String> {
        let mut left = 0;
        for key in (0..1 + processes * LANES).map(|n| self.key + n as c_int) {
            // SAFETY: both take numbers only. We are not preloaded into: these are the kernel's.
            unsafe {
                let id = libc::semget(key, 0, 0);
                if id >= 0 && libc::semctl(id, 0, libc::IPC_RMID) == 0 {
                    left += 1;
                }
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(format!("{left} semaphore arrays were left in the kernel")),
        }
    }
}

/// The hidden subcommand that the child process runs.
#[derive(clap::Args)]
pub(crate) struct ArraysArgs {
    processes: u32,
    milliseconds: u64,
    patience_ms: u64,
    seed: u64,
    key: c_int,
    /// Part of the name of the library that must serve the symbols
    library: Option<String>,
}

/// What a child of a worker becomes.
#[derive(clap::Args)]
pub(crate) struct ExecutedArgs {
    id: c_int,
    /// `give` or `keep`
    what: String,
}

unsafe extern "C" {
    /// See `csrc/torture/arrays.c`. `library` is null or a string.
    fn poundlock_torture_arrays(
        library: *const c_char,
        processes: c_uint,
        milliseconds: u64,
        patience_ms: u64,
        seed: u64,
        key: c_int,
    );
    /// See `csrc/torture/array_actions.c`.
    fn poundlock_torture_executed(id: c_int, give_back: c_int) -> c_int;
}

/// The child process.
pub(crate) fn body(args: ArraysArgs) -> ExitCode {
    let library = args.library.and_then(|name| CString::new(name).ok());
    let pointer = library.as_deref().map_or(std::ptr::null(), |name| name.as_ptr());
    // SAFETY: the string lives until the call returns. It forks while this process has one thread, and the children do
    // not return.
    unsafe {
        poundlock_torture_arrays(
            pointer,
            args.processes,
            args.milliseconds,
            args.patience_ms,
            args.seed,
            args.key,
        );
    }
    ExitCode::SUCCESS
}

/// A child of a worker, after `exec`: gives its permit back, or leaves that to its end.
pub(crate) fn executed(args: ExecutedArgs) -> ExitCode {
    // SAFETY: takes two numbers.
    let code = unsafe { poundlock_torture_executed(args.id, c_int::from(args.what == "give")) };
    ExitCode::from(code as u8)
}
