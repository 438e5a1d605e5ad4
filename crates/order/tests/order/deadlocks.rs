//! Small programs, all of whose interleavings are run: a deadlock that one of them ends in must be known from
//! runs in which nothing went wrong.

use std::collections::{BTreeSet, HashSet};

use poundlock_order::{Evidence, Limits, Order, Rules};
use poundlock_statfile::check::{ClassKey, LockId, Mode, Serial};

use super::recorder::{Op, Recorder, Trace};
use super::seeds;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// The second number is where the thread goes on if it tries in vain: behind the release.
    Take(u8, Mode, Option<usize>),
    Release(u8),
}

type Program = Vec<Vec<Step>>;

/// Straight on, each thread: locks within locks, none taken twice. What is taken in vain by a try is skipped,
/// with all that happens under it.
fn program(seed: u64, threads: usize, locks: u8, gates: bool) -> Program {
    let mut random = fastrand::Rng::with_seed(seed);
    let reads: Vec<_> = (0..locks)
        .map(|_| [None, None, Some(Mode::Read), Some(Mode::FairRead)][random.usize(0..4)])
        .collect();
    let depth = if gates { 3 } else { 2 };
    let block = |random: &mut fastrand::Rng, held: &mut Vec<u8>, steps: &mut Vec<Step>| {
        nest(random, &reads, depth, gates, held, steps);
    };
    (0..threads)
        .map(|_| {
            let mut steps = Vec::new();
            for _ in 0..random.usize(1..3) {
                block(&mut random, &mut Vec::new(), &mut steps);
            }
            steps
        })
        .collect()
}

fn nest(
    random: &mut fastrand::Rng,
    reads: &[Option<Mode>],
    depth: usize,
    tries: bool,
    held: &mut Vec<u8>,
    steps: &mut Vec<Step>,
) {
    let lock = random.u8(0..reads.len() as u8);
    if held.contains(&lock) || held.len() >= depth {
        return;
    }
    let mode = reads[lock as usize].filter(|_| random.u8(0..3) != 0).unwrap_or(Mode::Exclusive);
    let at = steps.len();
    steps.push(Step::Take(lock, mode, None));
    held.push(lock);
    for _ in 0..random.usize(0..3) {
        nest(random, reads, depth, tries, held, steps);
    }
    held.pop();
    steps.push(Step::Release(lock));
    if tries && random.u8(0..6) == 0 {
        steps[at] = Step::Take(lock, mode, Some(steps.len()));
    }
}

/// Where all threads are.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    at: Vec<usize>,
    waits: Vec<bool>,
    /// By lock: who holds it, and whether exclusively.
    held: Vec<Vec<(usize, bool)>>,
}

/// All deadlocks that some interleaving ends in: the locks that are waited for. And how many states there
/// are.
fn deadlocks(program: &Program, locks: u8) -> (BTreeSet<BTreeSet<LockId>>, usize) {
    let begin = State {
        at: vec![0; program.len()],
        waits: vec![false; program.len()],
        held: vec![Vec::new(); locks as usize],
    };
    let mut seen = HashSet::from([begin.clone()]);
    let mut todo = vec![begin];
    let mut found = BTreeSet::new();
    while let Some(state) = todo.pop() {
        let mut next = Vec::new();
        for thread in 0..program.len() {
            next.extend(step(program, &state, thread));
        }
        if next.is_empty() {
            let stuck = (0..program.len()).filter(|&thread| state.at[thread] < program[thread].len());
            let asked = |thread: usize| match program[thread][state.at[thread]] {
                Step::Take(lock, ..) | Step::Release(lock) => LockId(u32::from(lock)),
            };
            let locks: BTreeSet<_> = stuck.map(asked).collect();
            if !locks.is_empty() {
                found.insert(locks);
            }
        }
        todo.extend(next.into_iter().filter(|state| seen.insert(state.clone())));
    }
    (found, seen.len())
}

/// What follows if `thread` goes on; `None` if it cannot.
fn step(program: &Program, state: &State, thread: usize) -> Option<State> {
    let &step = program[thread].get(state.at[thread])?;
    let mut next = state.clone();
    match step {
        Step::Release(lock) => {
            next.held[lock as usize].retain(|&(holder, _)| holder != thread);
            next.at[thread] += 1;
        }
        Step::Take(lock, mode, in_vain) => {
            let exclusive = mode == Mode::Exclusive;
            let holders = &state.held[lock as usize];
            let free = holders.iter().all(|&(_, by_writer)| !exclusive && !by_writer);
            // A writer that waits for this lock.
            let writer = |other: usize| {
                let step = || program[other][state.at[other]];
                state.waits[other] && matches!(step(), Step::Take(asked, Mode::Exclusive, _) if asked == lock)
            };
            let behind = mode == Mode::FairRead && (0..program.len()).any(writer);
            if free && !behind {
                next.held[lock as usize].push((thread, exclusive));
                next.held[lock as usize].sort_unstable();
                next.at[thread] += 1;
                next.waits[thread] = false;
            } else if let Some(behind) = in_vain {
                next.at[thread] = behind;
            } else if state.waits[thread] {
                return None;
            } else {
                next.waits[thread] = true;
            }
        }
    }
    Some(next)
}

/// The threads one after the other: nothing goes wrong.
fn one_by_one(program: &Program, locks: u8) -> Trace {
    let lock = |lock: u8| LockId(u32::from(lock));
    let mut trace: Trace =
        (0..locks).map(|at| (Serial(0), Op::Make(lock(at), ClassKey(u32::from(at))))).collect();
    for (thread, steps) in program.iter().enumerate() {
        trace.extend(steps.iter().map(|&step| {
            let op = match step {
                Step::Take(at, mode, in_vain) => Op::Take { lock: lock(at), mode, tries: in_vain.is_some() },
                Step::Release(at) => Op::Release(lock(at)),
            };
            (Serial(thread as u32), op)
        }));
    }
    trace
}

/// The sets of locks of the cycles that are reported.
fn reported(program: &Program, locks: u8, rules: Rules) -> Vec<BTreeSet<LockId>> {
    let mut recorder = Recorder::new(Order::with_rules(Limits::default(), rules), false);
    recorder.run(&one_by_one(program, locks));
    assert_eq!(recorder.order.statistics().pending, 0);
    let found = recorder.found.iter().filter(|cycle| cycle.evidence == Evidence::SameLocks);
    found.map(|cycle| cycle.edges.iter().map(|edge| edge.from.held.lock).collect()).collect()
}

#[test]
fn every_deadlock_is_reported() {
    let (mut with, mut without, mut in_vain) = (0, 0, 0);
    for seed in seeds(3000) {
        let (threads, locks) = (2 + (seed % 2) as usize, 2 + (seed % 3) as u8);
        let program = program(seed, threads, locks, true);
        let (deadlocks, _) = deadlocks(&program, locks);
        let reported = reported(&program, locks, Rules::default());
        for deadlock in &deadlocks {
            let known = reported.iter().any(|cycle| cycle.is_subset(deadlock));
            assert!(known, "seed {seed}: {deadlock:?} is not among {reported:?}: {program:?}");
        }
        match (deadlocks.is_empty(), reported.is_empty()) {
            (true, true) => without += 1,
            (true, false) => in_vain += 1,
            (false, _) => with += 1,
        }
    }
    println!("{with} programs with deadlocks, {without} without; {in_vain} reports in vain");
    assert!(with > 0 || seeds(3000).count() < 100, "no program has a deadlock");
}

#[test]
fn two_threads_and_two_locks_are_not_reported_in_vain() {
    let (mut with, mut without) = (0, 0);
    for seed in seeds(3000) {
        let program = program(seed, 2, 2, false);
        let (deadlocks, _) = deadlocks(&program, 2);
        let reported = reported(&program, 2, Rules::default());
        assert_eq!(deadlocks.is_empty(), reported.is_empty(), "seed {seed}: {reported:?}: {program:?}");
        *(if deadlocks.is_empty() { &mut without } else { &mut with }) += 1;
    }
    println!("{with} programs with deadlocks, {without} without");
    assert!(with > 0 || seeds(3000).count() < 100, "no program has a deadlock");
}

/// Whether some program of two threads and two locks is reported without need if these are the rules.
fn in_vain(rules: Rules) -> bool {
    (0..3000).any(|seed| {
        let program = program(seed, 2, 2, false);
        !reported(&program, 2, rules).is_empty() && deadlocks(&program, 2).0.is_empty()
    })
}

#[test]
fn a_missing_rule_is_found() {
    assert!(in_vain(Rules { threads: false, ..Rules::default() }));
    assert!(in_vain(Rules { modes: false, ..Rules::default() }));
}

#[test]
fn a_deadlock_with_a_thread_that_was_not_seen_is_missed() {
    let missed = (0..3000).any(|seed| {
        let all = program(seed, 2, 2, false);
        let seen = vec![all[0].clone(), Vec::new()];
        !deadlocks(&all, 2).0.is_empty() && reported(&seen, 2, Rules::default()).is_empty()
    });
    assert!(missed);
}
