//! Threads that sleep, and a main thread that wakes them, as the source's sembench has it: each thread puts
//! itself on a list and sleeps, on a semaphore of its own; the main thread takes some off the list at a time
//! and wakes them.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use poundlock_core::semarray::Report;

use super::sleepers::{self, Sleepers};
use super::{Task, add_held, failed};
use crate::Others;
use crate::affinity;
use crate::error::{Error, Result};
use crate::plan::Sample;
use crate::worker::gate::{Alone, Gate};
use crate::worker::sample;
use crate::{Usage, clock};

/// How long the threads may take to come to their ends.
const DRAIN_NS: u64 = 20_000_000_000;

struct Shared {
    sleepers: Box<dyn Sleepers>,
    /// The list, on which threads put themselves.
    list: Alone<Sender<usize>>,
    /// How often the main thread has set out to wake each thread.
    woken: Vec<Alone<AtomicU64>>,
    /// How often each has gone on.
    burns: Vec<Alone<AtomicU64>>,
    /// Threads that have come to their ends.
    ended: AtomicUsize,
    stop: AtomicBool,
    /// An error number that a thread met, or [`UNASKED`].
    failed: AtomicI32,
    start: Gate,
}

/// A thread went on that nobody had woken.
const UNASKED: i32 = -1;

/// What a thread does.
fn work(shared: &Shared, number: usize, bound: Option<usize>) {
    let bound = bound.map_or(Ok(()), |cpu| affinity::keep_to(&[cpu]));
    if bound.is_err() {
        shared.failed.store(libc::EINVAL, Relaxed);
    }
    let (burns, woken) = (&shared.burns[number].0, &shared.woken[number].0);
    let mut done = 0;
    shared.start.wait();
    while !shared.stop.load(Relaxed) {
        // The main thread is there as long as this one is waited for.
        _ = shared.list.0.send(number);
        let slept = shared.sleepers.sleep(number);
        done += 1;
        // Exact for the thread itself once it has slept.
        if slept.is_err() || woken.load(Relaxed) != done {
            shared.failed.store(slept.err().unwrap_or(UNASKED), Relaxed);
            break;
        }
        burns.store(done, Relaxed);
    }
    shared.ended.fetch_add(1, Release);
}

/// The counters at some moment.
struct Reading {
    at_ns: u64,
    main: u64,
    idle: u64,
    workers: Vec<u64>,
    usage: Usage,
    held: Option<Report>,
}

/// The main thread.
struct Main<'a> {
    shared: &'a Shared,
    list: Receiver<usize>,
    wake: usize,
    /// Whom it takes off the list in a turn.
    turn: Vec<usize>,
    /// Turns that woke somebody, and those in which the list was empty.
    burns: u64,
    idle: u64,
    /// Threads woken.
    woken: u64,
}

impl Main<'_> {
    fn turn(&mut self) -> Result<()> {
        self.turn.clear();
        self.turn.extend(self.list.try_iter().take(self.wake));
        for &number in &self.turn {
            let woken = &self.shared.woken[number].0;
            woken.store(woken.load(Relaxed) + 1, Relaxed);
        }
        if self.turn.is_empty() {
            self.idle += 1;
            thread::yield_now();
        } else {
            self.shared.sleepers.wake(&self.turn).map_err(|errno| failed("waking", errno))?;
            self.burns += 1;
            self.woken += self.turn.len() as u64;
        }
        match self.shared.failed.load(Relaxed) {
            0 => Ok(()),
            UNASKED => Err(Error::Failed("a thread went on that nobody had woken".to_owned())),
            errno => Err(failed("sleeping", errno)),
        }
    }

    fn read(&self) -> Reading {
        Reading {
            at_ns: clock::now_ns(),
            main: self.burns,
            idle: self.idle,
            workers: self.shared.burns.iter().map(|burns| burns.0.load(Relaxed)).collect(),
            usage: Usage::of_this_process(),
            held: self.shared.sleepers.held(),
        }
    }

    fn turns_until(&mut self, end_ns: u64) -> Result<()> {
        while clock::now_ns() < end_ns {
            self.turn()?;
        }
        Ok(())
    }

    /// Has everybody come to an end, and makes sure that each wake-up was served once: a mechanism that loses
    /// some, or lets threads go that nobody woke, may be very fast.
    fn drain(&mut self) -> Result<()> {
        let shared = self.shared;
        let threads = shared.burns.len();
        shared.stop.store(true, Relaxed);
        let limit = clock::now_ns() + DRAIN_NS;
        let ended = || shared.ended.load(Acquire);
        while ended() < threads {
            if clock::now_ns() > limit {
                let left = threads - ended();
                return Err(Error::Failed(format!("{left} threads sleep on that have been woken")));
            }
            self.turn()?;
        }
        let served: u64 = shared.burns.iter().map(|burns| burns.0.load(Relaxed)).sum();
        if served != self.woken {
            return Err(Error::Failed(format!("{} were woken, and {served} went on", self.woken)));
        }
        Ok(())
    }
}

pub(super) fn run(task: &Task, threads: usize, wake: usize, bind: bool, warm_up_ns: u64) -> Result<Sample> {
    if task.cpus.is_empty() || threads == 0 || wake == 0 {
        return Err(Error::Failed("there is nobody to wake, or no CPU to run on".to_owned()));
    }
    affinity::keep_to(&task.cpus)?;
    drive(task, threads, wake, bind, warm_up_ns, sleepers::by(task.mechanism, threads, false)?)
}

/// The figures between two readings; none at all if nobody was woken.
fn drive(
    task: &Task,
    threads: usize,
    wake: usize,
    bind: bool,
    warm_up_ns: u64,
    sleepers: Box<dyn Sleepers>,
) -> Result<Sample> {
    let cpus = &task.cpus;
    let (list, taken) = mpsc::channel();
    let shared = Arc::new(Shared {
        sleepers,
        list: Alone(list),
        woken: (0..threads).map(|_| Alone::default()).collect(),
        burns: (0..threads).map(|_| Alone::default()).collect(),
        ended: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        failed: AtomicI32::new(0),
        start: Gate::default(),
    });
    for number in 0..threads {
        let shared = Arc::clone(&shared);
        let bound = bind.then(|| cpus[number % cpus.len()]);
        thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || work(&shared, number, bound))
            .map_err(Error::system(format!("cannot start {threads} threads")))?;
    }
    shared.start.open(threads);
    let turn = Vec::with_capacity(wake);
    let mut main = Main { shared: &shared, list: taken, wake, turn, burns: 0, idle: 0, woken: 0 };
    main.turns_until(clock::now_ns() + warm_up_ns)?;
    let others = Others::watch();
    let first = main.read();
    main.turns_until(first.at_ns + task.duration_ns)?;
    let last = main.read();
    let used = last.usage.since(&first.usage);
    let others = others.share(used.cpu_ns, cpus.len());
    main.drain()?;

    let workers = last.workers.iter().zip(&first.workers).map(|(last, first)| last - first);
    let total: u64 = workers.clone().sum();
    if total == 0 {
        return Ok(Sample::new());
    }
    let seconds = (last.at_ns - first.at_ns) as f64 / 1e9;
    let (burns, each) = (last.main - first.main, |n: u64| n as f64 / total as f64);
    let mut figures = sample([
        ("seconds", seconds),
        ("main_burns", burns as f64),
        ("idle", (last.idle - first.idle) as f64),
        ("worker_burns", total as f64),
        ("worker_min", workers.clone().min().unwrap_or(0) as f64),
        ("worker_max", workers.max().unwrap_or(0) as f64),
        ("worker_avg", total as f64 / threads as f64),
        ("burns_per_second", total as f64 / seconds),
        ("at_a_time", total as f64 / burns.max(1) as f64),
        ("cpu_ns", each(used.cpu_ns)),
        ("voluntary", each(used.voluntary_switches)),
        ("involuntary", each(used.involuntary_switches)),
    ]);
    figures.extend(others.map(|others| ("others".to_owned(), others)));
    add_held(&mut figures, [first.held, last.held], cpus.len());
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::super::What;
    use super::super::array::Errno;
    use super::*;
    use crate::sem::Mechanism;

    fn task(mechanism: Mechanism) -> Task {
        let cpus = affinity::allowed().unwrap();
        Task { mechanism, cpus, duration_ns: 20_000_000, what: What::Pair }
    }

    fn drive_by(sleepers: impl Sleepers + 'static) -> Result<Sample> {
        drive(&task(Mechanism::Futex), 10, 3, true, 1_000_000, Box::new(sleepers))
    }

    #[test]
    fn every_mechanism_wakes_everybody_and_more_at_a_time_than_a_call_has_operations() {
        for (mechanism, threads, wake, bind) in [
            (Mechanism::Kernel, 10, 3, true),
            (Mechanism::Kernel, 150, 150, true),
            (Mechanism::Futex, 10, 3, true),
            (Mechanism::Nanosleep, 10, 3, false),
        ] {
            let burns = run(&task(mechanism), threads, wake, bind, 1_000_000).unwrap();
            assert!(burns["seconds"] >= 0.02 && burns["main_burns"] > 0.0, "{burns:?}");
            assert!(burns["worker_burns"] > 0.0 && burns["worker_min"] <= burns["worker_max"], "{burns:?}");
            assert!((burns["worker_avg"] * threads as f64 - burns["worker_burns"]).abs() < 1e-3, "{burns:?}");
        }
    }

    #[test]
    fn threads_that_nobody_woke_are_found_out() {
        /// Lets a thread go now and then that nobody woke.
        struct Leaky(Box<dyn Sleepers>, AtomicU64);
        impl Sleepers for Leaky {
            fn sleep(&self, number: usize) -> std::result::Result<(), Errno> {
                if self.1.fetch_add(1, Relaxed) % 10 == 9 { Ok(()) } else { self.0.sleep(number) }
            }
            fn wake(&self, numbers: &[usize]) -> std::result::Result<(), Errno> {
                self.0.wake(numbers)
            }
        }
        let futexes = sleepers::by(Mechanism::Futex, 10, false).unwrap();
        let error = drive_by(Leaky(futexes, AtomicU64::new(0))).unwrap_err().to_string();
        assert_eq!(error, "a thread went on that nobody had woken");
    }

    #[test]
    fn a_mechanism_that_fails_gives_no_figures() {
        struct Broken;
        impl Sleepers for Broken {
            fn sleep(&self, _number: usize) -> std::result::Result<(), Errno> {
                Err(libc::EIDRM)
            }
            fn wake(&self, _numbers: &[usize]) -> std::result::Result<(), Errno> {
                Ok(())
            }
        }
        let error = drive_by(Broken).unwrap_err().to_string();
        assert!(error.contains("sleeping: Identifier removed"), "{error}");
    }
}
