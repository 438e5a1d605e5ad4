//! Threads that share a readers-writer lock, as in `poundlock bench rwlock`: work inside, and think outside.

use std::cell::Cell;
use std::rc::Rc;

use super::Measured;
use super::turns::LongestWithout;
use crate::machine::Picoseconds;
use crate::rwlocks::RwLock;
use crate::{Simulation, Stuck, now, random, work};

/// The lock that is none: what the threads do where nothing is in their way.
pub const NO_LOCK: &str = "no-lock";

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a> {
    /// The lock's name, or [`NO_LOCK`].
    pub lock: &'a str,
    /// How many threads there are.
    pub threads: u32,
    /// How many of a hundred thousand operations write.
    pub writers: u32,
    /// Work inside.
    pub critical: Picoseconds,
    /// Work outside, on average: from half of that to one and a half times as much.
    pub think: Picoseconds,
    /// Before anything is counted.
    pub warm_up: Picoseconds,
    /// How long it is counted for.
    pub time: Picoseconds,
}

impl Sharing<'_> {
    /// Runs it in a simulation that has no threads yet.
    ///
    /// # Errors
    /// If the lock loses a wake-up.
    ///
    /// # Panics
    /// If there is no such lock.
    pub fn run_in(&self, mut simulation: Simulation) -> Result<Measured, Stuck> {
        let lock = (self.lock != NO_LOCK).then(|| match RwLock::make(self.lock) {
            Some(lock) => lock,
            None => panic!("no readers-writer lock is called '{}'", self.lock),
        });
        let counts: Vec<Cell<u64>> = (0..self.threads).map(|_| Cell::new(0)).collect();
        let shared = Rc::new((lock, counts, LongestWithout::new(self.threads)));
        let Sharing { writers, critical, think, warm_up, .. } = *self;
        for index in 0..self.threads as usize {
            let shared = Rc::clone(&shared);
            simulation.spawn(None, move || {
                let (lock, counts, longest) = &*shared;
                // Until the clock stops.
                loop {
                    let writes = writers != 0 && random(|random| random.u32(..100_000)) < writers;
                    match lock {
                        None => {
                            longest.turn(index, now());
                            work(critical);
                        }
                        Some(lock) if writes => {
                            lock.write(None);
                            longest.turn(index, now());
                            work(critical);
                            lock.raw().unlock_write();
                        }
                        Some(lock) => {
                            lock.read(None);
                            longest.turn(index, now());
                            work(critical);
                            lock.raw().unlock_read();
                        }
                    }
                    if now() >= warm_up {
                        counts[index].set(counts[index].get() + 1);
                    }
                    work(think / 2 + random(|random| random.u64(0..=think)));
                }
            });
        }
        let summary = simulation.run(self.warm_up + self.time)?;
        Ok(Measured {
            acquisitions: shared.1.iter().map(Cell::get).collect(),
            time: self.time,
            longest_without: shared.2.until(summary.time),
            used: summary.used.iter().sum(),
            traffic: summary.traffic,
            profile: None,
        })
    }
}
