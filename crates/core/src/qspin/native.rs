//! The slow paths of the forms in which a waiter keeps its CPU: native, and virtual.
//!
//! # Native
//!
//! The first waiter sets the pending bit and spins on the word; it needs no node. Later ones queue, each
//! spinning in its own node, and the queue head waits on the word until both the holder and the pending
//! waiter are gone.
//!
//! 1. *Only one thread may turn `LOCKED` on at a time.* From a free word (no `LOCKED`, no `PENDING`, no
//!    tail): the thread whose compare-and-swap succeeds. With `PENDING` set: the thread that set it, when
//!    `LOCKED` goes. With a tail and without `PENDING`: the queue head, when `LOCKED` goes.
//! 2. *No thread sets `PENDING` for good while there is a tail.* It is set by a read-modify-write that
//!    returns what was there; a thread that finds a tail takes it back and queues. So once the head has seen
//!    neither `LOCKED` nor `PENDING`, a `PENDING` that comes is one that will go, and the head may take the
//!    lock by a plain store of the low byte.
//! 3. *Only the last waiter clears the tail*, by a compare-and-swap of the whole word that takes the lock
//!    with it. It is repeated if a newcomer has meanwhile set a `PENDING` that it will take back (2): that
//!    one may go without a node, so its bit promises no successor. Another tail does, and then the head
//!    passes headship on as it would to a successor that it had seen.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::{LOCKED, LOW_BYTE, Layout, is_split, tail};
use super::numa::{self, Batch};
use super::{Halting, RawSpin, Tuning, layout, queued};
use crate::events::{Event, count};
use crate::node::{Held, NodeId, state};
use crate::platform::{Atomic, Platform, Split};
use crate::waiting::{poll, stall_until};

/// How often a newcomer looks again while the word is in the middle of going from pending to locked.
const HANDOVER_LOOKS: u32 = 512;

impl<P: Halting, L: Layout, const MARK: u32> RawSpin<P, L, MARK> {
    /// Fields that say that the lock is held or waited for.
    const BUSY: u32 = LOW_BYTE | L::PENDING | L::TAIL;

    /// Takes the lock if it is neither held nor waited for.
    #[inline]
    pub(super) fn take_if_idle(&self) -> bool {
        let seen = self.word.load(Relaxed);
        seen & Self::BUSY == 0 && self.word.compare_exchange(seen, seen | LOCKED, Acquire, Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn lock_native<const NUMA: bool>(&self) {
        count::<P>(Event::SlowPath);
        self.renew();
        if !self.optimistic_spin() && !self.lock_pending() {
            self.lock_queued::<NUMA>();
        }
    }

    /// Looks a few times for a free word, as long as there is no waiter.
    fn optimistic_spin(&self) -> bool {
        for _ in 0..P::tuning::<Tuning>().optimistic_looks {
            if self.take_if_idle() {
                return true;
            }
            if self.word.load(Relaxed) & (L::PENDING | L::TAIL) != 0 {
                return false;
            }
            P::stall(0);
        }
        false
    }

    /// Tries to be the pending waiter; if it is, waits and acquires.
    fn lock_pending(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        let mut looks = 0;
        // Pending alone: its waiter is about to hold the lock, and then there is room for the next. It may
        // have been preempted right there, so not for ever.
        while seen & Self::BUSY == L::PENDING && looks < HANDOVER_LOOKS {
            P::stall(0);
            seen = self.word.load(Relaxed);
            looks += 1;
        }
        if seen & (L::PENDING | L::TAIL) != 0 {
            return false;
        }
        // Acquire: if the lock is free already, its last holder's release is what we read.
        let before = self.word.fetch_or(L::PENDING, Acquire);
        if before & (L::PENDING | L::TAIL) != 0 {
            if before & L::PENDING == 0 {
                // (2) Relaxed: it carried nothing.
                self.word.fetch_and(!L::PENDING, Relaxed);
            }
            return false;
        }
        if before & LOCKED != 0 {
            // Acquire: partner of the release.
            while self.word.load(Acquire) & LOCKED != 0 {
                P::relax();
            }
        }
        // Relaxed: acquired above; threads that wait for the bits to change take nothing from us.
        if is_split::<L>() {
            // The other bits of the half do not change while the lock is used in this form.
            self.word.store_low_half((before & 0xff00 & !L::PENDING | LOCKED) as u16, Relaxed);
        } else {
            self.word.fetch_add(LOCKED.wrapping_sub(L::PENDING), Relaxed);
        }
        count::<P>(Event::PendingHit);
        true
    }

    fn lock_queued<const NUMA: bool>(&self) {
        let Some((held, own)) = queued::<P, L>() else {
            // (1) Without a place in the queue it may take the lock only while there is none.
            poll::<P>(None, || self.take_if_idle());
            return;
        };
        let node = held.node();
        node.next.store(0, Relaxed);
        node.state.store(state::IDLE, Relaxed);
        if NUMA {
            numa::arrive(node);
        }
        // Taking the node may have been its first use, and slow.
        if self.take_if_idle() {
            return;
        }
        if let Some(front) = self.swap_tail(own) {
            // Release: the one in front finds our node as we left it above.
            front.get::<P>().next.store(held.id.raw(), Release);
            // Acquire: partner of `pass_on`.
            while node.state.load(Acquire) != state::HEAD {
                P::relax();
            }
        }
        let mut batch = NUMA.then(|| Batch::take(&held, numa::PAID_ALONE));
        // Acquire: partner of the release by the last holder.
        let mut seen = self.word.load(Acquire);
        while seen & (LOCKED | L::PENDING) != 0 {
            P::relax();
            seen = self.word.load(Acquire);
        }
        // (3) Relaxed: acquired above. An EPOCH, HALTS or USER bit stays, and so does a PENDING that came
        // meanwhile.
        while seen & L::TAIL == own {
            let left = batch.as_ref().and_then(Batch::open::<P>);
            let tail = left.map_or(0, |(_, last)| layout::tail_at::<L>(last));
            // Release: who comes to the last of those that were set aside finds its node open.
            let order = if NUMA { Release } else { Relaxed };
            match self.word.compare_exchange(seen, seen & !L::TAIL | LOCKED | tail, order, Relaxed) {
                Ok(_) => {
                    if let (Some(batch), Some((first, _))) = (&mut batch, left) {
                        batch.pass_to_front(first.get::<P>());
                        pass_on::<P>(first);
                    }
                    return;
                }
                Err(now) => {
                    if let Some(left) = left {
                        Batch::close::<P>(left);
                    }
                    seen = now;
                }
            }
        }
        // (2)
        self.word.store_low_byte(LOCKED as u8, Relaxed);
        let next = successor(&held);
        pass_on::<P>(batch.map_or(next, |batch| batch.pass::<P>(next)));
    }

    /// Puts this node at the end of the queue. Returns the one in front.
    pub(super) fn swap_tail(&self, own: u32) -> Option<NodeId> {
        // Release: our node is whole before anyone can find it. Acquire: so is that in front, before we write
        // to it.
        if is_split::<L>() {
            let before = self.word.swap_high_half((own >> 16) as u16, AcqRel);
            return tail::<L>(u32::from(before) << 16);
        }
        tail::<L>(self.word.update(AcqRel, |seen| Some(seen & !L::TAIL | own)).unwrap_or_default())
    }

    /// Waits, without a queue, until the lock is free. For machines on which the next waiter in a queue may
    /// not run, and which offer no way to halt.
    #[cold]
    #[inline(never)]
    pub(super) fn lock_virtual(&self) {
        count::<P>(Event::SlowPath);
        self.renew();
        poll::<P>(None, || self.take_if_idle());
    }
}

/// Waits for the successor's link, which its swap of the tail has promised.
pub(super) fn successor<P: Platform>(held: &Held<P>) -> NodeId {
    // Acquire: partner of the link.
    stall_until::<P, _>(|| NodeId::from_raw(held.node().next.load(Acquire)))
}

/// Makes it the queue head.
fn pass_on<P: Platform>(next: NodeId) {
    // Release: what we did as head comes before what it does.
    next.get::<P>().state.store(state::HEAD, Release);
}

const _: () = {
    // One store takes the lock for the pending waiter: its bit and the low byte must share a half.
    assert!(super::Small::PENDING < 1 << 16);
};
