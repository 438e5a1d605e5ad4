//! The fields of the lock word.

use crate::node::{LEVELS, NodeId};

/// In the low byte: held.
pub(super) const LOCKED: u32 = 1;
/// In the low byte, paravirtual: the queue head is halted and in the lock hash; a release kicks it, or leaves
/// that to the next owner.
pub(super) const SLOW: u32 = 1 << 1;
/// In the low byte, paravirtual: how many releases have left the head halted. With `SLOW` clear all ones are
/// `RESERVED`, and nothing else occurs.
pub(super) const PASSES: u32 = 0xfc;
/// One release.
pub(super) const PASS: u32 = 1 << 2;
/// What `PASSES` holds when the next acquisition is the queue head's.
pub(super) const RESERVED: u32 = PASSES;
/// The low byte: the only field that a release touches.
pub(super) const LOW_BYTE: u32 = 0xff;

/// Where a lock word has its fields: docs/QSPIN.md, "The word".
///
/// The source has two layouts for the same reason: with few enough processors the tail fits in a halfword of
/// its own, and can be exchanged by itself; with more it needs bits from the other half, and a
/// compare-and-swap loop. Its small layout has a whole byte for the pending bit and its large one none to
/// spare; here the spare bits carry what a process has and a kernel has not: forked copies of itself, and
/// words of other libraries in the same type.
pub trait Layout: 'static {
    /// One waiter spins on the word itself.
    const PENDING: u32 = 1 << 8;
    /// A queue head has halted here at some time: releases are compare-and-swaps. Never cleared.
    const HALTS: u32 = 1 << 9;
    /// The low bits of the [`Platform::epoch`](crate::Platform::epoch) in which the fields of waiters were
    /// last used.
    const EPOCH: u32;
    /// Bits that the lock keeps as its user has set them.
    const USER: u32;
    /// The last node of the queue, a [`NodeId`]; 0 if there is no queue.
    const TAIL: u32;
    /// Threads with an index below this can queue. With more, the others wait without a place in the queue.
    const INDICES: u32;
}

/// For fewer than 16 K threads: the tail is a halfword of its own.
#[derive(Clone, Copy, Debug)]
pub struct Small;

/// For up to 128 K threads: the tail is swapped by a compare-and-swap loop.
#[derive(Clone, Copy, Debug)]
pub struct Large;

impl Layout for Small {
    const EPOCH: u32 = 0xf << 11;
    const USER: u32 = 1 << 15 | 1 << 10;
    const TAIL: u32 = 0xffff << 16;
    const INDICES: u32 = (1 << 14) - 1;
}

impl Layout for Large {
    const EPOCH: u32 = 0x7 << 10;
    const USER: u32 = 0;
    const TAIL: u32 = 0x7_ffff << 13;
    const INDICES: u32 = (1 << 17) - 1;
}

/// What both layouts must be. Evaluated when a lock of the layout is compiled.
pub(super) const fn check<L: Layout>() {
    let fields = [LOW_BYTE, L::PENDING, L::HALTS, L::EPOCH, L::USER, L::TAIL];
    let mut all = 0;
    let mut at = 0;
    while at < fields.len() {
        assert!(all & fields[at] == 0, "fields of the lock word overlap");
        all |= fields[at];
        at += 1;
    }
    let room = L::TAIL >> L::TAIL.trailing_zeros();
    assert!(
        room.count_ones() == 32 - L::TAIL.leading_zeros() - L::TAIL.trailing_zeros(),
        "the tail has gaps"
    );
    // All ones stay unused, so that a user can tell a negative number from a tail.
    assert!(L::INDICES * LEVELS < room, "not every node fits in the tail");
}

const _: () = {
    check::<Small>();
    check::<Large>();
    assert!(LOCKED | SLOW | PASSES == LOW_BYTE);
};

/// Whether the tail is the high half, which can be swapped by itself.
pub(super) const fn is_split<L: Layout>() -> bool {
    L::TAIL == 0xffff << 16
}

#[inline]
pub(super) const fn tail<L: Layout>(word: u32) -> Option<NodeId> {
    NodeId::from_raw((word & L::TAIL) >> L::TAIL.trailing_zeros())
}

/// A word whose tail is this node, and nothing else; `None` if the node does not fit.
#[inline]
pub(super) const fn tail_of<L: Layout>(id: NodeId) -> Option<u32> {
    if id.raw() > L::INDICES * LEVELS { None } else { Some(tail_at::<L>(id)) }
}

/// As [`tail_of`], of a node that has been in a tail.
#[inline]
pub(super) const fn tail_at<L: Layout>(id: NodeId) -> u32 {
    id.raw() << L::TAIL.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::{LEVELS, Large, Layout, NodeId, Small, tail, tail_of};

    fn every_node_survives<L: Layout>() {
        let last = L::INDICES * LEVELS;
        for raw in (1..=last.min(10_000)).chain(last - 100..=last) {
            let id = NodeId::from_raw(raw).unwrap();
            let word = tail_of::<L>(id).unwrap();
            assert_eq!(word & !L::TAIL, 0);
            assert_ne!(word, L::TAIL);
            assert_eq!(tail::<L>(word | !L::TAIL), Some(id));
        }
        assert_eq!(tail_of::<L>(NodeId::from_raw(last + 1).unwrap()), None);
        assert_eq!(tail::<L>(!L::TAIL), None);
    }

    #[test]
    fn every_node_fits_in_the_tail() {
        every_node_survives::<Small>();
        every_node_survives::<Large>();
    }
}
