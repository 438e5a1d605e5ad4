//! The default mutex, `poundlock`: a thread that finds it free takes it, one waiter is awake, the others
//! sleep.
//!
//! A test-and-set takes it ("barging"), so a running thread never waits for one that does not run. Behind it
//! stand a queue of spinners and a list of sleepers. The ideas are those of Waiman Long's adaptive mutex
//! ([`crate::adaptive`]), of Dice's "Malthusian locks" (EuroSys 2017: no more threads awake than keep the
//! lock busy), and of the designated waker of Mesa's, nsync's and Abseil's mutexes (one woken thread at a
//! time).
//!
//! This file has the word, its transitions and what they promise. How to wait is a [`Policy`], which acts on
//! the mutex through an [`Attempt`] only; so another policy needs no other proof. The default one is
//! [`Learning`].
//!
//! # The words
//!
//! `state`:
//!
//! | bit | meaning | set by | cleared by |
//! | --- | --- | --- | --- |
//! | `LOCKED` | held | the thread that takes it | the owner |
//! | `AWAKE` | a waiter is awake, will try | that waiter; its waker | it, as it acquires or stops trying |
//! | `SLEEPERS` | the list is not empty | the thread that adds to it | the one that takes the last out |
//! | `GRANTED` | held, and goes along the queue | the head of the queue, as it takes it | the owner |
//! | the rest | how often the first sleeper was bypassed | releases; waiters | a take-out |
//!
//! An unlock that finds `AWAKE` need not wake a thread. Waiters count a bypass when they acquire or go to
//! sleep. The highest bit of the rest is `BYPASS_BOUND`: it is reached, and the next unlock serves the first
//! sleeper, whichever thread is awake.
//!
//! The other words are the [waiting room](crate::waiting). Its `owner` holds the owner's tag in the low bits,
//! and in the others what the policy leaves for the next threads. Only owners write it. The tag is 0 while
//! the mutex is free, so that a new owner adds its own, and what the policy adds, by one instruction.
//!
//! # Invariants
//!
//! * **EXCLUSION.** Only a read-modify-write that finds `LOCKED` clear and sets it acquires the mutex, except
//!   that an unlocker may leave it set and make the first sleeper the owner ([`state::HANDED`]), or the next
//!   in the queue (GRANTS). Only the owner clears it.
//! * **GRANTS.** Where threads have CPUs, the mutex goes from owner to owner along the [queue](crate::queue),
//!   by a word of the next one's own. `GRANTED` is set by the head of the queue in the read-modify-write that
//!   acquires the mutex, if others are behind it. From then on the owner is the queue's front; a grant
//!   changes no word of the mutex, which stays held, so that nothing else in this list speaks of it. The
//!   owner clears the bit before it releases the mutex: when the queue is empty, or when the mutex was
//!   granted [`Bounds::grants_before_release`] times. Then a thread that only tries has its chance. Now and
//!   then ([`Bounds::looks_after`]) an owner calls a sleeper, who then spins in the queue.
//!
//!   The platform knows the one mutex whose place a thread keeps ([`Platform::kept`]), so an unlock that
//!   passes it on does not touch the mutex. An owner that keeps another mutex's place already clears the bit
//!   at once, and passes on the headship. The thread that releases a mutex for its owner finds the bit, and
//!   then the front, and acts for it; what the owner has noted is out of date then, which the place's
//!   `keeper` tells.
//!
//!   `BIAS_REVOKED` is set before `GRANTED` is, so no plain release takes the bit away.
//! * **WAKER.** If `AWAKE` is set, some thread is the *designated waker*: it set the bit, or the bit was set
//!   for it as it was woken. It clears the bit when it acquires, and in the read-modify-write by which it
//!   goes to sleep or gives up, which finds the mutex held. There may be several: a sleeper is woken beside a
//!   spinner when the bypass bound is reached or a slice is over, and a plain release wipes the bit. Then one
//!   may clear it for another, which costs a wake-up in vain.
//! * **DUTY**, as in [`crate::waiting`]. The announcement is `SLEEPERS`, the debtor a designated waker:
//!   1. `Self::sleep` and `Self::requeue` set `SLEEPERS` under the wait lock, finding the mutex held. (If a
//!      requeue finds it free and no thread awake, it takes the first sleeper out and designates it.)
//!   2. A release is a compare-and-swap from a state in which `SLEEPERS` is clear or `AWAKE` is set
//!      (`Self::released`).
//!   3. A thread that takes a sleeper out clears `SLEEPERS` if it was the last, and sets `AWAKE` for it or
//!      hands it the mutex.
//!   4. WAKER.
//! * **QUIET, LAST TOUCH, PRIORITY, GIVING UP, FORKS**, as in [`crate::waiting`]. A real-time thread that
//!   comes into the list makes the state `BYPASS_BOUND`, so it does not wait for a less urgent thread that is
//!   awake.
//! * **SERVICE.** Let *H* be [`Bounds::handoff_after`], *R* two to the power of
//!   [`Bounds::releases_before_wake`], *G* [`Bounds::grants_before_release`], and *n* the number of threads.
//!   In one wait a thread enters the list at most *H* + 1 times, and while it is in the list others acquire
//!   the mutex at most (*H* + 1) ((*n* - 1) (*H* + 1) + 1) (*R* + 2) *G* times in all. The code names the
//!   steps of the proof.
//!   1. *Take-outs come often.* After at most *G* owners one releases the mutex. While the list is not empty
//!      every release counts, and after *R* of them the state is `BYPASS_BOUND`: then the next unlock takes
//!      out the first sleeper, and only that clears the count. (A release by a plain store comes before the
//!      first sleep; one of a single thread finds no sleepers.)
//!   2. *A wait has at most H + 1 of them.* A thread that is taken out and woken counts it, and the take-out
//!      after *H* of those is a hand-over.
//!   3. *No thread overtakes in the list.* Only the first is taken out. Newcomers go to the end, and have no
//!      claim to a hand-over if another is there before them. Only a thread that was taken out goes to the
//!      front. So before a thread that is in the list come those that were there when it entered and those
//!      that were taken out by then: at most *n* - 1 waits, of at most *H* + 1 take-outs each.
//!
//!   While it is not in the list a waiter is awake, and takes a bounded number of steps of its own: its
//!   policy's.
//!
//!   This holds among threads of one priority. Real-time threads come before all less urgent ones, however
//!   long those have waited; end and front are those of the part of the list that is as urgent.
//!
//! Proof: crates/core/src/poundlock/mod.rs, crates/core/src/waiting/mod.rs
//! Models: crates/model/tests/models/poundlock.rs, crates/model/tests/models/poundlock_grants.rs,
//! crates/model/tests/models/poundlock_sides.rs
//! Stress: crates/sim/src/check/mod.rs, crates/cli/src/torture.rs

mod attempt;
mod policy;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use attempt::Attempt;
pub use policy::{Bounds, Learning, Policy, Tuning};

use crate::atomic::zeroed;
use crate::events::{Event, count};
use crate::node::{Held, Node, NodeId, state};
use crate::platform::{Atomic, Deadline, Platform};
use crate::queue::{Front, Pass, Queue};
use crate::waiting::{Failure, Parked, Patience, Waiters, acquiring, poll_mutex, wake};

/// In `state`: held.
const LOCKED: u32 = 1;
/// In `state`: a waiter is awake.
const AWAKE: u32 = 2;
/// In `state`: the list of sleepers is not empty.
const SLEEPERS: u32 = 4;
/// In `state`: the mutex goes along the queue of spinners, whose front the owner is.
const GRANTED: u32 = 8;
/// In `state`: the first sleeper has been bypassed often enough.
const BYPASS_BOUND: u32 = 1 << 31;
/// In `state`: the count of bypasses.
const BYPASSES: u32 = !(LOCKED | AWAKE | SLEEPERS | GRANTED);

/// In `owner`: the owner's tag; 0 while there is none, or if it needs more bits.
const TAG: u32 = 0x0fff;
/// In `owner`: handed to a sleeper that has not woken yet.
const HANDED_OVER: u32 = TAG;
/// [`RawPoundlock::take_tagged`]: tags are below this.
pub const TAG_LIMIT: u32 = HANDED_OVER;

/// One in that many owners looks at the clock; at a side, the second and the fourth as well.
const OWNERS_A_LOOK: u32 = 4;

/// The words of a mutex, whatever its policy.
#[repr(C)]
pub struct Words<P: Platform> {
    state: P::U32,
    waiters: Waiters<P>,
}

impl<P: Platform> Words<P> {
    /// The offset of the word that names the first of the sleepers.
    pub const SLEEPERS_OFFSET: usize = {
        let offset = core::mem::offset_of!(Self, waiters) + Waiters::<P>::HEAD_OFFSET;
        assert!(offset == crate::adaptive::RawAdaptive::<P>::SLEEPERS_OFFSET);
        offset
    };
}

/// The mutex: 20 bytes, zero when unlocked. An unlocked one may be moved, copied and freed.
///
/// No method allocates, panics or unwinds; none is async-signal-safe with respect to the same mutex, all are
/// with respect to others.
#[repr(transparent)]
pub struct RawPoundlock<P: Platform, W: Policy<P> = Learning> {
    words: Words<P>,
    _policy: PhantomData<fn() -> W>,
}

/// Why an unlock takes the slow path.
#[derive(Clone, Copy, Debug)]
pub enum Contended {
    /// Others sleep, and the owner, which leaves these hints, may have used up its slice.
    SliceMayBeOver {
        /// What is in `owner`.
        hints: u32,
    },
    /// The state changed at the same time.
    StateChanged {
        /// What it is now.
        now: u32,
    },
    /// A sleeper is to be served, or the owner may be the front of the queue.
    SleeperIsDue,
    /// The owner keeps its place in the queue.
    Kept,
}

zeroed! { Words<P: Platform>: [state] waiters }
zeroed! { RawPoundlock<P: Platform, W: Policy<P>>: "An unlocked mutex.", [] words _policy }

impl<P: Platform, W: Policy<P>> RawPoundlock<P, W> {
    acquiring! {}

    /// Acquires the mutex if it is free; false if it is held. Synchronises as [`RawPoundlock::lock`] when
    /// true.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.words.state.load(Relaxed) & LOCKED == 0 && self.take()
    }

    /// Releases the mutex, which the caller holds. What the caller did happens before the next acquisition.
    /// The mutex may be destroyed and freed by another thread as soon as it can acquire it. Releasing a mutex
    /// that is free does nothing.
    #[inline]
    pub fn unlock(&self) {
        if let Err(contended) = self.unlock_fast() {
            self.unlock_contended(contended);
        }
    }

    /// The fast path of [`Self::unlock`].
    ///
    /// # Errors
    /// Why it does not do; the mutex is still held.
    #[inline(always)]
    pub fn unlock_fast(&self) -> Result<(), Contended> {
        if P::single_threaded() && self.unlock_alone() { Ok(()) } else { self.unlock_atomic() }
    }

    /// [`Self::unlock_fast`] for a caller that knows that no other thread exists. False if there is more to
    /// do; the mutex is still held.
    #[inline(always)]
    pub fn unlock_alone(&self) -> bool {
        let state = &self.words.state;
        let held = state.load(Relaxed) == LOCKED;
        if held {
            state.store(0, Relaxed);
        }
        held
    }

    /// [`Self::unlock_fast`] for a caller that knows that the process has several threads.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn unlock_atomic(&self) -> Result<(), Contended> {
        if self.is_kept() {
            return Err(Contended::Kept);
        }
        let Words { state, waiters } = &self.words;
        let hints = self.take_tag_away();
        if waiters.release(state) { Ok(()) } else { self.unlock_counted(hints) }
    }

    /// Whether the calling thread, its owner, may keep its place in the queue. Does not touch the mutex.
    #[inline(always)]
    pub fn is_kept(&self) -> bool {
        P::kept() == self.address()
    }

    /// The first half of an unlock in another order, for a caller that has touched the mutex anyway and knows
    /// that the process has several threads: what does where no thread has slept yet. False if
    /// [`Self::unlock_unbiased`] is to follow; the mutex is still held.
    #[inline(always)]
    pub fn unlock_biased(&self) -> bool {
        let Words { state, waiters } = &self.words;
        // GRANTS: then no thread keeps the mutex's place.
        waiters.is_biased() && {
            self.take_tag_away();
            waiters.release(state)
        }
    }

    /// The second half.
    ///
    /// # Errors
    /// As [`Self::unlock_fast`].
    #[inline(always)]
    pub fn unlock_unbiased(&self) -> Result<(), Contended> {
        if self.is_kept() {
            return Err(Contended::Kept);
        }
        self.unlock_counted(self.take_tag_away())
    }

    /// Releases by a read-modify-write.
    #[inline(always)]
    fn unlock_counted(&self, hints: u32) -> Result<(), Contended> {
        let state = &self.words.state;
        let seen = state.load(Relaxed);
        if seen == LOCKED {
            // DUTY 2: no thread waits.
            return Self::released_or(state.compare_exchange(LOCKED, 0, Release, Relaxed));
        }
        if W::asks_the_time(hints) && seen & SLEEPERS != 0 {
            return Err(Contended::SliceMayBeOver { hints });
        }
        let Some(free) = Self::released(seen) else { return Err(Contended::SleeperIsDue) };
        // As in `release`.
        Self::released_or(state.compare_exchange(seen, free, Release, Relaxed))
    }

    #[inline(always)]
    fn released_or(exchanged: Result<u32, u32>) -> Result<(), Contended> {
        exchanged.map(drop).map_err(|now| Contended::StateChanged { now })
    }

    /// What [`Self::unlock`] does after [`Self::unlock_fast`] in vain.
    #[cold]
    #[inline(never)]
    pub fn unlock_contended(&self, why: Contended) {
        let state = &self.words.state;
        let released = match why {
            Contended::SliceMayBeOver { hints } => !W::ends_slice(hints) && self.release(state.load(Relaxed)),
            Contended::StateChanged { now } => self.release(now),
            Contended::SleeperIsDue => false,
            Contended::Kept => return self.unlock_kept(),
        };
        if !released {
            self.unlock_slow();
        }
    }

    /// Whether the mutex is held at this moment.
    pub fn is_locked(&self) -> bool {
        self.words.state.load(Relaxed) & LOCKED != 0
    }

    /// Whether it is free, without an owner's tag, and no thread is queued or asleep in it.
    pub fn is_idle(&self) -> bool {
        let Words { state, waiters } = &self.words;
        let free = state.load(Acquire) & (LOCKED | AWAKE | SLEEPERS) == 0;
        free && waiters.owner.load(Relaxed) & TAG == 0 && waiters.is_idle()
    }

    /// What a condition variable moves its waiters to.
    pub fn words(&self) -> &Words<P> {
        &self.words
    }

    /// The fast path of [`Self::lock`]: one attempt. True if the mutex was acquired.
    #[inline(always)]
    pub fn take(&self) -> bool {
        P::single_threaded() && self.take_alone() || self.take_atomic()
    }

    /// [`Self::take`] for a caller that knows that no other thread exists: neither atomicity nor hints for
    /// spinners are needed. False says little: [`Self::take`] may succeed.
    #[inline(always)]
    pub fn take_alone(&self) -> bool {
        let state = &self.words.state;
        let free = state.load(Relaxed) == 0;
        if free {
            state.store(LOCKED, Relaxed);
        }
        free
    }

    /// [`Self::take`] for a caller that knows that the process has several threads.
    #[inline(always)]
    pub fn take_atomic(&self) -> bool {
        self.take_tagged(Self::own_tag)
    }

    /// [`Self::take_atomic`] for a caller that has a cheaper way to its [`Platform::tag`], which is below
    /// [`TAG_LIMIT`].
    #[inline(always)]
    pub fn take_tagged(&self, tag: impl FnOnce() -> u32) -> bool {
        let state = &self.words.state;
        // EXCLUSION. Acquire: partner of every release.
        if state.fetch_or(LOCKED, Acquire) & LOCKED == 0 {
            self.leave_tag(tag());
            return true;
        }
        false
    }

    /// The new owner leaves its hints.
    #[inline(always)]
    fn publish(&self) {
        self.leave_tag(Self::own_tag());
    }

    #[inline(always)]
    fn own_tag() -> u32 {
        P::tag() & TAG
    }

    /// The owner's tag is 0 while the mutex is free, so an addition sets it, and counts: one instruction. Who
    /// was handed the mutex clears it before. (A thread that was alone when it released the mutex may have
    /// left one: a wrong hint, once.)
    #[inline(always)]
    fn leave_tag(&self, tag: u32) {
        // A sum would be added in two steps.
        let added = W::owned() | tag;
        let owner = &self.words.waiters.owner;
        owner.store(owner.load(Relaxed).wrapping_add(added), Relaxed);
    }

    /// The owner's, before the release. Returns the hints.
    #[inline(always)]
    fn take_tag_away(&self) -> u32 {
        let owner = &self.words.waiters.owner;
        let hints = owner.load(Relaxed);
        owner.store(hints & !TAG, Relaxed);
        hints
    }

    /// DUTY 2: the state after the release, unless there is a sleeper to see to.
    #[inline(always)]
    fn released(seen: u32) -> Option<u32> {
        // SERVICE 1: one bypass, if a thread sleeps. The bound is not reached, so nothing overflows.
        const { assert!(SLEEPERS == 1 << 2) };
        let bypass = (seen & SLEEPERS) << (29 - W::bounds().releases_before_wake);
        let due = seen & (BYPASS_BOUND | GRANTED) != 0 || seen & (SLEEPERS | AWAKE) == SLEEPERS;
        (!due).then_some((seen & !LOCKED).wrapping_add(bypass))
    }

    /// Releases the mutex, whose state was `seen`, unless there is a sleeper to see to. LAST TOUCH, if it
    /// succeeds.
    fn release(&self, mut seen: u32) -> bool {
        while let Some(free) = Self::released(seen) {
            match self.words.state.compare_exchange(seen, free, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, patience: Patience<'_>) -> Result<(), Failure> {
        count::<P>(Event::FoundHeld);
        self.words.renew();
        let Some(held) = Held::<P>::take() else {
            return poll_mutex::<P>(patience, || self.try_lock());
        };
        held.node().attempts().store(0, Relaxed);
        let mut attempt = Attempt { mutex: self, id: held.id, waker: false, front: None, patience };
        if W::newcomer(&mut attempt, held.record()) {
            count::<P>(Event::Spun);
            return Ok(());
        }
        held.node().set_priority();
        self.words.waiters.revoke_bias();
        self.words.waiters.lock();
        attempt.sleep(true)
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// The queue of spinners.
    fn queue(&self) -> Queue<'_, P> {
        Queue::new(&self.words.waiters.tail, self.address())
    }

    /// Releases the mutex, whose owner keeps this place in the queue.
    fn unlock_kept(&self) {
        let front = Front::from_raw::<P>(P::kept_place()).filter(|front| front.is_kept::<P>());
        if front.is_some_and(|front| self.pass_on(front)) {
            // Not before: a signal handler on this thread must not keep another place meanwhile.
            return P::keep(0, 0);
        }
        P::keep(0, 0);
        self.unlock();
    }

    /// GRANTS: passes the mutex to the next in the queue, and returns true; or leaves the queue to another
    /// head, and then the mutex is as it is without a queue.
    fn pass_on(&self, front: Front) -> bool {
        let queue = self.queue();
        let Bounds { grants_before_release, looks_after, calls_apart, batch, rotation, turns: least, .. } =
            W::bounds();
        let grants = queue.grants(front) + 1;
        let mut ends = grants >= grants_before_release;
        let mut sleeper = None;
        let few = W::has_few_nodes();
        let record = P::current().map(P::record);
        let crowded = record.is_some_and(|record| record.own.crowded.load(Relaxed) != 0);
        let asks = match record.filter(|_| crowded && few) {
            Some(record) => record.has_had_its_turns(grants, least, looks_after),
            // So that it is not the same ones each time, where threads come in one order again and again.
            None => (grants + if few { grants / 61 } else { 0 }).is_multiple_of(OWNERS_A_LOOK),
        };
        if !ends && asks && queue.lasts(front) >= looks_after as usize {
            queue.restart(front, 0);
            let crowd;
            (sleeper, ends, crowd) = self.relieve();
            // Where the lines of the list and of its lock are far away, or many threads want that lock; or
            // where the sleepers have their turns soon enough.
            let apart = queue.lasts(front).saturating_mul(calls_apart as usize);
            let apart = apart.max(rotation.checked_div(crowd).unwrap_or(0) as usize);
            if apart > looks_after as usize {
                queue.restart(front, apart - looks_after as usize);
            }
            // As many stay awake as before; one more, if none was waiting.
            if crowded
                && crowd != 0
                && sleeper.is_some()
                && queue.is_followed(front)
                && let Some(record) = record
            {
                record.relieve();
            }
        }
        let turns = queue.turns(front);
        let looks = turns.is_multiple_of(OWNERS_A_LOOK) || turns < OWNERS_A_LOOK && turns.is_power_of_two();
        let batch = batch[if crowded { 1 + usize::from(P::nodes() > 2) } else { 0 }];
        let over = looks && queue.batch_lasts(front) >= batch as usize;
        let passed = !ends && queue.pass(front, Pass::Ownership, if over { turns } else { u32::MAX });
        if !passed {
            // Who queues up from now on is not to be granted it.
            self.words.state.fetch_and(!GRANTED, Relaxed);
            if ends {
                queue.pass(front, Pass::Headship, 1);
            }
        }
        if let Some(record) = record.filter(|_| crowded && few) {
            record.own.passed.store(P::now() as usize, Relaxed);
        }
        wake(sleeper);
        passed
    }

    /// The owner calls the first sleeper. True: it is to release the mutex instead. And how many are asleep,
    /// if that is a crowd.
    fn relieve(&self) -> (Option<&'static Node<P>>, bool, u32) {
        let Words { state, waiters } = &self.words;
        if state.load(Relaxed) & SLEEPERS == 0 {
            return (None, false, 0);
        }
        waiters.lock();
        // The last one's line may be far away.
        let asleep = if W::has_few_nodes() { waiters.count() } else { 0 };
        let first = waiters.first();
        let due = |first: NodeId| first.get::<P>().attempts().load(Relaxed) >= W::bounds().handoff_after;
        let ends = first.is_some_and(due);
        let sleeper = first.filter(|_| !ends).map(|first| self.words.call(first));
        waiters.unlock();
        let crowd = if W::is_crowd(asleep) { asleep } else { 0 };
        let hints = waiters.owner.load(Relaxed);
        let crowded = W::crowded(hints);
        if crowd != 0 && crowded != hints {
            waiters.owner.store(crowded, Relaxed);
        }
        (sleeper, ends, crowd)
    }

    fn unlock_slow(&self) {
        let Words { state, waiters } = &self.words;
        self.words.renew();
        if state.load(Relaxed) & GRANTED != 0 {
            // Another thread acquired it, and is the front of the queue: this one acts for it.
            let front = self.queue().front();
            if self.pass_on(front) {
                return;
            }
        }
        while state.load(Relaxed) & LOCKED != 0 {
            waiters.lock();
            let sleeper = match waiters.first() {
                Some(first) if first.get::<P>().attempts().load(Relaxed) >= W::bounds().handoff_after => {
                    self.words.take_out(first, 0);
                    waiters.owner.store(waiters.owner.load(Relaxed) | HANDED_OVER, Relaxed);
                    return waiters.hand_over(first.get());
                }
                Some(first) => Some(self.words.call(first)),
                None => {
                    self.words.change(|seen| seen & !(BYPASSES | SLEEPERS));
                    None
                }
            };
            waiters.unlock();
            // LAST TOUCH, if it succeeds.
            let released = self.release(state.load(Relaxed));
            wake(sleeper);
            if released {
                return;
            }
        }
    }

    /// Takes up the wait of a condition variable's waiter that a signaller puts into the list. Returns with
    /// the mutex held.
    pub(crate) fn sleep_requeued(&self, id: NodeId) {
        let mut attempt = Attempt { mutex: self, id, waker: false, front: None, patience: Patience::ENDLESS };
        if attempt.park() == Some(Parked::Served) && !attempt.after_sleep(false) {
            // Without patience it cannot fail.
            let _ = attempt.sleep(false);
        }
        self.words.waiters.pass_through();
    }
}

/// What does not depend on the policy.
impl<P: Platform> Words<P> {
    /// FORKS: awake and sleeping waiters are in the parent.
    #[inline]
    fn renew(&self) {
        self.waiters.renew(|| {
            self.state.fetch_and(LOCKED, Relaxed);
        });
    }

    /// Changes the state of a mutex that the caller does not set free; returns what it was.
    fn change(&self, mut next: impl FnMut(u32) -> u32) -> u32 {
        // Acquire: for a change that takes the mutex. The others order nothing.
        self.state.update(Acquire, |seen| Some(next(seen))).unwrap_or_else(|seen| seen)
    }

    /// Under the wait lock: takes the first sleeper out of the list, to be served, and notes that in the
    /// state together with `also`.
    fn take_out(&self, first: NodeId, also: u32) {
        self.waiters.remove(first);
        let none = self.waiters.first().is_none();
        self.change(|seen| seen & !(BYPASSES | if none { SLEEPERS } else { 0 }) | also);
    }

    /// Under the wait lock: tells the first sleeper to try. Returns it for the caller to wake.
    fn call(&self, first: NodeId) -> &'static Node<P> {
        // DUTY 3, WAKER: on behalf of the one that is woken.
        self.take_out(first, AWAKE);
        let node = first.get::<P>();
        // Release: partner of the load in `park`.
        node.state.store(state::WOKEN, Release);
        node
    }

    /// Puts signalled waiters of a condition variable, linked through `after` from `chain` to 0, into the
    /// list of sleepers, and wakes the first sleeper if the mutex is free and no thread is awake.
    pub(crate) fn requeue(&self, chain: NodeId) {
        self.renew();
        self.waiters.revoke_bias();
        self.waiters.lock();
        self.waiters.append(chain, |node| node.attempts().store(0, Relaxed));
        // DUTY 1: an owner sees `SLEEPERS`, or a designated waker becomes an owner. If there is neither, the
        // first one is it.
        let urgent = self.waiters.first().map_or(0, urgency::<P>);
        let seen = self.change(|seen| seen | SLEEPERS | urgent);
        let sleeper = if seen & (LOCKED | AWAKE) == 0 { self.waiters.first() } else { None };
        let sleeper = sleeper.map(|first| self.call(first));
        self.waiters.unlock();
        wake(sleeper);
    }
}

/// PRIORITY: what a sleeper adds to the state as it comes into the list.
fn urgency<P: Platform>(id: NodeId) -> u32 {
    if id.get::<P>().priority.load(Relaxed) == 0 { 0 } else { BYPASS_BOUND }
}
