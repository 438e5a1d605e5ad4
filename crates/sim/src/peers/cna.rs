//! CNA: Dice and Kogan, "Compact NUMA-Aware Locks" (EuroSys 2019), with the paper's shuffle reduction ("CNA
//! opt"). An MCS queue whose owner passes the lock to the first waiter of its own node of memory. The waiters
//! before that one go to a secondary queue, which travels with the lock: its head in the owner's node, its
//! tail in its head's. The secondary queue goes to the front when the main queue has no waiter of the node,
//! and otherwise once in 65,536 releases, at random. While the secondary queue is empty, all but one in 256
//! releases with a waiter skip the search.
//!
//! Left out: nothing that figures depend on. Waiters spin for ever.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform};

use super::nodes::{Link, Nodes, mine};
use crate::Alone;
use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::Sim;
use crate::random;

/// One release in so many, and one, lets the secondary queue in: the paper's `THRESHOLD`.
pub(super) const KEPT: u32 = 0xffff;
/// One release in so many, and one, looks for a waiter of its node though none has been put aside: the
/// paper's `THRESHOLD2`.
pub(super) const UNSPLIT: u32 = 0xff;

/// In `turn`: it waits.
const WAITS: u32 = 0;
/// In `turn`: it has the lock, and the secondary queue is empty. Any other value is that queue's head.
const ALONE: u32 = 1;

#[derive(Default)]
struct Node {
    next: U32,
    turn: U32,
    /// The node of memory of the one that waits, and one; 0 if it came to a free lock and did not ask.
    home: U32,
    /// In the secondary queue's head: that queue's tail.
    last: U32,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Cna<const KEPT: u32, const UNSPLIT: u32> {
    tail: Alone<U32>,
    nodes: Nodes<Node>,
}

fn home() -> u32 {
    Sim::node() + 1
}

/// True but once in `most` and one, on average.
fn mostly(most: u32) -> bool {
    random(|random| random.u32(0..=most)) != 0
}

impl<const KEPT: u32, const UNSPLIT: u32> Cna<KEPT, UNSPLIT> {
    /// The first waiter of the owner's node of memory, if there is one; those before it go to the secondary
    /// queue.
    fn find(&self, node: &Node, next: Link) -> Option<Link> {
        let mine = match node.home.load(Relaxed) {
            0 => home(),
            home => home,
        };
        if self.nodes.get(next).home.load(Relaxed) == mine {
            return Some(next);
        }
        let (first, mut last) = (next, next);
        loop {
            let at = self.nodes.get(last).next.load(Relaxed);
            if at == 0 {
                return None;
            }
            if self.nodes.get(at).home.load(Relaxed) == mine {
                break;
            }
            last = at;
        }
        let found = self.nodes.get(last).next.load(Relaxed);
        let aside = match node.turn.load(Relaxed) {
            ALONE => {
                node.turn.store(first, Relaxed);
                first
            }
            aside => {
                let tail = self.nodes.get(aside).last.load(Relaxed);
                self.nodes.get(tail).next.store(first, Relaxed);
                aside
            }
        };
        self.nodes.get(last).next.store(0, Relaxed);
        self.nodes.get(aside).last.store(last, Relaxed);
        Some(found)
    }

    fn pass(&self, to: Link, turn: u32) {
        self.nodes.get(to).turn.store(turn, Relaxed);
    }
}

impl<const KEPT: u32, const UNSPLIT: u32> Lock for Cna<KEPT, UNSPLIT> {
    fn lock(&self) {
        let me = mine();
        let node = self.nodes.get(me);
        node.next.store(0, Relaxed);
        node.home.store(0, Relaxed);
        node.turn.store(WAITS, Relaxed);
        let front = self.tail.0.swap(me, Relaxed);
        if front == 0 {
            node.turn.store(ALONE, Relaxed);
            return;
        }
        node.home.store(home(), Relaxed);
        self.nodes.get(front).next.store(me, Relaxed);
        while node.turn.load(Relaxed) == WAITS {
            Sim::relax();
        }
    }

    fn unlock(&self) {
        let me = mine();
        let node = self.nodes.get(me);
        let aside = node.turn.load(Relaxed);
        if node.next.load(Relaxed) == 0 {
            // The main queue ends here: the secondary one takes its place, if there is one.
            let tail = if aside == ALONE { 0 } else { self.nodes.get(aside).last.load(Relaxed) };
            if self.tail.0.compare_exchange(me, tail, Relaxed, Relaxed).is_ok() {
                if aside != ALONE {
                    self.pass(aside, ALONE);
                }
                return;
            }
        }
        let next = loop {
            match node.next.load(Relaxed) {
                0 => Sim::relax(),
                next => break next,
            }
        };
        if aside == ALONE && mostly(UNSPLIT) {
            return self.pass(next, ALONE);
        }
        let found = if mostly(KEPT) { self.find(node, next) } else { None };
        if let Some(found) = found {
            self.pass(found, node.turn.load(Relaxed));
        } else if aside != ALONE {
            // All of the secondary queue comes before all of the main one.
            let last = self.nodes.get(aside).last.load(Relaxed);
            self.nodes.get(last).next.store(next, Relaxed);
            self.pass(aside, ALONE);
        } else {
            self.pass(next, ALONE);
        }
    }

    fn is_free(&self) -> bool {
        self.tail.0.peek() == 0
    }
}
