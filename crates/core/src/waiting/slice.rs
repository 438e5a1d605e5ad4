//! Long-term fairness slices: how long a thread may use locks that others wait for without a CPU.
//!
//! A running thread gets a lock more easily than a sleeper. So that every thread has a turn, one that has
//! used such locks for a slice of time lets others go first: it wakes a sleeper, or yields. The thread's
//! record knows since when.

use core::sync::atomic::Ordering::Relaxed;

use crate::node::Record;
use crate::platform::{Atomic, Platform};

impl<P: Platform> Record<P> {
    /// Whether the slice of the calling thread, whose record it is, is over: when it has used such locks for
    /// that many nanoseconds. True once in each slice. After twice that time without a call it had no CPU, or
    /// was busy elsewhere, and the slice begins anew.
    pub(crate) fn ends_slice(&self, nanoseconds: usize) -> bool {
        let now = (P::now() as usize & !1).max(2);
        let began = self.slice.load(Relaxed);
        let fresh = began == 0 || now.wrapping_sub(self.asked.load(Relaxed)) > nanoseconds.saturating_mul(2);
        let over = !fresh && now.wrapping_sub(began & !1) >= nanoseconds;
        self.asked.store(now, Relaxed);
        if over || fresh {
            self.slice.store(now | usize::from(over), Relaxed);
        }
        over
    }

    /// Whether the calling thread, which has left a readers-writer lock, is to ask for the time: once in two
    /// to this power.
    pub(crate) fn leaves_often(&self, logarithm: u32) -> bool {
        let left = self.left.load(Relaxed).wrapping_add(1);
        self.left.store(left, Relaxed);
        left & ((1 << logarithm) - 1) == 0
    }

    /// Whether the calling thread's slice is over, and it has not slept since.
    pub(crate) fn is_relieved(&self) -> bool {
        self.slice.load(Relaxed) & 1 != 0
    }

    /// The calling thread is about to sleep, or yields: the next slice begins when it comes back.
    pub(crate) fn rests(&self) {
        self.slice.store(0, Relaxed);
        self.own.turns.store(0, Relaxed);
    }

    /// The calling thread is to sleep when it next finds a lock held from others.
    pub(crate) fn relieve(&self) {
        self.slice.store(P::now() as usize | 1, Relaxed);
    }

    /// The calling thread, whose record it is, passes on a crowded mutex, which the queue has granted that
    /// often. Whether it is to ask if a sleeper should have its turn instead: when it has had as many as
    /// `least`, and has been awake for most of the time in which all that are awake are relieved, one each
    /// `apart` nanoseconds. So all have about as many turns.
    pub(crate) fn has_had_its_turns(&self, granted: u32, least: u32, apart: u32) -> bool {
        let own = &self.own;
        let turns = own.turns.load(Relaxed).wrapping_add(1);
        own.turns.store(turns, Relaxed);
        let [last, since] = &own.granted;
        // The count begins anew when the mutex was released meanwhile.
        let more = granted.checked_sub(last.load(Relaxed)).unwrap_or(granted);
        last.store(granted, Relaxed);
        since.store(if turns == 1 { 0 } else { since.load(Relaxed).wrapping_add(more) }, Relaxed);
        if turns == 1 {
            own.began.store(P::now() as usize, Relaxed);
        }
        // To ask costs a look at a line of the side's, and who has had many does not mind a few more. Not
        // always the same ones, where threads come in one order again and again.
        let asks = turns >= least && (turns <= 2 * least || (turns + granted / 61).is_multiple_of(4));
        asks && {
            // As many owners as that for each of its turns: that is how many are awake.
            let awake = since.load(Relaxed) / (turns - 1).max(1);
            let round = (awake as usize).saturating_mul(apart as usize);
            (P::now() as usize).wrapping_sub(own.began.load(Relaxed)) >= round / 4 * 3
        }
    }
}
