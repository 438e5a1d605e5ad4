//! Calls that nobody sleeps in: what they cost one thread, and how many two threads make in one array.

use std::hint::black_box;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::array::{Array, Errno, op};
use super::{Task, add_held, failed};
use crate::error::{Error, Result};
use crate::plan::Sample;
use crate::worker::alone::{Timer, start_a_second_thread, take_turns};
use crate::worker::gate::Alone;
use crate::worker::sample;
use crate::{affinity, clock};

/// What is timed. Each is a pair of calls, and what is told is half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Operation {
    /// A call with one operation: +1, then -1.
    One,
    /// The same with `SEM_UNDO`.
    Undo,
    /// A call with eight operations, on a semaphore each: all +1, then all -1.
    Eight,
    /// No call at all: two compare-and-swaps of a word. The floor.
    Bare,
}

impl Operation {
    pub(crate) const ALL: [Operation; 4] = [Self::One, Self::Undo, Self::Eight, Self::Bare];

    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::One => "one operation",
            Self::Undo => "one operation with SEM_UNDO",
            Self::Eight => "eight operations",
            Self::Bare => "a bare compare-and-swap",
        }
    }
}

/// Semaphores of the array.
const SEMAPHORES: usize = 8;

/// Nanoseconds of each operation: the median over the slices.
pub(super) fn run(task: &Task, slices: u32) -> Result<Vec<Sample>> {
    start_a_second_thread()?;
    affinity::keep_to(&[task.cpu()?])?;
    let timer = |operation: Operation| -> Result<(&str, Timer)> {
        let (number, flags) = match operation {
            Operation::One => (1, 0),
            Operation::Undo => (1, libc::SEM_UNDO),
            Operation::Eight => (SEMAPHORES, 0),
            Operation::Bare => return Ok((operation.words(), Box::new(time_bare))),
        };
        let array = Array::new(task.mechanism, SEMAPHORES)?;
        let calls = [1, -1].map(|change| (0..number).map(|i| op(i, change, flags)).collect::<Vec<_>>());
        Ok((operation.words(), Box::new(move |pairs| time(&array, &calls, pairs))))
    };
    let mut timers = Operation::ALL.into_iter().map(timer).collect::<Result<Vec<_>>>()?;
    let pairs = take_turns(&mut timers, slices, task.duration_ns / u64::from(slices))?;
    Ok(pairs.into_iter().map(|(ns, _)| sample([("ns", ns.median / 2.0)])).collect())
}

#[inline(never)]
fn time(array: &Array, calls: &[Vec<libc::sembuf>; 2], pairs: u64) -> std::result::Result<u64, Errno> {
    let (array, [mut up, mut down]) = (black_box(array), calls.clone());
    let start = clock::now_ns();
    for _ in 0..pairs {
        array.operate(&mut up)?;
        array.operate(&mut down)?;
    }
    Ok(clock::now_ns() - start)
}

#[inline(never)]
fn time_bare(pairs: u64) -> std::result::Result<u64, Errno> {
    let word = AtomicU32::new(0);
    let word = black_box(&word);
    let start = clock::now_ns();
    for _ in 0..pairs {
        for (from, to) in [(0, 1), (1, 0)] {
            word.compare_exchange(from, to, AcqRel, Relaxed).map_err(|_| libc::EINVAL)?;
        }
    }
    Ok(clock::now_ns() - start)
}

/// Two threads with a CPU and a semaphore each, in one array: nobody ever sleeps for a semaphore, and only
/// the array's lock is between them.
pub(super) fn two(task: &Task) -> Result<Sample> {
    let &[first_cpu, second_cpu, ..] = task.cpus.as_slice() else {
        return Err(Error::Failed("there are no two CPUs".to_owned()));
    };
    let array = Array::new(task.mechanism, 2)?;
    let calls: [Alone<AtomicU64>; 2] = Default::default();
    let stop = AtomicBool::new(false);
    let up_and_down = |index: usize, cpu: usize| -> Result<()> {
        affinity::keep_to(&[cpu])?;
        let mut done = 0;
        while !stop.load(Relaxed) {
            for change in [1, -1] {
                array.operate(&mut [op(index, change, 0)]).map_err(|errno| failed("semop", errno))?;
            }
            done += 2;
            calls[index].0.store(done, Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let up_and_down = &up_and_down;
        let threads = [(0, first_cpu), (1, second_cpu)]
            .map(|(index, cpu)| thread::Builder::new().spawn_scoped(scope, move || up_and_down(index, cpu)));
        let read = || calls.each_ref().map(|calls| calls.0.load(Relaxed));
        let running =
            || threads.iter().all(|thread| thread.as_ref().is_ok_and(|thread| !thread.is_finished()));
        // Both are to be under way.
        while read().contains(&0) && running() {
            thread::sleep(Duration::from_micros(100));
        }
        let (start, first, held) = (clock::now_ns(), read(), array.held());
        let last = loop {
            thread::sleep(Duration::from_nanos(task.duration_ns));
            let last = read();
            // A busy machine may not have let one of them run at all. If an array hangs, the parent's
            // patience ends.
            if last[0] != first[0] && last[1] != first[1] || !running() {
                break last;
            }
        };
        let elapsed_ns = clock::now_ns() - start;
        let done = last[0] + last[1] - first[0] - first[1];
        let mut figures = sample([("calls_per_second", done as f64 * 1e9 / elapsed_ns as f64)]);
        add_held(&mut figures, [held, array.held()], 2);
        stop.store(true, Relaxed);
        for thread in threads {
            let ended = thread.map_err(Error::system("cannot start a thread"))?.join();
            ended.map_err(|_| Error::Failed("a thread died".to_owned()))??;
        }
        Ok(figures)
    })
}
