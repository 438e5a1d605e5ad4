//! What waking one costs among many who sleep in one array.
//!
//! Everybody stays on one CPU, and the sleepers are batch threads, which do not displace the thread that
//! wakes them: so the time of a call is the time that the call takes, and nobody else's.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::thread;

use serde::{Deserialize, Serialize};

use super::sleepers::{self, Sleepers};
use super::{Task, failed};
use crate::Summary;
use crate::error::{Error, Result};
use crate::plan::Sample;
use crate::worker::alone::is_asleep;
use crate::worker::sample;
use crate::{affinity, clock};

/// For what the sleepers wait, and how they are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sleep {
    /// One operation each, on a semaphore of their own; one is woken at a time.
    Own,
    /// Two operations each, on a semaphore of their own and on one that all share; one is woken at a time.
    Several,
    /// The same; the ten that came last are woken by one call, which is the order that tries the sleepers
    /// most often.
    Ten,
}

impl Sleep {
    pub(crate) const ALL: [Sleep; 3] = [Self::Own, Self::Several, Self::Ten];

    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Own => "one operation each, one woken at a time",
            Self::Several => "two operations each, one woken at a time",
            Self::Ten => "two operations each, the ten that came last woken at a time",
        }
    }

    /// How many are woken at a time.
    const fn woken(self) -> usize {
        if matches!(self, Self::Ten) { 10 } else { 1 }
    }
}

/// The most calls that are timed for a number of sleepers, and the fewest.
const CALLS: std::ops::RangeInclusive<usize> = 20..=1000;
/// How long threads may take to come to rest.
const PATIENCE_NS: u64 = 60_000_000_000;
/// What a sleeper's thread needs and no more: there are thousands.
const STACK: usize = 32 << 10;

/// For each number of sleepers nanoseconds of CPU time of a call for each thread that it wakes, the median
/// over the calls; and by how much that grew with each doubling since the number before.
pub(super) fn run(task: &Task, sleep: Sleep, sleepers: &[usize]) -> Result<Vec<Sample>> {
    let most = sleepers.last().copied().unwrap_or(0);
    if !sleepers.is_sorted() || sleepers.first().is_none_or(|&fewest| fewest < sleep.woken()) {
        return Err(Error::Failed("numbers of sleepers that do not ascend, or too few".to_owned()));
    }
    let costs = measure(task, sleep, sleepers, sleepers::by(task.mechanism, most, sleep != Sleep::Own)?)?;
    let mut samples: Vec<Sample> = costs.iter().map(|&ns| sample([("ns", ns)])).collect();
    for (index, sample) in samples.iter_mut().enumerate().skip(1) {
        let doublings = (sleepers[index] as f64 / sleepers[index - 1] as f64).log2();
        sample.insert("growth".to_owned(), (costs[index] / costs[index - 1]).powf(1.0 / doublings));
    }
    Ok(samples)
}

struct Shared {
    bed: Box<dyn Sleepers>,
    /// For each thread, how often it has set out to sleep.
    slept: Vec<AtomicU64>,
    threads: Vec<AtomicI32>,
    /// An error number that a thread met.
    failed: AtomicI32,
}

fn sleeper(shared: &Shared, number: usize) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are valid; a thread may always become a batch thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters) } != 0 {
        shared.failed.store(libc::EPERM, Relaxed);
    }
    // SAFETY: a plain query.
    shared.threads[number].store(unsafe { libc::gettid() }, Relaxed);
    loop {
        shared.slept[number].fetch_add(1, Release);
        match shared.bed.sleep(number) {
            Ok(()) => {}
            Err(libc::EIDRM | libc::EINVAL) => break,
            Err(errno) => {
                shared.failed.store(errno, Relaxed);
                break;
            }
        }
    }
}

fn measure(task: &Task, sleep: Sleep, sleepers: &[usize], bed: Box<dyn Sleepers>) -> Result<Vec<f64>> {
    affinity::keep_to(&[task.cpu()?])?;
    let most = sleepers.last().copied().unwrap_or(0);
    let shared = Arc::new(Shared {
        bed,
        slept: (0..most).map(|_| AtomicU64::new(0)).collect(),
        threads: (0..most).map(|_| AtomicI32::new(0)).collect(),
        failed: AtomicI32::new(0),
    });
    let mut costs = Vec::new();
    let mut there = 0;
    for &sleepers in sleepers {
        for number in there..sleepers {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .stack_size(STACK)
                .spawn(move || sleeper(&shared, number))
                .map_err(Error::system(format!("cannot start {sleepers} threads")))?;
        }
        (there..sleepers).try_for_each(|number| shared.await_rest(number, 1))?;
        there = sleepers;
        costs.push(shared.time(sleep, sleepers, task.duration_ns)?);
    }
    shared.bed.abandon().map_err(|errno| failed("cannot remove the array", errno))?;
    Ok(costs)
}

/// What it takes to read the thread's clock; interruptions only ever lengthen that.
fn cost_of_reading() -> u64 {
    let mut costs: Vec<u64> = (0..100)
        .map(|_| {
            let start = clock::thread_ns();
            clock::thread_ns() - start
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 10]
}

impl Shared {
    fn time(&self, sleep: Sleep, sleepers: usize, duration_ns: u64) -> Result<f64> {
        let end = clock::now_ns() + duration_ns;
        let reading = cost_of_reading();
        let mut samples = Vec::new();
        while samples.len() < *CALLS.start() || samples.len() < *CALLS.end() && clock::now_ns() < end {
            let woken: Vec<usize> = match sleep {
                Sleep::Own | Sleep::Several => vec![fastrand::usize(..sleepers)],
                Sleep::Ten => (sleepers - sleep.woken()..sleepers).rev().collect(),
            };
            let before: Vec<u64> = woken.iter().map(|&number| self.slept[number].load(Acquire)).collect();
            // CPU time: whether a woken thread displaces this one during the call is the scheduler's whim,
            // and often for a whole number of sleepers.
            let start = clock::thread_ns();
            let result = self.bed.wake(&woken);
            samples.push((clock::thread_ns() - start).saturating_sub(reading) as f64 / woken.len() as f64);
            result.map_err(|errno| failed("waking", errno))?;
            // Those that came last are to come last again, in the same order or not.
            for (&number, before) in woken.iter().zip(before) {
                self.await_rest(number, before + 1)?;
            }
        }
        let ns = Summary::of(samples).ok_or_else(|| Error::Failed("nothing was timed".to_owned()))?;
        Ok(ns.median)
    }

    /// Waits until a thread has gone to sleep for the `times`th time.
    fn await_rest(&self, number: usize, times: u64) -> Result<()> {
        let limit = clock::now_ns() + PATIENCE_NS;
        let asleep =
            || self.slept[number].load(Acquire) >= times && is_asleep(self.threads[number].load(Relaxed));
        while !asleep() && self.failed.load(Relaxed) == 0 {
            if clock::now_ns() > limit {
                let what = format!("thread {number} does not come to rest for the {times}th time");
                return Err(Error::Failed(what));
            }
            // To the batch threads: somebody must run if this one does not.
            thread::yield_now();
        }
        match self.failed.load(Relaxed) {
            0 => Ok(()),
            errno => Err(failed("sleeping", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::super::array::Errno;
    use super::*;
    use crate::sem::Mechanism;

    fn task(mechanism: Mechanism) -> Task {
        let cpus = vec![affinity::one(None).unwrap()];
        Task { mechanism, cpus, duration_ns: 1_000_000, what: What::Pair }
    }

    #[test]
    fn every_number_of_sleepers_is_timed() {
        let before = affinity::allowed().unwrap();
        for (mechanism, sleep) in [
            (Mechanism::Kernel, Sleep::Own),
            (Mechanism::Kernel, Sleep::Several),
            (Mechanism::Kernel, Sleep::Ten),
            (Mechanism::Futex, Sleep::Own),
        ] {
            let costs = run(&task(mechanism), sleep, &[10, 20, 80]).unwrap();
            let ns = |index: usize| costs[index]["ns"];
            assert!((0..3).all(|index| ns(index) > 0.0), "{mechanism} {sleep:?}: {costs:?}");
            assert!(!costs[0].contains_key("growth"));
            // Whatever the steps, it is that of a doubling.
            let growths = [ns(1) / ns(0), (ns(2) / ns(1)).sqrt()];
            let off = |index: usize| (costs[index + 1]["growth"] / growths[index] - 1.0).abs();
            assert!(off(0) < 1e-9 && off(1) < 1e-9, "{costs:?}");
        }
        affinity::keep_to(&before).unwrap();
    }

    #[test]
    fn an_array_that_does_not_wake_gives_no_figures() {
        struct Refusing;
        impl Sleepers for Refusing {
            fn sleep(&self, _number: usize) -> std::result::Result<(), Errno> {
                Err(libc::ENOMEM)
            }
            fn wake(&self, _numbers: &[usize]) -> std::result::Result<(), Errno> {
                Ok(())
            }
        }
        let before = affinity::allowed().unwrap();
        let error = measure(&task(Mechanism::Futex), Sleep::Own, &[10], Box::new(Refusing)).unwrap_err();
        assert!(error.to_string().contains("sleeping: Cannot allocate memory"), "{error}");
        affinity::keep_to(&before).unwrap();
    }

    #[test]
    fn too_few_sleepers_are_refused() {
        for sleepers in [&[][..], &[5], &[20, 10]] {
            assert!(run(&task(Mechanism::Kernel), Sleep::Ten, sleepers).is_err(), "{sleepers:?}");
        }
    }
}
