//! From samples and the kernel's sums to where the time of threads went.
//!
//! The kernel tells exactly how long a thread ran and how long it was ready without a CPU. The rest of its
//! life it slept, and what for is what samples tell: of threads of one name, each reason gets the share of
//! the time asleep that it has of the samples, each sample counting for the time since the last one of that
//! thread. Idle threads are told apart first, thread by thread and second by second: see [`Window::is_idle`].

use std::collections::{BTreeMap, HashMap};

use poundlock_statfile::LockKind;

use super::outcome::{Estimate, Purpose, Sleep, Times, placed};
use super::sleeps::{At, NO_PLACE, PlaceId, Waker};
use crate::observe::proc::Sums;

/// A window closes after this time,
const WINDOW_NS: u64 = 1_000_000_000;
/// and with as many samples.
const WINDOW_SAMPLES: u64 = 8;
/// Whoever sleeps for less than this on average, until others of the program end it through a descriptor, may
/// be blocked as well as idle: nothing tells which. A pool without work sleeps longer; or it looks around
/// from time to time, by a time limit.
const SHORT_NS: u64 = 500_000_000;
const SHORT_LIMIT_NS: u64 = 50_000_000;
/// Sums of a thread that is ready and has not moved for this long are those of one without a CPU: they are
/// brought up to date at each tick, which is 10 ms or less.
pub(super) const STILL_NS: u64 = 20_000_000;

/// One look at one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    /// What it slept for; `None` if it was on a CPU or ready for one.
    pub(super) asleep: Option<Sleep>,
    /// Where, if that is known, and who can end it.
    pub(super) at: At,
    /// Whether the file showed it in a wait for a lock.
    pub(super) waits: bool,
}

impl Sample {
    /// Of a thread that the file shows in a wait for something of that kind.
    pub(super) fn new(asleep: Option<Sleep>, at: At, wait: Option<LockKind>) -> Sample {
        // Woken up, and without a CPU yet, a thread may be in a wait for a condition, which is no lock.
        Sample { asleep, at, waits: wait.is_some_and(LockKind::is_acquired) }
    }
}

/// A sort of sleep.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Reason {
    pub(super) what: Sleep,
    pub(super) at: At,
}

impl Reason {
    /// Whether it waits until somebody wants something, or until a time.
    fn is_for_events(&self) -> bool {
        self.what.is_for_events() || self.what.is_input(self.at.waker)
    }

    /// Whether the program's own threads end it, through an eventfd or a pipe, or by signals.
    fn is_of_program(&self) -> bool {
        let is_child = matches!(&self.what, Sleep::Call(name) if name.starts_with("wait"));
        matches!(self.at.waker, Waker::Program | Waker::Signals) && self.what.is_for_events() && !is_child
    }
}

/// Samples of one sort: the time they stand for, and their number.
type Weights = HashMap<Reason, Estimate>;

/// What is known of a thread, or of several, over some time.
#[derive(Debug, Clone, Default)]
struct Part {
    lived: u64,
    run: u64,
    /// `None` once one of them was without.
    delay: Option<u64>,
    /// How often it got a CPU.
    arrivals: u64,
    asleep: Weights,
    awake: Estimate,
    awake_in_wait: Estimate,
}

impl Part {
    fn new() -> Part {
        Part { delay: Some(0), ..Part::default() }
    }

    fn blocked(&self) -> u64 {
        self.lived.saturating_sub(self.run).saturating_sub(self.delay.unwrap_or(0))
    }

    fn add(&mut self, other: &Part) {
        self.lived += other.lived;
        self.run += other.run;
        self.arrivals += other.arrivals;
        self.delay = self.delay.zip(other.delay).map(|(a, b)| a + b);
        self.awake.add(other.awake.ns, other.awake.samples);
        self.awake_in_wait.add(other.awake_in_wait.ns, other.awake_in_wait.samples);
        for (what, weight) in &other.asleep {
            self.asleep.entry(what.clone()).or_default().add(weight.ns, weight.samples);
        }
    }

    /// The time asleep, shared out by samples. What is left over is without any.
    fn share_out(&self) -> (BTreeMap<Reason, Estimate>, u64) {
        let blocked = self.blocked();
        let all: u128 = self.asleep.values().map(|weight| u128::from(weight.ns)).sum();
        if all == 0 {
            return (BTreeMap::new(), blocked);
        }
        let share = |ns: u64| (u128::from(ns) * u128::from(blocked) / all) as u64;
        let shares = self
            .asleep
            .iter()
            .map(|(what, weight)| (what.clone(), Estimate { ns: share(weight.ns), samples: weight.samples }));
        let is_known = |reason: &Reason| reason.at.place != NO_PLACE;
        let shares = placed(shares.collect(), is_known, |a, b| a.what == b.what);
        let given: u64 = shares.values().map(|share| share.ns).sum();
        (shares, blocked - given)
    }
}

/// One thread since its last window closed.
#[derive(Debug, Clone)]
struct Window(Part);

impl Window {
    /// Whether the thread had nothing to do: nine tenths of the time asleep, and nine tenths of the samples
    /// of that in what threads without work sleep in; and it waited for no lock. Short sleeps that others of
    /// the program end through a descriptor are no sign of that.
    fn is_idle(&self) -> bool {
        let part = &self.0;
        let blocked = part.blocked();
        let samples: u64 = part.asleep.values().map(|weight| weight.ns).sum();
        let is_short = |reason: &Reason| {
            let short = if reason.at.has_limit { SHORT_LIMIT_NS } else { SHORT_NS };
            blocked < short.saturating_mul(part.arrivals)
        };
        let is_idling = |reason: &Reason| {
            (reason.what.is_idling() || reason.is_for_events())
                && !(reason.is_of_program() && is_short(reason))
        };
        let idling = part.asleep.iter().filter(|(reason, _)| is_idling(reason));
        let idling: u64 = idling.map(|(_, weight)| weight.ns).sum();
        samples > 0
            && blocked / 9 >= part.lived / 10
            && idling / 9 >= samples / 10
            && part.awake_in_wait.samples == 0
            && !part.asleep.keys().any(|reason| reason.what == Sleep::Lock)
    }
}

/// The life of one thread.
#[derive(Debug, Clone)]
pub(super) struct Life {
    /// Up to when its life is counted.
    last: u64,
    /// When it was last looked at.
    sampled: u64,
    sums: Sums,
    /// When `sums` last changed, or the thread last slept.
    moved: u64,
    /// The time ready that the kernel has yet to count, counted by us.
    ahead: u64,
    window: Window,
}

impl Life {
    /// Of a thread first seen now. What it has run before counts as part of its life.
    pub(super) fn new(now: u64, sums: Sums) -> Life {
        let before = sums.run + sums.delay.unwrap_or(0);
        let part = Part { lived: before, run: sums.run, delay: sums.delay, ..Part::new() };
        Life { last: now, sampled: now, sums, moved: now, ahead: 0, window: Window(part) }
    }

    /// What came before is forgotten.
    pub(super) fn begin_anew(&mut self, now: u64) {
        *self = Life { last: now, sampled: now, ahead: 0, window: Window(Part::new()), ..self.clone() };
    }

    /// Brings its sums up to date.
    pub(super) fn advance(&mut self, now: u64, sums: Sums) {
        let part = &mut self.window.0;
        part.lived += now.saturating_sub(self.last);
        self.last = now;
        if sums == self.sums {
            return;
        }
        let delay = sums.delay.zip(self.sums.delay).map(|(now, before)| {
            let counted = now.saturating_sub(before);
            let known = counted.min(self.ahead);
            self.ahead -= known;
            counted - known
        });
        part.run += sums.run.saturating_sub(self.sums.run);
        part.arrivals += sums.arrivals.saturating_sub(self.sums.arrivals);
        part.delay = part.delay.zip(delay).map(|(sum, more)| sum + more);
        // What was counted ahead of one that got a CPU since is settled.
        if sums.arrivals != self.sums.arrivals {
            self.ahead = 0;
        }
        (self.sums, self.moved) = (sums, now);
    }

    /// Takes a sample in. A full window goes to `group`.
    pub(super) fn add(&mut self, now: u64, sums: Sums, sample: Sample, group: &mut Tally) {
        let passed = now.saturating_sub(self.sampled);
        self.sampled = now;
        self.advance(now, sums);
        let part = &mut self.window.0;
        let still = now.saturating_sub(self.moved);
        if sample.asleep.is_none() && sums.delay.is_some() && still >= STILL_NS {
            let more = still.saturating_sub(self.ahead);
            self.ahead = still;
            part.delay = part.delay.map(|sum| sum + more);
        }
        match sample.asleep {
            Some(what) => {
                self.moved = now;
                part.asleep.entry(Reason { what, at: sample.at }).or_default().add(passed.max(1), 1);
            }
            None => {
                part.awake.add(passed.max(1), 1);
                if sample.waits {
                    part.awake_in_wait.add(passed.max(1), 1);
                }
            }
        }
        let samples = part.awake.samples + part.asleep.values().map(|weight| weight.samples).sum::<u64>();
        if part.lived >= WINDOW_NS && samples >= WINDOW_SAMPLES {
            self.close(group);
        }
    }

    /// Closes the window, which goes to `group`: it is full, or the thread has ended.
    pub(super) fn close(&mut self, group: &mut Tally) {
        let window = std::mem::replace(&mut self.window, Window(Part::new()));
        group.add(&window);
    }

    /// What the window would add to its group.
    pub(super) fn peek(&self, group: &mut Tally) {
        group.add(&self.window);
    }
}

/// Threads of one name.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    active: Part,
    idle: BTreeMap<Reason, Estimate>,
    /// Lived, run and ready of windows that were idle.
    of_idle: Part,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally { active: Part::new(), idle: BTreeMap::new(), of_idle: Part::new() }
    }

    fn add(&mut self, window: &Window) {
        if !window.is_idle() {
            self.active.add(&window.0);
            return;
        }
        let (shares, rest) = window.0.share_out();
        for (what, share) in shares {
            self.idle.entry(what).or_default().add(share.ns, share.samples);
        }
        // The rest is what division leaves: nanoseconds.
        self.of_idle.add(&Part { asleep: Weights::new(), lived: window.0.lived - rest, ..window.0.clone() });
    }

    /// Adds what another one has.
    pub(super) fn merge(&mut self, other: &Tally) {
        self.active.add(&other.active);
        self.of_idle.add(&other.of_idle);
        for (what, estimate) in &other.idle {
            self.idle.entry(what.clone()).or_default().add(estimate.ns, estimate.samples);
        }
    }

    /// Where the time went, and what for; `is_nested` says which places are in the midst of work.
    pub(super) fn times(
        &self,
        is_nested: impl Fn(PlaceId) -> bool,
    ) -> (Times, Vec<(Reason, Purpose, Estimate)>) {
        let (shares, unknown_ns) = self.active.share_out();
        let (mut asleep, mut idle) = (BTreeMap::<Sleep, Estimate>::new(), BTreeMap::<Sleep, Estimate>::new());
        let mut for_events_ns = 0;
        let mut sums = Vec::new();
        for (reason, share) in shares {
            let events = reason.is_for_events() && !reason.is_of_program() && !is_nested(reason.at.place);
            asleep.entry(reason.what.clone()).or_default().add(share.ns, share.samples);
            for_events_ns += if events { share.ns } else { 0 };
            sums.push((reason, if events { Purpose::Events } else { Purpose::Blocked }, share));
        }
        for (reason, share) in &self.idle {
            let nested = is_nested(reason.at.place);
            let to = if nested { &mut asleep } else { &mut idle };
            to.entry(reason.what.clone()).or_default().add(share.ns, share.samples);
            sums.push((reason.clone(), if nested { Purpose::Blocked } else { Purpose::Idle }, *share));
        }
        let mut awake = self.active.clone();
        awake.add(&self.of_idle);
        let on_cpu_or_ready = awake.run + awake.delay.unwrap_or(0);
        let spinning = u128::from(on_cpu_or_ready) * u128::from(awake.awake_in_wait.ns)
            / u128::from(awake.awake.ns.max(1));
        let times = Times {
            lived_ns: awake.lived,
            running_ns: awake.run,
            spinning: Estimate { ns: spinning as u64, samples: awake.awake_in_wait.samples },
            ready_ns: awake.delay,
            asleep,
            idle,
            for_events_ns,
            unknown_ns,
        };
        (times, sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn awake(waits: bool) -> Sample {
        Sample { asleep: None, at: At::default(), waits }
    }

    fn asleep(what: Sleep) -> Sample {
        Sample { asleep: Some(what), ..awake(false) }
    }

    /// A life of 200 samples, 10 ms apart, each with what the thread ran meanwhile.
    fn life(of: impl Fn(u64) -> (Sample, u64)) -> Times {
        let mut tally = Tally::new();
        let mut sums = Sums { run: 0, delay: Some(0), arrivals: 1 };
        let mut life = Life::new(0, sums);
        for n in 1..=200 {
            let (sample, ran) = of(n);
            sums.run += ran;
            life.add(n * 10 * MS, sums, sample, &mut tally);
        }
        life.close(&mut tally);
        tally.times(|_| false).0
    }

    #[test]
    fn a_thread_that_only_waits_for_work_is_idle() {
        let times = life(|_| (asleep(Sleep::Condition), MS / 10));
        assert_eq!((times.lived_ns, times.running_ns), (2000 * MS, 20 * MS));
        assert_eq!((times.idle_ns(), times.unknown_ns), (1980 * MS, 0));
        assert_eq!(times.asleep(&Sleep::Condition), Estimate::default());
        assert_eq!(times.busy_ns(), 20 * MS);
    }

    #[test]
    fn what_one_thread_did_is_added_to_what_others_of_its_name_did() {
        let mut sums = Sums { run: 0, delay: Some(0), arrivals: 1 };
        let mut group = Tally::new();
        for what in [Sleep::Condition, Sleep::Lock] {
            let (mut life, mut tally) = (Life::new(0, sums), Tally::new());
            for n in 1..=200 {
                sums.run += MS / 10;
                life.add(n * 10 * MS, sums, asleep(what.clone()), &mut tally);
            }
            life.close(&mut tally);
            group.merge(&tally);
        }
        let times = group.times(|_| false).0;
        assert_eq!(times.lived_ns, 4000 * MS + 20 * MS);
        assert!(times.idle_ns() > 0 && times.asleep(&Sleep::Lock).ns > 0, "{times:?}");
    }

    #[test]
    fn one_that_waits_for_a_lock_is_not() {
        let times = life(|n| (asleep(if n % 10 == 0 { Sleep::Lock } else { Sleep::Condition }), 0));
        assert_eq!(times.idle_ns(), 0);
        assert_eq!(times.asleep(&Sleep::Lock), Estimate { ns: 200 * MS, samples: 20 });
        assert_eq!(times.busy_ns(), 2000 * MS);
    }

    #[test]
    fn one_that_was_woken_for_a_condition_and_has_no_cpu_yet_waits_for_no_lock() {
        for (wait, ns) in [(LockKind::Condition, 0), (LockKind::Semaphore, 0), (LockKind::Mutex, 2000 * MS)] {
            let times = life(|_| (Sample::new(None, At::default(), Some(wait)), 10 * MS));
            assert_eq!(times.locks().ns, ns, "{wait}");
        }
    }

    #[test]
    fn time_asleep_is_what_the_kernel_leaves_and_is_shared_out_by_samples() {
        let read = || Sleep::Call("read".to_string());
        // Half of the time on a CPU: seen there half of the time.
        let times = life(|n| match n % 4 {
            0 | 1 => (awake(n % 4 == 0), 10 * MS),
            2 => (asleep(read()), 0),
            _ => (asleep(Sleep::Lock), 0),
        });
        assert_eq!((times.lived_ns, times.running_ns, times.unknown_ns), (2000 * MS, 1000 * MS, 0));
        assert_eq!(times.asleep(&read()).ns, 500 * MS);
        assert_eq!(times.asleep(&Sleep::Lock).ns, 500 * MS);
        assert_eq!(times.spinning, Estimate { ns: 500 * MS, samples: 50 });
        assert_eq!(times.locks().ns, 1000 * MS);
    }

    #[test]
    fn ready_for_long_without_a_cpu_is_counted_before_the_kernel_does_and_not_twice() {
        let mut tally = Tally::new();
        let before = Sums { run: 0, delay: Some(0), arrivals: 1 };
        let mut life = Life::new(0, before);
        life.add(10 * MS, before, awake(false), &mut tally);
        life.add(40 * MS, before, awake(false), &mut tally);
        let mut so_far = tally.clone();
        life.peek(&mut so_far);
        assert_eq!(so_far.times(|_| false).0.ready_ns, Some(40 * MS));
        let after = Sums { run: 10 * MS, delay: Some(50 * MS), arrivals: 2 };
        life.add(60 * MS, after, awake(false), &mut tally);
        life.close(&mut tally);
        let times = tally.times(|_| false).0;
        assert_eq!((times.running_ns, times.ready_ns, times.unknown_ns), (10 * MS, Some(50 * MS), 0));
    }

    #[test]
    fn a_long_sleep_before_it_is_not_counted_as_ready() {
        let mut tally = Tally::new();
        let sums = Sums { run: 0, delay: Some(0), arrivals: 1 };
        let mut life = Life::new(0, sums);
        life.add(500 * MS, sums, asleep(Sleep::Lock), &mut tally);
        life.add(510 * MS, sums, awake(true), &mut tally);
        life.close(&mut tally);
        let times = tally.times(|_| false).0;
        assert_eq!((times.ready_ns, times.asleep(&Sleep::Lock).ns), (Some(0), 510 * MS));
    }

    /// Of a thread that wakes up as often, and sleeps else in `epoll_wait`: which part of the time it was
    /// idle.
    fn idle_in_epoll(waker: Waker, place: PlaceId, every: u64) -> Times {
        let mut tally = Tally::new();
        let mut sums = Sums { run: 0, delay: Some(0), arrivals: 1 };
        let mut life = Life::new(0, sums);
        for n in 1..=200 {
            sums.arrivals += u64::from(n % every == 0);
            let at = At { place, waker, has_limit: false };
            let what = Some(Sleep::Call("epoll_wait".to_owned()));
            life.add(n * 10 * MS, sums, Sample { asleep: what, at, waits: false }, &mut tally);
        }
        life.close(&mut tally);
        // The second place is in the midst of work.
        tally.times(|place| place == 2).0
    }

    #[test]
    fn sleeps_that_the_program_ends_often_are_no_idleness_and_sleeps_within_work_never_are() {
        let idle = |waker, place, every| idle_in_epoll(waker, place, every).idle_ns() == 2000 * MS;
        assert!(idle(Waker::Others, 1, 2) && idle(Waker::Unknown, 1, 2));
        assert!(!idle(Waker::Program, 1, 2) && !idle(Waker::Signals, 1, 2));
        // A pool that has work once in a second.
        assert!(idle(Waker::Program, 1, 100));
        for waker in [Waker::Others, Waker::Program] {
            let times = idle_in_epoll(waker, 2, 100);
            assert_eq!((times.idle_ns(), times.for_events_ns, times.busy_ns()), (0, 0, 2000 * MS));
        }
    }

    #[test]
    fn samples_without_a_place_are_of_the_places_that_are_known() {
        let sleep = |place| Sample { at: At { place, ..At::default() }, ..asleep(Sleep::OutsideCalls) };
        let mut tally = Tally::new();
        let sums = Sums { run: 0, delay: Some(0), arrivals: 1 };
        let mut life = Life::new(0, sums);
        for n in 1..=100 {
            life.add(
                n * 10 * MS,
                sums,
                sleep(if n % 4 == 0 { NO_PLACE } else { 1 + (n % 4 == 1) as u32 }),
                &mut tally,
            );
        }
        life.close(&mut tally);
        let (_, sums) = tally.times(|_| false);
        let found: Vec<_> = sums.iter().map(|(reason, _, sum)| (reason.at.place, sum.ns / MS)).collect();
        assert_eq!(found, [(1, 666), (2, 333)], "{sums:#?}");
    }

    #[test]
    fn without_the_kernels_sum_of_readiness_there_is_none() {
        let mut tally = Tally::new();
        let sums = Sums { run: MS, delay: None, arrivals: 0 };
        let mut life = Life::new(0, sums);
        life.add(10 * MS, sums, asleep(Sleep::Join), &mut tally);
        life.close(&mut tally);
        assert_eq!(tally.times(|_| false).0.ready_ns, None);
    }
}
