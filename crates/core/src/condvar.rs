//! The condition variable that requeues its waiters to the mutex instead of waking them all.
//!
//! `head` is the list of waiters, real-time threads by priority ([`Platform::priority`]) before all others
//! and first-in first-out among equals. `wait_lock` guards it (`waiting/wait_lock.rs`), and has the epoch of
//! its last use: in a forked child the waiters of the parent are gone. docs/CONDVAR.md says how a signal
//! requeues.
//!
//! # Invariants
//!
//! * **ONE OUTCOME.** A waiter leaves [`state::WAITING`] by one compare-and-swap, a signaller's (the signal
//!   is consumed) or its own (it timed out, or is to be cancelled). A signal never goes to a waiter that
//!   reports a time-out while another waits.
//! * **NO LATE TOUCH.** A signalled waiter does not touch the condition variable again: a signaller may
//!   destroy it as soon as `signal` or `broadcast` has taken out all waiters. A waiter that gave up does, to
//!   unlink itself; [`RawCondvar::drain`], which a destroyer calls, waits for those. If waiters wait under
//!   different mutexes, a signaller looks at the list again after it has passed on those of one: no other
//!   thread may destroy it meanwhile.
//!
//! Proof: crates/core/src/condvar.rs, crates/core/src/waiting/mod.rs
//! Models: crates/model/tests/models/condvar.rs, crates/model/tests/models/handoff_condvar.rs
//! Stress: crates/sim/src/check/scene.rs, crates/cli/src/torture.rs

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::adaptive::{RawAdaptive, Variant};
use crate::atomic::zeroed;
use crate::handoff::RawHandoff;
use crate::node::{Held, Node, NodeId, state};
use crate::platform::{Atomic, Deadline, Platform, Until, Waited};
use crate::poundlock::{Policy, RawPoundlock, Words};
use crate::waiting::{list, stall_until, wait_lock};

/// How a [`RawCondvar::wait`] ended. The mutex is held again in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Signalled, or a spurious wake-up.
    Signalled,
    /// The deadline has passed, and no signal was consumed.
    TimedOut,
    /// The thread was to be cancelled and allowed it; no signal was consumed.
    Cancelled,
}

/// A mutex that a signalled waiter can be moved to.
pub enum Target<'a, P: Platform> {
    /// Into the list of its sleepers.
    Adaptive(&'a RawAdaptive<P>),
    /// Into its queue.
    Handoff(&'a RawHandoff<P>),
    /// Into the list of its sleepers.
    Poundlock(&'a Words<P>),
}

impl<P: Platform> Target<'_, P> {
    /// In an address: it is that of a [`RawHandoff`].
    const HANDOFF: usize = 1;
    /// In an address: it is that of a [`RawPoundlock`].
    const POUNDLOCK: usize = 2;
    const SORT: usize = Self::HANDOFF | Self::POUNDLOCK;

    /// The address, with a mark for the sort. Mutexes are at least 4-byte aligned.
    fn word(self) -> usize {
        match self {
            Target::Adaptive(mutex) => core::ptr::from_ref(mutex).expose_provenance(),
            Target::Handoff(mutex) => core::ptr::from_ref(mutex).expose_provenance() | Self::HANDOFF,
            Target::Poundlock(words) => core::ptr::from_ref(words).expose_provenance() | Self::POUNDLOCK,
        }
    }
}

/// The lock under which a waiter waits, as the condition variable needs it.
pub trait Guarding<P: Platform> {
    /// The mutex to which a signalled waiter is moved. `None` if it is to be woken, and to acquire what it
    /// needs by [`Guarding::acquire`].
    fn mutex(&self) -> Option<Target<'_, P>>;
    /// Releases the lock.
    fn release(&self);
    /// Acquires it again, after a wait that was not signalled, or if there is no mutex to be put into.
    fn acquire(&self);
    /// Completes the acquisition of [`Guarding::mutex`], to which the waiter was moved.
    fn acquire_requeued(&self, waiter: Requeued);
}

/// A signalled waiter that was moved to a mutex, on the way to its lock.
pub struct Requeued(NodeId);

impl Requeued {
    /// Waits until the mutex is handed over, to whose queue the waiter was moved.
    pub fn receive<P: Platform>(self, mutex: &RawHandoff<P>) {
        mutex.receive_lock(self.0.into());
    }

    /// As [`Requeued::lock`].
    pub fn barge<P: Platform, W: Policy<P>>(self, mutex: &RawPoundlock<P, W>) {
        mutex.sleep_requeued(self.0);
    }

    /// Waits until the mutex is acquired, to whose list the waiter was moved.
    pub fn lock<P: Platform, V: Variant>(self, mutex: &RawAdaptive<P>) {
        mutex.sleep_requeued::<V>(self.0);
    }
}

/// A plain mutex guards itself.
pub struct Plain<'a, P: Platform, V>(&'a RawAdaptive<P>, core::marker::PhantomData<V>);

impl<'a, P: Platform, V: Variant> Plain<'a, P, V> {
    /// For a wait under `mutex`.
    pub fn new(mutex: &'a RawAdaptive<P>) -> Self {
        Plain(mutex, core::marker::PhantomData)
    }
}

impl<P: Platform, V: Variant> Guarding<P> for Plain<'_, P, V> {
    fn mutex(&self) -> Option<Target<'_, P>> {
        Some(Target::Adaptive(self.0))
    }
    fn release(&self) {
        self.0.unlock::<V>();
    }
    fn acquire(&self) {
        self.0.lock::<V>();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        waiter.lock::<P, V>(self.0);
    }
}

impl<P: Platform, W: Policy<P>> Guarding<P> for &RawPoundlock<P, W> {
    fn mutex(&self) -> Option<Target<'_, P>> {
        Some(Target::Poundlock(self.words()))
    }
    fn release(&self) {
        self.unlock();
    }
    fn acquire(&self) {
        self.lock();
    }
    fn acquire_requeued(&self, waiter: Requeued) {
        waiter.barge(self);
    }
}

/// The condition variable: 8 bytes, zero without waiters.
///
/// Waiters that wait at the same time may use different mutexes of one platform, at a little more cost to
/// signals; each is requeued to its own. No method allocates, panics or unwinds. Not async-signal-safe.
#[repr(C)]
pub struct RawCondvar<P: Platform> {
    wait_lock: P::U32,
    head: P::U32,
}

zeroed! { RawCondvar<P: Platform>: "A condition variable on which nobody waits.", [wait_lock head] }

impl<P: Platform> RawCondvar<P> {
    /// The offset of the word that names the first of the waiters.
    pub const WAITERS_OFFSET: usize = core::mem::offset_of!(Self, head);

    /// Releases the lock that the caller holds, waits for a signal, for `deadline`, or for a cancellation
    /// that `may_cancel` admits, and acquires the lock again. Releasing and starting to wait are one step for
    /// signals of threads that acquire the lock afterwards.
    ///
    /// `may_cancel` is asked, without any lock held, after a call of
    /// [`Record::cancel`](crate::node::Record::cancel) for this thread.
    pub fn wait(
        &self,
        guarding: &impl Guarding<P>,
        deadline: Option<&Deadline>,
        mut may_cancel: impl FnMut() -> bool,
    ) -> Outcome {
        self.renew();
        let Some(held) = Held::<P>::take() else {
            // No node left to wait with: a spurious wake-up, which every caller must expect. Give others a
            // chance to make it a real one.
            guarding.release();
            P::stall(u32::MAX);
            guarding.acquire();
            return if deadline.is_some_and(P::expired) { Outcome::TimedOut } else { Outcome::Signalled };
        };
        let node = held.node();
        node.set_priority();
        let requeue = guarding.mutex().map_or(0, Target::word);
        node.mutex().store(requeue, Relaxed);
        wait_lock::under::<P, _>(&self.wait_lock, || {
            list::push::<P>(&self.head, held.id);
            node.linked.store(1, Relaxed);
            node.state.store(state::WAITING, Relaxed);
        });
        guarding.release();

        // After WAITING was published: see `Record::cancel`.
        let mut ask = held.record().cancel_requested();
        loop {
            // Acquire: partner of the signaller's and the waker's stores.
            let now = node.state.load(Acquire);
            if now & !state::CANCELLED != state::WAITING {
                break;
            }
            if now & state::CANCELLED != 0 {
                // Remember it, and clear the mark so that the sleep below sleeps.
                ask = true;
                let _ = node.state.compare_exchange(now, state::WAITING, AcqRel, Relaxed);
                continue;
            }
            if ask {
                ask = false;
                if may_cancel() && self.give_up(held.id, node) {
                    guarding.acquire();
                    return Outcome::Cancelled;
                }
                continue;
            }
            if P::wait(&node.state, now, deadline.into()) == Waited::TimedOut
                && deadline.is_some()
                && self.give_up(held.id, node)
            {
                guarding.acquire();
                return Outcome::TimedOut;
            }
        }
        if requeue == 0 {
            // Not before the signaller's last store to the node, which will be in use again soon.
            while node.state.load(Acquire) != state::WOKEN {
                P::wait(&node.state, state::SIGNALLED, Until::Woken);
            }
            node.state.store(state::IDLE, Relaxed);
            guarding.acquire();
        } else {
            guarding.acquire_requeued(Requeued(held.id));
        }
        Outcome::Signalled
    }

    /// Wakes one waiter, if there is one: the most urgent, and of equals the one that came first. A signal
    /// without a waiter has no effect.
    pub fn signal(&self) {
        self.take_out(1);
    }

    /// Wakes all present waiters: all at once onto the mutex's list, from where each unlock wakes one.
    pub fn broadcast(&self) {
        self.take_out(u32::MAX);
    }

    /// Whether there is no waiter, as seen without the lock.
    pub fn is_idle(&self) -> bool {
        self.head.load(Relaxed) == 0
    }

    /// Waits until the list is empty: for a destroyer, which knows that no thread waits any more but cannot
    /// know of a waiter whose deadline has just passed and which is about to unlink itself.
    pub fn drain(&self) {
        self.renew();
        stall_until::<P, ()>(|| {
            let first = wait_lock::under::<P, _>(&self.wait_lock, || list::first::<P>(&self.head));
            first.is_none().then_some(())
        });
    }

    fn renew(&self) {
        wait_lock::renew::<P>(&self.wait_lock, 0, || self.head.store(0, Relaxed));
    }

    /// A waiter's own way out of the list. False if it was signalled first.
    fn give_up(&self, id: NodeId, node: &Node<P>) -> bool {
        let mut seen = node.state.load(Acquire);
        loop {
            if seen & !state::CANCELLED != state::WAITING {
                return false;
            }
            // ONE OUTCOME.
            match node.state.compare_exchange(seen, state::LEAVING, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        wait_lock::under::<P, _>(&self.wait_lock, || {
            if node.linked.load(Relaxed) != 0 {
                node.linked.store(0, Relaxed);
                list::remove::<P>(&self.head, id);
            }
        });
        node.state.store(state::IDLE, Relaxed);
        true
    }

    fn take_out(&self, mut count: u32) {
        // No waiter, seen without a store to the line. A waiter that this signal must reach acquired its lock
        // before the caller changed the condition, so its store of `head` happens before.
        if self.head.load(Relaxed) == 0 {
            return;
        }
        self.renew();
        while self.take_out_of_one(&mut count) {}
    }

    /// Takes out up to `count` waiters under one mutex, and passes them on. Whether there are others.
    fn take_out_of_one(&self, count: &mut u32) -> bool {
        let mut requeued = Chain::default();
        let mut woken = Chain::default();
        wait_lock::lock::<P>(&self.wait_lock);
        let mut next = list::first::<P>(&self.head);
        while let Some(id) = next.filter(|_| *count != 0) {
            next = list::following::<P>(&self.head, id);
            let node = id.get::<P>();
            let mutex = node.mutex().load(Relaxed);
            if mutex != 0 && requeued.mutex::<P>().is_some_and(|other| other != mutex) {
                next = Some(id);
                break;
            }
            if !claim::<P>(node) {
                // Leaving: it will unlink itself.
                continue;
            }
            node.linked.store(0, Relaxed);
            list::remove::<P>(&self.head, id);
            let chain = if mutex != 0 { &mut requeued } else { &mut woken };
            chain.push::<P>(id);
            *count -= 1;
        }
        wait_lock::unlock::<P>(&self.wait_lock);
        // NO LATE TOUCH: from here on only the waiters' nodes and their mutex, which they need before they
        // can return. And the list again, if there are others: those are still in it.
        requeued.requeue::<P>();
        woken.wake::<P>();
        *count != 0 && next.is_some()
    }
}

/// ONE OUTCOME, the signaller's side.
fn claim<P: Platform>(node: &Node<P>) -> bool {
    let waits = |seen| seen & !state::CANCELLED == state::WAITING;
    // Acquire: the waiter's `mutex` field. Release: what the signaller did happens before the waiter's return
    // even where the mutex does not order them.
    node.state.update(AcqRel, |seen| waits(seen).then_some(state::SIGNALLED)).is_ok()
}

/// Signalled waiters, linked through `after`, in the order of the list that they were taken out of.
#[derive(Default)]
struct Chain {
    ends: Option<(NodeId, NodeId)>,
}

impl Chain {
    fn push<P: Platform>(&mut self, id: NodeId) {
        id.get::<P>().after.store(0, Relaxed);
        self.ends = match self.ends {
            None => Some((id, id)),
            Some((first, last)) => {
                last.get::<P>().after.store(id.raw(), Relaxed);
                Some((first, id))
            }
        };
    }

    /// The mutex of the first.
    fn mutex<P: Platform>(&self) -> Option<usize> {
        self.ends.map(|(first, _)| first.get::<P>().mutex().load(Relaxed))
    }

    fn requeue<P: Platform>(self) {
        let (Some((first, _)), Some(word)) = (self.ends, self.mutex::<P>()) else { return };
        if word & Target::<P>::SORT == 0 {
            let mutex = core::ptr::with_exposed_provenance::<RawAdaptive<P>>(word);
            // SAFETY: the waiters in the chain wait under this mutex and cannot return from the wait before
            // they own it, which they learn only after `requeue` has put them into its list; so it is alive,
            // and `requeue` does not touch it after that. Those in one chain share one mutex.
            unsafe { &*mutex }.requeue(first);
            return;
        }
        if word & Target::<P>::SORT == Target::<P>::POUNDLOCK {
            let mutex = core::ptr::with_exposed_provenance::<Words<P>>(word & !Target::<P>::SORT);
            // SAFETY: as above.
            unsafe { &*mutex }.requeue(first);
            return;
        }
        let mutex = core::ptr::with_exposed_provenance::<RawHandoff<P>>(word & !Target::<P>::SORT);
        let mut next = Some(first);
        while let Some(id) = next {
            // Sending links the node elsewhere.
            next = NodeId::from_raw(id.get::<P>().after.load(Relaxed));
            // SAFETY: as above: the mutex is alive until its last waiter has been sent, and `send_lock` does
            // not touch it after that.
            unsafe { &*mutex }.send_lock(id.into());
        }
    }

    fn wake<P: Platform>(self) {
        let mut next = self.ends.map(|(first, _)| first);
        while let Some(id) = next {
            let node = id.get::<P>();
            next = NodeId::from_raw(node.after.load(Relaxed));
            // The node may be in use again as soon as its thread sees this, so its link was read before.
            node.state.store(state::WOKEN, Release);
            P::wake(&node.state, 1);
        }
    }
}
