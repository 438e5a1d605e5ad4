//! Lock events: what happens in the slow paths of the locks, for programs that count it.
//!
//! Of the spinlock, the counters that Waiman Long's series collects for its paravirtual lock ("qspinlock: a
//! 4-byte queue spinlock with PV support", 2015), and counters of what is different here. A lock reports each
//! to an [`Observer`], in slow paths only; the platform decides how to keep them, if at all.

/// Counts lock events, and has a clock for durations. All of it may be left out.
pub trait Observer {
    /// Whether lock events are counted at present.
    #[inline(always)]
    fn counting() -> bool {
        false
    }

    /// Counts an event, and for those that are durations their `amount` in nanoseconds. Called in slow paths
    /// only, and only if [`Observer::counting`].
    #[inline(always)]
    fn count(_event: Event, _amount: u64) {}

    /// Nanoseconds since some fixed point: for durations, in slow paths. Without it no long-term fairness
    /// slice ends.
    #[inline(always)]
    fn now() -> u64 {
        0
    }
}

macro_rules! events {
    ($($family:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)* })*) => {
        /// Something that a lock does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Event {
            $($($(#[$doc])* $name,)*)*
        }

        impl Event {
            /// Every event, in the order of its discriminants: `ALL[event as usize] == event`.
            pub const ALL: &'static [Event] = &[$($(Event::$name),*),*];

            /// What it is called in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Event::$name => $text,)*)*
                }
            }

            /// To which sort of lock it happens.
            pub const fn family(self) -> Family {
                match self {
                    $($(Event::$name)|* => Family::$family,)*
                }
            }
        }
    };
}

events! {
    Spinlock {
        /// A lock call that did not find the lock free.
        SlowPath = "slow paths",
        /// Acquired by the one waiter that spins on the word itself.
        PendingHit = "pending hits",
        /// Queued on the first node of the thread.
        Level1 = "queued at level 1",
        /// Queued on the second node: in a signal handler, while the thread waits.
        Level2 = "queued at level 2",
        /// Queued on the third node.
        Level3 = "queued at level 3",
        /// Queued on the fourth node.
        Level4 = "queued at level 4",
        /// Waited without a node: a fifth level, or an index beyond the layout's.
        NoNode = "waits without a node",
        /// Acquired past a queue of others.
        Steal = "steals",
        /// Look-ups in the lock hash: insertions and removals.
        HashLookup = "hash look-ups",
        /// Entries looked at in the lock hash beyond the first.
        HashHop = "hash hops",
        /// The queue head was halted by its own choice, its budget used up.
        WaitHead = "halts at the head",
        /// A waiter in the queue was halted.
        WaitNode = "halts in the queue",
        /// Of those, the ones that were made early because the waiter in front did not run.
        WaitEarly = "early halts, predecessor not running",
        /// A waiter woke up and had to halt again.
        WaitAgain = "halts repeated",
        /// A waiter woke up without a kick.
        SpuriousWakeup = "spurious wake-ups",
        /// Headship was passed to a halted waiter, which the passer hashed.
        HashedByPasser = "headships passed to the halted",
        /// An unlock kicked the queue head.
        KickUnlock = "kicks at unlock",
        /// An unlock left the halted head to a later one, because a running waiter was about to take the
        /// lock.
        Pass = "unlocks that left the head halted",
        /// The head reserved the next acquisition after many vain ones.
        Reservation = "reservations by the head",
        /// An unlock left the lock to the head alone that it kicked, after still more of them.
        LeftToHead = "unlocks for the head alone",
        /// How long a kick took the kicker, in nanoseconds.
        KickLatency = "kick latency",
        /// From a kick until the kicked waiter ran, in nanoseconds.
        WakeLatency = "wake latency",
    }
    Handoff {
        /// A hand-off mutex was handed to a queued waiter, who was woken for it.
        HandOver = "hand-overs",
        /// A hand-off mutex was left as a token, as no waiter had queued.
        TokenLeft = "tokens left",
        /// A waiter of a hand-off mutex gave up, and left its node in the queue.
        GaveUp = "waits given up",
        /// ... and came back to it in its old place.
        TakenUp = "waits taken up again",
        /// A waiter of a condition variable was sent to a hand-off mutex.
        LockSent = "locks sent",
    }
    ReadersWriter {
        /// A reader did not get into a readers-writer lock at once, nor soon, and queued.
        ReaderQueued = "readers queued",
        /// The same of a writer, or of a reader that may become one.
        WriterQueued = "writers queued",
        /// The head of a readers-writer lock's queue began to keep newcomers out.
        Barring = "newcomers barred",
        /// A writer found that readers may be in the table, and moved them to the lock.
        Drain = "tables drained",
        /// The queue's head slept.
        HeadSleep = "sleeps at the queue's head",
        /// A waiter further back did.
        QueueSleep = "sleeps in the queue",
        /// A waiter's deadline passed, and it left the queue.
        QueueLeft = "queues left",
    }
    Mutex {
        /// A lock call found the default or an adaptive mutex held.
        FoundHeld = "calls that found it held",
        /// ... and acquired it without a sleep.
        Spun = "acquired by spinning",
        /// The designated waker of the default mutex parked for a set time, as others took the mutex all the
        /// time.
        TimedSleep = "sleeps for a set time",
        /// A waiter slept in the list until it was woken.
        Sleep = "sleeps until woken",
        /// An unlock woke the first sleeper.
        Woken = "sleepers woken",
        /// A woken sleeper found the mutex taken, and slept again.
        WokenInVain = "sleepers woken in vain",
        /// An unlock made the first sleeper the owner.
        HandedToSleeper = "handed to a sleeper",
    }
}

/// The sorts of locks to which events happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The queue spinlock.
    Spinlock,
    /// The hand-off mutex.
    Handoff,
    /// The readers-writer lock.
    ReadersWriter,
    /// The default mutex, and the adaptive one.
    Mutex,
}

impl Event {
    /// Whether it comes with a duration in nanoseconds.
    pub const fn is_duration(self) -> bool {
        matches!(self, Event::KickLatency | Event::WakeLatency)
    }

    pub(crate) const fn queued_at(level: u32) -> Event {
        match level {
            0 => Event::Level1,
            1 => Event::Level2,
            2 => Event::Level3,
            _ => Event::Level4,
        }
    }
}

#[inline]
pub(crate) fn count<P: Observer>(event: Event) {
    if P::counting() {
        P::count(event, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn discriminants_are_places_in_the_list() {
        for (place, event) in Event::ALL.iter().enumerate() {
            assert_eq!(*event as usize, place);
        }
    }
}
