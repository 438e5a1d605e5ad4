//! The memory through which threads wait: nodes, and the record of a thread that has them.
//!
//! A thread waits through a [`Node`] of its [`Record`]: other threads link it, pass it on, and wake it. They
//! may look at it a moment after its owner has gone, so nodes live in records that the platform never unmaps
//! ("type-stable"), not on stacks. A thread has [`LEVELS`] nodes, because a signal handler may wait for one
//! lock while the thread it interrupted waits for another.
//!
//! A node is one cache line, so three of its words mean one thing in one lock and another in another. Each
//! meaning has an accessor of its own; a node is in one lock at a time.

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use crate::atomic::{Atomic, Atomics};

/// What a [`Node`]'s `state` says, and who sets it, holding what. "Its thread" is the one that waits.
///
/// `WAITING` is left by compare-and-swap only, so exactly one of a signal and a time-out wins.
pub mod state {
    /// In no sleepers' list. Set by its thread.
    pub const IDLE: u32 = 0;
    /// In a lock's list or queue, asleep or about to be; wants a wake-up. Set by its thread, or by the thread
    /// that requeues it; under the wait lock if the lock has one.
    pub const SLEEPING: u32 = 1;
    /// Of a mutex with a list: must try for the lock. Set by an unlocker, under the wait lock.
    pub const WOKEN: u32 = 2;
    /// Owns the mutex. Set by an unlocker, under the wait lock if there is one.
    pub const HANDED: u32 = 3;
    /// In a condition variable's list. Set by its thread.
    pub const WAITING: u32 = 4;
    /// In a condition variable's list, giving up: its thread will unlink it, which sets this from `WAITING`.
    pub const LEAVING: u32 = 5;
    /// Out of the condition variable, not yet in the mutex's list. Set by a signaller from `WAITING`, under
    /// the condition variable's wait lock.
    pub const SIGNALLED: u32 = 6;
    /// In a queue spinlock's queue, not its head, halted or about to be; wants to be told of headship only.
    /// Set by its thread from `IDLE`.
    pub const HALTED: u32 = 7;
    /// In a queue spinlock's queue, its head, and in the lock hash: halted or about to be; wants a kick. Set
    /// by its thread from `HEAD`, or by the one in front from `HALTED`, holding the lock.
    pub const HASHED: u32 = 8;
    /// The head of a queue, awake. Of a queue spinlock: set by the one in front from `IDLE`, or by an
    /// unlocker from `HASHED`, holding the lock. Of a readers-writer lock: by the thread that passes headship
    /// on or wakes it, under the wait lock.
    pub const HEAD: u32 = 9;
    /// In a hand-off mutex's queue, but its thread has given up: belongs to the queue until it is taken out.
    /// Set by its thread from `SLEEPING`.
    pub const ABANDONED: u32 = 10;
    /// A spare node that its thread is about to use, in no queue. Set by its thread from `IDLE`.
    pub const TAKEN: u32 = 11;
    /// A mark upon `WAITING`, set by anyone: look whether the thread is to be cancelled.
    pub const CANCELLED: u32 = 1 << 31;
}

/// One waiter. A cache line of its own, because its owner spins on it.
#[repr(C, align(64))]
pub struct Node<P: Atomics> {
    /// Spinners' queue: the node behind. Set by the one behind, taken by the owner ([`crate::mcs`]).
    pub(crate) next: P::U32,
    /// Spinners' queue: the node in front. Set by the owner, then by the one in front as it leaves.
    pub(crate) prev: P::U32,
    /// Spinners' queue: 1 when this node is its head. Set by the one in front.
    pub(crate) ready: P::U32,
    /// Spinners' queue: where the owner was last seen to run; a hint.
    pub(crate) tag: P::U32,

    /// See [`state`]. The word that a sleeper sleeps on.
    pub(crate) state: P::U32,
    /// Sleepers' list, circular. Guarded by the lock of the list that the node is in.
    pub(crate) after: P::U32,
    /// Sleepers' list, circular. Guarded by the lock of the list that the node is in.
    pub(crate) before: P::U32,
    /// How urgent its thread is: see [`Platform::priority`](crate::Platform::priority). Set by the owner
    /// before it is linked.
    pub(crate) priority: P::U32,
    /// See [`Node::attempts`] and [`Node::epoch`].
    attempts_or_epoch: P::U32,
    /// See [`Node::bypasses`] and [`Node::phase`].
    bypasses_or_phase: P::U32,
    /// 1 while it is linked in a condition variable's list. Guarded by that list's lock.
    pub(crate) linked: P::U32,
    /// Sleepers' list: one more than in the node before, if it came at the end. Guarded by the lock of the
    /// list that the node is in.
    pub(crate) number: P::U32,
    /// See [`Node::mutex`] and [`Node::lock`].
    mutex_or_lock: P::Usize,
    /// When it was kicked, in nanoseconds of [`Observer::now`](crate::events::Observer::now), 0 if no program
    /// counts. Written by the holder of the queue spinlock before the node becomes `HEAD`, and of the
    /// hand-off mutex before it becomes `HANDED`.
    pub(crate) kicked: P::Usize,
}

/// Nodes a thread has: how deep waits may nest, a thread and the signal handlers upon it.
pub const LEVELS: u32 = 4;

/// Nodes a thread has for queues of spinners that it may leave: see [`crate::queue`].
pub const PLACES: u32 = 4;

/// Nodes a thread has besides, for waits that it may give up and leave behind: see [`crate::handoff`].
pub const SPARES: u32 = 4;

/// A node of a [queue](crate::queue), in a cache line of its own, because its thread spins on it.
#[repr(C, align(64))]
pub struct QueueNode<P: Atomics> {
    /// Which mutex it is used for, and as what: see [`crate::queue`].
    pub(crate) place: P::Usize,
    /// The node behind. Set once, by the one behind.
    pub(crate) next: P::U32,
    /// The node in front when its thread joined; a hint. Set by its thread.
    pub(crate) prev: P::U32,
    /// Where its thread was last seen to run; a hint. Set by its thread.
    pub(crate) tag: P::U32,
    /// The [`Platform::epoch`](crate::Platform::epoch) in which it was last used. Set by its thread.
    pub(crate) epoch: P::U32,
    /// How many owners there were since the last one that was a head. Set by the front.
    pub(crate) grants: P::U32,
    /// Since when it goes along the queue, in nanoseconds of [`Observer::now`](crate::events::Observer::now).
    /// Set by the front.
    pub(crate) since: P::Usize,
    /// In a side's queue: how many owners the batch had before this one. Set by the front.
    pub(crate) turns: P::U32,
    /// The side in whose queue it is; 0 if in a mutex's own. Set by its thread.
    pub(crate) side: P::U32,
}

/// What belongs to a [`QueueNode`], in a line that others hardly ever look at.
pub(crate) struct Hold<P: Atomics> {
    /// The node's claim word: see [`crate::queue`].
    pub(crate) claim: P::Usize,
    /// The index of the owner that keeps the place, plus 1; 0 if none does. Set by the front.
    pub(crate) keeper: P::U32,
}

/// A place in a mutex's queue for the threads of one memory node, and their queue for it.
#[repr(C, align(64))]
pub struct Side<P: Atomics> {
    /// Belongs to the head of the queue of threads, or to a queue.
    pub(crate) node: QueueNode<P>,
    /// The tail of the queue of threads: the mutex, and the last node; 0 if it is empty.
    pub(crate) tail: P::Usize,
    /// Of the node. In a line of its own, because the tail is written by all that come.
    pub(crate) hold: Alone<Hold<P>>,
}

/// In a cache line of its own.
#[repr(C, align(64))]
pub(crate) struct Alone<T>(pub(crate) T);

impl<P: Atomics> Default for Side<P> {
    fn default() -> Self {
        Side { node: QueueNode::default(), tail: Atomic::new(0), hold: Alone(Hold::default()) }
    }
}

/// Words of the record's own thread, in a cache line that others hardly ever look at.
#[repr(C, align(64))]
pub(crate) struct Own<P: Atomics> {
    /// Of each queue node.
    pub(crate) holds: [Hold<P>; PLACES as usize],
    /// 1 if the mutex for which the thread queued up last was crowded: see
    /// [`Policy::is_crowded`](crate::poundlock::Policy::is_crowded). Written by the record's own thread only,
    /// a signal handler on it included, to which it is a hint.
    pub(crate) crowded: P::U32,
    /// When the thread last passed on a crowded mutex, in nanoseconds of
    /// [`Observer::now`](crate::events::Observer::now). As `crowded`.
    pub(crate) passed: P::Usize,
    /// How often it has since its last sleep, or before. As `crowded`.
    pub(crate) turns: P::U32,
    /// When it did so for the first time then. As `crowded`.
    pub(crate) began: P::Usize,
    /// How many grants the queue had had when it did so last, and how many there have been since the first
    /// time. As `crowded`.
    pub(crate) granted: [P::U32; 2],
    /// See [`Platform::kept`](crate::Platform::kept): the mutex, and the queue node.
    pub(crate) kept: (P::Usize, P::U32),
}

/// A thread's nodes.
pub struct Record<P: Atomics> {
    pub(crate) nodes: [Node<P>; LEVELS as usize],
    /// Each belongs to the thread while it is `IDLE` or in one of its waits, and to a queue while it is
    /// `ABANDONED`, which may outlast the thread.
    pub(crate) spares: [Node<P>; SPARES as usize],
    /// Each belongs to the thread while its `place` is 0, and to a queue otherwise, which may outlast the
    /// thread.
    pub(crate) queue_nodes: [QueueNode<P>; PLACES as usize],
    pub(crate) own: Own<P>,
    /// Nodes in use. Written by the record's own thread only, a signal handler on it included.
    pub(crate) depth: P::U32,
    /// Set for good by a request to cancel the record's thread.
    pub(crate) cancelled: P::U32,
    /// Since when the thread has used locks that others wait for without a CPU, in nanoseconds of
    /// [`Observer::now`](crate::events::Observer::now) without the lowest bit, which says instead that a
    /// thread was woken to relieve it. 0 before it is asked. Written by the record's own thread only, a
    /// signal handler on it included, to which it is a hint.
    pub(crate) slice: P::Usize,
    /// When it was last asked whether that is over.
    pub(crate) asked: P::Usize,
    /// How often the thread has left a readers-writer lock for which another waited without a CPU. Written by
    /// the record's own thread only, a signal handler on it included, to which it is a hint.
    pub(crate) left: P::U32,
    /// What the platform knows of the thread's priority, and since when: its own to read and write, on the
    /// record's own thread.
    priority: [P::U32; 2],
    /// 1 while the thread chooses a spare node. Written by the record's own thread only, a signal handler on
    /// it included.
    pub(crate) choosing: P::U32,
}

/// Where what an observer of the process's memory looks for lies in a [`Record`], in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The first of [`LEVELS`] nodes.
    pub nodes: u32,
    /// The first of [`SPARES`] spare nodes.
    pub spares: u32,
    /// From one node to the next.
    pub node_size: u32,
    /// In a node: see [`state`]; and the word that its thread sleeps on.
    pub state: u32,
    /// In a node: the next one in the list of sleepers.
    pub after: u32,
    /// In a node: the mutex of a waiter on a condition variable, or the lock of a spare node.
    pub lock: u32,
}

impl<P: Atomics> Record<P> {
    /// Its [`Places`].
    pub const PLACES: Places = Places {
        nodes: offset_of!(Self, nodes) as u32,
        spares: offset_of!(Self, spares) as u32,
        node_size: size_of::<Node<P>>() as u32,
        state: offset_of!(Node<P>, state) as u32,
        after: offset_of!(Node<P>, after) as u32,
        lock: offset_of!(Node<P>, mutex_or_lock) as u32,
    };
}

impl<P: Atomics> Default for Node<P> {
    fn default() -> Self {
        Node {
            next: Atomic::new(0),
            prev: Atomic::new(0),
            ready: Atomic::new(0),
            tag: Atomic::new(0),
            state: Atomic::new(0),
            after: Atomic::new(0),
            before: Atomic::new(0),
            priority: Atomic::new(0),
            attempts_or_epoch: Atomic::new(0),
            bypasses_or_phase: Atomic::new(0),
            linked: Atomic::new(0),
            number: Atomic::new(0),
            mutex_or_lock: Atomic::new(0),
            kicked: Atomic::new(0),
        }
    }
}

impl<P: Atomics> Default for QueueNode<P> {
    fn default() -> Self {
        QueueNode {
            place: Atomic::new(0),
            next: Atomic::new(0),
            prev: Atomic::new(0),
            tag: Atomic::new(0),
            epoch: Atomic::new(0),
            grants: Atomic::new(0),
            since: Atomic::new(0),
            turns: Atomic::new(0),
            side: Atomic::new(0),
        }
    }
}

impl<P: Atomics> Default for Own<P> {
    fn default() -> Self {
        Own {
            holds: core::array::from_fn(|_| Hold::default()),
            crowded: Atomic::new(0),
            passed: Atomic::new(0),
            turns: Atomic::new(0),
            began: Atomic::new(0),
            granted: [Atomic::new(0), Atomic::new(0)],
            kept: (Atomic::new(0), Atomic::new(0)),
        }
    }
}

impl<P: Atomics> Default for Hold<P> {
    fn default() -> Self {
        Hold { claim: Atomic::new(0), keeper: Atomic::new(0) }
    }
}

impl<P: Atomics> Node<P> {
    /// The node behind, in a queue of spinners: for locks outside this crate.
    pub fn next(&self) -> &P::U32 {
        &self.next
    }

    /// See [`state`]: for locks outside this crate.
    pub fn state(&self) -> &P::U32 {
        &self.state
    }

    /// In a mutex, or at the head of a queue spinlock: how often it was woken in vain. Guarded by the mutex's
    /// wait lock.
    pub(crate) fn attempts(&self) -> &P::U32 {
        &self.attempts_or_epoch
    }

    /// In a spare node: the [`Platform::epoch`](crate::Platform::epoch) in which it was taken.
    pub(crate) fn epoch(&self) -> &P::U32 {
        &self.attempts_or_epoch
    }

    /// In an adaptive mutex: how many unlocks left it asleep for a spinner. Guarded by the wait lock.
    pub(crate) fn bypasses(&self) -> &P::U32 {
        &self.bypasses_or_phase
    }

    /// In a readers-writer lock: the phase in which it came. Guarded by the wait lock.
    pub(crate) fn phase(&self) -> &P::U32 {
        &self.bypasses_or_phase
    }

    /// In a condition variable: the mutex that its waiter is to get back (its address), 0 if it is to be
    /// woken instead. Set by the owner before it is linked.
    pub(crate) fn mutex(&self) -> &P::Usize {
        &self.mutex_or_lock
    }

    /// In a spare node: the lock for which it was taken.
    pub(crate) fn lock(&self) -> &P::Usize {
        &self.mutex_or_lock
    }
}

impl<P: Atomics> Default for Record<P> {
    fn default() -> Self {
        Record {
            nodes: Default::default(),
            spares: Default::default(),
            queue_nodes: Default::default(),
            own: Own::default(),
            depth: P::U32::new(0),
            cancelled: P::U32::new(0),
            slice: P::Usize::new(0),
            asked: P::Usize::new(0),
            left: P::U32::new(0),
            priority: core::array::from_fn(|_| P::U32::new(0)),
            choosing: P::U32::new(0),
        }
    }
}

impl<P: Atomics> Record<P> {
    /// Makes a recycled record a new thread's. Call it before the thread can wait.
    pub fn renew(&self) {
        self.depth.store(0, Relaxed);
        self.cancelled.store(0, Relaxed);
        self.choosing.store(0, Relaxed);
        self.slice.store(0, Relaxed);
        self.left.store(0, Relaxed);
        self.own.kept.0.store(0, Relaxed);
        for word in &self.priority {
            word.store(0, Relaxed);
        }
        // The last thread may have ended in the middle of a wait, by way of a signal handler.
        for spare in &self.spares {
            let _ = spare.state.compare_exchange(state::TAKEN, state::IDLE, Relaxed, Relaxed);
            let _ = spare.state.compare_exchange(state::SLEEPING, state::ABANDONED, Relaxed, Relaxed);
        }
    }

    /// Where a platform may keep what it knows of the thread for
    /// [`Platform::priority`](crate::Platform::priority): two words, which are 0 when the record is a new
    /// thread's.
    pub fn priority(&self) -> &[P::U32; 2] {
        &self.priority
    }

    /// Its nodes of queues, to look at: for checkers.
    pub fn queue_nodes(&self) -> &[QueueNode<P>; PLACES as usize] {
        &self.queue_nodes
    }

    /// Their claim words: for checkers.
    pub fn claims(&self) -> [&P::Usize; PLACES as usize] {
        self.own.holds.each_ref().map(|hold| &hold.claim)
    }

    /// Whether none of its nodes is in use, or in a queue, at this moment. For checkers: no lock asks.
    pub fn is_at_rest(&self) -> bool {
        self.depth.load(Relaxed) == 0
            && self.queue_nodes.iter().all(|node| node.place.load(Relaxed) == 0)
            && self.spares.iter().all(|spare| spare.state.load(Relaxed) == state::IDLE)
    }

    /// Of each queue node: the index of the owner that keeps the place, plus 1. For checkers.
    pub fn keepers(&self) -> [&P::U32; PLACES as usize] {
        self.own.holds.each_ref().map(|hold| &hold.keeper)
    }

    /// Whether one of its nodes says [`state::SLEEPING`]: it is in the list of a lock, asleep or about to be.
    /// For checkers, which read a word by `peek`.
    pub fn is_asleep(&self, peek: impl Fn(&P::U32) -> u32) -> bool {
        self.nodes.iter().any(|node| peek(&node.state) == state::SLEEPING)
    }
}
