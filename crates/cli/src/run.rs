//! `poundlock run`: a program on the chosen lock, and nothing else changed.

use std::ffi::OsString;
use std::process::ExitCode;

use poundlock_core::names::{LockName, RwLocks};
use poundlock_linux::sem::{Choice, Which};

use crate::message::Failure;
use crate::{launch, library, locks, program, semaphores};

/// What to run, and on which lock.
#[derive(clap::Args)]
#[group(id = "run")]
pub(crate) struct Args {
    /// The locks to run on: a mutex, a spinlock, or both with a comma between them; `poundlock locks` lists them
    #[arg(long, value_name = "NAME", default_value_t = LockName::DEFAULT.to_string())]
    pub(crate) lock: String,
    /// The readers-writer locks to run on: `by-kind`, ours, with the preference that the program gave each; `phase-fair`, ours,
    /// in turn: for programs whose threads take no read lock twice; `glibc`, the program's own, as with --lock glibc
    #[arg(long, value_name = "NAME", default_value_t = RwLocks::default().to_string())]
    pub(crate) rwlock: String,
    /// Whose System V semaphore arrays are ours: `ours`, those that no other user can open; `all`; `kernel`, none. With a
    /// comma and a variant, how new ones work [default: ours; kernel with --lock glibc]
    #[arg(long, value_name = "VALUE")]
    pub(crate) semaphores: Option<String>,
    /// The program to run, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl Args {
    /// What `--semaphores` said.
    pub(crate) fn semaphores(&self) -> Result<Option<Choice>, Failure> {
        self.semaphores.as_deref().map(semaphores::parse).transpose()
    }
}

/// Runs the command and passes its exit status on.
pub(crate) fn main(args: Args) -> ExitCode {
    match run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn run(args: &Args) -> Result<u8, Failure> {
    let locks = locks::parse(&args.lock)?;
    let rwlocks = locks::parse_rwlocks(&args.rwlock)?;
    let arrays = args.semaphores()?;
    let program = launch::find(&args.command)?;
    // The program's own locks and the kernel's arrays need no help of ours: any program has them.
    let environment = if locks.keeps_everything() && arrays.is_none_or(|arrays| arrays.which == Which::Kernel)
    {
        library::plain_environment()
    } else {
        program::check(&program)?;
        let mut environment = library::environment_for(&program, locks, rwlocks)?;
        environment.extend(args.semaphores.as_deref().map(semaphores::change));
        environment
    };
    Ok(launch::run(&program, &args.command, &environment)?.exit_code())
}
