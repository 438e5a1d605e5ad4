//! From what a thread was seen to do to what it would do again.
//!
//! * Between two events a thread computes, less what writing them down takes. Where it was seen to have had less CPU
//!   time than passed, it was blocked if it gave up its CPU by itself, and else others had its CPU: only the first
//!   is a part of its life.
//! * A wait for a lock is what the replay is to find out, so it is left out.
//! * A wait for a condition variable ends when the thread that ended it wakes this one again; if that is not known,
//!   and for all else that is waited for, it takes the time that it took.

use std::collections::HashMap;

use poundlock_sim::workload::replay::Step;
use poundlock_sim::{NANOSECOND, Picoseconds};
use poundlock_statfile::LockKind;

use crate::record::recording::{self, Overhead, Process, Stretch, Thread};

/// CPU time is counted by the microsecond, and a thread that goes on has a little less than what passes.
const FUZZY_NS: u64 = 5_000;

/// A stretch as it can be replayed, and what was measured in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    /// Each thread's steps.
    pub(super) threads: Vec<Vec<Step>>,
    /// How long each took to do them.
    pub(super) spans: Vec<Picoseconds>,
    /// Of each lock, by number: acquisitions a second, and the share of a thread's time that is spent waiting.
    pub(super) measured: Vec<Rates>,
    /// The locks' numbers in the process, by number here.
    pub(super) locks: Vec<u32>,
    /// How long the stretch was.
    pub(super) length: Picoseconds,
    /// The share of the threads' time that is blocked for what the replay does not know.
    pub(super) blocked: f64,
}

/// Of a lock, in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) acquisitions: f64,
    pub(super) waits: f64,
    /// Seconds of all threads.
    pub(super) waited: f64,
    /// Likewise.
    pub(super) held: f64,
}

impl Lives {
    /// Acquisitions a second, of all locks.
    pub(super) fn rate(&self) -> f64 {
        self.measured.iter().map(|rates| rates.acquisitions).sum()
    }

    /// The stretch of a process. Threads that do nothing whole in it are left out.
    pub(super) fn of(process: &Process, stretch: &Stretch, overhead: Overhead) -> Lives {
        let (numbers, locks) = numbers(process);
        let wakers = Wakers::of(stretch);
        let length = stretch.length_ns * NANOSECOND;
        let mut lives = Lives { locks, length, ..Lives::default() };
        lives.measured = vec![Rates::default(); lives.locks.len()];
        let (mut blocked, mut lived) = (0, 0);
        for (index, thread) in stretch.threads.iter().enumerate() {
            let mut reading = Reading::new(process, &numbers, overhead, index, &wakers);
            for (at, event) in thread.events.iter().enumerate() {
                reading.event(at, *event);
            }
            let life = reading.finish();
            for (rates, sum) in lives.measured.iter_mut().zip(&life.sums) {
                let seconds = (life.span as f64 / 1e12).max(1e-9);
                rates.acquisitions += sum.acquisitions / seconds;
                rates.waits += sum.waits / seconds;
                rates.waited += sum.waited / seconds;
                rates.held += sum.held / seconds;
            }
            blocked += life.blocked;
            lived += life.span;
            lives.threads.push(life.steps);
            lives.spans.push(life.span);
        }
        lives.blocked = blocked as f64 / (lived as f64).max(1.0);
        lives.drop_lonely_wakes();
        lives
    }

    /// Nobody is woken who does not await it, and nobody awaits what nobody does: threads were cut where they hold
    /// nothing, so that one end of a pair may be missing.
    fn drop_lonely_wakes(&mut self) {
        let count = self.threads.len();
        let (mut wakes, mut awaits) = (vec![0_u32; count], vec![0_u32; count]);
        for (index, steps) in self.threads.iter().enumerate() {
            for step in steps {
                match step {
                    Step::Wake(thread) => wakes[*thread as usize] += 1,
                    Step::Await => awaits[index] += 1,
                    _ => {}
                }
            }
        }
        let mut left: Vec<u32> =
            wakes.iter().zip(&awaits).map(|(wakes, awaits)| *wakes.min(awaits)).collect();
        let pairs = left.clone();
        for steps in &mut self.threads {
            steps.retain(|step| match step {
                Step::Wake(thread) => {
                    let left = &mut left[*thread as usize];
                    let kept = *left > 0;
                    *left = left.saturating_sub(1);
                    kept
                }
                _ => true,
            });
        }
        for (index, steps) in self.threads.iter_mut().enumerate() {
            let mut kept = pairs[index];
            steps.retain(|step| {
                if *step != Step::Await {
                    return true;
                }
                let keep = kept > 0;
                kept = kept.saturating_sub(1);
                keep
            });
        }
    }
}

/// The number of each lock of a process, the two sides of a readers-writer lock being one; and the lock's number in
/// the process that stands for each.
fn numbers(process: &Process) -> (Vec<Option<u32>>, Vec<u32>) {
    let mut by_address: HashMap<u64, u32> = HashMap::new();
    let (mut numbers, mut locks) = (Vec::new(), Vec::new());
    for (index, lock) in process.locks.iter().enumerate() {
        let kind = lock.of_kind();
        if index == recording::NO_LOCK as usize || !kind.is_acquired() {
            numbers.push(None);
            continue;
        }
        let writes = matches!(kind, LockKind::RwWriters | LockKind::SharedRwWriters);
        let address = if writes { lock.address - LockKind::WRITERS as u64 } else { lock.address };
        let number = *by_address.entry(address).or_insert_with(|| {
            locks.push(index as u32);
            locks.len() as u32 - 1
        });
        numbers.push(Some(number));
    }
    (numbers, locks)
}

/// Who ended which wait for a condition variable: by thread and event.
struct Wakers {
    /// Threads that an event wakes.
    wakes: HashMap<(usize, usize), Vec<u32>>,
    /// Waits whose end is known to be one of those, by the event that began them.
    awaited: HashMap<(usize, usize), ()>,
}

impl Wakers {
    fn of(stretch: &Stretch) -> Wakers {
        // Waits for each condition variable: begin, end, thread, event.
        let mut waits: HashMap<u32, Vec<(u64, u64, usize, usize)>> = HashMap::new();
        let mut signals: Vec<(u64, u32, bool, usize, usize)> = Vec::new();
        for (index, Thread { events, .. }) in stretch.threads.iter().enumerate() {
            let mut begun: Option<(u64, u32, usize)> = None;
            for (at, &(time, what, lock, _)) in events.iter().enumerate() {
                match what {
                    recording::BLOCKS => begun = Some((time, lock, at)),
                    recording::UNBLOCKED => {
                        if let Some((since, lock, begun)) = begun.take() {
                            waits.entry(lock).or_default().push((since, time, index, begun));
                        }
                    }
                    recording::TIMED_OUT => begun = None,
                    recording::WAKES | recording::WAKES_ALL => {
                        signals.push((time, lock, what == recording::WAKES_ALL, index, at));
                    }
                    _ => {}
                }
            }
        }
        signals.sort_unstable();
        let mut wakers = Wakers { wakes: HashMap::new(), awaited: HashMap::new() };
        for (time, lock, all, thread, at) in signals {
            let Some(waits) = waits.get_mut(&lock) else { continue };
            let mut there: Vec<usize> =
                (0..waits.len()).filter(|&wait| waits[wait].0 <= time && time <= waits[wait].1).collect();
            // The first to go on is the one that was woken.
            there.sort_unstable_by_key(|&wait| waits[wait].1);
            if !all {
                there.truncate(1);
            }
            there.sort_unstable();
            for wait in there.into_iter().rev() {
                let (_, _, woken, begun) = waits.swap_remove(wait);
                wakers.wakes.entry((thread, at)).or_default().push(woken as u32);
                wakers.awaited.insert((woken, begun), ());
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
    wakers: &'a Wakers,
    steps: Vec<Step>,
    /// The last event's time, once there was one.
    last: Option<u64>,
    /// When the part that is kept began.
    began: Option<u64>,
    /// What is held, and since when.
    held: Vec<(u32, u64)>,
    doing: Doing,
    /// The clock of CPU time when it was last looked at: CPU time, switches; and how much work came after that.
    clock: Option<(u64, u32)>,
    assumed_ns: u64,
    sums: Vec<Rates>,
    blocked_ns: u64,
    /// Where everything was last released: steps, time, and sums.
    whole: Option<(usize, u64, Vec<Rates>, u64)>,
}

/// What the thread does between events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Works,
    WaitsForLock(u64),
    Blocked { since: u64, awaits: bool },
}

struct Life {
    steps: Vec<Step>,
    span: Picoseconds,
    sums: Vec<Rates>,
    blocked: Picoseconds,
}

impl<'a> Reading<'a> {
    fn new(
        process: &'a Process,
        numbers: &'a [Option<u32>],
        overhead: Overhead,
        index: usize,
        wakers: &'a Wakers,
    ) -> Reading<'a> {
        let count = numbers.iter().flatten().max().map_or(0, |most| *most as usize + 1);
        Reading {
            process,
            numbers,
            overhead,
            index,
            wakers,
            steps: Vec::new(),
            last: None,
            began: None,
            held: Vec::new(),
            doing: Doing::Works,
            clock: None,
            assumed_ns: 0,
            sums: vec![Rates::default(); count],
            blocked_ns: 0,
            whole: None,
        }
    }

    fn event(&mut self, at: usize, (time, what, lock, more): (u64, u8, u32, u64)) {
        if what == recording::CPU {
            self.looked(time, more, lock);
            return;
        }
        self.passes(time, what);
        let number = self.numbers.get(lock as usize).copied().flatten();
        match (what, number) {
            (recording::ACQUIRED | recording::ACQUIRED_AFTER, number) => {
                self.ends_block(time);
                if let Doing::WaitsForLock(since) = self.doing
                    && let Some(number) = number
                {
                    let sum = &mut self.sums[number as usize];
                    sum.waits += 1.0;
                    sum.waited += time.saturating_sub(since) as f64 / 1e9;
                }
                self.doing = Doing::Works;
                if let Some(number) = number {
                    self.sums[number as usize].acquisitions += 1.0;
                    self.held.push((number, time));
                    let reads = matches!(
                        self.process.locks[lock as usize].of_kind(),
                        LockKind::RwReaders | LockKind::SharedRwReaders
                    );
                    self.steps.push(if reads { Step::Read(number) } else { Step::Lock(number) });
                }
            }
            (recording::WAITS, _) => {
                self.ends_block(time);
                self.doing = Doing::WaitsForLock(time);
            }
            (recording::GAVE_UP, _) => self.doing = Doing::Works,
            (recording::RELEASED, Some(number)) => {
                if let Some(held) = self.held.iter().rposition(|(of, _)| *of == number) {
                    let (_, since) = self.held.remove(held);
                    self.sums[number as usize].held += time.saturating_sub(since) as f64 / 1e9;
                    self.steps.push(Step::Unlock(number));
                }
            }
            (recording::BLOCKS, _) => {
                let awaits = self.wakers.awaited.contains_key(&(self.index, at));
                self.doing = Doing::Blocked { since: time, awaits };
            }
            (recording::UNBLOCKED | recording::TIMED_OUT, _) => {
                self.ends_block(time);
                if matches!(self.doing, Doing::Blocked { .. }) {
                    self.doing = Doing::Works;
                }
            }
            (recording::WAKES | recording::WAKES_ALL, _) => {
                let woken = self.wakers.wakes.get(&(self.index, at));
                self.steps.extend(woken.into_iter().flatten().map(|thread| Step::Wake(*thread)));
            }
            _ => {}
        }
        self.last = Some(time);
        if self.held.is_empty() && self.doing == Doing::Works {
            if self.began.is_none() {
                // What it did before cannot be repeated: it may have held something.
                self.began = Some(time);
                self.steps.clear();
                self.blocked_ns = 0;
                self.sums.iter_mut().for_each(|sum| *sum = Rates::default());
            }
            self.whole = Some((self.steps.len(), time, self.sums.clone(), self.blocked_ns));
        }
    }

    /// Time passes up to an event of this sort.
    fn passes(&mut self, time: u64, what: u8) {
        let Some(last) = self.last else { return };
        if self.doing != Doing::Works {
            return;
        }
        let overhead = match what {
            recording::RELEASED => self.overhead.inside_ns,
            _ => self.overhead.outside_ns,
        };
        let gap = time.saturating_sub(last);
        self.assumed_ns += gap;
        self.works(gap.saturating_sub(overhead));
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
            self.works(gap);
        } else {
            self.works(had.min(gap));
            if switches != switches_before {
                let blocked = gap.saturating_sub(had);
                self.steps.push(Step::Block(blocked * NANOSECOND));
                self.blocked_ns += blocked;
            }
        }
        self.last = Some(time);
    }

    /// The thread goes on, if it was blocked.
    fn ends_block(&mut self, time: u64) {
        let Doing::Blocked { since, awaits } = self.doing else { return };
        if awaits {
            self.steps.push(Step::Await);
        } else {
            let blocked = time.saturating_sub(since);
            self.steps.push(Step::Block(blocked * NANOSECOND));
            self.blocked_ns += blocked;
        }
        self.doing = Doing::Works;
    }

    /// The part that can be repeated: it begins and ends where nothing is held.
    fn finish(mut self) -> Life {
        let none = Life { steps: Vec::new(), span: 0, sums: Vec::new(), blocked: 0 };
        let (Some(began), Some((steps, ended, sums, blocked_ns))) = (self.began, self.whole) else {
            return none;
        };
        self.steps.truncate(steps);
        let span = ended.saturating_sub(began) * NANOSECOND;
        if self.steps.is_empty() || span == 0 {
            return none;
        }
        Life { steps: self.steps, span, sums, blocked: blocked_ns * NANOSECOND }
    }
}
