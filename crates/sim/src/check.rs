//! Locks under schedules that real machines have once a year, with a checker.
//!
//! Threads take one lock in turn, on a machine whose scheduler is in a hurry; besides, any of them may be held up before any
//! access, for a moment or for longer than a wake-up takes. The checker looks for two threads in their sections at once, updates
//! that were lost, threads that sleep for ever, and anything that is left in the lock when all have gone; and it notes the
//! longest wait, and how many acquisitions of others somebody waited through.

use std::cell::Cell;
use std::rc::Rc;

use crate::engine::Disturbance;
use crate::locks::{self, Lock};
use crate::machine::{MICROSECOND, Machine, NANOSECOND, Picoseconds};
use crate::platform::Settings;
use crate::{Simulation, Stuck, now, random, work};

/// What to try.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The lock.
    pub lock: &'a str,
    /// Where.
    pub machine: &'a Machine,
    /// How many threads there are.
    pub threads: u32,
    /// How often each takes it.
    pub sections: u32,
    /// What makes this schedule another than the others.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Two threads were in their sections at once.
    Overlap,
    /// Updates were lost: so many are there, of so many.
    Lost(u32, u32),
    /// These threads sleep, and nobody will wake them.
    Asleep(Vec<u32>),
    /// Time is up, and so many sections are still to come: somebody spins for ever.
    Endless(u32),
    /// All threads have gone, and something is left in the lock.
    Left,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The longest time from the call to the acquisition.
    pub longest_wait: Picoseconds,
    /// The most acquisitions by others in one wait.
    pub most_passed: u32,
    /// How long it took.
    pub time: Picoseconds,
    /// Accesses to memory.
    pub accesses: u64,
}

/// More than any of these runs takes: two seconds.
const LIMIT: Picoseconds = 2_000_000 * MICROSECOND;

struct Shared {
    lock: Box<dyn Lock>,
    inside: Cell<bool>,
    overlap: Cell<bool>,
    count: Cell<u32>,
    longest_wait: Cell<Picoseconds>,
    most_passed: Cell<u32>,
}

/// Runs a case.
///
/// # Errors
/// What is wrong with the lock. The same case finds it again.
///
/// # Panics
/// If there is no such lock.
pub fn check(case: &Case<'_>) -> Result<Report, Found> {
    let Some(lock) = locks::make(case.lock) else { panic!("no lock is called '{}'", case.lock) };
    check_lock(case, lock)
}

/// As [`check`], of a lock that need not be one of ours.
///
/// # Errors
/// What is wrong with it.
pub fn check_lock(case: &Case<'_>, lock: Box<dyn Lock>) -> Result<Report, Found> {
    let mut choices = fastrand::Rng::with_seed(case.seed);
    let disturbance = Disturbance {
        one_in: choices.u32(4..400),
        longest: [200 * NANOSECOND, 5 * MICROSECOND, 60 * MICROSECOND][choices.usize(..3)],
        seed: choices.u64(..),
    };
    let settings = Settings { disturbance: Some(disturbance), ..Settings::default() };
    let mut simulation = Simulation::new(case.machine, settings, case.seed);
    let shared = Rc::new(Shared {
        lock,
        inside: Cell::new(false),
        overlap: Cell::new(false),
        count: Cell::new(0),
        longest_wait: Cell::new(0),
        most_passed: Cell::new(0),
    });
    for _ in 0..case.threads {
        let shared = Rc::clone(&shared);
        let sections = case.sections;
        simulation.spawn(None, move || (0..sections).for_each(|_| shared.pass()));
    }
    let wanted = case.threads * case.sections;
    let summary = simulation.run(LIMIT);
    if shared.overlap.get() {
        return Err(Found::Overlap);
    }
    let summary = summary.map_err(|Stuck::Asleep(threads)| Found::Asleep(threads))?;
    if !summary.over {
        return Err(Found::Endless(wanted - shared.count.get()));
    }
    if shared.count.get() != wanted {
        return Err(Found::Lost(shared.count.get(), wanted));
    }
    if !shared.lock.is_free() {
        return Err(Found::Left);
    }
    Ok(Report {
        longest_wait: shared.longest_wait.get(),
        most_passed: shared.most_passed.get(),
        time: summary.time,
        accesses: summary.traffic.accesses,
    })
}

impl Shared {
    fn pass(&self) {
        let (begun, before) = (now(), self.count.get());
        self.lock.lock();
        self.longest_wait.set(self.longest_wait.get().max(now() - begun));
        self.most_passed.set(self.most_passed.get().max(self.count.get() - before));
        if self.inside.replace(true) {
            self.overlap.set(true);
        }
        let count = self.count.get();
        // Zero, too: sections that are over before anybody has noticed.
        work(random(|random| random.u64(..4)) * 300 * NANOSECOND);
        self.count.set(count + 1);
        if !self.inside.replace(false) {
            self.overlap.set(true);
        }
        self.lock.unlock();
        work(random(|random| random.u64(..4)) * 500 * NANOSECOND);
    }
}
