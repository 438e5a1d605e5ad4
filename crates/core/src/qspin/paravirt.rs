//! The slow paths of the paravirtual form, in which waiters halt and are kicked.
//!
//! No waiter spins for longer than a budget. No turn is reserved for a halted waiter, except after many turns
//! in vain: any running thread may take a free lock. How each waits (newcomer, pending waiter, waiter in the
//! queue, head, unlocker) is in docs/QSPIN.md, "The paravirtual form".
//!
//! # Invariants
//!
//! * **EXCLUSION.** `LOCKED` is set only by a read-modify-write of a word in which it was clear, and cleared
//!   only by the holder.
//! * **ENTRY.** A lock has at most one entry in the hash. `SLOW` is set only while it has one, or by its
//!   holder, or by the head that has put it there. It is taken out only by the holder. A node is
//!   [`state::HASHED`] from before `SLOW` shows it until the holder has taken its entry out; only then does
//!   the node become [`state::HEAD`], and while it is, no entry names it and `SLOW` is clear.
//! * **DUTY.** If the head is halted then `SLOW` is set (or HALTS excuses it, and the head looks for itself),
//!   and a thread will see it: the holder at its unlock, or, if the lock is free, the pending waiter, which
//!   leaves a free lock only by taking it. Every other way of taking the lock keeps `SLOW`.
//! * **HALTS.** Only a holder that has seen the halts bit clear since it acquired the lock releases by a
//!   plain store. `SLOW` is set by a thread other than the holder only after the bit; and if that thread was
//!   the one to set it, `SLOW` may be wiped out, once, by the release that was under way, and the thread does
//!   not rely on it: see "Releasing" in the parent's documentation.
//! * **LAST TOUCH.** The store that releases the lock is the unlocker's last access to it. The kick that
//!   follows is an address in type-stable memory; the head's state was changed before, while the lock kept
//!   the head from leaving.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::{LOCKED, LOW_BYTE, Layout, PASS, PASSES, RESERVED, SLOW};
use super::native::successor;
use super::numa::{self, Batch};
use super::{Halting, RawSpin, Tuning, hash, layout, queued};
use crate::events::{Event, count};
use crate::node::{Held, Node, NodeId, state};
use crate::platform::{Atomic, Platform, Running, Spin, Until};
use crate::waiting::{LOOK_AFTER, poll};

const fn is_free(word: u32) -> bool {
    word & LOCKED == 0 && word & LOW_BYTE != RESERVED
}

const fn is_reserved(word: u32) -> bool {
    word & (LOW_BYTE & !LOCKED) == RESERVED
}

/// Who still waits when a head has acquired the lock.
enum Left {
    /// Nobody: the tail is 0.
    Nobody,
    /// Those that the head had set aside, of whom this is the first: the tail is their last.
    Aside(NodeId),
    /// The rest of the queue, and who is set aside.
    Others,
}

/// How a head's way into the hash ended.
enum Announced {
    /// `SLOW` says that it is there; and whether HALTS allows it to be wiped out.
    Yes { unsure: bool },
    /// The lock came free and is acquired.
    Acquired(Left),
    /// There is no hash.
    Impossible,
}

impl<P: Halting, L: Layout, const MARK: u32> RawSpin<P, L, MARK> {
    #[cold]
    #[inline(never)]
    pub(super) fn lock_paravirtual<const NUMA: bool>(&self) {
        // Free, but for bits that an earlier contention or a fork has left.
        if self.take_if_idle() {
            return;
        }
        count::<P>(Event::SlowPath);
        self.renew();
        if !self.spin_pending() {
            self.lock_halting::<NUMA>();
        }
    }

    /// Takes the lock if it is neither held nor reserved.
    pub(super) fn steal(&self) -> bool {
        let before = self.word.update(Acquire, |seen| is_free(seen).then_some(seen | LOCKED));
        if before.is_ok_and(|before| before & L::TAIL != 0) {
            count::<P>(Event::Steal);
        }
        before.is_ok()
    }

    /// Takes the lock if it is free, or else spins for it as the pending waiter, if there is none. True if it
    /// was acquired.
    fn spin_pending(&self) -> bool {
        let mut seen = loop {
            if self.steal() {
                return true;
            }
            let seen = self.word.load(Relaxed);
            if seen & L::PENDING != 0 || is_reserved(seen) {
                return false;
            }
            // Relaxed: the bit carries nothing.
            let ours = seen | L::PENDING;
            if seen & LOCKED != 0 && self.word.compare_exchange(seen, ours, Relaxed, Relaxed).is_ok() {
                break ours;
            }
        };
        let mut budget = P::Spin::fresh();
        loop {
            let next = if is_free(seen) {
                seen & !L::PENDING | LOCKED
            } else if is_reserved(seen) || !budget.spin() {
                // DUTY: the lock is held, so its holder will see that no waiter is pending any more; or it is
                // reserved, and the head awake.
                seen & !L::PENDING
            } else {
                seen = self.word.load(Relaxed);
                continue;
            };
            match self.word.compare_exchange(seen, next, Acquire, Relaxed) {
                Ok(_) if is_free(seen) => {
                    count::<P>(Event::PendingHit);
                    return true;
                }
                Ok(_) => return false,
                Err(now) => seen = now,
            }
        }
    }

    fn lock_halting<const NUMA: bool>(&self) {
        let Some((held, own)) = queued::<P, L>() else {
            poll::<P>(None, || self.steal());
            return;
        };
        let node = held.node();
        node.next.store(0, Relaxed);
        node.state.store(state::IDLE, Relaxed);
        node.tag.store(P::tag(), Relaxed);
        node.kicked.store(0, Relaxed);
        node.attempts().store(0, Relaxed);
        if NUMA {
            numa::arrive(node);
        }
        if let Some(front) = self.swap_tail(own) {
            // Release: the one in front finds our node as we left it above.
            front.get::<P>().next.store(held.id.raw(), Release);
            wait_in_queue::<P>(node, front.get::<P>());
        } else {
            // No other thread looks at it before it is in the hash.
            node.state.store(state::HEAD, Relaxed);
        }
        let batch = NUMA.then(|| Batch::take(&held, numa::PAID));
        match self.wait_at_head(&held, own, batch.as_ref()) {
            Left::Nobody => {}
            Left::Aside(first) => {
                if let Some(mut batch) = batch {
                    batch.pass_to_front(first.get::<P>());
                }
                self.pass_headship(first);
            }
            Left::Others => {
                let next = successor(&held);
                self.pass_headship(batch.map_or(next, |batch| batch.pass::<P>(next)));
            }
        }
    }

    /// Waits as queue head until the lock is acquired.
    fn wait_at_head(&self, held: &Held<P>, own: u32, batch: Option<&Batch>) -> Left {
        let node = held.node();
        let Tuning { mut handoff_after, .. } = P::tuning();
        if batch.is_some_and(Batch::is_front) {
            // It has stood aside, and those who take the lock past it may all be of one node, whose threads
            // are nearer to it.
            handoff_after = 0;
        }
        let mut vain = 0;
        let mut repeated = false;
        let mut unsure = false;
        loop {
            let mut budget = P::Spin::fresh();
            loop {
                if let Some(left) = self.claim(node, own, batch) {
                    return left;
                }
                if !budget.spin() {
                    break;
                }
            }
            // Acquire: partner of the kick; the entry that it took out is gone before we make another.
            if node.state.load(Acquire) == state::HEAD {
                if vain >= handoff_after && node.attempts().load(Relaxed) == 0 {
                    // For the unlock that kicks us the next time. Relaxed: shown by `announce`.
                    node.attempts().store(1, Relaxed);
                    if self.reserve() {
                        continue;
                    }
                }
                match self.announce(held, own, batch) {
                    Announced::Yes { unsure: now } => unsure |= now,
                    Announced::Acquired(left) => return left,
                    Announced::Impossible => {
                        P::stall(u32::MAX);
                        continue;
                    }
                }
            }
            count::<P>(Event::WaitHead);
            if repeated {
                count::<P>(Event::WaitAgain);
            }
            repeated = true;
            if unsure {
                P::wait(&node.state, state::HASHED, LOOK_AFTER);
                vain += 1;
                // HALTS: without SLOW no thread will kick us, and others may go on taking the lock past us.
                // (Or a kick is under way, which a reservation does not disturb.) It stays until we have the
                // lock.
                if vain >= handoff_after && self.word.load(Relaxed) & SLOW == 0 {
                    self.reserve();
                }
            } else {
                P::wait(&node.state, state::HASHED, Until::Woken);
            }
            if node.state.load(Acquire) == state::HASHED {
                // ENTRY, DUTY: the entry is there and SLOW is set, or the thread that passed headship is
                // about to see to it.
                count::<P>(Event::SpuriousWakeup);
            } else {
                vain += 1;
                count_wake::<P>(node);
            }
        }
    }

    /// The head's attempt. Some if it acquired the lock: who still waits.
    fn claim(&self, node: &Node<P>, own: u32, batch: Option<&Batch>) -> Option<Left> {
        let mut opened = None;
        // Acquire: partner of the release by the last holder, which may have put us in the hash. Release: who
        // comes to the last of those that were set aside finds its node open.
        let order = if batch.is_some() { AcqRel } else { Acquire };
        let before = self.word.update(order, |seen| {
            if seen & LOCKED != 0 {
                return None;
            }
            let rest = seen & !LOW_BYTE | LOCKED;
            if seen & L::TAIL != own {
                return Some(rest);
            }
            if opened.is_none() {
                opened = batch.and_then(Batch::open::<P>);
            }
            Some(rest & !L::TAIL | opened.map_or(0, |(_, last)| layout::tail_at::<L>(last)))
        });
        let left = match before {
            Ok(before) if before & L::TAIL == own => {
                opened.map_or(Left::Nobody, |(first, _)| Left::Aside(first))
            }
            _ => {
                if let Some(opened) = opened {
                    Batch::close::<P>(opened);
                }
                before.ok()?;
                Left::Others
            }
        };
        // Only if it ran before it was kicked. ENTRY: it is the holder now.
        if node.state.load(Relaxed) == state::HASHED
            && let Some(lines) = P::lock_hash()
        {
            hash::remove::<P>(lines, self.address());
        }
        Some(left)
    }

    /// Keeps others from taking the lock when its holder releases it. True unless another thread was quicker.
    fn reserve(&self) -> bool {
        let seen = self.word.load(Relaxed);
        // With SLOW set (set meanwhile) it would be a number of passes, and make the next release kick. A
        // release by a plain store may wipe it out; then it was in vain, and nothing worse.
        let reserved = self.word.compare_exchange(seen, seen | RESERVED, Relaxed, Relaxed).is_ok();
        if reserved {
            count::<P>(Event::Reservation);
        }
        reserved
    }

    /// Enters the head into the hash, and says so in the word.
    fn announce(&self, held: &Held<P>, own: u32, batch: Option<&Batch>) -> Announced {
        let node = held.node();
        let Some(lines) = P::lock_hash() else { return Announced::Impossible };
        // HALTS. Relaxed: a thread that acquires the lock after this reads a later word than this writes, and
        // the bit that it reads there holds back its plain release.
        let unsure = self.word.load(Relaxed) & L::HALTS == 0;
        if unsure {
            self.word.fetch_or(L::HALTS, Relaxed);
        }
        if !hash::insert::<P>(lines, self.address(), held.id) {
            return Announced::Impossible;
        }
        // Relaxed: shown to others by the release below.
        node.state.store(state::HASHED, Relaxed);
        let mut seen = self.word.load(Relaxed);
        loop {
            if seen & LOCKED == 0 {
                if let Some(left) = self.claim(node, own, batch) {
                    return Announced::Acquired(left);
                }
                seen = self.word.load(Relaxed);
                continue;
            }
            // Ends a reservation too. Release: the holder finds the entry and the node's state.
            match self.word.compare_exchange(seen, seen & !PASSES | SLOW, Release, Relaxed) {
                Ok(_) => return Announced::Yes { unsure },
                Err(now) => seen = now,
            }
        }
    }

    /// Makes the waiter behind the caller, which has acquired the lock, the queue head.
    fn pass_headship(&self, next: NodeId) {
        let node = next.get::<P>();
        // Release: what we did as head comes before what it does. Acquire: so does what it did before it
        // halted.
        while node.state.compare_exchange(state::IDLE, state::HEAD, Release, Relaxed).is_err() {
            if node.state.compare_exchange(state::HALTED, state::HASHED, AcqRel, Relaxed).is_ok() {
                if let Some(lines) = P::lock_hash()
                    && hash::insert::<P>(lines, self.address(), next)
                {
                    // Relaxed: we are the holder; our release is what shows it.
                    self.word.fetch_or(SLOW, Relaxed);
                    count::<P>(Event::HashedByPasser);
                } else {
                    node.state.store(state::HEAD, Release);
                    P::wake(&node.state, 1);
                }
                return;
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn unlock_paravirtual(&self) {
        self.renew();
        let mut kicked = None;
        let mut left_to_head = 0;
        loop {
            // Acquire: partner of the release in `announce`.
            let seen = self.word.load(Acquire);
            let pass = seen & SLOW != 0
                && seen & L::PENDING != 0
                && seen & PASSES
                    < PASSES.min(P::tuning::<Tuning>().bypasses_before_wake.saturating_mul(PASS));
            if seen & SLOW != 0 && !pass {
                if let Some((head, in_vain)) = self.take_head() {
                    kicked = Some(head);
                    left_to_head = if in_vain { RESERVED } else { 0 };
                }
                continue;
            }
            // DUTY: with a pass, the pending waiter that this word shows; if it is left to the head, that
            // one, which is awake or about to be woken.
            let next = if pass { (seen & !LOCKED) + PASS } else { seen & !LOCKED | left_to_head };
            // LAST TOUCH, if it succeeds. Release: partner of every acquisition.
            if self.word.compare_exchange(seen, next, Release, Relaxed).is_ok() {
                if pass {
                    count::<P>(Event::Pass);
                } else if left_to_head != 0 {
                    count::<P>(Event::LeftToHead);
                }
                break;
            }
        }
        if let Some(node) = kicked {
            kick::<P>(node);
        }
    }

    /// Takes the halted head out of the hash, by the holder. It may run from here on, but not acquire the
    /// lock. And whether it has waited in vain for too long.
    fn take_head(&self) -> Option<(&'static Node<P>, bool)> {
        let found = P::lock_hash().and_then(|lines| hash::remove::<P>(lines, self.address()));
        // ENTRY: before the node becomes HEAD, for then it may come back and set SLOW anew.
        self.word.fetch_and(!(SLOW | PASSES), Relaxed);
        let node = found?.get::<P>();
        node.kicked.store(if P::counting() { P::now() as usize } else { 0 }, Relaxed);
        // Before it becomes HEAD, for then it may be used elsewhere.
        let in_vain = node.attempts().load(Relaxed) != 0;
        // Release: see `wait_at_head`.
        node.state.store(state::HEAD, Release);
        Some((node, in_vain))
    }
}

/// Waits behind `front` until headship is passed: [`state::HEAD`], or [`state::HASHED`] if that was while it
/// was halted and it woke up before it was kicked.
fn wait_in_queue<P: Platform>(node: &Node<P>, front: &Node<P>) {
    let mut repeated = false;
    loop {
        let mut budget = P::Spin::fresh();
        let early = loop {
            // Acquire: partner of `pass_headship`.
            if node.state.load(Acquire) != state::IDLE {
                return;
            }
            if !runs::<P>(front) {
                break true;
            }
            if !budget.spin() {
                break false;
            }
        };
        // Release: partner of the acquire in `pass_headship`.
        if node.state.compare_exchange(state::IDLE, state::HALTED, AcqRel, Acquire).is_err() {
            return;
        }
        count::<P>(Event::WaitNode);
        if early {
            count::<P>(Event::WaitEarly);
        }
        if repeated {
            count::<P>(Event::WaitAgain);
        }
        repeated = true;
        P::wait(&node.state, state::HALTED, Until::Woken);
        // If headship has come meanwhile, the state stays: it tells whether there is an entry in the hash.
        match node.state.compare_exchange(state::HALTED, state::IDLE, AcqRel, Acquire) {
            Ok(_) => count::<P>(Event::SpuriousWakeup),
            Err(now) => {
                if now == state::HEAD {
                    count_wake::<P>(node);
                }
                return;
            }
        }
    }
}

/// Whether the one in front may be running. It may have left, and its node may be another's by now; then the
/// answer costs some spinning or a halt too many.
fn runs<P: Platform>(front: &Node<P>) -> bool {
    let halted = matches!(front.state.load(Relaxed), state::HALTED | state::HASHED);
    !halted && P::running(front.tag.load(Relaxed)) != Running::No
}

fn kick<P: Platform>(node: &Node<P>) {
    if !P::counting() {
        P::wake(&node.state, 1);
        return;
    }
    let began = P::now();
    P::wake(&node.state, 1);
    P::count(Event::KickUnlock, 1);
    P::count(Event::KickLatency, P::now().saturating_sub(began));
}

/// A waiter runs again that was kicked.
fn count_wake<P: Platform>(node: &Node<P>) {
    if P::counting() {
        let kicked = node.kicked.load(Relaxed) as u64;
        if kicked != 0 {
            P::count(Event::WakeLatency, P::now().saturating_sub(kicked));
        }
    }
}
