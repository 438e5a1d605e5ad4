//! What the command itself has to say: one line on standard error, and the exit status that goes with it.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::launch;

/// Exit statuses of our own, as `env`, `timeout` and the shells use them. The same failure has the same
/// status in every command: 2 if the command line would be wrong on every machine, 125 if it is about
/// something that is not as the command needs it, be it a process, a file, a right or room.
pub(crate) mod status {
    /// A check that Poundlock makes failed, or a question was answered with no.
    pub(crate) const NO: u8 = 1;
    /// The command line makes no sense (clap's own status for it).
    pub(crate) const USAGE: u8 = 2;
    /// `check` found nothing, but had no room for all that there was to see, or saw threads sleep for locks
    /// that it does not know.
    pub(crate) const INCOMPLETE: u8 = 97;
    /// `check` ended the program because its threads waited for each other.
    pub(crate) const DEADLOCK: u8 = 98;
    /// Poundlock did not do what was asked; a program, if there is one, may not have run.
    pub(crate) const OURS: u8 = 125;
    /// The program was found but cannot be run, or not with our locks.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// The program was not found.
    pub(crate) const NOT_FOUND: u8 = 127;
    /// Somebody pressed Ctrl-C in a long run.
    pub(crate) const INTERRUPTED: u8 = 130;

    /// What each means, for the manual.
    pub(crate) const MEANINGS: [(u8, &str); 9] = [
        (0, "All went well."),
        (NO, "A check failed (of a lock, or of a figure), or what was to be removed was not."),
        (USAGE, "The command line makes no sense: an unknown option, name or number. Nothing was run."),
        (
            INCOMPLETE,
            "`check --error-exitcode` found nothing, but findings can be missing: something found no room, or not all \
             locks are checked.",
        ),
        (DEADLOCK, "`check --on-deadlock end` ended the program because of a deadlock."),
        (
            OURS,
            "Poundlock could not do it, and says why in a line: a process is gone or is another user's, a file is \
             not there, is damaged or cannot be written.",
        ),
        (NOT_EXECUTABLE, "The program was found, but cannot be run, or not with our library."),
        (NOT_FOUND, "The program was not found."),
        (INTERRUPTED, "Ctrl-C ended it."),
    ];
}

/// A reason not to go on: its line and its exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status of `poundlock`.
    pub(crate) status: u8,
    /// One line, without the `poundlock: ` in front.
    pub(crate) line: String,
    /// It is that nobody reads standard output any more.
    pub(crate) unread: bool,
}

impl Failure {
    /// A failure with this status and line.
    pub(crate) fn new(status: u8, line: impl Display) -> Self {
        Failure { status, line: line.to_string(), unread: false }
    }

    /// Prints the line and yields the exit status. If nobody reads our output any more, ends as filters do.
    pub(crate) fn report(&self) -> ExitCode {
        if self.unread {
            launch::end_by_sigpipe();
        }
        say(&self.line);
        ExitCode::from(self.status)
    }
}

/// Prints one line on standard error. Nobody can be told if that fails, so nothing is done about it.
pub(crate) fn say(line: impl Display) {
    let line = format!("poundlock: {line}").replace('\n', "\\n");
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
