//! The hand-off mutex: no inner lock, no barging, and the lock passed to exactly one waiter.
//!
//! After OSv's lock-free mutex (after Gidenstam and Papatriantafilou, "LFTHREADS: A lock-free thread
//! library", 2007), with Nadav Har'El's "RFC: Mutex with spinning" (2014). A thread that finds it held counts
//! itself, may spin for a while, and queues. An unlock while others are counted takes the first out of the
//! queue and makes it the owner. If the queue is still empty, neither waits for the other: the unlocker
//! leaves a token, and the next thread that comes to queue finds it and is the owner.
//!
//! # The words
//!
//! | word | meaning | who changes it |
//! | --- | --- | --- |
//! | `count` | how many hold the lock or have set out to; 0: free | +1: lockers. -1: unlockers (1) |
//! | `queue` | the waiters, and the token: [`crate::mpsc`] | |
//! | `owner` | the owner's tag, 0 or `HANDED_OVER`: a hint for spinners (2) | the owner; its unlock |
//! | `learnt` | how spinning has gone of late; for [`Adaptive`]: see `Experience` | the owner |
//!
//! (1) And the thread that takes a waiter that gave up out of the queue, on its behalf. (2) See
//! [`Platform::tag`]; 0 while no owner has published one; `HANDED_OVER` from a hand-off until the waiter has
//! woken.
//!
//! # Invariants
//!
//! * **EXCLUSION.** The owner is: the thread that counts from 0 to 1; or that takes the token; or the waiter
//!   that an owner (or the taker of a token on its way to the queue) takes out of the queue and marks
//!   [`state::HANDED`].
//! * **COUNTED.** Every owner, every queued waiter (one that gave up included), and every thread between
//!   counting and queueing is counted, once. So an unlock that counts down to 0 leaves no thread behind, and
//!   one that does not knows of a thread that is queued, or will look for the token.
//! * **CONSUMER.** The owner alone takes out waiters and leaves the token; an unlocker that has counted down
//!   is still the owner in this sense, until it has handed over, left the token, or counted down to 0.
//! * **LAST TOUCH.** Handing over, leaving the token, and counting down to 0 are each one atomic operation,
//!   and the unlocker's last access. It wakes by an address in type-stable memory.
//! * **GAVE UP.** A waiter whose deadline has passed marks its node [`state::ABANDONED`] and leaves it in the
//!   queue, counted. The thread that takes it out frees it and counts it down. Until then the node belongs to
//!   the queue and not to its thread, which may take it up again, in its old place, if it comes back to the
//!   same lock.
//!
//! How long a locker spins before it queues is a [`Policy`] (`handoff/spinning.rs`).
//!
//! Proof: crates/core/src/handoff/mod.rs, crates/core/src/mpsc.rs
//! Models: crates/model/tests/models/handoff.rs
//! Stress: crates/sim/src/check/mod.rs, crates/cli/src/torture.rs

mod spinning;

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub use spinning::*;
use spinning::{Experience, Spell};

use crate::atomic::zeroed;
use crate::events::{Event, count};
use crate::mpsc::Queue;
use crate::node::{Held, Node, Spare, Waiter, state};
use crate::platform::{Atomic, Deadline, Platform, Spin, Until, Waited};
use crate::waiting::poll;

/// Added to `count`, counts down.
const ONE_LESS: u32 = u32::MAX;
/// In `owner`: handed to a waiter that has not woken yet.
const HANDED_OVER: u32 = u32::MAX;

/// The mutex: 20 bytes, zero when unlocked. An unlocked one may be moved, copied and freed. Not recursive:
/// see [`Handoff`].
///
/// No method allocates, panics or unwinds; none is async-signal-safe with respect to the same mutex, all are
/// with respect to others.
#[repr(C)]
pub struct RawHandoff<P: Platform> {
    count: P::U32,
    queue: Queue<P>,
    owner: P::U32,
    learnt: P::U32,
}

zeroed! { RawHandoff<P: Platform>: "An unlocked mutex.", [count owner learnt] queue }

impl<P: Platform> RawHandoff<P> {
    /// Acquires the mutex, waiting as long as it takes. What the last owner did happens before the return. A
    /// thread that holds it already waits for ever.
    #[inline]
    pub fn lock<S: Policy>(&self) {
        if !self.take() {
            self.lock_contended::<S>();
        }
    }

    /// What [`RawHandoff::lock`] does after [`RawHandoff::take`] in vain.
    #[inline]
    pub fn lock_contended<S: Policy>(&self) {
        self.lock_slow::<S>();
    }

    /// As [`RawHandoff::lock`], but gives up once `deadline` has passed; false then. A free mutex is acquired
    /// whatever the deadline.
    #[inline]
    pub fn lock_until<S: Policy>(&self, deadline: &Deadline) -> bool {
        self.try_lock() || self.lock_until_slow::<S>(deadline)
    }

    /// Acquires the mutex if it is free, or left as a token; false if it is held, or promised to a waiter.
    /// Synchronises as [`RawHandoff::lock`] when true.
    #[inline]
    pub fn try_lock(&self) -> bool {
        let seen = self.count.load(Relaxed);
        if seen == 0 && self.count.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            self.publish();
            return true;
        }
        seen != 0 && self.try_take_token()
    }

    /// Releases the mutex, which the caller holds. What the caller did happens before the next acquisition.
    /// The mutex may be destroyed and freed by another thread as soon as it can acquire it.
    #[inline]
    pub fn unlock(&self) {
        if !self.unlock_fast() {
            self.unlock_contended();
        }
    }

    /// The fast path of [`RawHandoff::unlock`]. False if others are counted: then
    /// [`RawHandoff::unlock_contended`] must follow.
    #[inline(always)]
    pub fn unlock_fast(&self) -> bool {
        self.owner.store(0, Relaxed);
        if P::single_threaded() && self.count.load(Relaxed) == 1 {
            self.count.store(0, Relaxed);
            return true;
        }
        // LAST TOUCH, if it counts down to 0.
        self.count.fetch_add(ONE_LESS, Release) == 1
    }

    /// What [`RawHandoff::unlock`] does after [`RawHandoff::unlock_fast`] in vain.
    #[inline]
    pub fn unlock_contended(&self) {
        self.unlock_slow();
    }

    /// Whether the mutex is held at this moment, or promised.
    pub fn is_locked(&self) -> bool {
        self.count.load(Relaxed) != 0 && !self.queue.has_token()
    }

    /// Whether it is neither held, nor waited for, nor promised.
    pub fn is_idle(&self) -> bool {
        self.count.load(Acquire) == 0
    }

    /// The fast path of [`RawHandoff::lock`]: counts. True if the mutex was free, and acquired. Else the
    /// caller is counted, and [`RawHandoff::lock_contended`] must follow.
    #[inline(always)]
    pub fn take(&self) -> bool {
        if P::single_threaded() && self.count.load(Relaxed) == 0 {
            self.count.store(1, Relaxed);
            return true;
        }
        if self.count.fetch_add(1, Acquire) == 0 {
            self.publish();
            return true;
        }
        false
    }

    #[inline(always)]
    fn publish(&self) {
        self.owner.store(P::tag(), Relaxed);
    }

    #[cold]
    fn try_take_token(&self) -> bool {
        self.queue.renew();
        // COUNTED: the threads for which it was left are counted, and we are not. Until we are, the count is
        // too low by one, but not 0, and we are the only one to count down.
        let taken = self.queue.take_token();
        if taken {
            self.count.fetch_add(1, Relaxed);
            self.publish();
        }
        taken
    }

    /// The caller is counted.
    #[cold]
    #[inline(never)]
    fn lock_slow<S: Policy>(&self) {
        self.queue.renew();
        if self.spin::<S>() {
            return;
        }
        match Held::<P>::take() {
            Some(held) => {
                self.wait(held.waiter(), None);
                self.learn::<S>(false);
            }
            None => {
                // Counted but without a node: the next unlock that finds the queue empty leaves the token for
                // us.
                poll::<P>(None, || self.queue.take_token());
                self.publish();
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_until_slow<S: Policy>(&self, deadline: &Deadline) -> bool {
        self.queue.renew();
        let address = core::ptr::from_ref(self).addr();
        // Before counting: a counted thread can leave only through the queue.
        let Some(spare) = Spare::<P>::take(address) else {
            // Every spare node waits to be taken out of some queue: try now and then.
            return poll::<P>(Some(deadline), || self.try_lock());
        };
        let acquired = if spare.is_taken_up() {
            // GAVE UP: queued and counted since then.
            count::<P>(Event::TakenUp);
            self.sleep(spare.waiter().get::<P>(), Some(deadline))
        } else if self.take() || self.spin::<S>() {
            spare.put_back();
            return true;
        } else {
            self.wait(spare.waiter(), Some(deadline))
        };
        // The node is idle again, or ABANDONED, and not ours to store to: a signal handler may have taken it
        // already.
        if acquired {
            self.learn::<S>(false);
        }
        acquired
    }

    /// Spins, counted and not queued, as long as the policy says. True if the mutex is ours.
    fn spin<S: Policy>(&self) -> bool {
        let Some(mut spell) = Spell::<P>::begin(S::spinning(), || self.learnt.load(Relaxed)) else {
            return false;
        };
        // A waiter has queued: it comes first, and no token will be left.
        while !self.queue.is_occupied() {
            if self.queue.take_token() {
                self.publish();
                self.learn::<S>(true);
                return true;
            }
            if !spell.goes_on(self.owner.load(Relaxed)) {
                break;
            }
        }
        false
    }

    /// The owner's, after a wait that spinning ended or did not.
    fn learn<S: Policy>(&self, acquired: bool) {
        if S::spinning() == Spinning::Adaptive {
            let before = Experience(self.learnt.load(Relaxed));
            let after = before.after(acquired);
            if after.0 != before.0 {
                self.learnt.store(after.0, Relaxed);
            }
        }
    }

    /// Queues, counted, and sleeps. False if the deadline passed first.
    fn wait(&self, waiter: Waiter, deadline: Option<&Deadline>) -> bool {
        let node = waiter.get::<P>();
        node.set_priority();
        node.state.store(state::SLEEPING, Relaxed);
        if !self.queue.push_or_take_token(waiter) {
            node.state.store(state::IDLE, Relaxed);
            self.publish();
            return true;
        }
        self.sleep(node, deadline)
    }

    /// Sleeps, queued, until the mutex is handed over. False if the deadline passed first.
    fn sleep(&self, node: &Node<P>, deadline: Option<&Deadline>) -> bool {
        loop {
            // Acquire: partner of the release in `hand_over`.
            if node.state.load(Acquire) == state::HANDED {
                break;
            }
            if P::wait(&node.state, state::SLEEPING, deadline.into()) == Waited::TimedOut
                && deadline.is_some()
                // GAVE UP. Release: our last use of the node comes before the next.
                && node
                    .state
                    .compare_exchange(state::SLEEPING, state::ABANDONED, Release, Acquire)
                    .is_ok()
            {
                count::<P>(Event::GaveUp);
                return false;
            }
        }
        P::Spin::woke(P::now().saturating_sub(node.kicked.load(Relaxed) as u64));
        node.state.store(state::IDLE, Relaxed);
        self.publish();
        true
    }

    /// Others are counted: finds the next owner.
    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        // CONSUMER. Others that count down do not free the mutex while a thread is counted.
        self.queue.renew();
        loop {
            match self.queue.pop() {
                Some(waiter) => {
                    let node = waiter.get::<P>();
                    if self.hand_over(node) {
                        return;
                    }
                    // GAVE UP, COUNTED. LAST TOUCH, if it counts down to 0.
                    if self.count.fetch_add(ONE_LESS, Release) == 1 {
                        return;
                    }
                }
                None => {
                    // LAST TOUCH, if it succeeds.
                    if self.queue.leave_token() {
                        count::<P>(Event::TokenLeft);
                        return;
                    }
                }
            }
        }
    }

    /// Makes a waiter that was taken out the owner; false if it gave up: then its node is free.
    fn hand_over(&self, node: &'static Node<P>) -> bool {
        self.owner.store(HANDED_OVER, Relaxed);
        // Of which a node that was given up takes no notice.
        node.kicked.store(P::now() as usize, Relaxed);
        loop {
            // LAST TOUCH, if it succeeds. Release: what we did happens before what the new owner does.
            if node.state.compare_exchange(state::SLEEPING, state::HANDED, Release, Relaxed).is_ok() {
                P::wake(&node.state, 1);
                count::<P>(Event::HandOver);
                return true;
            }
            // Acquire: partner of the release in `sleep`; the queue's last use of the node comes before its
            // thread's next.
            if node.state.compare_exchange(state::ABANDONED, state::IDLE, AcqRel, Relaxed).is_ok() {
                return false;
            }
        }
    }

    /// Lets a waiter of a condition variable wait for the mutex instead, asleep as it is. The caller may hold
    /// the mutex or not. The waiter is woken when it owns it, and completes with
    /// [`RawHandoff::receive_lock`]. It must be in no queue, and asleep in a state that only the caller
    /// changes.
    pub fn send_lock(&self, waiter: Waiter) {
        count::<P>(Event::LockSent);
        let node = waiter.get::<P>();
        // Release: partner of the acquire in `receive_lock`.
        node.state.store(state::SLEEPING, Release);
        if self.count.fetch_add(1, AcqRel) != 0 {
            self.queue.renew();
            if self.queue.push_or_take_token(waiter) {
                return;
            }
        }
        // It was free, and is ours now, for the waiter.
        self.hand_over(node);
    }

    /// As [`RawHandoff::send_lock`], for a waiter that another thread may be sending here at the same time:
    /// the first sends it, and the others return false. It must be asleep in [`state::SIGNALLED`] or have
    /// been sent.
    pub fn send_lock_unless_already_waiting(&self, waiter: Waiter) -> bool {
        let node = waiter.get::<P>();
        let first = node.state.compare_exchange(state::SIGNALLED, state::SLEEPING, AcqRel, Relaxed).is_ok();
        if first {
            self.send_lock(waiter);
        }
        first
    }

    /// Completes a lock that was sent to this waiter, or is about to be: waits until it is handed over.
    pub fn receive_lock(&self, waiter: Waiter) {
        let node = waiter.get::<P>();
        loop {
            // Acquire: partner of the release in `hand_over`.
            let now = node.state.load(Acquire);
            if now == state::HANDED {
                break;
            }
            P::wait(&node.state, now, Until::Woken);
        }
        node.state.store(state::IDLE, Relaxed);
        self.publish();
    }
}

/// A platform that knows its threads by number.
pub trait Identity: Platform {
    /// A number that tells the calling thread from every other living one, and stays for as long as the
    /// thread lives; 0 if there is none.
    #[inline(always)]
    fn identity() -> u32 {
        Self::current().map_or(0, |index| index + 1)
    }
}

/// The recursive mutex: a [`RawHandoff`] whose owner may acquire it again. 28 bytes, zero when unlocked.
///
/// The owner is known by its [`Identity`].
#[repr(C)]
pub struct Handoff<P: Platform> {
    raw: RawHandoff<P>,
    /// The owner's identity; 0 if there is no owner. Written by the owner only; another reads it to learn
    /// that it is not the owner, for which any value but its own will do.
    holder: P::U32,
    /// How often the owner has it. Accessed by the owner only.
    depth: P::U32,
}

zeroed! { Handoff<P: Platform>: "An unlocked mutex.", [holder depth] raw }

impl<P: Identity> Handoff<P> {
    /// Acquires the mutex, once more if the caller has it.
    #[inline]
    pub fn lock<S: Policy>(&self) {
        self.acquire(|raw| {
            raw.lock::<S>();
            true
        });
    }

    /// As [`Handoff::lock`], but gives up once `deadline` has passed; false then.
    #[inline]
    pub fn lock_until<S: Policy>(&self, deadline: &Deadline) -> bool {
        self.acquire(|raw| raw.lock_until::<S>(deadline))
    }

    /// Acquires the mutex if it is free, left as a token, or the caller's already.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.acquire(RawHandoff::try_lock)
    }

    /// Undoes one acquisition; the last releases the mutex.
    #[inline]
    pub fn unlock(&self) {
        let depth = self.depth.load(Relaxed);
        if depth > 1 {
            self.depth.store(depth - 1, Relaxed);
            return;
        }
        self.holder.store(0, Relaxed);
        self.raw.unlock();
    }

    /// Whether the caller has the mutex.
    pub fn owned(&self) -> bool {
        let own = P::identity();
        own != 0 && self.holder.load(Relaxed) == own
    }

    /// How often the owner has it. For the owner: others see some recent value.
    pub fn depth(&self) -> u32 {
        if self.holder.load(Relaxed) == 0 { 0 } else { self.depth.load(Relaxed) }
    }

    /// Acquires the mutex, by `acquire` unless the caller has it.
    #[inline(always)]
    fn acquire(&self, acquire: impl FnOnce(&RawHandoff<P>) -> bool) -> bool {
        let own = P::identity();
        if own != 0 && self.holder.load(Relaxed) == own {
            self.depth.store(self.depth.load(Relaxed) + 1, Relaxed);
            return true;
        }
        let acquired = acquire(&self.raw);
        if acquired {
            self.holder.store(own, Relaxed);
            self.depth.store(1, Relaxed);
        }
        acquired
    }
}
