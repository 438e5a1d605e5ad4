//! Standard output, and words for it.

use std::io::{Error, ErrorKind, Write};
use std::path::Path;

use poundlock_statfile::layout::printable;

use crate::message::{Failure, status};

/// What stands for standard output where a file can be named. A file of that name is `./-`.
const STANDARD: &str = "-";

/// Whether a path stands for standard output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == STANDARD
}

/// To standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| refused(&error))
}

/// Standard output takes no more. That nobody reads it is no failure to tell people about.
pub(crate) fn refused(error: &Error) -> Failure {
    Failure {
        unread: error.kind() == ErrorKind::BrokenPipe,
        ..Failure::new(status::OURS, format_args!("standard output: {error}"))
    }
}

/// A word as it could be typed: quoted where a shell would take it apart. What a terminal would obey is
/// written out, as bash takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.contains(|c: char| c.is_control() && c != '\n') {
        format!("$'{}'", printable(word.replace('\\', r"\\").replace('\'', r"\'").as_bytes()))
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// `1 process`, `2 processes`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    let ending = match (n, what.ends_with(['s', 'x', 'h'])) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{n} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_with_their_nouns() {
        assert_eq!(counted(1, "process"), "1 process");
        assert_eq!(counted(2, "process"), "2 processes");
        assert_eq!(counted(0, "thread"), "0 threads");
    }
}
