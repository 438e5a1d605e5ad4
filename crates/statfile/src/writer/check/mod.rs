//! What the recorder does in a process under check, instead of taking figures: it keeps what each thread
//! holds, and logs orders of locks that are new, and misuse.
//!
//! A record's directory has no length here, so every call falls through the fast paths of [`super`] and comes
//! to the function of the same name here. There is no search, no allocation and no lock: an acquisition while
//! nothing else is held recognises its stack and adds an entry to a list; each lock that is held besides costs
//! a look at a table.
//!
//! A readers-writer lock is one lock here: that of its writers.

mod fork;
mod held;
mod locks;
mod log;
mod misuse;
mod orders;
mod signals;

use core::marker::PhantomData;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, compiler_fence};

pub(super) use fork::{Fork, carry_over, inherit, this_thread};
use held::New;
use locks::Known;
use orders::End;
pub use signals::Interrupted;

use super::map::{Map, Options};
use super::{ATTACHING, CallSite, Ended, GONE, Host, LockRef, ON, Recorder, Wait, Wake};
use super::{blocking, clock, modules, stacks, sys};
use crate::LockKind;
use crate::check::{Mode, Serial, Wrong};
use crate::layout::{self, HELD, Held, READERS, Record};

/// How a thread asks for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// How it will hold it.
    pub mode: Mode,
    /// It does not wait.
    pub tries: bool,
    /// The lock refuses the thread that has it, or lets it have it again: to ask is no mistake.
    pub allows: bool,
    /// It waits until a time, and no longer.
    pub timed: bool,
}

impl Manner {
    /// Alone, however long it takes.
    pub const LOCK: Manner = Manner { mode: Mode::Exclusive, tries: false, allows: false, timed: false };
    /// Alone, if nobody has it.
    pub const TRY: Manner = Manner { tries: true, ..Manner::LOCK };

    /// The same, by a thread that does not wait.
    #[must_use]
    pub const fn trying(self) -> Manner {
        Manner { tries: true, ..self }
    }

    /// The same, by a thread that waits until a time at most.
    #[must_use]
    pub const fn timed(self) -> Manner {
        Manner { timed: true, ..self }
    }

    /// In 24 bits.
    pub(super) const fn packed(self) -> u32 {
        (self.mode as u32) << 8 | (self.tries as u32) << 16 | (self.allows as u32) << 17
    }

    pub(super) const fn unpacked(bits: u32) -> Manner {
        Manner {
            mode: Mode::from_byte((bits >> 8) as u8),
            tries: bits & 1 << 16 != 0,
            allows: bits & 1 << 17 != 0,
            // Of a wait alone.
            timed: false,
        }
    }
}

/// Misuse, for [`Recorder::finding`].
#[derive(Debug, Clone, Copy)]
pub struct Finding {
    /// What it is.
    pub what: Wrong,
    /// The lock's word; 0 if it has none.
    pub word: u32,
    /// Its class; 0 if unknown.
    pub class: u32,
    /// What it is.
    pub kind: LockKind,
    /// Where it is: of a readers-writer lock, the lock itself.
    pub address: u64,
    /// The number of the stack here,
    pub stack: u32,
    /// and of that of the other thing; 0 if there is none.
    pub other_stack: u32,
    /// The thread of the other thing.
    pub other_thread: Option<Serial>,
    /// As `what` says.
    pub number: u64,
}

impl Finding {
    fn about(what: Wrong, known: Known, stack: u32) -> Finding {
        let kind = layout::meta_kind(known.slot.meta.load(Relaxed));
        Finding {
            what,
            word: known.word,
            class: known.class(),
            kind: LockKind::from_byte(kind),
            address: locks::object(known.slot.address.load(Relaxed), kind),
            stack,
            other_stack: 0,
            other_thread: None,
            number: 0,
        }
    }
}

/// Who holds a lock.
#[derive(Debug, Clone, Copy)]
pub struct Holder {
    /// The thread.
    pub thread: Serial,
    /// The number of the stack that took it.
    pub stack: u32,
}

/// A stay of a thread, which has a record of its own, in the slow paths. As [`super::Visit`], but `errno` is
/// kept only where it may change.
pub(super) struct Stay<H: Host> {
    pub(super) map: Map,
    pub(super) record: &'static Record,
    _host: PhantomData<fn() -> H>,
}

impl<H: Host> Drop for Stay<H> {
    #[inline(always)]
    fn drop(&mut self) {
        // For signal handlers of this thread.
        compiler_fence(Release);
        self.record.busy.store(0, Relaxed);
    }
}

impl<H: Host> Recorder<H> {
    /// Whether the process is under check.
    #[inline(always)]
    pub fn checks(&'static self) -> bool {
        self.checks.load(Relaxed)
    }

    /// `None` if this event is not seen: of a thread near its end, which has given back its record, or in a
    /// signal handler in the middle of another stay.
    #[inline(always)]
    fn stay(&'static self) -> Option<Stay<H>> {
        let word = H::word();
        if word.is_null() || word == ATTACHING.word() || word == GONE.word() || self.is_forked() {
            return self.stay_first();
        }
        // SAFETY: anything else is a record, of this process.
        let record = unsafe { &*word.cast_const().cast::<Record>() };
        if record.busy.load(Relaxed) != 0 {
            self.lost();
            return None;
        }
        record.busy.store(1, Relaxed);
        compiler_fence(Acquire);
        // SAFETY: the record's own mapping.
        let map = unsafe { Map::from_base(record.base.load(Relaxed) as *mut u8) };
        Some(Stay { map, record, _host: PhantomData })
    }

    #[cold]
    #[inline(never)]
    fn stay_first(&'static self) -> Option<Stay<H>> {
        if H::word() == GONE.word() && !self.is_forked() {
            return None;
        }
        let visit = self.enter()?;
        let (map, record, borrowed) = (visit.map, visit.record, visit.borrowed);
        drop(visit);
        if borrowed {
            return None;
        }
        record.busy.store(1, Relaxed);
        compiler_fence(Acquire);
        Some(Stay { map, record, _host: PhantomData })
    }

    fn options(&'static self) -> &'static Options {
        // SAFETY: set once, before ON.
        unsafe { &(*self.setup.get()).options }
    }

    #[inline(always)]
    fn stack(&'static self, stay: &Stay<H>, site: CallSite) -> u32 {
        // SAFETY: the calling thread is at this site.
        unsafe { stacks::known(stay.map, stay.record, site) }
            .unwrap_or_else(|| stacks::stack(stay.map, stay.record, site, self.unwind.load(Relaxed) != 0))
    }

    /// The lock, as it is known here.
    #[inline(always)]
    fn known(&'static self, stay: &Stay<H>, lock: LockRef<'_>) -> Option<Known> {
        locks::get(stay.map, stay.record, lock, self.options())
    }

    #[inline(always)]
    pub(super) fn checked_acquired(&'static self, lock: LockRef<'_>, site: CallSite, manner: Manner) {
        let Some(stay) = self.stay() else { return };
        let lock = lock.group();
        // Its bytes said that nobody had it.
        let Some(known) = self.used(&stay, lock, site, false) else { return };
        if stay.record.checked().on_stack.load(Relaxed) != 0 {
            self.frames(&stay, site);
        }
        let end = End { known, mode: manner.mode, stack: self.stack(&stay, site) };
        let again =
            stay.record.checked().held_count.load(Relaxed) != 0 && self.holds_already(&stay, &end, manner);
        if !again {
            if !manner.tries {
                self.signals(&stay, &end, site);
                asks(&stay, lock.kind, &end);
            }
            self.takes(&stay, lock, &end, manner.tries, site);
        }
    }

    /// Whether the thread reads under this lock already; then it has it once more. `end` is how it asks for
    /// it.
    #[inline(always)]
    fn holds_already(&'static self, stay: &Stay<H>, end: &End, manner: Manner) -> bool {
        match held::find(stay.map, stay.record, end.known.word) {
            None => false,
            Some(held) => self.again(stay, held, end, manner),
        }
    }

    #[cold]
    #[inline(never)]
    fn again(&'static self, stay: &Stay<H>, held: &'static Held, end: &End, manner: Manner) -> bool {
        let reads = matches!(end.mode, Mode::Read | Mode::FairRead);
        if reads && held::is_read(held) {
            if manner.mode == Mode::FairRead && !manner.tries {
                self.reread(stay, held, end);
            }
            held::deepen(held);
            hold(stay, end);
            return true;
        }
        // Its release has not been seen.
        held::remove(stay.map, stay.record, held);
        false
    }

    fn reread(&'static self, stay: &Stay<H>, held: &Held, end: &End) {
        let finding = Finding {
            other_stack: held.stack.load(Relaxed),
            other_thread: Some(serial(stay.record)),
            ..Finding::about(Wrong::Reread, end.known, end.stack)
        };
        found(stay.map, stay.record, &finding);
    }

    #[inline(never)]
    pub(super) fn checked_wait(&'static self, lock: LockRef<'_>, site: CallSite, manner: Manner) -> Wait {
        let mut wait = Wait::none(site.pc);
        let Some(stay) = self.stay() else { return wait };
        let (map, record) = (stay.map, stay.record);
        let lock = lock.group();
        let Some(known) = self.used(&stay, lock, site, true) else { return wait };
        if record.checked().on_stack.load(Relaxed) != 0 {
            self.frames(&stay, site);
        }
        let end = End { known, mode: manner.mode, stack: self.stack(&stay, site) };
        match held::find(map, record, known.word) {
            Some(held) if held::is_read(held) && manner.mode == Mode::Read => {}
            Some(held) if held::is_read(held) && manner.mode == Mode::FairRead => {
                self.reread(&stay, held, &end);
            }
            Some(held) if !manner.allows => {
                if self.waits_for_what_was_interrupted(&stay, held, &end, site) {
                    // That is said.
                } else if let Some(first) = orders::held_by(map, record, held) {
                    let finding = Finding {
                        other_stack: first.stack,
                        other_thread: Some(serial(record)),
                        ..Finding::about(Wrong::Relock, known, end.stack)
                    };
                    found(map, record, &finding);
                }
            }
            _ => {}
        }
        if map.header().first_serial.load(Relaxed) > 1 {
            self.waits_in_child(&stay, &end);
        }
        self.signals(&stay, &end, site);
        asks(&stay, lock.kind, &end);
        wait.began = clock::ticks(record.clock.load(Relaxed));
        wait.record = record;
        wait.stack = end.stack;
        known.slot.waiters.fetch_add(1, Relaxed);
        wait.checked = known.slot;
        blocking::end_stale(map, record, site, wait.began);
        wait.shown = record.wait_began.load(Relaxed) == 0;
        if wait.shown {
            show_wait(record, known, lock, &end, site, (wait.began, manner.timed));
        }
        now_and_then(map, wait.began);
        wait
    }

    #[inline(never)]
    pub(super) fn checked_acquired_after_wait(
        &'static self,
        lock: LockRef<'_>,
        mut wait: Wait,
        site: CallSite,
        manner: Manner,
    ) {
        let Some(stay) = self.stay() else { return };
        if !wait.is_kept_by(stay.record) {
            // The thread was not seen when it began, or was forked meanwhile.
            wait.forget();
        }
        let lock = lock.group();
        let Some(known) = self.known(&stay, lock) else { return };
        let stack = if wait.stack != 0 { wait.stack } else { self.stack(&stay, site) };
        let end = End { known, mode: manner.mode, stack };
        let manner = Manner { tries: false, ..manner };
        // Asked before, as the wait began.
        let asked = Manner { mode: Mode::Read, ..manner };
        if !self.holds_already(&stay, &end, if wait.began != 0 { asked } else { manner }) {
            self.takes(&stay, lock, &end, false, site);
        }
    }

    #[inline(always)]
    pub(super) fn checked_released(&'static self, lock: LockRef<'_>, site: CallSite) {
        let Some(stay) = self.stay() else { return };
        let (map, record) = (stay.map, stay.record);
        let lock = lock.group();
        let word = lock.word.load(Relaxed);
        match held::find(map, record, word) {
            Some(held) if held.address.load(Relaxed) == lock.address as u64 => {
                let watched = held.watch.load(Relaxed);
                if watched != 0 && watched == held.sequence.load(Relaxed) {
                    self.let_go(&stay, held, site);
                }
                let slot = map.check_lock(word & layout::INDEX_MASK);
                let several = held::raise(held);
                if let Some(slot) = slot {
                    if held::is_read(held) {
                        let _ = slot.holder.fetch_update(Relaxed, Relaxed, one_reader_less);
                    } else if slot.holder.load(Relaxed) == record.checked().serial.load(Relaxed) {
                        slot.holder.store(0, Relaxed);
                    }
                }
                if !several {
                    held::remove(map, record, held);
                }
                if record.checked().on_stack.load(Relaxed) != 0 {
                    self.frames(&stay, site);
                }
            }
            _ => self.released_unheld(&stay, lock, site),
        }
    }

    /// The command wanted to know.
    #[cold]
    fn let_go(&'static self, stay: &Stay<H>, held: &Held, site: CallSite) {
        let stack = self.stack(stay, site);
        let word = held.word.load(Relaxed);
        let Some(known) = locks::by_word(stay.map, word) else { return };
        let finding = Finding {
            other_stack: held.stack.load(Relaxed),
            number: held.sequence.load(Relaxed).into(),
            ..Finding::about(Wrong::LetGo, known, stack)
        };
        append_finding(stay.map, stay.record, &finding);
        held.watch.store(0, Relaxed);
    }

    /// The thread releases what is not on its list: a lock that another thread holds; or one that it took
    /// unseen.
    #[cold]
    #[inline(never)]
    fn released_unheld(&'static self, stay: &Stay<H>, lock: LockRef<'_>, site: CallSite) {
        let map = stay.map;
        let Some(known) = locks::find(map, lock) else {
            // Not yet released: locked, if it is one.
            self.used(stay, lock, site, true);
            return;
        };
        let holder = known.slot.holder.load(Relaxed);
        let other = holder_of(map, known);
        if holder & READERS != 0 {
            let _ = known.slot.holder.fetch_update(Relaxed, Relaxed, one_reader_less);
        } else {
            // So that whoever has it on his list drops it.
            known.slot.holder.store(0, Relaxed);
        }
        // Another process may rightly have it.
        if let Some(other) = other.filter(|_| !lock.kind.is_foreign()) {
            self.unlocked_other(stay, known, other, site);
        }
    }

    /// The calling thread is refused the release of a lock, which another one has. Only under check.
    #[cold]
    pub fn not_released(&'static self, lock: LockRef<'_>, site: CallSite) {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return };
        let Some(known) = locks::find(stay.map, lock.group()) else { return };
        let own = serial(stay.record);
        if let Some(other) = holder_of(stay.map, known).filter(|other| other.thread != own) {
            self.unlocked_other(&stay, known, other, site);
        }
    }

    fn unlocked_other(&'static self, stay: &Stay<H>, known: Known, other: Holder, site: CallSite) {
        let finding = Finding {
            other_stack: other.stack,
            other_thread: Some(other.thread),
            ..Finding::about(Wrong::UnlockOther, known, self.stack(stay, site))
        };
        found(stay.map, stay.record, &finding);
    }

    /// The calling thread releases a lock that is known to be free, by a call from `site`. Only under check.
    #[cold]
    pub fn released_free(&'static self, lock: LockRef<'_>, site: CallSite) {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return };
        let lock = lock.group();
        let Some(known) = self.known(&stay, lock) else { return };
        if let Some(held) = held::find(stay.map, stay.record, known.word) {
            held::remove(stay.map, stay.record, held);
        }
        let finding = Finding::about(Wrong::UnlockFree, known, self.stack(&stay, site));
        found(stay.map, stay.record, &finding);
    }

    #[inline(never)]
    pub(super) fn checked_created(&'static self, lock: LockRef<'_>, site: CallSite) {
        if lock.writers.is_some() {
            // Its writers are made too.
            return;
        }
        let Some(stay) = self.stay() else { return };
        let (map, record) = (stay.map, stay.record);
        let _errno = sys::Errno::keep();
        let stack = self.stack(&stay, site);
        locks::created(map, record, lock, stack, self.options(), |before| {
            self.ends(&stay, before, stack, false);
        });
        modules::want(map, lock.address as u64);
        now_and_then(map, clock::ticks(record.clock.load(Relaxed)));
    }

    #[inline(never)]
    pub(super) fn checked_destroyed(&'static self, lock: LockRef<'_>, site: CallSite) {
        if lock.writers.is_some() {
            return;
        }
        let Some(stay) = self.stay() else { return };
        // Who destroys a lock need not know its kind.
        let known = locks::by_word(stay.map, lock.word.load(Relaxed));
        if let Some(known) = known.filter(|known| known.slot.address.load(Relaxed) == lock.address as u64) {
            let stack = self.stack(&stay, site);
            self.ends(&stay, known, stack, false);
            locks::retire(stay.map, stay.record, known, stack);
        }
    }

    /// Somebody wants to destroy the lock, and is refused because it is in use. Only under check.
    #[cold]
    pub fn not_destroyed(&'static self, lock: LockRef<'_>, site: CallSite) {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return };
        if let Some(known) = locks::find(stay.map, lock.group()) {
            let stack = self.stack(&stay, site);
            self.ends(&stay, known, stack, true);
        }
    }

    /// The lock is destroyed, or its memory becomes another one, at a place with this stack: not while it is
    /// held, nor while threads wait for it; or for a condition variable with it, if it was `refused`.
    fn ends(&'static self, stay: &Stay<H>, known: Known, stack: u32, refused: bool) {
        if self.ends_while_waited_for(stay, known, stack, refused)
            || LockKind::from_byte(layout::meta_kind(known.slot.meta.load(Relaxed))) == LockKind::Condition
        {
            return;
        }
        if let Some(holder) = holder_of(stay.map, known) {
            let finding = Finding {
                other_stack: holder.stack,
                other_thread: Some(holder.thread),
                ..Finding::about(Wrong::DestroyHeld, known, stack)
            };
            found(stay.map, stay.record, &finding);
        }
        if let Some(held) = held::find(stay.map, stay.record, known.word).filter(|_| !refused) {
            held::remove(stay.map, stay.record, held);
        }
    }

    /// See [`Recorder::blocks`], [`Recorder::waits_with`] and [`Recorder::joins`].
    pub(super) fn checked_blocks(
        &'static self,
        lock: LockRef<'_>,
        mutex: Option<LockRef<'_>>,
        site: CallSite,
        join: usize,
    ) {
        let Some(stay) = self.stay() else { return };
        let (map, record) = (stay.map, stay.record);
        let now = clock::ticks(record.clock.load(Relaxed));
        blocking::end_stale(map, record, site, now);
        let Some(known) = self.used(&stay, lock, site, false) else { return };
        let end = End { known, mode: Mode::Condition, stack: self.stack(&stay, site) };
        if let Some(with) = mutex.and_then(|mutex| self.known(&stay, mutex)) {
            let before = known.slot.holder.load(Relaxed);
            self.other_mutex(&stay, known, with.word, before, end.stack);
            known.slot.holder.store(with.word, Relaxed);
            if record.wait_began.load(Relaxed) == 0 {
                misuse::waits(record, lock.address, with.word);
            }
            if record.checked().held_count.load(Relaxed) != 0 {
                let again = End { known: with, mode: Mode::Exclusive, stack: end.stack };
                orders::waits(map, record, &end, with.word, Some(&again));
            }
        }
        if known.is_semaphore_lock() {
            asks(&stay, lock.kind, &End { mode: Mode::Exclusive, ..end });
        }
        if record.wait_began.load(Relaxed) != 0 {
            record.nested.store(record.nested.load(Relaxed) + 1, Relaxed);
            return;
        }
        known.slot.waiters.fetch_add(1, Relaxed);
        record.checked().wait_join.store(join as u64, Relaxed);
        show_wait(record, known, lock, &end, site, (now, false));
        now_and_then(map, now);
    }

    /// The wait that has just begun with [`Recorder::blocks`] or one of its like ends by itself, at a time. Only
    /// under check.
    #[cold]
    pub fn wait_is_timed(&'static self) {
        if let Some(stay) = self.stay().filter(|_| self.checks())
            && stay.record.nested.load(Relaxed) == 0
        {
            stay.record.checked().wait_timed.store(1, Relaxed);
        }
    }

    pub(super) fn checked_unblocked(&'static self, how: Ended) {
        let Some(stay) = self.stay() else { return };
        let record = stay.record;
        let nested = record.nested.load(Relaxed);
        if nested > 0 {
            record.nested.store(nested - 1, Relaxed);
            return;
        }
        let waited = locks::by_word(stay.map, (record.wait_tag.load(Relaxed) >> 32) as u32)
            .filter(|known| how == Ended::Done && known.is_semaphore_lock());
        let shown = record.wait_began.load(Relaxed) != 0;
        end_shown(stay.map, record);
        if let Some(known) = waited.filter(|_| shown) {
            let stack = record.checked().wait_stack.load(Relaxed);
            self.has_semaphore(&stay, &End { known, mode: Mode::Exclusive, stack }, Manner::LOCK);
        }
    }

    fn has_semaphore(&'static self, stay: &Stay<H>, end: &End, manner: Manner) {
        let word = AtomicU32::new(end.known.word);
        let address = end.known.slot.address.load(Relaxed) as usize;
        let lock = LockRef { word: &word, address, kind: LockKind::Semaphore, writers: None };
        if !self.holds_already(stay, end, Manner { allows: true, ..manner }) {
            self.takes(stay, lock, end, manner.tries, CallSite::at(0));
        }
    }

    /// A semaphore is initialised that one thread at a time may have, by a call from `site`. Only under check.
    #[cold]
    pub fn semaphore_created(&'static self, lock: LockRef<'_>, site: CallSite) {
        self.checked_created(lock, site);
        if let Some(stay) = self.stay()
            && let Some(known) = locks::find(stay.map, lock)
        {
            locks::flag(known, layout::IS_LOCK);
        }
    }

    /// The calling thread has got a semaphore without waiting. Only under check.
    #[cold]
    pub fn semaphore_taken(&'static self, lock: LockRef<'_>, site: CallSite, manner: Manner) {
        let Some(stay) = self.stay() else { return };
        let known = locks::find(stay.map, lock).filter(|known| known.is_semaphore_lock());
        let Some(known) = known else { return };
        let end = End { known, mode: Mode::Exclusive, stack: self.stack(&stay, site) };
        if !manner.tries {
            asks(&stay, lock.kind, &end);
        }
        self.has_semaphore(&stay, &end, manner);
    }

    /// The calling thread is about to post a semaphore. One that is posted by a thread that does not have it is
    /// no lock. Only under check.
    #[cold]
    pub fn semaphore_posted(&'static self, lock: LockRef<'_>, site: CallSite) {
        let Some(stay) = self.stay() else { return };
        let Some(known) = locks::find(stay.map, lock).filter(|known| known.is_semaphore_lock()) else {
            return;
        };
        if held::find(stay.map, stay.record, known.word).is_some() {
            drop(stay);
            self.checked_released(lock, site);
        } else {
            locks::unflag(known, layout::IS_LOCK);
            known.slot.holder.store(0, Relaxed);
        }
    }

    /// The calling thread waits for the end of that one, by a call from `site`: as [`Recorder::blocks`].
    #[cold]
    pub fn joins(&'static self, lock: LockRef<'_>, thread: usize, site: CallSite) {
        if self.checks() {
            self.checked_blocks(lock, None, site, thread);
        } else {
            self.blocks(lock, site);
        }
    }

    pub(super) fn checked_wakes(&'static self, condition: LockRef<'_>, _whom: Wake, site: CallSite) {
        misuse::wakes(condition.address);
        let lone = self.finds_lone_signals();
        let Some(stay) = self.stay() else { return };
        let Some(known) = self.known(&stay, condition) else { return };
        let mutex = known.slot.holder.load(Relaxed);
        if lone {
            self.lone_signal(&stay, known, mutex, site);
        }
        // Before the first wait it is not known which lock is its mutex.
        if mutex != 0 || stay.record.checked().held_count.load(Relaxed) == 0 {
            let end = End { known, mode: Mode::Condition, stack: self.stack(&stay, site) };
            orders::wakes(stay.map, stay.record, &end, mutex);
        }
    }

    /// Misuse was found, by the calling thread. Of each sort, class and pair of stacks the log gets the first.
    #[cold]
    pub fn finding(&'static self, finding: &Finding) {
        if let Some(stay) = self.stay().filter(|_| self.checks()) {
            found(stay.map, stay.record, finding);
        }
    }

    /// The program says where the lock at this address stands in the order of its class. Of one that is not
    /// known there is nothing to say: no call has initialised it, so it is a class by itself.
    #[cold]
    pub fn placed(&'static self, address: usize, place: u64) {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return };
        let writers = |known: &Known| orders::has_readers(known.kind());
        let known = locks::at_address(stay.map, address as u64)
            .next()
            .or_else(|| locks::at_address(stay.map, (address + LockKind::WRITERS) as u64).find(writers));
        let Some(known) = known else { return };
        let _errno = sys::Errno::keep();
        locks::in_edge(known);
        let meta = known.slot.meta.load(Relaxed);
        log::append(stay.map, stay.record, layout::LOG_PLACED, |event| {
            locks::about(event, known.word, known.class(), known.slot, meta);
            event.lock().place.store(place, Relaxed);
        });
    }

    /// The thread has the lock.
    #[inline(always)]
    fn takes(&'static self, stay: &Stay<H>, lock: LockRef<'_>, end: &End, tried: bool, site: CallSite) {
        let new = New {
            word: end.known.word,
            address: lock.address as u64,
            class: end.known.class(),
            stack: end.stack,
            mode: end.mode,
            tried,
            on_stack: misuse::may_be_on_stack(lock.address, site),
        };
        self.fork.is_had(stay.map, end.known.word, end.mode);
        // Without room for it, nobody is known to hold it.
        if held::push(stay.map, stay.record, &new) {
            hold(stay, end);
        }
        if self.finds_lone_signals() {
            misuse::has(stay.record, end.known.word);
        }
    }

    fn finds_lone_signals(&'static self) -> bool {
        self.options().lone_signals
    }

    /// Whether a file is there, and is this process's.
    pub(super) fn is_on(&'static self) -> bool {
        self.state.load(Acquire) == ON && !self.is_forked()
    }
}

/// The thread ends. Whether it leaves locks held, which its list still names.
pub(super) fn ends(map: Map, record: &'static Record) -> bool {
    let holds = misuse::ends(map, record);
    if !holds {
        held::clear(map, record);
    }
    log::ends(map, record);
    holds
}

pub(super) use held::clear as forget_holds;

/// HOLDER, if it is readers of which one lets go.
fn one_reader_less(holder: u32) -> Option<u32> {
    match holder.checked_sub(READERS)? {
        0 => None,
        1 => Some(0),
        _ => Some(holder - 1),
    }
}

fn serial(record: &Record) -> Serial {
    Serial(record.checked().serial.load(Relaxed))
}

/// The thread asks for the lock.
#[inline(always)]
fn asks<H: Host>(stay: &Stay<H>, kind: LockKind, end: &End) {
    if stay.record.checked().held_count.load(Relaxed) != 0 {
        orders::asks(stay.map, stay.record, end);
    } else if end.mode == Mode::Exclusive && orders::has_readers(kind) {
        orders::writes(stay.map, stay.record, end);
    }
}

/// HOLDER.
#[inline(always)]
fn hold<H: Host>(stay: &Stay<H>, end: &End) {
    let holder = &end.known.slot.holder;
    if matches!(end.mode, Mode::Read | Mode::FairRead) {
        let more = |holder: u32| Some(if holder & READERS != 0 { holder + 1 } else { READERS + 1 });
        let _ = holder.fetch_update(AcqRel, Relaxed, more);
    } else {
        holder.store(stay.record.checked().serial.load(Relaxed), Relaxed);
    }
}

/// Shows in the record what its thread waits for, since when, and whether the wait is timed.
fn show_wait(
    record: &Record,
    known: Known,
    lock: LockRef<'_>,
    end: &End,
    site: CallSite,
    (now, timed): (u64, bool),
) {
    let checked = record.checked();
    checked.wait_timed.store(timed.into(), Relaxed);
    checked.wait_stack.store(end.stack, Relaxed);
    checked.wait_mode.store(end.mode as u32, Relaxed);
    // Release: after the end of the last wait, for a reader that looks at both ends of this one.
    record.wait_tag.store(layout::tag(known.word, lock.address as u64), Release);
    record.wait_sp.store(site.sp as u64, Relaxed);
    record.wait_began.store(now, Release);
}

/// What the record shows is over; it was of what is not acquired.
pub(super) fn end_shown(map: Map, record: &Record) {
    if record.wait_began.load(Relaxed) == 0 {
        return;
    }
    record.wait_began.store(0, Relaxed);
    record.checked().wait_join.store(0, Relaxed);
    let word = (record.wait_tag.load(Relaxed) >> 32) as u32;
    if let Some(known) = locks::by_word(map, word) {
        let _ = known.slot.waiters.fetch_update(Relaxed, Relaxed, |waiters| waiters.checked_sub(1));
    }
}

fn now_and_then(map: Map, now: u64) {
    let _errno = sys::Errno::keep();
    clock::calibrate_sometimes(map, now);
    modules::scan_sometimes(map, now);
}

/// A thread that lives, by its number.
fn by_serial(map: Map, serial: u32) -> Option<&'static Record> {
    records(map)
        .find(|record| record.state.load(Acquire) == HELD && record.checked().serial.load(Relaxed) == serial)
}

/// All records.
fn records(map: Map) -> impl Iterator<Item = &'static Record> {
    let mut page = map.header().records.load(Acquire);
    core::iter::from_fn(move || {
        // SAFETY: the list is of pages that are records.
        let record = (page != 0).then(|| unsafe { map.record(page) })?;
        page = record.next.load(Relaxed);
        Some(record)
    })
}

/// Who holds the lock, if its list says so too: one of the readers, if it is held by readers.
pub(super) fn holder_of(map: Map, known: Known) -> Option<Holder> {
    let holder = known.slot.holder.load(Relaxed);
    let on_list = |record: &'static Record| {
        let held = held::find(map, record, known.word)?;
        Some(Holder { thread: serial(record), stack: held.stack.load(Relaxed) })
    };
    if holder & READERS != 0 {
        return records(map).filter(|record| record.state.load(Acquire) == HELD).find_map(on_list);
    }
    if holder == 0 { None } else { by_serial(map, holder).and_then(on_list) }
}

/// Logs misuse that was not found before.
#[cold]
pub(super) fn found(map: Map, record: &'static Record, finding: &Finding) {
    let _errno = sys::Errno::keep();
    let stacks = [finding.stack, finding.other_stack];
    if orders::is_first_finding(map, finding.what as u8, finding.class, stacks) {
        append_finding(map, record, finding);
    }
}

fn append_finding(map: Map, record: &'static Record, finding: &Finding) {
    if let Some(other) = finding.other_thread.and_then(|other| by_serial(map, other.0)) {
        log::mention(map, other);
    }
    log::append(map, record, layout::LOG_MISUSE, |event| {
        let event = event.misuse();
        event.what.store(finding.what as u32, Relaxed);
        event.lock.store(finding.word, Relaxed);
        event.kind.store(finding.kind as u32, Relaxed);
        event.stack.store(finding.stack, Relaxed);
        event.other_stack.store(finding.other_stack, Relaxed);
        event.other_thread.store(finding.other_thread.map_or(0, |thread| thread.0), Relaxed);
        event.address.store(finding.address, Relaxed);
        event.number.store(finding.number, Relaxed);
    });
}
