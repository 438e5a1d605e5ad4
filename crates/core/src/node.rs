//! The records through which threads wait.
//!
//! A thread waits through a [`Node`] of its [`Record`]: other threads link it, pass it on, and wake it.
//! They may look at it a moment after its owner has gone, so nodes live in records that the platform never
//! unmaps ("type-stable"), not on stacks. A thread has [`LEVELS`] nodes, because a signal handler may wait
//! for one lock while the thread it interrupted waits for another.
//!
//! Nodes are named by [`NodeId`], 4 bytes, so that a queue's tail fits in a small lock.

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::compiler_fence;

use crate::platform::{Atomic, Platform};

/// Nodes a thread has: how deep waits may nest, a thread and the signal handlers upon it.
pub const LEVELS: u32 = 4;

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

/// What a [`Node`]'s `state` says. Changed by whom, holding what:
///
/// | state | meaning | set by |
/// | --- | --- | --- |
/// | `IDLE` | in no sleepers' list | its thread |
/// | `SLEEPING` | in a mutex's list or queue; wants a wake-up | its thread, or whoever requeues it, under the mutex's wait lock if it has one |
/// | `WOKEN` | in a mutex's list; must try for the lock | an unlocker, under the wait lock |
/// | `HANDED` | owns the lock; in a mutex's list, or taken out of its queue | an unlocker, under the wait lock if there is one |
/// | `WAITING` | in a condition variable's list | its thread |
/// | `LEAVING` | gave up; its thread will unlink it | its thread, from `WAITING` |
/// | `HALTED` | in a queue spinlock's queue, behind somebody; wants to be told of headship only | its thread, from `IDLE` |
/// | `HASHED` | queue head, in the lock hash; wants a kick | its thread, from `HEAD`; the one in front, from `HALTED`, holding the lock |
/// | `HEAD` | queue head, spinning | the one in front, from `IDLE`, holding the lock; an unlocker, from `HASHED`, holding the lock; of a readers-writer lock: whoever passes headship on, or calls, under its guard |
/// | `ABANDONED` | in a hand-off mutex's queue, but nobody waits | its thread, from `SLEEPING` |
/// | `TAKEN` | a spare node that its thread is about to use | its thread, from `IDLE` |
/// | `SIGNALLED` | out of the condition variable, not yet in the mutex's list | a signaller, from `WAITING`, under the condition variable's lock |
///
/// [`state::CANCELLED`] may be set on `WAITING` by anyone. `WAITING` is left by compare-and-swap only, so exactly
/// one of a signal and a time-out wins.
pub mod state {
    /// In no list.
    pub const IDLE: u32 = 0;
    /// In a mutex's list, asleep or about to be.
    pub const SLEEPING: u32 = 1;
    /// In a mutex's list, woken.
    pub const WOKEN: u32 = 2;
    /// In a mutex's list, and the owner.
    pub const HANDED: u32 = 3;
    /// In a condition variable's list.
    pub const WAITING: u32 = 4;
    /// In a condition variable's list, giving up.
    pub const LEAVING: u32 = 5;
    /// Signalled, in no list.
    pub const SIGNALLED: u32 = 6;
    /// In a queue spinlock's queue, not its head, halted or about to be.
    pub const HALTED: u32 = 7;
    /// In a queue spinlock's queue, its head, and to be found in the lock hash: halted or about to be.
    pub const HASHED: u32 = 8;
    /// In a queue spinlock's queue, its head, spinning.
    pub const HEAD: u32 = 9;
    /// In a hand-off mutex's queue, given up: belongs to the queue until it is taken out.
    pub const ABANDONED: u32 = 10;
    /// A spare node in use, in no queue.
    pub const TAKEN: u32 = 11;
    /// A mark upon `WAITING`: look whether the thread is to be cancelled.
    pub const CANCELLED: u32 = 1 << 31;
}

/// One waiter. A cache line of its own, because its owner spins on it.
#[repr(C, align(64))]
pub struct Node<P: Platform> {
    /// Spinners' queue: who is behind. Set by the one behind, taken by the owner ([`crate::mcs`]).
    pub(crate) next: P::U32,
    /// Spinners' queue: who is in front. Set by the owner, then by the one in front as it leaves.
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
    /// How urgent its thread is: see [`Platform::priority`]. Set by the owner before it is linked.
    pub(crate) priority: P::U32,
    /// How often it was woken in vain. Guarded by the mutex's wait lock. In a spare node: the [`Platform::epoch`] in which it
    /// was taken.
    pub(crate) attempts: P::U32,
    /// How many unlocks passed it over for a spinner. Guarded by the mutex's wait lock. Of a readers-writer lock: the phase in which it came.
    pub(crate) passed: P::U32,
    /// 1 while it is linked in a condition variable's list. Guarded by that list's lock.
    pub(crate) linked: P::U32,
    /// The mutex that a condition variable's waiter is to get back (its address), 0 if it is to be woken
    /// instead. Set by the owner before it is linked. In a spare node: the lock for which it was taken.
    pub(crate) mutex: P::Usize,
    /// When it was kicked, in nanoseconds of [`Platform::now`], 0 if nobody counts. Written by the holder of the
    /// queue spinlock before the node becomes `HEAD`, and of the hand-off mutex before it becomes `HANDED`.
    pub(crate) kicked: P::Usize,
}

/// Nodes a thread has besides, for waits that it may give up and leave behind: see [`crate::handoff`].
pub const SPARES: u32 = 4;

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

/// A thread's nodes.
pub struct Record<P: Platform> {
    nodes: [Node<P>; LEVELS as usize],
    /// Each belongs to the thread while it is `IDLE` or in one of its waits, and to a queue while it is `ABANDONED`, which
    /// may outlast the thread.
    spares: [Node<P>; SPARES as usize],
    /// Nodes in use. Written by the record's own thread only, a signal handler on it included.
    depth: P::U32,
    /// Set for good when somebody asked to cancel the record's thread.
    cancelled: P::U32,
    /// Since when the thread has used locks that others wait for without a CPU, in nanoseconds of [`Platform::now`] without the
    /// lowest bit, which says instead that somebody was woken to relieve it. 0 before it is asked. Written by the record's own
    /// thread only, a signal handler on it included, to which it is a hint.
    stint: P::Usize,
    /// When it was last asked whether that is over.
    asked: P::Usize,
    /// How many readers-writer locks the thread has left that somebody waited for without a CPU. Written by the record's own thread only, a signal
    /// handler on it included, to which it is a hint.
    left: P::U32,
    /// What the platform knows of the thread's priority, and since when: its own to read and write, on the
    /// record's own thread.
    priority: [P::U32; 2],
    /// 1 while the thread chooses a spare node. Written by the record's own thread only, a signal handler on it included.
    choosing: P::U32,
}

impl<P: Platform> Node<P> {
    fn new() -> Self {
        Node {
            next: P::U32::new(0),
            prev: P::U32::new(0),
            ready: P::U32::new(0),
            tag: P::U32::new(0),
            state: P::U32::new(0),
            after: P::U32::new(0),
            before: P::U32::new(0),
            priority: P::U32::new(0),
            attempts: P::U32::new(0),
            passed: P::U32::new(0),
            linked: P::U32::new(0),
            mutex: P::Usize::new(0),
            kicked: P::Usize::new(0),
        }
    }

    /// The calling thread, whose node it is, is about to queue.
    pub(crate) fn set_priority(&self) {
        self.priority.store(P::priority(), Relaxed);
    }
}

impl<P: Platform> Default for Record<P> {
    fn default() -> Self {
        Record {
            nodes: core::array::from_fn(|_| Node::new()),
            spares: core::array::from_fn(|_| Node::new()),
            depth: P::U32::new(0),
            cancelled: P::U32::new(0),
            stint: P::Usize::new(0),
            asked: P::Usize::new(0),
            left: P::U32::new(0),
            priority: [P::U32::new(0), P::U32::new(0)],
            choosing: P::U32::new(0),
        }
    }
}

impl<P: Platform> Record<P> {
    /// Makes a recycled record a new thread's. Call it before the thread can wait.
    pub fn renew(&self) {
        self.depth.store(0, Relaxed);
        self.cancelled.store(0, Relaxed);
        self.choosing.store(0, Relaxed);
        self.stint.store(0, Relaxed);
        self.left.store(0, Relaxed);
        for word in &self.priority {
            word.store(0, Relaxed);
        }
        // The last thread may have ended in the middle of a wait, by way of a signal handler.
        for spare in &self.spares {
            let _ = spare.state.compare_exchange(state::TAKEN, state::IDLE, Relaxed, Relaxed);
            let _ = spare.state.compare_exchange(state::SLEEPING, state::ABANDONED, Relaxed, Relaxed);
        }
    }

    /// Where a platform may keep what it knows of the thread for [`Platform::priority`]: two words, which are
    /// 0 when the record is a new thread's.
    pub fn priority(&self) -> &[P::U32; 2] {
        &self.priority
    }

    /// Whether none of its nodes is in use, or in a queue, at this moment. For checkers: no lock asks.
    pub fn is_at_rest(&self) -> bool {
        self.depth.load(Relaxed) == 0
            && self.spares.iter().all(|spare| spare.state.load(Relaxed) == state::IDLE)
    }

    /// Whether one of its nodes says [`state::SLEEPING`]: it is in the list of a lock, asleep or about to be.
    /// For checkers, which read a word by `peek`.
    pub fn is_asleep(&self, peek: impl Fn(&P::U32) -> u32) -> bool {
        self.nodes.iter().any(|node| peek(&node.state) == state::SLEEPING)
    }

    /// Whether the calling thread, whose record it is, is to be relieved: when it has been at it for so many nanoseconds. It is told
    /// so once in each stint. Where it was not asked for twice as long, it had no CPU, or better things to do, and the stint
    /// begins anew.
    pub(crate) fn ends_stint(&self, nanoseconds: usize) -> bool {
        let now = (P::now() as usize & !1).max(2);
        let began = self.stint.load(Relaxed);
        let fresh = began == 0 || now.wrapping_sub(self.asked.load(Relaxed)) > nanoseconds.saturating_mul(2);
        let over = !fresh && now.wrapping_sub(began & !1) >= nanoseconds;
        self.asked.store(now, Relaxed);
        if over || fresh {
            self.stint.store(now | usize::from(over), Relaxed);
        }
        over
    }

    /// Whether the calling thread, which has left a readers-writer lock, is to ask for the time: once in two to the so manieth.
    pub(crate) fn leaves_often(&self, logarithm: u32) -> bool {
        let left = self.left.load(Relaxed).wrapping_add(1);
        self.left.store(left, Relaxed);
        left & ((1 << logarithm) - 1) == 0
    }

    /// Whether somebody was woken to relieve the calling thread, and it has not slept since.
    pub(crate) fn is_relieved(&self) -> bool {
        self.stint.load(Relaxed) & 1 != 0
    }

    /// The calling thread is about to sleep: its stint is over.
    pub(crate) fn rests(&self) {
        self.stint.store(0, Relaxed);
    }

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
    pub(crate) fn node(&self) -> &'static Node<P> {
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
    /// Takes a spare node for the lock at this address: the one that the thread left in its queue, if there is one, or else one
    /// that is in no queue. `None` if all are in use, or in other locks' queues, or if the caller is a signal handler that
    /// has interrupted the choice.
    pub(crate) fn take(lock: usize) -> Option<Self> {
        let index = P::current()?;
        let record = P::record(index);
        // A node that was looked at is still what it was when it is taken, for nobody but this thread gives it to another
        // lock: a handler in between, which could have done that, leaves the nodes alone. One that runs between the load and
        // the store has come to its end when the store is made.
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
            if spare.attempts.load(Relaxed) != epoch {
                // The queue was the parent's of a forked child.
                let _ = spare.state.compare_exchange(state::ABANDONED, state::IDLE, Relaxed, Relaxed);
            } else if spare.mutex.load(Relaxed) == lock
                // Acquire: if it was handed the lock meanwhile, that is seen by the wait.
                && spare.state.compare_exchange(state::ABANDONED, state::SLEEPING, Acquire, Relaxed).is_ok()
            {
                return Some(named(place, true));
            }
        }
        for (place, spare) in spares.iter().enumerate() {
            // Acquire: partner of the release by who took it out of its last queue.
            if spare.state.load(Relaxed) == state::IDLE
                && spare.state.compare_exchange(state::IDLE, state::TAKEN, Acquire, Relaxed).is_ok()
            {
                spare.mutex.store(lock, Relaxed);
                spare.attempts.store(epoch, Relaxed);
                return Some(named(place, false));
            }
        }
        None
    }

    /// Whether it was in the lock's queue already, and is again a waiter there.
    pub(crate) fn is_taken_up(&self) -> bool {
        self.taken_up
    }

    /// The node's name.
    pub(crate) fn waiter(&self) -> Waiter {
        self.waiter
    }

    /// There was no wait: the node, [`state::TAKEN`], has been in no queue. A wait makes its node idle itself.
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

/// The sleepers' list: circular, doubly linked through `after` and `before`, entered through a word that
/// names the first. Every function needs the lock that guards the list; all accesses are relaxed because
/// that lock orders them.
///
/// **PRIORITY.** Each node is at least as urgent as the one after it, unless that is the first again.
pub(crate) mod list {
    use super::{NodeId, Platform, Relaxed};
    use crate::platform::Atomic;

    /// The first node.
    pub(crate) fn first<P: Platform>(head: &P::U32) -> Option<NodeId> {
        NodeId::from_raw(head.load(Relaxed))
    }

    /// The node after `id`; `None` if that is the last.
    pub(crate) fn following<P: Platform>(head: &P::U32, id: NodeId) -> Option<NodeId> {
        let next = id.get::<P>().after.load(Relaxed);
        if next == head.load(Relaxed) { None } else { NodeId::from_raw(next) }
    }

    /// Adds behind all that are as urgent, or more: at the end, if it is not a real-time thread's.
    pub(crate) fn push<P: Platform>(head: &P::U32, id: NodeId) {
        insert::<P>(head, id, id.get::<P>().priority.load(Relaxed));
    }

    /// Adds in front of all that are as urgent, or less: a node that keeps its turn.
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
        next.get::<P>().before.store(id.raw(), Relaxed);
        if let Some(before) = NodeId::from_raw(before) {
            before.get::<P>().after.store(id.raw(), Relaxed);
        }
        if next == first && !at_end {
            head.store(id.raw(), Relaxed);
        }
    }

    /// Takes out.
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
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::{LEVELS, NodeId, Relaxed, list};
    use crate::platform::Atomic;
    use crate::testing::{Lists, Numbers, RECORDS, U32};

    /// The list, from its first node, and the other way round.
    fn contents(head: &U32) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = list::first::<Lists>(head).into_iter().collect();
        while let Some(next) = nodes.last().and_then(|last| list::following::<Lists>(head, *last)) {
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
            let mut idle: Vec<NodeId> = (0..RECORDS * LEVELS).map(|at| NodeId(at + 1)).collect();
            for _ in 0..300 {
                if numbers.below(3) == 0 && !model.is_empty() {
                    let (id, _) = model.remove(numbers.below(model.len() as u32) as usize);
                    list::remove::<Lists>(&head, id);
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
                        list::push_first::<Lists>(&head, id);
                    } else {
                        list::push::<Lists>(&head, id);
                    }
                }
                assert!(contents(&head).iter().eq(model.iter().map(|(id, _)| id)), "seed {seed}");
            }
        }
    }
}
