//! Threads that take turns: each locks, works, unlocks and works on its own.

use std::ffi::c_int;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::abi::{Abi, CMutex, Kind};
use crate::affinity;
use crate::clock::{self, Usage};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::machine::Others;
use crate::work::work;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    /// Steps of work inside the critical section.
    pub(crate) critical_steps: u64,
    /// Steps of work outside it.
    pub(crate) think_steps: u64,
    /// How long the threads keep at it.
    pub(crate) duration_ns: u64,
    /// The CPUs they may run on.
    pub(crate) cpus: Vec<usize>,
    /// Whether each thread stays on one of them, in turn.
    pub(crate) pin: bool,
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
}

pub(crate) fn run(abi: Abi, task: &Task) -> Result<Answer> {
    if task.cpus.is_empty() {
        return Err(Error::Options("there is no CPU to run on".to_owned()));
    }
    affinity::keep_to(&task.cpus)?;
    drive(&CMutex::new(abi, task.kind)?, task)
}

/// Cache lines of its own, adjacent-line prefetching included.
#[derive(Default)]
#[repr(align(128))]
struct Alone<T>(T);

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
            let values = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect();
            let after = clock::now_ns();
            tries += 1;
            if after - before < PROMPT_NS || tries == 100 {
                return Reading { at_ns: before + (after - before) / 2, counts: values };
            }
        }
    }
}

fn drive<L: Lock>(lock: &L, task: &Task) -> Result<Answer> {
    // What the lock protects, apart from the lock. It is read when the critical section begins and written when
    // it ends, so that two threads that overlap anywhere in it lose an update.
    let protected = Alone(AtomicU64::new(0));
    let counts: Vec<Alone<AtomicU64>> = (0..task.threads).map(|_| Alone::default()).collect();
    let stop = Alone(AtomicBool::new(false));
    let start = Barrier::new(task.threads + 1);

    let run = |index: usize, count: &AtomicU64| -> c_int {
        let cpu = task.cpus[index % task.cpus.len()];
        let pinned = if task.pin { affinity::keep_to(&[cpu]) } else { Ok(()) };
        let mut acquisitions = 0;
        start.wait();
        if pinned.is_err() {
            return libc::EINVAL;
        }
        while !stop.0.load(Ordering::Relaxed) {
            let rc = lock.lock();
            if rc != 0 {
                return rc;
            }
            let seen = protected.0.load(Ordering::Relaxed);
            work(task.critical_steps);
            protected.0.store(seen + 1, Ordering::Relaxed);
            let rc = lock.unlock();
            if rc != 0 {
                return rc;
            }
            acquisitions += 1;
            count.store(acquisitions, Ordering::Relaxed);
            work(task.think_steps);
        }
        0
    };

    let (answer, results) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (index, Alone(count)) in counts.iter().enumerate() {
            let run = &run;
            // Small stacks: 250 threads should not need half a gigabyte of address space.
            let thread =
                thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, move || run(index, count));
            match thread {
                Ok(thread) => threads.push(thread),
                // Those that wait at the barrier would wait for ever. This process has nothing else to do.
                Err(error) => fail(&format!("cannot start {} threads: {error}", task.threads)),
            }
        }
        start.wait();
        // The threads may be well under way before this one runs again, above all where there are many of them:
        // what counts is what they do between two readings of the counts.
        let others = Others::watch();
        let before = Usage::of_this_process();
        let first = Reading::take(&counts);
        let last = loop {
            thread::sleep(Duration::from_nanos(task.duration_ns));
            let last = Reading::take(&counts);
            // A busy machine may not have let the threads run at all. If the lock hangs, the parent's patience
            // ends.
            if last.counts != first.counts {
                break last;
            }
        };
        let used = Usage::of_this_process().since(&before);
        let share = others.share(used.cpu_ns, task.cpus.len());
        stop.0.store(true, Ordering::Relaxed);
        let answer = Answer {
            elapsed_ns: last.at_ns - first.at_ns,
            counts: last.counts.iter().zip(&first.counts).map(|(last, first)| last - first).collect(),
            cpu_ns: used.cpu_ns,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            others: share,
        };
        (answer, threads.into_iter().map(|thread| thread.join().unwrap_or(libc::EFAULT)).collect::<Vec<_>>())
    });

    if let Some(&rc) = results.iter().find(|&&rc| rc != 0) {
        return Err(Error::System {
            what: "locking or unlocking failed".to_owned(),
            source: std::io::Error::from_raw_os_error(rc),
        });
    }
    // A lock that lets two in at once may be very fast.
    let total: u64 = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum();
    let protected = protected.0.into_inner();
    if protected != total {
        return Err(Error::Options(format!(
            "the lock does not exclude: {total} acquisitions left a count of {protected}"
        )));
    }
    Ok(answer)
}

/// Ends the process with a line on standard error, without waiting for its threads.
fn fail(message: &str) -> ! {
    eprintln!("poundlock bench worker: {message}");
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(threads: usize) -> Task {
        Task {
            kind: Kind::Default,
            threads,
            critical_steps: 50,
            think_steps: 20,
            duration_ns: 20_000_000,
            cpus: affinity::allowed().unwrap(),
            pin: threads == 4,
        }
    }

    #[test]
    fn everybody_gets_the_lock() {
        for threads in [3, 4] {
            check_threads(threads);
        }
    }

    fn check_threads(threads: usize) {
        let task = task(threads);
        let answer = drive(&CMutex::new(Abi::glibc().unwrap(), Kind::Default).unwrap(), &task).unwrap();
        assert_eq!(answer.counts.len(), threads);
        assert!(answer.counts.iter().sum::<u64>() > 0);
        assert!(answer.elapsed_ns >= task.duration_ns);
    }

    #[test]
    fn a_lock_that_does_not_exclude_is_found_out() {
        struct Open;
        impl Lock for Open {
            fn lock(&self) -> c_int {
                0
            }
            fn unlock(&self) -> c_int {
                0
            }
        }
        // Sections so long that even on one CPU some thread is preempted in one.
        let mut task = task(4);
        task.critical_steps = 1_000_000;
        task.duration_ns = 100_000_000;
        let found = (0..100)
            .any(|_| drive(&Open, &task).is_err_and(|error| error.to_string().contains("does not exclude")));
        assert!(found, "lost updates went unnoticed");
    }
}
