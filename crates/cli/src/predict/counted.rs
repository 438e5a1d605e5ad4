//! Condition variables that count: a thread at a place goes on once for each signal, as the consumers of a
//! queue do, whether it had to wait or not.
//!
//! That is not written in the program's calls, so it is concluded: there are as many signals as threads pass
//! the places at which threads were seen to wait. Such a condition variable limits whoever passes, also where
//! threads are faster than they were, or more. Others let a thread go on as often as they were seen to end a
//! wait.

use std::collections::{HashMap, HashSet};

use poundlock_statfile::LockKind;

use crate::record::recording::{self, Process, Thread};

/// Fewer signals say nothing.
const FEWEST: u64 = 16;
/// By which part signals and passes may differ: some are cut off by stretches.
const LEEWAY: f64 = 0.1;

/// What a thread does with a condition variable and its mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// It acquires a mutex, and not because a wait is over.
    Begins { mutex: u32, place: u64 },
    /// It has waited for a condition variable and has the mutex again, or so far: acquired at that place, if
    /// that was seen.
    Waited { condition: u32, mutex: u32, place: Option<u64>, timed_out: bool },
    /// It wakes one that waits, or all.
    Wakes { condition: u32, all: bool },
}

/// What the thread did, with the number of the event by which it was done and its time.
fn deeds<'a>(process: &'a Process, thread: &'a Thread) -> Vec<(usize, u64, Deed)> {
    struct Wait {
        condition: u32,
        mutex: Option<u32>,
        is_over: bool,
        timed_out: bool,
    }
    let mut deeds = Vec::new();
    let mut began: HashMap<u32, u64> = HashMap::new();
    let mut wait: Option<Wait> = None;
    for (at, &(time, what, lock, more)) in thread.events.iter().enumerate() {
        match what {
            recording::ACQUIRED | recording::TRIED | recording::ACQUIRED_AFTER => match wait.take() {
                Some(Wait { condition, mutex: Some(mutex), is_over: true, timed_out }) if mutex == lock => {
                    let place = began.get(&mutex).copied();
                    deeds.push((at, time, Deed::Waited { condition, mutex, place, timed_out }));
                }
                other => {
                    wait = other;
                    began.insert(lock, more);
                    deeds.push((at, time, Deed::Begins { mutex: lock, place: more }));
                }
            },
            recording::RELEASED => match &mut wait {
                Some(wait) if wait.mutex.is_none() && !wait.is_over => wait.mutex = Some(lock),
                _ => _ = began.remove(&lock),
            },
            recording::BLOCKS if process.locks[lock as usize].of_kind() == LockKind::Condition => {
                wait = Some(Wait { condition: lock, mutex: None, is_over: false, timed_out: false });
            }
            recording::UNBLOCKED | recording::TIMED_OUT => {
                if let Some(wait) = &mut wait {
                    wait.is_over = true;
                    wait.timed_out = what == recording::TIMED_OUT;
                }
            }
            recording::WAKES | recording::WAKES_ALL => {
                deeds.push((at, time, Deed::Wakes { condition: lock, all: what == recording::WAKES_ALL }));
            }
            _ => {}
        }
    }
    deeds
}

/// The condition variables of a process that count.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// By the mutex and the place where it is acquired.
    passes: HashMap<(u32, u64), u32>,
    conditions: HashSet<u32>,
}

impl Counted {
    pub(super) fn of(process: &Process) -> Counted {
        let all: Vec<Deed> = process
            .stretches
            .iter()
            .flat_map(|stretch| &stretch.threads)
            .flat_map(|thread| deeds(process, thread))
            .map(|(_, _, deed)| deed)
            .collect();
        // Where threads wait for which condition variable; none if for several.
        let mut places: HashMap<(u32, u64), Option<u32>> = HashMap::new();
        let mut others: HashSet<u32> = HashSet::new();
        let mut signals: HashMap<u32, u64> = HashMap::new();
        for deed in &all {
            match *deed {
                Deed::Waited { condition, timed_out: true, .. } | Deed::Wakes { condition, all: true } => {
                    others.insert(condition);
                }
                Deed::Waited { condition, mutex, place: Some(place), .. } => {
                    let here = places.entry((mutex, place)).or_insert(Some(condition));
                    if *here != Some(condition) {
                        others.extend(here.take());
                        others.insert(condition);
                    }
                }
                Deed::Wakes { condition, .. } => *signals.entry(condition).or_default() += 1,
                _ => {}
            }
        }
        let mut passes: HashMap<u32, u64> = HashMap::new();
        for deed in &all {
            if let Deed::Begins { mutex, place } = *deed
                && let Some(Some(condition)) = places.get(&(mutex, place))
            {
                *passes.entry(*condition).or_default() += 1;
            }
        }
        let counts = |condition: &u32| {
            let (signals, passes) =
                (signals.get(condition).copied().unwrap_or(0), passes.get(condition).copied().unwrap_or(0));
            !others.contains(condition)
                && signals >= FEWEST
                && signals.abs_diff(passes) as f64 <= LEEWAY * signals.max(passes) as f64
        };
        let places = places.into_iter().filter_map(|(place, condition)| Some((place, condition?)));
        let passes: HashMap<_, _> = places.filter(|(_, condition)| counts(condition)).collect();
        let conditions = passes.values().copied().collect();
        Counted { passes, conditions }
    }

    /// Whether this condition variable counts.
    pub(super) fn has(&self, condition: u32) -> bool {
        self.conditions.contains(&condition)
    }

    /// Which one a thread passes that acquires this mutex there, other than after a wait.
    pub(super) fn passed(&self, mutex: u32, place: u64) -> Option<u32> {
        self.passes.get(&(mutex, place)).copied()
    }

    /// How many could pass each at the begin of the stretch of these threads: at least as many as did before
    /// there was a signal.
    pub(super) fn before(&self, process: &Process, threads: &[Thread]) -> HashMap<u32, u32> {
        let mut steps: Vec<(u64, u32, i64)> = Vec::new();
        for thread in threads {
            let mut passing = None;
            for (_, time, deed) in deeds(process, thread) {
                match deed {
                    Deed::Begins { mutex, place } => {
                        steps.extend(passing.take());
                        passing = self.passed(mutex, place).map(|condition| (time, condition, -1));
                    }
                    // It passes later.
                    Deed::Waited { condition, .. } => {
                        if let Some((at, passed, _)) = &mut passing
                            && *passed == condition
                        {
                            *at = time;
                        }
                    }
                    Deed::Wakes { condition, .. } if self.has(condition) => steps.push((time, condition, 1)),
                    Deed::Wakes { .. } => {}
                }
            }
            steps.extend(passing);
        }
        steps.sort_unstable_by_key(|(time, ..)| *time);
        let mut levels: HashMap<u32, (i64, i64)> = HashMap::new();
        for (_, condition, step) in steps {
            let (level, least) = levels.entry(condition).or_default();
            *level += step;
            *least = (*least).min(*level);
        }
        levels.into_iter().map(|(condition, (_, least))| (condition, -least as u32)).collect()
    }
}
