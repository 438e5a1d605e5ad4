//! A recorded stretch of a program's life, again: what each thread did between its locks, on whichever locks
//! and machine.
//!
//! Each thread goes through its steps again and again until the clock stops, so that a short stretch gives a
//! steady rate. Who wakes threads that wait for what is part of the steps; who waits for whom at a lock is
//! not: that is what the replay finds out.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Until};

use crate::atomic::U32;
use crate::locks::{self, Lock};
use crate::machine::{NANOSECOND, Picoseconds};
use crate::peers::glibc_rwlock::GlibcRwLock;
use crate::platform::Sim;
use crate::rwlocks::RwLock;
use crate::{Alone, Simulation, Stuck, Traffic, now, random, sleep, work};

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for that long.
    Work(Picoseconds),
    /// Is blocked for that long, by something that is not simulated.
    Block(Picoseconds),
    /// Acquires the lock of this number, alone.
    Lock(u32),
    /// Acquires it as one of several readers.
    Read(u32),
    /// Acquires it alone if nobody has it. Else the steps up to its release are left out.
    Try(u32),
    /// Releases it, however it was acquired.
    Unlock(u32),
    /// Lets one thread go on that awaits what has this number, now or later.
    Wake(u32),
    /// Goes on only if it may, once for each [`Step::Wake`]; while it may not, it releases the lock of this
    /// number, which it holds, and waits, as with a condition variable.
    Need {
        /// What it needs.
        what: u32,
        /// The lock.
        lock: u32,
    },
    /// Waits until a thread lets it go on: once for each [`Step::Wake`].
    Await {
        /// What it awaits.
        what: u32,
        /// How long that took when it was recorded. For those who would do without the waker.
        took: Picoseconds,
    },
    /// Waits until all threads with such a step have come to it.
    Meet(u32),
    /// Lets those who are ready have its CPU.
    Yield,
}

/// A lock in the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A mutex or spinlock of this name: [`locks::names`]. Readers acquire it alone, too.
    Exclusive(&'a str),
    /// A readers-writer lock of this name: one of ours, or `glibc`, its own.
    Shared(&'a str),
    /// None: nobody waits.
    Gone,
}

/// A lock, or several in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// What each is.
    pub kind: Kind<'a>,
    /// How many there are; each acquisition draws one of them.
    pub number: u32,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    /// Each thread's steps.
    pub threads: &'a [Vec<Step>],
    /// The locks, by number.
    pub locks: &'a [Part<'a>],
    /// How many threads have been let go on before the first step, for each thing that is awaited or needed.
    pub before: &'a [u32],
    /// Before anything is counted.
    pub warm_up: Picoseconds,
    /// How long it is counted for.
    pub time: Picoseconds,
}

/// What became of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Acquisitions.
    pub acquisitions: u64,
    /// Those that waited.
    pub contended: u64,
    /// How long, together.
    pub waited: Picoseconds,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Each thread's steps that were done while it was counted.
    pub steps: Vec<u64>,
    /// By lock.
    pub waits: Vec<Waits>,
    /// CPU time of all threads, the warm-up included.
    pub used: Picoseconds,
    /// What the cache lines did, the warm-up included.
    pub traffic: Traffic,
}

/// An acquisition that takes longer has waited. The recorder, too, sees a wait only where the first attempt
/// failed.
const AT_ONCE: Picoseconds = 200 * NANOSECOND;

enum Made {
    Exclusive(Box<dyn Lock>),
    Shared(Box<RwLock>),
    Glibc(Box<Alone<GlibcRwLock>>),
    Gone,
}

impl Made {
    fn new(kind: Kind<'_>) -> Option<Made> {
        Some(match kind {
            Kind::Exclusive(name) => Made::Exclusive(locks::make(name)?),
            Kind::Shared("glibc") => Made::Glibc(Box::default()),
            Kind::Shared(name) => Made::Shared(Box::new(RwLock::make(name)?)),
            Kind::Gone => Made::Gone,
        })
    }

    fn acquire(&self, reads: bool) {
        match self {
            Made::Exclusive(lock) => lock.lock(),
            Made::Shared(lock) => {
                if reads {
                    lock.read(None);
                } else {
                    lock.write(None);
                }
            }
            Made::Glibc(lock) if reads => lock.0.read(),
            Made::Glibc(lock) => lock.0.write(),
            Made::Gone => (),
        }
    }

    fn release(&self, reads: bool) {
        match self {
            Made::Exclusive(lock) => lock.unlock(),
            Made::Shared(lock) if reads => lock.raw().unlock_read(),
            Made::Shared(lock) => lock.raw().unlock_write(),
            Made::Glibc(lock) if reads => lock.0.unlock_read(),
            Made::Glibc(lock) => lock.0.unlock_write(),
            Made::Gone => (),
        }
    }
}

/// Where threads wait for each other.
struct Meeting {
    /// How often all have come.
    round: Alone<U32>,
    come: Cell<u32>,
    all: u32,
}

impl Meeting {
    fn meet(&self) {
        let round = self.round.0.load(Relaxed);
        self.come.set(self.come.get() + 1);
        if self.come.get() == self.all {
            self.come.set(0);
            self.round.0.store(round.wrapping_add(1), Relaxed);
            Sim::wake(&self.round.0, u32::MAX);
            return;
        }
        while self.round.0.load(Relaxed) == round {
            Sim::wait(&self.round.0, round, Until::Woken);
        }
    }
}

/// What threads let each other go on with.
struct Wakes {
    /// How many may go on.
    left: Alone<U32>,
    waiting: Cell<u32>,
}

impl Wakes {
    fn wake(&self) {
        let word = &self.left.0;
        word.fetch_add(1, Relaxed);
        // Who wakes nobody does not call the kernel.
        if self.waiting.get() > 0 {
            Sim::wake(word, 1);
        }
    }

    /// Whether the caller may go on, which then is one less that may.
    fn take(&self) -> bool {
        let word = &self.left.0;
        loop {
            match word.load(Relaxed) {
                0 => return false,
                many if word.compare_exchange(many, many - 1, Relaxed, Relaxed).is_ok() => return true,
                _ => {}
            }
        }
    }

    fn sleep(&self) {
        self.waiting.set(self.waiting.get() + 1);
        Sim::wait(&self.left.0, 0, Until::Woken);
        self.waiting.set(self.waiting.get() - 1);
    }
}

struct Shared {
    steps: Vec<Vec<Step>>,
    /// Each with how many have it or want it.
    locks: Vec<Vec<(Made, Cell<u32>)>>,
    /// For each thing that is awaited or needed.
    wakes: Vec<Wakes>,
    meetings: Vec<Meeting>,
    done: Vec<Cell<u64>>,
    waits: Vec<Cell<Waits>>,
    warm_up: Picoseconds,
}

impl Shared {
    fn thread(&self, index: usize) {
        // What it holds: the lock's number, which of several it is, and whether it reads.
        let mut held: Vec<(u32, usize, bool)> = Vec::new();
        loop {
            let round = now();
            let mut left_out = None;
            for step in &self.steps[index] {
                if let Some(lock) = left_out {
                    match *step {
                        Step::Unlock(this) if this == lock => {
                            left_out = None;
                            continue;
                        }
                        // What it holds beside it it releases, and others go on.
                        Step::Unlock(_) | Step::Wake(_) | Step::Meet(_) => {}
                        _ => continue,
                    }
                }
                match *step {
                    Step::Work(time) => work(time),
                    Step::Block(time) => sleep(time),
                    Step::Lock(lock) | Step::Read(lock) | Step::Try(lock) => {
                        // Once more by the thread that has it: a recursive mutex, or a reader.
                        if let Some(&(_, part, reads)) = held.iter().find(|(of, ..)| *of == lock) {
                            held.push((lock, part, reads));
                            continue;
                        }
                        let reads = matches!(step, Step::Read(_));
                        let parts = &self.locks[lock as usize];
                        let part =
                            if parts.len() == 1 { 0 } else { random(|random| random.usize(..parts.len())) };
                        let (made, users) = &parts[part];
                        if matches!(step, Step::Try(_)) && users.get() > 0 && !matches!(made, Made::Gone) {
                            left_out = Some(lock);
                            continue;
                        }
                        users.set(users.get() + 1);
                        let begin = now();
                        made.acquire(reads);
                        self.acquired(lock, begin);
                        held.push((lock, part, reads));
                    }
                    Step::Unlock(lock) => {
                        if let Some(at) = held.iter().rposition(|(of, ..)| *of == lock) {
                            let (_, part, reads) = held.remove(at);
                            if held.iter().any(|(of, ..)| *of == lock) {
                                continue;
                            }
                            let (made, users) = &self.locks[lock as usize][part];
                            made.release(reads);
                            users.set(users.get() - 1);
                        }
                    }
                    Step::Wake(what) => self.wakes[what as usize].wake(),
                    Step::Await { what, .. } => {
                        while !self.wakes[what as usize].take() {
                            self.wakes[what as usize].sleep();
                        }
                    }
                    Step::Need { what, lock } => {
                        let Some(&(_, part, reads)) = held.iter().find(|(of, ..)| *of == lock) else {
                            continue;
                        };
                        let made = &self.locks[lock as usize][part].0;
                        while !self.wakes[what as usize].take() {
                            made.release(reads);
                            self.wakes[what as usize].sleep();
                            let begin = now();
                            made.acquire(reads);
                            self.acquired(lock, begin);
                        }
                    }
                    Step::Meet(place) => self.meetings[place as usize].meet(),
                    Step::Yield => Sim::yield_now(),
                }
                if now() >= self.warm_up {
                    self.done[index].set(self.done[index].get() + 1);
                }
            }
            if now() == round {
                // Steps that take no time would go on for ever at this moment.
                work(NANOSECOND);
            }
        }
    }

    fn acquired(&self, lock: u32, begin: Picoseconds) {
        if begin < self.warm_up {
            return;
        }
        let took = now() - begin;
        let waits = &self.waits[lock as usize];
        let mut sum = waits.get();
        sum.acquisitions += 1;
        if took > AT_ONCE {
            sum.contended += 1;
            sum.waited += took;
        }
        waits.set(sum);
    }
}

impl Replay<'_> {
    /// Runs it in a simulation that has no threads yet. Threads without a step take no part.
    ///
    /// # Errors
    /// If all threads wait for each other.
    ///
    /// # Panics
    /// If there is no lock of a name, or no lock or thread of a number.
    pub fn run_in(&self, mut simulation: Simulation) -> Result<Replayed, Stuck> {
        let make = |part: &Part<'_>| -> Vec<(Made, Cell<u32>)> {
            let one = || match Made::new(part.kind) {
                Some(made) => (made, Cell::new(0)),
                None => panic!("no lock is called as in {part:?}"),
            };
            (0..part.number.max(1)).map(|_| one()).collect()
        };
        let steps = || self.threads.iter().flatten();
        let awaited = steps().filter_map(|step| match *step {
            Step::Wake(what) | Step::Await { what, .. } | Step::Need { what, .. } => Some(what + 1),
            _ => None,
        });
        let awaited = awaited.max().unwrap_or(0);
        let places =
            steps().filter_map(|step| if let Step::Meet(place) = *step { Some(place + 1) } else { None });
        let meetings = (0..places.max().unwrap_or(0)).map(|place| Meeting {
            round: Alone::default(),
            come: Cell::new(0),
            all: self.threads.iter().filter(|steps| steps.contains(&Step::Meet(place))).count() as u32,
        });
        let meetings = meetings.collect();
        let shared = Rc::new(Shared {
            steps: self.threads.to_vec(),
            locks: self.locks.iter().map(make).collect(),
            wakes: (0..awaited as usize)
                .map(|what| {
                    let before = self.before.get(what).copied().unwrap_or(0);
                    Wakes { left: Alone(U32::new(before)), waiting: Cell::new(0) }
                })
                .collect(),
            meetings,
            done: self.threads.iter().map(|_| Cell::new(0)).collect(),
            waits: self.locks.iter().map(|_| Cell::default()).collect(),
            warm_up: self.warm_up,
        });
        for index in (0..self.threads.len()).filter(|&index| !self.threads[index].is_empty()) {
            let shared = Rc::clone(&shared);
            simulation.spawn(None, move || shared.thread(index));
        }
        let summary = simulation.run(self.warm_up + self.time)?;
        Ok(Replayed {
            steps: shared.done.iter().map(Cell::get).collect(),
            waits: shared.waits.iter().map(Cell::get).collect(),
            used: summary.used.iter().sum(),
            traffic: summary.traffic,
        })
    }
}
