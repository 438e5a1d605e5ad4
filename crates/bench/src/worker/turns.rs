//! The driver of threads that take turns: each locks, works, unlocks and works on its own.
//!
//! A measurement takes the time that it was given, whatever the lock does: what counts is what the threads publish
//! between two readings. Afterwards they get a while to come to their ends. Where spinners starve that may take many
//! time slices, so those that are still on their way then end with this process.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use poundlock_core::Platform;
use poundlock_core::platform::Atomic;
use poundlock_linux::Linux;
use serde::{Deserialize, Serialize};

use super::probe::{self, Gaps, Probe};
use crate::affinity;
use crate::clock::{self, Usage};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::machine::Others;
use crate::work::work;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) threads: usize,
    /// Steps of work inside the critical section.
    pub(crate) critical_steps: u64,
    /// Steps of work outside it.
    pub(crate) think_steps: u64,
    /// How long the threads are at it before they are measured.
    pub(crate) warm_up_ns: u64,
    /// How long they are measured.
    pub(crate) duration_ns: u64,
    /// How long they may take to come to their ends.
    pub(crate) drain_ns: u64,
    /// The CPUs they may run on.
    pub(crate) cpus: Vec<usize>,
    /// Whether each thread stays on one of them, in turn.
    pub(crate) pin: bool,
    /// Whether to look at each hand-over and count lock events, which takes time.
    pub(crate) probe: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// How long it really took.
    pub(crate) elapsed_ns: u64,
    /// Acquisitions of each thread in that time.
    pub(crate) counts: Vec<u64>,
    /// CPU time that the process used in it.
    pub(crate) cpu_ns: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// The share of the CPUs that other processes had.
    pub(crate) others: Option<f64>,
    /// Threads that had not come to their ends in time.
    pub(crate) unfinished: usize,
    /// What a probe saw.
    pub(crate) gaps: Option<Gaps>,
}

/// Cache lines of its own, adjacent-line prefetching included.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Alone<T>(pub(super) T);

/// How often each thread had acquired the lock at some moment.
struct Reading {
    at_ns: u64,
    counts: Vec<u64>,
}

impl Reading {
    fn take(counts: &[Alone<AtomicU64>]) -> Reading {
        // If this thread is preempted in the middle, the counts belong to no moment.
        const PROMPT_NS: u64 = 100_000;
        let mut tries = 0;
        loop {
            let before = clock::now_ns();
            let values = counts.iter().map(|count| count.0.load(Relaxed)).collect();
            let after = clock::now_ns();
            tries += 1;
            if after - before < PROMPT_NS || tries == 100 {
                return Reading { at_ns: before + (after - before) / 2, counts: values };
            }
        }
    }
}

/// Where threads wait until all are there. Nobody who goes through it needs anybody else to run: among threads that
/// spin, a barrier with a mutex inside lets one through a time slice.
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

/// What the threads share besides the lock.
struct Shared {
    /// What the lock protects, apart from the lock. It is read when the critical section begins and written when it
    /// ends, so that two threads that overlap anywhere in it find out, or lose an update.
    protected: Alone<AtomicU64>,
    overlapped: Alone<AtomicBool>,
    counts: Vec<Alone<AtomicU64>>,
    stop: Alone<AtomicBool>,
    start: Gate,
    probe: Probe,
    task: Task,
}

/// What a thread does. The looks of a probe are compiled in or left out.
fn turns<L: Lock, const PROBE: bool>(lock: &L, shared: &Shared, index: usize) -> c_int {
    let task = &shared.task;
    let cpu = task.cpus[index % task.cpus.len()];
    let pinned = if task.pin { affinity::keep_to(&[cpu]) } else { Ok(()) };
    let protected = &shared.protected.0;
    let count = &shared.counts[index].0;
    let mut place = L::Place::default();
    let mut probe = shared.probe.thread(index);
    let mut acquisitions = 0;
    shared.start.wait();
    if pinned.is_err() {
        return libc::EINVAL;
    }
    while !shared.stop.0.load(Relaxed) {
        if PROBE {
            probe.waits();
        }
        let rc = lock.lock(&mut place);
        if rc != 0 {
            return rc;
        }
        if PROBE {
            probe.acquired();
        }
        let seen = protected.load(Relaxed);
        work(task.critical_steps);
        if protected.load(Relaxed) != seen {
            shared.overlapped.0.store(true, Relaxed);
        }
        protected.store(seen + 1, Relaxed);
        if PROBE {
            probe.releases();
        }
        let rc = lock.unlock(&mut place);
        if rc != 0 {
            return rc;
        }
        acquisitions += 1;
        count.store(acquisitions, Relaxed);
        work(task.think_steps);
    }
    0
}

/// Measures. Threads that starve outlive the call; the process is to end soon after it.
pub(crate) fn drive<L: Lock + Send + 'static>(lock: L, task: &Task) -> Result<Answer> {
    let lock = Alone(lock);
    if task.probe {
        drive_turns(Arc::new(move |shared, index| turns::<L, true>(&lock.0, shared, index)), task)
    } else {
        drive_turns(Arc::new(move |shared, index| turns::<L, false>(&lock.0, shared, index)), task)
    }
}

/// What a thread does, whatever the lock: there are many, and all else is compiled once.
type Turns = dyn Fn(&Shared, usize) -> c_int + Send + Sync;

fn drive_turns(turns: Arc<Turns>, task: &Task) -> Result<Answer> {
    if task.cpus.is_empty() {
        return Err(Error::Options("there is no CPU to run on".to_owned()));
    }
    let shared = Arc::new(Shared {
        protected: Alone::default(),
        overlapped: Alone::default(),
        counts: (0..task.threads).map(|_| Alone::default()).collect(),
        stop: Alone::default(),
        start: Gate::default(),
        probe: Probe::new(if task.probe { task.threads } else { 0 }),
        task: task.clone(),
    });
    if task.probe {
        probe::count_events();
    }
    let mut threads = Vec::new();
    for index in 0..task.threads {
        let shared = Arc::clone(&shared);
        let cpus = task.cpus.clone();
        let turns = Arc::clone(&turns);
        // Small stacks: 250 threads should not need half a gigabyte of address space.
        let thread = thread::Builder::new().stack_size(256 << 10).spawn(move || {
            match affinity::keep_to(&cpus) {
                Ok(()) => turns(&shared, index),
                // The others are waited for.
                Err(_) => {
                    shared.start.wait();
                    libc::EINVAL
                }
            }
        });
        threads.push(thread.map_err(Error::system(format!("cannot start {} threads", task.threads)))?);
    }
    shared.start.open(task.threads);
    thread::sleep(Duration::from_nanos(task.warm_up_ns));
    let probe = &shared.probe;
    let answer = measure(
        &shared.counts,
        task.duration_ns,
        task.cpus.len(),
        || probe.watch(),
        |watched, elapsed_ns| task.probe.then(|| probe.gaps(watched, elapsed_ns)),
    );
    shared.stop.0.store(true, Relaxed);
    let unfinished = finish(threads, Duration::from_nanos(task.drain_ns))?;

    // A lock that lets two in at once may be very fast.
    let broken = |how: String| Err(Error::Options(format!("the lock does not exclude: {how}")));
    if shared.overlapped.0.load(Relaxed) {
        return broken("two threads were in their critical sections at once".to_owned());
    }
    let total: u64 = shared.counts.iter().map(|count| count.0.load(Relaxed)).sum();
    let protected = shared.protected.0.load(Relaxed);
    if unfinished == 0 && protected != total {
        return broken(format!("{total} acquisitions left a count of {protected}"));
    }
    Ok(Answer { unfinished, ..answer })
}

/// What happens between two readings; `watch` and `look` surround what a probe sees. The threads may be well under way before
/// this one runs again, above all where there are many of them.
pub(super) fn measure<W>(
    counts: &[Alone<AtomicU64>],
    duration_ns: u64,
    cpus: usize,
    watch: impl FnOnce() -> W,
    look: impl FnOnce(W, u64) -> Option<Gaps>,
) -> Answer {
    let others = Others::watch();
    let before = Usage::of_this_process();
    let first = Reading::take(counts);
    let watched = watch();
    let last = loop {
        thread::sleep(Duration::from_nanos(duration_ns));
        let last = Reading::take(counts);
        // A busy machine may not have let the threads run at all. If the lock hangs, the parent's patience ends.
        if last.counts != first.counts {
            break last;
        }
    };
    let elapsed_ns = last.at_ns - first.at_ns;
    let gaps = look(watched, elapsed_ns);
    let used = Usage::of_this_process().since(&before);
    Answer {
        elapsed_ns,
        counts: last.counts.iter().zip(&first.counts).map(|(last, first)| last - first).collect(),
        cpu_ns: used.cpu_ns,
        voluntary_switches: used.voluntary_switches,
        involuntary_switches: used.involuntary_switches,
        others: others.share(used.cpu_ns, cpus),
        unfinished: 0,
        gaps,
    }
}

/// Waits for the threads' ends, but not for long. Returns how many have not come to theirs.
pub(super) fn finish(mut threads: Vec<JoinHandle<c_int>>, limit: Duration) -> Result<usize> {
    let end = Instant::now() + limit;
    loop {
        let (finished, rest): (Vec<_>, Vec<_>) = threads.into_iter().partition(JoinHandle::is_finished);
        threads = rest;
        for thread in finished {
            let rc = thread.join().unwrap_or(libc::EFAULT);
            if rc != 0 {
                return Err(Error::System {
                    what: "locking or unlocking failed".to_owned(),
                    source: std::io::Error::from_raw_os_error(rc),
                });
            }
        }
        if threads.is_empty() || Instant::now() >= end {
            return Ok(threads.len());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::abi::{Abi, CMutex, Kind};

    fn task(threads: usize) -> Task {
        Task {
            threads,
            critical_steps: 50,
            think_steps: 20,
            warm_up_ns: 1_000_000,
            duration_ns: 20_000_000,
            drain_ns: 60_000_000_000,
            cpus: affinity::allowed().unwrap(),
            pin: threads == 4,
            probe: false,
        }
    }

    fn mutex() -> CMutex {
        CMutex::new(Abi::glibc().unwrap(), Kind::Default).unwrap()
    }

    #[test]
    fn everybody_gets_the_lock() {
        for threads in [3, 4] {
            for probe in [false, true] {
                let task = Task { probe, ..task(threads) };
                let answer = drive(mutex(), &task).unwrap();
                assert_eq!(answer.counts.len(), threads);
                assert!(answer.counts.iter().sum::<u64>() > 0);
                assert!(answer.elapsed_ns >= task.duration_ns);
                assert_eq!(answer.unfinished, 0);
                assert_eq!(answer.gaps.is_some(), probe);
            }
        }
    }

    #[test]
    fn a_lock_that_does_not_exclude_is_found_out() {
        struct Open;
        impl Lock for Open {
            type Place = ();
            fn lock(&self, (): &mut ()) -> c_int {
                0
            }
            fn unlock(&self, (): &mut ()) -> c_int {
                0
            }
        }
        // Sections so long that even on one CPU some thread is preempted in one.
        let task = Task { critical_steps: 1_000_000, duration_ns: 100_000_000, ..task(4) };
        let found = (0..100)
            .any(|_| drive(Open, &task).is_err_and(|error| error.to_string().contains("does not exclude")));
        assert!(found, "lost updates went unnoticed");
    }

    #[test]
    fn a_lock_that_fails_gives_no_figure() {
        struct Broken(AtomicU32);
        impl Lock for Broken {
            type Place = ();
            fn lock(&self, (): &mut ()) -> c_int {
                // It works for one thread, so that there is something to measure.
                if self.0.fetch_add(1, Relaxed) == 0 { libc::EDEADLK } else { 0 }
            }
            fn unlock(&self, (): &mut ()) -> c_int {
                0
            }
        }
        let error = drive(Broken(AtomicU32::new(0)), &task(2)).unwrap_err().to_string();
        assert!(error.contains("locking or unlocking failed"), "{error}");
    }

    #[test]
    fn threads_that_starve_are_left_behind() {
        /// Whoever comes first keeps the lock; all others spin until they are told to stop.
        struct Selfish {
            owner: AtomicU32,
            end: Arc<AtomicBool>,
        }
        impl Lock for Selfish {
            type Place = ();
            fn lock(&self, (): &mut ()) -> c_int {
                // SAFETY: a plain query.
                let own = unsafe { libc::gettid() } as u32;
                while self.owner.compare_exchange(0, own, Relaxed, Relaxed).is_err_and(|now| now != own) {
                    if self.end.load(Relaxed) {
                        return libc::ECANCELED;
                    }
                    thread::yield_now();
                }
                0
            }
            fn unlock(&self, (): &mut ()) -> c_int {
                0
            }
        }
        let end = Arc::new(AtomicBool::new(false));
        let task = Task { drain_ns: 50_000_000, ..task(5) };
        let answer = drive(Selfish { owner: AtomicU32::new(0), end: Arc::clone(&end) }, &task).unwrap();
        // In a worker they end with the process. Here there are other tests.
        end.store(true, Relaxed);
        assert_eq!(answer.unfinished, 4);
        assert_eq!(answer.counts.iter().filter(|&&count| count > 0).count(), 1);
    }
}
