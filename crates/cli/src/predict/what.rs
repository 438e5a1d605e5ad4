//! Questions: what a recorded program would do if something were otherwise.

use std::fmt;

use poundlock_sim::workload::replay::{Kind, Part, Step};

use super::steps::Lives;

/// What becomes of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nobody waits for it.
    Gone,
    /// All that is done with it held takes half the time.
    Half,
    /// There are several; each acquisition takes one of them.
    Split(u32),
    /// Its readers, as far as it has any, share it; all acquisitions read if there are none.
    ReadersWriter,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Gone => f.write_str("gone"),
            Change::Half => f.write_str("half as long inside"),
            Change::Split(parts) => write!(f, "split in {parts}"),
            Change::ReadersWriter => f.write_str("readers-writer, if all only read"),
        }
    }
}

impl Change {
    /// As it is typed: `gone`, `half`, `split N`, `rw`.
    pub(super) fn parse(text: &str) -> Option<Change> {
        let mut words = text.split_whitespace();
        let change = match (words.next()?, words.next()) {
            ("gone", None) => Change::Gone,
            ("half", None) => Change::Half,
            ("rw", None) => Change::ReadersWriter,
            ("split", Some(parts)) => {
                Change::Split(parts.parse().ok().filter(|parts| (2..=1024).contains(parts))?)
            }
            _ => return None,
        };
        words.next().is_none().then_some(change)
    }
}

/// The locks of a replay, by number, and the steps.
#[derive(Clone)]
pub(super) struct World<'a> {
    pub(super) threads: Vec<Vec<Step>>,
    pub(super) locks: Vec<Part<'a>>,
}

impl<'a> World<'a> {
    /// The program as it was, with these locks for mutexes, spinlocks and readers-writer locks.
    pub(super) fn new(lives: &Lives, kind: impl Fn(u32) -> Kind<'a>) -> World<'a> {
        let locks = lives.locks.iter().map(|&lock| Part { kind: kind(lock), number: 1 }).collect();
        World { threads: lives.threads.clone(), locks }
    }

    /// The same with a change to these locks.
    pub(super) fn change(&mut self, locks: &[u32], change: Change) {
        for &lock in locks {
            let part = &mut self.locks[lock as usize];
            match change {
                Change::Gone => part.kind = Kind::Gone,
                Change::Split(parts) => part.number = parts,
                Change::ReadersWriter => part.kind = Kind::Shared("phase-fair"),
                Change::Half => {}
            }
        }
        match change {
            Change::Half => self.threads.iter_mut().for_each(|steps| halve(steps, locks)),
            Change::ReadersWriter => {
                let reads = |step: &Step| matches!(step, Step::Read(lock) if locks.contains(lock));
                if !self.threads.iter().flatten().any(reads) {
                    for step in self.threads.iter_mut().flatten() {
                        if let Step::Lock(lock) = *step
                            && locks.contains(&lock)
                        {
                            *step = Step::Read(lock);
                        }
                    }
                }
            }
            Change::Gone | Change::Split(_) => {}
        }
    }

    /// `times` programs in one: each thread several times, which wake their likes.
    pub(super) fn multiply(&mut self, times: u32) {
        let threads = self.threads.clone();
        let count = threads.len() as u32;
        for copy in 1..times {
            let beyond = |step: &Step| match *step {
                Step::Wake(thread) => Step::Wake(thread + copy * count),
                step => step,
            };
            self.threads.extend(threads.iter().map(|steps| steps.iter().map(beyond).collect()));
        }
    }
}

/// Work under one of these locks takes half the time.
fn halve(steps: &mut [Step], locks: &[u32]) {
    let mut held = 0;
    for step in steps {
        match step {
            Step::Lock(lock) | Step::Read(lock) if locks.contains(lock) => held += 1,
            Step::Unlock(lock) if locks.contains(lock) => held -= 1,
            Step::Work(time) | Step::Block(time) if held > 0 => *time /= 2,
            _ => {}
        }
    }
}
