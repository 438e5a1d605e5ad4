//! What a lock may ask of the machine it runs on.
//!
//! The trait is small on purpose: an implementer provides atomics, a way to sleep on a word, a record per
//! thread that is never unmapped, and evidence whether another thread runs. Every wait loop in this crate
//! goes through it, so that a checker or a simulator sees every step.

use core::sync::atomic::Ordering;

use crate::events::Event;
use crate::node::Record;
use crate::qspin::hash::Line;

/// An atomic cell of a platform: the operations of `core::sync::atomic`, with the same meaning.
pub trait Atomic<T: Copy>: Send + Sync {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Reads.
    fn load(&self, order: Ordering) -> T;
    /// Writes.
    fn store(&self, value: T, order: Ordering);
    /// Writes and returns what was there.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if `current` is there.
    ///
    /// # Errors
    /// The value that was there instead.
    fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T>;
    /// Adds, wrapping, and returns what was there.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Bitwise and; returns what was there.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
    /// Bitwise or; returns what was there.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
}

/// A 32-bit atomic whose low byte and halves can be accessed by themselves, for a lock word that is several fields.
///
/// Each operation acts on the whole word as one atomic step that leaves the other bits as they are. A platform
/// that has narrow accesses makes them of those, which is what the operations are for; any other makes them of
/// read-modify-writes of the word, which mean the same and cost more. "Low" counts from the least significant bit,
/// whatever the byte order.
pub trait Split: Atomic<u32> {
    /// Writes bits 0 to 7.
    fn store_low_byte(&self, value: u8, order: Ordering);

    /// Writes bits 0 to 7 if they hold `current`.
    ///
    /// # Errors
    /// The bits that were there instead.
    fn compare_exchange_low_byte(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8>;

    /// Writes bits 0 to 15.
    fn store_low_half(&self, value: u16, order: Ordering);

    /// Writes bits 16 to 31 and returns what was there.
    fn swap_high_half(&self, value: u16, order: Ordering) -> u16;

    /// Looks whether bits 0 to 15 hold `expected`, and if so stores 0 to bits 0 to 7, with release ordering; returns
    /// whether it did. Two steps: other threads' accesses may come between.
    #[inline(always)]
    fn release_low_byte(&self, expected: u16) -> bool {
        let fits = self.load(Ordering::Relaxed) as u16 == expected;
        if fits {
            self.store_low_byte(0, Ordering::Release);
        }
        fits
    }
}

/// Atomics that can be made in a constant: all but those of a model checker.
pub trait ConstAtomic {
    /// A cell of zero bytes. Each use of the constant is a cell of its own.
    const ZERO: Self;
}

/// The clock that a [`Deadline`] is read against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Wall-clock time; jumps when it is set.
    Realtime,
    /// Time since some fixed point; never jumps.
    Monotonic,
}

/// A point in time after which a wait gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Which clock.
    pub clock: Clock,
    /// Seconds of that clock; negative is in the past.
    pub seconds: i64,
    /// Nanoseconds past `seconds`, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// How a [`Platform::wait`] ended. None of them promises that the word changed: look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, or the word did not hold the expected value, or for no reason at all.
    Woken,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Whether another thread runs right now, as far as this platform can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// It does.
    Yes,
    /// It does not: spinning on it takes the CPU that it needs, or waits for a sleeper.
    No,
    /// There is no evidence either way.
    Unknown,
}

/// A bounded amount of spinning, near the cost of a sleep and a wake-up.
pub trait Spin {
    /// Spins once, briefly. Returns false when the budget is used up and the caller should sleep.
    fn spin(&mut self) -> bool;

    /// Spins for so many turns, each some ten nanoseconds where the platform measures time. Returns false if the budget was used
    /// up before.
    fn pass(&mut self, turns: u32) -> bool {
        (0..turns).all(|_| self.spin())
    }

    /// Leaves so many 256ths of the budget, where it is large enough for that to make sense.
    fn cut(&mut self, _of_256: u32) {}
}

/// Constants of the algorithms, chosen by the platform so that a checker can make rare paths common.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The first sleeper asks for a direct hand-off after it was woken this many times in vain.
    pub handoff_after: u32,
    /// How many unlocks may leave the first sleeper asleep because a spinner is about to take the lock.
    pub passes_before_wake: u32,
    /// How many releases of a barging mutex may leave the first sleeper asleep, whoever is awake: the
    /// logarithm, 1 to 28.
    pub releases_before_wake: u32,
    /// How often a newcomer looks at a lock that nobody waits for before it queues up: at a barging mutex, or at a native queue
    /// spinlock, where it sets the pending bit.
    pub glances: u32,
    /// How many turns a spinner at a hand-off mutex lets pass from one look at it to the next.
    pub turns_a_look: u32,
    /// How many looks at a barging mutex that others take all the time make the head of its queue leave it alone, at least.
    pub looks_in_vain: u32,
    /// One in so many waits at a barging mutex, or in 8 or 32 times as many, is followed by a trial of not spinning for it.
    pub waits_a_trial: u32,
    /// How many turns such a wait lasted at least.
    pub spun_before_trial: u32,
    /// How many spin budgets a waiter spends on a hand-over that it has asked for.
    pub spins_for_hand_over: u32,
    /// For how many nanoseconds a thread uses a barging mutex that others sleep for before one of them is woken to relieve it. Where
    /// spinning may not be worth it, up to 256 times as long. With a readers-writer lock, half as long, and the thread gives way.
    pub stint: usize,
    /// How many owners of a barging mutex there are for one that asks whether its stint is over: the logarithm, at most 12. Of leavings of a readers-writer lock it
    /// is half of the logarithm.
    pub owners_a_stint_check: u32,
    /// The longest interval between looks at a barging mutex: the logarithm of its turns, at most 15.
    pub longest_interval: u32,
}

impl Tuning {
    /// What was found by measurement for threads of Linux, where a sleep and a wake-up take some microseconds.
    pub const USER_SPACE: Tuning = Tuning {
        // With a queue of spinners a woken sleeper is served among the first few; one that was not after
        // this many wake-ups has met with something else.
        handoff_after: 16,
        // A wake-up under oversubscription costs the CPUs some 10 microseconds: two switches and the cold
        // caches. One in 256 unlocks keeps that below a few per cent of critical sections of a microsecond,
        // and still serves a sleeper every fraction of a millisecond.
        passes_before_wake: 256,
        // 65,536: a few milliseconds of the shortest sections, so that the wake-up costs less than a
        // hundredth of them. Where sections are longer, other rules wake a sleeper long before.
        releases_before_wake: 16,
        // A critical section of a few dozen instructions is over by then, and its lock changes hands by one
        // read-modify-write rather than three; two threads at such sections get a third more through. It costs order
        // only among threads that come within that time.
        glances: 4,
        // A look takes the line from the owner, who is about to write to it several times: with a look a turn two threads
        // that take turns at it get a third to a half as much through.
        turns_a_look: 16,
        // A third or so of a time slice: who sleeps before its slice is over is not preempted, and gets a CPU at once when it is
        // woken, whatever else runs there. A relief costs the CPUs some ten microseconds.
        stint: 500_000,
        // 32: a look at the clock takes as long as a short critical section.
        owners_a_stint_check: 5,
        // 256 turns: a few microseconds.
        longest_interval: 8,
        // Some ten microseconds of patience.
        looks_in_vain: 3,
        // A trial lasts some tenths of a millisecond; the waits between two of them, a few.
        waits_a_trial: 32,
        // A microsecond or so: shorter waits cost little.
        spun_before_trial: 64,
        // Long enough for a critical section of 20 microseconds, which is not much longer than what a sleep and a wake-up
        // would leave the mutex idle.
        spins_for_hand_over: 3,
    };
}

/// The machine under the locks. See the module's documentation.
pub trait Platform: Sized + 'static {
    /// A 32-bit atomic.
    type U32: Split;
    /// A pointer-sized atomic.
    type Usize: Atomic<usize>;
    /// A spin budget.
    type Spin: Spin;

    /// Constants of the algorithms: the same ones for as long as there are locks, and so cheap to have that slow paths ask for each.
    fn tuning() -> Tuning;

    /// A fresh spin budget; one that is used up at once where spinning cannot help (a single CPU).
    fn spin() -> Self::Spin;

    /// A fresh spin budget of what a sleep and a wake-up have cost of late, as far as [`Platform::woke`] has told.
    fn spin_measured() -> Self::Spin {
        Self::spin()
    }

    /// Whoever was woken tells how long it took from the wake-up until it ran, in nanoseconds.
    fn woke(_nanoseconds: u64) {}

    /// Called in every turn of a loop that waits without end and keeps its CPU: those of spinlocks that have no
    /// other way. Nothing but a change of what the loop looks at ends it, so a simulator may skip turns that find none.
    fn relax();

    /// As [`Platform::relax`], in a loop that counts its turns: none is skipped.
    #[inline]
    fn pause() {
        Self::relax();
    }

    /// Called in the `round`th turn of a loop that waits for a few instructions of another thread, such as
    /// the link to a successor. Gives up the CPU, whatever the scheduling class, once `round` shows that
    /// the other thread does not run.
    fn stall(round: u32);

    /// Lets others run on the caller's CPU that want to, once; among its equals, the caller is the last to run again. It may
    /// return at once.
    fn give_way() {
        Self::relax();
    }

    /// Sleeps while `word` holds `expected`, until woken, `deadline`, or for no reason. The comparison and
    /// the falling asleep are atomic with respect to [`Platform::wake`]. No clock makes a wait with a
    /// deadline end early; one without a deadline may still end for no reason.
    fn wait(word: &Self::U32, expected: u32, deadline: Option<&Deadline>) -> Waited;

    /// As [`Platform::wait`] without a deadline, but returns after a millisecond or so at the latest: for a wait whose
    /// wake-up may be lost, in a case so rare that looking now and then is the cheapest remedy.
    fn patrol(word: &Self::U32, expected: u32) -> Waited;

    /// Sleeps for a short while, of the length of a few sleeps and wake-ups, and is not woken. It may return at once.
    fn nap() {
        Self::relax();
    }

    /// Wakes up to `count` threads that wait on the word at this address. The word may be gone already:
    /// the address is a name, and whoever waits there by then sees a wake-up for no reason.
    fn wake(word: *const Self::U32, count: u32);

    /// Whether a deadline has passed.
    fn expired(deadline: &Deadline) -> bool;

    /// The calling thread's compact index (0 and up), registering the thread on first use; `None` if
    /// indices have run out, or there is no memory for its record.
    fn current() -> Option<u32>;

    /// A number that tells the calling thread from every other living one, and stays for as long as the
    /// thread lives; 0 if there is none.
    #[inline(always)]
    fn identity() -> u32 {
        Self::current().map_or(0, |index| index + 1)
    }

    /// How urgent the calling thread is: 0, unless it is scheduled by a fixed priority ("real-time"); then
    /// that, where more is more urgent. Asked once in each wait, before the thread queues. The answer may be
    /// out of date for a while where it is 0: it orders waiters, and nothing else rests on it.
    fn priority() -> u32 {
        0
    }

    /// The record of the thread with this index. Records are recycled when threads end, but their memory
    /// stays mapped and stays a record, so a stale index may be read at any time.
    fn record(index: u32) -> &'static Record<Self>;

    /// A non-zero mark that a lock owner or a waiter publishes so that others can ask
    /// [`Platform::running`] about it; 0 if nothing is known.
    fn tag() -> u32;

    /// Whether the thread that published `tag` runs. A wrong answer costs time, never correctness.
    fn running(tag: u32) -> Running;

    /// A number below 2^27 that differs in a forked child from its parent's, and is 0 in a process that
    /// was not forked under this platform.
    fn epoch() -> u32;

    /// Stores 0 to `count`, with release ordering, if `guard` is 0; returns whether it did. Cheaper than a
    /// read-modify-write, and not one: other threads' accesses may come between the look at `guard` and the
    /// store. Only [`Platform::expel`] does not. A platform that cannot promise that always returns false.
    #[inline(always)]
    fn release(_count: &Self::U32, _guard: &Self::U32) -> bool {
        false
    }

    /// Returns when no thread is between the look and the store of a [`Platform::release`] any more: one that
    /// was there has stored, or looks again, and then sees what the caller wrote before the call. What those
    /// threads stored happens before the return.
    #[inline(always)]
    fn expel() {}

    /// The table in which halted queue heads are found by their lock: a power of two of lines, at first zero
    /// bytes, with an entry for every [`Node`](crate::node::Node) that there can be, and empty in a forked child.
    /// `None` if there is none: waiters then give up their CPU by [`Platform::stall`] instead of halting.
    fn lock_hash() -> Option<&'static [Line<Self>]>;

    /// Whether somebody counts lock events at present.
    #[inline(always)]
    fn counting() -> bool {
        false
    }

    /// Counts an event, and for those that are durations their `amount` in nanoseconds. Called in slow paths only,
    /// and only if [`Platform::counting`].
    #[inline(always)]
    fn count(_event: Event, _amount: u64) {}

    /// Nanoseconds since some fixed point: for durations, in slow paths.
    #[inline(always)]
    fn now() -> u64 {
        0
    }

    /// True only if no other thread exists, so that plain loads and stores will do.
    #[inline(always)]
    fn single_threaded() -> bool {
        false
    }
}
