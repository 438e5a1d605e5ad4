//! From what a thread was seen to do to what it would do again.
//!
//! * Between two events a thread computes, less what writing them down takes, and less a call to the kernel
//!   that a release or a signal makes: the replay makes its own. Where it was seen to have had less CPU time
//!   than passed, it was blocked if it gave up its CPU by itself, and else others had its CPU: only the first
//!   is a part of its life.
//! * A wait for a lock is what the replay is to find out, so it is left out.
//! * A wait for a condition variable or a semaphore ends when a thread wakes one that waits for it, as often
//!   as was seen, or, if it counts (see [`Counted`]), once for each signal; at a barrier, when all have come.
//!   If it is not known who ended a wait, and for all else, it takes the time that it took.

use std::collections::{BTreeSet, HashMap, HashSet};

use poundlock_sim::workload::replay::Step;
use poundlock_sim::{NANOSECOND, Picoseconds};
use poundlock_statfile::LockKind;

use super::counted::Counted;
use super::shares;
use crate::record::recording::{self, Overhead, Process, Stretch, Thread};

/// CPU time is counted by the microsecond, and a thread that goes on has a little less than what passes.
const FUZZY_NS: u64 = 5_000;

/// A stretch as it can be replayed, and what was measured in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    /// Each thread's steps.
    pub(super) threads: Vec<Vec<Step>>,
    /// When each begins with them.
    pub(super) begins: Vec<Picoseconds>,
    /// The CPU that each was on.
    pub(super) cpus: Vec<Option<u32>>,
    /// Where each of its acquisitions was made: places of the process.
    pub(super) places: Vec<Vec<u32>>,
    /// What sort of thread each is, by number: see [`roles`].
    pub(super) roles: Vec<usize>,
    /// Of each lock, by number: acquisitions a second, and the share of a thread's time that is spent
    /// waiting.
    pub(super) measured: Vec<Rates>,
    /// The locks' numbers in the process, by number here.
    pub(super) locks: Vec<u32>,
    /// How long what a CPU's kernel does took there, in 256ths of what the machine's description says, by
    /// number.
    pub(super) slow: Vec<u64>,
    /// What `stat` costs there for each acquisition, on average.
    pub(super) stat: Picoseconds,
    /// How many may go on at first, for each thing that is awaited.
    pub(super) before: Vec<u32>,
    /// How long the stretch was.
    pub(super) length: Picoseconds,
    /// The share of the threads' time that is blocked for what the replay does not know.
    pub(super) blocked: f64,
    /// How many of its threads had a CPU or waited for one, on average.
    pub(super) ready: f64,
    pub(super) rest: Rest,
}

/// What is known of a stretch before the others have been read, and is of use then.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// When each thread wanted what it acquired.
    wanted: Vec<Vec<u64>>,
    /// The roles of threads that waited for a lock all the time.
    waiting: Vec<usize>,
    /// What is awaited as often as threads are woken.
    paired: Vec<u32>,
}

/// Of a lock, in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) acquisitions: f64,
    /// Seconds of all threads.
    pub(super) waited: f64,
    /// Likewise.
    pub(super) held: f64,
}

/// What is known of the machine that it was recorded on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Of writing down.
    pub(super) overhead: Overhead,
    /// Of a call that gives the CPU away where nobody else is ready.
    pub(super) yield_ns: u64,
    /// How long a turn of [`compute`](poundlock_statfile::speed::compute) takes, in picoseconds: where
    /// nothing slows it down, and when the machine was measured.
    pub(super) turn_ps: [u32; 2],
}

impl Costs {
    /// Those of a process: with the yields of the stretch where they took least, as long as one in four of
    /// them. Where others were ready, theirs is a part of that time. `both_ns`: to them and back at once,
    /// which a yield takes at most.
    pub(super) fn of(process: &Process, overhead: Overhead, both_ns: u64, turn_ps: [u32; 2]) -> Costs {
        let usual = |stretch: &Stretch| {
            let mut yields = Vec::new();
            for thread in &stretch.threads {
                let inside_ns = overhead.at(thread.turn_ps).inside_ns;
                let pairs = thread.events.windows(2).filter(|pair| pair[0].1 == recording::YIELDS);
                yields.extend(pairs.map(|pair| (pair[1].0 - pair[0].0).saturating_sub(inside_ns)));
            }
            yields.sort_unstable();
            let ns = yields.get(yields.len() / 4)?;
            Some(ns * 256 / average(&slow(stretch, turn_ps)))
        };
        let least_ns = process.stretches.iter().filter_map(usual).min();
        Costs { overhead, yield_ns: least_ns.map_or(both_ns, |ns| ns.min(both_ns)), turn_ps }
    }
}

/// How much longer the kernel takes on a CPU that takes twice as long for arithmetic. On a Xeon, where
/// threads of others slowed CPUs down on whose cores they were, a turn took 0.72 and 1.38 ns, and a yield 645
/// and 1060 ns.
const KERNEL: f64 = 0.7;

/// See [`Lives::slow`]. CPUs that no thread was seen on are as those on average.
fn slow(stretch: &Stretch, [best_ps, measured_ps]: [u32; 2]) -> Vec<u64> {
    let mut turns: Vec<Vec<f64>> = Vec::new();
    for thread in &stretch.threads {
        let (Some(cpu), Some(turn_ps)) = (thread.cpu, thread.turn_ps) else { continue };
        turns.resize(turns.len().max(cpu as usize + 1), Vec::new());
        turns[cpu as usize].push(turn_ps.into());
    }
    let takes = |turn_ps: f64| 1.0 + KERNEL * (turn_ps / f64::from(best_ps) - 1.0);
    let of = |turns: &Vec<f64>| {
        let turn_ps = (!turns.is_empty()).then(|| turns.iter().sum::<f64>() / turns.len() as f64)?;
        Some((256.0 * takes(turn_ps) / takes(measured_ps.into())) as u64)
    };
    let seen: Vec<Option<u64>> = turns.iter().map(of).collect();
    let others = average(&seen.iter().flatten().copied().collect::<Vec<u64>>());
    seen.into_iter().map(|slow| slow.unwrap_or(others)).collect()
}

/// How slow CPUs are of which nothing is known, by [`Lives::slow`] of others.
pub(super) fn average(slow: &[u64]) -> u64 {
    slow.iter().sum::<u64>().checked_div(slow.len() as u64).unwrap_or(256)
}

impl Lives {
    /// Acquisitions a second, of all locks.
    pub(super) fn rate(&self) -> f64 {
        self.measured.iter().map(|rates| rates.acquisitions).sum()
    }

    /// Each stretch of a process, whose threads have these roles. Threads that do nothing whole in it are
    /// left out.
    pub(super) fn all(
        process: &Process,
        roles: &HashMap<u32, usize>,
        counted: &Counted,
        costs: Costs,
    ) -> Vec<Lives> {
        let of = |stretch| Lives::of(process, stretch, roles, counted, costs);
        let mut all: Vec<Lives> = process.stretches.iter().map(of).collect();
        let roles: BTreeSet<usize> = all.iter().flat_map(|lives| lives.roles.iter().copied()).collect();
        for role in roles {
            let threads = all.iter().map(|lives| lives.members(role).map(|of| &lives.threads[of][..]));
            if let Some(size) = shares::size(threads) {
                all.iter_mut().for_each(|lives| lives.share_out(role, size));
            }
        }
        for lives in &mut all {
            lives.even_out();
            let rest = std::mem::take(&mut lives.rest);
            rest.waiting.into_iter().for_each(|role| lives.add_like(role));
            rest.paired.into_iter().for_each(|what| lives.pair(what));
        }
        all
    }

    /// One, by itself.
    fn of(
        process: &Process,
        stretch: &Stretch,
        roles: &HashMap<u32, usize>,
        counted: &Counted,
        costs: Costs,
    ) -> Lives {
        let (numbers, locks) = numbers(process);
        let slow = slow(stretch, costs.turn_ps);
        let wakers = Wakers::of(process, stretch, counted, costs.yield_ns * average(&slow) / 256);
        let length = stretch.length_ns * NANOSECOND;
        let mut lives = Lives { locks, length, slow, ..Lives::default() };
        lives.measured = vec![Rates::default(); lives.locks.len()];
        let (mut blocked, mut lived) = (0, 0);
        let (mut worked_ns, mut without_ns) = (0, 0);
        for (index, thread) in stretch.threads.iter().enumerate() {
            let overhead = costs.overhead.at(thread.turn_ps);
            lives.stat += overhead.stat_ns * NANOSECOND / stretch.threads.len() as u64;
            let mut reading = Reading::new(process, &numbers, overhead, index, &wakers);
            for (at, event) in thread.events.iter().enumerate() {
                reading.event(at, *event);
            }
            let life = reading.finish(stretch.length_ns);
            let seconds = (length as f64 / 1e12).max(1e-9);
            for (rates, sum) in lives.measured.iter_mut().zip(&life.sums) {
                rates.acquisitions += sum.acquisitions / seconds;
                rates.waited += sum.waited / seconds;
                rates.held += sum.held / seconds;
            }
            blocked += life.blocked;
            worked_ns += life.worked_ns;
            without_ns += life.without_ns;
            lived += life.span;
            let role = roles.get(&thread.tid).copied().unwrap_or(0);
            if !life.steps.is_empty() {
                lives.threads.push(life.steps);
                lives.begins.push(life.begins);
                lives.cpus.push(thread.cpu);
                lives.places.push(life.places);
                lives.roles.push(role);
                lives.rest.wanted.push(life.wanted);
            } else if life.waits {
                lives.rest.waiting.push(role);
            }
        }
        lives.rest.waiting.extend(starved(process, stretch).filter_map(|tid| roles.get(&tid).copied()));
        lives.blocked = blocked as f64 / (lived as f64).max(1.0);
        lives.ready = (worked_ns + without_ns) as f64 / (stretch.length_ns as f64).max(1.0);
        let before = counted.before(process, &stretch.threads);
        lives.before = vec![0; wakers.numbers.len()];
        for (lock, what) in &wakers.numbers {
            if counted.has(*lock) {
                lives.before[*what as usize] = before.get(lock).copied().unwrap_or(0);
            } else {
                lives.rest.paired.push(*what);
            }
        }
        lives
    }

    /// One more thread, which does what one of the same role does, if there is one; but not together with it.
    pub(super) fn add_like(&mut self, role: usize) {
        /// Threads that were not there begin within this time: a millisecond.
        const APART: f64 = 1e9;
        let members: Vec<usize> = self.members(role).collect();
        let Some(&like) = members.get(self.threads.len() % members.len().max(1)) else { return };
        self.threads.push(self.threads[like].clone());
        self.begins.push(((self.threads.len() as f64 * 0.618_034).fract() * APART) as u64);
        self.cpus.push(None);
        self.places.push(self.places[like].clone());
        self.roles.push(role);
    }

    /// The threads of this role.
    pub(super) fn members(&self, role: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.threads.len()).filter(move |&of| self.roles[of] == role)
    }

    /// Threads of a role that draw lots of work of one size, and use one lock throughout each, take them from
    /// a counter, or from a queue: which lock comes next is not in the life of one, but in what the others
    /// have taken. Threads with lists of their own would soon drift apart, and come to one lock where they
    /// never did.
    fn share_out(&mut self, role: usize, size: usize) {
        let wanted = &self.rest.wanted;
        let lives =
            self.members(role).map(|of| (&self.threads[of][..], &self.places[of][..], &wanted[of][..]));
        let Some(parts) = shares::of(lives.clone(), size) else { return };
        let average = lives.clone().map(|(steps, ..)| steps.len()).sum::<usize>() / lives.count();
        let (steps, places) = shares::in_turn(&parts, role as u32, 2 * average);
        let members: Vec<usize> = self.members(role).collect();
        for of in members {
            self.threads[of].clone_from(&steps);
            self.places[of].clone_from(&places);
        }
    }

    /// Who did little goes on as its like did, until it has done as much as they do on average. Of a thread
    /// that waited most of the time little is seen, and what is rare in that, such as an interrupt while it
    /// held a lock, would come again and again.
    fn even_out(&mut self) {
        let (threads, places) = (self.threads.clone(), self.places.clone());
        let takes: Vec<BTreeSet<u32>> = threads.iter().map(|steps| locks_of(steps)).collect();
        for at in 0..threads.len() {
            let members: Vec<usize> = self.members(self.roles[at]).collect();
            let average = members.iter().map(|&of| threads[of].len()).sum::<usize>() / members.len();
            let others = members.iter().filter(|&&of| of > at).chain(members.iter().filter(|&&of| of < at));
            // Locks of their own stay their own.
            for &other in others.filter(|&&other| takes[at].is_subset(&takes[other])) {
                if self.threads[at].len() >= average {
                    break;
                }
                self.threads[at].extend(&threads[other]);
                self.places[at].extend(&places[other]);
            }
        }
    }

    /// As many are woken as wait: threads were cut where they hold nothing, so that one end of a pair may be
    /// missing. What is too much is left out evenly.
    fn pair(&mut self, what: u32) {
        let wakes = |step: &Step| *step == Step::Wake(what);
        let awaits = |step: &Step| matches!(step, Step::Await { what: Some(it), .. } if *it == what);
        let steps = || self.threads.iter().flatten();
        let (woken, awaited) =
            (steps().filter(|step| wakes(step)).count(), steps().filter(|step| awaits(step)).count());
        let pairs = woken.min(awaited);
        let (mut wake, mut wait) = (0, 0);
        let keeps = |count: &mut usize, all: usize| {
            *count += 1;
            *count * pairs / all > (*count - 1) * pairs / all
        };
        for steps in &mut self.threads {
            steps.retain_mut(|step| {
                if wakes(step) {
                    return keeps(&mut wake, woken);
                }
                if let Step::Await { what: it, .. } = step
                    && *it == Some(what)
                    && !keeps(&mut wait, awaited)
                {
                    *it = None;
                }
                true
            });
        }
    }
}

/// The locks that are acquired in these steps.
fn locks_of(steps: &[Step]) -> BTreeSet<u32> {
    let lock = |step: &Step| match *step {
        Step::Lock(lock) | Step::Read(lock) | Step::Try(lock) => Some(lock),
        _ => None,
    };
    steps.iter().filter_map(lock).collect()
}

/// What a thread was seen to do, and where.
type Deeds = BTreeSet<(u8, u64)>;

/// What sort of thread each is, by its id: those that do the same at the same places have the same role, and
/// the roles with most threads come first. The thread that the process began with has one of its own.
pub(super) fn roles(process: &Process) -> HashMap<u32, usize> {
    let mut does: HashMap<u32, Deeds> = HashMap::new();
    for thread in process.stretches.iter().flat_map(|stretch| &stretch.threads) {
        let does = does.entry(thread.tid).or_default();
        does.extend(thread.events.iter().filter_map(|&(_, what, _, more)| {
            let what = match what {
                recording::WAITS | recording::ACQUIRED_AFTER => recording::ACQUIRED,
                what => what,
            };
            matches!(
                what,
                recording::ACQUIRED
                    | recording::TRIED
                    | recording::BLOCKS
                    | recording::WAKES
                    | recording::WAKES_ALL
            )
            .then_some((what, more))
        }));
    }
    let mut threads: Vec<(u32, Deeds)> = does.into_iter().collect();
    // Those that do most first: each of the others is compared to the whole of what its like do.
    threads.sort_by_key(|(tid, does)| (usize::MAX - does.len(), *tid));
    let mut groups: Vec<(Deeds, Vec<u32>)> = Vec::new();
    for (tid, does) in threads {
        let is_first = tid == process.pid;
        let like = |(all, members): &&mut (Deeds, Vec<u32>)| {
            let shared = does.intersection(all).count();
            !is_first && members[0] != process.pid && 2 * shared >= does.len().max(1) && !does.is_empty()
        };
        match groups.iter_mut().find(like) {
            Some((_, members)) => members.push(tid),
            None => groups.push((does, vec![tid])),
        }
    }
    groups.sort_by_key(|(_, members)| (members[0] == process.pid, usize::MAX - members.len()));
    let roles = groups.iter().enumerate();
    roles.flat_map(|(role, (_, members))| members.iter().map(move |tid| (*tid, role))).collect()
}

/// The threads that are not seen in a stretch, because they waited for a lock all the time: they acquire it
/// later.
fn starved<'a>(process: &'a Process, stretch: &'a Stretch) -> impl Iterator<Item = u32> + 'a {
    let is_in = |stretch: &Stretch, tid: u32| stretch.threads.iter().any(|thread| thread.tid == tid);
    let before = process.stretches.iter().filter(|other| other.began_ns < stretch.began_ns);
    let tids: BTreeSet<u32> = before.flat_map(|other| &other.threads).map(|thread| thread.tid).collect();
    tids.into_iter().filter(move |&tid| {
        let later = process.stretches.iter().filter(|other| other.began_ns > stretch.began_ns);
        let mut lives = later.flat_map(|other| &other.threads).filter(|thread| thread.tid == tid);
        let first =
            lives.next().and_then(|thread| thread.events.iter().find(|event| event.1 != recording::CPU));
        !is_in(stretch, tid) && first.is_some_and(|event| event.1 == recording::ACQUIRED_AFTER)
    })
}

/// The number of each lock of a process, the two sides of a readers-writer lock being one; and the lock's
/// number in the process that stands for each.
fn numbers(process: &Process) -> (Vec<Option<u32>>, Vec<u32>) {
    let mut by_address: HashMap<u64, u32> = HashMap::new();
    let (mut numbers, mut locks) = (Vec::new(), Vec::new());
    for (index, lock) in process.locks.iter().enumerate() {
        let kind = lock.of_kind();
        if index == recording::NO_LOCK as usize || !kind.is_acquired() {
            numbers.push(None);
            continue;
        }
        let number = *by_address.entry(lock.whole()).or_insert_with(|| {
            locks.push(index as u32);
            locks.len() as u32 - 1
        });
        numbers.push(Some(number));
    }
    (numbers, locks)
}

/// Who ended which wait for a condition variable, by thread and event; and where all wait for each other.
struct Wakers<'a> {
    counted: &'a Counted,
    /// The number of what is awaited, by lock of the process.
    numbers: HashMap<u32, u32>,
    /// How many threads an event wakes.
    wakes: HashMap<(usize, usize), usize>,
    /// Waits whose end is known to be one of those, by the event that began them.
    awaited: HashSet<(usize, usize)>,
    /// The number of each barrier at which a thread met another, by lock.
    meetings: HashMap<u32, u32>,
    /// What it takes to yield where nobody else is ready.
    yields_ns: u64,
}

/// A wait that was seen whole.
#[derive(Clone, Copy)]
struct Wait {
    since: u64,
    until: u64,
    thread: usize,
    begun: usize,
}

impl<'a> Wakers<'a> {
    fn of(process: &Process, stretch: &Stretch, counted: &'a Counted, yields_ns: u64) -> Wakers<'a> {
        let mut waits: HashMap<u32, Vec<Wait>> = HashMap::new();
        let mut signals: Vec<(u64, u32, bool, usize, usize)> = Vec::new();
        for (thread, Thread { events, .. }) in stretch.threads.iter().enumerate() {
            let mut begun: Option<(u64, u32, usize)> = None;
            for (at, &(time, what, lock, _)) in events.iter().enumerate() {
                match what {
                    recording::BLOCKS => begun = Some((time, lock, at)),
                    recording::UNBLOCKED => {
                        if let Some((since, lock, begun)) = begun.take() {
                            let wait = Wait { since, until: time, thread, begun };
                            waits.entry(lock).or_default().push(wait);
                        }
                    }
                    recording::TIMED_OUT => begun = None,
                    recording::WAKES | recording::WAKES_ALL => {
                        signals.push((time, lock, what == recording::WAKES_ALL, thread, at));
                    }
                    _ => {}
                }
            }
        }
        let mut wakers = Wakers {
            counted,
            numbers: HashMap::new(),
            wakes: HashMap::new(),
            awaited: HashSet::new(),
            meetings: HashMap::new(),
            yields_ns,
        };
        for (&lock, waits) in &waits {
            let threads: HashSet<usize> = waits.iter().map(|wait| wait.thread).collect();
            if process.locks[lock as usize].of_kind() == LockKind::Barrier && threads.len() > 1 {
                let number = wakers.meetings.len() as u32;
                wakers.meetings.insert(lock, number);
            }
        }
        for waits in waits.values_mut() {
            waits.sort_unstable_by_key(|wait| wait.until);
        }
        signals.sort_unstable();
        for (time, lock, all, thread, at) in signals {
            let counts = counted.has(lock);
            if counts {
                let number = wakers.numbers.len() as u32;
                wakers.numbers.entry(lock).or_insert(number);
                wakers.wakes.insert((thread, at), 1);
            }
            let Some(waits) = waits.get_mut(&lock) else { continue };
            // The first to go on is the one that was woken.
            let mut left = if all { usize::MAX } else { 1 };
            waits.retain(|wait| {
                let woken = left > 0 && wait.since <= time && time <= wait.until;
                if woken {
                    left -= 1;
                    wakers.awaited.insert((wait.thread, wait.begun));
                }
                // No later signal ends what is over.
                !woken && wait.until >= time
            });
            let woken = if all { usize::MAX - left } else { 1 - left };
            if woken > 0 && !counts {
                let number = wakers.numbers.len() as u32;
                wakers.numbers.entry(lock).or_insert(number);
                wakers.wakes.insert((thread, at), woken);
            }
        }
        wakers
    }
}

/// A thread's life, so far.
struct Reading<'a> {
    process: &'a Process,
    numbers: &'a [Option<u32>],
    overhead: Overhead,
    index: usize,
    wakers: &'a Wakers<'a>,
    steps: Vec<Step>,
    /// Where each acquisition among them was made, and when it was wanted.
    places: Vec<u32>,
    wanted: Vec<u64>,
    /// The last event's time, once there was one; and whether it was a release, whose end is looked at.
    last: Option<u64>,
    has_released: bool,
    /// When the part that is kept began.
    began: Option<u64>,
    /// What is held, and since when.
    held: Vec<(u32, u64)>,
    doing: Doing,
    /// The clock of CPU time when it was last looked at: CPU time, switches; and how much work came after
    /// that.
    clock: Option<(u64, u32)>,
    assumed_ns: u64,
    sums: Vec<Rates>,
    blocked_ns: u64,
    /// CPU time that it had, and time in which it was ready and had none.
    worked_ns: u64,
    without_ns: u64,
    /// Where everything was last released.
    whole: Option<Whole>,
    /// What it first acquired with nothing in its hands, where; and the last time that it came to that again,
    /// where everything had been released before.
    first: Option<(u32, u64)>,
    first_again: Option<Whole>,
}

/// A moment at which a thread holds nothing: steps and places so far, time, and what was blocked until then.
#[derive(Clone, Copy)]
struct Whole {
    steps: usize,
    places: usize,
    time: u64,
    blocked_ns: u64,
}

/// What the thread does between events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Works,
    WaitsForLock(u64, Option<u32>),
    Blocked {
        since: u64,
        how: Blocked,
    },
    /// Waits for a condition variable, for which it has released its mutex.
    Waits(Wanted),
}

/// A thread that waits for a condition variable.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wanted {
    /// What it awaits, unless that is among the steps already.
    what: Option<u32>,
    began: u64,
    took: Picoseconds,
    mutex: Option<u32>,
    /// Since when it wants the mutex again.
    since: Option<u64>,
}

/// What ends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocked {
    /// Time.
    Takes,
    /// A thread that wakes one of those who await this.
    Awaits(u32),
    /// That all are there.
    Meets(u32),
    /// That those who were ready have had the CPU.
    Yields,
}

#[derive(Default)]
struct Life {
    begins: Picoseconds,
    steps: Vec<Step>,
    places: Vec<u32>,
    wanted: Vec<u64>,
    span: Picoseconds,
    sums: Vec<Rates>,
    blocked: Picoseconds,
    worked_ns: u64,
    without_ns: u64,
    /// It still waits for a lock.
    waits: bool,
}

impl<'a> Reading<'a> {
    fn new(
        process: &'a Process,
        numbers: &'a [Option<u32>],
        overhead: Overhead,
        index: usize,
        wakers: &'a Wakers<'a>,
    ) -> Reading<'a> {
        let count = numbers.iter().flatten().max().map_or(0, |most| *most as usize + 1);
        Reading {
            process,
            numbers,
            overhead,
            index,
            wakers,
            steps: Vec::new(),
            places: Vec::new(),
            wanted: Vec::new(),
            last: None,
            has_released: false,
            began: None,
            held: Vec::new(),
            doing: Doing::Works,
            clock: None,
            assumed_ns: 0,
            sums: vec![Rates::default(); count],
            blocked_ns: 0,
            worked_ns: 0,
            without_ns: 0,
            whole: None,
            first: None,
            first_again: None,
        }
    }

    fn event(&mut self, at: usize, (time, what, lock, more): (u64, u8, u32, u64)) {
        let has_released = std::mem::replace(&mut self.has_released, what == recording::RELEASED);
        if what == recording::CPU {
            self.looked(time, more, lock);
            return;
        }
        if what == recording::ENDED {
            self.assumed_ns += time.saturating_sub(self.last.unwrap_or(time));
            self.last = Some(time);
            return;
        }
        self.passes(time, if has_released { self.overhead.outside_ns } else { self.overhead.inside_ns });
        let number = self.numbers.get(lock as usize).copied().flatten();
        if let Doing::Waits(wanted) = self.doing {
            self.waits(time, what, number, wanted);
            self.last = Some(time);
            return;
        }
        match (what, number) {
            (recording::ACQUIRED | recording::TRIED | recording::ACQUIRED_AFTER, number) => {
                self.ends_block(time);
                let wanted = if let Doing::WaitsForLock(since, _) = self.doing { since } else { time };
                match self.doing {
                    Doing::WaitsForLock(since, _) => self.waited(number, time.saturating_sub(since)),
                    // It waited before the stretch began.
                    _ if what == recording::ACQUIRED_AFTER && self.last.is_none() => {
                        self.waited(number, time)
                    }
                    _ => {}
                }
                self.doing = Doing::Works;
                if let Some(number) = number {
                    self.sums[number as usize].acquisitions += 1.0;
                    self.held.push((number, time));
                    if self.began.is_some()
                        && self.held.len() == 1
                        && *self.first.get_or_insert((number, more)) == (number, more)
                    {
                        self.first_again = self.whole;
                    }
                    let reads = matches!(
                        self.process.locks[lock as usize].of_kind(),
                        LockKind::RwReaders | LockKind::SharedRwReaders
                    );
                    self.steps.push(match (what, reads) {
                        (recording::TRIED, _) => Step::Try(number),
                        (_, true) => Step::Read(number),
                        (_, false) => Step::Lock(number),
                    });
                    self.places.push(more as u32);
                    self.wanted.push(wanted);
                    let passed = self.wakers.counted.passed(lock, more);
                    if let Some(what) = passed.and_then(|condition| self.wakers.numbers.get(&condition)) {
                        self.steps.push(Step::Await { what: Some(*what), under: Some(number), took: 0 });
                    }
                }
            }
            (recording::WAITS, _) => {
                self.ends_block(time);
                self.doing = Doing::WaitsForLock(time, number);
            }
            (recording::GAVE_UP, _) => {
                if let Doing::WaitsForLock(since, number) = self.doing {
                    self.waited(number, time.saturating_sub(since));
                }
                self.doing = Doing::Works;
            }
            (recording::RELEASED, Some(number)) => {
                if let Some(held) = self.held.iter().rposition(|(of, _)| *of == number) {
                    let (_, since) = self.held.remove(held);
                    self.sums[number as usize].held += time.saturating_sub(since) as f64 / 1e9;
                    self.steps.push(Step::Unlock(number));
                }
            }
            (recording::BLOCKS, _) => {
                let wakers = self.wakers;
                let awaits = wakers.numbers.get(&lock).filter(|_| wakers.awaited.contains(&(self.index, at)));
                let is_condition = self.process.locks[lock as usize].of_kind() == LockKind::Condition;
                // If it counts, that is among the steps, unless it began before the stretch.
                let counts = wakers.counted.has(lock);
                if is_condition && !self.held.is_empty() && (counts || awaits.is_some()) {
                    let what = awaits.copied().filter(|_| !counts);
                    self.doing =
                        Doing::Waits(Wanted { what, began: time, took: 0, mutex: None, since: None });
                    self.last = Some(time);
                    return;
                }
                let how = match (awaits, wakers.meetings.get(&lock)) {
                    (Some(what), _) => Blocked::Awaits(*what),
                    (None, Some(place)) => Blocked::Meets(*place),
                    (None, None) => Blocked::Takes,
                };
                self.doing = Doing::Blocked { since: time, how };
            }
            (recording::YIELDS, _) => self.doing = Doing::Blocked { since: time, how: Blocked::Yields },
            (recording::UNBLOCKED | recording::TIMED_OUT, _) => {
                self.ends_block(time);
                if matches!(self.doing, Doing::Blocked { .. }) {
                    self.doing = Doing::Works;
                }
            }
            (recording::WAKES | recording::WAKES_ALL, _) => {
                let woken = self.wakers.wakes.get(&(self.index, at)).copied().unwrap_or(0);
                if let Some(what) = self.wakers.numbers.get(&lock) {
                    self.steps.extend(std::iter::repeat_n(Step::Wake(*what), woken));
                }
            }
            _ => {}
        }
        self.last = Some(time);
        if self.held.is_empty() && self.doing == Doing::Works {
            if self.began.is_none() {
                // What it did before cannot be repeated: it may have held something.
                self.began = Some(time);
                self.steps.clear();
                self.places.clear();
                self.wanted.clear();
                self.blocked_ns = 0;
            }
            self.whole = Some(Whole {
                steps: self.steps.len(),
                places: self.places.len(),
                time,
                blocked_ns: self.blocked_ns,
            });
        }
    }

    /// An event of a thread that waits for a condition variable: until it has the mutex again.
    fn waits(&mut self, time: u64, what: u8, number: Option<u32>, mut wanted: Wanted) {
        match what {
            recording::RELEASED if wanted.mutex.is_none() => {
                if let Some(at) = self.held.iter().rposition(|(of, _)| Some(*of) == number) {
                    let (number, began) = self.held[at];
                    self.sums[number as usize].held += time.saturating_sub(began) as f64 / 1e9;
                }
                wanted.mutex = number;
            }
            recording::UNBLOCKED => wanted.took = time.saturating_sub(wanted.began) * NANOSECOND,
            recording::WAITS if number == wanted.mutex => wanted.since = Some(time),
            recording::ACQUIRED | recording::ACQUIRED_AFTER if number == wanted.mutex => {
                if let Some(since) = wanted.since {
                    self.waited(number, time.saturating_sub(since));
                }
                if let Some(number) = number {
                    self.sums[number as usize].acquisitions += 1.0;
                    self.held.iter_mut().filter(|(of, _)| *of == number).for_each(|(_, began)| *began = time);
                }
                if wanted.what.is_some() {
                    self.steps.push(Step::Await { what: wanted.what, under: number, took: wanted.took });
                }
                self.doing = Doing::Works;
                return;
            }
            _ => {}
        }
        self.doing = Doing::Waits(wanted);
    }

    fn waited(&mut self, number: Option<u32>, ns: u64) {
        if let Some(number) = number {
            let sum = &mut self.sums[number as usize];
            sum.waited += ns as f64 / 1e9;
        }
    }

    /// Time passes up to an event, of which writing down the one before took so long.
    fn passes(&mut self, time: u64, takes: u64) {
        let Some(last) = self.last else { return };
        if self.doing != Doing::Works {
            return;
        }
        let gap = time.saturating_sub(last);
        self.assumed_ns += gap;
        self.worked_ns += gap;
        self.works(gap.saturating_sub(takes));
    }

    fn works(&mut self, ns: u64) {
        match self.steps.last_mut() {
            Some(Step::Work(before)) => *before += ns * NANOSECOND,
            _ if ns > 0 => self.steps.push(Step::Work(ns * NANOSECOND)),
            _ => {}
        }
    }

    /// The clock of CPU time was looked at: what passed since the last event was long.
    fn looked(&mut self, time: u64, cpu_ns: u64, switches: u32) {
        let before = self.clock.replace((cpu_ns, switches));
        let assumed = std::mem::take(&mut self.assumed_ns);
        let (Some((cpu_before, switches_before)), Some(last)) = (before, self.last) else { return };
        if self.doing != Doing::Works {
            return;
        }
        let gap = time.saturating_sub(last);
        let had = cpu_ns.saturating_sub(cpu_before).saturating_sub(assumed);
        if had + FUZZY_NS >= gap {
            self.worked_ns += gap;
            self.works(gap);
        } else {
            self.worked_ns += had;
            self.works(had);
            if switches == switches_before {
                self.without_ns += gap - had;
            }
            if switches != switches_before {
                let blocked = gap - had;
                self.steps.push(Step::Block(blocked * NANOSECOND));
                self.blocked_ns += blocked;
            }
        }
        self.last = Some(time);
    }

    /// The thread goes on, if it was blocked.
    fn ends_block(&mut self, time: u64) {
        let Doing::Blocked { since, how } = self.doing else { return };
        let blocked = time.saturating_sub(since);
        let took = blocked * NANOSECOND;
        self.steps.push(match how {
            Blocked::Awaits(what) => Step::Await { what: Some(what), under: None, took },
            Blocked::Meets(place) => Step::Meet(place),
            Blocked::Yields => Step::Yield(self.wakers.yields_ns * NANOSECOND),
            Blocked::Takes => {
                self.blocked_ns += blocked;
                Step::Block(took)
            }
        });
        self.doing = Doing::Works;
    }

    /// The part that can be repeated: it begins and ends where nothing is held. What the thread waited for at
    /// the stretch's end, it waited for until then, at least; what it waited for with a lock in its hands is
    /// cut off.
    fn finish(mut self, length_ns: u64) -> Life {
        if let Doing::WaitsForLock(since, number) = self.doing {
            self.waited(number, length_ns.saturating_sub(since));
        }
        let sums = std::mem::take(&mut self.sums);
        let (worked_ns, without_ns) = (self.worked_ns, self.without_ns);
        let waits = matches!(self.doing, Doing::WaitsForLock(..));
        let none = Life { sums, worked_ns, without_ns, waits, ..Life::default() };
        let (Some(began), Some(mut end)) = (self.began, self.whole) else {
            return none;
        };
        // Best where it begins to do again what it first did: so that it goes round as it would have gone on.
        if self.doing == Doing::Works
            && let Some(again) = self.first_again.filter(|again| 4 * again.steps >= 3 * end.steps)
        {
            end = again;
        }
        let Whole { steps, places, time: ended, mut blocked_ns } = end;
        self.steps.truncate(steps);
        self.places.truncate(places);
        self.wanted.truncate(places);
        let mut span = ended.saturating_sub(began);
        if let Doing::Blocked { since, .. } = self.doing
            && self.held.is_empty()
        {
            let blocked = length_ns.saturating_sub(since);
            self.steps.push(Step::Block(blocked * NANOSECOND));
            span += blocked;
            blocked_ns += blocked;
        }
        if self.steps.is_empty() || span == 0 {
            return none;
        }
        Life {
            begins: began * NANOSECOND,
            steps: self.steps,
            places: self.places,
            wanted: self.wanted,
            span: span * NANOSECOND,
            blocked: blocked_ns * NANOSECOND,
            ..none
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::recording::{ACQUIRED, BLOCKS, CPU, Lock, RELEASED, TRIED, UNBLOCKED, WAITS, WAKES};

    const US: u64 = 1000;
    const OVERHEAD: Overhead = Overhead { inside_ns: 100, outside_ns: 200, stat_ns: 0, turn_ps: 0 };
    const BOTH: u64 = 20 * US;

    type Events = Vec<(u64, u8, u32, u64)>;

    fn process(threads: Vec<Events>) -> Process {
        let lock = |address, kind: LockKind| Lock {
            name: format!("lock at {address}"),
            kind: String::new(),
            kind_number: kind as u8,
            address,
            ..Lock::default()
        };
        let threads = threads.into_iter().enumerate();
        let threads = threads
            .map(|(index, events)| Thread { tid: 10 + index as u32, cpu: None, turn_ps: None, events })
            .collect();
        Process {
            pid: 10,
            program: String::new(),
            locks: vec![
                lock(0, LockKind::from_byte(0)),
                lock(64, LockKind::Mutex),
                lock(128, LockKind::Condition),
                lock(192, LockKind::Barrier),
            ],
            places: vec!["?".to_owned(), "f (a.c:1)".to_owned(), "g (a.c:2)".to_owned()],
            stretches: vec![Stretch { began_ns: 0, length_ns: 1000 * US, threads }],
            lived_ns: 1000 * US,
            is_full: false,
        }
    }

    fn lives(process: &Process) -> Lives {
        let costs = Costs::of(process, OVERHEAD, BOTH, [700; 2]);
        Lives::all(process, &roles(process), &Counted::of(process), costs).remove(0)
    }

    const fn work(ns: u64) -> Step {
        Step::Work(ns * NANOSECOND)
    }

    #[test]
    fn time_between_events_is_work_less_what_writing_down_takes() {
        let process = process(vec![vec![
            (10 * US, RELEASED, 1, 1), // of a hold that began before
            (20 * US, ACQUIRED, 1, 1),
            (23 * US, RELEASED, 1, 1),
            (30 * US, TRIED, 1, 2),
            (31 * US, RELEASED, 1, 2),
            (40 * US, ACQUIRED, 1, 1), // of a hold that ends after
        ]]);
        let lives = lives(&process);
        let steps = [
            work(10 * US - 200),
            Step::Lock(0),
            work(3 * US - 100),
            Step::Unlock(0),
            work(7 * US - 200),
            Step::Try(0),
            work(US - 100),
            Step::Unlock(0),
        ];
        assert_eq!(lives.threads, [steps]);
        assert_eq!(lives.places, [[1, 2]]);
        // All three count, in a thousandth of a second.
        assert_eq!(lives.measured[0].acquisitions, 3000.0);
    }

    #[test]
    fn what_measuring_takes_is_longer_on_a_slow_cpu() {
        let hold = |from| [(from, ACQUIRED, 1, 1), (from + US, RELEASED, 1, 1)];
        let mut process = process(vec![[hold(US), hold(4 * US)].concat(), hold(US).to_vec()]);
        let turns = |process: &mut Process, turns: [Option<u32>; 2]| {
            for (thread, turn_ps) in process.stretches[0].threads.iter_mut().zip(turns) {
                thread.turn_ps = turn_ps;
            }
        };
        let read = |process: &Process, turn_ps| {
            let overhead = Overhead { stat_ns: 60, turn_ps, ..OVERHEAD };
            let costs = Costs::of(process, overhead, BOTH, [700; 2]);
            let lives = Lives::all(process, &roles(process), &Counted::of(process), costs).remove(0);
            let [outside, inside] = [0, 2].map(|step| lives.threads[0][step]);
            (inside, outside, lives.stat)
        };
        turns(&mut process, [Some(1400), Some(700)]);
        assert_eq!(read(&process, 700), (work(US - 200), work(2 * US - 400), 90 * NANOSECOND));
        // One of both is not known.
        assert_eq!(read(&process, 0), (work(US - 100), work(2 * US - 200), 60 * NANOSECOND));
        turns(&mut process, [None; 2]);
        assert_eq!(read(&process, 700), (work(US - 100), work(2 * US - 200), 60 * NANOSECOND));
    }

    #[test]
    fn a_cpu_is_as_slow_as_its_threads_were() {
        let hold = || -> Events { vec![(0, RELEASED, 1, 1), (US, ACQUIRED, 1, 1), (2 * US, RELEASED, 1, 1)] };
        let mut process = process(vec![hold(), hold(), hold(), hold()]);
        for (thread, (cpu, turn_ps)) in
            process.stretches[0].threads.iter_mut().zip([(0, 1000), (2, 1400), (2, 2600), (0, 1000)])
        {
            (thread.cpu, thread.turn_ps) = (Some(cpu), Some(turn_ps));
        }
        let slow = |turn_ps| {
            let slow = slow(&process.stretches[0], turn_ps);
            let average = average(&slow);
            (slow, average)
        };
        // Nothing is known of the second one: it is between those that are.
        let (twice, between) = ((256.0 * (1.0 + KERNEL)) as u64, (256.0 * (1.0 + KERNEL / 2.0)) as u64);
        assert_eq!(slow([1000, 1000]), (vec![256, between, twice], between));
        // What the machine's description says was measured where it was slow.
        let of = |takes: f64| (256.0 * takes / (1.0 + KERNEL)) as u64;
        let between = of(1.0 + KERNEL / 2.0);
        assert_eq!(slow([1000, 2000]), (vec![of(1.0), between, 256], between));
    }

    #[test]
    fn steps_end_where_they_would_begin_again() {
        // Two locks in turn: seen are one and a half rounds.
        let hold = |at: u64, lock: u32| [(at, ACQUIRED, lock, 1), (at + US, RELEASED, lock, 1)];
        let mut process = process(vec![
            [
                hold(0, 4),
                hold(10 * US, 1),
                hold(20 * US, 4),
                hold(30 * US, 1),
                hold(40 * US, 4),
                hold(50 * US, 1),
            ]
            .concat(),
        ]);
        process.locks.push(Lock { address: 256, kind_number: LockKind::Mutex as u8, ..Lock::default() });
        let lives = lives(&process);
        let locks = |step: &Step| if let Step::Lock(lock) = *step { Some(lock) } else { None };
        // The first hold may have begun with something else in its hands; then lock 1 comes first.
        assert_eq!(lives.threads[0].iter().filter_map(locks).collect::<Vec<_>>(), [0, 1, 0, 1]);
        assert_eq!((lives.begins[0], lives.places[0].len()), (US * NANOSECOND, 4));
    }

    #[test]
    fn who_waited_all_the_time_is_there() {
        let hold = |at: u64| [(at, ACQUIRED, 1, 1), (at + US, RELEASED, 1, 1)];
        let holds = || -> Events { (0..10).flat_map(|at| hold(at * 10 * US)).collect() };
        let mut process = process(vec![holds(), holds(), holds()]);
        let stretch = |began_ns, threads| Stretch { began_ns, length_ns: 1000 * US, threads };
        let after: Events = vec![(5 * US, recording::ACQUIRED_AFTER, 1, 1), (6 * US, RELEASED, 1, 1)];
        // One is not seen, and has the lock later; another is not seen, and does something else later.
        process
            .stretches
            .push(stretch(10_000 * US, vec![Thread { tid: 11, cpu: None, turn_ps: None, events: holds() }]));
        process.stretches.push(stretch(
            20_000 * US,
            vec![
                Thread { tid: 10, cpu: None, turn_ps: None, events: holds() },
                Thread { tid: 12, cpu: None, turn_ps: None, events: after },
            ],
        ));
        let roles = roles(&process);
        let counted = Counted::of(&process);
        let costs = Costs::of(&process, OVERHEAD, BOTH, [700; 2]);
        let all = Lives::all(&process, &roles, &counted, costs);
        assert_eq!(all[0].threads.len(), 3);
        let second = &all[1];
        assert_eq!(second.threads.len(), 2);
        assert_eq!(second.threads[0], second.threads[1]);
        assert_ne!(second.begins[0], second.begins[1]);
    }

    #[test]
    fn cpu_time_tells_blocked_from_preempted() {
        let hold = |at: u64| [(at, ACQUIRED, 1, 1), (at + US, RELEASED, 1, 1)];
        let mut events: Events = vec![(0, CPU, 7, 0)];
        events.extend(hold(0));
        // 100 us passed, 10 of them on a CPU, and it gave up its CPU: blocked.
        events.push((101 * US, CPU, 8, 11 * US));
        events.extend(hold(101 * US));
        // The same, and it did not: others had its CPU.
        events.push((202 * US, CPU, 8, 22 * US));
        events.extend(hold(202 * US));
        let lives = lives(&process(vec![events]));
        let blocks: Vec<&Step> =
            lives.threads[0].iter().filter(|step| matches!(step, Step::Block(_))).collect();
        assert_eq!(blocks, [&Step::Block(90 * US * NANOSECOND)], "{:?}", lives.threads);
        // 203 us, but for those that were blocked: 113 with a CPU or ready.
        assert!((lives.ready - 0.113).abs() < 0.003, "{}", lives.ready);
    }

    #[test]
    fn a_wait_for_a_lock_is_left_out_and_measured() {
        let lives = lives(&process(vec![vec![
            (0, ACQUIRED, 1, 1),
            (US, RELEASED, 1, 1),
            (2 * US, WAITS, 1, 1),
            (102 * US, recording::ACQUIRED_AFTER, 1, 1),
            (103 * US, RELEASED, 1, 1),
            (900 * US, WAITS, 1, 1), // for longer than the stretch
        ]]));
        assert!((lives.measured[0].waited - 0.2).abs() < 1e-9, "{:?}", lives.measured);
        assert!(!lives.threads[0].iter().any(|step| matches!(step, Step::Block(_))), "{:?}", lives.threads);
    }

    #[test]
    fn who_wakes_whom_is_kept_in_pairs_and_barriers_are_met() {
        let waits = vec![
            (0, RELEASED, 1, 1), // of a hold that began before
            (0, ACQUIRED, 1, 1),
            (US, BLOCKS, 2, 1),
            (US, RELEASED, 1, 1),
            (50 * US, UNBLOCKED, 0, 0),
            (51 * US, ACQUIRED, 1, 1),
            (52 * US, RELEASED, 1, 1),
            (60 * US, BLOCKS, 3, 1),
            (90 * US, UNBLOCKED, 0, 0),
            (91 * US, ACQUIRED, 1, 1),
            (92 * US, RELEASED, 1, 1),
        ];
        let wakes = vec![
            (0, RELEASED, 1, 2),
            (40 * US, ACQUIRED, 1, 2),
            (41 * US, WAKES, 2, 2),
            (42 * US, RELEASED, 1, 2),
            (43 * US, WAKES, 2, 2), // nobody waits
            (80 * US, BLOCKS, 3, 2),
            (89 * US, UNBLOCKED, 0, 0),
            (99 * US, ACQUIRED, 1, 2),
            (100 * US, RELEASED, 1, 2),
        ];
        let lives = lives(&process(vec![waits, wakes]));
        let count = |thread: usize, of: &dyn Fn(&Step) -> bool| {
            lives.threads[thread].iter().filter(|step| of(step)).count()
        };
        let is_await = |step: &Step| matches!(step, Step::Await { what: Some(0), .. });
        assert_eq!((count(0, &is_await), count(1, &is_await)), (1, 0), "{:?}", lives.threads);
        let is_wake = |step: &Step| *step == Step::Wake(0);
        assert_eq!((count(0, &is_wake), count(1, &is_wake)), (0, 1), "{:?}", lives.threads);
        let meets = |step: &Step| *step == Step::Meet(0);
        assert_eq!((count(0, &meets), count(1, &meets)), (1, 1), "{:?}", lives.threads);
    }

    #[test]
    fn what_writing_down_and_calls_took_is_no_work() {
        let lives = lives(&process(vec![vec![
            (0, RELEASED, 1, 1), // of a hold that began before
            (10 * US, ACQUIRED, 1, 1),
            (40 * US, recording::ENDED, 0, 0),
            (41 * US, RELEASED, 1, 1),
            (44 * US, recording::ENDED, 0, 0), // it woke a thread
            (51 * US, recording::YIELDS, 0, 0),
            (59 * US, UNBLOCKED, 0, 0),
            (60 * US, ACQUIRED, 1, 1),
            (61 * US, RELEASED, 1, 1),
        ]]));
        let steps = [
            work(10 * US - 200),
            Step::Lock(0),
            work(US - 100),
            Step::Unlock(0),
            work(7 * US - 100),
            Step::Yield((8 * US - 100) * NANOSECOND),
            work(US - 100),
            Step::Lock(0),
            work(US - 100),
            Step::Unlock(0),
        ];
        assert_eq!(lives.threads[0], steps);
    }

    #[test]
    fn what_others_did_meanwhile_is_no_part_of_a_yield() {
        let yields = |took: u64| {
            process(vec![vec![
                (0, RELEASED, 1, 1),
                (10 * US, recording::YIELDS, 0, 0),
                (10 * US + took, UNBLOCKED, 0, 0),
                (91 * US, ACQUIRED, 1, 1),
                (92 * US, RELEASED, 1, 1),
            ]])
        };
        let has = |process: &Process, ns: u64| {
            let lives = lives(process);
            assert!(lives.threads[0].contains(&Step::Yield(ns * NANOSECOND)), "{:?}", lives.threads);
        };
        let mut process = yields(80 * US);
        has(&process, BOTH);
        // In another stretch nobody was ready, or fewer were.
        process.stretches.extend(yields(2 * US).stretches);
        has(&process, 2 * US - 100);
        // That one's CPU took longer for all.
        for (stretch, turn_ps) in process.stretches.iter_mut().zip([700, 1400]) {
            (stretch.threads[0].cpu, stretch.threads[0].turn_ps) = (Some(0), Some(turn_ps));
        }
        has(&process, (2 * US - 100) * 256 / (256.0 * (1.0 + KERNEL)) as u64);
    }

    #[test]
    fn a_condition_variable_that_counts_is_needed_whether_a_thread_waited_or_not() {
        // A round of 10 us for each of 20 items; the taker waits for one in five.
        let (mut makes, mut takes): (Events, Events) = (vec![(0, RELEASED, 1, 1)], vec![(0, RELEASED, 1, 2)]);
        for round in 1..=20 {
            let at = round * 10 * US;
            makes.extend([(at, ACQUIRED, 1, 1), (at + US, WAKES, 2, 1), (at + 2 * US, RELEASED, 1, 1)]);
            if round % 5 == 0 {
                let began = at - 3 * US;
                takes.extend([
                    (began, ACQUIRED, 1, 2),
                    (began + 1, BLOCKS, 2, 2),
                    (began + 2, RELEASED, 1, 2),
                ]);
                takes.extend([(at + 2 * US, UNBLOCKED, 0, 0), (at + 3 * US, ACQUIRED, 1, 2)]);
            } else {
                takes.push((at + 3 * US, ACQUIRED, 1, 2));
            }
            takes.push((at + 4 * US, RELEASED, 1, 2));
        }
        let process = process(vec![makes, takes]);
        let lives = lives(&process);
        let count =
            |thread: usize, step: Step| lives.threads[thread].iter().filter(|it| **it == step).count();
        assert_eq!(
            (count(0, Step::Wake(0)), count(1, Step::Await { what: Some(0), under: Some(0), took: 0 })),
            (19, 19),
            "the last round is where the first would begin again"
        );
        // Its waits are not acquisitions of their own in the replay.
        assert_eq!((count(1, Step::Lock(0)), count(1, Step::Unlock(0))), (19, 19), "{:?}", lives.threads[1]);
        assert_eq!(lives.before, [0]);
        assert!(
            !lives.threads[1]
                .iter()
                .any(|step| matches!(step, Step::Block(_) | Step::Await { took: 1.., .. }))
        );
    }

    #[test]
    fn threads_that_do_the_same_have_one_role() {
        let of = |places: &[u64]| -> Events {
            places.iter().enumerate().map(|(at, place)| (at as u64 * US, ACQUIRED, 1, *place)).collect()
        };
        let roles = roles(&process(vec![of(&[1, 2]), of(&[1]), of(&[2]), of(&[1]), of(&[1, 1])]));
        assert_eq!(roles[&10], 2, "the first thread has one of its own: {roles:?}");
        assert_eq!((roles[&11], roles[&13], roles[&14]), (0, 0, 0));
        assert_eq!(roles[&12], 1);
    }
}
