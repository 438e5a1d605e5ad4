//! The `poundlock` command: run a program on scalable locks, and see where it waits.
//!
//! A subcommand is one file. It offers `Args` (deriving [`clap::Args`]) and `main(Args) -> ExitCode`; here it
//! takes one `mod` line, one variant of [`Cmd`] (its doc comment is the help text) and one arm in [`main`].

use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};

mod attach;
#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "carry")]
mod carried;
mod check;
mod complete;
mod elf_file;
mod ipcrm;
mod ipcs;
mod launch;
#[cfg(not(all(feature = "bench", feature = "sim")))]
mod left_out;
mod library;
mod locks;
mod manual;
mod memory;
mod message;
mod observe;
mod output;
#[cfg(feature = "sim")]
mod predict;
mod program;
#[cfg(feature = "sim")]
mod record;
mod remote;
#[cfg(feature = "bench")]
mod results;
mod run;
mod semaphores;
#[cfg(feature = "sim")]
mod sim;
mod stat;
mod top;
mod torture;
mod who;

#[derive(Parser)]
#[command(name = "poundlock", version, about)]
struct Cli {
    #[command(subcommand)]
    cmd: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Run a program with its pthread locks on one of ours
    Run(run::Args),
    /// Run a program and show which locks it waits for, where, and how long
    #[command(mut_arg("command", |argument| argument.required(false).required_unless_present_any(["read", "pid"])))]
    Stat(Box<stat::Args>),
    /// Show which locks a program loses time for, now: a live table of a running one, or of one that it runs
    #[command(mut_arg("command", |argument| argument.required(false).conflicts_with("pid")))]
    Top(Box<top::Args>),
    /// Run a program and find deadlocks and misuse of its locks, before they happen
    Check(Box<check::Args>),
    /// Show who waits for what in a running process or a core file, and who holds it
    Who(who::Args),
    /// Run a program and write down what its threads do with locks, for `predict`
    #[cfg(feature = "sim")]
    Record(record::Args),
    /// Not in this build: run a program and write down what its threads do with locks
    #[cfg(not(feature = "sim"))]
    Record(left_out::Args),
    /// Say what would help a recorded program: other locks, shorter or split ones, other machines
    #[cfg(feature = "sim")]
    Predict(predict::Args),
    /// Not in this build: say what would help a recorded program
    #[cfg(not(feature = "sim"))]
    Predict(left_out::Args),
    /// List the locks that a program can run on
    Locks(locks::Args),
    /// Measure our locks against glibc's on this machine
    #[cfg(feature = "bench")]
    Bench(bench::Args),
    /// Not in this build: measure our locks against glibc's on this machine
    #[cfg(not(feature = "bench"))]
    Bench(left_out::Args),
    /// Run our locks on simulated machines of up to 512 cores
    #[cfg(feature = "sim")]
    Sim(sim::Args),
    /// Not in this build: run our locks on simulated machines of up to 512 cores
    #[cfg(not(feature = "sim"))]
    Sim(left_out::Args),
    /// Torture a lock with real threads, signals, cancellation and forks, and check that it stays one
    Torture(torture::Args),
    /// List semaphore arrays, or report on them
    Ipcs(ipcs::Args),
    /// Remove semaphore arrays
    Ipcrm(ipcrm::Args),
    /// Write the manual pages, and completions for bash, zsh and fish, below a directory
    Generate(manual::Args),
    /// The process that `torture` watches
    #[command(name = poundlock_torture::BODY, hide = true)]
    TortureBody(poundlock_torture::ChildArgs),
    /// The process that `torture --semaphores` watches
    #[command(name = poundlock_torture::ARRAYS, hide = true)]
    TortureArrays(poundlock_torture::ChildArgs),
    /// The program whose recording says what recording costs
    #[cfg(feature = "sim")]
    #[command(name = record::BODY, hide = true)]
    RecordOverhead,
    /// What some of its children become
    #[command(name = poundlock_torture::EXECUTED, hide = true)]
    TortureExecuted(poundlock_torture::ExecutedArgs),
}

fn main() -> ExitCode {
    complete::answer(manual::command);
    let cmd = run::parsed().map_or_else(parsed, Cmd::Run);
    let code = dispatch(cmd);
    library::remove_link();
    code
}

fn parsed() -> Cmd {
    let matches = manual::command().get_matches();
    // Its errors are those of a command line that `get_matches` would not have passed.
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).cmd
}

fn dispatch(cmd: Cmd) -> ExitCode {
    match cmd {
        Cmd::Run(args) => run::main(args),
        Cmd::Stat(args) => stat::main(*args),
        Cmd::Top(args) => top::main(*args),
        Cmd::Check(args) => check::main(*args),
        Cmd::Who(args) => who::main(args),
        #[cfg(feature = "sim")]
        Cmd::Record(args) => record::main(args),
        #[cfg(not(feature = "sim"))]
        Cmd::Record(_) => left_out::main("simulator"),
        #[cfg(feature = "sim")]
        Cmd::RecordOverhead => record::body(),
        #[cfg(feature = "sim")]
        Cmd::Predict(args) => predict::main(args),
        #[cfg(not(feature = "sim"))]
        Cmd::Predict(_) => left_out::main("simulator"),
        Cmd::Locks(args) => locks::main(args),
        #[cfg(feature = "bench")]
        Cmd::Bench(args) => bench::main(args),
        #[cfg(not(feature = "bench"))]
        Cmd::Bench(_) => left_out::main("benchmarks"),
        #[cfg(feature = "sim")]
        Cmd::Sim(args) => sim::main(args),
        #[cfg(not(feature = "sim"))]
        Cmd::Sim(_) => left_out::main("simulator"),
        Cmd::Torture(args) => torture::main(args),
        Cmd::Ipcs(args) => ipcs::main(args),
        Cmd::Ipcrm(args) => ipcrm::main(args),
        Cmd::Generate(args) => manual::main(args),
        Cmd::TortureBody(args) => poundlock_torture::body(args),
        Cmd::TortureArrays(args) => poundlock_torture::arrays(args),
        Cmd::TortureExecuted(args) => poundlock_torture::executed(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
