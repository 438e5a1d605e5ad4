//! The lock hash: from a lock to the node of its halted queue head.
//!
//! A 4-byte lock has no room to name its halted head once it says that there is one, so the head is entered
//! here, under the lock's address. Open addressing by cache line, with linear probing, and four entries a
//! line; the platform provides as many lines as there are threads, so four entries a thread, one for each
//! node that there can be. A node is in at most one entry, so an insertion always finds room.
//!
//! An entry is *empty* while its `lock` is 0. Insertions take an empty one by a compare-and-swap; removals
//! are made by the lock's holder only, and a lock has at most one entry (see [`super::paravirt`]), so nothing
//! races for an entry that is taken.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomic::{Atomic, Atomics};
use crate::events::Event;
use crate::node::NodeId;
use crate::platform::Platform;

const ENTRIES: usize = 4;

/// Four entries in a cache line. Zero bytes are four empty ones.
#[repr(C, align(64))]
pub struct Line<P: Atomics> {
    entries: [Entry<P>; ENTRIES],
}

struct Entry<P: Atomics> {
    /// The lock's address; 0 if the entry is empty.
    lock: P::Usize,
    /// The [`NodeId`]. Written by the thread that took the entry, before it says so in the lock word.
    node: P::U32,
}

impl<P: Atomics> Default for Line<P> {
    fn default() -> Self {
        let entry = |_| Entry { lock: P::Usize::new(0), node: P::U32::new(0) };
        Line { entries: core::array::from_fn(entry) }
    }
}

impl<P: Atomics> Line<P> {
    /// Whether none of its entries is taken, at this moment. For checkers: no lock asks.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.lock.load(Relaxed) == 0)
    }
}

/// A platform on which waiters of the paravirtual queue spinlock can halt.
pub trait Halting: Platform {
    /// The table in which halted queue heads are found by their lock: a power of two of lines, at first zero
    /// bytes, with an entry for every [`Node`](crate::node::Node) that there can be, and empty in a forked
    /// child. `None` if there is none: waiters then give up their CPU by [`Platform::stall`] instead of
    /// halting.
    fn lock_hash() -> Option<&'static [Line<Self>]>;
}

/// The entries, in the order in which they are probed for this lock.
fn probe<P: Platform>(lines: &'static [Line<P>], lock: usize) -> impl Iterator<Item = &'static Entry<P>> {
    // Fibonacci hashing: the top bits of the product with 2^64 over the golden ratio. Locks are 4-byte
    // aligned.
    let product = (lock as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (product >> 32) as usize;
    let mask = lines.len() - 1;
    (0..lines.len()).flat_map(move |step| &lines[first.wrapping_add(step) & mask].entries)
}

fn count<P: Platform>(hops: u64) {
    if P::counting() {
        P::count(Event::HashLookup, 1);
        for _ in 0..hops {
            P::count(Event::HashHop, 1);
        }
    }
}

/// Enters `node` for `lock`, which has no entry. False only if the table is smaller than promised.
///
/// Publishes nothing: the caller tells others by a release of the lock word.
pub(super) fn insert<P: Platform>(lines: &'static [Line<P>], lock: usize, node: NodeId) -> bool {
    for (hops, entry) in probe(lines, lock).enumerate() {
        // Acquire: partner of the release in `remove`, so that our node number comes after the last one's
        // use.
        if entry.lock.load(Relaxed) == 0 && entry.lock.compare_exchange(0, lock, Acquire, Relaxed).is_ok() {
            entry.node.store(node.raw(), Relaxed);
            count::<P>(hops as u64);
            return true;
        }
    }
    false
}

/// Takes out the entry for `lock`. The caller holds the lock, and knows from its word or from a node that it
/// has one.
pub(super) fn remove<P: Platform>(lines: &'static [Line<P>], lock: usize) -> Option<NodeId> {
    for (hops, entry) in probe(lines, lock).enumerate() {
        // Relaxed, both: the insertion happens before the caller's knowledge of it.
        if entry.lock.load(Relaxed) == lock {
            let node = NodeId::from_raw(entry.node.load(Relaxed));
            // Release: see `insert`.
            entry.lock.store(0, Release);
            count::<P>(hops as u64);
            return node;
        }
    }
    None
}
