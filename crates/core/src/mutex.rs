//! The queued adaptive mutex.
//!
//! After Waiman Long's series "mutex: Improve mutex performance by doing less atomic-ops & better spinning"
//! (Linux, 2013), brought to user space. A thread that finds the mutex held first spins, as long as the owner
//! may be running; with an MCS queue one spinner competes and the others wait behind it, each on its own
//! cache line. A thread that has spun long enough sleeps in a first-in first-out list.
//!
//! # The words
//!
//! `state` holds the source's `count`, turned round so that zero bytes are an unlocked mutex, and the wait
//! lock, so that releasing the mutex and the wait lock is one store:
//!
//! | bits | source | meaning | who changes it |
//! | --- | --- | --- | --- |
//! | 0..30 = 0 | `count` 1 | free | the owner, releasing |
//! | 0..30 = 1 | `count` 0 | held | whoever takes it from 0 |
//! | 0..30 > 1 | `count` < 0 | held, and somebody may sleep | lockers (+1); the wait lock's holder (to 2, 1 or 0) |
//! | 30, 31 | `wait_lock` | [`bitlock`](crate::bitlock) | |
//!
//! `owner` is the owner's tag ([`Platform::tag`]), a hint for spinners: 0 while nobody has published
//! one, [`HANDED_OVER`] from a hand-off until the sleeper has woken. `tail` is the queue of spinners
//! ([`crate::mcs`]), `head` the list of sleepers, guarded by the wait lock. `epoch` is the
//! [`Platform::epoch`] in which the wait lock, `tail` and `head` were last used: in a forked child they may
//! name threads that do not exist there, so whoever enters a slow path first clears them ([`RawMutex::renew`]).
//!
//! # Invariants
//!
//! * **EXCLUSION.** Only a read-modify-write that takes the count from 0 acquires the mutex, except that an
//!   unlocker may leave the count as it is and make the first sleeper the owner ([`state::HANDED`]).
//! * **DUTY.** If the list of sleepers is not empty and the count is 0 or 1, then some thread still owes an
//!   attempt: the first sleeper is [`state::WOKEN`], or a spinner is queued. Whoever attempts in vain from
//!   the list sets the count above 1 before it sleeps, and a spinner that acquires while the list is not
//!   empty does too. So every owner that leaves sleepers without such a thread finds a count above 1, and
//!   its unlock goes through the slow path, which wakes one.
//! * **LAST TOUCH.** The store that releases the mutex is the unlocker's last access to it. Whatever it needs
//!   afterwards (whom to wake) it took before, and wakes by address, in type-stable memory.
//! * **SERVICE.** A sleeper that was woken [`Tuning::handoff_after`](crate::platform::Tuning) times in vain
//!   is handed the mutex; at most [`Tuning::passes_before_wake`](crate::platform::Tuning) unlocks in a row
//!   leave the first sleeper asleep. The list is first-in first-out, so everybody becomes first.
//!
//! # What differs from the source
//!
//! * The source releases the mutex and then takes the wait lock to find whom to wake; a kernel mutex may
//!   therefore not be freed by the next owner. Here the wait lock is taken first, and one store releases both.
//! * Unlock's fast path is a compare-and-swap 1 -> 0 rather than an increment: an increment would turn the
//!   unlock of an unlocked mutex, which programs get away with elsewhere, into a mutex locked for ever.
//! * An unlock does not wake a sleeper while a queued spinner is about to take the mutex (within bounds), nor
//!   one that was woken and has not run yet; a woken sleeper that finds the mutex taken spins in the queue
//!   before it sleeps again. In a kernel waking is cheap and prompt; here it is two system calls.
//! * Sleepers are served by hand-off after too many vain attempts.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::bitlock;
use crate::mcs;
use crate::node::{Held, NodeId, list, state};
use crate::platform::{Atomic, ConstAtomic, Deadline, Platform, Running, Spin, Waited};

/// The bits of `state` that count.
const COUNT: u32 = !bitlock::BITS;
/// Far more lockers than there can be threads; a count beyond it has crept up through time-outs.
const CREPT: u32 = 1 << 28;
/// In `owner`: handed to a sleeper that has not woken yet.
const HANDED_OVER: u32 = u32::MAX;

/// Which of the source's patches are in force. Functions rather than constants, so that an implementer may look
/// a choice up that was made when the program started; slow paths only ask.
pub trait Variant: 'static {
    /// Read the count before an exchange or a compare-and-swap, and do not issue one that cannot succeed
    /// (patch 2).
    fn checks_first() -> bool;
    /// Queue the spinners (patch 3).
    fn queues_spinners() -> bool;
    /// Take any negative count as a sign of waiters, not only -1 (patch 4).
    fn takes_any_negative() -> bool;
}

macro_rules! variants {
    ($($(#[$doc:meta])* $name:ident: $check:literal, $queued:literal, $any:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Variant for $name {
            #[inline(always)]
            fn checks_first() -> bool {
                $check
            }
            #[inline(always)]
            fn queues_spinners() -> bool {
                $queued
            }
            #[inline(always)]
            fn takes_any_negative() -> bool {
                $any
            }
        }
    )*};
}

variants! {
    /// Before the series: exchanges unconditionally, and every spinner competes.
    Baseline: false, false, false;
    /// Patch 2: reads before it exchanges.
    FewerAtomics: true, false, false;
    /// Patches 2 and 3: spinners wait in an MCS queue.
    McsQueue: true, true, false;
    /// Patches 2, 3 and 4: any negative count means waiters. The default.
    AnyNegative: true, true, true;
}

/// Why a lock was not acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran while the thread slept.
    Interrupted,
}

/// What may end a wait early.
#[derive(Clone, Copy, Default)]
struct Patience<'a> {
    deadline: Option<&'a Deadline>,
    interruptible: bool,
}

/// The mutex: 20 bytes, zero when unlocked. An unlocked one may be moved, copied and freed.
///
/// Every method takes the [`Variant`] as a parameter, because a program chooses it once for all its mutexes;
/// all calls on one mutex must name the same one. No method allocates, panics or unwinds; none is
/// async-signal-safe with respect to the same mutex, all are with respect to others.
#[repr(C)]
pub struct RawMutex<P: Platform> {
    state: P::U32,
    owner: P::U32,
    tail: P::U32,
    head: P::U32,
    epoch: P::U32,
}

impl<P: Platform> Default for RawMutex<P> {
    fn default() -> Self {
        RawMutex {
            state: P::U32::new(0),
            owner: P::U32::new(0),
            tail: P::U32::new(0),
            head: P::U32::new(0),
            epoch: P::U32::new(0),
        }
    }
}

impl<P: Platform> RawMutex<P>
where
    P::U32: ConstAtomic,
{
    /// An unlocked mutex.
    pub const fn new() -> Self {
        RawMutex {
            state: P::U32::ZERO,
            owner: P::U32::ZERO,
            tail: P::U32::ZERO,
            head: P::U32::ZERO,
            epoch: P::U32::ZERO,
        }
    }
}

impl<P: Platform> RawMutex<P> {
    /// Acquires the mutex, waiting as long as it takes. What the last owner did happens before the return.
    /// A thread that holds it already waits for ever.
    #[inline]
    pub fn lock<V: Variant>(&self) {
        if !self.take() {
            // Without patience it cannot fail.
            let _ = self.lock_slow::<V>(Patience::default());
        }
    }

    /// As [`RawMutex::lock`], but gives up once `deadline` has passed. A free mutex is acquired whatever the
    /// deadline.
    ///
    /// # Errors
    /// [`Failure::TimedOut`]; the mutex is not held.
    #[inline]
    pub fn lock_until<V: Variant>(&self, deadline: &Deadline) -> Result<(), Failure> {
        if self.take() {
            return Ok(());
        }
        self.lock_slow::<V>(Patience { deadline: Some(deadline), interruptible: false })
    }

    /// As [`RawMutex::lock`], but gives up when a signal handler has interrupted the sleep. A handler that
    /// runs before the thread sleeps, or one that restarts system calls, does not end the wait.
    ///
    /// # Errors
    /// [`Failure::Interrupted`]; the mutex is not held.
    #[inline]
    pub fn lock_interruptible<V: Variant>(&self) -> Result<(), Failure> {
        if self.take() {
            return Ok(());
        }
        self.lock_slow::<V>(Patience { deadline: None, interruptible: true })
    }

    /// Acquires the mutex if it is free; false if it is held. Synchronises as [`RawMutex::lock`] when true.
    #[inline]
    pub fn try_lock(&self) -> bool {
        let mut seen = self.state.load(Relaxed);
        while seen & COUNT == 0 {
            if P::single_threaded() {
                self.state.store(seen + 1, Relaxed);
                return true;
            }
            match self.state.compare_exchange(seen, seen + 1, Acquire, Relaxed) {
                Ok(_) => {
                    self.publish();
                    return true;
                }
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Releases the mutex, which the caller holds. What the caller did happens before the next acquisition.
    /// The mutex may be destroyed and freed by another thread as soon as it can acquire it. Releasing a
    /// mutex that is free does nothing.
    #[inline]
    pub fn unlock<V: Variant>(&self) {
        if P::single_threaded() && self.state.load(Relaxed) == 1 {
            self.state.store(0, Relaxed);
            return;
        }
        self.owner.store(0, Relaxed);
        if self.state.compare_exchange(1, 0, Release, Relaxed).is_err() {
            self.unlock_slow::<V>();
        }
    }

    /// Whether somebody holds the mutex at this moment.
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) & COUNT != 0
    }

    /// Whether nobody holds it and nobody is queued or asleep in it.
    pub fn is_idle(&self) -> bool {
        self.state.load(Acquire) == 0 && self.tail.load(Relaxed) == 0 && self.head.load(Relaxed) == 0
    }

    /// The fast path: one atomic decrement of the source's count, 1 -> 0.
    #[inline(always)]
    fn take(&self) -> bool {
        if P::single_threaded() && self.state.load(Relaxed) == 0 {
            // No other thread: neither atomicity nor a tag for spinners is needed.
            self.state.store(1, Relaxed);
            return true;
        }
        if self.state.fetch_add(1, Acquire) & COUNT == 0 {
            self.publish();
            return true;
        }
        false
    }

    /// Tells spinners where the owner runs.
    #[inline(always)]
    fn publish(&self) {
        self.owner.store(P::tag(), Relaxed);
    }

    /// Makes the slow path's words this process's own. See the module's documentation on `epoch`.
    #[inline]
    fn renew(&self) {
        let epoch = P::epoch();
        // Acquire: partner of the release below; whoever sees the epoch sees the words cleared.
        if self.epoch.load(Acquire) != epoch {
            renew_words::<P>(&self.epoch, epoch, || {
                self.tail.store(0, Relaxed);
                self.head.store(0, Relaxed);
                self.state.fetch_and(COUNT, Relaxed);
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slow<V: Variant>(&self, patience: Patience<'_>) -> Result<(), Failure> {
        self.renew();
        let Some(held) = Held::<P>::take() else {
            return self.lock_polling(patience.deadline);
        };
        if self.compete::<V>(held.id) {
            return Ok(());
        }
        let node = held.node();
        node.attempts.store(0, Relaxed);
        node.passed.store(0, Relaxed);
        bitlock::lock::<P>(&self.state);
        list::push::<P>(&self.head, held.id);
        self.sleep::<V>(held.id, patience)
    }

    /// Without a node a thread can neither spin in the queue nor sleep in the list: it tries now and then.
    /// Only for a fifth nested wait, or when thread indices have run out.
    #[cold]
    fn lock_polling(&self, deadline: Option<&Deadline>) -> Result<(), Failure> {
        let mut round = 0;
        while !self.try_lock() {
            if deadline.is_some_and(P::expired) {
                return Err(Failure::TimedOut);
            }
            P::stall(round);
            round = round.saturating_add(1);
        }
        Ok(())
    }

    /// Spins for the mutex. True if it was acquired.
    fn compete<V: Variant>(&self, id: NodeId) -> bool {
        let mut budget = P::spin();
        // Entry is checked once: nobody queues to spin on an owner that does not run.
        if !self.owner_may_run() {
            return false;
        }
        if V::queues_spinners() && !mcs::join::<P>(&self.tail, id, &mut budget) {
            return false;
        }
        let mut budget = P::spin();
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
            if V::queues_spinners() && self.head.load(Relaxed) != 0 {
                self.state.fetch_add(1, Relaxed);
            }
        }
        if V::queues_spinners() {
            mcs::leave::<P>(&self.tail, id);
        }
        acquired
    }

    /// One attempt of a spinner.
    #[inline]
    fn grab<V: Variant>(&self) -> bool {
        let seen = if V::checks_first() { self.state.load(Relaxed) } else { 0 };
        if seen & COUNT != 0 {
            return false;
        }
        // With the wait lock's bits as they were seen: taking the mutex does not disturb them.
        self.state.compare_exchange(seen, seen + 1, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn owner_may_run(&self) -> bool {
        match self.owner.load(Relaxed) {
            0 => true,
            HANDED_OVER => false,
            tag => P::running(tag) != Running::No,
        }
    }

    /// Waits in the list until the mutex is acquired or patience ends. The node is in the list and the wait
    /// lock is held.
    fn sleep<V: Variant>(&self, id: NodeId, patience: Patience<'_>) -> Result<(), Failure> {
        let node = id.get::<P>();
        let mut failed = None;
        loop {
            if self.attempt::<V>(id) {
                self.settle(id);
                return Ok(());
            }
            if let Some(failure) = failed {
                // DUTY: the attempt found the mutex held and left the count above 1, so the owner will wake
                // whoever is first then.
                list::remove::<P>(&self.head, id);
                let alone = list::first::<P>(&self.head).is_none();
                node.state.store(state::IDLE, Relaxed);
                bitlock::unlock_with::<P>(&self.state, |count| if alone { count.min(1) } else { count });
                return Err(failure);
            }
            node.state.store(state::SLEEPING, Relaxed);
            bitlock::unlock::<P>(&self.state);
            failed = self.doze(id, patience);
            if self.compete_woken::<V>(id) {
                bitlock::lock::<P>(&self.state);
                self.settle(id);
                return Ok(());
            }
            bitlock::lock::<P>(&self.state);
        }
    }

    /// Takes up the wait of a condition variable's waiter whom a signaller put into the list. Returns with
    /// the mutex held.
    pub(crate) fn sleep_requeued<V: Variant>(&self, id: NodeId) {
        let patience = Patience::default();
        self.doze(id, patience);
        let woken = self.compete_woken::<V>(id);
        bitlock::lock::<P>(&self.state);
        if woken {
            self.settle(id);
        } else {
            // Without patience it cannot fail.
            let _ = self.sleep::<V>(id, patience);
        }
    }

    /// Sleeps until woken or handed the mutex, or patience ends.
    fn doze(&self, id: NodeId, patience: Patience<'_>) -> Option<Failure> {
        let node = id.get::<P>();
        loop {
            // Acquire: partner of the waker's store, which comes after it has changed the list.
            let now = node.state.load(Acquire);
            if now == state::WOKEN || now == state::HANDED {
                return None;
            }
            match P::wait(&node.state, now, patience.deadline) {
                Waited::Woken => {}
                Waited::TimedOut if patience.deadline.is_some() => return Some(Failure::TimedOut),
                Waited::Interrupted if patience.interruptible => return Some(Failure::Interrupted),
                Waited::TimedOut | Waited::Interrupted => {}
            }
        }
    }

    /// A woken sleeper that finds the mutex taken spins for it like anyone else, still in the list.
    fn compete_woken<V: Variant>(&self, id: NodeId) -> bool {
        let node = id.get::<P>();
        // Only its own thread reads and writes `attempts` outside the wait lock's protection of the rest.
        node.attempts.store(node.attempts.load(Relaxed) + 1, Relaxed);
        V::queues_spinners() && node.state.load(Relaxed) == state::WOKEN && self.compete::<V>(id)
    }

    /// A sleeper's attempt, under the wait lock: the source's exchange of -1. True if the mutex is ours.
    fn attempt<V: Variant>(&self, id: NodeId) -> bool {
        let node = id.get::<P>();
        if node.state.load(Relaxed) == state::HANDED {
            return true;
        }
        let seen = self.state.load(Relaxed) & COUNT;
        let shows_waiter = if V::takes_any_negative() { seen > 1 } else { seen == 2 };
        if V::checks_first() && shows_waiter && seen < CREPT {
            return false;
        }
        self.mark(|_| 2) == 0
    }

    /// Under the wait lock: sets the count, keeps the wait lock's bits, returns the count before.
    fn mark(&self, mut count: impl FnMut(u32) -> u32) -> u32 {
        let mut seen = self.state.load(Relaxed);
        loop {
            // Acquire: this acquires the mutex if the count was 0.
            match self.state.compare_exchange(
                seen,
                (seen & bitlock::BITS) | count(seen & COUNT),
                Acquire,
                Relaxed,
            ) {
                Ok(_) => return seen & COUNT,
                Err(now) => seen = now,
            }
        }
    }

    /// The caller has the mutex, the wait lock, and a node in the list: takes the node out, sets the count
    /// to what the rest of the list asks for (DUTY), and releases the wait lock.
    fn settle(&self, id: NodeId) {
        list::remove::<P>(&self.head, id);
        id.get::<P>().state.store(state::IDLE, Relaxed);
        self.publish();
        let count = if list::first::<P>(&self.head).is_some() { 2 } else { 1 };
        bitlock::unlock_with::<P>(&self.state, |_| count);
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow<V: Variant>(&self) {
        self.renew();
        if self.state.load(Relaxed) & COUNT == 0 {
            return;
        }
        bitlock::lock::<P>(&self.state);
        let mut sleeper = None;
        if let Some(first) = list::first::<P>(&self.head) {
            let node = first.get::<P>();
            if node.attempts.load(Relaxed) >= P::TUNING.handoff_after {
                return self.hand_over(first);
            }
            let passed = node.passed.load(Relaxed);
            // Acquire is not needed: a spinner that shows in `tail` has not attempted yet, or will again
            // before it sleeps, under the wait lock that we hold until the mutex is free.
            if V::queues_spinners() && self.tail.load(Relaxed) != 0 && passed < P::TUNING.passes_before_wake {
                node.passed.store(passed + 1, Relaxed);
            } else {
                node.passed.store(0, Relaxed);
                // Release: partner of the load in `doze`.
                if node.state.swap(state::WOKEN, Release) == state::SLEEPING {
                    sleeper = Some(node);
                }
            }
        }
        // LAST TOUCH. Newcomers' increments are dropped with the count: each of them is on its way to an
        // attempt of its own.
        bitlock::unlock_with::<P>(&self.state, |_| 0);
        if let Some(node) = sleeper {
            P::wake(&node.state, 1);
        }
    }

    /// Makes the first sleeper the owner. Under the wait lock, which it releases.
    fn hand_over(&self, first: NodeId) {
        let node = first.get::<P>();
        self.owner.store(HANDED_OVER, Relaxed);
        // Release: the new owner's acquisition goes through this store, and through the wait lock.
        node.state.store(state::HANDED, Release);
        bitlock::unlock::<P>(&self.state);
        P::wake(&node.state, 1);
    }

    /// Puts signalled waiters of a condition variable, linked through `after` from `chain` to 0, into the
    /// list of sleepers, and wakes the first sleeper if the mutex is free.
    pub(crate) fn requeue(&self, chain: NodeId) {
        self.renew();
        bitlock::lock::<P>(&self.state);
        let mut next = Some(chain);
        while let Some(id) = next {
            let node = id.get::<P>();
            next = NodeId::from_raw(node.after.load(Relaxed));
            node.attempts.store(0, Relaxed);
            node.passed.store(0, Relaxed);
            list::push::<P>(&self.head, id);
            node.state.store(state::SLEEPING, Release);
        }
        let mut sleeper = None;
        let first = list::first::<P>(&self.head);
        bitlock::unlock_with::<P>(&self.state, |count| {
            if count != 0 {
                // Held: its owner's unlock shall find them.
                return 2;
            }
            if let Some(first) = first {
                let node = first.get::<P>();
                if node.state.swap(state::WOKEN, Release) == state::SLEEPING {
                    sleeper = Some(node);
                }
            }
            0
        });
        if let Some(node) = sleeper {
            P::wake(&node.state, 1);
        }
    }
}

/// Clears words that belong to another epoch, once: `epoch` goes from whatever it was to a claim on the new
/// value (its top bit set) by one thread, which clears and then publishes; the others wait for that. A claim
/// that a fork left behind is of another epoch, and is claimed again.
pub(crate) fn renew_words<P: Platform>(word: &P::U32, epoch: u32, clear: impl FnOnce()) {
    const CLAIM: u32 = 1 << 31;
    let mut round = 0;
    loop {
        let seen = word.load(Acquire);
        if seen == epoch {
            return;
        }
        if seen != epoch | CLAIM && word.compare_exchange(seen, epoch | CLAIM, Acquire, Relaxed).is_ok() {
            clear();
            word.store(epoch, Release);
            return;
        }
        P::stall(round);
        round += 1;
    }
}
