//! A waiter of the default mutex: what its policy may do with it, and how it sleeps.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{
    AWAKE, BYPASS_BOUND, BYPASSES, Bounds, GRANTED, HANDED_OVER, LOCKED, Policy, RawPoundlock, SLEEPERS, TAG,
    urgency,
};
use crate::events::{Event, count};
use crate::node::{NodeId, state};
use crate::platform::{Atomic, Platform, Until};
use crate::queue::{Front, Pass, Spins, Turn};
use crate::waiting::{Failure, Parked, Patience, may_run, park};

/// A waiter that is awake, and what it may do to the mutex.
pub struct Attempt<'a, P: Platform, W: Policy<P>> {
    pub(super) mutex: &'a RawPoundlock<P, W>,
    pub(super) id: NodeId,
    /// WAKER: it is the designated one.
    pub(super) waker: bool,
    /// Its place as the head of the queue, while it is that.
    pub(super) front: Option<Front>,
    pub(super) patience: Patience<'a>,
}

/// What came of queuing up.
#[derive(Clone, Copy, Debug)]
pub enum Queued<R> {
    /// It was the head, and acted: with this result.
    Acted(R),
    /// It was granted the mutex.
    Granted,
    /// It gave up before.
    Left,
}

/// What policies are made of. Whatever they do with these, the invariants hold.
impl<P: Platform, W: Policy<P>> Attempt<'_, P, W> {
    /// Acquires the mutex if it is free.
    pub fn grab(&mut self) -> bool {
        let seen = self.state();
        if seen & LOCKED != 0 {
            return false;
        }
        let mut next = Self::bypassing(seen | LOCKED) & !if self.waker { AWAKE } else { 0 };
        // GRANTS: a head with others behind it keeps its place; in a crowd they will come.
        let mutex = self.mutex;
        let followed = |front| mutex.queue().is_followed(front) || self.is_in_a_crowd();
        let keeps = self.front.filter(|front| W::grants() && followed(*front) && Self::keeps_none());
        if keeps.is_some() {
            // No plain release takes the bit away.
            mutex.words.waiters.revoke_bias();
            next |= GRANTED;
        }
        if self.mutex.words.state.compare_exchange(seen, next, Acquire, Relaxed).is_err() {
            return false;
        }
        self.waker = false;
        if let Some(front) = keeps {
            mutex.queue().keep(front);
            mutex.queue().note_keeper(front);
            P::keep(mutex.address(), front.raw());
            self.front = None;
            self.leave_hints(self.hints() & !TAG);
        } else {
            mutex.publish();
        }
        true
    }

    /// Whether the mutex is crowded, and few of its waiters are to be awake.
    fn is_in_a_crowd(&self) -> bool {
        W::has_few_nodes() && W::is_crowded(self.hints())
    }

    /// Whether the thread keeps no place in the queue of another mutex.
    fn keeps_none() -> bool {
        P::kept() == 0 || !Front::from_raw::<P>(P::kept_place()).is_some_and(Front::is_kept::<P>)
    }

    /// It was granted the mutex, and is the front of the queue.
    fn keep(&mut self, front: Front) {
        let state = &self.mutex.words.state;
        if core::mem::take(&mut self.waker) {
            state.fetch_and(!AWAKE, Relaxed);
        }
        if self.mutex.queue().is_stolen(front) {
            self.leave_hints(W::crowded(self.hints()));
        }
        if Self::keeps_none() {
            self.mutex.queue().note_keeper(front);
            P::keep(self.mutex.address(), front.raw());
        } else {
            // A thread keeps one place. This mutex goes on without.
            state.fetch_and(!GRANTED, Relaxed);
            self.mutex.queue().pass(front, Pass::Headship, 1);
            self.mutex.publish();
        }
    }

    /// WAKER: says that it is awake, if no other thread did. Only to an owner, which will see it.
    pub fn designate(&mut self) {
        let seen = self.state();
        if !self.waker && seen & (LOCKED | AWAKE) == LOCKED {
            let state = &self.mutex.words.state;
            self.waker = state.compare_exchange(seen, seen | AWAKE, Relaxed, Relaxed).is_ok();
        }
    }

    /// Whether it is the designated waker.
    pub fn is_waker(&self) -> bool {
        self.waker
    }

    /// Whether the mutex is held at this moment.
    pub fn is_held(&self) -> bool {
        self.state() & LOCKED != 0
    }

    /// Whether it is held, and a thread sleeps.
    pub fn is_held_from_sleepers(&self) -> bool {
        self.state() & (LOCKED | SLEEPERS) == LOCKED | SLEEPERS
    }

    /// Whether another thread waits, awake or asleep.
    pub fn others_wait(&self) -> bool {
        self.state() & (AWAKE | SLEEPERS) != 0
    }

    /// Whether no other thread is awake for it, or queued.
    pub fn is_alone(&self) -> bool {
        self.state() & AWAKE == 0 && self.mutex.words.waiters.tail.load(Relaxed) == 0
    }

    /// Whether the owner may be running.
    pub fn owner_may_run(&self) -> bool {
        may_run::<P>(self.hints() & TAG, HANDED_OVER)
    }

    /// What owners have left, with the tag in the low 12 bits.
    #[track_caller]
    pub fn hints(&self) -> u32 {
        self.mutex.words.waiters.owner.load(Relaxed)
    }

    /// Leaves hints, with the tag as it was. The caller owns the mutex.
    pub fn leave_hints(&self, hints: u32) {
        self.mutex.words.waiters.owner.store(hints, Relaxed);
    }

    /// Whether the mutex goes along the queue: then a newcomer queues up at once.
    pub fn is_granted(&self) -> bool {
        self.state() & GRANTED != 0
    }

    /// Queues up and spins. As the head of the queue, it acts, and leaves the queue, or keeps its place if it
    /// has acquired the mutex.
    pub fn queue<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> Queued<R> {
        let queue = self.mutex.queue();
        let crowded = !W::grants() || W::is_crowded(self.hints());
        if let Some(index) = P::current() {
            P::record(index).own.crowded.store(crowded.into(), Relaxed);
        }
        let Bounds { budgets, budgets_of_the_woken, moment, .. } = W::bounds();
        let mut budgets = budgets[usize::from(crowded)];
        let short = crowded && W::grants() && W::has_few_nodes() && !self.waker;
        let share = if short { Self::share() } else { 256 };
        if !self.is_endless() {
            // It would miss its deadline by that.
            budgets = 1;
        }
        if self.waker {
            // A wake-up in vain costs more.
            budgets = budgets.max(budgets_of_the_woken);
        }
        match queue.enter(Spins { budgets, share, moment }) {
            Turn::Left | Turn::Refused => Queued::Left,
            Turn::Granted(front) => {
                self.keep(front);
                Queued::Granted
            }
            Turn::Head(front) => {
                self.front = Some(front);
                let result = act(self);
                if let Some(front) = self.front.take() {
                    queue.pass(front, Pass::Headship, 1);
                }
                Queued::Acted(result)
            }
        }
    }

    /// How much of a spin budget it spends at a crowded mutex.
    fn share() -> u32 {
        let Bounds { share, absence, .. } = W::bounds();
        let passed = P::current().map_or(0, |index| P::record(index).own.passed.load(Relaxed));
        let absent = (P::now() as usize).wrapping_sub(passed) / absence as usize;
        absent.saturating_add((share * P::nodes()) as usize).min(256) as u32
    }

    /// Whether it is the head of a queue in which it has waited.
    pub fn is_promoted(&self) -> bool {
        self.front.is_some_and(|front| self.mutex.queue().grants(front) != 0)
    }

    /// Whether nothing but the mutex ends the wait.
    pub fn is_endless(&self) -> bool {
        self.patience.is_endless()
    }

    /// Parks for about that many nanoseconds, and is not woken. It may return at once.
    pub fn park_for(&self, nanoseconds: u32) {
        // A word that no thread changes: only condition variables use it.
        P::wait(&self.id.get::<P>().linked, 0, Until::Nanoseconds(nanoseconds));
    }

    /// When it sleeps and is the first, the next unlock hands the mutex over. SERVICE 3: only if no thread
    /// was here before.
    pub fn asks_for_hand_over(&self) {
        self.id.get::<P>().attempts().store(W::bounds().handoff_after, Relaxed);
    }

    #[track_caller]
    fn state(&self) -> u32 {
        self.mutex.words.state.load(Relaxed)
    }

    /// The state when a waiter has bypassed the first sleeper, if there is one.
    fn bypassing(state: u32) -> u32 {
        if state & SLEEPERS == 0 || state & BYPASS_BOUND != 0 {
            return state;
        }
        // This many steps reach `BYPASS_BOUND`, and none goes beyond.
        state + ((BYPASS_BOUND / W::bounds().bypasses_before_wake) & BYPASSES)
    }
}

/// Sleeping.
impl<P: Platform, W: Policy<P>> Attempt<'_, P, W> {
    /// Waits in the list until the mutex is acquired or patience ends. The wait lock is held, and the node is
    /// in no list. `newcomer`: nor was it in this wait.
    pub(super) fn sleep(&mut self, mut newcomer: bool) -> Result<(), Failure> {
        let waiters = &self.mutex.words.waiters;
        let node = self.id.get::<P>();
        let urgent = urgency::<P>(self.id);
        let mut failed = None;
        loop {
            // DUTY 1, 4: announces itself to an owner, or becomes one.
            let seen = self.mutex.words.change(|seen| {
                let rest = if self.waker { seen & !AWAKE } else { seen };
                match (seen & LOCKED, failed) {
                    (0, _) => rest | LOCKED,
                    (_, Some(_)) => rest,
                    _ => Self::bypassing(rest) | SLEEPERS | urgent,
                }
            });
            if seen & LOCKED == 0 {
                waiters.unlock();
                self.mutex.publish();
                return Ok(());
            }
            if let Some(failure) = failed {
                waiters.unlock();
                return Err(failure);
            }
            // SERVICE 3: it may have asked for a hand-over, but others were here before.
            if core::mem::take(&mut newcomer) && waiters.first().is_some() {
                node.attempts().store(0, Relaxed);
            }
            if node.attempts().load(Relaxed) == 0 {
                waiters.push(self.id);
            } else {
                // It was woken in vain, and keeps its turn.
                waiters.push_first(self.id);
            }
            node.state.store(state::SLEEPING, Relaxed);
            waiters.unlock();
            count::<P>(Event::Sleep);
            failed = match self.park() {
                None => return Ok(()),
                Some(Parked::Failed(failure)) => Some(failure),
                Some(_) => None,
            };
            if self.after_sleep(failed.is_some()) {
                return Ok(());
            }
        }
    }

    /// Sleeps until served or out of patience; `None` if it acquired the mutex itself.
    pub(super) fn park(&self) -> Option<Parked> {
        let node = self.id.get::<P>();
        if node.attempts().load(Relaxed) >= W::bounds().handoff_after {
            W::await_hand_over(|| node.state.load(Relaxed) != state::SLEEPING);
        }
        loop {
            match park(node, self.patience) {
                Parked::Unserved if self.recover() => return None,
                Parked::Unserved => {}
                parked => return Some(parked),
            }
        }
    }

    /// After a sleep, woken or not. True if the mutex is held; if not, the wait lock is held and the node is
    /// in no list.
    pub(super) fn after_sleep(&mut self, failed: bool) -> bool {
        let waiters = &self.mutex.words.waiters;
        let node = self.id.get::<P>();
        if failed {
            waiters.lock();
        }
        match node.state.load(Relaxed) {
            // EXCLUSION: its unlocker left it locked.
            state::HANDED => {
                // LAST TOUCH: not before the one that handed it over has released the wait lock.
                if !failed {
                    waiters.lock();
                }
                waiters.unlock();
                node.state.store(state::IDLE, Relaxed);
                self.leave_hints(self.hints() & !TAG);
                self.mutex.publish();
                W::handed(self);
                return true;
            }
            state::WOKEN => {
                // WAKER: the bit was set for it.
                self.waker = true;
                // Only this thread writes it while it is in no list.
                node.attempts().store(node.attempts().load(Relaxed).saturating_add(1), Relaxed);
                node.state.store(state::IDLE, Relaxed);
                if !failed {
                    if W::woken(self) {
                        return true;
                    }
                    count::<P>(Event::WokenInVain);
                    waiters.lock();
                }
            }
            _ => {
                // GIVING UP.
                self.waker = false;
                self.withdraw();
            }
        }
        false
    }

    /// Under the wait lock: takes a sleeper that was not served out of the list.
    fn withdraw(&self) {
        let words = &self.mutex.words;
        words.waiters.remove(self.id);
        if words.waiters.first().is_none() {
            words.change(|seen| seen & !(BYPASSES | SLEEPERS));
        }
        self.id.get::<P>().state.store(state::IDLE, Relaxed);
    }

    /// The platform cannot fence, and a plain release that came after the sleeper's fence has broken DUTY. A
    /// sleeper that woke by itself restores it. True if the mutex was free and is the sleeper's.
    #[cold]
    fn recover(&self) -> bool {
        let words = &self.mutex.words;
        // While this bit is set, the next release sees it, or a thread is awake.
        if self.state() & SLEEPERS != 0 {
            return false;
        }
        words.waiters.lock();
        let acquired = self.id.get::<P>().state.load(Relaxed) == state::SLEEPING
            && words.change(|seen| seen | LOCKED | SLEEPERS) & LOCKED == 0;
        if acquired {
            self.withdraw();
        }
        words.waiters.unlock();
        if acquired {
            self.mutex.publish();
        }
        acquired
    }
}
