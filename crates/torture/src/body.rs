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

/// What a child process is to do: the arguments of both hidden subcommands.
#[derive(clap::Args)]
pub struct ChildArgs {
    /// Workers: threads, or processes
    pub threads: u32,
    /// Threads that may wait for a spinlock at once
    pub spinners: u32,
    /// The same for one that processes share
    pub shared_spinners: u32,
    /// Whether a thread may not read twice, whatever the kind: 0 or 1
    pub reads_once: u8,
    /// The first of the arrays' keys
    pub key: c_int,
    /// The length of the run, in milliseconds
    pub milliseconds: u64,
    /// So long without progress is a hang, in milliseconds
    pub patience_ms: u64,
    /// Of every random choice
    pub seed: u64,
    /// Part of the name of the library that must serve the symbols
    pub library: Option<String>,
}

impl ChildArgs {
    /// The same, as they are given to the subcommand.
    pub fn to_strings(&self) -> Vec<String> {
        let ChildArgs { threads, spinners, shared_spinners, reads_once, .. } = self;
        let ChildArgs { key, milliseconds, patience_ms, seed, library, .. } = self;
        let numbers = format!(
            "{threads} {spinners} {shared_spinners} {reads_once} {key} {milliseconds} {patience_ms} {seed}"
        );
        numbers.split(' ').map(str::to_owned).chain(library.clone()).collect()
    }

    /// Calls C with it.
    fn run(self, child: unsafe extern "C" fn(*const Plan)) -> ExitCode {
        let library = self.library.and_then(|name| CString::new(name).ok());
        let plan = Plan {
            library: library.as_deref().map_or(std::ptr::null(), |name| name.as_ptr()),
            threads: self.threads,
            spinners: self.spinners,
            shared_spinners: self.shared_spinners,
            reads_once: self.reads_once != 0,
            key: self.key,
            milliseconds: self.milliseconds,
            patience_ms: self.patience_ms,
            seed: self.seed,
        };
        // SAFETY: the plan and its string live until the call returns. Threads that it starts have no Rust
        // frame on their stacks, and are gone then; this thread is never cancelled. It forks while this
        // process has one thread, and those children do not return.
        unsafe { child(&plan) };
        ExitCode::SUCCESS
    }
}

/// C's `struct plan`; `library` is null or a string.
#[repr(C)]
struct Plan {
    library: *const c_char,
    threads: c_uint,
    spinners: c_uint,
    shared_spinners: c_uint,
    reads_once: bool,
    key: c_int,
    milliseconds: u64,
    patience_ms: u64,
    seed: u64,
}

unsafe extern "C" {
    /// See `csrc/body.c`.
    fn poundlock_torture_body(plan: *const Plan);
    /// See `csrc/arrays.c`.
    fn poundlock_torture_arrays(plan: *const Plan);
    /// See `csrc/array_actions.c`.
    fn poundlock_torture_executed(id: c_int, give_back: c_int) -> c_int;
}

/// The child process whose threads torture locks.
pub fn body(args: ChildArgs) -> ExitCode {
    rwlocks::prepare();
    args.run(poundlock_torture_body)
}

/// The child process whose children torture semaphore arrays.
pub fn arrays(args: ChildArgs) -> ExitCode {
    args.run(poundlock_torture_arrays)
}

/// What a child of a worker becomes.
#[derive(clap::Args)]
pub struct ExecutedArgs {
    id: c_int,
    /// `give` or `keep`
    what: String,
}

/// A child of a worker, after `exec`: gives its permit back, or leaves that to its end.
pub fn executed(args: ExecutedArgs) -> ExitCode {
    // SAFETY: takes two numbers.
    let code = unsafe { poundlock_torture_executed(args.id, c_int::from(args.what == "give")) };
    ExitCode::from(code as u8)
}
