//! Semaphore arrays: threads that sleep and are woken, single calls, two threads in one array, pairs that
//! wake each other, and crowds of sleepers.

mod alone;
mod array;
mod burns;
mod crowd;
mod sleepers;
mod wakes;

use std::io;

use poundlock_core::semarray::Report;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::Sample;
use crate::sem::Mechanism;

pub(crate) use alone::Operation;
pub(crate) use crowd::Sleep;
pub(crate) use sleepers::LOOK_EVERY;
pub(crate) use wakes::{PAUSE, Sides};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) mechanism: Mechanism,
    /// The CPUs; what needs one only stays on the last, and each of two threads on one of the first two.
    pub(crate) cpus: Vec<usize>,
    /// How long each figure is measured.
    pub(crate) duration_ns: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    /// Threads that sleep, and a main thread that wakes them.
    Burns {
        threads: usize,
        /// How many the main thread takes off the list at a time.
        wake: usize,
        /// Whether each thread stays on one of the CPUs, in turn.
        bind: bool,
        /// How long they are at it before they are measured.
        warm_up_ns: u64,
    },
    /// One thread's calls: an answer for each [`Operation`].
    Alone {
        /// Time slices for each operation.
        slices: u32,
    },
    /// Two threads with a CPU and a semaphore each, in one array.
    Pair,
    /// Pairs of processes or threads that wake each other.
    Wakes { sides: Sides, pairs: usize },
    /// Wake-ups in an array with ever more sleepers: an answer for each number of them.
    Crowd {
        sleep: Sleep,
        /// Numbers of sleepers, ascending.
        sleepers: Vec<usize>,
    },
}

pub(crate) fn run(task: &Task) -> Result<Vec<Sample>> {
    if task.mechanism == Mechanism::Kernel {
        leave_no_array_behind();
    }
    match &task.what {
        What::Burns { threads, wake, bind, warm_up_ns } => {
            burns::run(task, *threads, *wake, *bind, *warm_up_ns).map(|sample| vec![sample])
        }
        What::Alone { slices } => alone::run(task, *slices),
        What::Pair => alone::two(task).map(|sample| vec![sample]),
        What::Wakes { sides, pairs } => wakes::run(task, *sides, *pairs).map(|sample| vec![sample]),
        What::Crowd { sleep, sleepers } => crowd::run(task, *sleep, sleepers),
    }
}

impl Task {
    /// The CPU for what needs one only.
    fn cpu(&self) -> Result<usize> {
        self.cpus.last().copied().ok_or_else(|| Error::Failed("there is no CPU to run on".to_owned()))
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

/// Adds what an array says of its lock, if it does: how often that was free and what waiting for it cost,
/// between two reports, of so many CPUs' time.
fn add_held(sample: &mut Sample, reports: [Option<Report>; 2], cpus: usize) {
    let [Some(first), Some(last)] = reports else { return };
    let since = |figure: fn(&Report) -> u64| figure(&last).saturating_sub(figure(&first)) as f64;
    let lifetime = since(|report| report.lifetime_ns);
    let (free, contended) = (since(|report| report.free), since(|report| report.contended));
    let spun = since(|report| report.spun_ns);
    sample.extend(super::sample([
        ("held.lifetime_ns", lifetime),
        ("held.free", free),
        ("held.contended", contended),
        ("held.spun_ns", spun),
        ("held.spun_avg_ns", (spun / contended.max(1.0)).floor()),
        ("held.slept", since(|report| report.slept)),
        ("spinning", spun / (lifetime * cpus as f64)),
    ]));
    if free + contended > 0.0 {
        sample.insert("contended".to_owned(), contended / (free + contended));
    }
}

/// An error number as an error.
fn failed(what: &str, number: libc::c_int) -> Error {
    Error::System { what: what.to_owned(), source: io::Error::from_raw_os_error(number) }
}
