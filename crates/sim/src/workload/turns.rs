//! The grid of `poundlock bench`: threads that take turns at a lock, work inside, and think outside.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::Atomic;

use crate::atomic::U32;
use crate::locks::{self, Lock};
use crate::machine::{Machine, Picoseconds};
use crate::platform::Settings;
use crate::profile::{Objects, Row};
use crate::{Alone, Simulation, Stuck, Traffic, now, random, work};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Turns<'a> {
    /// The lock's name.
    pub lock: &'a str,
    /// How many threads there are.
    pub threads: u32,
    /// Work inside.
    pub critical: Picoseconds,
    /// Whether they count as well, all in one line.
    pub counts: bool,
    /// Work outside, on average: from half of that to one and a half times as much.
    pub think: Picoseconds,
    /// Before anything is counted.
    pub warm_up: Picoseconds,
    /// How long it is counted for.
    pub time: Picoseconds,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Each thread's acquisitions.
    pub acquisitions: Vec<u64>,
    /// How long it was counted for.
    pub time: Picoseconds,
    /// The longest time of any thread from one acquisition to the next, the warm-up included. A run begins
    /// and ends with one.
    pub longest_without: Picoseconds,
    /// CPU time of all threads, the warm-up included.
    pub used: Picoseconds,
    /// What the cache lines did, the warm-up included.
    pub traffic: Traffic,
    /// Which accesses needed transfers, the warm-up included; if it was asked for.
    pub profile: Option<Vec<Row>>,
}

impl Measured {
    /// Acquisitions a second.
    pub fn throughput(&self) -> f64 {
        self.acquisitions.iter().sum::<u64>() as f64 * 1e12 / self.time as f64
    }
}

struct Shared {
    lock: Box<dyn Lock>,
    counter: Alone<U32>,
    counts: Vec<Cell<u64>>,
    longest: LongestWithout,
}

/// Finds [`Measured::longest_without`].
pub(super) struct LongestWithout {
    /// When each thread had its last turn.
    last: Vec<Cell<Picoseconds>>,
    longest: Cell<Picoseconds>,
}

impl LongestWithout {
    pub(super) fn new(threads: u32) -> Self {
        LongestWithout { last: (0..threads).map(|_| Cell::new(0)).collect(), longest: Cell::new(0) }
    }

    /// A thread has its turn.
    pub(super) fn turn(&self, index: usize, at: Picoseconds) {
        let without = at - self.last[index].replace(at);
        self.longest.set(self.longest.get().max(without));
    }

    /// The run has come to its end.
    pub(super) fn until(&self, end: Picoseconds) -> Picoseconds {
        (0..self.last.len()).for_each(|index| self.turn(index, end));
        self.longest.get()
    }
}

impl Turns<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// If the lock loses a wake-up.
    ///
    /// # Panics
    /// If there is no such lock.
    pub fn run(&self, machine: &Machine, settings: Settings) -> Result<Measured, Stuck> {
        self.run_in(Simulation::new(machine, settings, self.seed))
    }

    /// Runs it in a simulation that has no threads yet.
    ///
    /// # Errors
    /// If the lock loses a wake-up.
    ///
    /// # Panics
    /// If there is no such lock.
    pub fn run_in(&self, simulation: Simulation) -> Result<Measured, Stuck> {
        self.go(simulation, false)
    }

    /// As [`Turns::run_in`], and notes which accesses need transfers: [`Measured::profile`].
    ///
    /// # Errors
    /// If the lock loses a wake-up.
    ///
    /// # Panics
    /// If there is no such lock.
    pub fn profile_in(&self, simulation: Simulation) -> Result<Measured, Stuck> {
        self.go(simulation, true)
    }

    fn go(&self, mut simulation: Simulation, profiled: bool) -> Result<Measured, Stuck> {
        let Some(lock) = locks::make(self.lock) else { panic!("no lock is called '{}'", self.lock) };
        let counts = (0..self.threads).map(|_| Cell::new(0)).collect();
        let longest = LongestWithout::new(self.threads);
        let shared = Rc::new(Shared { lock, counter: Alone::default(), counts, longest });
        if profiled {
            let lock = core::ptr::from_ref(&*shared.lock).cast::<()>().addr();
            let data = core::ptr::from_ref(&shared.counter).addr();
            simulation.profile(Objects {
                lock: lock..lock + size_of_val(&*shared.lock),
                data: data..data + size_of_val(&shared.counter),
            });
        }
        let (warm_up, end) = (self.warm_up, self.warm_up + self.time);
        for index in 0..self.threads as usize {
            let shared = Rc::clone(&shared);
            let Turns { critical, counts, think, .. } = *self;
            simulation.spawn(None, move || {
                // Until the clock stops.
                loop {
                    shared.lock.lock();
                    shared.longest.turn(index, now());
                    work(critical);
                    if counts {
                        let count = shared.counter.0.load(Relaxed);
                        shared.counter.0.store(count.wrapping_add(1), Relaxed);
                    }
                    shared.lock.unlock();
                    if now() >= warm_up {
                        let count = &shared.counts[index];
                        count.set(count.get() + 1);
                    }
                    work(think / 2 + random(|random| random.u64(0..=think)));
                }
            });
        }
        let summary = simulation.run(end)?;
        Ok(Measured {
            acquisitions: shared.counts.iter().map(Cell::get).collect(),
            time: self.time,
            longest_without: shared.longest.until(summary.time),
            used: summary.used.iter().sum(),
            traffic: summary.traffic,
            profile: summary.profile,
        })
    }
}
