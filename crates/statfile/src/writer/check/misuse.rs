//! Misuse that a process under check sees itself, beyond what follows from who holds what.
//!
//! None of it may be found where nothing is wrong. So what is not certain is not said:
//!
//! * A lock is `destroyed` if its word still names the slot that its destruction left: memory that was zeroed,
//!   initialised anew or given to something else has another word. That is so only of words in the lock itself;
//!   what has none there must bear another mark, which the caller knows. It is `copied` if its word names a slot that
//!   lives, of another address, while its bytes say that it is locked; but a thread that has just locked a copy
//!   of an unlocked one, and has not yet been here, is given time. It is `uninitialised` if its bytes are none
//!   that a lock of its kind can have, which the caller knows.
//! * A lock lies in a frame that is gone if it lay above the stack pointer when it was taken, lies below it
//!   now, and both are in the mapping that is this thread's stack; coroutines have others. Where that of a coroutine is
//!   an array on the thread's own, the outermost callers differ.
//! * A forked child takes a lock that a thread had which it does not have, if that was so just before the fork
//!   and no thread of the child has it now.
//! * A thread waits for a condition variable as long as nobody has signalled it since the wait began. One that
//!   has been woken and is on its way does not.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::super::map::Map;
use super::super::{CallSite, Host, LockRef, Recorder, memory, modules, sys};
use super::locks::{self, Known};
use super::orders::End;
use super::{Finding, Stay, found, held, holder_of, records, serial};
use crate::LockKind;
use crate::check::{Serial, Wrong};
use crate::layout::{
    self, DEAD, HELD, Held, INDEX_MASK, LIVE, ON_STACK, Record, meta_generation, meta_kind, meta_state,
};

/// How far above the stack pointer a lock may lie that is taken for one on the stack: 8 MiB, a thread's usual
/// stack.
const STACK: u64 = 8 << 20;

/// Whether a lock at this address may lie on the stack of a thread that calls from this place.
#[inline(always)]
pub(super) fn may_be_on_stack(address: usize, site: CallSite) -> bool {
    site.sp != 0 && (address.wrapping_sub(site.sp) as u64) < STACK
}

/// How often somebody was woken that waits for a condition variable, by the hash of its address.
static WOKEN: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];

fn woken(address: usize) -> &'static AtomicU32 {
    &WOKEN[((address as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize]
}

/// Those who wait for this condition variable are being woken: nobody who waits now is known to wait any more.
#[inline]
pub(super) fn wakes(address: usize) {
    woken(address).fetch_add(1, Relaxed);
}

/// The thread of this record begins a wait for a condition variable with this mutex.
pub(super) fn waits(record: &Record, address: usize, mutex: u32) {
    let checked = record.checked();
    checked.wait_woken.store(woken(address).load(Relaxed), Relaxed);
    checked.wait_with.store(mutex, Relaxed);
}

/// The threads that are shown as waiting for what has this word.
fn waiters(map: Map, word: u32) -> impl Iterator<Item = &'static Record> {
    records(map).filter(move |record| {
        record.state.load(Acquire) == HELD
            && record.wait_began.load(Acquire) != 0
            && (record.wait_tag.load(Relaxed) >> 32) as u32 == word
    })
}

/// Those of them that nobody has woken since they began, if it is a condition variable.
fn blocked(map: Map, condition: Known) -> impl Iterator<Item = &'static Record> {
    let now = woken(condition.slot.address.load(Relaxed) as usize).load(Relaxed);
    waiters(map, condition.word).filter(move |record| record.checked().wait_woken.load(Relaxed) == now)
}

/// The finding, with where that thread waits.
fn beside_the_wait(finding: Finding, waiter: &Record) -> Finding {
    Finding {
        other_stack: waiter.checked().wait_stack.load(Relaxed),
        other_thread: Some(serial(waiter)),
        ..finding
    }
}

/// Logs it, with where and by whom the lock is held, if it is.
fn found_beside_the_hold(map: Map, record: &'static Record, finding: Finding, lock: Option<Known>) {
    let holder = lock.and_then(|lock| holder_of(map, lock));
    let finding = holder.map_or(finding, |holder| Finding {
        other_stack: holder.stack,
        other_thread: Some(holder.thread),
        ..finding
    });
    found(map, record, &finding);
}

impl<H: Host> Recorder<H> {
    /// As [`Recorder::known`], of a lock that is used at this place. `locked`: its bytes say that somebody has
    /// it.
    #[inline(always)]
    pub(super) fn used(
        &'static self,
        stay: &Stay<H>,
        lock: LockRef<'_>,
        site: CallSite,
        locked: bool,
    ) -> Option<Known> {
        match locks::find(stay.map, lock) {
            None => self.used_first(stay, lock, site, locked),
            known => known,
        }
    }

    #[cold]
    #[inline(never)]
    fn used_first(
        &'static self,
        stay: &Stay<H>,
        lock: LockRef<'_>,
        site: CallSite,
        locked: bool,
    ) -> Option<Known> {
        let what = if is_within(lock) { Judged::of(stay.map, lock, locked) } else { Judged::Fine };
        let known = self.known(stay, lock);
        what.tell(self, stay, lock, known, site);
        known
    }

    /// The calling thread asks for a lock by a call from `site`, and does not get it because it is `locked`; or
    /// it is none, as its bytes say: [`Wrong::Destroyed`] or [`Wrong::Uninitialised`]. Only under check.
    #[cold]
    #[inline(never)]
    pub fn refused(&'static self, lock: LockRef<'_>, site: CallSite, kind: Option<Wrong>, locked: bool) {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return };
        let lock = lock.group();
        // Who locks it unlocks it, too: that is told once.
        let told = &stay.record.checked().told;
        if locks::find(stay.map, lock).is_some() || told.load(Relaxed) == lock.address as u64 {
            return;
        }
        let judged =
            if kind.is_some() || is_within(lock) { Judged::of(stay.map, lock, locked) } else { Judged::Fine };
        let what = match (judged, kind) {
            (judged @ Judged::Destroyed(..), _) => judged,
            (_, Some(Wrong::Destroyed)) => Judged::Destroyed(0, 0, 0),
            (_, Some(_)) => Judged::Uninitialised,
            (judged, None) => judged,
        };
        if !matches!(what, Judged::Fine) {
            told.store(lock.address as u64, Relaxed);
        }
        what.tell(self, &stay, lock, None, site);
    }

    /// The lock is about to be destroyed by somebody who knows that it is one: it gets a place in the table if it
    /// has none. Only under check.
    #[cold]
    #[inline(never)]
    pub fn meets(&'static self, lock: LockRef<'_>) {
        if let Some(stay) = self.stay().filter(|_| self.checks())
            && !(is_within(lock) && matches!(Judged::of(stay.map, lock, false), Judged::Destroyed(..)))
        {
            let _ = self.known(&stay, lock.group());
        }
    }

    /// Something is destroyed for which threads wait that have not been released, by a call from `site`. Only
    /// under check.
    #[cold]
    pub fn destroyed_while_waited_for(&'static self, lock: LockRef<'_>, site: CallSite) {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return };
        let Some(known) = locks::find(stay.map, lock.group()) else { return };
        let Some(waiter) = waiters(stay.map, known.word).next() else { return };
        let finding = Finding::about(Wrong::DestroyWaited, known, self.stack(&stay, site));
        found(stay.map, stay.record, &beside_the_wait(finding, waiter));
    }

    /// See [`Recorder::ends`]: whether threads wait for it, which has been said then. `asked`: somebody may
    /// wait for a condition variable with it, too.
    pub(super) fn ends_while_waited_for(
        &'static self,
        stay: &Stay<H>,
        known: Known,
        stack: u32,
        asked: bool,
    ) -> bool {
        let map = stay.map;
        let kind = LockKind::from_byte(meta_kind(known.slot.meta.load(Relaxed)));
        let waiter = if kind == LockKind::Condition {
            blocked(map, known).next()
        } else if known.slot.waiters.load(Relaxed) != 0 {
            waiters(map, known.word).next()
        } else if asked {
            let with_it = |record: &&Record| {
                record.state.load(Acquire) == HELD
                    && record.wait_began.load(Acquire) != 0
                    && record.checked().wait_with.load(Relaxed) == known.word
            };
            records(map).find(with_it)
        } else {
            None
        };
        if let Some(waiter) = waiter {
            let finding = Finding::about(Wrong::DestroyWaited, known, stack);
            found(map, stay.record, &beside_the_wait(finding, waiter));
        }
        waiter.is_some()
    }

    /// A thread is about to wait for a condition variable with the mutex `with`, at a place with this stack;
    /// the last wait was with `before`.
    pub(super) fn other_mutex(
        &'static self,
        stay: &Stay<H>,
        condition: Known,
        with: u32,
        before: u32,
        stack: u32,
    ) {
        if before == 0 || before == with || condition.slot.waiters.load(Relaxed) == 0 {
            return;
        }
        let other = blocked(stay.map, condition)
            .find(|record| ![0, with].contains(&record.checked().wait_with.load(Relaxed)));
        if let Some(other) = other {
            let finding = Finding::about(Wrong::TwoMutexes, condition, stack);
            let finding = Finding { number: other.checked().wait_with.load(Relaxed).into(), ..finding };
            found(stay.map, stay.record, &beside_the_wait(finding, other));
        }
    }

    /// A thread wakes those who wait for a condition variable with the mutex of this word.
    #[cold]
    pub(super) fn lone_signal(&'static self, stay: &Stay<H>, condition: Known, mutex: u32, site: CallSite) {
        if mutex == 0 || has_had(stay.record, mutex) {
            return;
        }
        let finding = Finding::about(Wrong::LoneSignal, condition, self.stack(stay, site));
        let finding = Finding { number: mutex.into(), ..finding };
        let finding = match waiters(stay.map, condition.word).next() {
            Some(waiter) => beside_the_wait(finding, waiter),
            None => finding,
        };
        found(stay.map, stay.record, &finding);
    }

    /// The thread uses a lock at a place where those of its locks that lie on its stack may be gone.
    #[cold]
    #[inline(never)]
    pub(super) fn frames(&'static self, stay: &Stay<H>, site: CallSite) {
        let (map, record) = (stay.map, stay.record);
        let gone = |held: &&Held| {
            held.word.load(Relaxed) != 0
                && held.how.load(Relaxed) & ON_STACK != 0
                && held.address.load(Relaxed) < site.sp as u64
        };
        // In a handler it may run on another stack, which may be an array on this one.
        if site.sp == 0 || H::interrupted() {
            return;
        }
        while let Some(held) = held::list(map, record).iter().find(gone) {
            let address = held.address.load(Relaxed);
            let known = locks::by_word(map, held.word.load(Relaxed));
            let stack = self.stack(stay, site);
            let is_gone = |_: &Known| {
                begin_alike(map, held.stack.load(Relaxed), stack)
                    && modules::is_own_stack(site.sp as u64, address)
            };
            match known.filter(is_gone) {
                Some(known) => {
                    let finding = Finding::about(Wrong::FrameGone, known, stack);
                    found_beside_the_hold(map, record, finding, Some(known));
                    // What comes there is something else.
                    locks::retire(map, record, known, 0);
                    held::remove(map, record, held);
                }
                // Another stack: it is not asked again.
                None => held::leaves_the_stack(record, held),
            }
        }
    }

    /// A thread waits for a lock, in a forked child.
    #[cold]
    #[inline(never)]
    pub(super) fn waits_in_child(&'static self, stay: &Stay<H>, end: &End) {
        let (map, word) = (stay.map, end.known.word);
        let first = map.header().first_serial.load(Relaxed);
        let Some((thread, stack, reads)) = self.fork.other(word) else { return };
        if thread >= first || (reads && end.mode != crate::check::Mode::Exclusive) {
            return;
        }
        // A thread of the child that has it is known, if it has had the time to say so.
        let is_alone = map.header().started.load(Relaxed) == 0;
        let looks = if is_alone { 1 } else { LOOKS_IN_CHILD };
        let is_stuck = |look: u32| {
            if look > 0 {
                pause();
            }
            holder_of(map, end.known).is_none() && self.fork.other(word).is_some()
        };
        if !(0..looks).all(is_stuck) {
            return;
        }
        self.fork.mention(map, word);
        let finding = Finding {
            other_stack: stack,
            other_thread: Some(Serial(thread)),
            ..Finding::about(Wrong::ForkHeld, end.known, end.stack)
        };
        found(map, stay.record, &finding);
    }

    /// The caller is about to give back the memory from `start` to `end`, by a call from `site`. To be asked
    /// only if there [may be locks](memory::may_have_locks). Returns how many words of its tables the search
    /// for locks read: at most one for 512 bytes of the memory or one for each lock of the process, whichever
    /// is less, and four for each lock in the memory.
    #[cold]
    #[inline(never)]
    pub fn freed(&'static self, start: usize, end: usize, site: CallSite) -> usize {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return 0 };
        locks::within(stay.map, start, end, |known| self.freed_one(&stay, known, site))
    }

    /// The locks from `start` to `end`: as many as there is room for.
    #[cold]
    #[inline(never)]
    pub fn locks_in(&'static self, start: usize, end: usize) -> memory::Locks {
        let mut locks = memory::Locks { words: [0; 32], len: 0 };
        if self.checks()
            && let Some(stay) = self.stay()
        {
            locks::within(stay.map, start, end, |known| {
                if let Some(place) = locks.words.get_mut(locks.len) {
                    *place = known.word;
                    locks.len += 1;
                }
            });
        }
        locks
    }

    /// Those of these locks that lay from `start` to `end` are no more: their memory was given back, or moved, by
    /// a call from `site`.
    #[cold]
    #[inline(never)]
    pub fn gone(&'static self, locks: &memory::Locks, start: usize, end: usize, site: CallSite) {
        let Some(stay) = self.stay().filter(|_| self.checks()) else { return };
        for word in &locks.words[..locks.len] {
            if let Some(known) = locks::by_word(stay.map, *word)
                && (start as u64..end as u64).contains(&known.slot.address.load(Relaxed))
            {
                self.freed_one(&stay, known, site);
            }
        }
    }

    fn freed_one(&'static self, stay: &Stay<H>, known: Known, site: CallSite) {
        let (map, record) = (stay.map, stay.record);
        let kind = LockKind::from_byte(meta_kind(known.slot.meta.load(Relaxed)));
        let waiter = if kind.may_be_shared() {
            None
        } else if known.slot.waiters.load(Relaxed) == 0 {
            // Most are free: no look at every thread.
            None
        } else if kind == LockKind::Condition {
            blocked(map, known).next()
        } else if kind.is_acquired() {
            waiters(map, known.word).next()
        } else {
            None
        };
        if kind.is_acquired() && !kind.may_be_shared() && holder_of(map, known).is_some() {
            let finding = Finding::about(Wrong::FreeHeld, known, self.stack(stay, site));
            found_beside_the_hold(map, record, finding, Some(known));
        } else if let Some(waiter) = waiter {
            let finding = Finding::about(Wrong::FreeHeld, known, self.stack(stay, site));
            found(map, record, &beside_the_wait(finding, waiter));
        }
        if let Some(held) = held::find(map, record, known.word) {
            held::remove(map, record, held);
        }
        locks::retire(map, record, known, 0);
    }
}

/// The thread ends. Whether it holds locks that it should have released.
pub(super) fn ends(map: Map, record: &'static Record) -> bool {
    let own = record.checked().serial.load(Relaxed);
    let mut holds = false;
    for held in held::list(map, record) {
        let Some(known) = locks::by_word(map, held.word.load(Relaxed)) else { continue };
        let kind = LockKind::from_byte(meta_kind(known.slot.meta.load(Relaxed)));
        let holder = known.slot.holder.load(Relaxed);
        let is_its_own = holder == own || (held::is_read(held) && holder & layout::READERS != 0);
        // A robust mutex is made for it, and what another process waits for is not for us to judge.
        if is_its_own && (!kind.is_foreign() || kind == LockKind::PriorityMutex) {
            let finding = Finding {
                other_stack: held.stack.load(Relaxed),
                other_thread: Some(serial(record)),
                ..Finding::about(Wrong::ExitHeld, known, 0)
            };
            found(map, record, &finding);
            holds = true;
        } else {
            held::remove(map, record, held);
        }
    }
    holds
}

/// What there is to say about a lock of which the word does not name its own slot.
#[derive(Clone, Copy)]
enum Judged {
    Fine,
    /// The word, the stack and the thread of its destruction.
    Destroyed(u32, u32, u32),
    /// Of this one.
    Copied(Known),
    Uninitialised,
}

impl Judged {
    fn of(map: Map, lock: LockRef<'_>, locked: bool) -> Judged {
        let claim = lock.word.load(Relaxed);
        if claim == layout::OVERFLOW {
            return Judged::Fine;
        }
        let slot = (claim != 0).then(|| map.check_lock(claim & INDEX_MASK)).flatten();
        if let Some(slot) = slot {
            let meta = slot.meta.load(Acquire);
            let named =
                meta_generation(meta) == claim >> layout::INDEX_BITS && meta_kind(meta) == lock.kind as u8;
            let here = slot.address.load(Relaxed) == lock.address as u64;
            if named && here && meta_state(meta) == DEAD {
                return Judged::Destroyed(claim, slot.holder.load(Relaxed), slot.waiters.load(Relaxed));
            }
            let lost = map.header().lost_events.load(Relaxed) != 0;
            if named && !here && meta_state(meta) == LIVE && locked && !lost && stays(lock, claim) {
                return Judged::Copied(Known { word: claim, slot });
            }
        }
        Judged::Fine
    }

    /// Logs it, if it is wrong.
    fn tell<H: Host>(
        self,
        recorder: &'static Recorder<H>,
        stay: &Stay<H>,
        lock: LockRef<'_>,
        known: Option<Known>,
        site: CallSite,
    ) {
        let finding = |what| Finding {
            what,
            word: known.map_or(0, |known| known.word),
            class: known.map_or(0, Known::class),
            kind: lock.kind,
            address: locks::object(lock.address as u64, lock.kind as u8),
            stack: recorder.stack(stay, site),
            other_stack: 0,
            other_thread: None,
            number: 0,
        };
        match self {
            Judged::Fine => {}
            Judged::Destroyed(word, stack, thread) => {
                // The one that was destroyed: it has a name.
                let finding = Finding {
                    word,
                    other_stack: stack,
                    other_thread: (thread != 0).then_some(Serial(thread)),
                    ..finding(Wrong::Destroyed)
                };
                found(stay.map, stay.record, &finding);
            }
            Judged::Copied(original) => {
                let finding = Finding {
                    class: original.class(),
                    number: original.word.into(),
                    ..finding(Wrong::Copied)
                };
                found_beside_the_hold(stay.map, stay.record, finding, Some(original));
            }
            Judged::Uninitialised => found(stay.map, stay.record, &finding(Wrong::Uninitialised)),
        }
    }
}

/// Whether the lock's word lies in the lock, and is copied, zeroed and left behind with it.
fn is_within(lock: LockRef<'_>) -> bool {
    const LARGEST: usize = 64;
    let start = lock.address.wrapping_sub(LockKind::WRITERS);
    core::ptr::from_ref(lock.word).addr().wrapping_sub(start) < LARGEST
}

/// Whether both stacks begin with the same call: if not, one of them is a coroutine's. Where they are not unwound,
/// they are taken for one.
fn begin_alike(map: Map, one: u32, other: u32) -> bool {
    let outermost = |number: u32| {
        let slot = map.stack(number).filter(|_| number != 0)?;
        let len = slot.len.load(Relaxed) as usize;
        // A longer one has no known beginning.
        Some((len, slot.frames.get(len.checked_sub(1)?)?.load(Relaxed)))
    };
    match (outermost(one), outermost(other)) {
        (Some((1, _)), Some((1, _))) => true,
        (Some((one_len, one)), Some((other_len, other))) => {
            one == other && one_len < layout::MAX_FRAMES && other_len < layout::MAX_FRAMES
        }
        _ => false,
    }
}

/// As often is looked, in a forked child with several threads, whether one of them has a lock: for a second.
const LOOKS_IN_CHILD: u32 = 100;

/// Gives other threads time.
fn pause() {
    sys::pause(10_000_000);
}

/// Whether the lock's word stays as it is, for longer than a thread that has locked it needs to write its own.
fn stays(lock: LockRef<'_>, claim: u32) -> bool {
    const LOOKS: usize = 100;
    (0..LOOKS).all(|_| {
        pause();
        lock.word.load(Relaxed) == claim
    })
}

/// The thread has this lock now: for [`Recorder::lone_signal`].
#[inline]
pub(super) fn has(record: &Record, word: u32) {
    let (place, bit) = place(word);
    let had = &record.checked().had[place];
    had.store(had.load(Relaxed) | bit, Relaxed);
}

/// Whether the thread has ever had it. Of some that it has not, this is true too.
fn has_had(record: &Record, word: u32) -> bool {
    let (place, bit) = place(word);
    record.checked().had[place].load(Relaxed) & bit != 0
}

fn place(word: u32) -> (usize, u64) {
    let hash = u64::from(word).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (hash as usize / 64, 1 << (hash % 64))
}
