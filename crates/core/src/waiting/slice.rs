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
    }
}
