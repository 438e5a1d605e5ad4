//! The barging mutex: whoever finds it free takes it, one waiter is awake, the others sleep.
//!
//! The lock of `poundlock` programs where nothing else is asked for. A test-and-set takes it, so a thread that runs never waits
//! for one that does not; a queue of spinners and a list of sleepers stand behind it. The ideas are those of Waiman Long's adaptive mutex
//! ([`crate::mutex`]), of Dice's "Malthusian locks" (EuroSys 2017: no more threads awake than keep the lock busy), and of the
//! designated waker of Mesa's and Abseil's mutexes (one woken thread at a time).
//!
//! # The words
//!
//! `state`:
//!
//! | bit | meaning | set by | cleared by |
//! | --- | --- | --- | --- |
//! | `LOCKED` | held | whoever takes it | the owner |
//! | `AWAKE` | a waiter is awake and will try: an unlock need not wake one | that waiter; the unlocker that wakes it | that waiter, as it acquires, sleeps or gives up |
//! | `SLEEPERS` | the list of sleepers is not empty | whoever adds to it | whoever takes the last one out |
//! | the rest | how often the first sleeper was passed over since one was last taken out | releases; waiters that acquire or go to sleep | whoever takes one out |
//!
//! The highest bit of the rest is `OVERDUE`: the next unlock sees to the first sleeper, whoever is awake.
//!
//! `guard` is as in [`crate::mutex`]: the wait lock, `STABLE`, `ASKED` and the epoch; and so are releases by a plain store, until
//! somebody sleeps. `tail` is the queue of spinners ([`crate::mcs`]), `head` the list of sleepers.
//!
//! `owner` holds hints for waiters, and is written by owners only: where the owner was last seen to run, how many have owned the
//! mutex so far (by which a spinner sees that others get it all the time), and what the last spinners and nappers learnt (below).
//!
//! # Waiting
//!
//! A newcomer spins, in the queue; its head alone watches the mutex. Who has spun for about what a sleep and a wake-up cost, or is known
//! to have displaced the owner, gives up its CPU once to whoever wants it, since that may be the owner, and then sleeps. An unlock wakes
//! the first sleeper if nobody is awake. It is out of the list then; if it goes to sleep again, it is the first again.
//!
//! *Patience.* Where an owner takes the mutex again at once, the worst a waiter can do is to take it away at the first opportunity: then
//! it changes hands, with all that its sections touch, every few nanoseconds. So a spinner looks only now and then, and the
//! more rarely the more often the mutex was taken between two looks; where it was not taken at all, more often. What it
//! learns is left in `owner` for the next one. An interval is a few microseconds at most, so that is what this costs in latency.
//!
//! *Naps.* What spinning gains is the time in which the mutex would lie free. Where that is little, the believer leaves the owner alone: it
//! sleeps for some tens of microseconds, looks whether the mutex is free, and if it is not asks to be handed it. What naps find is left in
//! `owner`, too; now and then a spell without spinners tries how it is.
//!
//! *Stints.* A thread that has used the mutex for half a millisecond while others slept for it wakes one of them, whoever is awake, and goes
//! to sleep as soon as it meets with contention. So everybody has a turn every so often; and few are preempted in
//! the middle of one, since a thread that sleeps most of the time is not the one that the scheduler takes the CPU from.
//!
//! # Invariants
//!
//! * **EXCLUSION.** Only a read-modify-write that finds `LOCKED` clear and sets it acquires the mutex, except that an unlocker may leave it
//!   set and make the first sleeper the owner ([`state::HANDED`]). Only the owner clears it.
//! * **QUIET.** The list is changed only while `STABLE` is set.
//! * **BELIEF.** If `AWAKE` is set, some thread believes that it is the one: it set the bit, or the bit was set for it as it was woken.
//!   Every believer clears the bit when it acquires, and in the read-modify-write by which it goes to sleep or gives up, which
//!   finds the mutex held. There may be several: a sleeper that is overdue, or relieves the owner, is woken beside a spinner, and a plain
//!   release wipes the bit. Then one may clear it for another, which costs a wake-up in vain.
//! * **DUTY.** If the list is not empty and the mutex is free, somebody believes. For every release is a compare-and-swap from a
//!   state in which `SLEEPERS` is clear or `AWAKE` is set; whoever sets `SLEEPERS` finds the mutex held; and a believer that
//!   finds it free acquires it. A believer that acquires is an owner, and its release is such a one.
//! * **LAST TOUCH.** As in [`crate::mutex`].
//! * **SERVICE.** Let *H* be [`Tuning::handoff_after`](crate::platform::Tuning::handoff_after), *R* two to
//!   the power of [`Tuning::releases_before_wake`](crate::platform::Tuning::releases_before_wake), and *n*
//!   the number of threads. In one wait a thread enters the list at most *H* + 1 times, and while it is in
//!   the list others acquire the mutex at most (*H* + 1) ((*n* - 1) (*H* + 1) + 1) (*R* + 2) times in all.
//!   The proof is numbered, and the code names its steps.
//!   1. *Take-outs come often.* While the list is not empty every release counts, and after *R* of them the
//!      state is `OVERDUE`: then the next unlock takes out the first sleeper, and only that clears the count.
//!      (A release by a plain store comes before the first sleep; one of a single thread finds no sleepers.)
//!   2. *A wait has at most H + 1 of them.* Whoever is taken out and woken counts it, and the take-out after
//!      *H* of those is a hand-over.
//!   3. *Nobody overtakes in the list.* Only the first is taken out. Newcomers go to the end, and have no
//!      claim to a hand-over if somebody is there before them. Only a thread that was taken out goes to the
//!      front. So before a thread that is in the list come those that were there when it entered and those
//!      that were taken out by then: at most *n* - 1 waits, of at most *H* + 1 take-outs each.
//!
//!   While it is not in the list a waiter is awake, and takes a bounded number of steps of its own: a spin
//!   budget, one yield, a nap.
//!
//!   This is of threads of one priority. Real-time threads come before all that are less urgent, whatever
//!   those have waited; end and front are those of the part of the list that is as urgent.
//! * **PRIORITY.** As in [`crate::mutex`]. A real-time thread that comes into the list makes the state
//!   `OVERDUE`, so it does not wait for somebody less urgent who is awake.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::bitlock;
use crate::events::{Event, count};
use crate::mcs;
use crate::mutex::Failure;
use crate::node::{Held, NodeId, list, state};
use crate::platform::{Atomic, ConstAtomic, Deadline, Platform, Running, Spin, Waited};

/// In `state`: held.
const LOCKED: u32 = 1;
/// In `state`: a waiter is awake.
const AWAKE: u32 = 2;
/// In `state`: the list of sleepers is not empty.
const SLEEPERS: u32 = 4;
/// In `state`: the first sleeper has been passed over often enough.
const OVERDUE: u32 = 1 << 31;
/// In `state`: the count of passes begins here.
const PASSES: u32 = !(LOCKED | AWAKE | SLEEPERS);

/// In `guard`: threads may sleep here.
const STABLE: u32 = 1 << 29;
/// In `guard`: a thread is about to sleep here for the first time.
const ASKED: u32 = 1 << 28;

/// In `owner`: the owner's tag; 0 while there is none, or if it needs more bits.
const TAG: u32 = 0x0fff;
/// In `owner`: handed to a sleeper that has not woken yet.
const HANDED_OVER: u32 = TAG;
/// In `owner`: one more has owned the mutex.
const TURN: u32 = 1 << 12;
/// In `owner`: the count of owners.
const TURNS: u32 = 0x0fff << 12;
/// In `owner`: the logarithm of the interval between a spinner's looks, in turns of its loop.
const INTERVAL: u32 = 0x0f << 24;
/// In `owner`: what naps have found, see [`Gaps`]. With its highest bit inverted, so that zero is in the middle.
const GAPS: u32 = 0x0f << 28;

/// An interval in which the mutex was taken so often is too short.
const HOT: u32 = 2;
/// If the longest interval is still that much too short, the one that takes it needs nobody's help to keep it busy.
const SATURATED: u32 = 32;
/// The share of its budget that is left to a spinner if others hold the mutex nearly all the time, in 256ths.
const SHORT: u32 = 64;

/// The mutex: 20 bytes, zero when unlocked. An unlocked one may be moved, copied and freed.
///
/// No method allocates, panics or unwinds; none is async-signal-safe with respect to the same mutex, all are with respect to others.
#[repr(C)]
pub struct RawBarging<P: Platform> {
    state: P::U32,
    guard: P::U32,
    owner: P::U32,
    tail: P::U32,
    head: P::U32,
}

impl<P: Platform> Default for RawBarging<P> {
    fn default() -> Self {
        let zero = || P::U32::new(0);
        RawBarging { state: zero(), guard: zero(), owner: zero(), tail: zero(), head: zero() }
    }
}

impl<P: Platform> RawBarging<P>
where
    P::U32: ConstAtomic,
{
    /// An unlocked mutex.
    pub const fn new() -> Self {
        RawBarging {
            state: P::U32::ZERO,
            guard: P::U32::ZERO,
            owner: P::U32::ZERO,
            tail: P::U32::ZERO,
            head: P::U32::ZERO,
        }
    }
}

/// How the head of the queue fared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It acquired the mutex.
    Acquired,
    /// The owner may need the CPU, or nothing is known of it.
    Stuck,
    /// Others take the mutex all the time, and it is hardly ever free.
    Busy,
}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dozed {
    /// An unlocker took the sleeper out of the list.
    Served,
    /// It acquired the mutex itself.
    Acquired,
    /// It is to give up, unless it was served meanwhile.
    Failed(Failure),
}

/// How much of the time the mutex is free while somebody uses it who is left alone, from 0, hardly ever. That time is what
/// spinning for it gains.
#[derive(Clone, Copy)]
struct Gaps(u32);

impl Gaps {
    fn of(owner: u32) -> Gaps {
        Gaps(owner >> GAPS.trailing_zeros() ^ 8)
    }

    fn within(self, owner: u32) -> u32 {
        owner & !GAPS | (self.0 ^ 8) << GAPS.trailing_zeros()
    }

    /// For a trial: the next to find it free puts an end to it.
    const DOUBTED: Gaps = Gaps(6);
    /// Nothing was tried yet: what zero stands for.
    const UNKNOWN: u32 = 8;
    const KNOWN: Gaps = Gaps(15);

    /// What somebody found who came at no particular time. They balance where it was free in one of six.
    fn learn(self, free: bool) -> Gaps {
        if !free {
            return Gaps(self.0.saturating_sub(1));
        }
        let more = Gaps(self.0 + 5);
        if more.are_rare() { more } else { Gaps::KNOWN }
    }

    /// Whether it is better to leave the owner alone.
    fn are_rare(self) -> bool {
        self.0 <= Gaps::DOUBTED.0
    }

    /// How many more looks in vain it takes to doubt it.
    fn patience(self) -> u32 {
        2 * self.0.saturating_sub(Gaps::UNKNOWN)
    }

    /// How long a stint is, if there are any: longer where the mutex may be one that nobody spins for, since then it gets about
    /// by itself, and wake-ups leave gaps that are not its own.
    fn stint<P: Platform>(self) -> Option<usize> {
        (!self.are_rare()).then(|| P::tuning().stint.saturating_mul(1 << (Gaps::KNOWN.0 - self.0)))
    }

    /// How many waits of so many turns there are for one that is followed by a trial.
    fn waits_a_trial<P: Platform>(self, spun: u32) -> u32 {
        let waits = P::tuning().waits_a_trial;
        match (self.0 <= Gaps::UNKNOWN, spun < 8 * P::tuning().spun_before_trial) {
            (true, _) => waits,
            (false, true) => 32 * waits,
            (false, false) => 8 * waits,
        }
    }
}

/// What may end a wait early.
#[derive(Clone, Copy, Default)]
struct Patience<'a> {
    deadline: Option<&'a Deadline>,
    interruptible: bool,
}

impl Patience<'_> {
    fn is_endless(self) -> bool {
        self.deadline.is_none() && !self.interruptible
    }
}

impl<P: Platform> RawBarging<P> {
    /// Acquires the mutex, waiting as long as it takes. What the last owner did happens before the return.
    /// A thread that holds it already waits for ever.
    #[inline]
    pub fn lock(&self) {
        if !self.take() {
            // Without patience it cannot fail.
            let _ = self.lock_slow(Patience::default());
        }
    }

    /// As [`RawBarging::lock`], but gives up once `deadline` has passed. A free mutex is acquired whatever the deadline.
    ///
    /// # Errors
    /// [`Failure::TimedOut`]; the mutex is not held.
    #[inline]
    pub fn lock_until(&self, deadline: &Deadline) -> Result<(), Failure> {
        if self.take() {
            return Ok(());
        }
        self.lock_slow(Patience { deadline: Some(deadline), interruptible: false })
    }

    /// As [`RawBarging::lock`], but gives up when a signal handler has interrupted the sleep. A handler that runs before the
    /// thread sleeps, or one that restarts system calls, does not end the wait.
    ///
    /// # Errors
    /// [`Failure::Interrupted`]; the mutex is not held.
    #[inline]
    pub fn lock_interruptible(&self) -> Result<(), Failure> {
        if self.take() {
            return Ok(());
        }
        self.lock_slow(Patience { deadline: None, interruptible: true })
    }

    /// Acquires the mutex if it is free; false if it is held. Synchronises as [`RawBarging::lock`] when true.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.state.load(Relaxed) & LOCKED == 0 && self.take()
    }

    /// Releases the mutex, which the caller holds. What the caller did happens before the next acquisition. The mutex
    /// may be destroyed and freed by another thread as soon as it can acquire it. Releasing a mutex that is free does nothing.
    #[inline]
    pub fn unlock(&self) {
        if P::single_threaded() && self.state.load(Relaxed) == LOCKED {
            self.state.store(0, Relaxed);
            return;
        }
        let owner = self.owner.load(Relaxed);
        self.owner.store(owner & !TAG, Relaxed);
        if P::release(&self.state, &self.guard) {
            return;
        }
        if self.is_relieved(owner) || !self.release() {
            self.unlock_slow();
        }
    }

    /// Whether somebody holds the mutex at this moment.
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & LOCKED != 0
    }

    /// Whether nobody holds it and nobody is queued or asleep in it.
    pub fn is_idle(&self) -> bool {
        self.state.load(Acquire) & (LOCKED | AWAKE | SLEEPERS) == 0
            && self.guard.load(Acquire) & (bitlock::BITS | bitlock::CLEARING) == 0
            && self.tail.load(Relaxed) == 0
            && self.head.load(Relaxed) == 0
    }

    #[inline(always)]
    fn take(&self) -> bool {
        if P::single_threaded() && self.state.load(Relaxed) == 0 {
            // No other thread: neither atomicity nor hints for spinners are needed.
            self.state.store(LOCKED, Relaxed);
            return true;
        }
        // EXCLUSION. Acquire: partner of every release.
        if self.state.fetch_or(LOCKED, Acquire) & LOCKED == 0 {
            self.publish();
            return true;
        }
        false
    }

    /// The new owner leaves its hints.
    #[inline(always)]
    fn publish(&self) {
        let old = self.owner.load(Relaxed);
        let turns = old.wrapping_add(TURN) & TURNS;
        let tag = P::tag();
        self.owner.store(old & !(TURNS | TAG) | turns | if tag < TAG { tag } else { 0 }, Relaxed);
    }

    /// DUTY: releases the mutex unless there is a sleeper to see to. LAST TOUCH, if it succeeds.
    #[inline(always)]
    fn release(&self) -> bool {
        let mut seen = self.state.load(Relaxed);
        loop {
            if seen & OVERDUE != 0 || seen & (SLEEPERS | AWAKE) == SLEEPERS {
                return false;
            }
            let free = (seen & !LOCKED) + Self::released(seen);
            match self.state.compare_exchange(seen, free, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// SERVICE 1: what a release adds to the state if somebody sleeps. It finds `OVERDUE` clear, so nothing
    /// overflows.
    #[inline(always)]
    fn released(state: u32) -> u32 {
        const { assert!(SLEEPERS == 1 << 2) };
        (state & SLEEPERS) << (29 - P::tuning().releases_before_wake)
    }

    /// Whether the owner, which left these hints, has been at it for as long as it may, with others asleep. Asked now and then.
    #[inline(always)]
    fn is_relieved(&self, owner: u32) -> bool {
        owner & ((TURN << P::tuning().owners_a_stint_check) - TURN) == 0
            && self.state.load(Relaxed) & SLEEPERS != 0
            && Self::ends_stint(Gaps::of(owner))
    }

    #[cold]
    fn ends_stint(gaps: Gaps) -> bool {
        match (gaps.stint::<P>(), P::current()) {
            (Some(stint), Some(index)) => P::record(index).ends_stint(stint),
            _ => false,
        }
    }

    /// Changes the state of a mutex that the caller does not set free; returns what it was.
    fn change(&self, mut next: impl FnMut(u32) -> u32) -> u32 {
        let mut seen = self.state.load(Relaxed);
        // Acquire: for a change that takes the mutex. The others order nothing.
        while let Err(now) = self.state.compare_exchange(seen, next(seen), Acquire, Relaxed) {
            seen = now;
        }
        seen
    }

    /// Makes the slow path's words this process's own: see [`crate::mutex`].
    #[inline]
    fn renew(&self) {
        bitlock::renew::<P>(&self.guard, STABLE | ASKED, || {
            self.tail.store(0, Relaxed);
            self.head.store(0, Relaxed);
            // Whoever was awake or asleep is in the parent.
            self.state.fetch_and(LOCKED, Relaxed);
        });
    }

    /// QUIET: after this no plain release is under way, nor will one be.
    #[inline]
    fn quieten(&self) {
        // Acquire: whoever sees STABLE comes after the expulsion.
        if self.guard.load(Acquire) & STABLE == 0 {
            self.first_sleep();
        }
    }

    #[cold]
    fn first_sleep(&self) {
        // Sequentially consistent: before the expulsion, and before whatever the platform reads to learn
        // whether anybody releases that way at all.
        self.guard.fetch_or(ASKED, SeqCst);
        P::expel();
        self.guard.fetch_or(STABLE, SeqCst);
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, patience: Patience<'_>) -> Result<(), Failure> {
        count::<P>(Event::FoundHeld);
        self.renew();
        let Some(held) = Held::<P>::take() else {
            return self.lock_polling(patience.deadline);
        };
        let mut awake = false;
        held.node().attempts.store(0, Relaxed);
        // Stints: who was relieved makes room, if there is somebody to make room for.
        let relieved = held.record().is_relieved() && self.state.load(Relaxed) & (AWAKE | SLEEPERS) != 0;
        if !relieved && (self.glance() || self.spin(held.id, &mut awake, patience)) {
            count::<P>(Event::Spun);
            return Ok(());
        }
        held.record().rests();
        held.node().set_priority();
        self.quieten();
        bitlock::lock::<P>(&self.guard);
        self.sleep(held.id, true, awake, patience)
    }

    /// Without a node a thread can neither spin in the queue nor sleep in the list: it tries now and then.
    /// Only for a fifth nested wait, or when thread indices have run out.
    #[cold]
    fn lock_polling(&self, deadline: Option<&Deadline>) -> Result<(), Failure> {
        let mut round = 0;
        while !self.try_lock() {
            if deadline.is_some_and(P::expired) {
                return Err(Failure::TimedOut);
            }
            P::stall(round);
            round = round.saturating_add(1);
        }
        Ok(())
    }

    // Spinning.

    /// A newcomer's few looks, if nobody else waits: a short section is over by then, and to queue up costs more.
    fn glance(&self) -> bool {
        let mut budget = P::spin();
        for look in 0..P::tuning().glances {
            let mut nobody = false;
            if self.grab(&mut nobody) {
                return true;
            }
            let alone = self.state.load(Relaxed) & AWAKE == 0 && self.tail.load(Relaxed) == 0;
            if !alone || !self.owner_may_run() || !Self::pass(&mut budget, (look + 2).min(4)) {
                return false;
            }
        }
        false
    }

    /// Lets 2^`interval` turns of a spin loop pass; false if there were not so many left.
    fn pass(budget: &mut P::Spin, interval: u32) -> bool {
        budget.pass(1 << interval)
    }

    fn interval(&self) -> u32 {
        (self.owner.load(Relaxed) & INTERVAL) >> INTERVAL.trailing_zeros()
    }

    fn turns(&self) -> u32 {
        self.owner.load(Relaxed) & TURNS
    }

    fn gaps(&self) -> Gaps {
        Gaps::of(self.owner.load(Relaxed))
    }

    /// The new owner leaves what it found.
    fn learn(&self, free: bool) {
        self.leave(self.gaps().learn(free), self.interval());
    }

    fn leave(&self, gaps: Gaps, interval: u32) {
        let hints = self.owner.load(Relaxed) & !INTERVAL | interval << INTERVAL.trailing_zeros();
        self.owner.store(gaps.within(hints), Relaxed);
    }

    /// Spins for the mutex, and then naps, or gives way. True if it was acquired. `awake`: the caller believes (BELIEF).
    fn spin(&self, id: NodeId, awake: &mut bool, patience: Patience<'_>) -> bool {
        // Where one awake waiter is enough, and others were here before.
        let busy = LOCKED | SLEEPERS;
        if !*awake && self.gaps().are_rare() && self.state.load(Relaxed) & busy == busy {
            return false;
        }
        // Woken: it comes at no particular time.
        if *awake && self.gaps().are_rare() && self.grab(awake) {
            self.learn(true);
            return true;
        }
        let mut budget = P::spin();
        let mut end = End::Stuck;
        if self.owner_may_run() && mcs::join::<P>(&self.tail, id, &mut budget) {
            end = self.watch(awake);
            mcs::leave::<P>(&self.tail, id);
        }
        match end {
            End::Acquired => true,
            End::Stuck => self.give_way(awake),
            // Who is to come back at a given time sleeps until then and no longer.
            End::Busy => *awake && patience.is_endless() && self.nap(id, awake),
        }
    }

    /// Lets the owner have the CPU, or whoever was woken last. Once: where it is another program that wants it, that costs a time slice.
    fn give_way(&self, awake: &mut bool) -> bool {
        P::give_way();
        // Patience, here too: one look at an empty section that its owner repeats takes the mutex away from it.
        Self::pass(&mut P::spin(), self.interval());
        self.grab(awake)
    }

    /// Leaves the owner alone for a while; a believer all the same, so that nobody else is woken. Who then finds the mutex held asks to
    /// be handed it.
    fn nap(&self, id: NodeId, awake: &mut bool) -> bool {
        count::<P>(Event::TimedSleep);
        P::nap();
        if self.state.load(Relaxed) & LOCKED == 0 {
            let longest = P::tuning().longest_interval;
            let mut saturated = false;
            if self.interval() == longest {
                let before = self.turns();
                Self::pass(&mut P::spin(), longest);
                saturated = self.turns().wrapping_sub(before) & TURNS >= SATURATED * TURN;
            }
            if self.grab(awake) {
                self.learn(!saturated);
                return true;
            }
        }
        id.get::<P>().attempts.store(P::tuning().handoff_after, Relaxed);
        false
    }

    /// The head of the queue watches the mutex.
    fn watch(&self, awake: &mut bool) -> End {
        let longest = P::tuning().longest_interval;
        let gaps = self.gaps();
        let mut budget = P::spin();
        if gaps.are_rare() {
            budget.cut(SHORT);
        }
        let mut interval = self.interval();
        let mut turns = self.turns();
        let (mut spun, mut in_vain) = (0, 0);
        self.believe(awake);
        let end = loop {
            // Patience: not even the first look comes at once.
            if !Self::pass(&mut budget, interval) {
                break if gaps.are_rare() || in_vain > 0 { End::Busy } else { End::Stuck };
            }
            spun += 1 << interval;
            let now = self.turns();
            let taken = now.wrapping_sub(turns) & TURNS;
            turns = now;
            let saturated = interval == longest && taken >= SATURATED * TURN;
            if !saturated && self.grab(awake) {
                break End::Acquired;
            }
            if self.state.load(Relaxed) & LOCKED == 0 && !saturated {
                continue;
            }
            self.believe(awake);
            if !self.owner_may_run() {
                break End::Stuck;
            }
            if taken >= HOT * TURN {
                interval = (interval + 1).min(longest);
                in_vain += 1;
            } else if taken == 0 {
                interval = interval.saturating_sub(1);
            }
            if *awake && in_vain >= P::tuning().looks_in_vain + gaps.patience() {
                break End::Busy;
            }
        };
        if end == End::Acquired {
            let gaps = self.gaps();
            let trial = spun >= P::tuning().spun_before_trial
                && !gaps.are_rare()
                && (turns / TURN).is_multiple_of(gaps.waits_a_trial::<P>(spun));
            self.leave(if trial { Gaps::DOUBTED } else { gaps }, interval);
        }
        end
    }

    /// BELIEF: says that it is awake, if nobody else did. Only to an owner, who will see it.
    fn believe(&self, awake: &mut bool) {
        let seen = self.state.load(Relaxed);
        if !*awake && seen & (LOCKED | AWAKE) == LOCKED {
            *awake = self.state.compare_exchange(seen, seen | AWAKE, Relaxed, Relaxed).is_ok();
        }
    }

    /// One attempt of a waiter on a mutex that was seen free.
    fn grab(&self, awake: &mut bool) -> bool {
        let seen = self.state.load(Relaxed);
        if seen & LOCKED != 0 {
            return false;
        }
        let next = Self::passing(seen | LOCKED) & !if *awake { AWAKE } else { 0 };
        if self.state.compare_exchange(seen, next, Acquire, Relaxed).is_err() {
            return false;
        }
        *awake = false;
        self.publish();
        true
    }

    /// The state when a waiter has passed over the first sleeper, if there is one.
    fn passing(state: u32) -> u32 {
        if state & SLEEPERS == 0 || state & OVERDUE != 0 {
            return state;
        }
        // So many steps make `OVERDUE`, and none goes beyond. A quarter of what other locks allow: only waiters count here, and
        // they come more rarely than unlocks.
        state + ((OVERDUE / P::tuning().passes_before_wake.div_ceil(4)) & PASSES)
    }

    /// PRIORITY: what a sleeper adds to the state as it comes into the list.
    fn overdue(id: NodeId) -> u32 {
        if id.get::<P>().priority.load(Relaxed) == 0 { 0 } else { OVERDUE }
    }

    #[inline]
    fn owner_may_run(&self) -> bool {
        match self.owner.load(Relaxed) & TAG {
            0 => true,
            HANDED_OVER => false,
            tag => P::running(tag) != Running::No,
        }
    }

    // Sleeping.

    /// Waits in the list until the mutex is acquired or patience ends. The wait lock is held, and the node is in no list.
    /// `newcomer`: nor was it in this wait.
    fn sleep(
        &self,
        id: NodeId,
        mut newcomer: bool,
        mut awake: bool,
        patience: Patience<'_>,
    ) -> Result<(), Failure> {
        let node = id.get::<P>();
        let overdue = Self::overdue(id);
        let mut failed = None;
        loop {
            // DUTY: announces itself to an owner, or becomes one.
            let seen = self.change(|seen| {
                let rest = if awake { seen & !AWAKE } else { seen };
                match (seen & LOCKED, failed) {
                    (0, _) => rest | LOCKED,
                    (_, Some(_)) => rest,
                    _ => Self::passing(rest) | SLEEPERS | overdue,
                }
            });
            if seen & LOCKED == 0 {
                bitlock::unlock::<P>(&self.guard);
                self.publish();
                return Ok(());
            }
            if let Some(failure) = failed {
                bitlock::unlock::<P>(&self.guard);
                return Err(failure);
            }
            // SERVICE 3: it may have napped in vain, but others were here before.
            if core::mem::take(&mut newcomer) && list::first::<P>(&self.head).is_some() {
                node.attempts.store(0, Relaxed);
            }
            if node.attempts.load(Relaxed) == 0 {
                list::push::<P>(&self.head, id);
            } else {
                // It was woken in vain, and keeps its turn.
                list::push_first::<P>(&self.head, id);
            }
            node.state.store(state::SLEEPING, Relaxed);
            bitlock::unlock::<P>(&self.guard);
            count::<P>(Event::Sleep);
            failed = match self.doze(id, patience) {
                Dozed::Served => None,
                Dozed::Acquired => return Ok(()),
                Dozed::Failed(failure) => Some(failure),
            };
            if self.after_sleep(id, &mut awake, failed.is_some(), patience) {
                return Ok(());
            }
        }
    }

    /// After a sleep, woken or not. True if the mutex is held; if not, the wait lock is held and the node is in no list.
    fn after_sleep(&self, id: NodeId, awake: &mut bool, failed: bool, patience: Patience<'_>) -> bool {
        let node = id.get::<P>();
        if failed {
            bitlock::lock::<P>(&self.guard);
        }
        match node.state.load(Relaxed) {
            // EXCLUSION: its unlocker left it locked.
            state::HANDED => {
                // LAST TOUCH: not before the one that handed it over has released the wait lock.
                if !failed {
                    bitlock::lock::<P>(&self.guard);
                }
                bitlock::unlock::<P>(&self.guard);
                node.state.store(state::IDLE, Relaxed);
                self.publish();
                // Who asked for it, or was woken in vain so often, found it held.
                self.learn(false);
                return true;
            }
            state::WOKEN => {
                // BELIEF: the bit was set for it.
                *awake = true;
                // Only this thread writes it while it is in no list.
                node.attempts.store(node.attempts.load(Relaxed).saturating_add(1), Relaxed);
                node.state.store(state::IDLE, Relaxed);
                if !failed {
                    if self.spin(id, awake, patience) {
                        return true;
                    }
                    count::<P>(Event::WokenInVain);
                    bitlock::lock::<P>(&self.guard);
                }
            }
            _ => {
                // It gives up, under the wait lock.
                *awake = false;
                self.withdraw(id);
            }
        }
        false
    }

    /// Under the wait lock: takes a sleeper out of the list that nobody has served.
    fn withdraw(&self, id: NodeId) {
        list::remove::<P>(&self.head, id);
        if list::first::<P>(&self.head).is_none() {
            self.change(|seen| seen & !(PASSES | SLEEPERS));
        }
        id.get::<P>().state.store(state::IDLE, Relaxed);
    }

    /// A sleeper that nothing has woken sees to it that DUTY holds, which a plain release has broken that
    /// came after its expulsion: the platform cannot expel, and ends sleeps now and then. True if the mutex
    /// was free and is the sleeper's.
    #[cold]
    fn recover(&self, id: NodeId) -> bool {
        // While this bit is set, the next release sees it, or somebody is awake.
        if self.state.load(Relaxed) & SLEEPERS != 0 {
            return false;
        }
        bitlock::lock::<P>(&self.guard);
        let acquired = id.get::<P>().state.load(Relaxed) == state::SLEEPING
            && self.change(|seen| seen | LOCKED | SLEEPERS) & LOCKED == 0;
        if acquired {
            self.withdraw(id);
        }
        bitlock::unlock::<P>(&self.guard);
        if acquired {
            self.publish();
        }
        acquired
    }

    /// Sleeps until woken, handed the mutex, or out of patience.
    fn doze(&self, id: NodeId, patience: Patience<'_>) -> Dozed {
        let node = id.get::<P>();
        if node.attempts.load(Relaxed) >= P::tuning().handoff_after {
            // The next unlock hands it over.
            let hurried = || node.state.load(Relaxed) != state::SLEEPING;
            (0..P::tuning().spins_for_hand_over).any(|_| {
                let mut budget = P::spin();
                while !hurried() && budget.spin() {}
                hurried()
            });
        }
        loop {
            // Acquire: partner of the waker's store.
            let now = node.state.load(Acquire);
            if now == state::WOKEN || now == state::HANDED {
                return Dozed::Served;
            }
            match P::wait(&node.state, now, patience.deadline) {
                Waited::TimedOut if patience.deadline.is_some() => return Dozed::Failed(Failure::TimedOut),
                Waited::Interrupted if patience.interruptible => return Dozed::Failed(Failure::Interrupted),
                // In the list: a condition variable's waiter may be on the way there.
                _ if now == state::SLEEPING && self.recover(id) => return Dozed::Acquired,
                _ => {}
            }
        }
    }

    /// Under the wait lock: takes the first sleeper, who is to be served, out of the list, and notes that in the state together
    /// with `also`.
    fn take_out(&self, first: NodeId, also: u32) {
        list::remove::<P>(&self.head, first);
        let none = list::first::<P>(&self.head).is_none();
        self.change(|seen| seen & !(PASSES | if none { SLEEPERS } else { 0 }) | also);
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        self.renew();
        while self.state.load(Relaxed) & LOCKED != 0 {
            bitlock::lock::<P>(&self.guard);
            let mut sleeper = None;
            match list::first::<P>(&self.head) {
                Some(first) => {
                    let node = first.get::<P>();
                    if node.attempts.load(Relaxed) >= P::tuning().handoff_after {
                        return self.hand_over(first);
                    }
                    // BELIEF: on behalf of the one that is woken.
                    self.take_out(first, AWAKE);
                    // Release: partner of the load in `doze`.
                    node.state.store(state::WOKEN, Release);
                    sleeper = Some(node);
                }
                None => {
                    self.change(|seen| seen & !(PASSES | SLEEPERS));
                }
            }
            bitlock::unlock::<P>(&self.guard);
            // LAST TOUCH, if it succeeds.
            let released = self.release();
            if let Some(node) = sleeper {
                P::wake(&node.state, 1);
                count::<P>(Event::Woken);
            }
            if released {
                return;
            }
        }
    }

    /// Makes the first sleeper the owner. Under the wait lock, which it releases.
    fn hand_over(&self, first: NodeId) {
        let node = first.get::<P>();
        self.take_out(first, 0);
        self.owner.store(self.owner.load(Relaxed) | HANDED_OVER, Relaxed);
        // Release: what the owner did happens before the new owner's return.
        node.state.store(state::HANDED, Release);
        bitlock::unlock::<P>(&self.guard);
        P::wake(&node.state, 1);
        count::<P>(Event::HandedToSleeper);
    }

    // For condition variables.

    /// Takes up the wait of a condition variable's waiter whom a signaller puts into the list. Returns with the mutex held.
    pub(crate) fn sleep_requeued(&self, id: NodeId) {
        let patience = Patience::default();
        let mut awake = false;
        if self.doze(id, patience) == Dozed::Served && !self.after_sleep(id, &mut awake, false, patience) {
            // Without patience it cannot fail.
            let _ = self.sleep(id, false, awake, patience);
        }
        // LAST TOUCH: not before the signaller has released the wait lock.
        bitlock::lock::<P>(&self.guard);
        bitlock::unlock::<P>(&self.guard);
    }

    /// Puts signalled waiters of a condition variable, linked through `after` from `chain` to 0, into the list of sleepers, and
    /// wakes the first sleeper if the mutex is free and nobody is awake.
    pub(crate) fn requeue(&self, chain: NodeId) {
        self.renew();
        self.quieten();
        bitlock::lock::<P>(&self.guard);
        let mut next = Some(chain);
        while let Some(id) = next {
            let node = id.get::<P>();
            next = NodeId::from_raw(node.after.load(Relaxed));
            node.attempts.store(0, Relaxed);
            list::push::<P>(&self.head, id);
            node.state.store(state::SLEEPING, Release);
        }
        // DUTY: an owner sees `SLEEPERS`, or a believer becomes an owner. If there is neither, the first one is to believe.
        let overdue = list::first::<P>(&self.head).map_or(0, Self::overdue);
        let seen = self.change(|seen| seen | SLEEPERS | overdue);
        let mut sleeper = None;
        if seen & (LOCKED | AWAKE) == 0
            && let Some(first) = list::first::<P>(&self.head)
        {
            self.take_out(first, AWAKE);
            let node = first.get::<P>();
            node.state.store(state::WOKEN, Release);
            sleeper = Some(node);
        }
        bitlock::unlock::<P>(&self.guard);
        if let Some(node) = sleeper {
            P::wake(&node.state, 1);
            count::<P>(Event::Woken);
        }
    }
}
