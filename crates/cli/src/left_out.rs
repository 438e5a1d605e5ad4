//! What a build without the benchmarks or the simulator answers to those who ask for them.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::message::{Failure, status};

/// Whatever they are asked.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<OsString>,
}

/// Says which build has it.
pub(crate) fn main(what: &str) -> ExitCode {
    let line =
        format_args!("this build has no {what}: `cargo build --release --workspace` makes one that has");
    Failure::new(status::OURS, line).report()
}
