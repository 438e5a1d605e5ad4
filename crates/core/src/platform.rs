//! What a lock may ask of the machine it runs on.
//!
//! The trait is small on purpose: an implementer provides atomics, a way to sleep on a word, a record per
//! thread that is never unmapped, and evidence whether another thread runs. Every wait loop in this crate
//! goes through it, so that a checker or a simulator sees every step.

use core::sync::atomic::Ordering;

use crate::node::Record;

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
}

/// Constants of the algorithms, chosen by the platform so that a checker can make rare paths common.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The first sleeper asks for a direct hand-off after it was woken this many times in vain.
    pub handoff_after: u32,
    /// How many unlocks may leave the first sleeper asleep because a spinner is about to take the lock.
    pub passes_before_wake: u32,
}

/// The machine under the locks. See the module's documentation.
pub trait Platform: Sized + 'static {
    /// A 32-bit atomic.
    type U32: Atomic<u32>;
    /// A pointer-sized atomic.
    type Usize: Atomic<usize>;
    /// A spin budget.
    type Spin: Spin;

    /// Constants of the algorithms.
    const TUNING: Tuning;

    /// A fresh spin budget; one that is used up at once where spinning cannot help (a single CPU).
    fn spin() -> Self::Spin;

    /// Called in the `round`th turn of a loop that waits for a few instructions of another thread, such as
    /// the link to a successor. Gives up the CPU, whatever the scheduling class, once `round` shows that
    /// the other thread does not run.
    fn stall(round: u32);

    /// Sleeps while `word` holds `expected`, until woken, `deadline`, or for no reason. The comparison and
    /// the falling asleep are atomic with respect to [`Platform::wake`]. No clock makes a wait with a
    /// deadline end early; one without a deadline may still end for no reason.
    fn wait(word: &Self::U32, expected: u32, deadline: Option<&Deadline>) -> Waited;

    /// Wakes up to `count` threads that wait on the word at this address. The word may be gone already:
    /// the address is a name, and whoever waits there by then sees a wake-up for no reason.
    fn wake(word: *const Self::U32, count: u32);

    /// Whether a deadline has passed.
    fn expired(deadline: &Deadline) -> bool;

    /// The calling thread's compact index (0 and up), registering the thread on first use; `None` if
    /// indices have run out.
    fn current() -> Option<u32>;

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

    /// True only if no other thread exists, so that plain loads and stores will do.
    #[inline(always)]
    fn single_threaded() -> bool {
        false
    }
}
