//! The order of the queue on a machine with several nodes of memory: waiters of one node go one after
//! another, because between them the lock and what it protects stay in that node's caches.
//!
//! The idea is that of CNA (Dice and Kogan, "Compact NUMA-Aware Locks", EuroSys 2019), which keeps the lock
//! at the size of a plain queue lock: the waiters that were passed over stand in a second queue, in their own
//! nodes, and the queue head carries it along. While it waits for the lock, the head looks along the queue
//! for a waiter of its own node, and sets those before it aside. Otherwise the forms are what they are
//! without.
//!
//! Unlike CNA's, a batch has a bound in time, and looks must pay: each adds to a debt, each waiter that
//! follows one of its own node takes from it. If debt is left when a batch ends, or a look finds nobody, no
//! head looks for a while, each time twice as long. So where each node has a waiter or two the queue is the
//! plain one.
//!
//! # Words of a spin node
//!
//! | word | here | written by |
//! | --- | --- | --- |
//! | `priority` | [`home`]: the node of memory that its thread came from | its thread, before it is linked |
//! | `before` | [`aside`]: the last of those set aside, a [`NodeId`]; 0: none | who passes headship to it |
//! | `after` | [`since`]: when the first of them was, in units of 1024 ns | who passes headship to it |
//! | `bypasses` | [`told`]: a [`Told`] | who passes headship to it |
//! | `next` | of the last one set aside: the first one | the head |
//!
//! # Invariants
//!
//! * **ONE PLACE.** A waiter that has a place is in the queue, which begins behind the head, or among those
//!   set aside, a circle that only the head knows; never in both. Only the head moves it.
//! * **LAST STAYS.** The last waiter of the queue, which the lock's tail names, is not moved: one that comes
//!   writes its link there. So only a waiter whose link is there is set aside, and nobody but the head writes
//!   its `next` from then on.
//! * **OPEN.** The circle is opened, its last waiter's `next` 0, before the tail names that one; until then
//!   the head may close it again.
//! * **ALL BACK.** A head leaves none aside: it passes them to the next head, puts them before the rest of
//!   the queue, or, where there is no rest, makes them the queue in one step with its own leaving.
//! * **BOUND.** The first head that comes when [`Tuning::batch`] has passed since the first waiter was set
//!   aside puts all of them to the front, in the order in which they stood in the queue, and the first of
//!   them is the next head. So each waiter is passed over in at most as many batches as waiters were before
//!   it. A head looks at no more than [`LOOKS_A_NODE`] waiters for each node of the machine.
//!
//! Models: crates/model/tests/models/qspin_numa.rs

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Tuning;
use crate::node::{Held, Node, NodeId};
use crate::platform::{Atomic, Platform};

/// How many waiters a head looks at, for each node of the machine. Where waiters of `n` nodes stand in random
/// order, 4 n of them are all of other nodes once in e^4 = 55 times.
const LOOKS_A_NODE: u32 = 4;
/// How many looks a waiter pays for that follows one of its own node. Between them the lock's word, the node
/// and what the lock protects stay near; each look fetches a line from afar. Nobody takes the lock while the
/// head looks for longer than the lock is held.
pub(super) const PAID_ALONE: u16 = 2;
/// The same, where others may take the lock while the head looks.
pub(super) const PAID: u16 = 16;

fn home<P: Platform>(node: &Node<P>) -> &P::U32 {
    &node.priority
}

fn aside<P: Platform>(node: &Node<P>) -> &P::U32 {
    &node.before
}

fn since<P: Platform>(node: &Node<P>) -> &P::U32 {
    &node.after
}

fn told<P: Platform>(node: &Node<P>) -> &P::U32 {
    node.bypasses()
}

/// What a head is told besides, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    /// How many heads are not to look.
    pause: u8,
    /// How many they were at first.
    whole_pause: u8,
    /// It stood aside, and was the first to come back.
    front: bool,
    /// What looks have cost since the first was set aside, less what they saved; 0 at least.
    debt: u16,
}

impl Told {
    fn of(word: u32) -> Told {
        let [pause, whole_pause, low, high] = word.to_le_bytes();
        let debt = u16::from_le_bytes([low, high]);
        Told { pause, whole_pause, front: debt & 1 != 0, debt: debt >> 1 }
    }

    fn to_word(self) -> u32 {
        let [low, high] = (self.debt.min(u16::MAX >> 1) << 1 | u16::from(self.front)).to_le_bytes();
        u32::from_le_bytes([self.pause, self.whole_pause, low, high])
    }

    /// Looks have not paid.
    fn pause_longer(&mut self) {
        self.whole_pause = self.whole_pause.saturating_mul(2).saturating_add(1);
        self.pause = self.whole_pause;
    }
}

/// The time, in units of 1024 ns; it comes round after 73 minutes.
fn now<P: Platform>() -> u32 {
    (P::now() >> 10) as u32
}

/// Makes the node that of a waiter who is about to queue.
pub(super) fn arrive<P: Platform>(node: &Node<P>) {
    // Relaxed: whoever looks has found the node by its link.
    home(node).store(P::node(), Relaxed);
    aside(node).store(0, Relaxed);
    told(node).store(0, Relaxed);
}

/// What a head has to see to when it leaves.
pub(super) struct Batch {
    home: u32,
    /// The last of those set aside.
    last: Option<NodeId>,
    /// When the first of them was.
    since: u32,
    /// They have stood there for long enough.
    over: bool,
    told: Told,
    /// How many looks it pays for that a waiter is of the head's node.
    paid: u16,
}

impl Batch {
    /// What the caller has become the head of; and looks for a waiter of its own node.
    pub(super) fn take<P: Platform>(held: &Held<P>, paid: u16) -> Batch {
        let node = held.node();
        // Relaxed, all: written by the caller, or before headship was passed to it.
        let last = NodeId::from_raw(aside(node).load(Relaxed));
        let mut batch = Batch {
            home: home(node).load(Relaxed),
            last,
            since: since(node).load(Relaxed),
            over: false,
            told: Told::of(told(node).load(Relaxed)),
            paid,
        };
        if last.is_some() {
            batch.over = now::<P>().wrapping_sub(batch.since) >= P::tuning::<Tuning>().batch;
            if !batch.over {
                batch.look(held);
            }
        } else if let Some(left) = batch.told.pause.checked_sub(1) {
            batch.told.pause = left;
        } else {
            batch.told.debt = 0;
            batch.look(held);
            if batch.last.is_none() && batch.told.debt > 0 {
                batch.told.pause_longer();
            }
        }
        batch
    }

    /// Whether the caller stood aside, and was the first to come back: it has waited for long, and threads of
    /// other nodes that came later have not.
    pub(super) fn is_front(&self) -> bool {
        self.told.front
    }

    /// Looks for a waiter of the head's node, and sets those before it aside.
    fn look<P: Platform>(&mut self, held: &Held<P>) {
        let own = held.node();
        // Acquire, also below: partner of the links.
        let Some(first) = NodeId::from_raw(own.next.load(Acquire)) else { return };
        let mut at = first;
        let mut before = None;
        for _ in 0..P::nodes().saturating_mul(LOOKS_A_NODE) {
            let node = at.get::<P>();
            if home(node).load(Relaxed) == self.home {
                if let Some(before) = before {
                    self.set_aside::<P>(first, before);
                    // Relaxed: read by this thread only, until the node is in another wait.
                    own.next.store(at.raw(), Relaxed);
                }
                return;
            }
            self.told.debt = self.told.debt.saturating_add(1);
            // LAST STAYS
            let Some(behind) = NodeId::from_raw(node.next.load(Acquire)) else { return };
            before = Some(at);
            at = behind;
        }
    }

    /// ONE PLACE: `first` to `last` of the queue come after those that stand aside already.
    fn set_aside<P: Platform>(&mut self, first: NodeId, last: NodeId) {
        // Relaxed, all: whoever reads them was passed headship after this.
        match self.last {
            None => {
                last.get::<P>().next.store(first.raw(), Relaxed);
                self.since = now::<P>();
            }
            Some(old) => {
                let old = old.get::<P>();
                last.get::<P>().next.store(old.next.load(Relaxed), Relaxed);
                old.next.store(first.raw(), Relaxed);
            }
        }
        self.last = Some(last);
    }

    /// OPEN: the first and the last of those set aside, who are a queue now.
    pub(super) fn open<P: Platform>(&self) -> Option<(NodeId, NodeId)> {
        let last = self.last?;
        let node = last.get::<P>();
        let first = NodeId::from_raw(node.next.load(Relaxed))?;
        // Relaxed: before the tail names it, by a release.
        node.next.store(0, Relaxed);
        Some((first, last))
    }

    /// OPEN: undoes it.
    pub(super) fn close<P: Platform>((first, last): (NodeId, NodeId)) {
        last.get::<P>().next.store(first.raw(), Relaxed);
    }

    /// ALL BACK: who is the next head, `next` being the first in the queue. It is to be told by a release.
    pub(super) fn pass<P: Platform>(mut self, next: NodeId) -> NodeId {
        let node = next.get::<P>();
        let Some(last) = self.last else {
            told(node).store(Told { front: false, debt: 0, ..self.told }.to_word(), Relaxed);
            return next;
        };
        if !self.over && home(node).load(Relaxed) == self.home {
            aside(node).store(last.raw(), Relaxed);
            since(node).store(self.since, Relaxed);
            let debt = self.told.debt.saturating_sub(self.paid);
            told(node).store(Told { front: false, debt, ..self.told }.to_word(), Relaxed);
            return next;
        }
        let last = last.get::<P>();
        let first = NodeId::from_raw(last.next.load(Relaxed)).unwrap_or(next);
        last.next.store(next.raw(), Relaxed);
        self.pass_to_front(first.get::<P>());
        first
    }

    /// The first of those set aside comes back.
    pub(super) fn pass_to_front<P: Platform>(&mut self, first: &Node<P>) {
        if self.told.debt > 0 {
            self.told.pause_longer();
        } else {
            (self.told.pause, self.told.whole_pause) = (0, 0);
        }
        told(first).store(Told { front: true, debt: 0, ..self.told }.to_word(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Told;

    #[test]
    fn what_a_head_is_told_fits_in_a_word() {
        for (pause, whole_pause) in [(0, 0), (1, 3), (255, 255)] {
            for front in [false, true] {
                for debt in [0, 1, 500, u16::MAX >> 1] {
                    let told = Told { pause, whole_pause, front, debt };
                    assert_eq!(Told::of(told.to_word()), told);
                }
            }
        }
        assert_eq!(Told::of(Told { debt: u16::MAX, ..Told::default() }.to_word()).debt, u16::MAX >> 1);
        assert_eq!(Told::default().to_word(), 0);
    }

    #[test]
    fn pauses_double() {
        let mut told = Told::default();
        let mut pauses = [0; 10];
        for pause in &mut pauses {
            told.pause_longer();
            *pause = told.pause;
        }
        assert_eq!(pauses, [1, 3, 7, 15, 31, 63, 127, 255, 255, 255]);
    }
}
