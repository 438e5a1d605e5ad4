//! Where figures go: standard output, and files that are known to be writable before a run begins.

use std::fs::File;
use std::io::{Error, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::message::Failure;

/// A file for results. It is opened before what it is for: one that cannot be written should not cost a run.
pub(crate) struct Output {
    file: File,
    path: PathBuf,
}

impl Output {
    /// The file, if one is wanted. What it held stays until there is something to put in its place.
    pub(crate) fn open(path: Option<&Path>) -> Result<Option<Output>, Failure> {
        let Some(path) = path else { return Ok(None) };
        match File::options().write(true).create(true).truncate(false).open(path) {
            Ok(file) => Ok(Some(Output { file, path: path.to_owned() })),
            Err(error) => Err(unwritable(path, &error)),
        }
    }

    pub(crate) fn write(mut self, text: &str) -> Result<(), Failure> {
        let regular = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let truncated = if regular { self.file.set_len(0) } else { Ok(()) };
        let written = truncated.and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| unwritable(&self.path, &error))
    }

    pub(crate) fn json(self, document: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document)
            .map_err(|error| Failure::new(1, format_args!("the figures as JSON: {error}")))?;
        self.write(&(text + "\n"))
    }
}

/// The document, to the file if there is one.
pub(crate) fn write_json(document: &impl Serialize, file: Option<Output>) -> Result<(), Failure> {
    file.map_or(Ok(()), |file| file.json(document))
}

fn unwritable(path: &Path, error: &Error) -> Failure {
    Failure::new(1, format_args!("{}: {error}", path.display()))
}

/// To standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::new(1, format_args!("standard output: {error}")))
}
