//! Limits how many jobs run at a time, among processes that know nothing of one another but a file's name:
//!
//!     job_limiter FILE SLOTS[,MEMORY] [--needs MEMORY] -- COMMAND ARGUMENTS
//!     job_limiter FILE --remove
//!
//! At most SLOTS of those that name the same FILE run their commands at a time, and these need no more than
//! MEMORY units (gigabytes, say) together; the others wait. A job takes its slot and its memory at once or
//! not at all, so two jobs never wait for what the other has. However a job ends, by `kill -9` too, what it
//! held comes back.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use poundlock::{Key, Operation, SemaphoreSet};

const SLOT: u16 = 0;
const MEMORY: u16 = 1;

fn fail(why: impl std::fmt::Display) -> ExitCode {
    eprintln!("job_limiter: {why}");
    ExitCode::from(125)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (file, limits, needs, command) = match arguments[..] {
        [file, "--remove"] => return remove(file),
        [file, limits, "--", ref command @ ..] if !command.is_empty() => (file, limits, "0", command),
        [file, limits, "--needs", needs, "--", ref command @ ..] if !command.is_empty() => {
            (file, limits, needs, command)
        }
        _ => return fail("FILE SLOTS[,MEMORY] [--needs MEMORY] -- COMMAND ARGUMENTS, or FILE --remove"),
    };
    let (slots, memory) = limits.split_once(',').unwrap_or((limits, "0"));
    let (Ok(slots), Ok(memory), Ok(needs)) = (slots.parse(), memory.parse::<u16>(), needs.parse::<u16>())
    else {
        return fail("SLOTS and MEMORY are numbers");
    };
    if needs > memory {
        return fail(format_args!("no job of {needs} units ever fits into {memory}"));
    }
    let set =
        match Key::of_file(file, b'j').and_then(|key| SemaphoreSet::open_or_create(key, &[slots, memory])) {
            Ok(set) => set,
            Err(error) => return fail(format_args!("{file}: {error}")),
        };
    let take = [SLOT, MEMORY].map(|semaphore| {
        let count = if semaphore == SLOT { 1 } else { needs };
        Operation::take(semaphore, count).undone_at_end()
    });
    // To take 0 units would be to wait until there are none.
    let operations = if needs == 0 { &take[..1] } else { &take };
    if let Err(error) = set.operate(operations) {
        return fail(format_args!("{file}: {error}"));
    }
    // In this process's place, so that what is held is held by the job itself.
    let error = Command::new(command[0]).args(&command[1..]).exec();
    fail(format_args!("{}: {error}", command[0]))
}

fn remove(file: &str) -> ExitCode {
    let removed = Key::of_file(file, b'j').and_then(SemaphoreSet::open).and_then(|set| set.remove());
    match removed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(format_args!("{file}: {error}")),
    }
}
