//! What can go wrong in a benchmark.

use std::io;

/// Why a benchmark has no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options contradict each other or ask for nothing.
    #[error("{0}")]
    Options(String),
    /// What was named or started failed: a program, a directory of results, a measurement.
    #[error("{0}")]
    Failed(String),
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A library or one of its symbols could not be had.
    #[error("{0}")]
    Library(String),
    /// A worker process failed, hung, or measured something impossible.
    #[error("{contender}: {message}")]
    Worker {
        /// The contender that was measured.
        contender: String,
        /// What happened.
        message: String,
    },
}

impl Error {
    /// An [`Error::System`] for the last failed call; made to be handed to `map_err`.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }

    pub(crate) fn worker(contender: &str, message: impl Into<String>) -> Error {
        Error::Worker { contender: contender.to_owned(), message: message.into() }
    }

    /// A worker's answer is not to what it was asked.
    pub(crate) fn another_question(contender: &str) -> Error {
        Error::worker(contender, "the worker answered another question")
    }
}

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
