//! Semaphore arrays: threads that sleep and are woken, single calls, two threads in one array, and crowds of
//! sleepers.

mod alone;
mod array;
mod burns;
mod crowd;
mod pair;

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::sem::Mechanism;
use crate::stats::Summary;

pub use alone::Operation;
pub use array::Held;
pub(crate) use burns::{Burns, NAP};
pub(crate) use crowd::Cost;
pub use crowd::Sleep;
pub(crate) use pair::Pair;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Threads that sleep, and a main thread that wakes them.
    Burns {
        mechanism: Mechanism,
        threads: usize,
        /// How many the main thread takes off the list at a time.
        wake: usize,
        /// The CPUs.
        cpus: Vec<usize>,
        /// Whether each thread stays on one of them, in turn.
        bind: bool,
        /// How long they are at it before they are measured.
        warm_up_ns: u64,
        /// How long they are measured.
        duration_ns: u64,
    },
    /// One thread's calls.
    Alone {
        mechanism: Mechanism,
        /// The CPU to stay on.
        cpu: usize,
        /// Time slices for each operation.
        slices: u32,
        /// Length of a slice.
        slice_ns: u64,
    },
    /// Two threads with a CPU and a semaphore each, in one array.
    Pair { mechanism: Mechanism, cpus: [usize; 2], duration_ns: u64 },
    /// Wake-ups in an array with ever more sleepers.
    Crowd {
        mechanism: Mechanism,
        sleep: Sleep,
        /// Numbers of sleepers, ascending.
        sleepers: Vec<usize>,
        /// The CPU that all stay on.
        cpu: usize,
        /// How long to measure for each number.
        duration_ns: u64,
    },
}

impl Task {
    fn mechanism(&self) -> Mechanism {
        match *self {
            Task::Burns { mechanism, .. }
            | Task::Alone { mechanism, .. }
            | Task::Pair { mechanism, .. }
            | Task::Crowd { mechanism, .. } => mechanism,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Burns(Burns),
    /// Nanoseconds a call: the median over the slices and their spread.
    Alone(Vec<(Operation, Summary)>),
    Pair(Pair),
    Crowd(Vec<Cost>),
}

pub(crate) fn run(task: &Task) -> Result<Answer> {
    if task.mechanism() == Mechanism::Kernel {
        leave_no_array_behind();
    }
    match task {
        Task::Burns { .. } => burns::run(task).map(Answer::Burns),
        Task::Alone { mechanism, cpu, slices, slice_ns } => {
            alone::run(*mechanism, *cpu, *slices, *slice_ns).map(Answer::Alone)
        }
        Task::Pair { mechanism, cpus, duration_ns } => {
            pair::run(*mechanism, *cpus, *duration_ns).map(Answer::Pair)
        }
        Task::Crowd { mechanism, sleep, sleepers, cpu, duration_ns } => {
            crowd::run(*mechanism, *sleep, sleepers, *cpu, *duration_ns).map(Answer::Crowd)
        }
    }
}

/// The kernel keeps an array until somebody removes it, also if its benchmark was interrupted. In a name
/// space of this process's own it goes with the process, and the limits of the name space outside do not
/// matter. Where that is not allowed, an interrupted run may leave an array to `ipcrm`.
fn leave_no_array_behind() {
    // SAFETY: plain calls of a process with one thread, which has nothing of System V's yet.
    unsafe {
        if libc::unshare(libc::CLONE_NEWIPC) != 0 {
            // Those who may not may do so as the owner of a user name space.
            libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWIPC);
        }
    }
}

/// An error number as an error.
fn failed(what: &str, number: libc::c_int) -> Error {
    Error::System { what: what.to_owned(), source: io::Error::from_raw_os_error(number) }
}
