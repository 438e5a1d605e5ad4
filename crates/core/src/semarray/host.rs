//! What a semaphore array may ask of its machine, beyond what a lock asks.

use crate::atomic::Atomics;
use crate::platform::{Platform, Waited};

/// A process that uses arrays, as it is known to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its place in the table of processes, below [`Process::SLOTS`]. It is not given to another before every
    /// array has been told by [`reap`](super::Array::reap) that this process is gone.
    pub slot: u32,
    /// Its process number, for `GETPID`.
    pub id: u32,
}

impl Process {
    /// How many processes there can be.
    pub const SLOTS: u32 = (1 << 15) - 1;
}

/// A word of an array.
pub type Word<H> = <<H as Host>::Platform as Atomics>::U32;

/// What knows about processes, beside a [`Platform`] whose words may lie in memory that they share.
pub trait Host: 'static {
    /// How threads run, and what words are.
    type Platform: Platform;

    /// Sleeps while `word` holds `expected`, for at most that many nanoseconds; [`u64::MAX`] only if
    /// [`interrupts`](Host::interrupts) says so, and then without end. As [`Platform::wait`] otherwise, but
    /// across processes; and a signal handler that runs always ends it with [`Waited::Interrupted`].
    fn wait_shared(word: &Word<Self>, expected: u32, nanoseconds: u64) -> Waited;

    /// As [`Platform::wake`], but across processes.
    fn wake_shared(word: *const Word<Self>, count: u32);

    /// As [`Host::wait_shared`], as one of up to 32 on a word that are told apart by a bit.
    fn wait_shared_as(word: &Word<Self>, expected: u32, _bit: u32, nanoseconds: u64) -> Waited {
        Self::wait_shared(word, expected, nanoseconds)
    }

    /// Whether a signal handler ends a wait without end just as one with an end. False is always right, and
    /// costs a timer a sleep. Whenever it becomes false, [`rouse`](super::Array::rouse) is called on every
    /// array.
    fn interrupts() -> bool {
        false
    }

    /// Wakes those that wait on the word as one of these bits; others may wake for no reason.
    fn wake_shared_as(word: *const Word<Self>, _bits: u32) {
        Self::wake_shared(word, u32::MAX);
    }

    /// How often a thread that releases the lock serves later requests before it leaves that to one of the
    /// requesters (combining).
    const MOST_ROUNDS: u32 = 64;

    /// This many sleepers elsewhere are worth a delegate, which wakes them by a call of its own.
    const LEAST_DUTY: u32 = 2;

    /// Sleepers with records from this one on may have another look for them; the others look for themselves,
    /// for the cost of a timer. Where few sleep, almost each one that leaves is the sentinel, and the wake-up
    /// of a successor that sleeps without end would be as frequent as those of sleepers that proceed.
    const FIRST_RELIANT: u32 = 8;

    /// Where the calling thread will be woken, and how urgently: one of the threads with the same answer can
    /// wake the others. 0: the thread that lets it proceed is to wake it.
    fn place() -> u32 {
        0
    }

    /// Whether the calling thread is there, so that nobody wakes those of that [`place`](Host::place) for
    /// less.
    fn is_here(place: u32) -> bool {
        Self::place() == place
    }

    /// The calling process, registered on first use and again after a fork. `None` if the table is full.
    fn process() -> Option<Process>;

    /// Whether the process of that slot has ended, all of its threads. False if in doubt. If true, everything
    /// that it wrote happens before the return.
    fn gone(slot: u32) -> bool;

    /// Whether none of the threads runs any more that the process had when it registered: it has ended, or it
    /// runs another program since (exec), which has not registered yet. What they held and waited for has no
    /// owner then; the adjustments stay until it is [`gone`](Host::gone). False if in doubt. If true,
    /// everything that those threads wrote happens before the return.
    fn owner_died(slot: u32) -> bool {
        Self::gone(slot)
    }

    /// Calls `act`. Before it returns, no process gets the place of a process that is
    /// [`owner_died`](Host::owner_died): its slot is given to no other, and a new program of it does not
    /// register. So a word that names a dead owner's slot, if it is read and found unchanged within `act`,
    /// means the same threads both times. No signal handler runs on the calling thread meanwhile.
    ///
    /// The default is for a host in which no process ever takes such a place.
    fn taking_over<R>(act: impl FnOnce() -> R) -> R {
        act()
    }

    /// Wall-clock time in seconds.
    fn seconds() -> u64;

    /// Makes sure that these words, zero so far if they were never written, can be written. False: there is
    /// no memory.
    fn provide(memory: &[Word<Self>]) -> bool;
}
