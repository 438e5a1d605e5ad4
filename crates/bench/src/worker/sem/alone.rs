//! What one thread's calls cost that nobody waits for.

use std::ffi::c_int;
use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use serde::{Deserialize, Serialize};

use super::array::{Array, Errno, Use, op, with_arrays};
use crate::error::Result;
use crate::sem::Mechanism;
use crate::stats::Summary;
use crate::worker::alone::{Sleeper, Timer, take_turns};
use crate::{affinity, clock};

/// What is timed. Each is a pair of calls, and what is told is half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
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
    /// All.
    pub const ALL: [Operation; 4] = [Self::One, Self::Undo, Self::Eight, Self::Bare];

    /// In words.
    pub const fn words(self) -> &'static str {
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

pub(super) fn run(
    mechanism: Mechanism,
    cpu: usize,
    slices: u32,
    slice_ns: u64,
) -> Result<Vec<(Operation, Summary)>> {
    let sleeper = Sleeper::start()?;
    affinity::keep_to(&[cpu])?;
    let mut timers = with_arrays(mechanism, Timers)?;
    timers.push((Operation::Bare, Box::new(time_bare)));
    let operations: Vec<Operation> = timers.iter().map(|(operation, _)| *operation).collect();
    let mut timers: Vec<(&str, Timer)> =
        timers.into_iter().map(|(operation, timer)| (operation.words(), timer)).collect();
    let (pairs, _) = take_turns(&mut timers, slices, slice_ns)?;
    sleeper.stop()?;
    let half = |ns: Summary| Summary {
        median: ns.median / 2.0,
        q1: ns.q1 / 2.0,
        q3: ns.q3 / 2.0,
        min: ns.min / 2.0,
        max: ns.max / 2.0,
        n: ns.n,
    };
    Ok(operations.into_iter().zip(pairs).map(|(operation, ns)| (operation, half(ns))).collect())
}

struct Timers;

impl Use for Timers {
    type Output = Vec<(Operation, Timer)>;

    fn with<A: Array>(self) -> Result<Self::Output> {
        let mut timers = Vec::new();
        for operation in [Operation::One, Operation::Undo, Operation::Eight] {
            let (number, flags) = match operation {
                Operation::Undo => (1, libc::SEM_UNDO),
                Operation::Eight => (SEMAPHORES, 0),
                _ => (1, 0),
            };
            let array = A::new(SEMAPHORES)?;
            let calls = [1, -1].map(|change| (0..number).map(|i| op(i, change, flags)).collect::<Vec<_>>());
            let timer: Timer = Box::new(move |pairs| time(&array, &calls, pairs));
            timers.push((operation, timer));
        }
        Ok(timers)
    }
}

#[inline(never)]
fn time<A: Array>(array: &A, calls: &[Vec<libc::sembuf>; 2], pairs: u64) -> std::result::Result<u64, Errno> {
    let (array, [mut up, mut down]) = (black_box(array), calls.clone());
    let start = clock::now_ns();
    for _ in 0..pairs {
        array.operate(&mut up)?;
        array.operate(&mut down)?;
    }
    Ok(clock::now_ns() - start)
}

#[inline(never)]
fn time_bare(pairs: u64) -> std::result::Result<u64, c_int> {
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
