//! Calls: some are served at once, some sleep, and some leave a request (combining).
//!
//! # A sleeper's record
//!
//! ```text
//!  state      lists   result
//!  SLEEPING   some    SLEEPING    sleeps
//!  SLEEPING   none    other       completed; its waker will set the state when it has released the lock
//!  other      none    other       its thread may take the result and give the record back
//!  SLEEPING   none    SLEEPING    being written; with `ASKED`, a request
//! ```
//!
//! A thread takes its result from the state. If its patience ends, or a signal handler runs, it takes itself
//! out of the lists under the lock; if it is in none, it was completed and waits for its waker.
//!
//! No call tells a sleeper that a process was killed: so each looks now and then (LOOKING), or has a
//! *sentinel* of its own process look for it (SENTINEL).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::layout::{
    ACTIVE, ALL_TAIL, REMOVED as ARRAY_REMOVED, REQUESTS, SENTINEL, SERVED, SLEEPS, UNDO_USED, WAITERS_HIGH,
    waiter,
};
use super::lock::Locked;
use super::queue::{
    APPLIED, NO_ROOM, OUT_OF_RANGE, Operations, REFUSED, REMOVED, SLEEPING, Tried, WAS_REMOVED,
};
use super::{Array, Error, Host, Op, Scheme};
use crate::events::Observer;
use crate::platform::{Atomic, Platform, Waited};

/// How often a sleeper looks, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// A sleeper that another looks for.
const FOREVER: u64 = u64::MAX;
/// How often the sentinel looks, once there may be adjustments.
const SENTINEL_LOOK_NS: u64 = 50_000_000;
/// [`waiter::ASKED`]: a request.
const REQUEST: u32 = 1;
/// [`waiter::ASKED`]: a request, and the thread that served others left it to this one's thread to go on.
pub(super) const ITS_TURN: u32 = 2;
/// How often one looks that has been completed, or whose request has not been served.
const SHORT_LOOK_NS: u64 = 10_000_000;

impl<H: Host> Array<'_, H> {
    #[inline]
    pub(super) fn operate_locked(
        &self,
        locked: Locked<'_, H>,
        operations: &[Op],
        patience: Option<u64>,
    ) -> Result<(), Error> {
        let decided = self.decide(&locked, operations, patience);
        locked.release();
        match decided? {
            None => Ok(()),
            Some(index) => self.sleep(index, patience),
        }
    }

    /// Applies the operations, or puts them to sleep in the record that it returns.
    #[inline]
    fn decide(
        &self,
        locked: &Locked<'_, H>,
        operations: &[Op],
        patience: Option<u64>,
    ) -> Result<Option<u32>, Error> {
        let me = locked.me;
        if locked.load(ARRAY_REMOVED) != 0 {
            return Err(Error::Gone);
        }
        locked.reap_dead();
        let undo = locked.undo_wanted(operations, me.slot, me.id)?;
        match locked.try_to_apply(operations, me.id, undo) {
            Tried::Applied => {
                locked.commit();
                locked.operated();
                locked.settle(operations);
                Ok(None)
            }
            Tried::Range => Err(Error::Range),
            Tried::Blocked(blocking)
                if patience == Some(0) || Operations::get(operations, blocking).flags & Op::NOWAIT != 0 =>
            {
                Err(Error::WouldBlock)
            }
            Tried::Blocked(blocking) => {
                let index = self.record(operations, me.slot, me.id)?;
                locked.put_to_sleep(index, blocking, undo);
                Ok(Some(index))
            }
        }
    }

    fn sleep(&self, index: u32, patience: Option<u64>) -> Result<(), Error> {
        let record = self.waiter(index);
        let state = self.at(record + waiter::STATE);
        let (channel, bit) = self.channel(index);
        let channel = self.at(channel);
        let begin = patience.map(|_| H::Platform::now());
        // A waker that does not see this yet wakes it itself.
        self.at(record + waiter::PLACE).store(H::place(), Relaxed);
        // Once it has been completed, nothing stops it from taking its result.
        let mut completed = false;
        loop {
            // Acquire: partner of the release in `Array::wake`. Before the state: if that is old, so is this,
            // or the sleep ends.
            let seen = channel.load(Acquire);
            // Acquire: partner of the release in `Array::tell`.
            let result = state.load(Acquire);
            if result != SLEEPING {
                self.serve_as_delegate(index);
                self.leave_record(index);
                return match result {
                    APPLIED => Ok(()),
                    REMOVED => Err(Error::Removed),
                    OUT_OF_RANGE => Err(Error::Range),
                    REFUSED => Err(Error::WouldBlock),
                    NO_ROOM => Err(Error::NoSpace),
                    WAS_REMOVED => Err(Error::Gone),
                    _ => Err(Error::Invalid),
                };
            }
            self.serve_if_it_is_its_turn(record);
            let left = match (patience, begin) {
                (Some(patience), Some(begin)) if !completed => {
                    Some(patience.saturating_sub(H::Platform::now().saturating_sub(begin)))
                }
                _ => None,
            };
            if left == Some(0) {
                if self.give_up(index) {
                    return Err(Error::WouldBlock);
                }
                completed = true;
                continue;
            }
            let look = if completed { SHORT_LOOK_NS } else { self.look_interval(index) };
            match H::wait_shared_as(channel, seen, bit, left.map_or(look, |left| left.min(look))) {
                Waited::Woken => (),
                Waited::TimedOut => self.look(index),
                Waited::Interrupted if completed || state.load(Relaxed) != SLEEPING => (),
                Waited::Interrupted => {
                    if self.give_up(index) {
                        return Err(Error::Interrupted);
                    }
                    completed = true;
                }
            }
        }
    }

    /// Acquires the lock for a thread that has a record in the array. It cannot hold the lock, so the only
    /// reason to fail is one that passes.
    fn lock_again(&self) -> Locked<'_, H> {
        let mut round = 0;
        loop {
            if let Ok(locked) = self.lock() {
                return locked;
            }
            H::Platform::stall(round);
            round = round.saturating_add(1);
        }
    }

    fn leave_record(&self, index: u32) {
        self.pass_the_sentinel_on(index);
        self.free(self.waiter(index));
    }

    /// Takes a sleeper out of the lists and gives its record back; false if it has been completed.
    fn give_up(&self, index: u32) -> bool {
        let locked = self.lock_again();
        locked.drain();
        if locked.load(self.waiter(index) + waiter::LISTS) == 0 {
            locked.look_after(index);
            locked.release();
            return false;
        }
        locked.dequeue(index);
        locked.commit();
        locked.release();
        self.leave_record(index);
        true
    }

    /// Looks whether a death is in the way of this sleeper; as the sentinel, also of the others of its
    /// process.
    #[cold]
    fn look(&self, index: u32) {
        let sentinel = self.load(SENTINEL) == index + 1;
        if sentinel {
            self.wake_the_told(index);
        }
        if self.load(self.waiter(index) + waiter::LISTS) != 0
            && self.load(ACTIVE) == 0
            && self.load(SENTINEL) != 0
            && self.load(ARRAY_REMOVED) == 0
            && !self.dead_holder()
            && !(sentinel && self.siblings(index).any(|sibling| self.is_left(sibling)))
        {
            return;
        }
        let locked = self.lock_again();
        locked.drain();
        locked.reap_dead();
        if locked.load(ARRAY_REMOVED) != 0 {
            locked.refuse_everybody();
        }
        locked.look_after(index);
        if locked.load(self.waiter(index) + waiter::LISTS) != 0 {
            locked.stand_in(index);
        }
        if sentinel {
            self.siblings(index).for_each(|sibling| locked.look_after(sibling));
        }
        locked.release();
    }

    fn siblings(&self, index: u32) -> impl Iterator<Item = u32> {
        let owner = |index: u32| self.load(self.waiter(index) + waiter::OWNER);
        let own = owner(index);
        (0..self.load(WAITERS_HIGH)).filter(move |other| owner(*other) == own)
    }

    /// Wakes those of the same process that have been told their results: if their waker died after that, no
    /// other thread does.
    fn wake_the_told(&self, index: u32) {
        let word = |other: u32, at| self.load(self.waiter(other) + at);
        self.siblings(index)
            .filter(|other| *other != index && word(*other, waiter::LISTS) == 0)
            .filter(|other| word(*other, waiter::STATE) != SLEEPING)
            .for_each(|other| self.wake(&[self.channel(other)]));
    }

    /// Whether it seems that a sleeper was completed and its waker is gone.
    fn is_left(&self, index: u32) -> bool {
        let record = self.waiter(index);
        let word = |at| self.load(record + at);
        word(waiter::LISTS) == 0
            && word(waiter::RESULT) != SLEEPING
            && word(waiter::STATE) == SLEEPING
            && word(waiter::WAKER).checked_sub(1).is_some_and(H::owner_died)
    }

    /// How long this sleeper sleeps before it looks. SENTINEL: without end if it may rely on another, the
    /// sentinel is of its own process, and a signal handler ends such a wait as well.
    fn look_interval(&self, index: u32) -> u64 {
        let owner = |index: u32| self.load(self.waiter(index) + waiter::OWNER);
        if self.load(self.waiter(index) + waiter::LISTS) == 0 {
            // A request that was not served yet, or one that is being woken.
            return SHORT_LOOK_NS;
        }
        match self.load(SENTINEL).checked_sub(1) {
            Some(sentinel) if sentinel == index && self.load(UNDO_USED) != 0 => SENTINEL_LOOK_NS,
            Some(sentinel)
                if index >= H::FIRST_RELIANT
                    && sentinel != index
                    && owner(sentinel) == owner(index)
                    && H::interrupts() =>
            {
                FOREVER
            }
            _ => LOOK_NS,
        }
    }

    /// A sleeper that is in no list any more leaves. SENTINEL: if it was the sentinel, another is, of the
    /// same process if one sleeps: one that is in a list, or else one that was completed and may have lost
    /// its waker. The successor is woken only if it may sleep for too long: without end, which a sleeper of
    /// another process does not, or longer than a sentinel once there may be adjustments.
    fn pass_the_sentinel_on(&self, index: u32) {
        let sentinel = self.at(SENTINEL);
        // A read-modify-write, acquire and release, as is the one below. Either this one comes later and sees
        // that it was named, or it comes first, and then the thread that names it sees that it has been told
        // its result, and names another.
        if sentinel.fetch_add(0, AcqRel) != index + 1 {
            return;
        }
        let locked = self.lock_again();
        let word = |other: u32, at| locked.load(self.waiter(other) + at);
        let sleeps = |other: &u32| self.at(self.waiter(*other) + waiter::STATE).load(Acquire) == SLEEPING;
        let listed = |other: &u32| word(*other, waiter::LISTS) != 0;
        let completed = |other: &u32| word(*other, waiter::RESULT) != SLEEPING && sleeps(other);
        let next = loop {
            let youngest = locked.load(ALL_TAIL).checked_sub(1);
            let next = youngest
                .filter(|youngest| word(*youngest, waiter::OWNER) == word(index, waiter::OWNER))
                .or_else(|| self.siblings(index).find(listed))
                .or_else(|| self.siblings(index).find(completed))
                .or(youngest);
            sentinel.swap(next.map_or(0, |next| next + 1), AcqRel);
            if next.as_ref().is_none_or(sleeps) {
                break next;
            }
        };
        let relies =
            |next| next >= H::FIRST_RELIANT && word(next, waiter::OWNER) == word(index, waiter::OWNER);
        let late = next.filter(|next| locked.load(UNDO_USED) != 0 || relies(*next));
        locked.release();
        self.wake_the_told(index);
        if let Some(late) = late {
            self.wake(&[self.channel(late)]);
        }
    }

    /// Makes the sentinel look how long it may sleep.
    pub(super) fn hurry_the_sentinel(&self) {
        if let Some(index) = self.load(SENTINEL).checked_sub(1) {
            self.wake(&[self.channel(index)]);
        }
    }

    /// Makes every sleeper look how long it may sleep: the answer of [`Host::interrupts`] is another than it
    /// was.
    pub fn rouse(&self) {
        for index in (0..self.load(WAITERS_HIGH)).step_by(waiter::GROUP as usize) {
            self.wake(&[(self.channel(index).0, u32::MAX)]);
        }
    }

    pub(super) fn operate_combining(&self, operations: &[Op], patience: Option<u64>) -> Result<(), Error> {
        if let Some(locked) = self.try_lock()? {
            return self.operate_locked(locked, operations, patience);
        }
        let me = H::process().ok_or(Error::NoSpace)?;
        let index = self.record(operations, me.slot, me.id)?;
        let record = self.waiter(index);
        self.at(record + waiter::ASKED).store(REQUEST, Relaxed);
        let requests = self.at(REQUESTS);
        let mut seen = requests.load(Relaxed);
        loop {
            self.at(record + waiter::CHAIN).store(seen, Relaxed);
            // Release: partner of the acquire in `drain`.
            match requests.compare_exchange(seen, index + 1, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        if let Some(locked) = self.announce(me) {
            locked.release();
        }
        self.sleep(index, patience)
    }

    /// Leaves the requests to the thread of one of them. It sees that before it sleeps, or else its channel's
    /// change. If it dies first, the requesters look.
    pub(super) fn pass_the_service_on(&self) {
        // Acquire: partner of the release with which it was pushed.
        if let Some(newest) = self.at(REQUESTS).load(Acquire).checked_sub(1) {
            let asked = self.at(self.waiter(newest) + waiter::ASKED);
            // It may have been served meanwhile, and even be another call's request by now, which can do this
            // as well.
            if asked.compare_exchange(REQUEST, ITS_TURN, Relaxed, Relaxed).is_ok() {
                self.wake(&[self.channel(newest)]);
            }
        }
    }

    #[inline]
    fn serve_if_it_is_its_turn(&self, record: usize) {
        let asked = self.at(record + waiter::ASKED);
        // Not if it has been served meanwhile: then it is no request any more.
        if asked.load(Relaxed) == ITS_TURN
            && asked.compare_exchange(ITS_TURN, REQUEST, Relaxed, Relaxed).is_ok()
            && let Some(me) = H::process()
            && let Some(locked) = self.announce(me)
        {
            locked.release();
        }
    }
}

impl<H: Host> Locked<'_, H> {
    #[inline]
    fn undo_wanted(
        &self,
        operations: &(impl Operations + ?Sized),
        slot: u32,
        process: u32,
    ) -> Result<Option<u32>, Error> {
        if operations.all().any(|operation| operation.flags & Op::UNDO != 0) {
            self.undo_for(slot, process).map(Some)
        } else {
            Ok(None)
        }
    }

    fn put_to_sleep(&self, index: u32, blocking: usize, undo: Option<u32>) {
        let record = self.waiter(index);
        self.at(record + waiter::UNDO).store(undo.map_or(0, |undo| undo + 1), Relaxed);
        self.at(record + waiter::BLOCKING).store(blocking as u32, Relaxed);
        self.set(record + waiter::ASKED, 0);
        self.enqueue(index);
        self.commit();
        self.add_wide(SLEEPS, 1);
        self.stand_in(index);
    }

    fn stand_in(&self, index: u32) {
        let sentinel = self.load(SENTINEL).checked_sub(1);
        let owner = sentinel.map_or(0, |sentinel| self.load(self.waiter(sentinel) + waiter::OWNER));
        if owner == 0 || H::owner_died(owner - 1) {
            self.at(SENTINEL).store(index + 1, Relaxed);
        }
    }

    /// If a sleeper was completed and its waker is gone, wakes it after the release.
    fn look_after(&self, index: u32) {
        let waker = self.load(self.waiter(index) + waiter::WAKER);
        if waker != 0 && waker != self.me.slot + 1 && H::owner_died(waker - 1) {
            self.adopt(index);
        }
    }

    /// Serves the requests, the oldest first. Each stays in the list until all are served, so that none is
    /// lost if this process dies; those that were served are known by their cleared `ASKED`.
    pub(super) fn drain(&self) {
        if self.scheme != Scheme::Combining {
            return;
        }
        let requests = self.at(REQUESTS);
        loop {
            // Acquire: partner of the release with which a request is pushed.
            let newest = requests.load(Acquire);
            if newest == 0 {
                return;
            }
            // From the newest to the oldest, noting the way back in a link that a record in no list does not
            // need.
            let (mut at, mut newer) = (newest, 0);
            while at != 0 {
                let record = self.waiter(at - 1);
                // Served by a holder that died, and so are all older ones; its links may be in use for
                // something else.
                if self.load(record + waiter::ASKED) == 0 {
                    break;
                }
                self.at(record + waiter::PREVIOUS).store(newer, Relaxed);
                newer = at;
                at = self.load(record + waiter::CHAIN);
            }
            let mut next = newer;
            while next != 0 {
                let index = next - 1;
                next = self.load(self.waiter(index) + waiter::PREVIOUS);
                self.serve(index);
            }
            self.cut(newest);
        }
    }

    /// Takes this request and the older ones out of the list; none of them is in use as one any more.
    fn cut(&self, newest: u32) {
        let requests = self.at(REQUESTS);
        let Err(mut at) = requests.compare_exchange(newest, 0, Acquire, Acquire) else { return };
        // Others have come since: the one that came next after `newest` is now the oldest.
        loop {
            let record = self.waiter(at - 1);
            match self.load(record + waiter::CHAIN) {
                0 => return,
                older if older == newest => {
                    self.at(record + waiter::CHAIN).store(0, Release);
                    return;
                }
                older => at = older,
            }
        }
    }

    /// Serves a request: as if its caller had acquired the lock.
    fn serve(&self, index: u32) {
        let record = self.waiter(index);
        let (owner, process) = (self.load(record + waiter::OWNER), self.load(record + waiter::PROCESS));
        self.add_wide(SERVED, 1);
        if H::owner_died(owner.wrapping_sub(1)) {
            // Its record is freed when the process is reaped.
            self.set(record + waiter::ASKED, 0);
            self.commit();
            return;
        }
        let operations = self.operations(record);
        let refuse = |result| {
            self.set(record + waiter::ASKED, 0);
            self.complete(index, result);
        };
        if self.load(ARRAY_REMOVED) != 0 {
            return refuse(WAS_REMOVED);
        }
        let Ok(undo) = self.undo_wanted(&operations, owner - 1, process) else { return refuse(NO_ROOM) };
        match self.try_to_apply(&operations, process, undo) {
            Tried::Applied => {
                self.set(record + waiter::ASKED, 0);
                self.complete(index, APPLIED);
                self.operated();
                self.settle(&operations);
            }
            Tried::Range => refuse(OUT_OF_RANGE),
            Tried::Blocked(blocking) if operations.get(blocking).flags & Op::NOWAIT != 0 => refuse(REFUSED),
            Tried::Blocked(blocking) => self.put_to_sleep(index, blocking, undo),
        }
    }
}
