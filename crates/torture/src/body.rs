//! What the child processes run.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::process::ExitCode;

use crate::rwlocks;

/// The hidden subcommand's name.
pub const BODY: &str = "torture-body";
/// That of the process that `--semaphores` watches.
pub const ARRAYS: &str = "torture-arrays";
/// That of what some of its children become.
pub const EXECUTED: &str = "torture-executed";

/// As many slots as the body has.
pub const MAX_THREADS: u32 = 4096;

/// As many as the body has seats for.
pub const MAX_PROCESSES: u32 = 256;
/// Threads of each, with a key of its own.
pub const LANES: u32 = 3;

/// The hidden subcommand that the child process runs.
#[derive(clap::Args)]
pub struct BodyArgs {
    threads: u32,
    spinners: u32,
    shared_spinners: u32,
    /// Whether a thread may not read twice, whatever the kind: 0 or 1
    reads_once: u8,
    milliseconds: u64,
    patience_ms: u64,
    seed: u64,
    /// Part of the name of the library that must serve the pthread symbols
    library: Option<String>,
}

unsafe extern "C" {
    /// See `csrc/body.c`. `library` is null or a string.
    fn poundlock_torture_body(
        library: *const c_char,
        threads: c_uint,
        spinners: c_uint,
        shared_spinners: c_uint,
        reads_once: bool,
        milliseconds: u64,
        patience_ms: u64,
        seed: u64,
    );
    /// See `csrc/arrays.c`. `library` is null or a string.
    fn poundlock_torture_arrays(
        library: *const c_char,
        processes: c_uint,
        milliseconds: u64,
        patience_ms: u64,
        seed: u64,
        key: c_int,
    );
    /// See `csrc/array_actions.c`.
    fn poundlock_torture_executed(id: c_int, give_back: c_int) -> c_int;
}

/// The child process.
pub fn body(args: BodyArgs) -> ExitCode {
    let library = args.library.and_then(|name| CString::new(name).ok());
    let pointer = library.as_deref().map_or(std::ptr::null(), |name| name.as_ptr());
    rwlocks::prepare();
    // SAFETY: the string lives until the call returns. The threads that the body starts have no Rust frame on
    // their stacks, and are gone when it returns; this thread is never cancelled.
    unsafe {
        poundlock_torture_body(
            pointer,
            args.threads,
            args.spinners,
            args.shared_spinners,
            args.reads_once != 0,
            args.milliseconds,
            args.patience_ms,
            args.seed,
        );
    }
    ExitCode::SUCCESS
}

/// The hidden subcommand that the child process runs.
#[derive(clap::Args)]
pub struct ArraysArgs {
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
pub struct ExecutedArgs {
    id: c_int,
    /// `give` or `keep`
    what: String,
}

/// The child process.
pub fn arrays(args: ArraysArgs) -> ExitCode {
    let library = args.library.and_then(|name| CString::new(name).ok());
    let pointer = library.as_deref().map_or(std::ptr::null(), |name| name.as_ptr());
    // SAFETY: the string lives until the call returns. It forks while this process has one thread, and the
    // children do not return.
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
pub fn executed(args: ExecutedArgs) -> ExitCode {
    // SAFETY: takes two numbers.
    let code = unsafe { poundlock_torture_executed(args.id, c_int::from(args.what == "give")) };
    ExitCode::from(code as u8)
}
