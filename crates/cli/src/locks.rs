//! `poundlock locks`, and the choice of a lock by name.

use std::io::Write;
use std::process::ExitCode;

use poundlock_core::names::LockName;

use crate::message::{Failure, status};

/// `poundlock locks` takes no options.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Prints the names, one a line, each with what it is.
pub(crate) fn main(_: Args) -> ExitCode {
    let width = LockName::ALL.iter().map(|lock| lock.name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for lock in LockName::ALL {
        let default = if lock == LockName::DEFAULT { " (default)" } else { "" };
        text += &format!("{:width$}  {}{default}\n", lock.name(), lock.description());
    }
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::new(1, format_args!("standard output: {error}")).report(),
    }
}

/// The lock that `--lock` names.
///
/// Not left to clap: its message takes several lines, and the names belong into the one that is read.
pub(crate) fn parse(name: &str) -> Result<LockName, Failure> {
    LockName::parse(name).ok_or_else(|| {
        let names: Vec<_> = LockName::ALL.iter().map(|lock| lock.name()).collect();
        Failure::new(status::USAGE, format_args!("unknown lock '{name}': choose from {}", names.join(", ")))
    })
}
