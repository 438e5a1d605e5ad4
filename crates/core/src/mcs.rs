//! The MCS queue of spinners, which a waiter may leave before its turn.
//!
//! After Mellor-Crummey and Scott (ACM TOCS 1991), with a way out in the manner of Scott's MCS-try (PODC
//! 2002). A lock uses it to let one thread at a time compete for it while the others spin, each on a flag in
//! its own node, so that a release moves one cache line, not one for each spinner.
//!
//! The queue is its `tail` word: 0 if empty, else the [`NodeId`] of the last node. `next` runs from the head
//! to the tail, `prev` back; the head is the node whose thread [`join`] let through.
//!
//! # Why a node can leave from the middle
//!
//! Names: P is in front of N, S behind it.
//!
//! 1. *Only the owner of a link lets go of it.* `P.next` goes from 0 to N by N, when it joins or when the
//!    one in front of it leaves; it goes from N to 0 by exactly one of: P passing the headship on, P
//!    leaving, N leaving. All three take it by a read-modify-write, so exactly one succeeds.
//! 2. *A node that has cut the link in front of it cannot be made head and cannot lose its predecessor.* Once
//!    N has set `P.next` back to 0, P can neither pass on nor leave: either needs a successor in `P.next`, or
//!    the tail, and the tail is behind P as long as N, or one behind N, is in the queue. So P waits for N's
//!    few instructions, and N may write to P.
//! 3. N then takes its own successor S out of `N.next` (or moves the tail from N to P if there is none), so
//!    by (1) S can no longer leave before N has linked it to P: N sets `S.prev` and then `P.next`.
//!
//! If N does not find itself in `P.next`, P is passing on (then N's `ready` comes) or leaving (then N's
//! `prev` changes): N looks at both again. Nodes are type-stable, so an old `prev` may be followed: `P.next`
//! names N only while P is in front of N.
//!
//! A thread that is preempted between its swap of the tail and the link, or in steps 2 to 3, keeps its
//! neighbours waiting: they [`Platform::stall`], which yields the CPU.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::node::{Node, NodeId};
use crate::platform::{Atomic, Platform, Running, Spin};
use crate::waiting::stall_until;

/// Queues up and spins until this node is the head. Returns false if the wait was given up, because the
/// budget is used up or because the one in front does not run; the node is then out of the queue.
///
/// True synchronises with the [`leave`] of the head before.
pub fn join<P: Platform>(tail: &P::U32, id: NodeId, budget: &mut P::Spin) -> bool {
    let node = id.get::<P>();
    node.next.store(0, Relaxed);
    node.ready.store(0, Relaxed);
    node.tag.store(P::tag(), Relaxed);
    // Release: the stores above are there before anyone behind us, or in front, finds the node. Acquire: so
    // are those of the node in front before we write to it.
    let Some(front) = NodeId::from_raw(tail.swap(id.raw(), AcqRel)) else {
        return true;
    };
    node.prev.store(front.raw(), Relaxed);
    // Release: the one in front, when it leaves and writes our `prev`, does so after we did.
    front.get::<P>().next.store(id.raw(), Release);
    loop {
        // Acquire: partner of the store in `leave`.
        if node.ready.load(Acquire) != 0 {
            return true;
        }
        let front = NodeId::from_raw(node.prev.load(Relaxed));
        let displaced =
            front.is_some_and(|front| P::running(front.get::<P>().tag.load(Relaxed)) == Running::No);
        if displaced || !budget.spin() {
            return abandon::<P>(tail, id, node);
        }
    }
}

/// Leaves the head of the queue and makes the next node, if any, the head.
pub fn leave<P: Platform>(tail: &P::U32, id: NodeId) {
    if let Some(next) = successor::<P>(tail, id, 0) {
        // Release: what the head did happens before what the next head does.
        next.get::<P>().ready.store(1, Release);
    }
}

/// Takes a node that is not the head out of the queue. Returns true if it became the head after all.
fn abandon<P: Platform>(tail: &P::U32, id: NodeId, node: &Node<P>) -> bool {
    let front = stall_until::<P, _>(|| {
        // Acquire: partner of the leaving predecessor's store of `prev` below.
        if let Some(front) = NodeId::from_raw(node.prev.load(Acquire))
            && front.get::<P>().next.compare_exchange(id.raw(), 0, AcqRel, Relaxed).is_ok()
        {
            return Some(Some(front));
        }
        (node.ready.load(Acquire) != 0).then_some(None)
    });
    let Some(front) = front else { return true };
    if let Some(next) = successor::<P>(tail, id, front.raw()) {
        // Release, both: `next` finds the new predecessor whole, and the predecessor a successor that
        // already looks at it.
        next.get::<P>().prev.store(front.raw(), Release);
        front.get::<P>().next.store(next.raw(), Release);
    }
    false
}

/// Takes the successor out of the node's `next`, waiting for one that has swapped the tail but not linked
/// itself yet. If there is none, moves the tail from the node to `front` and returns `None`.
fn successor<P: Platform>(tail: &P::U32, id: NodeId, front: u32) -> Option<NodeId> {
    let node = id.get::<P>();
    stall_until::<P, _>(|| {
        // Release: the next to join finds `front` as we leave it. Acquire: if the tail named us because the
        // one behind us left, its last store to our `next` happens before our next use of the node.
        if tail.load(Relaxed) == id.raw() && tail.compare_exchange(id.raw(), front, AcqRel, Relaxed).is_ok() {
            return Some(None);
        }
        // The load spares a read-modify-write a turn. Acquire: partner of the successor's link.
        if node.next.load(Relaxed) == 0 {
            return None;
        }
        NodeId::from_raw(node.next.swap(0, AcqRel)).map(Some)
    })
}
