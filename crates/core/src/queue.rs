//! The queue along which a mutex goes from owner to owner: MCS, but a waiter may leave, and a turn that falls
//! to a thread without a CPU goes to one that has one.
//!
//! After Mellor-Crummey and Scott (ACM TOCS 1991): each waiter spins on a word of its own node, and the one in
//! front writes there, so a turn moves a few cache lines, however many wait. Scott's queue locks with timeout
//! (PODC 2002) let a waiter leave by a mark that the one in front finds.
//!
//! The queue is its `tail` word: 0 if empty, else the [`Place`] of the last node. `next` runs from the *front*
//! to the tail. The front is the node whose thread competes for the mutex (the head), or owns it.
//!
//! # The place word
//!
//! A node's `place` says for which mutex it is used, and as what. So a compare-and-swap of it acts on that
//! mutex alone, whatever else the node was used for meanwhile.
//!
//! | kind | meaning | left by |
//! | --- | --- | --- |
//! | (0) | free | its thread: `WAITING` |
//! | `WAITING` | its thread spins on this word | its thread: `LEFT`, `HEAD` if it joined an empty queue; the front: `HEAD`, `GRANTED` |
//! | `LEFT` | its thread has given up, and may come back | its thread: `WAITING`; the front: `KEPT` |
//! | `HEAD` | front: its thread competes for the mutex | the front: `KEPT`, free |
//! | `GRANTED` | front: its thread owns the mutex, once it has claimed it | the front: free; a thief: `DOUBTED` |
//! | `DOUBTED` | front: a thief looks whether it was claimed | that thief: `KEPT`, `STOLEN` |
//! | `STOLEN` | front: the thief owns the mutex, its thread does not | the front: free |
//! | `KEPT` | front: its thread, or one that went past it, owns the mutex or is about to pass it on | the front: free |
//!
//! "The front" is the one thread that holds the front's duties: the head, or the owner.
//!
//! # Why it works
//!
//! 1. *Only the front changes `next` links of nodes in the queue, and frees nodes.* A joiner writes the link of
//!    the last node once, after its swap of the tail. The front frees its node only when it has seen that link,
//!    or has moved the tail from the node to 0. So no thread writes to a node that was freed, and no node is
//!    used again while another one may link itself to it.
//! 2. *A turn goes to one thread.* It leaves the front by one compare-and-swap of `WAITING`, which fails if the
//!    waiter has left. A node that was left is taken by `LEFT` to `KEPT`, which fails if its thread has come
//!    back; the front goes on from there. So a waiter that does not spin holds up nobody.
//! 3. *A grant is claimed or stolen, not both.* Its thread swaps 1 into its claim word, then looks at `place`
//!    once more. A thief changes `GRANTED` to `DOUBTED`, then looks at the claim word by a read-modify-write.
//!    Of the two read-modify-writes of the claim word one comes second and sees the other: if it is the thief's,
//!    it finds the claim; if it is the claimant's, it finds `DOUBTED` and waits for the outcome. The claim word
//!    is in a line of its thread's own, so a claim that nobody doubts moves no cache line. It is reset before
//!    the node is `WAITING`, and a grant comes after that.
//! 4. *A thief uses the node that it found at the front, and leaves its own.* The owner is the only one who
//!    passes turns, so no turn comes to its own node meanwhile.
//! 5. *If no thread owns the mutex or competes as the head, the queue is empty*: the front leaves by passing its
//!    turn, or by moving the tail to 0. So a free mutex that nobody waits for has no node in its queue, and its
//!    memory may go.
//!
//! In a forked child the nodes of the parent's queues are free again once the thread looks for a node: `epoch`
//! says so.
//!
//! A thread that is preempted between its swap of the tail and the link keeps the front waiting, which
//! [`Platform::stall`]s and so yields its CPU. A thief that is preempted between `DOUBTED` and the outcome keeps
//! the claimant waiting in the same way.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{Atomic, Platform, Running, Spin};
use crate::record::{PLACES, QueueNode, Record};
use crate::waiting::stall_until;

const WAITING: usize = 1;
const LEFT: usize = 2;
const HEAD: usize = 3;
const GRANTED: usize = 4;
const DOUBTED: usize = 5;
const STOLEN: usize = 6;
const KEPT: usize = 7;
const KIND: usize = 0xf;

/// The name of a queue node: `index * PLACES + number + 1`; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    pub(crate) fn raw(self) -> u32 {
        self.0
    }

    pub(crate) fn from_raw(raw: u32) -> Option<Place> {
        if raw == 0 { None } else { Some(Place(raw)) }
    }

    /// Whose node it is.
    pub fn index(self) -> u32 {
        (self.0 - 1) / PLACES
    }

    fn record<P: Platform>(self) -> &'static Record<P> {
        P::record(self.index())
    }

    fn number(self) -> usize {
        ((self.0 - 1) % PLACES) as usize
    }

    fn get<P: Platform>(self) -> &'static QueueNode<P> {
        &self.record::<P>().queue_nodes[self.number()]
    }

    fn claim<P: Platform>(self) -> &'static P::U32 {
        &self.record::<P>().own.claims[self.number()]
    }
}

/// What came of queuing up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The thread is the head, and may compete for the mutex. It passes its turn on in the end.
    Head(Place),
    /// The thread owns the mutex. What the last owner did happens before the return.
    Granted(Place),
    /// Neither: it has given up, or has no node left.
    Left,
}

/// Which turn the front passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// To be the head.
    Headship,
    /// To be the owner.
    Ownership,
}

/// The queue of one mutex.
pub struct Queue<'a, P: Platform> {
    tail: &'a P::U32,
    /// The mutex, in all but the bits of [`KIND`].
    mutex: usize,
}

impl<'a, P: Platform> Queue<'a, P> {
    /// The queue with this tail, of the mutex at this address, which is a multiple of 4.
    pub fn new(tail: &'a P::U32, mutex: usize) -> Self {
        // Addresses of user space have two bits to spare at the top: 57 bits on x86-64, 52 on aarch64.
        Queue { tail, mutex: mutex << 2 }
    }

    /// Queues up and spins until it is this thread's turn, or until a spin budget is used up, or the one in front
    /// is found to have no CPU because this thread has it. Looks at the one in front a few times.
    pub fn enter(&self, looks: u32) -> Turn {
        let Some((place, back)) = self.take() else { return Turn::Left };
        let node = place.get::<P>();
        node.tag.store(P::tag(), Relaxed);
        if !back {
            node.next.store(0, Relaxed);
            // `front` waits for the new one.
            node.prev.store(0, Relaxed);
            node.grants.store(0, Relaxed);
            place.claim::<P>().store(0, Relaxed);
            // Release: the stores above come before any other thread finds the node. Acquire: those of the node
            // in front come before we write to it.
            let Some(front) = Place::from_raw(self.tail.swap(place.raw(), AcqRel)) else {
                node.place.store(self.mutex | HEAD, Relaxed);
                return Turn::Head(place);
            };
            node.prev.store(front.raw(), Relaxed);
            // Release: partner of the load in `successor`.
            front.get::<P>().next.store(place.raw(), Release);
        }
        for _ in 0..looks {
            let mut budget = P::Spin::fresh();
            budget.cut(256 / looks);
            loop {
                if let Some(turn) = self.turn(place) {
                    return turn;
                }
                if !budget.spin() {
                    break;
                }
            }
            // The one in front was left alone so far: to look at its line costs both.
            if let Some(stolen) = self.steal(place) {
                return Turn::Granted(stolen);
            }
            if self.is_displaced(place) {
                break;
            }
        }
        match node.place.compare_exchange(self.mutex | WAITING, self.mutex | LEFT, Release, Relaxed) {
            Ok(_) => Turn::Left,
            Err(_) => self.turn(place).unwrap_or(Turn::Left),
        }
    }

    /// What has come of a wait, if anything.
    fn turn(&self, place: Place) -> Option<Turn> {
        // Acquire: partner of `pass`.
        match place.get::<P>().place.load(Acquire) ^ self.mutex {
            WAITING => None,
            HEAD => Some(Turn::Head(place)),
            _ => Some(if self.claim(place) { Turn::Granted(place) } else { Turn::Left }),
        }
    }

    /// A node for this mutex, `WAITING`. True: it is in the queue already.
    fn take(&self) -> Option<(Place, bool)> {
        let index = P::current()?;
        let nodes = &P::record(index).queue_nodes;
        let places = || nodes.iter().zip(index * PLACES + 1..).map(|(node, raw)| (Place(raw), node));
        let epoch = P::epoch();
        for (place, node) in places() {
            let seen = node.place.load(Relaxed);
            if node.epoch.load(Relaxed) != epoch {
                // Only this thread writes it, and a handler on it does what it does. The free node stays free.
                let _ = node.place.compare_exchange(seen, 0, Relaxed, Relaxed);
                node.epoch.store(epoch, Relaxed);
            } else if seen == self.mutex | LEFT
                && node.place.compare_exchange(seen, self.mutex | WAITING, Acquire, Relaxed).is_ok()
            {
                return Some((place, true));
            }
        }
        // One atomic step: a signal handler on this thread finds the node free, or taken. Acquire: partner of
        // the stores that free a node.
        let free = |node: &QueueNode<P>| {
            node.place.load(Relaxed) == 0
                && node.place.compare_exchange(0, self.mutex | WAITING, Acquire, Relaxed).is_ok()
        };
        places().find(|(_, node)| free(node)).map(|(place, _)| (place, false))
    }

    /// (3) Takes the turn that this thread was granted, unless another has stolen it.
    fn claim(&self, place: Place) -> bool {
        // Acquire: partner of the thief's read-modify-write; its `DOUBTED` is there if it came first.
        place.claim::<P>().swap(1, AcqRel);
        let node = place.get::<P>();
        stall_until::<P, _>(|| match node.place.load(Acquire) ^ self.mutex {
            GRANTED | KEPT => Some(true),
            DOUBTED => None,
            // The thief may have passed its turn on, and freed the node.
            _ => Some(false),
        })
    }

    /// (4) Takes the turn of the node in front, if it was granted one that it has not claimed. Returns the front
    /// that this thread is the owner at; its own node is left.
    fn steal(&self, own: Place) -> Option<Place> {
        let node = own.get::<P>();
        let place = Place::from_raw(node.prev.load(Relaxed))?;
        let front = place.get::<P>();
        let claim = place.claim::<P>();
        if front.place.load(Relaxed) != self.mutex | GRANTED || claim.load(Relaxed) != 0 {
            return None;
        }
        // Release: partner of the claimant's look.
        front.place.compare_exchange(self.mutex | GRANTED, self.mutex | DOUBTED, AcqRel, Relaxed).ok()?;
        let outcome = if claim.fetch_or(0, AcqRel) != 0 { KEPT } else { STOLEN };
        // By compare-and-swap: one that claimed it before the doubt may have passed its turn on, and use its node
        // again. Acquire: partner of `pass`. Release: partner of the claimant's look.
        let settled =
            front.place.compare_exchange(self.mutex | DOUBTED, self.mutex | outcome, AcqRel, Relaxed);
        if settled.is_err() || outcome == KEPT {
            return None;
        }
        front.thief.store(own.index(), Relaxed);
        // In the queue, unless this thread was late, and others have stolen its turn and passed it on.
        let _ = node.place.compare_exchange(self.mutex | WAITING, self.mutex | LEFT, Release, Relaxed);
        Some(place)
    }

    /// Whether the thread in front was last seen on the CPU that this one has now.
    fn is_displaced(&self, own: Place) -> bool {
        let front = Place::from_raw(own.get::<P>().prev.load(Relaxed));
        front.is_some_and(|front| P::running(front.get::<P>().tag.load(Relaxed)) == Running::No)
    }

    /// Whether a node is behind this one, which is the front.
    pub fn is_followed(&self, front: Place) -> bool {
        front.get::<P>().next.load(Relaxed) != 0
    }

    /// The head, whose node this is, has become the owner, and keeps its place.
    pub fn keep(&self, front: Place) {
        let node = front.get::<P>();
        node.grants.store(0, Relaxed);
        node.place.store(self.mutex | KEPT, Relaxed);
    }

    /// Whether the node is the front of this queue, and this is the process in which it became that. Asked by
    /// the owner.
    pub fn is_front(&self, place: Place) -> bool {
        let node = place.get::<P>();
        node.epoch.load(Relaxed) == P::epoch()
            && matches!(node.place.load(Relaxed) ^ self.mutex, GRANTED | DOUBTED | STOLEN | KEPT)
    }

    /// How many owners have had the mutex since a head took it, up to the one at this front.
    pub fn grants(&self, front: Place) -> u32 {
        front.get::<P>().grants.load(Relaxed)
    }

    /// The front passes its turn on, and leaves. False if there is nobody to pass it to: then the queue is
    /// empty. What the caller did happens before what the next front does.
    ///
    /// If it passes ownership on, that is its last access to the mutex.
    pub fn pass(&self, mut front: Place, pass: Pass) -> bool {
        let turn = if pass == Pass::Headship { HEAD } else { GRANTED };
        loop {
            let node = front.get::<P>();
            let Some(next) = self.successor(front) else {
                // Release, here and below: partner of `take`.
                node.place.store(0, Release);
                return false;
            };
            let waiter = next.get::<P>();
            waiter.grants.store(node.grants.load(Relaxed).wrapping_add(1), Relaxed);
            let granted = stall_until::<P, _>(|| {
                let place = &waiter.place;
                match place.compare_exchange(self.mutex | WAITING, self.mutex | turn, Release, Relaxed) {
                    Ok(_) => Some(true),
                    // Acquire: partner of its thread's leaving.
                    Err(_) => place
                        .compare_exchange(self.mutex | LEFT, self.mutex | KEPT, Acquire, Relaxed)
                        .is_ok()
                        .then_some(false),
                }
            });
            node.place.store(0, Release);
            if granted {
                return true;
            }
            front = next;
        }
    }

    /// The node behind the front, waiting for one that has swapped the tail but not linked itself yet. `None`:
    /// there was none, and the queue is empty.
    fn successor(&self, front: Place) -> Option<Place> {
        stall_until::<P, _>(|| {
            // Acquire: partner of the link.
            if let Some(next) = Place::from_raw(front.get::<P>().next.load(Acquire)) {
                return Some(Some(next));
            }
            // Release: the next to join comes after us.
            let last = self.tail.load(Relaxed) == front.raw()
                && self.tail.compare_exchange(front.raw(), 0, AcqRel, Relaxed).is_ok();
            last.then_some(None)
        })
    }

    /// The front, for a thread that the mutex belongs to although another one acquired it.
    pub fn front(&self) -> Place {
        stall_until::<P, _>(|| {
            // Acquire: partner of joining. No node that is found in this way has the `prev` of an earlier use, so
            // the way leads along the queue, or ends at a thread that has not linked itself.
            let mut place = Place::from_raw(self.tail.load(Acquire))?;
            loop {
                match place.get::<P>().place.load(Acquire) ^ self.mutex {
                    GRANTED | STOLEN | KEPT => return Some(place),
                    // Beyond the front are nodes that have left the queue.
                    DOUBTED => return None,
                    _ => place = Place::from_raw(place.get::<P>().prev.load(Relaxed))?,
                }
            }
        })
    }

    /// The owner has another thread release the mutex, which calls this, and keeps its place no more: a place that
    /// it goes on to keep may be another's by the time it owns the mutex again.
    pub fn forget(&self, front: Place) {
        let node = front.get::<P>();
        let keeper = match node.place.load(Relaxed) ^ self.mutex {
            STOLEN => P::record(node.thief.load(Relaxed)),
            _ => front.record::<P>(),
        };
        // The keeper keeps no other place as long as it keeps one. Its next acquisition comes after this.
        let _ = keeper.own.kept.0.compare_exchange(self.mutex >> 2, 0, Relaxed, Relaxed);
    }
}
