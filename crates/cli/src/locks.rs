//! `poundlock locks`, and the choice of a lock by name.

use std::process::ExitCode;

use poundlock_core::platform::Platform;
use poundlock_core::qspin::Form;
use poundlock_linux::Linux;
use poundlock_names::{Choice, ChoiceError, LockName, Named, RwLocks};

use crate::message::{Failure, status};
use crate::output::print;

/// `poundlock locks` takes no options.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Prints the names, one a line, each with what it is.
pub(crate) fn main(_: Args) -> ExitCode {
    let width = names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for lock in LockName::ALL {
        let default = if lock == LockName::DEFAULT { " (default)" } else { "" };
        text += &format!("{:width$}  {}{default}\n", lock.name(), lock.description());
    }
    let machines = poundlock_linux::machine::spinlock();
    let why = format!(" (chosen for this machine: {})", reason(machines));
    for kind in Form::ALL {
        let default = if kind == machines { &why } else { "" };
        text += &format!("{:width$}  {}{default}\n", kind.name(), kind.description());
    }
    match print(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// What speaks for a form, when the machine has chosen it.
fn reason(kind: Form) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpus = if cpus == 1 { "1 CPU".to_string() } else { format!("{cpus} CPUs") };
    let cpus = match Linux::nodes() {
        1 => cpus,
        nodes => format!("{cpus} of {nodes} nodes"),
    };
    match kind {
        Form::Paravirtual | Form::ParavirtualNuma => {
            format!("a program may have more threads than its {cpus}")
        }
        Form::Virtual => format!("more threads than its {cpus}, and no memory to let them halt"),
        Form::Native | Form::NativeNuma => format!("a program's threads have a CPU each, of {cpus}"),
    }
}

/// The locks with what they are: mutexes first, as they are listed.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mutexes = LockName::ALL.iter().map(|lock| (lock.name(), lock.description()));
    mutexes.chain(Form::ALL.iter().map(|kind| (kind.name(), kind.description())))
}

fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

/// The locks that `--lock` names: a mutex, a spinlock, or both with a comma between them.
///
/// Not left to clap: its message takes several lines, and the names belong into the one that is read.
pub(crate) fn parse(text: &str) -> Result<Choice, Failure> {
    let nothing = text.split(',').any(str::is_empty).then_some(ChoiceError::Unknown(""));
    nothing.map_or_else(|| Choice::parse(text), Err).map_err(|error| match error {
        ChoiceError::Unknown(name) => {
            let names: Vec<_> = names().collect();
            Failure::new(
                status::USAGE,
                format_args!("unknown lock '{name}': choose from {}", names.join(", ")),
            )
        }
        ChoiceError::Twice(name) => Failure::new(
            status::USAGE,
            format_args!("'{name}' is one lock too many in '{text}': at most one mutex and one spinlock"),
        ),
    })
}

/// The locks that `--lock` and `--rwlock` name, or leave to us.
pub(crate) fn parse_both(locks: &str, rwlocks: Option<&str>) -> Result<(Choice, RwLocks), Failure> {
    let locks = parse(locks)?;
    let named = rwlocks.map(parse_rwlocks).transpose()?;
    Ok((locks, RwLocks::of(locks, named)))
}

/// The readers-writer locks that `--rwlock` names.
fn parse_rwlocks(name: &str) -> Result<RwLocks, Failure> {
    RwLocks::parse(name).ok_or_else(|| {
        let names = RwLocks::ALL.map(RwLocks::name).join(", ");
        Failure::new(status::USAGE, format_args!("unknown readers-writer lock '{name}': choose from {names}"))
    })
}
