//! The queue along which a mutex goes from owner to owner: MCS, but a waiter may leave, and a turn that falls
//! to a thread without a CPU goes to one that has one.
//!
//! After Mellor-Crummey and Scott (ACM TOCS 1991): each waiter spins on a word of its own node, and the one
//! in front writes there, so a turn moves a few cache lines, however many wait. Scott's queue locks with
//! timeout (PODC 2002) let a waiter leave by a mark that the one in front finds.
//!
//! The queue is its `tail` word: 0 if empty, else the name of the last node. `next` runs from the *front*
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
//! | `GRANTED` | front: its thread owns the mutex, once it has claimed it | the front: free; a thief: `STOLEN` |
//! | `STOLEN` | front: the thief owns the mutex, its thread does not | the front: free |
//! | `KEPT` | front: its thread, or one that went past it, owns the mutex or is about to pass it on | the front: free |
//!
//! "The front" is the one thread that holds the front's duties: the head, or the owner.
//!
//! # Why it works
//!
//! 1. *Only the front changes `next` links of nodes in the queue, and frees nodes.* A joiner writes the link
//!    of the last node once, after its swap of the tail. The front frees its node only when it has seen that
//!    link, or has moved the tail from the node to 0. So no thread writes to a node that was freed, and no
//!    node is used again while another one may link itself to it.
//! 2. *A turn goes to one thread.* It leaves the front by one compare-and-swap of `WAITING`, which fails if
//!    the waiter has left. A node that was left is taken by `LEFT` to `KEPT`, which fails if its thread has
//!    come back; the front goes on from there. So a waiter that does not spin holds up nobody.
//! 3. *A grant is claimed or stolen, not both.* Both are one compare-and-swap of the node's claim word, which
//!    has the number of the node's use, and whether that use's grant was claimed or stolen. The number goes up
//!    as the node is taken. A thief reads it, then finds `GRANTED`, then compares: if it succeeds, the grant
//!    is of that use, and nobody had it. Its thread compares with the number of its own wait, so it cannot
//!    claim a grant of a later use, of a signal handler's, say. The claim word is in a line of its thread's
//!    own, so a claim moves no cache line unless a thief has looked.
//! 4. *A thief uses the node that it found at the front, and leaves its own.* The owner is the only one who
//!    passes turns, so no turn comes to its own node meanwhile.
//! 5. *If no thread owns the mutex or competes as the head, the queue is empty*: the front leaves by passing
//!    its turn, or by moving the tail to 0. So a free mutex that nobody waits for has no node in its queue,
//!    and its memory may go.
//!
//! # Sides
//!
//! On a machine with several memory nodes most hand-overs stay within one, as in a cohort lock (Dice, Marathe
//! and Shavit, PPoPP 2012). A [`Side`](crate::record::Side) is one place in a mutex's queue for all threads
//! of a node, with a queue of threads in front of it. The head of that queue (the *leader*) waits at the
//! side's place, and only it: it leaves the place (`LEFT`) before it passes on the lead. An owner at a side's
//! place grants the mutex along the side's queue, for a batch of owners; then it passes its turn in the
//! mutex's queue, and the lead in the side's. It does so at once if nobody is behind it at the side, but
//! others wait in the mutex's queue: whoever joins the side meanwhile is given the lead.
//!
//! Both are queues as above; the place words of a side's queue have the bit `LOCAL`. A side belongs to the
//! mutex whose address is in its tail, until that queue is empty. Its place belongs to a mutex until it is
//! free again, or longer: a leader who finds it in use passes the lead on and queues up by itself. So a
//! thread that finds that mutexes share a side has lost time, and nothing else. A thief at the side's place
//! leaves the lead to the next of its own side, and owns the mutex at the place that it stole from; the
//! leader who lost it there passes its lead on, too.
//!
//! Sides are never unmapped, so an owner may pass the lead on after it has passed on the mutex.
//!
//! In a forked child the nodes of the parent's queues are free again once the thread looks for a node:
//! `epoch` says so. [`Platform::sides`] are as new there.
//!
//! A thread that is preempted between its swap of the tail and the link keeps the front waiting, which
//! [`Platform::stall`]s and so yields its CPU.
//!
//! Proof: crates/core/src/queue.rs
//! Models: crates/model/tests/models/queue.rs, crates/model/tests/models/queue_sides.rs
//! Stress: crates/sim/src/check/mod.rs

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::platform::{Atomic, Platform, Running, Spin};
use crate::record::{Hold, PLACES, QueueNode, Record};
use crate::waiting::stall_until;

const WAITING: usize = 1;
const LEFT: usize = 2;
const HEAD: usize = 3;
const GRANTED: usize = 4;
const STOLEN: usize = 5;
const KEPT: usize = 6;
/// In a place word: of a side's queue.
const LOCAL: usize = 8;

/// In a claim word: the grant of this use has an owner, its thread or a thief. The rest is the number of the
/// use.
const TAKEN: usize = 1;
/// In a claim word: one use.
const USE: usize = 2;

/// The name of a queue node: `index * PLACES + number + 1`; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// The place of a side: the rest is its index.
    const SIDE: u32 = 1 << 31;

    /// Its name, which is not 0.
    pub fn raw(self) -> u32 {
        self.0
    }

    pub(crate) fn from_raw(raw: u32) -> Option<Place> {
        if raw == 0 { None } else { Some(Place(raw)) }
    }

    /// The node, and what is kept beside it.
    fn parts<P: Platform>(self) -> (&'static QueueNode<P>, &'static Hold<P>) {
        if self.0 & Self::SIDE != 0 {
            let side = &P::sides()[(self.0 & !Self::SIDE) as usize];
            return (&side.node, &side.hold.0);
        }
        let record = P::record((self.0 - 1) / PLACES);
        let number = ((self.0 - 1) % PLACES) as usize;
        (&record.queue_nodes[number], &record.own.holds[number])
    }

    fn get<P: Platform>(self) -> &'static QueueNode<P> {
        self.parts::<P>().0
    }

    fn claim<P: Platform>(self) -> &'static P::Usize {
        &self.parts::<P>().1.claim
    }

    fn keeper<P: Platform>(self) -> &'static P::U32 {
        &self.parts::<P>().1.keeper
    }
}

/// Where the thread that holds the duties of the front stands: in the queue, and, if its place there is a
/// side's, in front of the side's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    place: Place,
    local: Option<Place>,
}

impl Front {
    /// The node that its thread waited at.
    fn own(self) -> Place {
        self.local.unwrap_or(self.place)
    }

    /// Whether the owner of a mutex, whose record it is, keeps a place in its queue that is a side's. For
    /// checkers, which read a word by `peek`.
    pub fn is_at_a_side<P: Platform>(record: &Record<P>, peek: impl Fn(&P::U32) -> u32) -> bool {
        Place::from_raw(peek(&record.own.kept.1))
            .is_some_and(|place| place.0 & Place::SIDE != 0 || peek(&place.get::<P>().side) != 0)
    }

    /// As one word.
    pub(crate) fn raw(self) -> u32 {
        self.own().raw()
    }

    /// Whether the calling thread keeps this place, and in this process: not if another thread has released
    /// the mutex for it.
    pub fn is_kept<P: Platform>(self) -> bool {
        let (node, hold) = self.own().parts::<P>();
        let own = P::current().map(|index| index + 1);
        node.epoch.load(Relaxed) == P::epoch() && own == Some(hold.keeper.load(Relaxed))
    }

    pub(crate) fn from_raw<P: Platform>(raw: u32) -> Option<Front> {
        let place = Place::from_raw(raw)?;
        if raw & Place::SIDE != 0 {
            return Some(Front { place, local: None });
        }
        Some(match Place::from_raw(place.get::<P>().side.load(Relaxed)) {
            Some(side) => Front { place: side, local: Some(place) },
            None => Front { place, local: None },
        })
    }
}

/// The tail of a queue.
#[derive(Clone, Copy)]
enum Tail<'a, P: Platform> {
    /// A mutex's: a word of it.
    Own(&'a P::U32),
    /// A side's, which belongs to the mutex whose address is in the upper bits while it is not 0.
    Side(&'a P::Usize, usize),
}

impl<P: Platform> Tail<'_, P> {
    /// The bits of the place in a side's tail.
    const BITS: u32 = 18;

    /// Puts a node at the end. Returns the one that was there; or an error if the tail is another mutex's.
    fn push(&self, own: Place) -> Result<Option<Place>, ()> {
        // Release: the node is whole before any other thread finds it. Acquire: so is the one in front before
        // we write to it.
        match self {
            Tail::Own(tail) => Ok(Place::from_raw(tail.swap(own.raw(), AcqRel))),
            Tail::Side(..) if own.raw() >> Self::BITS != 0 => Err(()),
            Tail::Side(tail, mutex) => {
                let mask = (1 << Self::BITS) - 1;
                let new = mutex | own.raw() as usize;
                // Not a look first: whoever writes the line in the end need not ask for it twice.
                let mut seen = 0;
                while seen == 0 || seen & !mask == *mutex {
                    match tail.compare_exchange(seen, new, AcqRel, Relaxed) {
                        Ok(_) => return Ok(Place::from_raw((seen & mask) as u32)),
                        Err(now) => seen = now,
                    }
                }
                Err(())
            }
        }
    }

    /// Empties the queue if this node is the last.
    fn clear(&self, last: Place) -> bool {
        // Release: the next to join comes after us.
        match self {
            Tail::Own(tail) => tail.compare_exchange(last.raw(), 0, AcqRel, Relaxed).is_ok(),
            Tail::Side(tail, mutex) => {
                tail.compare_exchange(mutex | last.raw() as usize, 0, AcqRel, Relaxed).is_ok()
            }
        }
    }

    fn last(&self) -> Option<Place> {
        Place::from_raw(match self {
            Tail::Own(tail) => tail.load(Acquire),
            Tail::Side(tail, _) => (tail.load(Acquire) & ((1 << Self::BITS) - 1)) as u32,
        })
    }
}

/// What came of queuing up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<F = Front> {
    /// The thread is the head, and may compete for the mutex. It passes its turn on in the end.
    Head(F),
    /// The thread owns the mutex. What the last owner did happens before the return.
    Granted(F),
    /// Neither: it has given up, or has no node left.
    Left,
    /// Neither: the queue is another mutex's.
    Refused,
}

/// What a front tells the next one.
#[derive(Clone, Copy)]
struct Told {
    /// See [`QueueNode`], and the others.
    grants: u32,
    turns: u32,
    since: usize,
}

/// For how long a thread spins in the queue.
#[derive(Clone, Copy, Debug)]
pub struct Spins {
    /// Spin budgets.
    pub budgets: u32,
    /// How much of each it spends: 256ths.
    pub share: u32,
    /// For how long it then leaves a turn to the thread in front, which was granted it and has not claimed it,
    /// before it steals it: 256ths of a budget.
    pub moment: u32,
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
    tail: Tail<'a, P>,
    /// The mutex, in all but the bits of kinds.
    mutex: usize,
}

impl<'a, P: Platform> Queue<'a, P> {
    /// The queue with this tail, of the mutex at this address, which is a multiple of 4.
    pub fn new(tail: &'a P::U32, mutex: usize) -> Self {
        // Addresses of user space have two bits to spare at the top: 57 bits on x86-64, 52 on aarch64.
        Queue { tail: Tail::Own(tail), mutex: mutex << 2 }
    }

    /// The queue of a side.
    fn local(&self, side: Place) -> Queue<'static, P> {
        let side = &P::sides()[(side.0 & !Place::SIDE) as usize];
        Queue { tail: Tail::Side(&side.tail, self.mutex << 14), mutex: self.mutex | LOCAL }
    }

    /// The side of the calling thread's memory node for this mutex, if it may use one.
    fn side(&self) -> Option<Place> {
        let sides = P::sides().len() as u32;
        let most = sides / P::nodes();
        if most == 0 || self.mutex >> 50 != 0 {
            return None;
        }
        let hash = (self.mutex >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        Some(Place(Place::SIDE | (P::node() * most + hash as u32 % most)))
    }

    /// Queues up and spins until it is this thread's turn, or until so many spin budgets are used up, or the
    /// one in front is found to have no CPU because this thread has it. Looks at the one in front at the end
    /// of each.
    pub fn enter(&self, spins: Spins) -> Turn {
        match self.side() {
            Some(side) => self.enter_by(side, spins),
            None => self.enter_alone(spins),
        }
    }

    /// At a node of the thread's own.
    fn enter_alone(&self, spins: Spins) -> Turn {
        match self.enter_at(self.take(), 0, spins) {
            Turn::Head(place) => Turn::Head(Front { place, local: None }),
            Turn::Granted(place) => Turn::Granted(Front { place, local: None }),
            Turn::Left | Turn::Refused => Turn::Left,
        }
    }

    /// In the queue of the side, and then at its place.
    fn enter_by(&self, side: Place, spins: Spins) -> Turn {
        let local = self.local(side);
        // A place that the thread had left may be another side's.
        let side_of = |own: Place| Place(own.get::<P>().side.load(Relaxed));
        let own = match local.enter_at(local.take(), side.raw(), spins) {
            Turn::Refused => return self.enter_alone(spins),
            Turn::Left => return Turn::Left,
            Turn::Granted(own) => return Turn::Granted(Front { place: side_of(own), local: Some(own) }),
            Turn::Head(own) => own,
        };
        let side = side_of(own);
        let local = self.local(side);
        let front = Front { place: side, local: Some(own) };
        let turn = self.enter_at(self.take_side(side), 0, spins);
        match turn {
            Turn::Head(_) => return Turn::Head(front),
            Turn::Granted(place) if place == side => return Turn::Granted(front),
            _ => {}
        }
        local.pass_lead(own);
        match turn {
            // Stolen from another.
            Turn::Granted(place) => Turn::Granted(Front { place, local: None }),
            Turn::Refused => self.enter_alone(spins),
            _ => Turn::Left,
        }
    }

    /// Waits at the node that was taken for this queue; `Refused` if none was. `side`: whose queue it is.
    fn enter_at(&self, taken: Option<(Place, Option<usize>)>, side: u32, spins: Spins) -> Turn<Place> {
        let Some((place, back)) = taken else { return Turn::Refused };
        let node = place.get::<P>();
        node.tag.store(P::tag(), Relaxed);
        let claim = place.claim::<P>();
        let used = back.unwrap_or_else(|| (claim.load(Relaxed) & !TAKEN).wrapping_add(USE));
        if back.is_none() {
            // Release: partner of the thief's look. One that finds this number finds no grant of an earlier
            // use.
            claim.store(used, Release);
            node.next.store(0, Relaxed);
            // `front` waits for the new one.
            node.prev.store(0, Relaxed);
            node.grants.store(0, Relaxed);
            node.turns.store(0, Relaxed);
            node.side.store(side, Relaxed);
            match self.tail.push(place) {
                Err(()) => {
                    node.place.store(0, Release);
                    return Turn::Refused;
                }
                Ok(None) => {
                    // Relaxed: nobody is in front who would pass a turn.
                    node.place.store(self.mutex | HEAD, Relaxed);
                    return Turn::Head(place);
                }
                Ok(Some(front)) => {
                    node.prev.store(front.raw(), Relaxed);
                    // Release: partner of the load in `successor`.
                    front.get::<P>().next.store(place.raw(), Release);
                }
            }
        }
        for _ in 0..spins.budgets {
            if let Some(turn) = self.spin(place, used, spins.share) {
                return turn;
            }
            // The one in front was left alone so far: to look at its line costs both.
            if self.unclaimed(place).is_some() {
                // It was granted its turn just now, or has no CPU.
                if let Some(turn) = self.spin(place, used, spins.moment) {
                    return turn;
                }
                if let Some(stolen) = self.steal(place) {
                    return Turn::Granted(stolen);
                }
            }
            if self.is_displaced(place) {
                break;
            }
        }
        match node.place.compare_exchange(self.mutex | WAITING, self.mutex | LEFT, Release, Relaxed) {
            Ok(_) => Turn::Left,
            Err(_) => self.turn(place, used).unwrap_or(Turn::Left),
        }
    }

    /// Spins for that many 256ths of a budget, or until something has come of the wait.
    fn spin(&self, place: Place, used: usize, of_256: u32) -> Option<Turn<Place>> {
        let mut budget = P::Spin::fresh();
        budget.cut(of_256);
        loop {
            let turn = self.turn(place, used);
            if turn.is_some() || !budget.spin() {
                return turn;
            }
        }
    }

    /// What has come of a wait, the node's use of this number, if anything.
    fn turn(&self, place: Place, used: usize) -> Option<Turn<Place>> {
        // Acquire: partner of `pass`.
        match place.get::<P>().place.load(Acquire) ^ self.mutex {
            WAITING => None,
            HEAD => Some(Turn::Head(place)),
            // (3) Relaxed: the last owner's doings came with the grant.
            _ => match place.claim::<P>().compare_exchange(used, used | TAKEN, Relaxed, Relaxed) {
                Ok(_) => Some(Turn::Granted(place)),
                // The thief may have passed its turn on, and freed the node.
                Err(_) => Some(Turn::Left),
            },
        }
    }

    /// The side's node, `WAITING`, for the head of the side's queue, as from `take`. `None`: it is in use.
    fn take_side(&self, side: Place) -> Option<(Place, Option<usize>)> {
        let node = side.get::<P>();
        let free = || node.place.compare_exchange(0, self.mutex | WAITING, Acquire, Relaxed).is_ok();
        let taken = self.come_back(side).map(Some).or_else(|| free().then_some(None))?;
        node.epoch.store(P::epoch(), Relaxed);
        Some((side, taken))
    }

    /// Waits again at a node that was left in this queue; the number of its use.
    fn come_back(&self, place: Place) -> Option<usize> {
        let node = place.get::<P>();
        // Acquire: partner of leaving.
        if node.place.load(Acquire) != self.mutex | LEFT {
            return None;
        }
        // Before the node is `WAITING`: from then on, a grant may be stolen at any time, and the node freed.
        let used = place.claim::<P>().load(Relaxed);
        let back = node.place.compare_exchange(self.mutex | LEFT, self.mutex | WAITING, Acquire, Relaxed);
        back.is_ok().then_some(used)
    }

    /// A node for this mutex, `WAITING`. With the number of its use if it is in the queue already.
    fn take(&self) -> Option<(Place, Option<usize>)> {
        let index = P::current()?;
        let nodes = &P::record(index).queue_nodes;
        let places = || nodes.iter().zip(index * PLACES + 1..).map(|(node, raw)| (Place(raw), node));
        let epoch = P::epoch();
        for (place, node) in places() {
            let seen = node.place.load(Relaxed);
            if node.epoch.load(Relaxed) != epoch {
                // Only this thread writes it, and a handler on it does what it does. The free node stays
                // free.
                let _ = node.place.compare_exchange(seen, 0, Relaxed, Relaxed);
                node.epoch.store(epoch, Relaxed);
            } else if let Some(used) = self.come_back(place) {
                return Some((place, Some(used)));
            }
        }
        // One atomic step: a signal handler on this thread finds the node free, or taken. Acquire: partner of
        // the stores that free a node.
        let free = |node: &QueueNode<P>| {
            node.place.load(Relaxed) == 0
                && node.place.compare_exchange(0, self.mutex | WAITING, Acquire, Relaxed).is_ok()
        };
        places().find(|(_, node)| free(node)).map(|(place, _)| (place, None))
    }

    /// The node in front, if it was granted a turn that it has not claimed, and its claim word then.
    fn unclaimed(&self, own: Place) -> Option<(Place, usize)> {
        let place = Place::from_raw(own.get::<P>().prev.load(Relaxed))?;
        let front = place.get::<P>();
        let granted = self.mutex | GRANTED;
        // The claim word is in its thread's own line, which is left alone until there is a grant.
        if front.place.load(Relaxed) != granted {
            return None;
        }
        // Acquire: partner of the store in `enter_at`.
        let used = place.claim::<P>().load(Acquire);
        // Acquire: partner of `pass`.
        (used & TAKEN == 0 && front.place.load(Acquire) == granted).then_some((place, used))
    }

    /// (3, 4) Takes the turn of the node in front, if it was granted one that it has not claimed. Returns the
    /// front that this thread is the owner at; its own node is left.
    fn steal(&self, own: Place) -> Option<Place> {
        let (place, used) = self.unclaimed(own)?;
        // Relaxed: what the last owner did came with the grant, and this is a grant of that use.
        place.claim::<P>().compare_exchange(used, used | TAKEN, Relaxed, Relaxed).ok()?;
        place.get::<P>().place.store(self.mutex | STOLEN, Relaxed);
        // In the queue, unless this thread was late, and others have stolen its turn and passed it on.
        let _ =
            own.get::<P>().place.compare_exchange(self.mutex | WAITING, self.mutex | LEFT, Release, Relaxed);
        Some(place)
    }

    /// Whether the thread in front was last seen on the CPU that this one has now.
    fn is_displaced(&self, own: Place) -> bool {
        let front = Place::from_raw(own.get::<P>().prev.load(Relaxed));
        front.is_some_and(|front| P::running(front.get::<P>().tag.load(Relaxed)) == Running::No)
    }

    /// Whether a node is behind this one, which is the front.
    pub fn is_followed(&self, front: Front) -> bool {
        let followed = |place: Place| place.get::<P>().next.load(Relaxed) != 0;
        followed(front.place) || front.local.is_some_and(followed)
    }

    /// The head, whose node this is, has become the owner, and keeps its place.
    pub fn keep(&self, front: Front) {
        let node = front.place.get::<P>();
        node.grants.store(0, Relaxed);
        node.since.store(P::now() as usize, Relaxed);
        // Relaxed: nobody else changes a head's place. Who looks for the front has been told by its thread.
        node.place.store(self.mutex | KEPT, Relaxed);
    }

    /// Whether the front, which is the calling thread, has stolen its turn.
    pub fn is_stolen(&self, front: Front) -> bool {
        let raw = front.own().raw();
        raw & Place::SIDE != 0 || P::current() != Some((raw - 1) / PLACES)
    }

    /// The owner, which is the front, keeps its place until it passes its turn on.
    pub fn note_keeper(&self, front: Front) {
        let keeper = P::current().map_or(0, |index| index + 1);
        front.own().keeper::<P>().store(keeper, Relaxed);
    }

    /// How many owners have had the mutex since a head took it, up to the one at this front; for a head,
    /// whether it waited in the queue.
    pub fn grants(&self, front: Front) -> u32 {
        // All but the leader were told, so they leave the side's node alone.
        let node = front.local.map(Place::get::<P>).filter(|node| node.turns.load(Relaxed) != 0);
        node.unwrap_or(front.place.get()).grants.load(Relaxed)
    }

    /// How many owners of one side have had it one after the other, with the one at this front; if it is at
    /// no side, how many had it before.
    pub fn turns(&self, front: Front) -> u32 {
        match front.local {
            Some(own) => own.get::<P>().turns.load(Relaxed) + 1,
            None => self.grants(front),
        }
    }

    /// How long ago the first of them passed it on, in nanoseconds.
    pub fn batch_lasts(&self, front: Front) -> usize {
        front.local.filter(|_| self.turns(front) > 1).map_or(0, Self::lasts_at)
    }

    /// Begins to measure [`Queue::lasts`] anew, in that many nanoseconds.
    pub fn restart(&self, front: Front, after: usize) {
        front.place.get::<P>().since.store((P::now() as usize).wrapping_add(after), Relaxed);
    }

    /// How long ago that was, in nanoseconds; 0 until then.
    pub fn lasts(&self, front: Front) -> usize {
        Self::lasts_at(front.place)
    }

    fn lasts_at(place: Place) -> usize {
        let lasts = (P::now() as usize).wrapping_sub(place.get::<P>().since.load(Relaxed));
        lasts.cast_signed().max(0).cast_unsigned()
    }

    /// The front passes its turn on, and leaves. False if there is nobody to pass it to: then the queue is
    /// empty. What the caller did happens before what the next front does.
    ///
    /// If it passes ownership on, that is its last access to the mutex.
    ///
    /// `batch`: after how many owners of one side it is another's turn.
    pub fn pass(&self, front: Front, pass: Pass, batch: u32) -> bool {
        front.own().keeper::<P>().store(0, Relaxed);
        let place = front.place.get::<P>();
        let kind = if pass == Pass::Headship { HEAD } else { GRANTED };
        let grants = if pass == Pass::Headship { 1 } else { self.grants(front) + 1 };
        let told = |since| Told { grants, turns: 0, since };
        let Some(own) = front.local else {
            return self.pass_one(front.place, kind, told(place.since.load(Relaxed)));
        };
        let local = self.local(front.place);
        let node = own.get::<P>();
        let turns = self.turns(front);
        // Who has nobody behind it at the side does not look for one before another side has its turn.
        let ends = pass == Pass::Headship || turns.is_multiple_of(batch) || node.next.load(Relaxed) == 0;
        // Where no other side waits, a batch has no end.
        if pass == Pass::Ownership && !(ends && place.next.load(Relaxed) != 0) {
            let since = if turns == 1 { P::now() as usize } else { node.since.load(Relaxed) };
            return local.pass_one(own, GRANTED, Told { turns, ..told(since) })
                || self.pass_one(front.place, GRANTED, told(place.since.load(Relaxed)));
        }
        let passed = self.pass_one(front.place, kind, told(place.since.load(Relaxed)));
        local.pass_lead(own);
        passed
    }

    /// In a side's queue.
    fn pass_lead(&self, own: Place) {
        self.pass_one(own, HEAD, Told { grants: 0, turns: 0, since: 0 });
    }

    /// In this queue alone.
    fn pass_one(&self, mut front: Place, turn: usize, told: Told) -> bool {
        loop {
            let node = front.get::<P>();
            let Some(next) = self.successor(front) else {
                // Release, here and below: partner of `take`.
                node.place.store(0, Release);
                return false;
            };
            let waiter = next.get::<P>();
            waiter.grants.store(told.grants, Relaxed);
            waiter.turns.store(told.turns, Relaxed);
            waiter.since.store(told.since, Relaxed);
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

    /// The node behind the front, waiting for one that has swapped the tail but not linked itself yet.
    /// `None`: there was none, and the queue is empty.
    fn successor(&self, front: Place) -> Option<Place> {
        // Acquire: partner of the link.
        let next = || Place::from_raw(front.get::<P>().next.load(Acquire));
        if let Some(next) = next() {
            return Some(next);
        }
        // In vain once, in vain for good: a node that was joined behind this one stays there. So the tail,
        // which newcomers write to, is left alone.
        if self.tail.clear(front) { None } else { Some(stall_until::<P, _>(next)) }
    }

    /// The front, for a thread that the mutex belongs to although another one acquired it.
    pub fn front(&self) -> Front {
        let place = self.front_of(GRANTED);
        // A thief is no leader of that side.
        let stolen = place.get::<P>().place.load(Relaxed) ^ self.mutex == STOLEN;
        let local = (place.0 & Place::SIDE != 0 && !stolen).then(|| self.local(place).front_of(HEAD));
        Front { place, local }
    }

    /// The node of this queue that is the front, or is of this kind.
    fn front_of(&self, kind: usize) -> Place {
        stall_until::<P, _>(|| {
            // Acquire: partner of joining. No node that is found in this way has the `prev` of an earlier
            // use, so the way leads along the queue, or ends at a thread that has not linked itself.
            let mut place = self.tail.last()?;
            loop {
                match place.get::<P>().place.load(Acquire) ^ self.mutex {
                    GRANTED | STOLEN | KEPT => return Some(place),
                    now if now == kind => return Some(place),
                    _ => place = Place::from_raw(place.get::<P>().prev.load(Relaxed))?,
                }
            }
        })
    }
}
