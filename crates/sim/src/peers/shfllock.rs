//! ShflLock's blocking form: Kashyap, Calciu, Cheng, Min and Kim, "Scalable and Practical Locking with
//! Shuffling" (SOSP 2019). A test-and-set word, and an MCS queue behind it. The queue's head competes for the
//! word, and whoever gets the word passes the headship on at once. One waiter, the shuffler, moves waiters of
//! its own node of memory to its side, wakes those that are parked, and passes that office to the last of
//! them. A batch ends at a bound. A release is a store to the word.
//!
//! As in the user-space form that the authors released, a newcomer may take a free word past the queue, and
//! waiters park when their budget, here the platform's, is used up: all but the shuffler, and those that it
//! woke. The kernel's form asks its scheduler instead. Left out: where the last shuffler stopped (an
//! optimisation of the kernel's form), and the forms for readers and writers.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Spin};

use super::nodes::{Link, Nodes, grant, mine, park, waiter};
use crate::Alone;
use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::{Budget, Sim};

/// How many waiters of a node of memory are moved together: the paper's `MAX_SHUFFLES`.
pub(super) const BATCH: u32 = 1024;

#[derive(Default)]
struct Node {
    next: U32,
    state: U32,
    home: U32,
    /// Its place in its batch; 0 if it is in none.
    batch: U32,
    /// 1 if it is to shuffle. Set by the shuffler before it.
    shuffles: U32,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Shfllock<const BATCH: u32> {
    held: Alone<U32>,
    tail: Alone<U32>,
    nodes: Nodes<Node>,
}

impl<const BATCH: u32> Shfllock<BATCH> {
    fn try_lock(&self) -> bool {
        self.held.0.load(Relaxed) == 0 && self.held.0.compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
    }

    /// Waits until it is the queue's head.
    fn wait(&self, me: Link, node: &Node) {
        let mut budget = Budget::fresh();
        let mut parks = true;
        while node.state.load(Relaxed) != waiter::READY {
            if node.shuffles.load(Relaxed) != 0 {
                parks = false;
                self.shuffle(me, node, || node.state.load(Relaxed) == waiter::READY);
            }
            if !budget.spin() {
                if core::mem::replace(&mut parks, true) {
                    park(&node.state);
                }
                budget = Budget::fresh();
            }
        }
    }

    /// Moves waiters of the same node of memory behind `node`, until `is_over` or there are no more.
    fn shuffle(&self, me: Link, node: &Node, is_over: impl Fn() -> bool) {
        let mut batch = node.batch.load(Relaxed);
        if batch == 0 {
            batch = 1;
            node.batch.store(batch, Relaxed);
        }
        node.shuffles.store(0, Relaxed);
        let home = node.home.load(Relaxed);
        // The last of the batch, and the one before the waiter that is looked at.
        let (mut last, mut before) = (me, me);
        while batch < BATCH {
            let at = self.nodes.get(before).next.load(Relaxed);
            // The last one is left where it is: another may be about to link itself behind it.
            if at == 0 || at == self.tail.0.load(Relaxed) {
                break;
            }
            let waiter = self.nodes.get(at);
            if waiter.home.load(Relaxed) != home {
                before = at;
            } else if before == last {
                batch += 1;
                self.join(waiter, batch);
                (last, before) = (at, at);
            } else {
                let next = waiter.next.load(Relaxed);
                if next == 0 {
                    break;
                }
                batch += 1;
                let end = self.nodes.get(last);
                self.nodes.get(before).next.store(next, Relaxed);
                waiter.next.store(end.next.load(Relaxed), Relaxed);
                end.next.store(at, Relaxed);
                self.join(waiter, batch);
                last = at;
            }
            if is_over() {
                break;
            }
        }
        if batch < BATCH {
            self.nodes.get(last).shuffles.store(1, Relaxed);
        }
    }

    /// A waiter has joined the batch: it is woken in time for its turn.
    fn join(&self, node: &Node, batch: u32) {
        node.batch.store(batch, Relaxed);
        if node.state.load(Relaxed) == waiter::PARKED
            && node.state.compare_exchange(waiter::PARKED, waiter::STAYS, Relaxed, Relaxed).is_ok()
        {
            Sim::wake(&node.state, 1);
        }
    }

    /// Leaves the queue, and makes the next the head.
    fn leave(&self, me: Link, node: &Node) {
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
}

impl<const BATCH: u32> Lock for Shfllock<BATCH> {
    fn lock(&self) {
        if self.try_lock() {
            return;
        }
        let me = mine();
        let node = self.nodes.get(me);
        node.next.store(0, Relaxed);
        node.state.store(waiter::SPINS, Relaxed);
        node.batch.store(0, Relaxed);
        node.shuffles.store(0, Relaxed);
        node.home.store(Sim::node(), Relaxed);
        let front = self.tail.0.swap(me, Relaxed);
        if front != 0 {
            self.nodes.get(front).next.store(me, Relaxed);
            self.wait(me, node);
        }
        while !self.try_lock() {
            if node.batch.load(Relaxed) == 0 || node.shuffles.load(Relaxed) != 0 {
                self.shuffle(me, node, || self.held.0.load(Relaxed) == 0);
            }
            Sim::relax();
        }
        self.leave(me, node);
    }

    fn unlock(&self) {
        self.held.0.store(0, Relaxed);
    }

    fn is_free(&self) -> bool {
        self.held.0.peek() == 0 && self.tail.0.peek() == 0
    }
}
