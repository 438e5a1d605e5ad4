//! What drivers of threads share: lines of their own, a gate to start at, readings of counts, and an end in
//! time.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use poundlock_core::Platform;
use poundlock_core::platform::Atomic;
use poundlock_linux::Linux;

use crate::clock;
use crate::error::{Error, Result};
use crate::plan::Sample;

/// Cache lines of its own, adjacent-line prefetching included.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Alone<T>(pub(super) T);

/// Where threads wait until all are there. Nobody who goes through it needs anybody else to run: among
/// threads that spin, a barrier with a mutex inside lets one through a time slice.
pub(super) struct Gate {
    open: <Linux as poundlock_core::atomic::Atomics>::U32,
    there: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Gate { open: Atomic::new(0), there: AtomicUsize::new(0) }
    }
}

impl Gate {
    pub(super) fn wait(&self) {
        self.there.fetch_add(1, Relaxed);
        while self.open.load(Acquire) == 0 {
            Linux::wait(&self.open, 0, poundlock_core::platform::Until::Woken);
        }
    }

    /// How many threads have come so far.
    pub(super) fn there(&self) -> usize {
        self.there.load(Relaxed)
    }

    /// Lets `threads` through once they are all there.
    pub(super) fn open(&self, threads: usize) {
        while self.there() < threads {
            thread::sleep(Duration::from_micros(100));
        }
        self.open.store(1, Release);
        Linux::wake(&self.open, u32::MAX);
    }
}

/// How often each thread had acquired a lock at some moment.
pub(super) struct Reading {
    pub(super) at_ns: u64,
    pub(super) counts: Vec<u64>,
}

impl Reading {
    pub(super) fn take<'a>(counts: impl Iterator<Item = &'a AtomicU64> + Clone) -> Reading {
        // If this thread is preempted in the middle, the counts belong to no moment.
        const PROMPT_NS: u64 = 100_000;
        let mut tries = 0;
        loop {
            let before = clock::now_ns();
            let values = counts.clone().map(|count| count.load(Relaxed)).collect();
            let after = clock::now_ns();
            tries += 1;
            if after - before < PROMPT_NS || tries == 100 {
                return Reading { at_ns: before + (after - before) / 2, counts: values };
            }
        }
    }
}

/// Waits up to an hour are told apart, to a hundredth.
pub(super) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 2)
        .map_err(|error| Error::Failed(format!("no histogram of waits: {error}")))
}

/// Adds nanoseconds of what is in a histogram.
pub(super) fn add_quantiles(sample: &mut Sample, whose: &str, all: &Histogram<u64>) {
    for (name, value) in [
        ("count", all.len() as f64),
        ("mean_ns", all.mean()),
        ("p50_ns", all.value_at_quantile(0.5) as f64),
        ("p99_ns", all.value_at_quantile(0.99) as f64),
        ("p999_ns", all.value_at_quantile(0.999) as f64),
        ("max_ns", all.max() as f64),
    ] {
        sample.insert(format!("{whose}.{name}"), value);
    }
}

/// Waits for the threads' ends, but not for long. Returns how many have not come to theirs.
pub(super) fn finish(mut threads: Vec<JoinHandle<Result<()>>>, limit: Duration) -> Result<usize> {
    let end = Instant::now() + limit;
    loop {
        let (finished, rest): (Vec<_>, Vec<_>) = threads.into_iter().partition(JoinHandle::is_finished);
        threads = rest;
        for thread in finished {
            thread.join().map_err(|_| Error::Failed("a thread died".to_owned()))??;
        }
        if threads.is_empty() || Instant::now() >= end {
            return Ok(threads.len());
        }
        thread::sleep(Duration::from_micros(500));
    }
}
