//! The process in which a contender is measured.
//!
//! The preload library chooses its lock once a process, and a process that ever had two threads is not the
//! same to glibc as one that never had. So each measurement runs in a process of its own: this executable
//! again, which reads a `Request` from standard input and writes an `Answer` to standard output.

pub(crate) mod alone;
pub(crate) mod drive;
pub(crate) mod floor;
mod gate;
mod hogs;
pub(crate) mod left;
pub(crate) mod pass;
pub(crate) mod probe;
pub(crate) mod sem;
pub(crate) mod symbols;

use std::io::{Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::grid::result::Floors;
use crate::plan::Sample;

/// What a worker is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The library whose locks are measured; `None` for the C library.
    pub(crate) library: Option<PathBuf>,
    /// What to measure.
    pub(crate) task: Task,
}

/// A measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// One thread's times.
    Alone(alone::Task),
    /// Threads that contend.
    Work(drive::Task),
    /// Two threads that pass a lock to and fro.
    Pass(pass::Task),
    /// Whether the library has locks of this kind of its own.
    Look(symbols::Kind),
    Sem(sem::Task),
    Floor(floor::Task),
    Left(left::Task),
}

impl Task {
    /// Whether our C library can be measured.
    pub(crate) fn c_library_is_there() -> bool {
        symbols::Symbols::of_c_library("mutex").is_ok()
    }
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Figures by name: of all that was asked for, in order.
    Figures(Vec<Sample>),
    /// Why it has none, if it has none.
    Look(Option<String>),
    Floor(Box<Floors>),
    Failed(String),
}

/// The body of the worker process, and its end: with 0 once an answer is written, also if that is a failure.
pub fn serve() -> ! {
    let answer = answer().unwrap_or_else(|error| Answer::Failed(error.to_string()));
    let written = serde_json::to_vec(&answer).map_err(std::io::Error::from).and_then(|answer| {
        let mut stdout = std::io::stdout();
        stdout.write_all(&answer)?;
        stdout.flush()
    });
    let status = match written {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("poundlock bench worker: cannot answer: {error}");
            1
        }
    };
    // SAFETY: takes a number, and needs nothing of the process. Not `exit`: that would run the destructors of
    // libraries under threads that starve in their locks. oneTBB's throws exceptions into them, and aborts.
    unsafe { libc::_exit(status) }
}

/// Figures by their names.
fn sample<const N: usize>(figures: [(&str, f64); N]) -> Sample {
    figures.map(|(name, value)| (name.to_owned(), value)).into()
}

fn answer() -> Result<Answer> {
    let mut request = String::new();
    std::io::stdin().read_to_string(&mut request).map_err(Error::system("cannot read the request"))?;
    let request: Request =
        serde_json::from_str(&request).map_err(|error| Error::Failed(format!("not a request: {error}")))?;
    let library = request.library.as_deref();
    match &request.task {
        Task::Alone(task) => alone::run(library, task).map(Answer::Figures),
        Task::Work(task) => drive::run(library, task).map(|sample| Answer::Figures(vec![sample])),
        Task::Pass(task) => pass::run(library, task).map(|sample| Answer::Figures(vec![sample])),
        Task::Look(kind) => match symbols::Symbols::of(library, *kind) {
            Ok(_) => Ok(Answer::Look(None)),
            Err(Error::Library(why)) => Ok(Answer::Look(Some(why))),
            Err(other) => Err(other),
        },
        Task::Sem(task) => sem::run(task).map(Answer::Figures),
        Task::Floor(task) => floor::run(task).map(|floors| Answer::Floor(Box::new(floors))),
        Task::Left(task) => left::run(task).map(|()| Answer::Figures(Vec::new())),
    }
}
