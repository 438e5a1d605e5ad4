//! Keys, from the bytes of a terminal in raw mode.
//!
//! crossterm has a reader as well. It waits for the rest of half a sequence, during which nothing else is done,
//! and tries again for ever once the terminal is gone.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Where they come from.
pub(super) struct Keys {
    terminal: File,
    /// The beginning of a sequence, or of a character.
    rest: Vec<u8>,
}

impl Keys {
    /// Of standard input, or of the terminal that the process belongs to.
    pub(super) fn open() -> io::Result<Keys> {
        let input = io::stdin();
        let terminal = if input.is_terminal() {
            File::from(input.as_fd().try_clone_to_owned()?)
        } else {
            File::open("/dev/tty")?
        };
        Ok(Keys { terminal, rest: Vec::new() })
    }

    /// Those that were pressed since the last time. Never waits.
    pub(super) fn read(&mut self) -> io::Result<Vec<KeyEvent>> {
        let mut poll = libc::pollfd { fd: self.terminal.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is ours.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        if poll.revents & !libc::POLLIN != 0 {
            return Err(io::Error::other("it is gone"));
        }
        let mut bytes = [0; 256];
        let len = match poll.revents {
            0 => 0,
            _ => match self.terminal.read(&mut bytes) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                read => read.unwrap_or(0),
            },
        };
        self.rest.extend_from_slice(&bytes[..len]);
        let mut keys = Vec::new();
        let mut at = 0;
        // If nothing has come the rest is all that there is.
        while let Some((len, key)) = first(&self.rest[at..], len == 0) {
            at += len;
            keys.extend(key);
        }
        self.rest.drain(..at);
        Ok(keys)
    }
}

/// How long the first key is, and which, if it is one for us. `None` if its end is still to come.
fn first(bytes: &[u8], is_all: bool) -> Option<(usize, Option<KeyEvent>)> {
    let plain = |code| Some(KeyEvent::new(code, KeyModifiers::NONE));
    Some(match *bytes {
        [] => return None,
        [0x1b] if !is_all => return None,
        [0x1b, b'[' | b'O', ref rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| (b'@'..=b'~').contains(byte)) else {
                return is_all.then_some((bytes.len(), None));
            };
            let code = match (rest[end], &rest[..end]) {
                (b'A', _) => Some(KeyCode::Up),
                (b'B', _) => Some(KeyCode::Down),
                (b'H', _) | (b'~', b"1" | b"7") => Some(KeyCode::Home),
                (b'F', _) | (b'~', b"4" | b"8") => Some(KeyCode::End),
                (b'~', b"5") => Some(KeyCode::PageUp),
                (b'~', b"6") => Some(KeyCode::PageDown),
                _ => None,
            };
            (end + 3, code.and_then(plain))
        }
        [0x1b, ..] => (1, plain(KeyCode::Esc)),
        [b'\r' | b'\n', ..] => (1, plain(KeyCode::Enter)),
        [0x7f | 0x08, ..] => (1, plain(KeyCode::Backspace)),
        [letter @ 1..=26, ..] => {
            let code = KeyCode::Char((letter - 1 + b'a').into());
            (1, Some(KeyEvent::new(code, KeyModifiers::CONTROL)))
        }
        [first, ..] => {
            let len = match first {
                0..0xc0 => 1,
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            match bytes.get(..len) {
                None if !is_all => return None,
                None => (bytes.len(), None),
                Some(bytes) => {
                    let text = std::str::from_utf8(bytes).ok();
                    let letter = text.and_then(|text| text.chars().next()).filter(|c| !c.is_control());
                    (len, letter.map(KeyCode::Char).and_then(plain))
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys() {
        let keys = |mut bytes: &[u8], is_all| {
            let mut found = Vec::new();
            while let Some((len, key)) = first(bytes, is_all) {
                bytes = &bytes[len..];
                found.extend(key.map(|key| key.code));
            }
            (found, bytes.len())
        };
        let all = b"q\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[1~\x1b[F\r\x7f\xc3\xa9\x1bs\x1b[1;5Px";
        let expected = vec![
            KeyCode::Char('q'),
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::Enter,
            KeyCode::Backspace,
            KeyCode::Char('é'),
            KeyCode::Esc,
            KeyCode::Char('s'),
            KeyCode::Char('x'),
        ];
        assert_eq!(keys(all, false), (expected, 0));
        // What may go on, until it is all that comes.
        for (half, whole) in [(&b"\x1b"[..], vec![KeyCode::Esc]), (b"\x1b[1", vec![]), (b"\xc3", vec![])] {
            assert_eq!(keys(half, false), (vec![], half.len()));
            assert_eq!(keys(half, true), (whole, 0));
        }
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(first(b"\x03", false), Some((1, Some(interrupt))));
    }
}
