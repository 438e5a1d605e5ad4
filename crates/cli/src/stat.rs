//! `poundlock stat`: a program run with its locks measured, its own or ours, and a report of where it waited.

mod arrays;
mod class;
mod diagnosis;
mod events;
mod figures;
mod file;
mod inside;
mod json;
mod names;
mod report;
#[allow(dead_code, unused_imports)]
mod sampler;
mod symbols;
mod text;
mod times;
mod uncounted;
mod variables;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use poundlock_names::LockName;

use crate::message::{Failure, say, status};
use crate::{launch, library, output, program, run, semaphores};
use figures::{Begun, Figures, monotonic_ns};
use file::Output;
use report::{About, Report, Wanted};
use text::Style;

/// What to run, and how to report it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many rows to show; 0 for all of them
    #[arg(long, value_name = "N", default_value_t = text::DEFAULT_SHOWN)]
    top: usize,
    /// Show single locks rather than groups of them, and put them into the JSON as well
    #[arg(long)]
    each: bool,
    /// Show what happened in the slow paths of our locks
    #[arg(long)]
    events: bool,
    /// Write the report to this file rather than to standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write all figures to this file, as JSON; `-` is standard output, after the program's own
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    run: run::Args,
}

/// The files that a report goes to.
struct Files {
    text: Option<Output>,
    json: Option<Output>,
}

impl Files {
    /// Before the program has run for an hour is the time to find that its report cannot be written.
    fn open(args: &Args) -> Result<Files, Failure> {
        let named = [("-o", &args.output), ("--json", &args.json)];
        let standard: Vec<&str> = named
            .iter()
            .filter(|(_, path)| path.as_deref().is_some_and(output::is_standard))
            .map(|(name, _)| *name)
            .collect();
        if standard.len() > 1 {
            return Err(Failure::new(
                status::USAGE,
                format_args!(
                    "{} cannot all have standard output: name files for all but one of them",
                    standard.join(" - and ") + " -"
                ),
            ));
        }
        let open = |path: &Option<PathBuf>| path.as_deref().map(Output::open).transpose();
        Ok(Files { text: open(&args.output)?, json: open(&args.json)? })
    }
}

/// Runs the command, reports on its locks and passes its exit status on.
pub(crate) fn main(args: Args) -> ExitCode {
    match stat(&args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn stat(args: &Args) -> Result<u8, Failure> {
    let (lock, rwlocks) = args.run.locks(LockName::Glibc)?;
    args.run.semaphores()?;
    let program = launch::find(&args.run.command)?;
    // The program's own locks are measured by our library as well.
    program::check(&program)?;
    figures::check_file_size()?;
    let mut environment = library::environment_for(&program, lock, rwlocks)?;
    environment.extend(args.run.arrays(lock).map(semaphores::change));
    let files = Files::open(args)?;
    let dir = figures::directory()?;
    environment.push((OsStr::new(library::STAT_VARIABLE), Some(dir.path().into())));
    let command: Vec<String> =
        args.run.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let begun = Begun {
        command: command.clone(),
        lock: lock.to_string(),
        rwlock: rwlocks.to_string(),
        start_ns: monotonic_ns(),
    };
    // Nobody needs it unless we are killed.
    let _ = begun.write(dir.path());

    let ended = launch::run(&program, &args.run.command, &environment)?;
    let now_ns = monotonic_ns();
    let figures = Figures::read(dir.path(), now_ns);
    figures.remark(&ended, &args.run.command[0], None);
    let about = About { command, lock, rwlocks, wall_ns: ended.wall_ns, ending: ended.in_words(), now_ns };
    match report(args, about, &figures, files) {
        Ok(()) => Ok(ended.exit_code()),
        // The command's own failure says more than ours.
        Err(failure) if ended.status.success() => Err(failure),
        Err(failure) => {
            say(&failure.line);
            Ok(ended.exit_code())
        }
    }
}

fn report(args: &Args, about: About, figures: &Figures, files: Files) -> Result<(), Failure> {
    let shown = if args.top == 0 { usize::MAX } else { args.top };
    let wanted = Wanted { each: args.each.then_some(shown), lines: args.each && files.json.is_some() };
    let mut report = Report::new(about, &[], &figures.snapshots, None, wanted).map_err(|error| {
        Failure::new(status::OURS, format_args!("the report: {}", program::reason(&error)))
    })?;
    let diagnosis = diagnosis::of(&report);
    let (columns, colour) = Style::of_standard_error();
    let style = Style { columns, colour, shown, events: args.events };
    // All are attempted, whatever becomes of the others. Standard error being closed is no reason to fail a
    // command that has succeeded.
    let text = match files.text {
        None => {
            let _ = std::io::stderr().lock().write_all(text::text(&report, &diagnosis, style).as_bytes());
            Ok(())
        }
        Some(file) => {
            let style = Style { columns: text::FILE_COLUMNS, colour: false, ..style };
            file.write(|out| out.write_all(text::text(&report, &diagnosis, style).as_bytes()))
        }
    };
    let json = files.json.map_or(Ok(()), |file| file.write(|out| json::write(&mut report, &diagnosis, out)));
    text.and(json)
}
