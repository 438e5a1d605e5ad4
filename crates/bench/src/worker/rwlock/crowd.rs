//! The driver of threads that read and write: each locks, works, unlocks and works on its own; a generator of its own says as
//! what.
//!
//! Threads go through two intervals, as those of the grid do. In the first they take no times: what counts is what they publish
//! between two readings. In the second each acquisition is timed. Threads that starve end with the process.

use std::ffi::c_int;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::affinity;
use crate::clock;
use crate::error::{Error, Result};
use crate::rw::RwLock;
use crate::work::work;
use crate::worker::grid::{histogram, threshold};
use crate::worker::turns::{self, Alone, Gate};

use super::Side;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) threads: usize,
    /// The share of the operations that write.
    pub(crate) writers: f64,
    /// Steps of work of a reader inside.
    pub(crate) read_steps: u64,
    /// Steps of work of a writer inside.
    pub(crate) write_steps: u64,
    /// Steps of work outside.
    pub(crate) think_steps: u64,
    /// How long the threads are at it before they are measured.
    pub(crate) warm_up_ns: u64,
    /// How long they are measured without timing of acquisitions.
    pub(crate) throughput_ns: u64,
    /// How long with timing of each.
    pub(crate) waits_ns: u64,
    /// How long they may take to come to their ends.
    pub(crate) drain_ns: u64,
    /// The CPUs they may run on.
    pub(crate) cpus: Vec<usize>,
    /// Whether each thread stays on one of them, in turn.
    pub(crate) pin: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// What they got done.
    pub(crate) turns: turns::Answer,
    /// How long readers waited, if there were any.
    pub(crate) readers: Option<Waits>,
    /// How long writers did.
    pub(crate) writers: Option<Waits>,
}

/// Waits, in nanoseconds. One that had not ended with the interval counts as long as it had lasted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Waits {
    pub(crate) count: u64,
    pub(crate) mean_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p999_ns: f64,
    pub(crate) max_ns: f64,
}

impl Waits {
    fn of(all: &Histogram<u64>) -> Option<Waits> {
        let quantile = |q| all.value_at_quantile(q) as f64;
        (!all.is_empty()).then(|| Waits {
            count: all.len(),
            mean_ns: all.mean(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: all.max() as f64,
        })
    }
}

/// What threads are at.
mod phase {
    /// Locking, untimed.
    pub(super) const THROUGHPUT: u32 = 0;
    /// Locking, each time timed.
    pub(super) const WAITS: u32 = 1;
    /// Coming to their ends.
    pub(super) const END: u32 = 2;
}

/// What the lock protects, apart from the lock: two words that are equal whenever no writer is inside. A writer makes the first the
/// larger when it comes, and the second when it leaves, so that whoever overlaps with it anywhere finds out, or an addition
/// is lost.
#[derive(Default)]
struct Pair {
    first: Alone<AtomicU64>,
    second: Alone<AtomicU64>,
}

impl Pair {
    /// What a reader does inside; whether nobody wrote meanwhile.
    #[inline(always)]
    fn read(&self, steps: u64) -> bool {
        let first = self.first.0.load(Relaxed);
        work(steps);
        self.second.0.load(Relaxed) == first && self.first.0.load(Relaxed) == first
    }

    /// What a writer does inside; whether nobody else wrote meanwhile.
    #[inline(always)]
    fn write(&self, steps: u64) -> bool {
        let first = self.first.0.load(Relaxed);
        let alone = self.second.0.load(Relaxed) == first;
        self.first.0.store(first + 1, Relaxed);
        work(steps);
        let alone = alone && self.first.0.load(Relaxed) == first + 1 && self.second.0.load(Relaxed) == first;
        self.second.0.store(first + 1, Relaxed);
        alone
    }
}

/// Since when a thread waits, and as what, in one word.
mod since {
    use super::Side;

    /// It does not.
    pub(super) const NEVER: u64 = 0;
    /// It took no time when it began.
    pub(super) const SOME_TIME_AGO: u64 = 2;

    /// In even nanoseconds: the lowest bit says who writes.
    #[inline(always)]
    pub(super) fn word(side: Side, ns: u64) -> u64 {
        (ns & !1) | u64::from(side == Side::Write)
    }

    pub(super) fn of(word: u64) -> Option<(Side, u64)> {
        let side = if word & 1 == 0 { Side::Read } else { Side::Write };
        (word != NEVER).then_some((side, word & !1))
    }
}

/// What a thread publishes besides its count.
#[derive(Default)]
struct Published {
    /// How often it wrote.
    writes: AtomicU64,
    /// See [`since`].
    waits_since: AtomicU64,
}

/// How long a thread waited: as a reader, as a writer.
struct Histograms([Histogram<u64>; 2]);

/// What the threads share besides the lock.
struct Shared {
    pair: Pair,
    overlapped: Alone<AtomicBool>,
    phase: Alone<AtomicU32>,
    start: Gate,
    /// How often each thread locked.
    counts: Vec<Alone<AtomicU64>>,
    published: Vec<Alone<Published>>,
    waits: Vec<Alone<Mutex<Histograms>>>,
    /// See [`threshold`].
    below: u32,
    task: Task,
}

impl Shared {
    fn new(task: &Task) -> Result<Shared> {
        let histograms = || Ok(Alone(Mutex::new(Histograms([histogram()?, histogram()?]))));
        Ok(Shared {
            pair: Pair::default(),
            overlapped: Alone::default(),
            phase: Alone(AtomicU32::new(phase::THROUGHPUT)),
            start: Gate::default(),
            counts: (0..task.threads).map(|_| Alone::default()).collect(),
            published: (0..task.threads).map(|_| Alone::default()).collect(),
            waits: (0..task.threads).map(|_| histograms()).collect::<Result<_>>()?,
            below: threshold(task.writers),
            task: task.clone(),
        })
    }

    /// A thread's histograms. The thread that records holds them briefly; nobody waits for a lock under test with them.
    fn waits(&self, index: usize) -> MutexGuard<'_, Histograms> {
        self.waits[index].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's life. The same seed each time: all locks get the same mix.
fn live<L: RwLock>(lock: &L, shared: &Shared, index: usize) -> c_int {
    let task = &shared.task;
    let cpu = task.cpus[index % task.cpus.len()];
    let pinned = if task.pin { affinity::keep_to(&[cpu]) } else { Ok(()) };
    let mut random = fastrand::Rng::with_seed(index as u64);
    shared.start.wait();
    if pinned.is_err() {
        return libc::EINVAL;
    }
    match acquire::<L, false>(lock, shared, index, &mut random) {
        0 => acquire::<L, true>(lock, shared, index, &mut random),
        rc => rc,
    }
}

/// Acquisitions, until the phase is over.
fn acquire<L: RwLock, const TIMED: bool>(
    lock: &L,
    shared: &Shared,
    index: usize,
    random: &mut fastrand::Rng,
) -> c_int {
    let task = &shared.task;
    let count = &shared.counts[index].0;
    let Published { writes, waits_since } = &shared.published[index].0;
    let end = if TIMED { phase::END } else { phase::WAITS };
    let mut place = L::Place::default();
    while shared.phase.0.load(Relaxed) < end {
        let side = if random.u32(..) < shared.below { Side::Write } else { Side::Read };
        let before = if TIMED { clock::now_ns() } else { since::SOME_TIME_AGO };
        waits_since.store(since::word(side, before), Relaxed);
        let rc = match side {
            Side::Read => lock.read_lock(&mut place),
            Side::Write => lock.write_lock(&mut place),
        };
        let waited = if TIMED { clock::now_ns() - before } else { 0 };
        waits_since.store(since::NEVER, Relaxed);
        if rc != 0 {
            return rc;
        }
        let (sound, rc) = match side {
            Side::Read => (shared.pair.read(task.read_steps), lock.read_unlock(&mut place)),
            Side::Write => (shared.pair.write(task.write_steps), lock.write_unlock(&mut place)),
        };
        if !sound {
            shared.overlapped.0.store(true, Relaxed);
        }
        if rc != 0 {
            return rc;
        }
        if TIMED {
            shared.waits(index).0[side as usize].saturating_record(waited);
        }
        if side == Side::Write {
            writes.store(writes.load(Relaxed) + 1, Relaxed);
        }
        count.store(count.load(Relaxed) + 1, Relaxed);
        work(task.think_steps);
    }
    0
}

/// Measures. Threads that starve outlive the call; the process is to end soon after it.
pub(super) fn drive<L: RwLock + Send + 'static>(lock: L, task: &Task) -> Result<Answer> {
    if task.cpus.is_empty() {
        return Err(Error::Options("there is no CPU to run on".to_owned()));
    }
    let shared = Arc::new(Shared::new(task)?);
    let lock = Arc::new(Alone(lock));
    affinity::keep_to(&task.cpus)?;
    let mut threads = Vec::new();
    for index in 0..task.threads {
        let (shared, lock) = (Arc::clone(&shared), Arc::clone(&lock));
        // Small stacks: 250 threads should not need half a gigabyte of address space.
        let thread =
            thread::Builder::new().stack_size(256 << 10).spawn(move || live(&lock.0, &shared, index));
        threads.push(thread.map_err(Error::system(format!("cannot start {} threads", task.threads)))?);
    }
    shared.start.open(task.threads);
    thread::sleep(Duration::from_nanos(task.warm_up_ns));
    let turns = turns::measure(&shared.counts, task.throughput_ns, task.cpus.len(), || (), |(), _| None);
    let began = clock::now_ns();
    shared.phase.0.store(phase::WAITS, Relaxed);
    thread::sleep(Duration::from_nanos(task.waits_ns));
    let [readers, writers] = waits(&shared, began)?;
    shared.phase.0.store(phase::END, Relaxed);
    let unfinished = turns::finish(threads, Duration::from_nanos(task.drain_ns))?;

    // A lock that lets two in at once may be very fast.
    let broken = |how: String| Err(Error::Options(format!("the lock does not exclude: {how}")));
    if shared.overlapped.0.load(Relaxed) {
        return broken("somebody was in its critical section beside a writer".to_owned());
    }
    let writes: u64 = shared.published.iter().map(|published| published.0.writes.load(Relaxed)).sum();
    let written = shared.pair.first.0.load(Relaxed);
    if unfinished == 0 && written != writes {
        return broken(format!("{writes} acquisitions of writers left a count of {written}"));
    }
    Ok(Answer { turns: turns::Answer { unfinished, ..turns }, readers, writers })
}

/// The waits of all threads since `began`, of readers and of writers. Those that have not ended count as long as they have
/// lasted: were they left out, a lock that never serves a writer would look best.
fn waits(shared: &Shared, began: u64) -> Result<[Option<Waits>; 2]> {
    let end = clock::now_ns();
    let mut all = [histogram()?, histogram()?];
    for (index, published) in shared.published.iter().enumerate() {
        for (all, thread) in all.iter_mut().zip(&shared.waits(index).0) {
            all.add(thread).map_err(|error| Error::Options(format!("waits do not add up: {error}")))?;
        }
        if let Some((side, since)) = since::of(published.0.waits_since.load(Relaxed)) {
            all[side as usize].saturating_record(end.saturating_sub(since.max(began)));
        }
    }
    Ok([Waits::of(&all[0]), Waits::of(&all[1])])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rw::{BareCount, Std};

    pub(in super::super) fn task(threads: usize) -> Task {
        Task {
            threads,
            writers: 0.2,
            read_steps: 50,
            write_steps: 50,
            think_steps: 20,
            warm_up_ns: 1_000_000,
            throughput_ns: 5_000_000,
            waits_ns: 5_000_000,
            drain_ns: 60_000_000_000,
            cpus: affinity::allowed().unwrap(),
            pin: threads == 2,
        }
    }

    #[test]
    fn readers_and_writers_get_the_lock() {
        let task = Task { throughput_ns: 50_000_000, waits_ns: 50_000_000, ..task(4) };
        let answer = drive(Std::default(), &task).unwrap();
        assert_eq!((answer.turns.counts.len(), answer.turns.unfinished), (4, 0));
        let (readers, writers) = (answer.readers.unwrap(), answer.writers.unwrap());
        assert!(readers.count > writers.count, "{readers:?} {writers:?}");
        for waits in [readers, writers] {
            let Waits { mean_ns, p50_ns, p99_ns, p999_ns, max_ns, .. } = waits;
            assert!(p50_ns <= p99_ns && p99_ns <= p999_ns && p999_ns <= max_ns, "{waits:?}");
            assert!(mean_ns > 0.0 && mean_ns <= max_ns, "{waits:?}");
        }
    }

    #[test]
    fn without_writers_there_are_no_waits_of_theirs() {
        let answer = drive(Std::default(), &Task { writers: 0.0, ..task(2) }).unwrap();
        assert!(answer.writers.is_none());
    }

    /// A lock that keeps some out, and others not.
    #[derive(Default)]
    struct Broken<const READERS: bool>(Std);

    impl<const READERS: bool> RwLock for Broken<READERS> {
        type Place = <Std as RwLock>::Place;

        fn read_lock(&self, place: &mut Self::Place) -> c_int {
            if READERS { 0 } else { self.0.read_lock(place) }
        }

        fn read_unlock(&self, place: &mut Self::Place) -> c_int {
            if READERS { 0 } else { self.0.read_unlock(place) }
        }

        fn write_lock(&self, place: &mut Self::Place) -> c_int {
            if READERS { self.0.write_lock(place) } else { 0 }
        }

        fn write_unlock(&self, place: &mut Self::Place) -> c_int {
            if READERS { self.0.write_unlock(place) } else { 0 }
        }
    }

    #[track_caller]
    fn found_out<L: RwLock + Default + Send + 'static>() {
        // Sections so long that even on one CPU some thread is preempted in one.
        let task = Task {
            read_steps: 1_000_000,
            write_steps: 1_000_000,
            throughput_ns: 50_000_000,
            waits_ns: 50_000_000,
            ..task(4)
        };
        let found = (0..100).any(|_| {
            drive(L::default(), &task).is_err_and(|error| error.to_string().contains("does not exclude"))
        });
        assert!(found, "what nobody should have seen went unnoticed");
    }

    #[test]
    fn a_lock_that_lets_readers_in_beside_a_writer_is_found_out() {
        found_out::<Broken<true>>();
    }

    #[test]
    fn a_lock_that_lets_writers_in_beside_others_is_found_out() {
        found_out::<Broken<false>>();
    }

    #[test]
    fn a_lock_that_fails_gives_no_figure() {
        let error = drive(BareCount::default(), &Task { writers: 0.5, ..task(4) }).unwrap_err().to_string();
        assert!(error.contains("locking or unlocking failed"), "{error}");
    }

    #[test]
    fn a_wait_says_who_waits_and_since_when() {
        assert_eq!(since::of(since::NEVER), None);
        for side in Side::ALL {
            assert_eq!(since::of(since::word(side, 1001)), Some((side, 1000)));
            assert_eq!(
                since::of(since::word(side, since::SOME_TIME_AGO)),
                Some((side, since::SOME_TIME_AGO))
            );
        }
    }
}
