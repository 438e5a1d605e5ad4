//! What a lock may ask of the machine it runs on.
//!
//! The trait is small on purpose: an implementer provides atomics, a way to sleep on a word, a record per
//! thread that is never unmapped, and evidence whether another thread runs. Nothing in it belongs to one
//! lock. Every wait loop in this crate goes through it, so that a checker or a simulator sees every step.

use core::sync::atomic::Ordering::Relaxed;

use crate::atomic::Atomics;
pub use crate::atomic::{Atomic, ConstAtomic, Split};
use crate::events::Observer;
use crate::record::{Record, Side};
use crate::rwlock::readers::Table;

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

/// For how long a [`Platform::wait`] sleeps at most.
#[derive(Clone, Copy, Debug)]
pub enum Until<'a> {
    /// Until it is woken.
    Woken,
    /// Until this has passed. No clock makes the wait end earlier.
    Deadline(&'a Deadline),
    /// For about this many nanoseconds, more rather than less: for a thread that is to look now and then,
    /// because its wake-up may be lost, or because no thread is to wake it.
    Nanoseconds(u32),
}

impl<'a> From<Option<&'a Deadline>> for Until<'a> {
    fn from(deadline: Option<&'a Deadline>) -> Self {
        deadline.map_or(Until::Woken, Until::Deadline)
    }
}

/// How a [`Platform::wait`] ended. None of them promises that the word changed: look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, or the word did not hold the expected value, or for no reason at all.
    Woken,
    /// The deadline has passed. A wait for a number of nanoseconds may say `Woken` instead.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Whether another thread runs right now, if this platform can tell.
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
pub trait Spin: Sized {
    /// A fresh budget; one that is used up at once where spinning cannot help (a single CPU).
    fn fresh() -> Self;

    /// A fresh budget of what a sleep and a wake-up have cost lately, by what [`Spin::woke`] was told.
    fn measured() -> Self {
        Self::fresh()
    }

    /// A woken thread tells how long it took from the wake-up until it ran, in nanoseconds.
    fn woke(_nanoseconds: u64) {}

    /// Spins once, briefly. Returns false when the budget is used up and the caller should sleep.
    fn spin(&mut self) -> bool;

    /// Spins for that many turns, each some ten nanoseconds where the platform measures time. Returns false
    /// if the budget was used up before.
    fn pass(&mut self, turns: u32) -> bool {
        (0..turns).all(|_| self.spin())
    }

    /// Leaves that many 256ths of the budget, if it is large enough for that to make sense.
    fn cut(&mut self, _of_256: u32) {}
}

/// The constants of one lock's policy: each with its unit and derivation, where the policy is.
pub trait Tunable: Copy + 'static {
    /// What was found by measurement for threads of Linux, where a sleep and a wake-up take some
    /// microseconds.
    const USER_SPACE: Self;
}

/// The machine under the locks. See the module's documentation.
pub trait Platform: Atomics + Observer {
    /// A spin budget.
    type Spin: Spin;

    /// Called in every turn of a loop that waits without end and keeps its CPU: those of spinlocks that have
    /// no other way. Nothing but a change of what the loop looks at ends it, so a simulator may skip turns
    /// that find none.
    fn relax();

    /// Called in the `round`th turn of a loop that waits for a few instructions of another thread, such as
    /// the link to a successor. Gives up the CPU, whatever the scheduling class, once `round` shows that
    /// the other thread does not run. Round 0 is a brief pause.
    fn stall(round: u32);

    /// Lets other threads run on the caller's CPU, once; among its equals, the caller is the last to run
    /// again. It may return at once.
    fn yield_now() {
        Self::relax();
    }

    /// Sleeps while `word` holds `expected`, until woken, as long as `until` says, or until there is no
    /// reason at all. The comparison and the falling asleep are atomic with respect to [`Platform::wake`].
    fn wait(word: &Self::U32, expected: u32, until: Until<'_>) -> Waited;

    /// Wakes up to `count` threads that wait on the word at this address. The word may be gone already: the
    /// address is a name, and a thread that waits there by then sees a spurious wake-up.
    fn wake(word: *const Self::U32, count: u32);

    /// Whether a deadline has passed.
    fn expired(deadline: &Deadline) -> bool;

    /// The calling thread's compact index (0 and up), registering the thread on first use; `None` if
    /// indices have run out, or there is no memory for its record.
    fn current() -> Option<u32>;

    /// The record of the thread with this index. Records are recycled when threads end, but their memory
    /// stays mapped and stays a record, so a stale index may be read at any time.
    fn record(index: u32) -> &'static Record<Self>;

    /// The mutex in whose queue the calling thread, its owner, keeps its place: its address, 0 if there is
    /// none. What [`Platform::keep`] was last told.
    #[inline(always)]
    fn kept() -> usize {
        Self::current().map_or(0, |index| Self::record(index).own.kept.0.load(Relaxed))
    }

    /// The place. Asked for only where [`Platform::kept`] is not 0.
    fn kept_place() -> u32 {
        Self::current().map_or(0, |index| Self::record(index).own.kept.1.load(Relaxed))
    }

    /// See [`Platform::kept`]. A signal handler on the thread finds a mutex from the first step on.
    fn keep(mutex: usize, place: u32) {
        if let Some(index) = Self::current() {
            let kept = &Self::record(index).own.kept;
            kept.0.store(mutex, Relaxed);
            kept.1.store(place, Relaxed);
        }
    }

    /// Places that threads of one memory node share: as many for each of [`Platform::nodes`]. In a forked
    /// child they are as new.
    fn sides() -> &'static [Side<Self>] {
        &[]
    }

    /// How urgent the calling thread is: 0, unless it is scheduled by a fixed priority ("real-time"); then
    /// that, where more is more urgent. Asked once in each wait, before the thread queues. The answer may be
    /// out of date for a while where it is 0: it orders waiters, and nothing else rests on it.
    fn priority() -> u32 {
        0
    }

    /// A non-zero mark that a lock owner or a waiter publishes so that others can ask
    /// [`Platform::running`] about it; 0 if nothing is known.
    fn tag() -> u32;

    /// Whether the thread that published `tag` runs. A wrong answer costs time, never correctness.
    fn running(tag: u32) -> Running;

    /// How many CPUs the process may use, at least 1: constant for as long as there are locks.
    fn cpus() -> u32 {
        1
    }

    /// How many nodes the machine's memory has, at least 1: constant for as long as there are locks. A
    /// transfer of a cache line within a node takes a fraction of one between two.
    fn nodes() -> u32 {
        1
    }

    /// The node of the CPU on which the calling thread runs, below [`Platform::nodes`]. It may be another one
    /// by the time of the return: a wrong answer costs time, never correctness. Async-signal-safe.
    fn node() -> u32 {
        0
    }

    /// Where readers of readers-writer locks enter without a write to the lock: one table for the process,
    /// zero bytes at first, never unmapped. `None`: they never do.
    fn readers() -> Option<&'static Table<Self>> {
        None
    }

    /// A number below 2^27 that differs in a forked child from its parent's, and is 0 in a process that
    /// was not forked under this platform.
    fn epoch() -> u32;

    /// Stores 0 to `word`, with release ordering, if `unless` is 0; returns whether it did. Cheaper than a
    /// read-modify-write, and not one: other threads' accesses may come between the look at `unless` and the
    /// store. Only [`Platform::fence`] does not. A platform that cannot promise that always returns false.
    #[inline(always)]
    fn release(_word: &Self::U32, _unless: &Self::U32) -> bool {
        false
    }

    /// The asymmetric fence: returns when no thread is between the look and the store of a
    /// [`Platform::release`] any more. One that was there has stored, or looks again, and then sees what the
    /// caller wrote before the call. What those threads stored happens before the return. A platform that is
    /// refused a fence does nothing, and ends every [`Platform::wait`] after some milliseconds.
    #[inline(always)]
    fn fence() {}

    /// True only if no other thread exists, so that plain loads and stores will do.
    #[inline(always)]
    fn single_threaded() -> bool {
        false
    }

    /// Constants of a policy: the same ones for as long as there are locks, and so cheap to have that slow
    /// paths ask for each. A checker may return others, to make rare paths common.
    #[inline(always)]
    fn tuning<T: Tunable>() -> T {
        T::USER_SPACE
    }
}
