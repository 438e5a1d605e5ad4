//! Long-term fairness slices: how long a thread may use locks that others wait for without a CPU.
//!
//! A thread that runs gets a lock more easily than one that sleeps. So that everybody has a turn, a thread
//! that has used such locks for a slice of time lets others go first: it wakes a sleeper, or yields. The
//! thread's record knows since when.

use core::sync::atomic::Ordering::Relaxed;

use crate::node::Record;
use crate::platform::{Atomic, Platform};

impl<P: Platform> Record<P> {
    /// Whether the slice of the calling thread, whose record it is, is over: when it has been at it for so
    /// many nanoseconds. It is told so once in each slice. Where it was not asked for twice as long, it had
    /// no CPU, or better things to do, and the slice begins anew.
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
