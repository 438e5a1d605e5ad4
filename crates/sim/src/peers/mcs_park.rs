//! An MCS lock whose waiters park: Mellor-Crummey and Scott's queue (ACM TOCS 1991) with spin-then-park
//! waiting, as in "MCS-STP" of Dice, "Malthusian Locks" (EuroSys 2017). A waiter spins for the platform's
//! budget, then parks. The release hands the lock to the next in the queue, and wakes it if it is parked:
//! strictly first come, first served, whether that one has a CPU or not.
//!
//! Left out: nothing that figures depend on.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Spin};

use super::nodes::{Link, Nodes, grant, mine, park, waiter};
use crate::Alone;
use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::{Budget, Sim};

#[derive(Default)]
struct Node {
    next: U32,
    state: U32,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct McsPark {
    tail: Alone<U32>,
    nodes: Nodes<Node>,
}

impl McsPark {
    fn wait(state: &U32) {
        let mut budget = Budget::fresh();
        while state.load(Relaxed) != waiter::READY {
            if !budget.spin() {
                return park(state);
            }
        }
    }
}

impl Lock for McsPark {
    fn lock(&self) {
        let me: Link = mine();
        let node = self.nodes.get(me);
        node.next.store(0, Relaxed);
        node.state.store(waiter::SPINS, Relaxed);
        let front = self.tail.0.swap(me, Relaxed);
        if front != 0 {
            self.nodes.get(front).next.store(me, Relaxed);
            Self::wait(&node.state);
        }
    }

    fn unlock(&self) {
        let me = mine();
        let node = self.nodes.get(me);
        if node.next.load(Relaxed) == 0 && self.tail.0.compare_exchange(me, 0, Relaxed, Relaxed).is_ok() {
            return;
        }
        loop {
            match node.next.load(Relaxed) {
                0 => Sim::relax(),
                next => return grant(&self.nodes.get(next).state),
            }
        }
    }

    fn is_free(&self) -> bool {
        self.tail.0.peek() == 0
    }
}
