//! Threads that sleep, and a main thread that wakes them, as the source's sembench has it: each thread puts
//! itself on a list and sleeps, on a semaphore of its own; the main thread takes some off the list at a time
//! and wakes them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};
use std::thread;
use std::time::Duration;

use poundlock_core::Platform;
use poundlock_core::platform::Atomic;
use poundlock_linux::Linux;
use serde::{Deserialize, Serialize};

use super::array::{Array, Errno, Held, Use, op, with_arrays};
use super::{Task, failed};
use crate::affinity;
use crate::clock::{self, Usage};
use crate::error::{Error, Result};
use crate::machine::Others;
use crate::sem::Mechanism;
use crate::worker::gate::{Alone, Gate};

/// What they got done between two readings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Burns {
    pub(crate) elapsed_ns: u64,
    /// Turns of the main thread that woke somebody.
    pub(crate) main: u64,
    /// Turns in which the list was empty.
    pub(crate) idle: u64,
    /// Wake-ups served by each thread.
    pub(crate) workers: Vec<u64>,
    /// CPU time of all threads.
    pub(crate) cpu_ns: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// The share of the CPUs that other processes had.
    pub(crate) others: Option<f64>,
    /// What the array says of its lock.
    pub(crate) held: Option<Held>,
}

/// Operations of a call that wakes.
const CALL: usize = 64;
/// How long the threads may take to come to their ends.
const DRAIN_NS: u64 = 20_000_000_000;

/// By what threads sleep.
trait Sleepers: Send + Sync + 'static {
    /// The calling thread, which has this number, sleeps until it is woken, or not at all if it has been
    /// already.
    fn sleep(&self, number: u32) -> std::result::Result<(), Errno>;

    /// Wakes these, each of whom is on its way to sleep.
    fn wake(&self, numbers: &[u32]) -> std::result::Result<(), Errno>;

    fn held(&self) -> Option<Held> {
        None
    }
}

struct Semaphores<A>(A);

impl<A: Array> Sleepers for Semaphores<A> {
    fn sleep(&self, number: u32) -> std::result::Result<(), Errno> {
        loop {
            match self.0.operate(&mut [op(number as usize, -1, 0)]) {
                // Somebody stopped the program for a while.
                Err(libc::EINTR) => {}
                result => return result,
            }
        }
    }

    fn wake(&self, numbers: &[u32]) -> std::result::Result<(), Errno> {
        let mut operations = [op(0, 1, 0); CALL];
        for numbers in numbers.chunks(CALL) {
            for (operation, &number) in operations.iter_mut().zip(numbers) {
                operation.sem_num = number as u16;
            }
            self.0.operate(&mut operations[..numbers.len()])?;
        }
        Ok(())
    }

    fn held(&self) -> Option<Held> {
        self.0.held()
    }
}

/// A word for each thread: 1 if it has been woken.
struct Words(Vec<Alone<<Linux as poundlock_core::atomic::Atomics>::U32>>);

impl Words {
    fn new(threads: usize) -> Words {
        Words((0..threads).map(|_| Alone(Atomic::new(0))).collect())
    }

    fn taken(&self, number: u32) -> bool {
        let word = &self.0[number as usize].0;
        // Nobody else takes it back.
        let woken = word.load(Acquire) == 1;
        if woken {
            word.store(0, Relaxed);
        }
        woken
    }
}

struct Futexes(Words);

impl Sleepers for Futexes {
    fn sleep(&self, number: u32) -> std::result::Result<(), Errno> {
        while !self.0.taken(number) {
            Linux::wait(&self.0.0[number as usize].0, 0, poundlock_core::platform::Until::Woken);
        }
        Ok(())
    }

    fn wake(&self, numbers: &[u32]) -> std::result::Result<(), Errno> {
        for &number in numbers {
            let word = &self.0.0[number as usize].0;
            word.store(1, Release);
            Linux::wake(word, 1);
        }
        Ok(())
    }
}

/// How long a thread sleeps before it looks again, if nobody wakes it.
pub(crate) const NAP: Duration = Duration::from_millis(1);

struct Naps(Words);

impl Sleepers for Naps {
    fn sleep(&self, number: u32) -> std::result::Result<(), Errno> {
        while !self.0.taken(number) {
            thread::sleep(NAP);
        }
        Ok(())
    }

    fn wake(&self, numbers: &[u32]) -> std::result::Result<(), Errno> {
        for &number in numbers {
            self.0.0[number as usize].0.store(1, Release);
        }
        Ok(())
    }
}

/// The list: threads put themselves in front of it, each for itself; the main thread takes all of it.
struct List {
    /// A thread's number + 1, or 0.
    first: Alone<AtomicU32>,
    places: Vec<Alone<Place>>,
}

/// A thread's place in the list.
#[derive(Default)]
struct Place {
    /// As [`List::first`].
    next: AtomicU32,
    /// How often the main thread has set out to wake the thread.
    woken: AtomicU64,
}

impl List {
    fn new(threads: usize) -> List {
        List { first: Alone::default(), places: (0..threads).map(|_| Alone::default()).collect() }
    }

    fn push(&self, number: u32) {
        let next = &self.places[number as usize].0.next;
        let mut first = self.first.0.load(Relaxed);
        loop {
            next.store(first, Relaxed);
            // Release, so that whoever takes the list sees the link.
            match self.first.0.compare_exchange_weak(first, number + 1, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Appends those on the list to `queue`, in the order in which they came.
    fn take(&self, queue: &mut VecDeque<u32>) {
        let mut place = self.first.0.swap(0, Acquire);
        let end = queue.len();
        while place != 0 {
            queue.push_back(place - 1);
            place = self.places[place as usize - 1].0.next.load(Relaxed);
        }
        queue.make_contiguous()[end..].reverse();
    }

    /// The main thread is about to wake this one.
    fn wakes(&self, number: u32) {
        let woken = &self.places[number as usize].0.woken;
        woken.store(woken.load(Relaxed) + 1, Relaxed);
    }

    /// How often this thread has been woken; exact for the thread itself once it has slept.
    fn woken(&self, number: u32) -> u64 {
        self.places[number as usize].0.woken.load(Relaxed)
    }
}

struct Shared<S> {
    sleepers: S,
    list: List,
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
fn work<S: Sleepers>(shared: &Shared<S>, number: u32, bound: Option<usize>) {
    let bound = bound.map_or(Ok(()), |cpu| affinity::keep_to(&[cpu]));
    if bound.is_err() {
        shared.failed.store(libc::EINVAL, Relaxed);
    }
    let burns = &shared.burns[number as usize].0;
    let mut done = 0;
    shared.start.wait();
    while !shared.stop.load(Relaxed) {
        shared.list.push(number);
        let slept = shared.sleepers.sleep(number);
        done += 1;
        // Whoever is on the list twice would make a ring of it.
        if slept.is_err() || shared.list.woken(number) != done {
            shared.failed.store(slept.err().unwrap_or(UNASKED), Relaxed);
            break;
        }
        burns.store(done, Relaxed);
    }
    shared.ended.fetch_add(1, Release);
}

struct Run<'a> {
    threads: usize,
    wake: usize,
    cpus: &'a [usize],
    bind: bool,
    warm_up_ns: u64,
    duration_ns: u64,
}

pub(super) fn run(task: &Task) -> Result<Burns> {
    let Task::Burns { mechanism, threads, wake, cpus, bind, warm_up_ns, duration_ns } = task else {
        return Err(Error::Options("no burns were asked for".to_owned()));
    };
    let run = Run {
        threads: *threads,
        wake: *wake,
        cpus,
        bind: *bind,
        warm_up_ns: *warm_up_ns,
        duration_ns: *duration_ns,
    };
    if run.cpus.is_empty() || run.threads == 0 || run.wake == 0 {
        return Err(Error::Options("there is nobody to wake, or no CPU to run on".to_owned()));
    }
    affinity::keep_to(run.cpus)?;
    match mechanism {
        Mechanism::Futex => run.drive(Futexes(Words::new(run.threads))),
        Mechanism::Nanosleep => run.drive(Naps(Words::new(run.threads))),
        _ => with_arrays(*mechanism, run),
    }
}

impl Use for Run<'_> {
    type Output = Burns;

    fn with<A: Array>(self) -> Result<Burns> {
        let array = A::new(self.threads)?;
        self.drive(Semaphores(array))
    }
}

/// The counters at some moment.
struct Reading {
    at_ns: u64,
    main: u64,
    idle: u64,
    workers: Vec<u64>,
    usage: Usage,
    held: Option<Held>,
}

/// The main thread.
struct Main<'a, S> {
    shared: &'a Shared<S>,
    wake: usize,
    /// Taken off the list and not yet woken, and what of it is woken in a turn.
    queue: VecDeque<u32>,
    turn: Vec<u32>,
    burns: u64,
    idle: u64,
    /// Threads woken.
    woken: u64,
}

impl<S: Sleepers> Main<'_, S> {
    fn turn(&mut self) -> Result<()> {
        if self.queue.len() < self.wake {
            self.shared.list.take(&mut self.queue);
        }
        if self.queue.is_empty() {
            self.idle += 1;
            thread::yield_now();
        } else {
            let number = self.wake.min(self.queue.len());
            self.turn.clear();
            self.turn.extend(self.queue.drain(..number).inspect(|&number| self.shared.list.wakes(number)));
            self.shared.sleepers.wake(&self.turn).map_err(|errno| failed("waking", errno))?;
            self.burns += 1;
            self.woken += number as u64;
        }
        match self.shared.failed.load(Relaxed) {
            0 => Ok(()),
            UNASKED => Err(Error::Options("a thread went on that nobody had woken".to_owned())),
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
}

impl Run<'_> {
    fn drive<S: Sleepers>(&self, sleepers: S) -> Result<Burns> {
        let shared = Arc::new(Shared {
            sleepers,
            list: List::new(self.threads),
            burns: (0..self.threads).map(|_| Alone::default()).collect(),
            ended: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            failed: AtomicI32::new(0),
            start: Gate::default(),
        });
        for number in 0..self.threads {
            let shared = Arc::clone(&shared);
            let bound = self.bind.then(|| self.cpus[number % self.cpus.len()]);
            thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || work(&shared, number as u32, bound))
                .map_err(Error::system(format!("cannot start {} threads", self.threads)))?;
        }
        shared.start.open(self.threads);
        let mut main = Main {
            shared: &shared,
            wake: self.wake,
            queue: VecDeque::with_capacity(self.threads),
            turn: Vec::with_capacity(self.wake),
            burns: 0,
            idle: 0,
            woken: 0,
        };
        main.turns_until(clock::now_ns() + self.warm_up_ns)?;
        let others = Others::watch();
        let first = main.read();
        main.turns_until(first.at_ns + self.duration_ns)?;
        let last = main.read();
        let used = last.usage.since(&first.usage);
        let others = others.share(used.cpu_ns, self.cpus.len());
        self.drain(&mut main)?;
        Ok(Burns {
            elapsed_ns: last.at_ns - first.at_ns,
            main: last.main - first.main,
            idle: last.idle - first.idle,
            workers: last.workers.iter().zip(&first.workers).map(|(last, first)| last - first).collect(),
            cpu_ns: used.cpu_ns,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            others,
            held: last.held.zip(first.held).map(|(last, first)| last.since(first)),
        })
    }

    /// Has everybody come to an end, and makes sure that each wake-up was served once: a mechanism that loses
    /// some, or lets threads go that nobody woke, may be very fast.
    fn drain<S: Sleepers>(&self, main: &mut Main<'_, S>) -> Result<()> {
        let shared = main.shared;
        shared.stop.store(true, Relaxed);
        let limit = clock::now_ns() + DRAIN_NS;
        let ended = || shared.ended.load(Acquire);
        while ended() < self.threads {
            if clock::now_ns() > limit {
                let left = self.threads - ended();
                return Err(Error::Options(format!("{left} threads sleep on that have been woken")));
            }
            main.turn()?;
        }
        let served: u64 = shared.burns.iter().map(|burns| burns.0.load(Relaxed)).sum();
        if served != main.woken {
            return Err(Error::Options(format!("{} were woken, and {served} went on", main.woken)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::array::Kernel;
    use super::*;

    fn run() -> Run<'static> {
        let cpus: &'static [usize] = affinity::allowed().unwrap().leak();
        Run { threads: 10, wake: 3, cpus, bind: true, warm_up_ns: 1_000_000, duration_ns: 20_000_000 }
    }

    fn check(burns: &Burns) {
        assert_eq!(burns.workers.len(), 10);
        assert!(burns.elapsed_ns >= 20_000_000);
        assert!(burns.main > 0);
        assert!(burns.workers.iter().sum::<u64>() > 0, "{burns:?}");
    }

    #[test]
    fn every_mechanism_wakes_everybody() {
        check(&run().with::<Kernel>().unwrap());
        check(&run().drive(Futexes(Words::new(10))).unwrap());
        check(&Run { bind: false, ..run() }.drive(Naps(Words::new(10))).unwrap());
    }

    #[test]
    fn more_are_woken_at_a_time_than_a_call_has_operations() {
        let run = Run { threads: 150, wake: 150, ..run() };
        let burns = run.with::<Kernel>().unwrap();
        assert_eq!(burns.workers.len(), 150);
    }

    #[test]
    fn threads_that_nobody_woke_are_found_out() {
        /// Lets a thread go now and then that nobody woke.
        struct Leaky(Futexes, AtomicU64);
        impl Sleepers for Leaky {
            fn sleep(&self, number: u32) -> std::result::Result<(), Errno> {
                if self.1.fetch_add(1, Relaxed) % 10 == 9 { Ok(()) } else { self.0.sleep(number) }
            }
            fn wake(&self, numbers: &[u32]) -> std::result::Result<(), Errno> {
                self.0.wake(numbers)
            }
        }
        let error = run().drive(Leaky(Futexes(Words::new(10)), AtomicU64::new(0))).unwrap_err().to_string();
        assert_eq!(error, "a thread went on that nobody had woken");
    }

    #[test]
    fn a_mechanism_that_fails_gives_no_figures() {
        struct Broken;
        impl Sleepers for Broken {
            fn sleep(&self, _number: u32) -> std::result::Result<(), Errno> {
                Err(libc::EIDRM)
            }
            fn wake(&self, _numbers: &[u32]) -> std::result::Result<(), Errno> {
                Ok(())
            }
        }
        let error = run().drive(Broken).unwrap_err().to_string();
        assert!(error.contains("sleeping: Identifier removed"), "{error}");
    }

    #[test]
    fn the_list_keeps_the_order_of_arrival() {
        let list = List::new(5);
        let mut queue = VecDeque::from([9]);
        for number in [3, 0, 4] {
            list.push(number);
        }
        list.take(&mut queue);
        list.push(1);
        list.take(&mut queue);
        assert_eq!(queue, [9, 3, 0, 4, 1]);
        list.take(&mut queue);
        assert_eq!(queue.len(), 5);
    }
}
