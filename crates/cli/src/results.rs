//! Where figures go: standard output, and files that are known to be writable before a run begins.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::message::{Failure, status};
use crate::output::{is_standard, print, quoted};

/// Where results go: a file, or standard output instead of what people read.
pub(crate) enum Output {
    /// It is opened before what it is for: one that cannot be written should not cost a run.
    File(File, PathBuf),
    Standard,
}

impl Output {
    /// The output, if one is wanted. What a file held stays until there is something to put in its place.
    pub(crate) fn open(path: Option<&Path>) -> Result<Option<Output>, Failure> {
        let Some(path) = path else { return Ok(None) };
        if is_standard(path) {
            return Ok(Some(Output::Standard));
        }
        match File::options().write(true).create(true).truncate(false).open(path) {
            Ok(file) => Ok(Some(Output::File(file, path.to_owned()))),
            Err(error) => Err(unwritable(path, &error)),
        }
    }

    /// As [`Output::open`], of two options, of which only one can go to standard output.
    pub(crate) fn open_both(
        json: Option<&Path>,
        other: (&str, Option<&Path>),
    ) -> Result<(Option<Output>, Option<Output>), Failure> {
        let (name, path) = other;
        if [json, path].into_iter().flatten().all(is_standard) && json.is_some() && path.is_some() {
            return Err(Failure::new(
                status::USAGE,
                format_args!(
                    "--json - and {name} - cannot both have standard output: name a file for one of them"
                ),
            ));
        }
        Ok((Output::open(json)?, Output::open(path)?))
    }

    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        let Output::File(mut file, path) = self else { return print(text) };
        let regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let truncated = if regular { file.set_len(0) } else { Ok(()) };
        let written = truncated.and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|error| unwritable(&path, &error))
    }

    pub(crate) fn json(self, document: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document)
            .map_err(|error| Failure::new(status::OURS, format_args!("the figures as JSON: {error}")))?;
        self.write(&(text + "\n"))
    }
}

/// The document, to the output if there is one.
pub(crate) fn write_json(document: &impl Serialize, output: Option<Output>) -> Result<(), Failure> {
    output.map_or(Ok(()), |output| output.json(document))
}

fn unwritable(path: &Path, error: &Error) -> Failure {
    Failure::new(status::OURS, format_args!("{}: {error}", path.display()))
}

/// To standard output, unless one of these results goes there.
pub(crate) fn print_beside(text: &str, outputs: &[&Option<Output>]) -> Result<(), Failure> {
    let taken = outputs.iter().any(|output| matches!(output, Some(Output::Standard)));
    if taken { Ok(()) } else { print(text) }
}

/// The command line for the record: without where this command lies and where the JSON goes, which say
/// nothing about the figures.
pub(crate) fn command_line(arguments: impl Iterator<Item = OsString>) -> String {
    let mut line = "poundlock".to_owned();
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    while let Some(argument) = arguments.next() {
        if argument == "--json" {
            arguments.next();
        } else if !argument.starts_with("--json=") {
            line += " ";
            line += &quoted(&argument);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_command_line_says_what_was_measured() {
        let line = |arguments: &[&str]| command_line(arguments.iter().map(|argument| argument.into()));
        assert_eq!(line(&["bench", "handover", "--threads", "2"]), "poundlock bench handover --threads 2");
        assert_eq!(line(&["bench", "--json", "/tmp/x", "start-up"]), "poundlock bench start-up");
        assert_eq!(line(&["bench", "start-up", "--json=/tmp/x"]), "poundlock bench start-up");
        assert_eq!(line(&["bench", "start-up", "--json"]), "poundlock bench start-up");
        let words = ["programs", "--", "sh", "-c", "a; b", "", "it's"];
        assert_eq!(line(&words), r"poundlock programs -- sh -c 'a; b' '' 'it'\''s'");
    }

    #[test]
    fn one_result_goes_to_standard_output_instead_of_what_people_read() {
        let path = |name| Some(Path::new(name));
        assert!(matches!(Output::open(path("-")), Ok(Some(Output::Standard))));
        assert!(matches!(Output::open_both(path("-"), ("--plot", None)), Ok((Some(Output::Standard), None))));
        let both = Output::open_both(path("-"), ("--plot", path("-")));
        assert!(both.is_err_and(|failure| failure.line.contains("--plot -")));
    }
}
