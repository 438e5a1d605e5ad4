//! Locks under schedules that real machines have once a year, with a checker.
//!
//! A seed and a lock's name are a [`Case`]: a small machine, in most of them with a scheduler that is in a
//! hurry; a few threads and what they do ([`Scene`]); constants of the algorithms, in some cases so small
//! that rare paths are common; and an adversary ([`Disturbance`]) that holds threads up, at random or where
//! it hurts, takes their CPUs from them, makes a cache line slow, and ends sleeps for no reason. The same
//! case is the same run on every host.
//!
//! The checker looks for two threads in their sections at once; threads that sleep or spin for ever; waiters
//! that are bypassed by more threads than were there before them, where the lock promises an order, or
//! without end, where it promises a turn ([`Promise`]); waits that end before their deadline; and anything
//! that is left when all have gone: in the lock, among the nodes of threads, in the lock hash. It also notes
//! the longest wait, and the most bypasses of one wait.

mod adversary;
mod scene;

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Once};

use poundlock_core::qspin::Form;
use poundlock_core::rwlock::Preference;
use poundlock_core::tunings::Tunings;
use poundlock_core::{adaptive, handoff, poundlock, qspin, rwlock};
use poundlock_names::{LockName, Named};

pub use crate::mutexes::Mutex;
pub(crate) use adversary::{Adversary, Blow, Since};
pub use adversary::{Disturbance, How, Place, Slow, Strikes};
use scene::Stage;

use crate::experiment;
use crate::locks::{self, Lock};
use crate::machine::{MICROSECOND, Machine, NANOSECOND, Picoseconds, Scheduler};
use crate::mutexes;
use crate::platform::{Evidence, Settings};
use crate::rwlocks::RwLock;
use crate::{Simulation, Stuck};

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// They take turns.
    Turns,
    /// Some come now and then; the others take the lock again as soon as they have released it. With a
    /// readers-writer lock the former write and the latter read.
    Crowd,
    /// Most have deadlines, give up, and come back. With a lock without deadlines: [`Scene::Turns`].
    Deadlines,
    /// Producers and consumers, with two condition variables. With a lock that has none: [`Scene::Turns`].
    Store,
}

/// What to try.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The lock.
    pub lock: &'a str,
    /// Where.
    pub machine: &'a Machine,
    /// What is done.
    pub scene: Scene,
    /// How many threads there are.
    pub threads: u32,
    /// How often each takes it.
    pub sections: u32,
    /// How long at most.
    pub inside: Picoseconds,
    /// The platform's settings, and what the adversary does.
    pub settings: Settings,
    /// How many priorities there are. With one, all threads are ordinary ones; with more, some are real-time
    /// threads, and they may keep the less urgent ones waiting whatever the lock promises.
    pub priorities: u32,
    /// The seed of all other random choices.
    pub seed: u64,
}

/// What a lock promises to waiters of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// From some moment on only threads that were there before may bypass a waiter.
    pub ordered: Option<Wait>,
    /// A waiter has its turn, however many others want it, and whatever they do.
    pub turn: bool,
    /// While a waiter sleeps, others acquire it a bounded number of times: see SERVICE in
    /// [`poundlock_core::poundlock`].
    pub bypass: bool,
}

/// From when on a waiter is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// When it sleeps for the first time.
    Asleep,
    /// When it sleeps, or does nothing but spin, for the first time.
    Spinning,
}

/// A lock to try.
pub enum Subject {
    /// A lock that can be acquired and released.
    Lock(Box<dyn Lock>),
    /// A lock with deadlines and condition variables.
    Mutex(Box<dyn Mutex>),
    /// A readers-writer lock: a thread reads, writes, or changes its mode inside.
    RwLock(Box<RwLock>),
}

/// The names of all locks that can be tried, ours first; some of others once more, with constants that make
/// their rare paths common.
pub fn names() -> impl Iterator<Item = &'static str> {
    locks::names().chain(locks::rare()).chain(Preference::ALL.into_iter().map(Preference::name))
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Found {
    /// Two threads were in their sections at once.
    #[error("threads {0} and {1} were in their sections at once")]
    Overlap(u32, u32),
    /// These threads sleep, and no thread will wake them.
    #[error("threads {0:?} sleep for ever")]
    Asleep(Vec<u32>),
    /// Time is up, and this many threads have not ended: a thread spins for ever, or the lock was never
    /// released.
    #[error("{0} threads go on for ever")]
    Endless(u32),
    /// A waiter was bypassed more often than there were others before it.
    #[error("thread {thread} was overtaken {passed} times, and {there} were there before it")]
    Overtaken {
        /// The thread.
        thread: u32,
        /// How often.
        passed: u32,
        /// How many others had the lock or waited for it when it was in its place.
        there: u32,
    },
    /// Others acquired it more often than its bound allows while a waiter slept in its list.
    #[error("thread {thread} was passed {passed} times in its sleep, and {bound} is the bound")]
    Bypassed {
        /// The thread.
        thread: u32,
        /// How often.
        passed: u64,
        /// How often it may be.
        bound: u64,
    },
    /// A waiter had no turn for a long time, while others had many.
    #[error("thread {thread} starves: after {} us others have had {passed} turns", time / MICROSECOND)]
    Starved {
        /// The thread.
        thread: u32,
        /// How many turns others had.
        passed: u32,
        /// For how long.
        time: Picoseconds,
    },
    /// This thread's wait timed out before its deadline.
    #[error("thread {0} timed out before its deadline")]
    Early(u32),
    /// All threads have gone, and a waiter is left in the lock or a condition variable.
    #[error("all threads have gone, and the lock is not as it was")]
    Left,
    /// All threads have gone, and nodes of this one are not given back.
    #[error("all threads have gone, and a node of thread {0} is in use")]
    Kept(u32),
    /// All threads have gone, and an entry is left in the lock hash.
    #[error("all threads have gone, and there is an entry in the lock hash")]
    Hashed,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often the lock was acquired.
    pub sections: u64,
    /// The longest time from the call to the acquisition.
    pub longest_wait: Picoseconds,
    /// The most acquisitions by others in one wait.
    pub most_passed: u32,
    /// How often an owner stood at a side's place in the queue of the default mutex.
    pub at_sides: u64,
    /// How long it took.
    pub time: Picoseconds,
    /// Accesses to memory.
    pub accesses: u64,
}

/// More than any of these runs takes: two seconds.
const LIMIT: Picoseconds = 2_000_000 * MICROSECOND;
/// More accesses and turns of wait loops than any of these runs has.
const STEPS: u64 = 40_000_000;

static MACHINES: LazyLock<[Machine; 6]> = LazyLock::new(|| {
    let part = |machine: &Machine, sockets, threads_a_core| {
        machine.part(sockets, threads_a_core).unwrap_or_else(|error| panic!("{error}"))
    };
    // In between.
    let brisk = in_slices(300 * MICROSECOND, 50 * MICROSECOND);
    let hurried = hurried();
    [
        part(&hurried, 1, 1),
        part(&hurried, 1, 2),
        part(&hurried, 2, 1),
        part(&brisk, 1, 1),
        part(&brisk, 2, 1),
        hurried,
    ]
});

/// A small machine with round numbers: two sockets, two cores each, two threads a core.
///
/// # Panics
/// If its description makes no sense, which a test excludes.
pub fn calm() -> Machine {
    Machine::parse(include_str!("small.toml")).unwrap_or_else(|error| panic!("{error}"))
}

/// The same with time slices so short that threads are preempted in the middle of everything.
///
/// # Panics
/// As [`calm`].
pub fn hurried() -> Machine {
    in_slices(20 * MICROSECOND, 2 * MICROSECOND)
}

fn in_slices(latency: Picoseconds, granularity: Picoseconds) -> Machine {
    let calm = calm();
    calm.with_scheduler(Scheduler {
        // A thread must get somewhere on its CPU before it loses it again.
        switch: 200 * NANOSECOND,
        migration: 200 * NANOSECOND,
        latency,
        granularity,
        wakeup_granularity: granularity,
        ..*calm.scheduler()
    })
}

impl<'a> Case<'a> {
    /// The case of this seed.
    pub fn new(lock: &'a str, seed: u64) -> Case<'a> {
        let mut choices = fastrand::Rng::with_seed(seed);
        let random = &mut choices;
        let machine = &MACHINES[random.usize(..MACHINES.len())];
        let scene = match random.u32(..16) {
            0..8 => Scene::Turns,
            8..10 => Scene::Crowd,
            10..13 => Scene::Deadlines,
            _ => Scene::Store,
        };
        let threads = match random.u32(..16) {
            0..10 => random.u32(2..=4),
            10..15 => random.u32(5..=8),
            _ => random.u32(9..=16),
        };
        let sections = random.u32(1..=48 / threads + 2);
        let inside = if one_in(random, 6) { 9 * MICROSECOND } else { 900 * NANOSECOND };
        let mut disturbance = disturbance(random);
        if let (Scene::Crowd, Some(slow)) = (scene, &mut disturbance.slow) {
            // The core that has the line has the lock: there is nothing to promise.
            slow.until = slow.until.min(slow.from + 100 * MICROSECOND);
        }
        let settings = Settings {
            evidence: if one_in(random, 4) { Evidence::Exact } else { Evidence::Displaced },
            spin: [200, 1_000, 4_000, 20_000][random.usize(..4)] * NANOSECOND,
            plain_release: !one_in(random, 4),
            tunings: tunings(random),
            scatter: 0,
            disturbance: Some(disturbance),
        };
        let priorities = if one_in(random, 4) { random.u32(2..=4) } else { 1 };
        Case { lock, machine, scene, threads, sections, inside, settings, priorities, seed }
    }
}

fn one_in(random: &mut fastrand::Rng, count: u32) -> bool {
    random.u32(..count) == 0
}

/// Constants with which rare paths are common, mostly.
fn tunings(random: &mut fastrand::Rng) -> Tunings {
    if one_in(random, 4) {
        return Tunings::USER_SPACE;
    }
    let handoff_after = random.u32(1..=3);
    let bypasses_before_wake = random.u32(1..=6);
    let releases_before_wake = random.u32(1..=4);
    let optimistic_looks = random.u32(..=2);
    let turns_a_look = [1, 16, 2_500, 10_000][random.usize(..4)];
    let looks_in_vain = random.u32(1..=2);
    let waits_a_trial = random.u32(1..=4);
    let spun_before_trial = random.u32(1..=64);
    let spins_for_hand_over = random.u32(..=2);
    let slice = random.usize(1_000..50_000);
    let owners_a_slice_check = random.u32(..=2);
    Tunings {
        poundlock: poundlock::Tuning {
            handoff_after,
            releases_before_wake,
            bypasses_before_wake: bypasses_before_wake.div_ceil(4),
            optimistic_looks,
            looks_in_vain,
            waits_a_trial,
            spun_before_trial,
            spins_for_hand_over,
            slice,
            owners_a_slice_check,
            longest_interval: random.u32(1..=6),
            grants_before_release: random.u32(1..=4),
            looks_after: random.u32(..=2_000),
            calls_apart: random.u32(..=16),
            batch: [random.u32(..=4_000), random.u32(..=2_000), random.u32(..=1_000)],
            budgets: [random.u32(1..=3), 1],
            budgets_of_the_woken: random.u32(1..=4),
            moment: [0, 32, 256][random.usize(..3)],
            few: [0, u32::MAX][random.usize(..2)],
            share: random.u32(..=128),
            absence: random.u32(1..=400),
            rotation: random.u32(..=20_000),
            turns: random.u32(1..=3),
            cpus: [1, u32::MAX][random.usize(..2)],
        },
        adaptive: adaptive::Tuning { handoff_after, bypasses_before_wake },
        handoff: handoff::Tuning { turns_a_look },
        rwlock: rwlock::Tuning {
            handoff_after,
            turns_a_look,
            slice: slice / 2,
            leavings_a_slice_check: owners_a_slice_check / 2,
            cpus: 1,
            barred_looks: optimistic_looks * 8,
            quiet: (slice / 16) as u32,
            quiet_by_drain: 0,
            slots: looks_in_vain as usize,
        },
        qspin: qspin::Tuning {
            optimistic_looks,
            handoff_after,
            bypasses_before_wake,
            // Not a draw of its own, so that each seed stays the case that it was.
            batch: 2 * (bypasses_before_wake - 1),
        },
    }
}

fn disturbance(random: &mut fastrand::Rng) -> Disturbance {
    let mut disturbance = Disturbance { seed: random.u64(..), steps: STEPS, ..Disturbance::default() };
    if one_in(random, 2) {
        disturbance.one_in = random.u32(4..400);
        disturbance.longest = [200 * NANOSECOND, 5 * MICROSECOND, 60 * MICROSECOND][random.usize(..3)];
    }
    if one_in(random, 2) {
        disturbance.strikes = Some(Strikes {
            place: Place::ALL[random.usize(..Place::ALL.len())],
            spared: random.u32(..40),
            every: random.u32(1..20),
            times: random.u32(1..=10),
            how: [How::Stalls, How::Leaves, How::Yields][random.usize(..3)],
            time: [2, 20, 100][random.usize(..3)] * MICROSECOND,
        });
    }
    if one_in(random, 4) {
        let from = random.u64(..100) * MICROSECOND;
        disturbance.slow = Some(Slow {
            line: random.u32(..6),
            core: (!one_in(random, 2)).then(|| random.u32(..4)),
            by: [500 * NANOSECOND, 5 * MICROSECOND, 20 * MICROSECOND][random.usize(..3)],
            from: if one_in(random, 2) { 0 } else { from },
            until: if one_in(random, 2) { LIMIT } else { from + random.u64(..100) * MICROSECOND },
        });
    }
    if one_in(random, 4) {
        disturbance.spurious = random.u32(1..8);
    }
    disturbance
}

impl Promise {
    /// What the lock of this name promises: see `core`'s documentation of each.
    pub fn of(lock: &str) -> Promise {
        let ordered = |wait| Promise { ordered: Some(wait), turn: true, bypass: false };
        if let Some(policy) = Preference::parse(lock) {
            // Each of the others may starve some.
            return Promise { turn: policy == Preference::PhaseFair, ..Promise::default() };
        }
        match (LockName::parse(lock), Form::parse(lock)) {
            // A spinner is not in the queue.
            (Some(lock), _) if lock.spinning().is_some() => ordered(Wait::Asleep),
            // A sleeper that is woken has to take it like anybody else.
            (Some(LockName::Glibc), _) => Promise::default(),
            (Some(LockName::Poundlock), _) => Promise { ordered: None, turn: true, bypass: true },
            (Some(_), _) | (_, Some(Form::Paravirtual | Form::ParavirtualNuma)) => {
                Promise { turn: true, ..Promise::default() }
            }
            (_, Some(Form::Native)) => ordered(Wait::Spinning),
            (_, Some(Form::NativeNuma)) => Promise { turn: true, ..Promise::default() },
            _ if matches!(lock, "ticket" | "ticket-pv" | "mcs" | "mcs-park") => ordered(Wait::Spinning),
            _ if matches!(lock, "cohort" | "cohort:2") => Promise { turn: true, ..Promise::default() },
            _ => Promise::default(),
        }
    }
}

impl Subject {
    /// A new lock of this name.
    pub fn make(name: &str) -> Option<Subject> {
        if let Some(lock) = RwLock::make(name) {
            return Some(Subject::RwLock(Box::new(lock)));
        }
        match mutexes::make(name) {
            Some(mutex) => Some(Subject::Mutex(mutex)),
            None => locks::make(name).map(Subject::Lock),
        }
    }

    fn is_free(&self) -> bool {
        match self {
            Subject::Lock(lock) => lock.is_free(),
            Subject::Mutex(mutex) => mutex.is_free(),
            Subject::RwLock(lock) => lock.raw().is_idle(),
        }
    }
}

/// Runs a case.
///
/// # Errors
/// What is wrong with the lock. The same case finds it again.
///
/// # Panics
/// If there is no such lock.
pub fn check(case: &Case<'_>) -> Result<Report, Found> {
    let Some(subject) = Subject::make(case.lock) else { panic!("no lock is called '{}'", case.lock) };
    check_lock(case, subject, Promise::of(case.lock))
}

/// As [`check`], for a lock that need not be one of ours.
///
/// # Errors
/// What is wrong with it.
pub fn check_lock(case: &Case<'_>, subject: Subject, promise: Promise) -> Result<Report, Found> {
    let mut simulation = Simulation::new(case.machine, case.settings, case.seed);
    let stage = Rc::new(Stage::new(case, subject, promise));
    stage.enter(&mut simulation);
    let result = simulation.run(LIMIT);
    if let Some(found) = stage.found.take() {
        return Err(found);
    }
    let summary = result.map_err(|Stuck::Asleep(threads)| Found::Asleep(threads))?;
    if !summary.over {
        return Err(Found::Endless(stage.left()));
    }
    Ok(stage.report())
}

/// The results of all seeds of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there were.
    pub seeds: u64,
    /// How often it was acquired.
    pub sections: u64,
    /// The longest wait of all.
    pub longest_wait: Picoseconds,
    /// The most acquisitions by others in one wait.
    pub most_passed: u32,
    /// How often an owner stood at a side's place in the queue of the default mutex.
    pub at_sides: u64,
    /// Accesses to memory.
    pub accesses: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.seeds += other.seeds;
        self.sections += other.sections;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.most_passed = self.most_passed.max(other.most_passed);
        self.at_sides += other.at_sides;
        self.accesses += other.accesses;
    }
}

impl From<Report> for Tally {
    fn from(report: Report) -> Tally {
        let Report { sections, longest_wait, most_passed, at_sides, accesses, .. } = report;
        Tally { seeds: 1, sections, longest_wait, most_passed, at_sides, accesses }
    }
}

fn again(lock: &str, seed: u64) -> String {
    format!("poundlock sim check --lock {lock} --seeds {seed}..{}", seed + 1)
}

std::thread_local! {
    /// What this thread tries.
    static TRIED: Cell<Option<(&'static str, u64)>> = const { Cell::new(None) };
}

/// A panic, which no lock of ours raises, also says which seed it was.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            if let Some((lock, seed)) = TRIED.get() {
                eprintln!("{lock}, seed {seed}: a panic; again: {}", again(lock, seed));
            }
        }));
    });
}

/// A seed that finds something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{lock}, seed {seed}: {found}; again: {}", again(lock, *seed))]
pub struct Failure {
    /// With which lock.
    pub lock: &'static str,
    /// The seed.
    pub seed: u64,
    /// What.
    pub found: Found,
}

/// Tries each lock under each seed, on all CPUs of the host. `done` is called with the seeds of a lock that
/// have passed.
///
/// # Errors
/// A seed that fails: the same one each time.
pub fn check_all(
    locks: &[&'static str],
    seeds: Range<u64>,
    done: impl Fn(&'static str, u64) + Sync,
) -> Result<Vec<Tally>, Failure> {
    // How many seeds of a lock to run at a time.
    const PART: usize = 50;
    let parts: Vec<(usize, Range<u64>)> = (seeds.clone().step_by(PART))
        .map(|from| from..seeds.end.min(from + PART as u64))
        .flat_map(|part| (0..locks.len()).map(move |lock| (lock, part.clone())))
        .collect();
    // The first part that is known to fail: later ones need not be tried.
    let failed = AtomicUsize::new(usize::MAX);
    catch_panics();
    let results = experiment::each(
        parts.len(),
        |at| {
            let (lock, seeds) = &parts[at];
            let mut tally = Tally::default();
            for seed in seeds.clone() {
                if failed.load(Relaxed) < at {
                    break;
                }
                let lock = locks[*lock];
                TRIED.set(Some((lock, seed)));
                let report = check(&Case::new(lock, seed)).map_err(|found| {
                    failed.fetch_min(at, Relaxed);
                    Failure { lock, seed, found }
                })?;
                tally.add(report.into());
            }
            TRIED.set(None);
            Ok(tally)
        },
        |at| done(locks[parts[at].0], parts[at].1.end - parts[at].1.start),
    );
    let mut tallies = vec![Tally::default(); locks.len()];
    for ((lock, _), result) in parts.iter().zip(results) {
        tallies[*lock].add(result?);
    }
    Ok(tallies)
}
