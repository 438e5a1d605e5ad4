//! The sleepers' list: circular, doubly linked through `after` and `before`, entered through a word that
//! names the first.
//!
//! Every function needs the lock that guards the list; all accesses are relaxed because that lock orders
//! them.
//!
//! **PRIORITY.** Each node is at least as urgent as the one after it, unless that is the first again.
//! `insert` keeps it: a node goes behind the last one whose priority is `least` or more, and `least` is its
//! own priority, or one more if it keeps its turn.

use core::sync::atomic::Ordering::Relaxed;

use crate::node::NodeId;
use crate::platform::{Atomic, Platform};

pub(crate) fn first<P: Platform>(head: &P::U32) -> Option<NodeId> {
    NodeId::from_raw(head.load(Relaxed))
}

/// The node after `id`; `None` if that is the last.
pub(crate) fn following<P: Platform>(head: &P::U32, id: NodeId) -> Option<NodeId> {
    let next = id.get::<P>().after.load(Relaxed);
    if next == head.load(Relaxed) { None } else { NodeId::from_raw(next) }
}

/// How many nodes there are, about: those that left from within count until those in front of them have left,
/// and those that were put within do not.
pub(crate) fn count<P: Platform>(head: &P::U32) -> u32 {
    let number = |id: NodeId| id.get::<P>().number.load(Relaxed);
    let Some(first) = first::<P>(head) else { return 0 };
    let last = NodeId::from_raw(first.get::<P>().before.load(Relaxed)).unwrap_or(first);
    number(last).wrapping_sub(number(first)).wrapping_add(1)
}

/// Adds behind all nodes that are as urgent, or more: an ordinary thread's at the end.
pub(crate) fn push<P: Platform>(head: &P::U32, id: NodeId) {
    insert::<P>(head, id, id.get::<P>().priority.load(Relaxed));
}

/// Adds in front of all nodes that are as urgent, or less: a node that keeps its turn.
pub(crate) fn push_first<P: Platform>(head: &P::U32, id: NodeId) {
    insert::<P>(head, id, id.get::<P>().priority.load(Relaxed).saturating_add(1));
}

/// Adds behind those whose priority is `least` or more.
fn insert<P: Platform>(head: &P::U32, id: NodeId, least: u32) {
    let node = id.get::<P>();
    let priority = |id: NodeId| id.get::<P>().priority.load(Relaxed);
    let last = first::<P>(head).and_then(|first| NodeId::from_raw(first.get::<P>().before.load(Relaxed)));
    let (Some(first), Some(last)) = (first::<P>(head), last) else {
        node.after.store(id.raw(), Relaxed);
        node.before.store(id.raw(), Relaxed);
        head.store(id.raw(), Relaxed);
        node.number.store(0, Relaxed);
        return;
    };
    // Where there are no real-time threads, the end is found here, in a line that is written to below.
    let at_end = priority(last) >= least;
    let mut next = first;
    while !at_end && priority(next) >= least {
        // The last one is not so urgent: the search ends before it comes round.
        let Some(after) = NodeId::from_raw(next.get::<P>().after.load(Relaxed)) else { break };
        next = after;
    }
    let before = next.get::<P>().before.load(Relaxed);
    node.after.store(next.raw(), Relaxed);
    node.before.store(before, Relaxed);
    let number = |id: NodeId| id.get::<P>().number.load(Relaxed);
    let own = if at_end { number(last).wrapping_add(1) } else { number(next).wrapping_sub(1) };
    node.number.store(own, Relaxed);
    next.get::<P>().before.store(id.raw(), Relaxed);
    if let Some(before) = NodeId::from_raw(before) {
        before.get::<P>().after.store(id.raw(), Relaxed);
    }
    if next == first && !at_end {
        head.store(id.raw(), Relaxed);
    }
}

pub(crate) fn remove<P: Platform>(head: &P::U32, id: NodeId) {
    let node = id.get::<P>();
    let after = node.after.load(Relaxed);
    let before = node.before.load(Relaxed);
    if after == id.raw() {
        head.store(0, Relaxed);
        return;
    }
    if let (Some(after), Some(before)) = (NodeId::from_raw(after), NodeId::from_raw(before)) {
        after.get::<P>().before.store(before.raw(), Relaxed);
        before.get::<P>().after.store(after.raw(), Relaxed);
        if head.load(Relaxed) == id.raw() {
            head.store(after.raw(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::Relaxed;
    use crate::node::{LEVELS, NodeId};
    use crate::platform::Atomic;
    use crate::testing::{Lists, Numbers, RECORDS, U32};

    fn contents(head: &U32) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = super::first::<Lists>(head).into_iter().collect();
        while let Some(next) = nodes.last().and_then(|last| super::following::<Lists>(head, *last)) {
            nodes.push(next);
        }
        for (at, id) in nodes.iter().enumerate() {
            let before = nodes[(at + nodes.len() - 1) % nodes.len()];
            assert_eq!(id.get::<Lists>().before.load(Relaxed), before.raw());
        }
        nodes
    }

    #[test]
    fn the_more_urgent_come_first_and_equals_in_the_order_of_their_coming() {
        for seed in 1..500 {
            let mut numbers = Numbers(seed);
            // In some there are no real-time threads.
            let priorities = 1 + numbers.below(4);
            let head = U32::new(0);
            let mut model: Vec<(NodeId, u32)> = Vec::new();
            let mut idle: Vec<NodeId> =
                (0..RECORDS * LEVELS).filter_map(|at| NodeId::from_raw(at + 1)).collect();
            for _ in 0..300 {
                if numbers.below(3) == 0 && !model.is_empty() {
                    let (id, _) = model.remove(numbers.below(model.len() as u32) as usize);
                    super::remove::<Lists>(&head, id);
                    idle.push(id);
                } else if let Some(id) = idle.pop() {
                    let priority = numbers.below(priorities);
                    id.get::<Lists>().priority.store(priority, Relaxed);
                    let keeps_its_turn = numbers.below(4) == 0;
                    let goes_before =
                        |&(_, other): &(NodeId, u32)| other < priority || keeps_its_turn && other == priority;
                    let place = model.iter().position(goes_before).unwrap_or(model.len());
                    model.insert(place, (id, priority));
                    if keeps_its_turn {
                        super::push_first::<Lists>(&head, id);
                    } else {
                        super::push::<Lists>(&head, id);
                    }
                }
                assert!(contents(&head).iter().eq(model.iter().map(|(id, _)| id)), "seed {seed}");
            }
        }
    }
}
