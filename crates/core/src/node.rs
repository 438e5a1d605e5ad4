//! Nodes by name, and how a thread takes one for a wait: see [`crate::record`] for what they are.
//!
//! Nodes are named by [`NodeId`], 4 bytes, so that a queue's tail fits in a small lock.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::compiler_fence;

use crate::platform::{Atomic, Platform};
pub use crate::record::{LEVELS, Node, Record, SPARES, state};

/// The name of a node: `index * LEVELS + level + 1`; 0 is no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(u32);

impl NodeId {
    /// The node as it is stored in a word.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The node that a word names.
    pub const fn from_raw(raw: u32) -> Option<NodeId> {
        if raw == 0 { None } else { Some(NodeId(raw)) }
    }

    /// The node itself.
    pub fn get<P: Platform>(self) -> &'static Node<P> {
        let at = self.0 - 1;
        &P::record(at / LEVELS).nodes[(at % LEVELS) as usize]
    }
}

/// The name of a node or a spare node, in 25 bits: `index * (LEVELS + SPARES) + place + 1`; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter(u32);

impl Waiter {
    const PER_THREAD: u32 = LEVELS + SPARES;

    /// The waiter as it is stored in a word.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The waiter that a word names.
    pub const fn from_raw(raw: u32) -> Option<Waiter> {
        if raw == 0 { None } else { Some(Waiter(raw)) }
    }

    /// The node itself.
    pub fn get<P: Platform>(self) -> &'static Node<P> {
        let at = self.0 - 1;
        let record = P::record(at / Self::PER_THREAD);
        let place = (at % Self::PER_THREAD) as usize;
        match place.checked_sub(LEVELS as usize) {
            None => &record.nodes[place],
            Some(spare) => &record.spares[spare],
        }
    }
}

impl From<NodeId> for Waiter {
    fn from(id: NodeId) -> Waiter {
        let at = id.0 - 1;
        Waiter(at / LEVELS * Self::PER_THREAD + at % LEVELS + 1)
    }
}

impl<P: Platform> Node<P> {
    /// The calling thread, whose node it is, is about to queue.
    pub(crate) fn set_priority(&self) {
        self.priority.store(P::priority(), Relaxed);
    }
}

impl<P: Platform> Record<P> {
    /// Makes the record's thread look, wherever it waits on a condition variable now or later, whether it
    /// is to be cancelled. Any thread may call it. Async-signal-safe.
    pub fn cancel(&self) {
        // SeqCst read-modify-write, partner of the one in `cancel_requested`: either the waiter, which has
        // published WAITING before, sees the flag, or the loop below sees its WAITING.
        self.cancelled.swap(1, SeqCst);
        for node in &self.nodes {
            let mut seen = node.state.load(SeqCst);
            while seen == state::WAITING {
                match node.state.compare_exchange(seen, seen | state::CANCELLED, AcqRel, Acquire) {
                    Ok(_) => {
                        P::wake(&node.state, 1);
                        break;
                    }
                    Err(now) => seen = now,
                }
            }
        }
    }

    /// Whether [`Record::cancel`] was called. Call it after publishing [`state::WAITING`].
    pub(crate) fn cancel_requested(&self) -> bool {
        // A read-modify-write, so that it is ordered with the swap in `cancel` even where sequential
        // consistency of plain accesses is not given: of two such operations on one word one comes first
        // and the other sees it, along with what was written before.
        self.cancelled.fetch_or(0, SeqCst) != 0
    }
}

/// A node of the calling thread, taken for one wait; given back when dropped.
pub struct Held<P: Platform> {
    /// Which.
    pub id: NodeId,
    index: u32,
    _platform: PhantomData<P>,
}

impl<P: Platform> Held<P> {
    /// Takes the next node of the calling thread; `None` if the thread has no record or all its nodes are
    /// in use by waits that signal handlers interrupted.
    pub fn take() -> Option<Self> {
        let index = P::current()?;
        let record = P::record(index);
        // Only this thread writes `depth`. A handler that runs between the load and the store takes the
        // same level, and has given it back when it returns.
        let level = record.depth.load(Relaxed);
        if level >= LEVELS {
            return None;
        }
        record.depth.store(level + 1, Relaxed);
        Some(Held { id: NodeId(index * LEVELS + level + 1), index, _platform: PhantomData })
    }

    /// The node.
    pub fn node(&self) -> &'static Node<P> {
        self.id.get()
    }

    /// The node's name among all of them.
    pub(crate) fn waiter(&self) -> Waiter {
        self.id.into()
    }

    /// The record that the node belongs to.
    pub(crate) fn record(&self) -> &'static Record<P> {
        P::record(self.index)
    }
}

/// A spare node of the calling thread, for one wait that may be given up.
pub(crate) struct Spare<P: Platform> {
    waiter: Waiter,
    taken_up: bool,
    _platform: PhantomData<P>,
}

impl<P: Platform> Spare<P> {
    /// Takes a spare node for the lock at this address: the one that the thread left in its queue, if there
    /// is one, or else one that is in no queue. `None` if all are in use, or in other locks' queues, or if
    /// the caller is a signal handler that has interrupted the choice.
    pub(crate) fn take(lock: usize) -> Option<Self> {
        let index = P::current()?;
        let record = P::record(index);
        // A node that was looked at is still what it was when it is taken, for only this thread gives it to
        // another lock: a handler in between, which could have done that, leaves the nodes alone. One that
        // runs between the load and the store has come to its end when the store is made.
        if record.choosing.load(Relaxed) != 0 {
            return None;
        }
        record.choosing.store(1, Relaxed);
        // For handlers on this thread, to whom the order of its accesses is all that matters.
        compiler_fence(SeqCst);
        let chosen = Self::choose(index, &record.spares, lock);
        compiler_fence(SeqCst);
        record.choosing.store(0, Relaxed);
        chosen
    }

    fn choose(index: u32, spares: &[Node<P>], lock: usize) -> Option<Self> {
        let epoch = P::epoch();
        let named = |place: usize, taken_up: bool| Spare {
            waiter: Waiter(index * Waiter::PER_THREAD + LEVELS + place as u32 + 1),
            taken_up,
            _platform: PhantomData,
        };
        for (place, spare) in spares.iter().enumerate() {
            if spare.state.load(Relaxed) != state::ABANDONED {
                continue;
            }
            // Only this thread, or one that had its record before, wrote these two, before it gave up.
            if spare.epoch().load(Relaxed) != epoch {
                // The queue was the parent's of a forked child.
                let _ = spare.state.compare_exchange(state::ABANDONED, state::IDLE, Relaxed, Relaxed);
            } else if spare.lock().load(Relaxed) == lock
                // Acquire: if it was handed the lock meanwhile, that is seen by the wait.
                && spare.state.compare_exchange(state::ABANDONED, state::SLEEPING, Acquire, Relaxed).is_ok()
            {
                return Some(named(place, true));
            }
        }
        for (place, spare) in spares.iter().enumerate() {
            // Acquire: partner of the release by the thread that took it out of its last queue.
            if spare.state.load(Relaxed) == state::IDLE
                && spare.state.compare_exchange(state::IDLE, state::TAKEN, Acquire, Relaxed).is_ok()
            {
                spare.lock().store(lock, Relaxed);
                spare.epoch().store(epoch, Relaxed);
                return Some(named(place, false));
            }
        }
        None
    }

    /// Whether it was in the lock's queue already, and is again a waiter there.
    pub(crate) fn is_taken_up(&self) -> bool {
        self.taken_up
    }

    pub(crate) fn waiter(&self) -> Waiter {
        self.waiter
    }

    /// There was no wait: the node, [`state::TAKEN`], has been in no queue. A wait makes its node idle
    /// itself.
    pub(crate) fn put_back(self) {
        self.waiter.get::<P>().state.store(state::IDLE, Relaxed);
    }
}

impl<P: Platform> Drop for Held<P> {
    fn drop(&mut self) {
        let record = self.record();
        record.depth.store(record.depth.load(Relaxed) - 1, Relaxed);
    }
}
