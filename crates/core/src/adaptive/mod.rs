//! The queued adaptive mutex.
//!
//! After Waiman Long's series "mutex: Improve mutex performance by doing less atomic-ops & better spinning"
//! (Linux, 2013), brought to user space: docs/ADAPTIVE.md. How to wait is a [`Variant`]: which of the
//! source's patches are in force.
//!
//! # The words
//!
//! `count` is the source's, turned round so that zero bytes are an unlocked mutex:
//!
//! | `count` | source | meaning | who changes it |
//! | --- | --- | --- | --- |
//! | 0 | 1 | free | the owner, releasing |
//! | 1 | 0 | held | the thread that takes it from 0; the wait lock's holder |
//! | > 1 | < 0 | held, and a thread may sleep | lockers (+1); the wait lock's holder (to 2 or 1) |
//!
//! The other words are the [waiting room](crate::waiting). Its `owner` is the owner's tag
//! ([`Platform::tag`]), a hint for spinners: 0 while no owner has published one, `HANDED_OVER` from a
//! hand-off until the sleeper has woken.
//!
//! # Invariants
//!
//! * **EXCLUSION.** Only a read-modify-write that takes the count from 0 acquires the mutex, except that an
//!   unlocker may leave the count as it is and make the first sleeper the owner ([`state::HANDED`]). Only the
//!   owner sets the count to 0.
//! * **DUTY**, as in [`crate::waiting`]. The announcement is a count above 1. The debtor is the first sleeper
//!   if it is [`state::WOKEN`], or a spinner in the queue, or an owner between its look at the list and its
//!   release.
//!   1. A sleeper attempts by an exchange of 2, under the wait lock; a requeue sets 2 if the mutex is held.
//!   2. A release is a compare-and-swap from 1, or a plain store while QUIET allows none to sleep.
//!   3. `Self::unlock_slow` sets 1 under the wait lock, after it has told the first sleeper to try or has
//!      seen a spinner queued. Newcomers' increments go then, since newcomers are on their way to attempts.
//!   4. A thread that attempts in vain from the list sets the count above 1 before it sleeps or leaves, and a
//!      spinner that acquires while the list is not empty does too.
//! * **QUIET, LAST TOUCH, PRIORITY, GIVING UP, FORKS**, as in [`crate::waiting`]. A woken sleeper stays in
//!   the list until it has the mutex.
//! * **SERVICE.** A sleeper that was woken [`Tuning::handoff_after`] times in vain is handed the mutex; at
//!   most [`Tuning::bypasses_before_wake`] unlocks in a row leave the first sleeper asleep, and none if it is
//!   a real-time thread. Among threads of one priority the list is first-in first-out, so every sleeper
//!   becomes first unless more urgent ones keep it from that.
//!
//! Proof: crates/core/src/adaptive/mod.rs, crates/core/src/waiting/mod.rs
//! Models: crates/model/tests/models/adaptive.rs
//! Stress: crates/sim/src/check/mod.rs, crates/cli/src/torture.rs

mod policy;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use policy::{AnyNegative, Baseline, FewerAtomics, McsQueue, Tuning, Variant};

use crate::atomic::zeroed;
use crate::events::{Event, count};
use crate::mcs;
use crate::node::{Held, NodeId, state};
use crate::platform::{Atomic, Deadline, Platform, Spin};
use crate::waiting::{Failure, Parked, Patience, Waiters, acquiring, may_run, park, poll_mutex, wake};

/// Far more lockers than there can be threads; a count beyond it has crept up through time-outs.
const CREPT: u32 = 1 << 28;
/// In `owner`: handed to a sleeper that has not woken yet.
const HANDED_OVER: u32 = u32::MAX;

/// The mutex: 20 bytes, zero when unlocked. An unlocked one may be moved, copied and freed.
///
/// Every method takes the [`Variant`] as a parameter, because a program chooses it once for all its mutexes;
/// all calls on one mutex must name the same one. No method allocates, panics or unwinds; none is
/// async-signal-safe with respect to the same mutex, all are with respect to others.
#[repr(C)]
pub struct RawAdaptive<P: Platform> {
    count: P::U32,
    waiters: Waiters<P>,
}

zeroed! { RawAdaptive<P: Platform>: "An unlocked mutex.", [count] waiters }

impl<P: Platform> RawAdaptive<P> {
    /// The offset of the word that names the first of the sleepers: that of
    /// [`RawPoundlock`](crate::poundlock::RawPoundlock), too.
    pub const SLEEPERS_OFFSET: usize = core::mem::offset_of!(Self, waiters) + Waiters::<P>::HEAD_OFFSET;

    acquiring! { V: Variant }

    /// Acquires the mutex if it is free; false if it is held. Synchronises as [`RawAdaptive::lock`] when
    /// true.
    #[inline]
    pub fn try_lock(&self) -> bool {
        if self.count.load(Relaxed) != 0 {
            return false;
        }
        if P::single_threaded() {
            self.count.store(1, Relaxed);
            return true;
        }
        let acquired = self.count.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
        if acquired {
            self.publish();
        }
        acquired
    }

    /// Releases the mutex, which the caller holds. What the caller did happens before the next acquisition.
    /// The mutex may be destroyed and freed by another thread as soon as it can acquire it. Releasing a
    /// mutex that is free does nothing.
    #[inline]
    pub fn unlock<V: Variant>(&self) {
        if !self.unlock_fast() {
            self.unlock_contended::<V>();
        }
    }

    /// The fast path of [`Self::unlock`]. False if it does not do; the mutex is still held.
    #[inline(always)]
    pub fn unlock_fast(&self) -> bool {
        if P::single_threaded() && self.count.load(Relaxed) == 1 {
            self.count.store(0, Relaxed);
            return true;
        }
        self.waiters.owner.store(0, Relaxed);
        self.waiters.release(&self.count) || self.count.compare_exchange(1, 0, Release, Relaxed).is_ok()
    }

    /// Whether the mutex is held at this moment.
    pub fn is_locked(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// Whether it is free and no thread is queued or asleep in it.
    pub fn is_idle(&self) -> bool {
        self.count.load(Acquire) == 0 && self.waiters.is_idle()
    }

    /// The fast path of [`Self::lock`]: one atomic decrement of the source's count, 1 -> 0. True if the mutex
    /// was acquired.
    #[inline(always)]
    pub fn take(&self) -> bool {
        if P::single_threaded() && self.count.load(Relaxed) == 0 {
            // No other thread: neither atomicity nor a tag for spinners is needed.
            self.count.store(1, Relaxed);
            return true;
        }
        if self.count.fetch_add(1, Acquire) == 0 {
            self.publish();
            return true;
        }
        false
    }

    /// Tells spinners where the owner runs.
    #[inline(always)]
    fn publish(&self) {
        self.waiters.owner.store(P::tag(), Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn lock_slow<V: Variant>(&self, patience: Patience<'_>) -> Result<(), Failure> {
        count::<P>(Event::FoundHeld);
        self.waiters.renew(|| {});
        let Some(held) = Held::<P>::take() else {
            return poll_mutex::<P>(patience, || self.try_lock());
        };
        if self.compete::<V>(held.id) {
            count::<P>(Event::Spun);
            return Ok(());
        }
        let node = held.node();
        node.set_priority();
        node.attempts().store(0, Relaxed);
        node.bypasses().store(0, Relaxed);
        self.waiters.revoke_bias();
        self.waiters.lock();
        self.waiters.push(held.id);
        self.sleep::<V>(held.id, patience)
    }

    /// Spins for the mutex. True if it was acquired.
    fn compete<V: Variant>(&self, id: NodeId) -> bool {
        let mut budget = P::Spin::fresh();
        // Entry is checked once: no thread queues to spin on an owner that does not run.
        if !self.owner_may_run() {
            return false;
        }
        if V::queues_spinners() && !mcs::join::<P>(&self.waiters.tail, id, &mut budget) {
            return false;
        }
        let mut budget = P::Spin::fresh();
        let acquired = loop {
            if !self.owner_may_run() {
                break false;
            }
            if self.grab::<V>() {
                break true;
            }
            if !budget.spin() {
                break false;
            }
        };
        if acquired {
            self.publish();
            // DUTY: the unlocker may have left the sleepers to us. Relaxed: the list was changed before the
            // release that our acquisition synchronises with; what is added later announces itself.
            if V::queues_spinners() && self.waiters.has_sleepers() {
                self.count.fetch_add(1, Relaxed);
            }
        }
        if V::queues_spinners() {
            mcs::leave::<P>(&self.waiters.tail, id);
        }
        acquired
    }

    /// One attempt of a spinner.
    #[inline]
    fn grab<V: Variant>(&self) -> bool {
        (!V::checks_first() || self.count.load(Relaxed) == 0)
            && self.count.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn owner_may_run(&self) -> bool {
        may_run::<P>(self.waiters.owner.load(Relaxed), HANDED_OVER)
    }

    /// Waits in the list until the mutex is acquired or patience ends. The node is in the list and the wait
    /// lock is held.
    fn sleep<V: Variant>(&self, id: NodeId, patience: Patience<'_>) -> Result<(), Failure> {
        let node = id.get::<P>();
        let mut failed = None;
        let mut slept = false;
        loop {
            if self.attempt::<V>(id) {
                self.settle(id);
                return Ok(());
            }
            if let Some(failure) = failed {
                // GIVING UP. DUTY 4: the attempt left the count above 1, so the owner will wake the first
                // sleeper.
                self.waiters.remove(id);
                node.state.store(state::IDLE, Relaxed);
                if self.waiters.first().is_none() {
                    self.mark(|count| count.min(1));
                }
                self.waiters.unlock();
                return Err(failure);
            }
            node.state.store(state::SLEEPING, Relaxed);
            self.waiters.unlock();
            if slept {
                count::<P>(Event::WokenInVain);
            }
            count::<P>(Event::Sleep);
            slept = true;
            failed = match park(node, patience) {
                Parked::Failed(failure) => Some(failure),
                Parked::Served | Parked::Unserved => None,
            };
            if self.compete_woken::<V>(id) {
                self.waiters.lock();
                self.settle(id);
                return Ok(());
            }
            self.waiters.lock();
        }
    }

    /// Takes up the wait of a condition variable's waiter that a signaller puts into the list. Returns with
    /// the mutex held.
    pub(crate) fn sleep_requeued<V: Variant>(&self, id: NodeId) {
        let _ = park(id.get::<P>(), Patience::ENDLESS);
        let acquired = self.compete_woken::<V>(id);
        self.waiters.lock();
        if acquired {
            self.settle(id);
        } else {
            // Without patience it cannot fail.
            let _ = self.sleep::<V>(id, Patience::ENDLESS);
        }
    }

    /// A woken sleeper that finds the mutex taken spins for it like anyone else, still in the list.
    fn compete_woken<V: Variant>(&self, id: NodeId) -> bool {
        let node = id.get::<P>();
        if node.state.load(Relaxed) != state::WOKEN {
            return false;
        }
        // Only this thread writes it while it is in the list.
        node.attempts().store(node.attempts().load(Relaxed) + 1, Relaxed);
        V::queues_spinners() && self.compete::<V>(id)
    }

    /// A sleeper's attempt, under the wait lock: the source's exchange of -1. True if the mutex is ours.
    fn attempt<V: Variant>(&self, id: NodeId) -> bool {
        let node = id.get::<P>();
        if node.state.load(Relaxed) == state::HANDED {
            return true;
        }
        let seen = self.count.load(Relaxed);
        let shows_waiter = if V::takes_any_negative() { seen > 1 } else { seen == 2 };
        if V::checks_first() && shows_waiter && seen < CREPT {
            return false;
        }
        self.count.swap(2, Acquire) == 0
    }

    /// Under the wait lock: changes the count of a mutex that is held.
    fn mark(&self, mut next: impl FnMut(u32) -> u32) -> u32 {
        // Relaxed: making it 0 and taking it from 0 order; this does neither.
        self.count.update(Relaxed, |seen| Some(next(seen))).unwrap_or_else(|seen| seen)
    }

    /// The caller has the mutex, the wait lock, and a node in the list: takes the node out, sets the count
    /// to what the rest of the list asks for (DUTY), and releases the wait lock.
    fn settle(&self, id: NodeId) {
        self.waiters.remove(id);
        id.get::<P>().state.store(state::IDLE, Relaxed);
        self.publish();
        self.mark(|_| if self.waiters.first().is_some() { 2 } else { 1 });
        self.waiters.unlock();
    }

    /// What [`Self::unlock`] does after [`Self::unlock_fast`] in vain.
    #[cold]
    #[inline(never)]
    pub fn unlock_contended<V: Variant>(&self) {
        let waiters = &self.waiters;
        waiters.renew(|| {});
        while self.count.load(Relaxed) != 0 {
            waiters.lock();
            let mut sleeper = None;
            if let Some(first) = waiters.first() {
                let node = first.get::<P>();
                let Tuning { handoff_after, bypasses_before_wake } = P::tuning();
                if node.attempts().load(Relaxed) >= handoff_after {
                    waiters.owner.store(HANDED_OVER, Relaxed);
                    return waiters.hand_over(node);
                }
                let bypasses = node.bypasses().load(Relaxed);
                if V::queues_spinners()
                    && waiters.tail.load(Relaxed) != 0
                    && bypasses < bypasses_before_wake
                    && node.priority.load(Relaxed) == 0
                {
                    node.bypasses().store(bypasses + 1, Relaxed);
                } else {
                    node.bypasses().store(0, Relaxed);
                    // Release: partner of the load in `park`.
                    if node.state.swap(state::WOKEN, Release) == state::SLEEPING {
                        sleeper = Some(node);
                    }
                }
            }
            // DUTY 3. From here on an attempt in vain, which takes the wait lock, leaves a count above 1; if
            // there is none, the thread that owes one now (the first sleeper, the spinner that shows in
            // `tail`) will find the mutex free.
            self.mark(|_| 1);
            waiters.unlock();
            // LAST TOUCH, if it succeeds.
            let released = self.count.compare_exchange(1, 0, Release, Relaxed).is_ok();
            wake(sleeper);
            if released {
                return;
            }
        }
    }

    /// Puts signalled waiters of a condition variable, linked through `after` from `chain` to 0, into the
    /// list of sleepers, and wakes the first sleeper if the mutex is free.
    pub(crate) fn requeue(&self, chain: NodeId) {
        self.waiters.renew(|| {});
        self.waiters.revoke_bias();
        self.waiters.lock();
        self.waiters.append(chain, |node| {
            node.attempts().store(0, Relaxed);
            node.bypasses().store(0, Relaxed);
        });
        // Held: its owner's unlock shall find them (DUTY 1). Free: the first one is to try.
        let held = self.mark(|count| if count == 0 { 0 } else { 2 }) != 0;
        let first = self.waiters.first().map(NodeId::get::<P>);
        let sleeper = first.filter(|node| !held && node.state.swap(state::WOKEN, Release) == state::SLEEPING);
        self.waiters.unlock();
        wake(sleeper);
    }
}
