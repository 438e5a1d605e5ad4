//! The process in which a contender is measured.
//!
//! The preload library chooses its lock once a process, and a process that ever had two threads is not the
//! same to glibc as one that never had. So each measurement runs in a process of its own: this executable
//! again, which reads a `Request` from standard input and writes an `Answer` to standard output.

pub(crate) mod floor;
pub(crate) mod grid;
pub(crate) mod handover;
mod hogs;
pub(crate) mod misc;
pub(crate) mod probe;
pub(crate) mod rwlock;
pub(crate) mod sem;
pub(crate) mod spin;
pub(crate) mod turns;
pub(crate) mod uncontended;

use std::io::{Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::abi::Abi;
use crate::error::{Error, Result};
use crate::grid::result::{Floors, Measured};

/// What a worker is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The library whose locks are measured; `None` for the C library.
    pub(crate) library: Option<PathBuf>,
    /// What to measure.
    pub(crate) task: Task,
}

/// A measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Uncontended(uncontended::Task),
    Handover(handover::Task),
    Spin(spin::Task),
    Rwlock(rwlock::Task),
    Misc(misc::Task),
    Sem(sem::Task),
    Grid(grid::Task),
    Floor(floor::Task),
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Uncontended(uncontended::Answer),
    Handover(turns::Answer),
    Spin(spin::Answer),
    Rwlock(rwlock::Answer),
    Misc(misc::Answer),
    Sem(sem::Answer),
    Grid(Measured),
    Floor(Floors),
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
    // SAFETY: takes a number, and needs nothing of the process. Not `exit`: that would run the destructors of libraries under
    // threads that starve in their locks. oneTBB's throws exceptions into them, and aborts.
    unsafe { libc::_exit(status) }
}

fn answer() -> Result<Answer> {
    let mut request = String::new();
    std::io::stdin().read_to_string(&mut request).map_err(Error::system("cannot read the request"))?;
    let request: Request =
        serde_json::from_str(&request).map_err(|error| Error::Options(format!("not a request: {error}")))?;
    let library = request.library.as_deref();
    let abi = || library.map_or_else(Abi::glibc, Abi::open);
    match &request.task {
        Task::Uncontended(task) => uncontended::run(abi()?, task).map(Answer::Uncontended),
        Task::Handover(task) => handover::run(abi()?, task).map(Answer::Handover),
        Task::Spin(task) => spin::run(library, task).map(Answer::Spin),
        Task::Rwlock(task) => rwlock::run(library, task).map(Answer::Rwlock),
        Task::Misc(task) => misc::run(task).map(Answer::Misc),
        Task::Sem(task) => sem::run(task).map(Answer::Sem),
        Task::Grid(task) => grid::run(task).map(Answer::Grid),
        Task::Floor(task) => floor::run(task).map(Answer::Floor),
    }
}
