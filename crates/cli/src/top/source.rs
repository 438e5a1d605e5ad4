//! Where figures come from: statistics files, or futex calls.

use std::rc::Rc;
use std::time::Duration;

use poundlock_statfile::{LockStats, Snapshot};

use crate::observe::symbols::Space;
use crate::stat::sampler::Times;

/// The figures of one process, as of one look.
pub(super) struct Looked {
    /// Tells it from other processes, and from the programs that the same process was before an `exec`.
    pub(super) id: u32,
    /// Its id for us, if it is known.
    pub(super) pid: Option<u32>,
    /// What it is called.
    pub(super) name: String,
    /// Sums since its start, without locks.
    pub(super) snapshot: Snapshot,
    /// Those that somebody waited for, with sums since its start.
    pub(super) locks: Vec<LockStats>,
    /// The names of its addresses.
    pub(super) space: Rc<Space<'static>>,
    /// Changes with `space`.
    pub(super) generation: u32,
    /// Whether its own records say all. Else only waits that slept are known, and who ended them.
    pub(super) exact: bool,
    /// Whether its process and those of its threads that use locks of the C library have records of their
    /// own.
    pub(super) beside: bool,
    /// It has ended, or become another program: there is no further look at it.
    pub(super) over: bool,
}

/// What looks at processes.
pub(super) trait Source {
    /// How often [`Source::tend`] is to be called between looks, if it is.
    fn tends(&self) -> Option<Duration> {
        None
    }

    /// Takes in what has come.
    fn tend(&mut self) {}

    /// The figures of all processes as of `now_ns`, which is `CLOCK_MONOTONIC`.
    fn look(&mut self, now_ns: u64) -> Vec<Looked>;

    /// Where the time of the threads of all processes went since the last call; `None` if nobody looked.
    fn times(&mut self) -> Option<Times>;

    /// Whether there may be something to see at a later look.
    fn goes_on(&self) -> bool;

    /// What is not seen, a line each.
    fn notes(&self) -> Vec<String>;
}

/// Several as one.
pub(super) struct All(pub(super) Vec<Box<dyn Source>>);

impl Source for All {
    fn tends(&self) -> Option<Duration> {
        self.0.iter().filter_map(|source| source.tends()).min()
    }

    fn tend(&mut self) {
        self.0.iter_mut().for_each(|source| source.tend());
    }

    fn look(&mut self, now_ns: u64) -> Vec<Looked> {
        self.0.iter_mut().flat_map(|source| source.look(now_ns)).collect()
    }

    fn times(&mut self) -> Option<Times> {
        let all: Vec<Option<Times>> = self.0.iter_mut().map(|source| source.times()).collect();
        all.into_iter().try_fold(Times::default(), |mut sum, times| {
            sum.merge(&times?);
            Some(sum)
        })
    }

    fn goes_on(&self) -> bool {
        self.0.iter().any(|source| source.goes_on())
    }

    fn notes(&self) -> Vec<String> {
        self.0.iter().flat_map(|source| source.notes()).collect()
    }
}
