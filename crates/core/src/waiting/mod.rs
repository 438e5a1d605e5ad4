//! What waits: the part of the mutexes and the readers-writer lock that does not depend on how they wait, and
//! its proof.
//!
//! A lock is a *word* of its own, in which it is held or free, and a waiting room: the wait lock, a queue of
//! spinners and a list of sleepers. A thread that does not get the lock may look at the word for a while.
//! Then it takes the wait lock, says in the word that a thread sleeps, puts its node into the list and parks
//! on the node. A release sees in the word whether it has to serve a sleeper. *How long* a thread looks and
//! *which* release serves a sleeper is policy; the rules here hold for every policy.
//!
//! # Rules
//!
//! Each lock's file says what in its word these rules speak of, and cites them by name.
//!
//! * **QUIET.** No thread is put into the list before `BIAS_REVOKED` is set, and after that every release is
//!   a read-modify-write of the word. The proof is in `waiting/bias.rs`.
//! * **DUTY.** If the list is not empty and the lock is free, some thread that is awake owes an attempt. A
//!   lock keeps it by four properties of its word:
//!   1. *A thread that enters the list has announced it to an owner*: by a read-modify-write of the word,
//!      under the wait lock, that found the lock held. (QUIET: no plain store wipes the announcement out.)
//!   2. *A release succeeds only from a word without an announcement*, or from one that shows a debtor: an
//!      awake thread that will attempt. A release that fails goes through the slow path, under the wait lock.
//!   3. *A thread that takes an announcement back makes a debtor*: it wakes the first sleeper, or hands the
//!      lock over, or the list is empty. It does so under the wait lock, before the lock is free.
//!   4. *A debtor pays or passes on*: it acquires the lock, or its attempt in vain finds the lock held, and
//!      then (1) holds again for the list as it is. A thread that acquires the lock owes a release, and (2)
//!      speaks of that.
//!
//!   So at every moment at which the lock is free, either the word shows a debtor or the list is empty.
//!   Wake-ups are not lost: a sleeper's node says `SLEEPING` before the wait lock is released and it parks on
//!   that very word, which a waker changes before it wakes.
//! * **LAST TOUCH.** The step that releases the lock is the releaser's last access to it, because the next
//!   owner may destroy and free it. The sleeper to wake was found before, under the wait lock. It is woken
//!   after, by the address of its node, in type-stable memory. Where the release hands the lock over, the
//!   store of `HANDED` comes before the wait lock is released, so the new owner passes through the wait lock
//!   before it returns. A signaller of a condition variable that requeues a waiter touches the mutex until it
//!   releases the wait lock; so that waiter passes through it, too.
//! * **PRIORITY.** Of two sleepers the more urgent one ([`Platform::priority`]) comes first in the list, and
//!   among equals the one that came first. Only the place in the list decides which is served. The proof is
//!   in `waiting/list.rs`.
//! * **GIVING UP.** A sleeper that is out of patience takes the wait lock and looks at its node once more. If
//!   it was served meanwhile, it owes what every served sleeper owes. If not, it is still in the list, and
//!   takes itself out; an announcement of no sleeper costs a slow path in vain, or is taken back here.
//! * **FORKS.** In a forked child the wait lock, the queue and the list may name threads that do not exist
//!   there. The wait lock's word holds the epoch of its last use; who enters a slow path first calls
//!   `Waiters::renew`, which clears them once. What the word says of waiters is cleared with them. The
//!   proof is in `waiting/wait_lock.rs`.
//!
//! Where a platform cannot fence ([`Platform::fence`] does nothing), a release by a plain store that came
//! late may wipe out an announcement. Its [`Platform::wait`] then returns now and then, and a sleeper that
//! was not served looks for itself.
//!
//! Proof: crates/core/src/waiting/mod.rs, crates/core/src/waiting/bias.rs
//! Models: crates/model/tests/models/scenes.rs
//! Stress: crates/sim/src/check/mod.rs

pub(crate) mod bias;
pub(crate) mod list;
pub(crate) mod slice;
pub(crate) mod wait_lock;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomic::zeroed;
use crate::events::{Event, count};
use crate::node::{Node, NodeId, state};
use crate::platform::{Atomic, Deadline, Platform, Running, Until, Waited};

/// Why a lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran while the thread slept.
    Interrupted,
}

/// How long a thread sleeps if its wake-up may be lost, in a case so rare that looking now and then is the
/// cheapest remedy; or if it gives others the first turn. With the slack of the kernel's timers, a
/// millisecond.
pub(crate) const LOOK_AFTER: Until<'static> = Until::Nanoseconds(950_000);

/// What may end a wait early.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience<'a> {
    deadline: Option<&'a Deadline>,
    interruptible: bool,
}

impl<'a> Patience<'a> {
    pub(crate) const ENDLESS: Patience<'static> = Patience { deadline: None, interruptible: false };
    pub(crate) const INTERRUPTIBLE: Patience<'static> = Patience { deadline: None, interruptible: true };

    pub(crate) fn until(deadline: &'a Deadline) -> Self {
        Patience { deadline: Some(deadline), interruptible: false }
    }

    pub(crate) fn is_endless(self) -> bool {
        self.deadline.is_none() && !self.interruptible
    }
}

/// How a park ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parked {
    /// Taken out of the list, or told to try: woken, or handed the lock.
    Served,
    /// For no reason: it is in the list still.
    Unserved,
    /// Out of patience, and perhaps served meanwhile: GIVING UP.
    Failed(Failure),
}

/// The ways to acquire a mutex that has a fast path, `take`, and a slow one, `lock_slow`.
///
/// C's functions have the fast path inline without a stack frame, and go on with the slow one by a jump: for
/// them both halves of `lock` and `unlock` are public.
macro_rules! acquiring {
    ($($V:ident: $bound:ident)?) => {
        /// Acquires the mutex, waiting as long as it takes. What the last owner did happens before the
        /// return. A thread that holds it already waits for ever.
        #[inline]
        pub fn lock$(<$V: $bound>)?(&self) {
            if !self.take() {
                self.lock_contended$(::<$V>)?();
            }
        }

        /// What [`Self::lock`] does after [`Self::take`] in vain.
        #[inline]
        pub fn lock_contended$(<$V: $bound>)?(&self) {
            // Without patience it cannot fail.
            let _ = self.lock_slow$(::<$V>)?(Patience::ENDLESS);
        }

        /// As [`Self::lock`], but gives up once `deadline` has passed. A free mutex is acquired whatever the
        /// deadline.
        ///
        /// # Errors
        /// [`Failure::TimedOut`]; the mutex is not held.
        #[inline]
        pub fn lock_until$(<$V: $bound>)?(&self, deadline: &Deadline) -> Result<(), Failure> {
            if self.take() { Ok(()) } else { self.lock_slow$(::<$V>)?(Patience::until(deadline)) }
        }

        /// As [`Self::lock`], but gives up when a signal handler has interrupted the sleep. A handler that
        /// runs before the thread sleeps, or one that restarts system calls, does not end the wait.
        ///
        /// # Errors
        /// [`Failure::Interrupted`]; the mutex is not held.
        #[inline]
        pub fn lock_interruptible$(<$V: $bound>)?(&self) -> Result<(), Failure> {
            if self.take() { Ok(()) } else { self.lock_slow$(::<$V>)?(Patience::INTERRUPTIBLE) }
        }
    };
}
pub(crate) use acquiring;

/// The waiting room of a mutex.
#[repr(C)]
pub(crate) struct Waiters<P: Platform> {
    wait_lock: P::U32,
    /// Hints about the owner: where it was last seen to run, and what else the lock keeps there. Written by
    /// owners.
    pub(crate) owner: P::U32,
    /// The queue of spinners: see [`crate::mcs`].
    pub(crate) tail: P::U32,
    /// The list of sleepers.
    head: P::U32,
}

zeroed! { Waiters<P: Platform>: [wait_lock owner tail head] }

impl<P: Platform> Waiters<P> {
    /// Where the first of the sleepers is named, in bytes.
    pub(crate) const HEAD_OFFSET: usize = core::mem::offset_of!(Self, head);

    /// Whether no thread is queued or asleep, or in the wait lock.
    pub(crate) fn is_idle(&self) -> bool {
        wait_lock::is_idle::<P>(&self.wait_lock)
            && self.tail.load(Relaxed) == 0
            && self.head.load(Relaxed) == 0
    }

    /// FORKS. `clear`: also what the lock's own word says of waiters.
    #[inline]
    pub(crate) fn renew(&self, clear: impl Fn()) {
        wait_lock::renew::<P>(&self.wait_lock, bias::BITS, || {
            self.tail.store(0, Relaxed);
            self.head.store(0, Relaxed);
            clear();
        });
    }

    /// Whether no thread has been about to sleep here yet, so that [`Self::release`] may succeed.
    #[inline(always)]
    pub(crate) fn is_biased(&self) -> bool {
        self.wait_lock.load(Relaxed) == 0
    }

    #[inline(always)]
    pub(crate) fn release(&self, word: &P::U32) -> bool {
        bias::release::<P>(word, &self.wait_lock)
    }

    /// QUIET: after this no plain release is under way, nor will one be.
    #[inline]
    pub(crate) fn revoke_bias(&self) {
        bias::revoke::<P>(&self.wait_lock);
    }

    pub(crate) fn lock(&self) {
        wait_lock::lock::<P>(&self.wait_lock);
    }

    pub(crate) fn unlock(&self) {
        wait_lock::unlock::<P>(&self.wait_lock);
    }

    /// LAST TOUCH: returns when the present holder of the wait lock has released it.
    pub(crate) fn pass_through(&self) {
        self.lock();
        self.unlock();
    }

    pub(crate) fn first(&self) -> Option<NodeId> {
        list::first::<P>(&self.head)
    }

    /// Whether the list is not empty, as seen without the wait lock.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.head.load(Relaxed) != 0
    }

    /// Under the wait lock: to the list's end, or as far as its priority takes it.
    pub(crate) fn push(&self, id: NodeId) {
        list::push::<P>(&self.head, id);
    }

    /// Under the wait lock: to the list's front, or as far as its priority takes it.
    pub(crate) fn push_first(&self, id: NodeId) {
        list::push_first::<P>(&self.head, id);
    }

    /// Under the wait lock: how many are asleep, about.
    pub(crate) fn count(&self) -> u32 {
        list::count::<P>(&self.head)
    }

    pub(crate) fn remove(&self, id: NodeId) {
        list::remove::<P>(&self.head, id);
    }

    /// Under the wait lock: puts signalled waiters of a condition variable, linked through `after` from
    /// `chain` to 0, into the list, asleep as they are. `prepare`: what the lock wants to be in their nodes.
    pub(crate) fn append(&self, chain: NodeId, prepare: impl Fn(&Node<P>)) {
        let mut next = Some(chain);
        while let Some(id) = next {
            let node = id.get::<P>();
            next = NodeId::from_raw(node.after.load(Relaxed));
            prepare(node);
            self.push(id);
            // Release: partner of the load in `park`.
            node.state.store(state::SLEEPING, Release);
        }
    }

    /// Makes a served sleeper the owner. Under the wait lock, which it releases. LAST TOUCH.
    pub(crate) fn hand_over(&self, node: &Node<P>) {
        // Release: what the owner did happens before the new owner's return.
        node.state.store(state::HANDED, Release);
        self.unlock();
        P::wake(&node.state, 1);
        count::<P>(Event::HandedToSleeper);
    }
}

/// Wakes a sleeper that was told to try, if there is one. The lock may be gone by now.
pub(crate) fn wake<P: Platform>(sleeper: Option<&Node<P>>) {
    if let Some(node) = sleeper {
        P::wake(&node.state, 1);
        count::<P>(Event::Woken);
    }
}

/// Sleeps, in a list or on the way into one, until there is a reason not to.
pub(crate) fn park<P: Platform>(node: &Node<P>, patience: Patience<'_>) -> Parked {
    loop {
        // Acquire: partner of the waker's store, which comes after it has changed the list.
        let now = node.state.load(Acquire);
        if now == state::WOKEN || now == state::HANDED {
            return Parked::Served;
        }
        match P::wait(&node.state, now, patience.deadline.into()) {
            Waited::TimedOut if patience.deadline.is_some() => return Parked::Failed(Failure::TimedOut),
            Waited::Interrupted if patience.interruptible => return Parked::Failed(Failure::Interrupted),
            // Not in the list yet: the signaller puts us there.
            _ if now == state::SIGNALLED => {}
            _ => return Parked::Unserved,
        }
    }
}

/// Whether the owner that left this tag may run; `handed_over` stands for one that has not woken yet.
#[inline]
pub(crate) fn may_run<P: Platform>(tag: u32, handed_over: u32) -> bool {
    match tag {
        0 => true,
        tag if tag == handed_over => false,
        tag => P::running(tag) != Running::No,
    }
}

/// Looks again and again until there is an answer, yielding the CPU more and more.
#[inline]
pub(crate) fn stall_until<P: Platform, T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut round = 0;
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        P::stall(round);
        round = round.saturating_add(1);
    }
}

/// Without a node a thread can neither queue nor sleep: it tries now and then. False once the deadline has
/// passed.
#[cold]
pub(crate) fn poll<P: Platform>(deadline: Option<&Deadline>, attempt: impl Fn() -> bool) -> bool {
    stall_until::<P, bool>(|| {
        if attempt() {
            return Some(true);
        }
        deadline.is_some_and(P::expired).then_some(false)
    })
}

#[cold]
pub(crate) fn poll_mutex<P: Platform>(
    patience: Patience<'_>,
    attempt: impl Fn() -> bool,
) -> Result<(), Failure> {
    if poll::<P>(patience.deadline, attempt) { Ok(()) } else { Err(Failure::TimedOut) }
}
