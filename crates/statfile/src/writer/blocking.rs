//! Waits for what is not acquired: condition variables, barriers, semaphores, the ends of threads, futexes.
//!
//! Such a wait begins and ends in two calls between which the thread's frames may be unwound by force, so
//! nothing of it is on the stack: it is the one that the record shows as going on. A wait inside of it, in a
//! signal handler, is left out. One whose frame is gone, because the thread was cancelled in it, ends when
//! the thread begins another one further out, or ends itself.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::map::Map;
use super::{CallSite, Host, LockRef, Recorder, add, clock, count_wait, find, locks, modules, stacks};
use super::{Visit, tag_of, threads, trace};
use crate::layout::{self, CHUNK_ENTRIES, Cell, Entry, INDEX_MASK, MARK, Record};

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With what was waited for, or for another reason: a signal, a cancellation.
    Done,
    /// Its time was up.
    TimedOut,
    /// It was none: the call was refused.
    Refused,
}

/// A call to wake those who wait for a condition variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// One of them.
    One,
    /// All.
    All,
}

impl<H: Host> Recorder<H> {
    /// The calling thread will wait for this, by a call from `site`. To be followed by
    /// [`Recorder::unblocked`], unless the thread is cancelled.
    #[cold]
    pub fn blocks(&'static self, lock: LockRef<'_>, site: CallSite) {
        if self.checks() {
            return self.checked_blocks(lock, None, site, 0);
        }
        self.begin(lock, None, site);
    }

    /// The wait that began with [`Recorder::blocks`] or [`Recorder::waits_with`] is over.
    #[cold]
    pub fn unblocked(&'static self, how: Ended) {
        if self.checks() {
            return self.checked_unblocked(how);
        }
        let Some(visit) = self.enter() else { return };
        let record = visit.record;
        let nested = record.nested.load(Relaxed);
        if nested > 0 {
            record.nested.store(nested - 1, Relaxed);
            return;
        }
        let now = clock::ticks(record.clock.load(Relaxed));
        if how == Ended::Refused {
            record.wait_began.store(0, Relaxed);
        } else {
            end_shown(visit.map, record, now, how == Ended::TimedOut);
        }
        let timed_out = u32::from(how == Ended::TimedOut) << 8;
        trace::note(visit.map, record, layout::TRACE_UNBLOCKED | timed_out, 0, 0);
        clock::calibrate_sometimes(visit.map, now);
        modules::scan_sometimes(visit.map, now);
    }

    /// A call that would have waited for this has not had to.
    #[inline]
    pub fn passed(&'static self, lock: LockRef<'_>) {
        if !self.checks() {
            self.with_entry(lock, |_, entry| add(&entry.acquisitions, 1));
        }
    }

    /// Whether what threads do is written down.
    pub fn is_traced(&'static self) -> bool {
        self.map().is_some_and(|map| map.header().trace_room.load(Relaxed) != 0)
    }

    /// The calling thread lets others have its CPU, if that is written down. To be followed by
    /// [`Recorder::yielded`].
    #[cold]
    pub fn yields(&'static self) {
        if let Some(visit) = self.enter_in_stretch() {
            trace::note(visit.map, visit.record, layout::TRACE_YIELDS, 0, 0);
        }
    }

    /// It goes on.
    #[cold]
    pub fn yielded(&'static self) {
        if let Some(visit) = self.enter_in_stretch() {
            trace::note(visit.map, visit.record, layout::TRACE_UNBLOCKED, 0, 0);
        }
    }

    /// As [`Recorder::enter`], for what is only written down, which is most often not wanted.
    #[inline]
    pub(super) fn enter_in_stretch(&'static self) -> Option<Visit<H>> {
        self.map().is_some_and(trace::is_in_stretch).then(|| self.enter()).flatten()
    }

    /// The calling thread wakes one that waits for the semaphore, by a call from `site`, if that is written
    /// down.
    #[cold]
    pub fn posts(&'static self, semaphore: LockRef<'_>, site: CallSite) {
        if let Some(visit) = self.enter_in_stretch() {
            // SAFETY: set once, before ON.
            let options = unsafe { &(*self.setup.get()).options };
            let word = locks::word(visit.map, semaphore, options);
            trace::note(visit.map, visit.record, layout::TRACE_WAKES, word, site.pc as u64);
        }
    }

    /// As [`Recorder::blocks`], for a condition variable, whose mutex the caller has and has not released
    /// yet.
    #[cold]
    pub fn waits_with(&'static self, condition: LockRef<'_>, mutex: LockRef<'_>, site: CallSite) {
        if self.checks() {
            return self.checked_blocks(condition, Some(mutex), site, 0);
        }
        self.begin(condition, Some(mutex), site);
    }

    /// After [`Recorder::unblocked`], for a condition variable, with the mutex in the caller's hands again
    /// and counted as acquired.
    #[cold]
    pub fn woken_with(&'static self, condition: LockRef<'_>, mutex: LockRef<'_>, how: Ended) {
        if let Some((record, entry)) = find::<H>(mutex) {
            let tag = layout::tag(condition.word.load(Relaxed), condition.address as u64);
            record.woken_by.store(if how == Ended::Done { tag } else { 0 }, Relaxed);
            record.woken_with.store(entry.tag.load(Relaxed), Relaxed);
            record.woken_at.store(entry.acquisitions.load(Relaxed), Relaxed);
        }
    }

    /// The calling thread is about to wake those who wait for the condition variable, by a call from `site`.
    /// Whether [`Recorder::call_ended`] is to follow.
    #[cold]
    pub fn wakes(&'static self, condition: LockRef<'_>, whom: Wake, site: CallSite) -> bool {
        if self.checks() {
            self.checked_wakes(condition, whom, site);
            return false;
        }
        let mut traced = false;
        self.with_entry(condition, |visit_record, entry| {
            let holds = threads::holds(visit_record, entry);
            add(if whom == Wake::One { &holds.total } else { &holds.squares }, 1);
            // SAFETY: the record's own mapping.
            let map = unsafe { Map::from_base(visit_record.base.load(Relaxed) as *mut u8) };
            let word = condition.word.load(Relaxed);
            let all = u32::from(whom == Wake::All) << 8;
            traced =
                trace::note_in_stretch(map, visit_record, layout::TRACE_WAKES | all, word, site.pc as u64);
            // Its figures are not those of a lock: never to be summed with others'.
            locks::waited(map, word);
            let slot = map.lock(word & INDEX_MASK);
            let mutex = slot.map_or(0, |slot| slot.charged.load(Relaxed)) as u32;
            if mutex != 0
                && own_entry(map, visit_record, mutex).is_some_and(|e| e.hold_start.load(Relaxed) != 0)
            {
                add(&holds.max, 1);
            }
        });
        traced
    }

    #[inline]
    fn with_entry(&'static self, lock: LockRef<'_>, act: impl FnOnce(&'static Record, &'static Entry)) {
        if let Some((record, entry)) = find::<H>(lock) {
            act(record, entry);
        } else if let Some(visit) = self.enter() {
            let (entry, shared) = self.entry(&visit, lock);
            if shared {
                self.lost();
            } else {
                act(visit.record, entry);
            }
        }
    }

    fn begin(&'static self, lock: LockRef<'_>, mutex: Option<LockRef<'_>>, site: CallSite) {
        let Some(visit) = self.enter() else { return };
        let (map, record) = (visit.map, visit.record);
        if visit.borrowed {
            // It has no record any more in which the wait could be shown.
            self.lost();
            return;
        }
        let now = clock::ticks(record.clock.load(Relaxed));
        end_stale(map, record, site, now);
        if record.wait_began.load(Relaxed) != 0 {
            // Its time is part of the other one's.
            record.nested.store(record.nested.load(Relaxed) + 1, Relaxed);
            return;
        }
        // SAFETY: set once, before ON.
        let options = unsafe { &(*self.setup.get()).options };
        let word = locks::word(map, lock, options);
        locks::waited(map, word);
        let tag = tag_of(word, lock);
        let unwind = self.unwind.load(Relaxed) != 0;
        let cell = stacks::wait_cell(map, record, tag, site, unwind);
        if let Some(mutex) = mutex {
            let with = mutex.word.load(Relaxed) & !MARK;
            if let Some(slot) = map.lock(word & INDEX_MASK) {
                slot.charged.store(with.into(), Relaxed);
            }
            let in_vain = record.woken_by.load(Relaxed) == tag
                && own_entry(map, record, with).is_some_and(|entry| {
                    entry.tag.load(Relaxed) == record.woken_with.load(Relaxed)
                        && entry.acquisitions.load(Relaxed) == record.woken_at.load(Relaxed)
                });
            if in_vain {
                add(&cell.charged, 1);
            }
            record.woken_by.store(0, Relaxed);
        }
        // Release: as in `wait_begin`.
        record.wait_tag.store(tag, Release);
        record.wait_cell.store(core::ptr::from_ref(cell).addr() as u64 - map.base().addr() as u64, Relaxed);
        record.wait_sp.store(site.sp as u64, Relaxed);
        record.wait_began.store(now, Release);
        trace::note(map, record, layout::TRACE_BLOCKS, word, site.pc as u64);
        clock::calibrate_sometimes(map, now);
        modules::scan_sometimes(map, now);
    }
}

/// The record's entry for the lock with this word, if it has one.
fn own_entry(map: Map, record: &Record, word: u32) -> Option<&'static Entry> {
    let chunk = (word & INDEX_MASK) / CHUNK_ENTRIES;
    if chunk >= record.directory_len.load(Relaxed) {
        return None;
    }
    threads::entry_at(map, record, word & INDEX_MASK)
        .filter(|entry| entry.tag.load(Relaxed) >> 32 == u64::from(word))
}

/// Counts the wait that the record shows, if it shows one.
pub(super) fn end_shown(map: Map, record: &Record, now: u64, timed_out: bool) {
    if map.header().check.load(Relaxed) != 0 {
        return super::check::end_shown(map, record);
    }
    let (began, cell) = (record.wait_began.load(Relaxed), record.wait_cell.load(Relaxed));
    if began != 0 && cell != 0 {
        // SAFETY: where a wait began there is a cell.
        let cell = unsafe { &*map.base().add(cell as usize).cast::<Cell>() };
        count_wait(map, cell, now.saturating_sub(began), timed_out);
        record.last_seen.store(now, Relaxed);
    }
    record.wait_began.store(0, Relaxed);
}

/// Counts the wait that the record shows, if the thread that is at `site` now is no longer in it.
pub(super) fn end_stale(map: Map, record: &Record, site: CallSite, now: u64) {
    let sp = record.wait_sp.load(Relaxed);
    if record.wait_began.load(Relaxed) != 0 && sp != 0 && sp < site.sp as u64 {
        end_shown(map, record, now, false);
        record.nested.store(0, Relaxed);
    }
}
