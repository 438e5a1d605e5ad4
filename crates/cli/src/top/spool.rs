//! What the command prints while the screen is up: into a file that has no name, and to the terminal once the
//! screen is gone. So it destroys nothing on the screen, and nothing of it is lost.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use super::table::{Mark, Text};

/// The file, and how much of it the terminal has.
pub(super) struct Spool {
    file: File,
    passed: u64,
}

/// As much of the end is shown on the screen.
const SHOWN: u64 = 1 << 16;

impl Spool {
    pub(super) fn new() -> io::Result<Spool> {
        Ok(Spool { file: tempfile::tempfile()?, passed: 0 })
    }

    /// An end for the command to write to: all of them share one position.
    pub(super) fn end(&self) -> io::Result<Stdio> {
        Ok(self.file.try_clone()?.into())
    }

    /// Passes on what has come.
    pub(super) fn pass(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let len = self.file.read_at(&mut buffer, self.passed)?;
            if len == 0 {
                return to.flush();
            }
            to.write_all(&buffer[..len])?;
            self.passed += len as u64;
        }
    }

    /// Its end, without what would move the cursor.
    pub(super) fn tail(&self) -> Text {
        let len = self.file.metadata().map_or(0, |metadata| metadata.len());
        let mut end = vec![0; len.min(SHOWN) as usize];
        let read = self.file.read_at(&mut end, len.saturating_sub(SHOWN)).unwrap_or(0);
        let text = String::from_utf8_lossy(&end[..read]).into_owned();
        Text {
            title: "what the command has printed (all of it follows when the screen is gone)".to_owned(),
            lines: text.lines().map(|line| (Mark::Plain, plain(line))).collect(),
        }
    }
}

/// A line without escape sequences and other control characters.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' if chars.next_if_eq(&'[').is_some() => {
                // Up to its last character.
                chars.by_ref().find(|c| ('@'..='~').contains(c));
            }
            '\t' => text.push_str("    "),
            c if c.is_control() => {}
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_passed_on_once_and_shown_without_colours() {
        let mut spool = Spool::new().expect("there is a place for it");
        let mut end = spool.file.try_clone().expect("another end");
        end.write_all(b"first\n\x1b[1;31msecond\x1b[0m\tx\r\n").expect("it is written");
        let shown: Vec<String> = spool.tail().lines.into_iter().map(|(_, line)| line).collect();
        assert_eq!(shown, ["first", "second    x"]);
        let mut passed = Vec::new();
        spool.pass(&mut passed).expect("it is passed on");
        end.write_all(b"third").expect("it is written");
        spool.pass(&mut passed).expect("it is passed on");
        assert_eq!(passed, b"first\n\x1b[1;31msecond\x1b[0m\tx\r\nthird");
    }
}
