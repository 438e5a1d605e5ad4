//! How to wait for the default mutex.
//!
//! The default policy is [`Learning`]: docs/POUNDLOCK.md describes a wait, how a spinner keeps its distance
//! (intervals), timed parks, which find out what spinning gains ([`Gaps`]), and slices.

use super::attempt::Queued;
use super::{Attempt, TAG};
use crate::events::{Event, count};
use crate::node::Record;
use crate::platform::{Platform, Spin, Tunable};

/// What SERVICE promises: the same numbers for as long as there are mutexes of the policy.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The first sleeper is handed the mutex after it was woken this many times in vain.
    pub handoff_after: u32,
    /// How many releases may leave the first sleeper asleep, whichever thread is awake: the logarithm, 1 to
    /// 27.
    pub releases_before_wake: u32,
    /// How many waiters may acquire the mutex or go to sleep before the first sleeper is served, 1 or more.
    pub bypasses_before_wake: u32,
    /// How many owners the mutex may be granted to, one after the other, before one releases it.
    pub grants_before_release: u32,
    /// After how many nanoseconds of grants an owner calls a sleeper, if there is one.
    pub looks_after: u32,
    /// And after how many times what the last call took.
    pub calls_apart: u32,
    /// For how many nanoseconds, about, owners of one memory node come one after the other while threads of
    /// others wait; the same of a mutex that [is crowded](Policy::is_crowded) where there are two nodes; and
    /// if it is crowded elsewhere.
    pub batch: [u32; 3],
    /// How many spin budgets a newcomer spends in the queue, 1 or more; and the same if it is crowded.
    pub budgets: [u32; 2],
    /// How many spin budgets a sleeper that was woken spends in the queue, at least.
    pub budgets_of_the_woken: u32,
    /// [`Spins::moment`](crate::queue::Spins::moment).
    pub moment: u32,
    /// What follows is for machines with at most this number of memory nodes.
    pub few: u32,
    /// How much of its spin budget a newcomer spends in the queue of a crowded mutex, 256ths, for each memory
    /// node.
    pub share: u32,
    /// And one 256th more for each time as many nanoseconds have passed since it had the mutex.
    pub absence: u32,
    /// Within how many nanoseconds each sleeper of a crowd is called, if calls take little.
    pub rotation: u32,
    /// After how many turns at a crowded mutex a thread makes room for a sleeper, at least.
    pub turns: u32,
}

/// A way to wait. It acts on the mutex through an [`Attempt`]; each function takes a bounded number of steps.
pub trait Policy<P: Platform>: Sized + 'static {
    /// See [`Bounds`].
    fn bounds() -> Bounds;

    /// Whether the mutex may go along the queue: always the same answer.
    fn grants() -> bool;

    /// What a new owner adds to the hints of the last one, whatever they are. On the fast path.
    fn owned() -> u32;

    /// Whether the owner that leaves these hints is to ask [`Policy::ends_slice`]. On the fast path.
    fn asks_the_time(hints: u32) -> bool;

    /// Of a mutex that goes along the queue: whether waiters were without a CPU lately when their turn came.
    /// Then there are more threads than CPUs, and waiters should sleep early.
    fn is_crowded(hints: u32) -> bool;

    /// What an owner leaves that has found such a waiter, and stolen its turn.
    fn crowded(hints: u32) -> u32;

    /// Whether that number of sleepers shows that it is crowded.
    fn is_crowd(asleep: u32) -> bool;

    /// Whether the machine has [few](Bounds::few) memory nodes.
    fn has_few_nodes() -> bool {
        P::nodes() <= Self::bounds().few
    }

    /// Whether its slice is over: then its unlock wakes a sleeper, whichever thread is awake.
    fn ends_slice(hints: u32) -> bool;

    /// A newcomer, whose record it is, found the mutex held. True if it has acquired it; else it goes to
    /// sleep.
    fn newcomer(attempt: &mut Attempt<'_, P, Self>, record: &Record<P>) -> bool;

    /// A sleeper was woken. True if it has acquired the mutex; else it goes to sleep again.
    fn woken(attempt: &mut Attempt<'_, P, Self>) -> bool;

    /// The attempt was handed the mutex.
    fn handed(attempt: &Attempt<'_, P, Self>);

    /// The next unlock hands the mutex over: what to do before the sleep, while it was not.
    fn await_hand_over(served: impl Fn() -> bool);
}

/// The constants of [`Learning`].
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// [`Bounds::handoff_after`].
    pub handoff_after: u32,
    /// [`Bounds::releases_before_wake`].
    pub releases_before_wake: u32,
    /// [`Bounds::bypasses_before_wake`].
    pub bypasses_before_wake: u32,
    /// [`Bounds::grants_before_release`].
    pub grants_before_release: u32,
    /// [`Bounds::looks_after`].
    pub looks_after: u32,
    /// [`Bounds::calls_apart`].
    pub calls_apart: u32,
    /// [`Bounds::batch`].
    pub batch: [u32; 3],
    /// [`Bounds::budgets`].
    pub budgets: [u32; 2],
    /// [`Bounds::budgets_of_the_woken`].
    pub budgets_of_the_woken: u32,
    /// [`Bounds::moment`].
    pub moment: u32,
    /// [`Bounds::few`].
    pub few: u32,
    /// [`Bounds::share`].
    pub share: u32,
    /// [`Bounds::absence`].
    pub absence: u32,
    /// [`Bounds::rotation`].
    pub rotation: u32,
    /// [`Bounds::turns`].
    pub turns: u32,
    /// With how many CPUs the mutex goes along the queue, at least; [`Policy::grants`].
    pub cpus: u32,
    /// How often a newcomer looks at a mutex without waiters before it queues up.
    pub optimistic_looks: u32,
    /// How many looks at a mutex that others take all the time make the head of the queue leave it alone, at
    /// least.
    pub looks_in_vain: u32,
    /// One in this many waits, or in 8 or 32 times as many, is followed by a trial of not spinning.
    pub waits_a_trial: u32,
    /// How many turns of a spin loop such a wait lasted at least.
    pub spun_before_trial: u32,
    /// How many spin budgets a waiter spends on a hand-over that it has asked for.
    pub spins_for_hand_over: u32,
    /// The length of a slice in nanoseconds. Where spinning may not be worth it, up to 256 times as long.
    pub slice: usize,
    /// How many owners there are for one that asks whether its slice is over: the logarithm, at most 12.
    pub owners_a_slice_check: u32,
    /// The longest interval between looks: the logarithm of its turns, at most 15.
    pub longest_interval: u32,
}

impl Tunable for Tuning {
    const USER_SPACE: Tuning = Tuning {
        // With a queue of spinners a woken sleeper is served among the first few; one that was not after this
        // many wake-ups has met with something else.
        handoff_after: 16,
        // 65,536: a few milliseconds of the shortest sections, so that the wake-up costs less than a
        // hundredth of them. Where sections are longer, other rules wake a sleeper long before.
        releases_before_wake: 16,
        // A wake-up under oversubscription costs the CPUs some 10 microseconds: two switches and the cold
        // caches. Waiters come every few microseconds at most, so that keeps it below a few per cent.
        bypasses_before_wake: 64,
        // Some tenths of a millisecond of the shortest sections. A release costs some microseconds, in which
        // the mutex may be free.
        grants_before_release: 1024,
        // A wake-up costs the CPUs some ten microseconds, but not the owner, which passes the mutex on
        // before. At 33, sleepers wait so long for their turn that Jain's index over 100 ms is 0.8 with four
        // times as many threads as 120 CPUs.
        looks_after: 16_000,
        // An eighth of the time goes to calls then, at most. On 512 CPUs, where one takes 15 microseconds and
        // more, 4 makes threads come and go so often that they get three quarters of it done.
        calls_apart: 7,
        // Some sixty short sections, as in a cohort lock, so that one hand-over in sixty crosses the machine.
        // Where waiters sleep after one spin budget, the batches of the other node, or of three, have to be
        // over by then.
        batch: [20_000, 12_000, 4_000],
        // A third of a millisecond: a queue of sixty at sections of five microseconds. A sleep costs the
        // owner a look at the sleeper's node, and the mutex's line the wait lock. With 64 instead of 16, 2
        // per cent more of an MCS lock's rate where sections are long, for four times the CPU time.
        budgets: [16, 1],
        // Where sections last microseconds, one ends a little before its turn.
        budgets_of_the_woken: 4,
        // Some ten microseconds: a few transfers of a cache line on the largest machines, so that no thread
        // is robbed of its turn that has a CPU. With a quarter of it, threads of 512 CPUs are.
        moment: 128,
        // With dozens, threads are of one node after the other only while many are awake. With four and
        // eight, few awake get 0.98 of the rate that many get, in a tenth of their CPU time where sections
        // are long.
        few: 8,
        // Some nine microseconds, what a sleep and a wake-up cost.
        share: 112,
        // A quarter of what the thread does besides, up to a spin budget: it adds that much to its CPU time.
        absence: 320,
        // Twenty turns each in the tenth of a second for which Jain's index is to be 0.9.
        rotation: 5_000_000,
        // A sleep and a wake-up cost the CPUs some ten microseconds. With more, a rotation of 1536 threads
        // takes so long that Jain's index over 100 ms suffers where sections last five microseconds.
        turns: 4,
        // An owner, a head, and one behind it.
        cpus: 3,
        // A critical section of a few dozen instructions is over by then, and its mutex changes hands by one
        // read-modify-write rather than three; two threads at such sections get a third more through. It
        // costs order only among threads that come within that time.
        optimistic_looks: 4,
        // Some ten microseconds.
        looks_in_vain: 3,
        // A trial lasts some tenths of a millisecond; the waits between two of them, a few.
        waits_a_trial: 32,
        // A microsecond or so: shorter waits cost little.
        spun_before_trial: 64,
        // Long enough for a critical section of 20 microseconds, which is not much longer than what a sleep
        // and a wake-up would leave the mutex idle.
        spins_for_hand_over: 3,
        // A third or so of a time slice: a thread that sleeps before its time slice is over is not preempted,
        // and gets a CPU at once when it is woken, whatever else runs there. A relief costs the CPUs some ten
        // microseconds.
        slice: 500_000,
        // 32: a look at the clock takes as long as a short critical section.
        owners_a_slice_check: 5,
        // 256 turns: a few microseconds.
        longest_interval: 8,
    };
}

/// In `owner`: the logarithm of the interval between a spinner's looks, in turns of its loop.
const INTERVAL: u32 = 0x0f << 12;
/// In `owner`: what timed parks have found, see [`Gaps`]. With its highest bit inverted, so that zero is in
/// the middle. Where the mutex goes along the queue: the epoch in which it was crowded last, or 0.
const GAPS: u32 = 0x0f << 16;
/// In `owner`: one more has owned the mutex.
const TURN: u32 = 1 << 20;
/// In `owner`: the count of owners, by which a spinner sees that others get the mutex all the time. In the
/// highest bits, so that it wraps by itself.
const TURNS: u32 = 0u32.wrapping_sub(TURN);

const _: () = {
    assert!(TAG | INTERVAL | GAPS | TURNS == u32::MAX);
    // None overlaps another.
    assert!(TAG.count_ones() + INTERVAL.count_ones() + GAPS.count_ones() + TURNS.count_ones() == u32::BITS);
};

/// Epochs of [`Policy::is_crowded`] have numbers from 1 to this, and then 1 again.
const EPOCHS: u32 = 15;
/// For how many epochs after its own a mutex is crowded.
const CROWDED: u32 = 3;

/// The present epoch, modulo [`EPOCHS`]: some 33 milliseconds.
fn epoch<P: Platform>() -> u32 {
    ((P::now() >> 25) % u64::from(EPOCHS)) as u32 + EPOCHS
}

/// An interval in which the mutex was taken this often is too short.
const HOT: u32 = 2;
/// If the longest interval is still that much too short, its owner needs no help to keep it busy.
const SATURATED: u32 = 32;
/// The share of its budget that is left to a spinner if others hold the mutex nearly all the time, in 256ths.
const SHORT: u32 = 64;

/// How often a thread that waited in the queue looks at once when it is the head, and how many turns lie
/// between two looks.
const PROMOTED_LOOKS: u32 = 16;
const PROMOTED_TURNS: u32 = 4;

/// A timed park, in nanoseconds: a few sleeps and wake-ups. The kernel adds as much again, so that it can
/// wake several at once.
const TIMED_PARK: u32 = 50_000;

/// How much of the time the mutex is free while a user of it is left alone; 0: hardly ever. Spinning gains
/// that time.
#[derive(Clone, Copy)]
struct Gaps(u32);

impl Gaps {
    fn of(owner: u32) -> Gaps {
        Gaps((owner & GAPS) >> GAPS.trailing_zeros() ^ 8)
    }

    fn within(self, owner: u32) -> u32 {
        owner & !GAPS | (self.0 ^ 8) << GAPS.trailing_zeros()
    }

    /// For a trial: the next thread to find it free ends it.
    const DOUBTED: Gaps = Gaps(6);
    /// Nothing was tried yet: what zero stands for.
    const UNKNOWN: u32 = 8;
    const KNOWN: Gaps = Gaps(15);

    /// Learns what a thread found that came at no particular time. Finds balance where it is free in one of
    /// six.
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
    fn looks_in_vain(self) -> u32 {
        2 * self.0.saturating_sub(Gaps::UNKNOWN)
    }

    /// How long a slice is, if there are any: longer where the mutex may have no spinners, since then timed
    /// parks change the owner, and wake-ups leave gaps that are not the owner's.
    fn slice<P: Platform>(self) -> Option<usize> {
        let slice = P::tuning::<Tuning>().slice;
        (!self.are_rare()).then(|| slice.saturating_mul(1 << (Gaps::KNOWN.0 - self.0)))
    }

    /// How many waits of that many turns there are for one that is followed by a trial.
    fn waits_a_trial<P: Platform>(self, spun: u32) -> u32 {
        let Tuning { waits_a_trial, spun_before_trial, .. } = P::tuning();
        match (self.0 <= Gaps::UNKNOWN, spun < 8 * spun_before_trial) {
            (true, _) => waits_a_trial,
            (false, true) => 32 * waits_a_trial,
            (false, false) => 8 * waits_a_trial,
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

/// The default: it learns, for each mutex, how often to look and whether spinning gains anything. See above.
#[derive(Clone, Copy, Debug)]
pub struct Learning;

impl<P: Platform> Policy<P> for Learning {
    #[inline(always)]
    fn bounds() -> Bounds {
        let Tuning {
            handoff_after,
            releases_before_wake,
            bypasses_before_wake,
            grants_before_release,
            looks_after,
            calls_apart,
            batch,
            budgets,
            budgets_of_the_woken,
            moment,
            few,
            share,
            absence,
            rotation,
            turns,
            ..
        } = P::tuning();
        Bounds {
            handoff_after,
            releases_before_wake,
            bypasses_before_wake,
            grants_before_release,
            looks_after,
            calls_apart,
            batch,
            budgets,
            budgets_of_the_woken,
            moment,
            few,
            share,
            absence,
            rotation,
            turns,
        }
    }

    fn grants() -> bool {
        P::cpus() >= P::tuning::<Tuning>().cpus
    }

    #[inline(always)]
    fn owned() -> u32 {
        TURN
    }

    #[inline(always)]
    fn asks_the_time(hints: u32) -> bool {
        hints & ((TURN << P::tuning::<Tuning>().owners_a_slice_check) - TURN) == 0
    }

    #[cold]
    fn ends_slice(hints: u32) -> bool {
        match (gaps_of::<P>(hints).slice::<P>(), P::current()) {
            (Some(slice), Some(index)) => P::record(index).ends_slice(slice),
            _ => false,
        }
    }

    fn is_crowded(hints: u32) -> bool {
        let seen = (hints & GAPS) >> GAPS.trailing_zeros();
        seen != 0 && epoch::<P>().wrapping_sub(seen) % EPOCHS <= CROWDED
    }

    fn crowded(hints: u32) -> u32 {
        let now = match epoch::<P>() % EPOCHS {
            0 => EPOCHS,
            now => now,
        };
        hints & !GAPS | now << GAPS.trailing_zeros()
    }

    fn is_crowd(asleep: u32) -> bool {
        // More than threads without a CPU: with fewer sleepers all may have one.
        asleep >= P::cpus()
    }

    fn newcomer(attempt: &mut Attempt<'_, P, Self>, record: &Record<P>) -> bool {
        // Slices: a relieved owner makes room, if there is a sleeper.
        let relieved = record.is_relieved() && attempt.others_wait();
        if !relieved && (optimistic_spin(attempt) || spin(attempt)) {
            return true;
        }
        record.rests();
        false
    }

    fn woken(attempt: &mut Attempt<'_, P, Self>) -> bool {
        spin(attempt)
    }

    fn handed(attempt: &Attempt<'_, P, Self>) {
        // A thread that asked for it, or was woken in vain this often, found it held.
        learn(attempt, false);
    }

    fn await_hand_over(served: impl Fn() -> bool) {
        (0..P::tuning::<Tuning>().spins_for_hand_over).any(|_| {
            let mut budget = P::Spin::fresh();
            while !served() && budget.spin() {}
            served()
        });
    }
}

type Own<'a, P> = Attempt<'a, P, Learning>;

/// A newcomer's few looks, if no other thread waits: a short section is over by then, and to queue up costs
/// more.
fn optimistic_spin<P: Platform>(attempt: &mut Own<'_, P>) -> bool {
    if attempt.is_granted() {
        return false;
    }
    let mut budget = P::Spin::fresh();
    for look in 0..P::tuning::<Tuning>().optimistic_looks {
        if attempt.grab() {
            return true;
        }
        let alone = attempt.is_alone();
        if !alone || !attempt.owner_may_run() || !budget.pass(1 << (look + 2).min(4)) {
            return false;
        }
    }
    false
}

/// Spins for the mutex, and then parks for a while, or yields. True if it was acquired.
fn spin<P: Platform>(attempt: &mut Own<'_, P>) -> bool {
    // One awake waiter is enough, and others were here before.
    if !attempt.is_waker()
        && gaps(attempt).are_rare()
        && attempt.is_held_from_sleepers()
        && !attempt.is_granted()
    {
        return false;
    }
    // Woken: it comes at no particular time.
    if attempt.is_waker() && gaps(attempt).are_rare() && attempt.grab() {
        learn(attempt, true);
        return true;
    }
    let queued = if attempt.owner_may_run() { attempt.queue(watch) } else { Queued::Left };
    match queued {
        Queued::Granted | Queued::Acted(End::Acquired) => true,
        Queued::Left if attempt.is_granted() => false,
        Queued::Left | Queued::Acted(End::Stuck) => yield_once(attempt),
        // A thread with a deadline parks until then and no longer.
        Queued::Acted(End::Busy) => attempt.is_waker() && attempt.is_endless() && park_timed(attempt),
    }
}

/// Lets the owner have the CPU, or the thread that was woken last. Once: if another program wants it, that
/// costs a time slice.
fn yield_once<P: Platform>(attempt: &mut Own<'_, P>) -> bool {
    P::yield_now();
    // An interval, here too: one look at an empty section that its owner repeats takes the mutex away from
    // it.
    P::Spin::fresh().pass(1 << interval(attempt));
    attempt.grab()
}

/// Leaves the owner alone for a while; the designated waker all the same, so that no other thread is woken.
/// If it then finds the mutex held, it asks to be handed it.
fn park_timed<P: Platform>(attempt: &mut Own<'_, P>) -> bool {
    count::<P>(Event::TimedSleep);
    attempt.park_for(TIMED_PARK);
    if !attempt.is_held() {
        let longest = P::tuning::<Tuning>().longest_interval;
        let mut saturated = false;
        if interval(attempt) == longest {
            let before = turns(attempt);
            P::Spin::fresh().pass(1 << longest);
            saturated = turns(attempt).wrapping_sub(before) & TURNS >= SATURATED * TURN;
        }
        if attempt.grab() {
            learn(attempt, !saturated);
            return true;
        }
    }
    attempt.asks_for_hand_over();
    false
}

fn watch<P: Platform>(attempt: &mut Own<'_, P>) -> End {
    let Tuning { longest_interval: longest, looks_in_vain, spun_before_trial, .. } = P::tuning();
    let rare = gaps(attempt);
    let mut budget = P::Spin::fresh();
    if rare.are_rare() {
        budget.cut(SHORT);
    }
    let mut interval = interval(attempt);
    let mut before = turns(attempt);
    let (mut spun, mut in_vain) = (0, 0);
    attempt.designate();
    if attempt.is_promoted() {
        // The owner is about to release it.
        for _ in 0..PROMOTED_LOOKS {
            if attempt.grab() {
                return End::Acquired;
            }
            budget.pass(PROMOTED_TURNS);
        }
    }
    loop {
        // Not even the first look comes at once.
        if !budget.pass(1 << interval) {
            return if rare.are_rare() || in_vain > 0 { End::Busy } else { End::Stuck };
        }
        spun += 1 << interval;
        let now = turns(attempt);
        let taken = now.wrapping_sub(before) & TURNS;
        before = now;
        let saturated = interval == longest && taken >= SATURATED * TURN;
        if !saturated && attempt.grab() {
            break;
        }
        if !attempt.is_held() && !saturated {
            continue;
        }
        attempt.designate();
        if !attempt.owner_may_run() {
            return End::Stuck;
        }
        if taken >= HOT * TURN {
            interval = (interval + 1).min(longest);
            in_vain += 1;
        } else if taken == 0 {
            interval = interval.saturating_sub(1);
        }
        if attempt.is_waker() && in_vain >= looks_in_vain + rare.looks_in_vain() {
            return End::Busy;
        }
    }
    let gaps = gaps(attempt);
    let trial = spun >= spun_before_trial
        && !gaps.are_rare()
        && (before / TURN).is_multiple_of(gaps.waits_a_trial::<P>(spun));
    leave(attempt, if trial { Gaps::DOUBTED } else { gaps }, interval);
    End::Acquired
}

// What owners leave for the next threads.

fn interval<P: Platform>(attempt: &Own<'_, P>) -> u32 {
    (attempt.hints() & INTERVAL) >> INTERVAL.trailing_zeros()
}

fn turns<P: Platform>(attempt: &Own<'_, P>) -> u32 {
    attempt.hints() & TURNS
}

fn gaps<P: Platform>(attempt: &Own<'_, P>) -> Gaps {
    gaps_of::<P>(attempt.hints())
}

fn gaps_of<P: Platform>(hints: u32) -> Gaps {
    // Where waiters have CPUs of their own, spinning takes none from the owner.
    if <Learning as Policy<P>>::grants() { Gaps::KNOWN } else { Gaps::of(hints) }
}

fn learn<P: Platform>(attempt: &Own<'_, P>, free: bool) {
    leave(attempt, gaps(attempt).learn(free), interval(attempt));
}

fn leave<P: Platform>(attempt: &Own<'_, P>, gaps: Gaps, interval: u32) {
    let hints = attempt.hints() & !INTERVAL | interval << INTERVAL.trailing_zeros();
    let grants = <Learning as Policy<P>>::grants();
    attempt.leave_hints(if grants { hints } else { gaps.within(hints) });
}
