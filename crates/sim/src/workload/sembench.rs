//! sembench: threads that sleep in a semaphore array, each for a semaphore of its own, and a main thread that wakes them, many
//! by one call.
//!
//! It is C. Mason's program, its threads bound to CPUs, with which the series of 2010 was measured. A thread sets its flag, and takes
//! one from its semaphore. The main thread looks through the flags of all threads, from where it last found one, clears so many that
//! are set, and gives each of their threads one, by calls of up to 64 operations. (`poundlock bench sembench` has a list in place
//! of the flags. Here the looking is part of what the source's figures came from.)
//!
//! The main thread has the first CPU to itself, and the others have theirs in turn. The source does not say so; its figures before
//! the series do. Its main thread woke 2.9 threads a turn then, about one for each of the *other* CPUs. One that shares its CPU
//! is displaced by all that it wakes there, since they had less of the CPU than it, and finds their flags set again in its next turn:
//! here that came to 64 a turn, 77 thousand turns instead of 2.2 million, and 24 % of the acquisitions contended instead of 91.
//!
//! The arrays are `core`'s, in a kernel: every call is a system call, its caller keeps its CPU unless it sleeps in the array,
//! the lock is a spinlock that nobody sleeps for, and whoever lets others proceed wakes them itself.
//!
//! What is different from what the source measured:
//!
//! * Its lock was a ticket lock, first come, first served; `core`'s belongs to whoever takes it.
//! * `core`'s arrays keep a journal and more lists, for the sake of processes that are killed, which a kernel's need not.
//! * `core` wakes sleepers by the groups of their records, the kernel in the order of the operations.
//! * Queues of threads have no locks that a waker could wait for, and nothing but these threads ever runs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use poundlock_core::platform::Atomic;
use poundlock_core::semarray::{self, Array, Op, Report, Scheme};

use crate::atomic::U32;
use crate::engine::Engine;
use crate::machine::{MICROSECOND, Machine, NANOSECOND, Picoseconds};
use crate::platform::{Settings, Sim};
use crate::semaphores::Memory;
use crate::{Alone, Simulation, Stuck, Traffic, atomically, in_kernel, now, random, work};

/// Operations of a call that wakes.
const CALL: usize = 64;
/// A look at a flag, besides the access: a few cycles, an estimate.
const LOOK: Picoseconds = 3 * NANOSECOND / 2;
/// What the kernel does in a call besides, on average: it finds the array by its number, asks whether the caller may, and copies the
/// operations. An estimate. It takes from nothing to twice as much, at random, so that the threads do not move in step.
const BESIDES: Picoseconds = 500 * NANOSECOND;
/// How long the threads may take to come to their ends.
const PATIENCE: Picoseconds = 1_000_000 * MICROSECOND;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Sembench {
    /// The array.
    pub variant: Scheme,
    /// How many threads sleep.
    pub threads: u32,
    /// How many of them the main thread takes off the list at a time.
    pub wakes: u32,
    /// Before anything is counted.
    pub warm_up: Picoseconds,
    /// How long it is counted for.
    pub time: Picoseconds,
    /// Of all that is left to chance.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burns {
    /// How long it was counted for.
    pub time: Picoseconds,
    /// Turns of the main thread, also those in which no flag was set.
    pub main: u64,
    /// Wake-ups served by each thread.
    pub workers: Vec<u64>,
    /// What the array says of its lock.
    pub held: Report,
    /// What the cache lines did, from the beginning to the end.
    pub traffic: Traffic,
}

impl Burns {
    /// Wake-ups served a second.
    pub fn rate(&self) -> f64 {
        self.workers.iter().sum::<u64>() as f64 * 1e12 / self.time as f64
    }
}

/// Why a run came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Everybody sleeps.
    #[error("{0:?}")]
    Stuck(Stuck),
    /// So many threads sleep on that have been woken.
    #[error("{0} threads sleep on that have been woken")]
    Lost(u32),
    /// A thread went on that nobody had woken.
    #[error("a thread went on that nobody had woken")]
    Unasked,
    /// The array refused a call.
    #[error("the array refuses a call: {0:?}")]
    Refused(semarray::Error),
    /// The array is not whole at the end, or not empty.
    #[error("at the end of the array, {0}")]
    Broken(&'static str),
}

/// What each thread tells the main thread, one after the other in as many words as the source's program has.
struct Flags(Box<[Alone<[U32; Flags::CHUNK]>]>);

impl Flags {
    const CHUNK: usize = 32;
    /// Words of a thread.
    const SIZE: usize = 14;
    /// Of those: 1 until the main thread sets out to wake it.
    const SLEEPS: usize = 4;
    /// Of those: 1 if it wants to be woken.
    const READY: usize = 12;

    fn new(threads: u32) -> Flags {
        let words = threads as usize * Flags::SIZE;
        Flags((0..words.div_ceil(Flags::CHUNK)).map(|_| Alone::default()).collect())
    }

    fn word(&self, thread: u32, word: usize) -> &U32 {
        let at = thread as usize * Flags::SIZE + word;
        &self.0[at / Flags::CHUNK].0[at % Flags::CHUNK]
    }
}

/// The counters at some moment.
struct Reading {
    at: Picoseconds,
    main: u64,
    workers: Vec<u64>,
    held: Report,
}

struct Shared {
    array: Array<'static, Sim>,
    flags: Flags,
    burns: Vec<Cell<u64>>,
    stop: Alone<U32>,
    /// Threads that have come to their ends.
    ended: Cell<u32>,
    /// Before what is counted, and after it.
    readings: RefCell<Vec<Reading>>,
    /// What all semaphores together hold at the end.
    left: Cell<u32>,
    failed: RefCell<Option<Failure>>,
}

impl Shared {
    fn fail(&self, failure: Failure) {
        self.failed.replace(Some(failure));
    }

    fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// A call.
    fn operate(&self, operations: &[Op]) {
        let result = in_kernel(|| {
            Engine::with(Engine::enter);
            work(random(|random| random.u64(0..=2 * BESIDES)));
            atomically(|| self.array.operate(operations, None))
        });
        if let Err(error) = result {
            self.fail(Failure::Refused(error));
        }
    }

    /// What a thread does.
    fn sleep_and_wake(&self, thread: u32) {
        let burns = &self.burns[thread as usize];
        let (sleeps, ready) = (self.flags.word(thread, Flags::SLEEPS), self.flags.word(thread, Flags::READY));
        while self.stop.0.load(Relaxed) == 0 && !self.has_failed() {
            sleeps.store(1, Relaxed);
            ready.store(1, Release);
            self.operate(&[Op { num: thread as u16, change: -1, flags: 0 }]);
            if sleeps.load(Relaxed) != 0 {
                self.fail(Failure::Unasked);
            }
            burns.set(burns.get() + 1);
        }
        self.ended.set(self.ended.get() + 1);
    }
}

/// The main thread.
struct Main {
    shared: Rc<Shared>,
    threads: u32,
    wakes: usize,
    /// Whose flag it last found set.
    last: u32,
    woken: Vec<Op>,
    burns: u64,
}

impl Main {
    /// A thread that wants to be woken, and does not any more.
    fn find(&mut self) -> Option<u32> {
        let flags = &self.shared.flags;
        let mut threads = (0..self.threads).map(|step| (self.last + step) % self.threads);
        let found = threads.find(|&thread| {
            work(LOOK);
            flags.word(thread, Flags::READY).load(Acquire) != 0
        })?;
        flags.word(found, Flags::READY).store(0, Relaxed);
        let sleeps = flags.word(found, Flags::SLEEPS);
        if sleeps.load(Relaxed) != 1 {
            self.shared.fail(Failure::Unasked);
        }
        sleeps.store(0, Relaxed);
        self.last = found;
        Some(found)
    }

    fn turn(&mut self) {
        self.woken.clear();
        while self.woken.len() < self.wakes
            && let Some(thread) = self.find()
        {
            self.woken.push(Op { num: thread as u16, change: 1, flags: Op::NOWAIT });
        }
        self.woken.chunks(CALL).for_each(|operations| self.shared.operate(operations));
        self.burns += 1;
    }

    fn turns_until(&mut self, end: Picoseconds) {
        while now() < end && !self.shared.has_failed() {
            self.turn();
        }
    }

    fn read(&self) {
        self.shared.readings.borrow_mut().push(Reading {
            at: now(),
            main: self.burns,
            workers: self.shared.burns.iter().map(Cell::get).collect(),
            held: self.shared.array.report(),
        });
    }

    fn run(mut self, warm_up: Picoseconds, time: Picoseconds) {
        self.turns_until(warm_up);
        self.read();
        self.turns_until(warm_up + time);
        self.read();
        self.shared.stop.0.store(1, Relaxed);
        while self.shared.ended.get() < self.threads && !self.shared.has_failed() {
            self.turn();
        }
        // Each thread was woken as often as it went on.
        let left = self.shared.array.values(|_, value| self.shared.left.set(self.shared.left.get() + value));
        if let Err(error) = left {
            self.shared.fail(Failure::Refused(error));
        }
    }
}

impl Sembench {
    /// Runs it.
    ///
    /// # Errors
    /// If the array loses a wake-up, wakes somebody for nothing, or refuses a call.
    ///
    /// # Panics
    /// If no array has so many semaphores.
    pub fn run(&self, machine: &Machine) -> Result<Burns, Failure> {
        self.run_in(Simulation::new(machine, Settings::KERNEL, self.seed), machine.cpus())
    }

    /// Runs it in a simulation that has no threads yet, on a machine with so many CPUs. Its settings are to be those of a kernel.
    ///
    /// # Errors
    /// If the array loses a wake-up, wakes somebody for nothing, or refuses a call.
    ///
    /// # Panics
    /// If no array has so many semaphores.
    pub fn run_in(&self, mut simulation: Simulation, cpus: usize) -> Result<Burns, Failure> {
        let memory = Memory::of(self.threads, self.variant);
        let shared = Rc::new(Shared {
            array: memory.array(),
            flags: Flags::new(self.threads),
            burns: (0..self.threads).map(|_| Cell::new(0)).collect(),
            stop: Alone::default(),
            ended: Cell::new(0),
            readings: RefCell::default(),
            left: Cell::new(0),
            failed: RefCell::default(),
        });
        let main = Main {
            shared: Rc::clone(&shared),
            threads: self.threads,
            wakes: self.wakes as usize,
            last: 0,
            woken: Vec::new(),
            burns: 0,
        };
        let Sembench { warm_up, time, .. } = *self;
        simulation.spawn(Some(0), move || main.run(warm_up, time));
        for thread in 0..self.threads {
            let shared = Rc::clone(&shared);
            let cpu = match cpus as u32 {
                1 => 0,
                cpus => 1 + thread % (cpus - 1),
            };
            simulation.spawn(Some(cpu), move || shared.sleep_and_wake(thread));
        }
        let summary = simulation.run(warm_up + time + PATIENCE);
        if let Some(failure) = shared.failed.take() {
            return Err(failure);
        }
        let summary = summary.map_err(Failure::Stuck)?;
        let readings = shared.readings.take();
        let (true, [first, last]) = (summary.over, &readings[..]) else {
            return Err(Failure::Lost(self.threads - shared.ended.get()));
        };
        let audit = shared.array.audit().map_err(Failure::Broken)?;
        if !audit.is_empty() || shared.left.get() != 0 {
            return Err(Failure::Broken("something is left in it"));
        }
        let workers = last.workers.iter().zip(&first.workers);
        Ok(Burns {
            time: last.at - first.at,
            main: last.main - first.main,
            workers: workers.map(|(last, first)| last - first).collect(),
            held: since(&last.held, &first.held),
            traffic: summary.traffic,
        })
    }
}

/// What an array says of what came between two reports.
fn since(last: &Report, first: &Report) -> Report {
    Report {
        lifetime_ns: last.lifetime_ns - first.lifetime_ns,
        free: last.free - first.free,
        contended: last.contended - first.contended,
        spun_ns: last.spun_ns - first.spun_ns,
        slept: last.slept - first.slept,
        sleeps: last.sleeps - first.sleeps,
        wakes: last.wakes - first.wakes,
        served: last.served - first.served,
        recoveries: last.recoveries - first.recoveries,
    }
}
