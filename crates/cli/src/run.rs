//! `poundlock run`: a program on the chosen lock, and nothing else changed.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args as _, Command, FromArgMatches};
use poundlock_names::{LockName, RwLocks};
use poundlock_semarray::{Choice, Which};

use crate::message::{Failure, say};
use crate::{launch, library, locks, program, semaphores};

/// What to run, and on which lock.
#[derive(clap::Args)]
#[group(id = "run")]
pub(crate) struct Args {
    /// The locks to run on: a mutex, a spinlock, or both with a comma between them; `poundlock locks` lists
    /// them [default: poundlock; of `stat`: glibc, the program's own]
    #[arg(long, value_name = "NAME")]
    pub(crate) lock: Option<String>,
    /// The readers-writer locks to run on: `by-kind`, ours, with the preference that the program gave each;
    /// `phase-fair`, ours, in turn: for programs whose threads take no read lock twice; `glibc`, the
    /// program's own [default: by-kind; glibc with --lock glibc]
    #[arg(long, value_name = "NAME")]
    pub(crate) rwlock: Option<String>,
    /// Whose System V semaphore arrays are ours: `ours`, those that no other user can open; `all`; `kernel`,
    /// none. With a comma and a variant, how new ones work [default: ours; kernel with --lock glibc]
    #[arg(long, value_name = "VALUE")]
    pub(crate) semaphores: Option<String>,
    /// The program to run, and its arguments; after `--` if its name begins with a hyphen
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl Args {
    /// What `--lock` and `--rwlock` said; `default` if there was no `--lock`.
    pub(crate) fn locks(&self, default: LockName) -> Result<(poundlock_names::Choice, RwLocks), Failure> {
        locks::parse_both(self.lock.as_deref().unwrap_or(default.name()), self.rwlock.as_deref())
    }

    /// What `--semaphores` said.
    pub(crate) fn semaphores(&self) -> Result<Option<Choice>, Failure> {
        self.semaphores.as_deref().map(semaphores::parse).transpose()
    }

    /// The semaphore arrays to ask the library for. A program that keeps its locks keeps its arrays.
    pub(crate) fn arrays(&self, locks: poundlock_names::Choice) -> Option<&str> {
        self.semaphores.as_deref().or(locks.keeps_everything().then_some(Which::Kernel.name()))
    }
}

/// The command line of `run` by itself, if it is one without a fault. The caller waits for its program, and
/// the options of all other commands take longer to build than the rest of what we do.
pub(crate) fn parsed() -> Option<Args> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    arguments.peek().filter(|name| *name == "run")?;
    let matches = Args::augment_args(Command::new("run")).try_get_matches_from(arguments).ok()?;
    Args::from_arg_matches(&matches).ok()
}

/// Becomes the command.
pub(crate) fn main(args: Args) -> ExitCode {
    match run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn run(args: &Args) -> Result<u8, Failure> {
    let (locks, rwlocks) = args.locks(LockName::DEFAULT)?;
    let arrays = args.semaphores()?;
    let program = launch::find(&args.command)?;
    // The program's own locks and the kernel's arrays need no help of ours: any program has them.
    let keeps_arrays = arrays.map_or(locks.keeps_everything(), |arrays| arrays.which == Which::Kernel);
    let environment = if locks.keeps_everything() && rwlocks == RwLocks::Glibc && keeps_arrays {
        library::plain_environment()
    } else {
        program::check(&program)?;
        let mut environment = library::environment_for(&program, locks, rwlocks)?;
        environment.extend(args.arrays(locks).map(semaphores::change));
        environment
    };
    if !library::is_linked() {
        return Err(launch::become_program(&program, &args.command, &environment));
    }
    // Somebody has to remove the link at the end.
    let ended = launch::run(&program, &args.command, &environment)?;
    if let Some(words) = ended.obituary() {
        say(format_args!("{}: {words}", args.command[0].display()));
    }
    Ok(ended.exit_code())
}
