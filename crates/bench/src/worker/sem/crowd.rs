//! What waking one costs among many who sleep in one array.
//!
//! Everybody stays on one CPU, and the sleepers are batch threads, which do not displace the thread that
//! wakes them: so the time of a call is the time that the call takes, and nobody else's.

use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use poundlock_core::Platform;
use poundlock_core::platform::Atomic;
use poundlock_linux::Linux;
use serde::{Deserialize, Serialize};

use super::array::{Array, Errno, Use, op, with_arrays};
use super::failed;
use crate::error::{Error, Result};
use crate::sem::Mechanism;
use crate::stats::Summary;
use crate::worker::alone::is_asleep;
use crate::{affinity, clock};

/// For what the sleepers wait, and how they are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sleep {
    /// One operation each, on a semaphore of their own; one is woken at a time.
    Own,
    /// Two operations each, on a semaphore of their own and on one that all share; one is woken at a time.
    Several,
    /// The same; the ten that came last are woken by one call, which is the order that tries the sleepers
    /// most often.
    Ten,
}

impl Sleep {
    /// All.
    pub const ALL: [Sleep; 3] = [Self::Own, Self::Several, Self::Ten];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Own => "one operation each, one woken at a time",
            Self::Several => "two operations each, one woken at a time",
            Self::Ten => "two operations each, the ten that came last woken at a time",
        }
    }

    /// How many are woken at a time.
    pub(crate) const fn woken(self) -> usize {
        match self {
            Self::Own | Self::Several => 1,
            Self::Ten => 10,
        }
    }
}

/// What a wake-up costs with so many sleepers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) sleepers: usize,
    /// Nanoseconds of CPU time of a call, for each thread that it wakes: over the calls.
    pub(crate) ns: Summary,
}

/// The most calls that are timed for a number of sleepers, and the fewest.
const CALLS: std::ops::RangeInclusive<usize> = 20..=1000;
/// How long threads may take to come to rest.
const PATIENCE_NS: u64 = 60_000_000_000;
/// What a sleeper's thread needs and no more: there are thousands.
const STACK: usize = 32 << 10;

pub(super) fn run(
    mechanism: Mechanism,
    sleep: Sleep,
    sleepers: &[usize],
    cpu: usize,
    duration_ns: u64,
) -> Result<Vec<Cost>> {
    if !sleepers.is_sorted() || sleepers.first().is_none_or(|&fewest| fewest < sleep.woken()) {
        return Err(Error::Options("numbers of sleepers that do not ascend, or too few".to_owned()));
    }
    let crowd = Crowd { sleep, sleepers, cpu, duration_ns };
    match mechanism {
        Mechanism::Futex => {
            let most = sleepers.last().copied().unwrap_or(0);
            crowd.measure(Futexes((0..most).map(|_| Atomic::new(0)).collect()))
        }
        _ => with_arrays(mechanism, crowd),
    }
}

/// In what threads sleep.
trait Bed: Send + Sync + 'static {
    /// The calling thread, which has this number, sleeps.
    fn sleep(&self, number: usize) -> std::result::Result<(), Errno>;

    /// Wakes these.
    fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno>;

    /// It is over. Those that sleep may sleep on until the process ends.
    fn end(&self) -> std::result::Result<(), Errno>;
}

struct Semaphores<A> {
    array: A,
    /// The number of the semaphore that all share, if they have several operations.
    common: Option<usize>,
}

impl<A: Array> Bed for Semaphores<A> {
    fn sleep(&self, number: usize) -> std::result::Result<(), Errno> {
        let mut operations = [op(number, -1, 0), op(self.common.unwrap_or(0), -1, 0)];
        let several = if self.common.is_some() { 2 } else { 1 };
        self.array.operate(&mut operations[..several])
    }

    fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno> {
        let mut operations = [op(0, 1, 0); 11];
        for (operation, &number) in operations.iter_mut().zip(numbers) {
            operation.sem_num = number as u16;
        }
        let mut length = numbers.len();
        if let Some(common) = self.common {
            operations[length] = op(common, length as i16, 0);
            length += 1;
        }
        self.array.operate(&mut operations[..length])
    }

    fn end(&self) -> std::result::Result<(), Errno> {
        self.array.abandon()
    }
}

/// A word for each: 1 if it has been woken.
struct Futexes(Vec<<Linux as poundlock_core::atomic::Atomics>::U32>);

impl Bed for Futexes {
    fn sleep(&self, number: usize) -> std::result::Result<(), Errno> {
        let word = &self.0[number];
        while word.load(Acquire) == 0 {
            Linux::wait(word, 0, poundlock_core::platform::Until::Woken);
        }
        word.store(0, Relaxed);
        Ok(())
    }

    fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno> {
        for &number in numbers {
            self.0[number].store(1, Release);
            Linux::wake(&self.0[number], 1);
        }
        Ok(())
    }

    fn end(&self) -> std::result::Result<(), Errno> {
        Ok(())
    }
}

struct Crowd<'a> {
    sleep: Sleep,
    sleepers: &'a [usize],
    cpu: usize,
    duration_ns: u64,
}

impl Use for Crowd<'_> {
    type Output = Vec<Cost>;

    fn with<A: Array>(self) -> Result<Vec<Cost>> {
        let most = self.sleepers.last().copied().unwrap_or(0);
        let (semaphores, common) = match self.sleep {
            Sleep::Own => (most, None),
            Sleep::Several | Sleep::Ten => (most + 1, Some(most)),
        };
        let array = A::new(semaphores)?;
        self.measure(Semaphores { array, common })
    }
}

struct Shared<B> {
    bed: B,
    /// For each thread, how often it has set out to sleep.
    slept: Vec<AtomicU64>,
    threads: Vec<AtomicI32>,
    /// An error number that a thread met.
    failed: AtomicI32,
}

fn sleeper<B: Bed>(shared: &Shared<B>, number: usize) {
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
            Ok(()) | Err(libc::EINTR) => {}
            Err(libc::EIDRM | libc::EINVAL) => break,
            Err(errno) => {
                shared.failed.store(errno, Relaxed);
                break;
            }
        }
    }
}

impl Crowd<'_> {
    fn measure<B: Bed>(&self, bed: B) -> Result<Vec<Cost>> {
        affinity::keep_to(&[self.cpu])?;
        let most = self.sleepers.last().copied().unwrap_or(0);
        let shared = Arc::new(Shared {
            bed,
            slept: (0..most).map(|_| AtomicU64::new(0)).collect(),
            threads: (0..most).map(|_| AtomicI32::new(0)).collect(),
            failed: AtomicI32::new(0),
        });
        let mut costs = Vec::new();
        let mut there = 0;
        for &sleepers in self.sleepers {
            for number in there..sleepers {
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .stack_size(STACK)
                    .spawn(move || sleeper(&shared, number))
                    .map_err(Error::system(format!("cannot start {sleepers} threads")))?;
            }
            (there..sleepers).try_for_each(|number| shared.await_rest(number, 1))?;
            there = sleepers;
            costs.push(self.time(&shared, sleepers)?);
        }
        shared.bed.end().map_err(|errno| failed("cannot remove the array", errno))?;
        Ok(costs)
    }

    fn time<B: Bed>(&self, shared: &Shared<B>, sleepers: usize) -> Result<Cost> {
        let end = clock::now_ns() + self.duration_ns;
        let reading = cost_of_reading();
        let mut samples = Vec::new();
        let mut woken: Vec<usize> = Vec::new();
        while samples.len() < *CALLS.start() || samples.len() < *CALLS.end() && clock::now_ns() < end {
            woken.clear();
            match self.sleep {
                Sleep::Own | Sleep::Several => woken.push(fastrand::usize(..sleepers)),
                Sleep::Ten => woken.extend((sleepers - self.sleep.woken()..sleepers).rev()),
            }
            let before: Vec<u64> = woken.iter().map(|&number| shared.slept[number].load(Acquire)).collect();
            // CPU time: whether a woken thread displaces this one during the call is the scheduler's whim,
            // and often for a whole number of sleepers.
            let start = clock::thread_ns();
            let result = shared.bed.wake(&woken);
            samples.push((clock::thread_ns() - start).saturating_sub(reading) as f64 / woken.len() as f64);
            result.map_err(|errno| failed("waking", errno))?;
            // Those that came last are to come last again, in the same order or not.
            for (&number, before) in woken.iter().zip(before) {
                shared.await_rest(number, before + 1)?;
            }
        }
        let ns = Summary::of(samples).ok_or_else(|| Error::Options("nothing was timed".to_owned()))?;
        Ok(Cost { sleepers, ns })
    }
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

impl<B> Shared<B> {
    /// Waits until a thread has gone to sleep for the `times`th time.
    fn await_rest(&self, number: usize, times: u64) -> Result<()> {
        let asleep = || {
            let slept = self.slept[number].load(Acquire) >= times;
            (slept && is_asleep(self.threads[number].load(Relaxed)) || self.failed.load(Relaxed) != 0)
                .then_some(())
        };
        wait_for(asleep, || format!("thread {number} does not come to rest for the {times}th time"))?;
        match self.failed.load(Relaxed) {
            0 => Ok(()),
            errno => Err(failed("sleeping", errno)),
        }
    }
}

fn wait_for(done: impl Fn() -> Option<()>, what: impl Fn() -> String) -> Result<()> {
    let limit = clock::now_ns() + PATIENCE_NS;
    while done().is_none() {
        if clock::now_ns() > limit {
            return Err(Error::Options(what()));
        }
        // To the batch threads: somebody must run if this one does not.
        thread::yield_now();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_sleepers_is_timed() {
        let cpu = affinity::one(None).unwrap();
        let before = affinity::allowed().unwrap();
        for (mechanism, sleep) in [
            (Mechanism::Kernel, Sleep::Own),
            (Mechanism::Kernel, Sleep::Several),
            (Mechanism::Kernel, Sleep::Ten),
            (Mechanism::Futex, Sleep::Own),
        ] {
            let costs = run(mechanism, sleep, &[10, 20, 40], cpu, 1_000_000).unwrap();
            let sizes: Vec<_> = costs.iter().map(|cost| cost.sleepers).collect();
            assert_eq!(sizes, [10, 20, 40]);
            for cost in costs {
                assert!(cost.ns.min > 0.0 && CALLS.contains(&cost.ns.n), "{mechanism} {sleep:?}: {cost:?}");
            }
        }
        affinity::keep_to(&before).unwrap();
    }

    #[test]
    fn an_array_that_does_not_wake_gives_no_figures() {
        struct Refusing;
        impl Bed for Refusing {
            fn sleep(&self, _number: usize) -> std::result::Result<(), Errno> {
                Err(libc::ENOMEM)
            }
            fn wake(&self, _numbers: &[usize]) -> std::result::Result<(), Errno> {
                Ok(())
            }
            fn end(&self) -> std::result::Result<(), Errno> {
                Ok(())
            }
        }
        let before = affinity::allowed().unwrap();
        let crowd =
            Crowd { sleep: Sleep::Own, sleepers: &[10], cpu: affinity::one(None).unwrap(), duration_ns: 1 };
        let error = crowd.measure(Refusing).unwrap_err().to_string();
        assert!(error.contains("sleeping: Cannot allocate memory"), "{error}");
        affinity::keep_to(&before).unwrap();
    }

    #[test]
    fn too_few_sleepers_are_refused() {
        for sleepers in [&[][..], &[5], &[20, 10]] {
            assert!(run(Mechanism::Kernel, Sleep::Ten, sleepers, 0, 1).is_err(), "{sleepers:?}");
        }
    }
}
