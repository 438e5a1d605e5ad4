//! The nodes with which threads wait for one lock: one a thread, each in a line of its own.

use std::cell::OnceCell;
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Until};

use crate::Alone;
use crate::atomic::U32;
use crate::platform::{Budget, Sim};

/// Node `n` lies in chunk `log2(n + 1)`: chunks of 1, 2, 4, ... nodes, made when a thread first asks, which
/// takes no simulated time.
const CHUNKS: usize = 16;

/// See the module's documentation.
pub(super) struct Nodes<T>([OnceCell<Box<[Alone<T>]>>; CHUNKS]);

impl<T> Default for Nodes<T> {
    fn default() -> Self {
        Nodes(Default::default())
    }
}

/// A node's name in a word. 0 and 1 name none.
pub(super) type Link = u32;

/// The calling thread's node.
pub(super) fn mine() -> Link {
    // Every simulated thread has an index.
    Sim::current().unwrap_or(0) + 2
}

impl<T: Default> Nodes<T> {
    /// The node of this name.
    pub(super) fn get(&self, link: Link) -> &T {
        let number = link as usize - 1;
        let chunk = number.ilog2() as usize;
        let nodes = self.0[chunk].get_or_init(|| (0..1 << chunk).map(|_| Alone::default()).collect());
        &nodes[number - (1 << chunk)].0
    }
}

/// The states of a waiter that may park.
pub(super) mod waiter {
    /// It spins, or is about to park.
    pub(crate) const SPINS: u32 = 0;
    /// It sleeps, or is about to.
    pub(crate) const PARKED: u32 = 1;
    /// It was woken before its turn, and spins until that comes.
    pub(crate) const STAYS: u32 = 3;
    /// Its turn has come.
    pub(crate) const READY: u32 = 2;
}

/// Parks, if it has not been told anything meanwhile; returns when its state is no longer [`waiter::PARKED`].
pub(super) fn park(state: &U32) {
    if state.compare_exchange(waiter::SPINS, waiter::PARKED, Relaxed, Relaxed).is_ok() {
        while state.load(Relaxed) == waiter::PARKED {
            Sim::wait(state, waiter::PARKED, Until::Woken);
        }
    }
}

/// Tells a waiter that its turn has come, and wakes it if it is parked.
pub(super) fn grant(state: &U32) {
    if state.swap(waiter::READY, Relaxed) == waiter::PARKED {
        Sim::wake(state, 1);
    }
}

/// Looks at a word until it is no longer `value`, or that many times. Returns the last value.
pub(super) fn look(word: &U32, value: u32, times: u32) -> u32 {
    let mut budget = Budget::of_turns(times);
    loop {
        let now = word.load(Relaxed);
        if now != value || !poundlock_core::platform::Spin::spin(&mut budget) {
            return now;
        }
    }
}
