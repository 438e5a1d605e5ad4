//! The queued adaptive mutex.
//!
//! After Waiman Long's series "mutex: Improve mutex performance by doing less atomic-ops & better spinning"
//! (Linux, 2013), brought to user space. A thread that finds the mutex held first spins, as long as the owner
//! may be running; with an MCS queue one spinner competes and the others wait behind it, each on its own
//! cache line. A thread that has spun long enough sleeps in a first-in first-out list.
//!
//! # The words
//!
//! `count` is the source's, turned round so that zero bytes are an unlocked mutex:
//!
//! | `count` | source | meaning | who changes it |
//! | --- | --- | --- | --- |
//! | 0 | 1 | free | the owner, releasing |
//! | 1 | 0 | held | whoever takes it from 0; the wait lock's holder |
//! | > 1 | < 0 | held, and somebody may sleep | lockers (+1); the wait lock's holder (to 2 or 1) |
//!
//! `guard` is the source's wait lock and what else guards the slow path:
//!
//! | bits | meaning | who changes it |
//! | --- | --- | --- |
//! | 31, 30 | the wait lock: `bitlock` | |
//! | `STABLE` | threads may sleep here: every release is a read-modify-write | set once by a sleeper |
//! | `ASKED` | about to become so | set once by a sleeper |
//! | `CLEARING` | somebody clears `tail` and `head` for this epoch | `RawMutex::renew` |
//! | the rest | the [`Platform::epoch`] in which the slow path was last used | `RawMutex::renew` |
//!
//! `owner` is the owner's tag ([`Platform::tag`]), a hint for spinners: 0 while nobody has published one,
//! `HANDED_OVER` from a hand-off until the sleeper has woken. `tail` is the queue of spinners
//! ([`crate::mcs`]), `head` the list of sleepers, guarded by the wait lock. In a forked child the wait lock,
//! `tail` and `head` may name threads that do not exist there; the epoch tells, and whoever enters a slow path
//! first clears them.
//!
//! # Releasing without a read-modify-write
//!
//! While nobody has ever slept in a mutex, `guard` is 0 and its owner need not look for sleepers: a plain store
//! of 0 releases it ([`Platform::release`], if the platform has it). It may wipe out newcomers' increments;
//! each newcomer is on its way to an attempt of its own. Who is about to sleep here for the first time sets
//! `ASKED`, so that no later release takes that way, waits until those under way are over
//! ([`Platform::expel`]), and sets `STABLE`. From then on a count above 1 stays until the owner acts on it.
//! So a mutex pays for this once, at its first sleep, and before that an unlock costs a store.
//!
//! # Invariants
//!
//! * **EXCLUSION.** Only a read-modify-write that takes the count from 0 acquires the mutex, except that an
//!   unlocker may leave the count as it is and make the first sleeper the owner ([`state::HANDED`]). Only the
//!   owner sets the count to 0.
//! * **QUIET.** The list of sleepers is changed, other than to take a node out, only while `STABLE` is set.
//! * **DUTY.** If the list of sleepers is not empty and the count is 0 or 1, then some thread still owes an
//!   attempt: the first sleeper is [`state::WOKEN`], a spinner is queued, or an owner is between its look at
//!   the list and its release, and will look again if the count is not 1 then. Whoever attempts in vain from
//!   the list sets the count above 1 before it sleeps or leaves, and a spinner that acquires while the list is
//!   not empty does too. So every owner that leaves sleepers without such a thread finds a count above 1, and
//!   its unlock goes through the slow path, which wakes one.
//! * **LAST TOUCH.** The store that releases the mutex is the unlocker's last access to it. Whatever it needs
//!   afterwards (whom to wake) it took before, and wakes by address, in type-stable memory.
//! * **SERVICE.** A sleeper that was woken [`Tuning::handoff_after`](crate::platform::Tuning) times in vain
//!   is handed the mutex; at most [`Tuning::passes_before_wake`](crate::platform::Tuning) unlocks in a row
//!   leave the first sleeper asleep, and none if it is a real-time thread. Among threads of one priority the
//!   list is first-in first-out, so everybody becomes first whom no more urgent threads keep from it.
//! * **PRIORITY.** Of two sleepers the more urgent one goes first ([`Platform::priority`]): it is before the
//!   other in the list, and nothing but its place there decides who is woken, or is handed the mutex.
//!
//! # What differs from the source
//!
//! * The source releases the mutex and then takes the wait lock to find whom to wake; a kernel mutex may
//!   therefore not be freed by the next owner. Here the wait lock is taken and released first, and the release
//!   fails if an attempt came in between.
//! * Unlock's fast path is a plain store (above) or a compare-and-swap 1 -> 0 rather than an increment: an
//!   increment would turn the unlock of an unlocked mutex, which programs get away with elsewhere, into a mutex
//!   locked for ever.
//! * An unlock does not wake a sleeper while a queued spinner is about to take the mutex (within bounds), nor
//!   one that was woken and has not run yet; a woken sleeper that finds the mutex taken spins in the queue
//!   before it sleeps again. In a kernel waking is cheap and prompt; here it is two system calls.
//! * Sleepers are served by hand-off after too many vain attempts.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::bitlock;
use crate::events::{Event, count};
use crate::mcs;
use crate::node::{Held, NodeId, list, state};
use crate::platform::{Atomic, ConstAtomic, Deadline, Platform, Running, Spin, Waited};

/// In `guard`: threads may sleep here.
const STABLE: u32 = 1 << 29;
/// In `guard`: a thread is about to sleep here for the first time.
const ASKED: u32 = 1 << 28;
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
    count: P::U32,
    guard: P::U32,
    owner: P::U32,
    tail: P::U32,
    head: P::U32,
}

impl<P: Platform> Default for RawMutex<P> {
    fn default() -> Self {
        RawMutex {
            count: P::U32::new(0),
            guard: P::U32::new(0),
            owner: P::U32::new(0),
            tail: P::U32::new(0),
            head: P::U32::new(0),
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
            count: P::U32::ZERO,
            guard: P::U32::ZERO,
            owner: P::U32::ZERO,
            tail: P::U32::ZERO,
            head: P::U32::ZERO,
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
        if P::single_threaded() && self.count.load(Relaxed) == 1 {
            self.count.store(0, Relaxed);
            return;
        }
        self.owner.store(0, Relaxed);
        if !P::release(&self.count, &self.guard)
            && self.count.compare_exchange(1, 0, Release, Relaxed).is_err()
        {
            self.unlock_slow::<V>();
        }
    }

    /// Whether somebody holds the mutex at this moment.
    pub fn is_locked(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// Whether nobody holds it and nobody is queued or asleep in it.
    pub fn is_idle(&self) -> bool {
        self.count.load(Acquire) == 0
            && self.guard.load(Acquire) & (bitlock::BITS | bitlock::CLEARING) == 0
            && self.tail.load(Relaxed) == 0
            && self.head.load(Relaxed) == 0
    }

    /// The fast path: one atomic decrement of the source's count, 1 -> 0.
    #[inline(always)]
    fn take(&self) -> bool {
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
        self.owner.store(P::tag(), Relaxed);
    }

    /// Makes the slow path's words this process's own. See the module's documentation on `guard`.
    #[inline]
    fn renew(&self) {
        bitlock::renew::<P>(&self.guard, STABLE | ASKED, || {
            self.tail.store(0, Relaxed);
            self.head.store(0, Relaxed);
        });
    }

    /// QUIET: after this no plain release is under way, nor will one be.
    #[inline]
    fn quieten(&self) {
        // Acquire: whoever sees STABLE comes after the expulsion.
        if self.guard.load(Acquire) & STABLE == 0 {
            self.first_sleep();
        }
    }

    #[cold]
    fn first_sleep(&self) {
        // Sequentially consistent: before the expulsion, and before whatever the platform reads to learn
        // whether anybody releases that way at all.
        self.guard.fetch_or(ASKED, SeqCst);
        P::expel();
        self.guard.fetch_or(STABLE, SeqCst);
    }

    #[cold]
    #[inline(never)]
    fn lock_slow<V: Variant>(&self, patience: Patience<'_>) -> Result<(), Failure> {
        count::<P>(Event::FoundHeld);
        self.renew();
        let Some(held) = Held::<P>::take() else {
            return self.lock_polling(patience.deadline);
        };
        if self.compete::<V>(held.id) {
            count::<P>(Event::Spun);
            return Ok(());
        }
        let node = held.node();
        node.set_priority();
        node.attempts.store(0, Relaxed);
        node.passed.store(0, Relaxed);
        self.quieten();
        bitlock::lock::<P>(&self.guard);
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
                self.count.fetch_add(1, Relaxed);
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
        (!V::checks_first() || self.count.load(Relaxed) == 0)
            && self.count.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
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
        let mut slept = false;
        loop {
            if self.attempt::<V>(id) {
                self.settle(id);
                return Ok(());
            }
            if let Some(failure) = failed {
                // DUTY: the attempt found the mutex held and left the count above 1, so the owner will wake
                // whoever is first then.
                list::remove::<P>(&self.head, id);
                node.state.store(state::IDLE, Relaxed);
                if list::first::<P>(&self.head).is_none() {
                    self.mark(|count| count.min(1));
                }
                bitlock::unlock::<P>(&self.guard);
                return Err(failure);
            }
            node.state.store(state::SLEEPING, Relaxed);
            bitlock::unlock::<P>(&self.guard);
            if slept {
                count::<P>(Event::WokenInVain);
            }
            count::<P>(Event::Sleep);
            slept = true;
            failed = self.doze(id, patience);
            if self.compete_woken::<V>(id) {
                bitlock::lock::<P>(&self.guard);
                self.settle(id);
                return Ok(());
            }
            bitlock::lock::<P>(&self.guard);
        }
    }

    /// Takes up the wait of a condition variable's waiter whom a signaller puts into the list. Returns with
    /// the mutex held.
    pub(crate) fn sleep_requeued<V: Variant>(&self, id: NodeId) {
        let patience = Patience::default();
        self.doze(id, patience);
        let acquired = self.compete_woken::<V>(id);
        bitlock::lock::<P>(&self.guard);
        if acquired {
            self.settle(id);
        } else {
            // Without patience it cannot fail.
            let _ = self.sleep::<V>(id, patience);
        }
    }

    /// Sleeps until there is a reason to attempt again: woken, handed the mutex, awake for no reason, or out
    /// of patience.
    fn doze(&self, id: NodeId, patience: Patience<'_>) -> Option<Failure> {
        let node = id.get::<P>();
        loop {
            // Acquire: partner of the waker's store, which comes after it has changed the list.
            let now = node.state.load(Acquire);
            if now == state::WOKEN || now == state::HANDED {
                return None;
            }
            let waited = P::wait(&node.state, now, patience.deadline);
            match waited {
                Waited::TimedOut if patience.deadline.is_some() => return Some(Failure::TimedOut),
                Waited::Interrupted if patience.interruptible => return Some(Failure::Interrupted),
                // Not in the list yet: whoever signalled us puts us there.
                _ if now == state::SIGNALLED => {}
                _ => return None,
            }
        }
    }

    /// A woken sleeper that finds the mutex taken spins for it like anyone else, still in the list.
    fn compete_woken<V: Variant>(&self, id: NodeId) -> bool {
        let node = id.get::<P>();
        if node.state.load(Relaxed) != state::WOKEN {
            return false;
        }
        // Only this thread writes it while it is in the list.
        node.attempts.store(node.attempts.load(Relaxed) + 1, Relaxed);
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
        let mut seen = self.count.load(Relaxed);
        // Relaxed: whoever makes it 0, or takes it from 0, orders; this does neither.
        while let Err(now) = self.count.compare_exchange(seen, next(seen), Relaxed, Relaxed) {
            seen = now;
        }
        seen
    }

    /// The caller has the mutex, the wait lock, and a node in the list: takes the node out, sets the count
    /// to what the rest of the list asks for (DUTY), and releases the wait lock.
    fn settle(&self, id: NodeId) {
        list::remove::<P>(&self.head, id);
        id.get::<P>().state.store(state::IDLE, Relaxed);
        self.publish();
        self.mark(|_| if list::first::<P>(&self.head).is_some() { 2 } else { 1 });
        bitlock::unlock::<P>(&self.guard);
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow<V: Variant>(&self) {
        self.renew();
        while self.count.load(Relaxed) != 0 {
            bitlock::lock::<P>(&self.guard);
            let mut sleeper = None;
            if let Some(first) = list::first::<P>(&self.head) {
                let node = first.get::<P>();
                if node.attempts.load(Relaxed) >= P::tuning().handoff_after {
                    return self.hand_over(first);
                }
                let passed = node.passed.load(Relaxed);
                if V::queues_spinners()
                    && self.tail.load(Relaxed) != 0
                    && passed < P::tuning().passes_before_wake
                    && node.priority.load(Relaxed) == 0
                {
                    node.passed.store(passed + 1, Relaxed);
                } else {
                    node.passed.store(0, Relaxed);
                    // Release: partner of the load in `doze`.
                    if node.state.swap(state::WOKEN, Release) == state::SLEEPING {
                        sleeper = Some(node);
                    }
                }
            }
            // DUTY. From here on an attempt in vain, which takes the wait lock, leaves a count above 1; if
            // there is none, whoever owes one now (the first sleeper, the spinner that shows in `tail`) will
            // find the mutex free. Newcomers' increments go, as they are on their way to attempts.
            self.mark(|_| 1);
            bitlock::unlock::<P>(&self.guard);
            // LAST TOUCH, if it succeeds.
            let released = self.count.compare_exchange(1, 0, Release, Relaxed).is_ok();
            if let Some(node) = sleeper {
                P::wake(&node.state, 1);
                count::<P>(Event::Woken);
            }
            if released {
                return;
            }
        }
    }

    /// Makes the first sleeper the owner. Under the wait lock, which it releases.
    fn hand_over(&self, first: NodeId) {
        let node = first.get::<P>();
        self.owner.store(HANDED_OVER, Relaxed);
        // Release: the new owner's acquisition goes through this store, and through the wait lock.
        node.state.store(state::HANDED, Release);
        bitlock::unlock::<P>(&self.guard);
        P::wake(&node.state, 1);
        count::<P>(Event::HandedToSleeper);
    }

    /// Puts signalled waiters of a condition variable, linked through `after` from `chain` to 0, into the
    /// list of sleepers, and wakes the first sleeper if the mutex is free.
    pub(crate) fn requeue(&self, chain: NodeId) {
        self.renew();
        self.quieten();
        bitlock::lock::<P>(&self.guard);
        let mut next = Some(chain);
        while let Some(id) = next {
            let node = id.get::<P>();
            next = NodeId::from_raw(node.after.load(Relaxed));
            node.attempts.store(0, Relaxed);
            node.passed.store(0, Relaxed);
            list::push::<P>(&self.head, id);
            node.state.store(state::SLEEPING, Release);
        }
        // Held: its owner's unlock shall find them (DUTY). Free: the first one is to try.
        let held = self.mark(|count| if count == 0 { 0 } else { 2 }) != 0;
        let sleeper = list::first::<P>(&self.head)
            .map(NodeId::get::<P>)
            .filter(|node| !held && node.state.swap(state::WOKEN, Release) == state::SLEEPING);
        bitlock::unlock::<P>(&self.guard);
        if let Some(node) = sleeper {
            P::wake(&node.state, 1);
            count::<P>(Event::Woken);
        }
    }
}
