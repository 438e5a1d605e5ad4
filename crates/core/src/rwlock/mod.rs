//! The queued readers-writer lock.
//!
//! Readers share; a writer, or a reader that may become one, excludes. In the manner of Waiman Long's queue
//! rwlock ("qrwlock", Linux, 2014): one word says who holds the lock, newcomers take it there if nothing is
//! against it, and the others stand in a queue, of which only the head tries for the lock. Added for user
//! space, where a thread that should run may not: waiters sleep, may have deadlines, and leave the middle of
//! the queue; a preference says which waiters are next; and there is an upgradable reader.
//!
//! # The words
//!
//! | `word` | meaning | set by | cleared by |
//! | --- | --- | --- | --- |
//! | `WRITER` | held by a writer | a thread that enters as one | the writer |
//! | `UPGRADABLE` | one of the readers may become a writer | that reader | that reader |
//! | `UPGRADING` | ... and is about to: newcomers do not enter | that reader | that reader |
//! | `HEAD_WAITING` | reserved for the queue head: newcomers do not enter | the queue head | the queue head |
//! | `PARKED` | the head sleeps, or the upgrader | the sleeper (1) | its waker (2); a head, entering |
//! | `WAKE_IN_FLIGHT` | the head was woken and has not looked yet: a hint | its waker (2) | the head (3) |
//! | `BIASED` | readers may enter by the table (4) | a reader that the word counts | a drainer |
//! | `DRAINING` | a thread moves the readers from the table to the count | a drainer, for `BIASED` | the drainer |
//! | `READERS` | how many readers hold it that are not in the table | readers, drainers | readers |
//!
//! (1) And the thread that passes headship to a sleeper. (2) Under the wait lock, before it wakes it. (3)
//! When it looks and when it enters; and, under the wait lock, the thread that takes headship from it. (4)
//! [`readers`]: one table for a process, in which a reader notes the lock's address.
//!
//! `wait_lock` guards all that follows (`waiting/wait_lock.rs`). `readers` and `writers` are lists of
//! waiters, real-time threads first ([`Platform::priority`]) and in the order in which they came among
//! equals; an upgradable reader waits among the writers. A lock whose readers meet at the word, and to which
//! no writer has come for a while, is biased: after that they leave the word alone. A thread that wants more
//! than to read drains the table first. `head` names the one waiter that may try for the
//! lock. `upgrader` names the one that sleeps until the other readers have left. `phase` counts the writers
//! that entered from the queue; in a waiter's node it is noted after which of them it came. `owner` is the
//! last writer's tag ([`Platform::tag`]), a hint for spinners while `WRITER` is set; once readers have met
//! since then, it says when (`QUIET`).
//!
//! Who comes next is the [`Preference`]'s, and docs/RWLOCK.md has the table, as it says what slices
//! (`WAKE_IN_FLIGHT`) are for. The preference says whether readers or writers are next, whatever priorities
//! they have; priorities say which is the first of the readers and the first of the writers.
//!
//! # Invariants
//!
//! * **EXCLUSION.** Every entry is a read-modify-write of `word` that finds nothing there which excludes it.
//!   `WRITER` excludes all; `READERS` exclude a writer; `UPGRADABLE` excludes another; `BIASED` and
//!   `DRAINING` exclude a writer and an upgradable reader, and `BIASED` is set only if neither is inside. The
//!   values of one word have one order, so of two entries that exclude each other the second sees the first.
//!   Entries by the table are the one exception: IN TABLE.
//! * **IN TABLE.** A reader enters by the table in two steps: it stores the lock's address in its slot, and
//!   then finds `BIASED` set. A drainer clears `BIASED` and sets `DRAINING` in one step, then looks at each
//!   slot, and clears `DRAINING` as it leaves. Changes of a slot and the drainer's look are
//!   read-modify-writes of it, so they have one order. If the reader's comes first, the drainer finds it and
//!   counts it. If the drainer's comes first, the reader sees the bias gone and takes its step back. So when
//!   `DRAINING` is cleared, whoever entered by the table has left or is counted.
//! * **TOKENS.** The count and the slots with the lock's address together are as many as there are readers,
//!   and those that have stored the address and not looked yet. A drainer counts before it clears the slot,
//!   and what it has counted in vain it gives up as it leaves. Which is whose does not matter: a reader
//!   leaves by its own slot if the address is there, or by the count, or by any slot (a guard may be sent to
//!   another thread). A reader that cannot take its step back, because the address is gone from its slot, is
//!   inside: it has been counted, or has taken the place of one that left in its stead.
//! * **HEAD.** If a list is not empty, `head` names one of its nodes, and only that thread sets or clears
//!   `HEAD_WAITING`. Both change under the wait lock, except that the head clears `HEAD_WAITING` as it
//!   enters. The thread that pushes onto empty lists makes itself the head, and the head names the next one
//!   before it lets go.
//! * **DUTY.** The head is awake ([`state::HEAD`], or between its wake-up and its next look), or `PARKED` is
//!   set, or the thread that has cleared `PARKED` is about to look at it. The head publishes that it sleeps
//!   ([`state::SLEEPING`]), then sets `PARKED` by a read-modify-write, then decides by what *that* returned;
//!   a leaver decides by the value that its own read-modify-write replaces. Both are steps of one word.
//!   Either the head's comes first: the leaver sees `PARKED`, clears it under the wait lock and wakes the
//!   head. Or the leaving comes first: the head finds the lock free and does not sleep. The same holds for
//!   the upgrader. A thread that passes headship to a sleeper sets `PARKED` for it while it is inside itself,
//!   so its own leaving comes later. A thread that takes headship from a parked head is awake, and sleeps by
//!   the same rule; if the old head sets `PARKED` after that, the worst is a wake-up of a head that is awake.
//! * **LAST TOUCH.** The step that releases the lock is the last access to it, and must see `PARKED`; so it
//!   is a compare-and-swap and not a subtraction. A leaver that finds `PARKED` set first tells the sleeper to
//!   look, under the wait lock, and releases with `PARKED` clear, or starts over. It wakes by address, in
//!   type-stable memory. A reader in the table leaves by a step of its slot, and no thread waits for that one
//!   while `BIASED` is set: whoever wants to wait drains first, and a head that finds `BIASED` in what its
//!   setting of `PARKED` returned does not sleep. While `PARKED` is set no lock becomes biased.
//! * **SERVICE.** A head that enters or gives up passes headship on, so each waiter becomes the head in its
//!   turn, in the order of the preference. A head that has waited in vain bars newcomers, so it enters when
//!   those inside have left. More urgent threads of its list, and they alone, may take headship from it: the
//!   bound, like the phases of `PhaseFair`, is for waiters of one priority.
//! * **PRIORITY.** No head sleeps while a more urgent waiter is in its list: a newcomer takes headship from
//!   one that sleeps, and one that is about to sleep gives it up. Both happen under the wait lock, and only
//!   if the head's node is [`state::SLEEPING`]; a thread that has said so does not try as the head again
//!   before it is woken, or has found under the wait lock that it is the head still. So only the head tries
//!   as the head.
//! * **UPGRADER LAST.** `upgrader` is the last word, and stays zero in a lock that no thread upgrades. So a
//!   library that keeps this lock inside another's object may use that word to tell whose the object is.
//! * **FORKS.** In a forked child the lists name threads that do not exist there. The epoch in `wait_lock`
//!   tells, and the first thread in a slow path clears them, with the bits of `word` that speak of waiters;
//!   what a drainer had begun in the parent begins anew.
//!
//! Proof: crates/core/src/rwlock/mod.rs, crates/core/src/waiting/mod.rs
//! Models: crates/model/tests/models/rwlock.rs
//! Stress: crates/sim/src/check/mod.rs, crates/torture/src/rwlocks.rs

use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

pub mod readers;

use self::readers::SLOTS;
use crate::atomic::zeroed;
use crate::events::{Event, count};
use crate::node::{Held, Node, NodeId, state};
use crate::platform::{Atomic, Deadline, Platform, Running, Spin, Tunable, Waited};
use crate::waiting::{LOOK_AFTER, list, poll, wait_lock};

/// The constants of the lock.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// A queue head that has waited in vain this many times keeps newcomers out.
    pub handoff_after: u32,
    /// How many turns of its spin loop a newcomer lets pass from one look at the lock to the next.
    pub turns_a_look: u32,
    /// With how many CPUs readers go to the table, and look again where newcomers are kept out, at least.
    pub cpus: u32,
    /// How many times a reader that finds newcomers kept out looks again before it queues.
    pub barred_looks: u32,
    /// For how many nanoseconds a thread uses a lock whose woken queue head has no CPU yet, before it yields.
    pub slice: usize,
    /// How many leavings of such a lock there are for one that asks whether the slice is over: the logarithm.
    pub leavings_a_slice_check: u32,
    /// For how many nanoseconds no writer comes, at least, before readers go to the table.
    pub quiet: u32,
    /// ... and as many times as long as it takes to drain that, at least.
    pub quiet_by_drain: u32,
    /// Which slots of a line of the table locks may choose: the first so many.
    pub slots: usize,
}

impl Tunable for Tuning {
    const USER_SPACE: Tuning = Tuning {
        // Each wake-up in vain costs some ten microseconds; one that was not served after this many has met
        // with something else.
        handoff_after: 16,
        // A look takes the line from threads that enter and leave, which write to it.
        turns_a_look: 32,
        // Two readers on two CPUs do not get in each other's way for long.
        cpus: 3,
        // Ten microseconds: readers run out, and a writer is inside, in less, if all have CPUs. To queue, and
        // to be let in one behind the other, takes many readers longer.
        barred_looks: 32,
        // Half of the default mutex's slice: a thread that yields is the next to run where no other thread
        // wants its CPU.
        slice: 250_000,
        // 4: there is nothing to do but this in the slow path in which it is asked.
        leavings_a_slice_check: 2,
        // A hundred sleeps and wake-ups. Where writers come every 0.1 ms, a tenth of the gaps is twice as
        // long.
        quiet: 1_000_000,
        // BRAVO's number: writers spend at most a tenth of their time on draining.
        quiet_by_drain: 9,
        slots: SLOTS,
    };
}

/// Held by a writer.
const WRITER: u32 = 1 << 31;
/// One of the readers is the upgradable one.
const UPGRADABLE: u32 = 1 << 30;
/// It waits for the others to leave.
const UPGRADING: u32 = 1 << 29;
/// Reserved for the queue head.
const HEAD_WAITING: u32 = 1 << 28;
/// The queue head sleeps, or the upgradable reader.
const PARKED: u32 = 1 << 27;
/// The queue head was woken and has not looked yet.
const WAKE_IN_FLIGHT: u32 = 1 << 26;
/// Readers may be in the table, and enter there.
const BIASED: u32 = 1 << 25;
/// Readers may be in the table still, and a thread moves them to the count.
const DRAINING: u32 = 1 << 24;
/// Either: the count is not all.
const IN_TABLE: u32 = BIASED | DRAINING;
/// More readers than there can be threads: no more of them.
const FULL: u32 = 1 << 23;
/// How many readers, but for those in the table.
const READERS: u32 = DRAINING - 1;

/// In `owner`: no writer has come since the moment that the other bits say.
const QUIET: u32 = 1 << 31;
/// The moment, in units of 1024 ns, which begin anew after half an hour. A lock may wait once more then.
const MOMENT: u32 = QUIET - 1;
/// A drain that took longer, in nanoseconds, lost its CPU.
const LONGEST_DRAIN: u32 = 10_000_000;
/// How often a reader looks for its place in vain, if another thread leaves for it, before it turns out not
/// to be inside.
const LOOKS: u32 = 1 << 10;
/// How many looks apart a waiter in the queue looks at the lock itself.
const LOOKS_FROM_THE_QUEUE: u32 = 8;

/// Which waiters go first. Each call names it; the calls on one lock usually name the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// Readers and writers in turn: none starves. The default.
    #[default]
    PhaseFair,
    /// Readers enter whenever no writer is inside, so that one may enter again while it is inside: only with
    /// this preference. Writers may starve. As glibc's `PTHREAD_RWLOCK_PREFER_READER_NP`.
    ReaderPreferring,
    /// No reader enters while a writer waits. Readers may starve. As glibc's
    /// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`.
    WriterPreferring,
}

impl Preference {
    /// Each of them, the default first.
    pub const ALL: [Preference; 3] = [Self::PhaseFair, Self::ReaderPreferring, Self::WriterPreferring];
}

/// How a thread enters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Reader,
    Upgradable,
    Writer,
}

/// What a thread wants.
#[derive(Clone, Copy)]
struct Want<'a> {
    mode: Mode,
    preference: Preference,
    deadline: Option<&'a Deadline>,
}

impl Want<'_> {
    /// The word after this thread has entered, if it may: the queue head is not kept out by its own
    /// reservation.
    fn entered(self, seen: u32, head: bool) -> Option<u32> {
        let reserved = if head { 0 } else { HEAD_WAITING };
        let (excluded, next) = match (self.mode, self.preference) {
            (Mode::Reader, Preference::ReaderPreferring) => (WRITER | FULL, seen.wrapping_add(1)),
            (Mode::Reader, _) => (WRITER | FULL | UPGRADING | reserved, seen.wrapping_add(1)),
            (Mode::Upgradable, _) => {
                (WRITER | FULL | UPGRADABLE | IN_TABLE | reserved, seen.wrapping_add(1) | UPGRADABLE)
            }
            (Mode::Writer, _) => (WRITER | READERS | IN_TABLE | reserved, seen | WRITER),
        };
        if seen & excluded != 0 {
            return None;
        }
        // A head that enters does not sleep. An upgradable reader may.
        let done = match (head, seen & UPGRADING) {
            (false, _) => 0,
            (true, 0) => HEAD_WAITING | PARKED | WAKE_IN_FLIGHT,
            (true, _) => HEAD_WAITING | WAKE_IN_FLIGHT,
        };
        Some(next & !done)
    }

    /// Whether readers may enter by the table, and must not, for this one to enter.
    fn is_to_drain(self, seen: u32) -> bool {
        self.mode != Mode::Reader && seen & BIASED != 0
    }

    fn expired<P: Platform>(self) -> bool {
        self.deadline.is_some_and(P::expired)
    }
}

/// The readers-writer lock: 32 bytes, zero when unlocked. An unlocked one may be moved, copied and freed.
///
/// No method allocates, panics or unwinds; none is async-signal-safe with respect to the same lock, all are
/// with respect to others. Up to 8 million readers can hold it at once; more wait.
#[repr(C)]
pub struct RawRwLock<P: Platform> {
    word: P::U32,
    wait_lock: P::U32,
    owner: P::U32,
    head: P::U32,
    readers: P::U32,
    writers: P::U32,
    phase: P::U32,
    // UPGRADER LAST.
    upgrader: P::U32,
}

impl<P: Platform> RawRwLock<P> {
    /// The offset of the word that is zero as long as no thread upgrades: UPGRADER LAST.
    pub const UPGRADER_OFFSET: usize = {
        let offset = core::mem::offset_of!(Self, upgrader);
        assert!(offset + size_of::<P::U32>() == size_of::<Self>());
        offset
    };
    /// The offset of the word that names the first of the readers that wait. That of writers follows it.
    pub const READERS_OFFSET: usize = {
        let offset = core::mem::offset_of!(Self, readers);
        assert!(core::mem::offset_of!(Self, writers) == offset + size_of::<P::U32>());
        offset
    };
    /// The offset of the word that names the waiter that may try.
    pub const HEAD_OFFSET: usize = core::mem::offset_of!(Self, head);
    /// In the first word: held by a writer.
    pub const HELD_BY_WRITER: u32 = WRITER;
    /// In the first word: how many readers hold it.
    pub const HELD_BY_READERS: u32 = READERS;
    /// In the first word, any of them: there may be more readers than those.
    pub const MORE_READERS: u32 = BIASED | DRAINING;
}

zeroed! {
    RawRwLock<P: Platform>: "An unlocked lock.", [word wait_lock owner head readers writers phase upgrader]
}

/// As a reader, one of any number.
impl<P: Platform> RawRwLock<P> {
    /// Enters, waiting as long as it takes. What writers did before happens before the return. Of a thread
    /// that is inside already, see [`Preference`].
    #[inline]
    pub fn lock_read(&self, preference: Preference) {
        if !self.take_read() {
            self.lock_slow(Want { mode: Mode::Reader, preference, deadline: None });
        }
    }

    /// As [`RawRwLock::lock_read`], but gives up once `deadline` has passed; false then. It does not if it
    /// need not wait.
    #[inline]
    pub fn lock_read_until(&self, preference: Preference, deadline: &Deadline) -> bool {
        self.take_read() || self.lock_slow(Want { mode: Mode::Reader, preference, deadline: Some(deadline) })
    }

    /// Enters if it need not wait. Synchronises as [`RawRwLock::lock_read`] when true.
    #[inline]
    pub fn try_lock_read(&self, preference: Preference) -> bool {
        self.take_read() || self.try_slow(Mode::Reader, preference)
    }

    /// Leaves. What the caller did happens before the next writer enters.
    #[inline]
    pub fn unlock_read(&self) {
        if !self.give_read() {
            self.leave_read();
        }
    }

    /// Enters if that is a single step: for callers that have a slow path of their own. Synchronises as
    /// [`RawRwLock::lock_read`] when true.
    #[inline(always)]
    pub fn take_read(&self) -> bool {
        let Err(seen) = self.guess(0, 1, Acquire) else { return true };
        if seen & (WRITER | HEAD_WAITING | UPGRADING | FULL | IN_TABLE) == 0 {
            let taken = self.swap(seen, seen.wrapping_add(1), Acquire).is_ok();
            if taken && seen & READERS != 0 {
                self.meet();
            }
            return taken;
        }
        self.take_slot(seen)
    }

    /// Leaves if that is a single step, as [`RawRwLock::unlock_read`]; false if it is not, or if there is no
    /// reader.
    #[inline(always)]
    pub fn give_read(&self) -> bool {
        let Err(seen) = self.guess(1, 0, Release) else { return true };
        if seen & IN_TABLE == 0 {
            // Nothing but readers, and one at least.
            return seen.wrapping_sub(1) < READERS && self.swap(seen, seen - 1, Release).is_ok();
        }
        self.give_slot()
    }

    /// Guesses that the word is `seen`, and makes it `next` if so; else returns what it is.
    #[inline(always)]
    fn guess(&self, seen: u32, next: u32, success: Ordering) -> Result<u32, u32> {
        if readers::is_noted::<P>(self.address()) {
            // Readers are in the table, to leave the line alone. Relaxed: a look.
            return Err(self.word.load(Relaxed));
        }
        // Where the guess is right, nothing waits for a look at what was written last; where it is wrong, it
        // fetches the line for writing, as is needed next, and a look would have fetched it for reading only.
        self.swap(seen, next, success)
    }

    /// A compare-and-swap of the word.
    #[inline(always)]
    fn swap(&self, seen: u32, next: u32, success: Ordering) -> Result<u32, u32> {
        if P::single_threaded() && self.word.load(Relaxed) == seen {
            // No other thread: atomicity is not needed.
            self.word.store(next, Relaxed);
            return Ok(seen);
        }
        self.word.compare_exchange(seen, next, success, Relaxed)
    }
}

/// In the table.
impl<P: Platform> RawRwLock<P> {
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    #[inline(always)]
    fn own_slot(&self) -> Option<&'static P::Usize> {
        readers::own_slot::<P>(self.address(), P::tuning::<Tuning>().slots)
    }

    fn slots(&self) -> impl Iterator<Item = &'static P::Usize> {
        let table = P::readers().into_iter();
        table.flat_map(|table| table.slots(self.address(), P::tuning::<Tuning>().slots))
    }

    /// Enters by the table, if the lock is biased.
    #[inline(never)]
    fn take_slot(&self, seen: u32) -> bool {
        readers::note::<P>(self.address(), seen & BIASED != 0);
        if seen & BIASED == 0 {
            return false;
        }
        let Some(slot) = self.own_slot() else { return false };
        // AcqRel: IN TABLE. Another lock may be there, or this one, entered before.
        if slot.compare_exchange(0, self.address(), AcqRel, Relaxed).is_err() {
            return false;
        }
        // Acquire: partner of the last writer's release, through the read-modify-writes since.
        if self.word.load(Acquire) & BIASED != 0 {
            return true;
        }
        // Too late; unless we have been counted already, and so are inside. Acquire: what the thread that
        // counted us had seen of writers is there.
        slot.compare_exchange(self.address(), 0, AcqRel, Acquire).is_err()
    }

    /// Leaves by the table, if the calling thread is there.
    #[inline(never)]
    fn give_slot(&self) -> bool {
        self.own_slot().is_some_and(|slot| self.clear(slot))
    }

    /// LAST TOUCH, if it returns true.
    fn clear(&self, slot: &P::Usize) -> bool {
        slot.load(Relaxed) == self.address()
            && slot.compare_exchange(self.address(), 0, Release, Relaxed).is_ok()
    }

    /// Leaves as one of the readers, wherever that one is noted.
    #[cold]
    #[inline(never)]
    fn leave_read(&self) {
        for round in 0..LOOKS {
            if self.give_read() || self.leave(1, 0) {
                return;
            }
            let seen = self.word.load(Relaxed);
            // Without a table all readers are in the count: the caller is not inside, whatever it thinks.
            let none = seen & (IN_TABLE | READERS) == 0;
            if none || seen & IN_TABLE != 0 && self.slots().any(|slot| self.clear(slot)) {
                return;
            }
            P::stall(round);
        }
    }

    /// If the lock is biased: ends that, and moves the readers from the table to the count. Returns whether
    /// it did. After that readers are inside that the word knows of, and no others.
    #[cold]
    #[inline(never)]
    fn drain(&self) -> bool {
        // Acquire: what the last writer did; for those that we are going to count. Release: a reader that
        // finds our look at its slot finds the bias gone.
        let begun =
            self.word.update(AcqRel, |seen| (seen & BIASED != 0).then_some(seen & !BIASED | DRAINING));
        if begun.is_err() {
            return false;
        }
        count::<P>(Event::Drain);
        let from = P::now();
        let mut spare = 0;
        for slot in self.slots() {
            // A read-modify-write: IN TABLE. Acquire: what a reader did that has left.
            if slot.fetch_or(0, AcqRel) != self.address() {
                continue;
            }
            // It is counted before it goes, so that it finds itself in one of the two.
            if spare == 0 {
                self.word.fetch_add(1, Relaxed);
                spare = 1;
            }
            if slot.compare_exchange(self.address(), 0, AcqRel, Acquire).is_ok() {
                spare = 0;
            }
        }
        // Not again at once, whether a writer enters now or not.
        self.owner.store(0, Relaxed);
        if let Some(table) = P::readers() {
            table.note_drain(P::now().wrapping_sub(from).min(u64::from(LONGEST_DRAIN)));
        }
        self.leave(DRAINING + spare, 0);
        true
    }

    /// Whether there are CPUs for several readers.
    fn scales() -> bool {
        P::cpus() >= P::tuning::<Tuning>().cpus
    }

    /// A reader that the word counts has met with others there: biases the lock if no writer has come for a
    /// while. It asks for the time now and then only.
    #[cold]
    #[inline(never)]
    fn meet(&self) {
        if !Self::scales() {
            return;
        }
        let (Some(table), Some(index)) = (P::readers(), P::current()) else { return };
        let Tuning { quiet, quiet_by_drain, leavings_a_slice_check, .. } = P::tuning();
        if !P::record(index).leaves_often(leavings_a_slice_check) {
            return;
        }
        let now = (P::now() >> 10) as u32 & MOMENT;
        let seen = self.owner.load(Relaxed);
        if seen & QUIET == 0 {
            // A writer has come since the last time. Relaxed: a hint.
            let _ = self.owner.compare_exchange(seen, QUIET | now, Relaxed, Relaxed);
            return;
        }
        let passed = now.wrapping_sub(seen) & MOMENT;
        let needed = table.drain_ns().saturating_mul(quiet_by_drain).max(quiet) >> 10;
        if passed >= needed {
            // Nobody waits, and nobody is inside but readers. Relaxed: it carries what is there on.
            let biased = |seen| (seen & !(READERS & !FULL) == 0).then_some(seen | BIASED);
            let _ = self.word.update(Relaxed, biased);
        }
    }

    /// Forgets the readers of a lock that was here before, and was not left: to be called as one is made
    /// where a program may have thrown one away with readers inside, as a forked child does.
    pub fn forget_readers(&self) {
        for slot in self.slots() {
            self.clear(slot);
        }
    }
}

/// As a writer, alone.
impl<P: Platform> RawRwLock<P> {
    /// Enters, waiting as long as it takes. What those inside before did happens before the return. A thread
    /// that is inside already waits for ever.
    #[inline]
    pub fn lock_write(&self, preference: Preference) {
        if !self.take_write() {
            self.lock_slow(Want { mode: Mode::Writer, preference, deadline: None });
        }
    }

    /// As [`RawRwLock::lock_write`], but gives up once `deadline` has passed; false then. It does not if it
    /// need not wait.
    #[inline]
    pub fn lock_write_until(&self, preference: Preference, deadline: &Deadline) -> bool {
        self.take_write() || self.lock_slow(Want { mode: Mode::Writer, preference, deadline: Some(deadline) })
    }

    /// Enters if it need not wait. Synchronises as [`RawRwLock::lock_write`] when true.
    #[inline]
    pub fn try_lock_write(&self) -> bool {
        self.take_write() || self.try_slow(Mode::Writer, Preference::default())
    }

    /// Leaves. What the caller did happens before the next one enters.
    #[inline]
    pub fn unlock_write(&self) {
        if !self.give_write() {
            self.leave(WRITER, 0);
        }
    }

    /// Becomes a reader, with no other thread in between. What the caller did happens before other readers
    /// enter.
    pub fn downgrade(&self) {
        let _ = self.leave(WRITER, 1);
    }

    /// Becomes the upgradable reader, with no other thread in between.
    pub fn downgrade_to_upgradable(&self) {
        self.leave(WRITER, UPGRADABLE | 1);
    }

    /// As [`RawRwLock::take_read`], as a writer.
    #[inline(always)]
    pub fn take_write(&self) -> bool {
        let entered = match self.swap(0, WRITER, Acquire) {
            Ok(_) => true,
            Err(seen) => seen == WAKE_IN_FLIGHT && self.swap(seen, seen | WRITER, Acquire).is_ok(),
        };
        if entered {
            self.publish();
        }
        entered
    }

    /// As [`RawRwLock::give_read`], of a writer.
    #[inline(always)]
    pub fn give_write(&self) -> bool {
        self.swap(WRITER, 0, Release).is_ok()
    }

    /// Tells spinners where the writer runs.
    #[inline(always)]
    fn publish(&self) {
        self.owner.store(P::tag(), Relaxed);
    }
}

/// As the one reader that can become a writer.
impl<P: Platform> RawRwLock<P> {
    /// Enters beside readers, waiting as long as it takes. Synchronises as [`RawRwLock::lock_read`].
    pub fn lock_upgradable(&self, preference: Preference) {
        self.lock_slow(Want { mode: Mode::Upgradable, preference, deadline: None });
    }

    /// As [`RawRwLock::lock_upgradable`], but gives up once `deadline` has passed; false then.
    pub fn lock_upgradable_until(&self, preference: Preference, deadline: &Deadline) -> bool {
        self.lock_slow(Want { mode: Mode::Upgradable, preference, deadline: Some(deadline) })
    }

    /// Enters if it need not wait.
    pub fn try_lock_upgradable(&self) -> bool {
        self.try_slow(Mode::Upgradable, Preference::default())
    }

    /// Leaves.
    pub fn unlock_upgradable(&self) {
        self.leave(UPGRADABLE | 1, 0);
    }

    /// Stays as one reader of many.
    pub fn downgrade_upgradable(&self) {
        self.leave(UPGRADABLE | 1, 1);
    }

    /// Becomes the writer if no other reader is inside. Synchronises as [`RawRwLock::lock_write`] when true.
    pub fn try_upgrade(&self) -> bool {
        // The only reader is the caller. Acquire: what the others did before they left.
        let upgraded = self.word.update(Acquire, |seen| {
            let next = (seen | WRITER) & !(UPGRADABLE | UPGRADING | READERS);
            (seen & READERS == 1).then_some(next)
        });
        if upgraded.is_ok() {
            self.publish();
        }
        upgraded.is_ok()
    }

    /// Becomes the writer, as soon as the other readers have left; no more come in. Synchronises as
    /// [`RawRwLock::lock_write`].
    pub fn upgrade(&self) {
        self.upgrade_within(None);
    }

    /// As [`RawRwLock::upgrade`], but gives up once `deadline` has passed; false then, and the caller is the
    /// upgradable reader still.
    pub fn upgrade_until(&self, deadline: &Deadline) -> bool {
        self.upgrade_within(Some(deadline))
    }

    fn upgrade_within(&self, deadline: Option<&Deadline>) -> bool {
        if self.try_upgrade() {
            return true;
        }
        self.renew();
        // Relaxed: it carries nothing.
        self.word.fetch_or(UPGRADING, Relaxed);
        let mut budget = P::Spin::fresh();
        while budget.spin() {
            if self.try_upgrade() {
                return true;
            }
        }
        match Held::<P>::take() {
            Some(held) => self.sleep_to_upgrade(&held, deadline),
            None => poll::<P>(deadline, || self.try_upgrade()) || self.stay_upgradable(),
        }
    }

    fn sleep_to_upgrade(&self, held: &Held<P>, deadline: Option<&Deadline>) -> bool {
        let node = held.node();
        self.guarded(|| self.upgrader.store(held.id.raw(), Relaxed));
        let upgraded = loop {
            node.state.store(state::SLEEPING, Relaxed);
            // DUTY, as for the head.
            self.word.fetch_or(PARKED, AcqRel);
            if self.try_upgrade() {
                break true;
            }
            if P::wait(&node.state, state::SLEEPING, deadline.into()) == Waited::TimedOut {
                break self.try_upgrade();
            }
        };
        self.guarded(|| self.upgrader.store(0, Relaxed));
        node.state.store(state::IDLE, Relaxed);
        upgraded || self.stay_upgradable()
    }

    /// Gives the upgrade up: others may enter again.
    #[cold]
    fn stay_upgradable(&self) -> bool {
        self.word.fetch_and(!UPGRADING, Relaxed);
        // The head may sleep because of it.
        self.call().wake();
        false
    }
}

/// At one moment.
impl<P: Platform> RawRwLock<P> {
    /// Whether a writer is inside.
    pub fn is_write_locked(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }

    /// Whether any thread is inside.
    pub fn is_locked(&self) -> bool {
        let seen = self.word.load(Relaxed);
        seen & (WRITER | READERS) != 0 || seen & IN_TABLE != 0 && self.is_in_table()
    }

    fn is_in_table(&self) -> bool {
        self.slots().any(|slot| slot.load(Relaxed) == self.address())
    }

    /// Whether no thread is inside, and none waits. For checkers.
    pub fn is_idle(&self) -> bool {
        self.word.load(Relaxed) & !BIASED == 0
            && !self.is_in_table()
            && [&self.head, &self.readers, &self.writers, &self.upgrader]
                .iter()
                .all(|word| word.load(Relaxed) == 0)
    }
}

/// The slow paths.
impl<P: Platform> RawRwLock<P> {
    /// Tries for it until it is clear that another is in the way.
    #[cold]
    fn try_slow(&self, mode: Mode, preference: Preference) -> bool {
        self.renew();
        self.enter(Want { mode, preference, deadline: None }, false).is_ok()
    }

    /// Enters if nothing is against it; else returns the word that is.
    #[inline]
    fn enter(&self, want: Want<'_>, head: bool) -> Result<(), u32> {
        loop {
            match self.word.update(Acquire, |seen| want.entered(seen, head)) {
                Ok(_) => break,
                Err(seen) if want.is_to_drain(seen) => _ = self.drain(),
                Err(seen) => return Err(seen),
            }
        }
        if want.mode == Mode::Writer {
            self.publish();
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, want: Want<'_>) -> bool {
        self.renew();
        if self.optimistic_spin(want) {
            return true;
        }
        match Held::<P>::take() {
            Some(held) => self.queue(want, &held),
            // Without a node there is no place in the queue.
            None => poll::<P>(want.deadline, || self.enter(want, false).is_ok()),
        }
    }

    /// Looks for as long as a sleep and a wake-up would take, whatever threads queue: if every thread slept
    /// that finds others inside, running threads would soon be fewer than the CPUs. The queue head bars
    /// newcomers if they are to let it pass.
    fn optimistic_spin(&self, want: Want<'_>) -> bool {
        let mut budget = P::Spin::fresh();
        let mut barred = 0;
        loop {
            // One look is one transfer of the line: whatever else is read there waits its turn anew.
            let Err(seen) = self.enter(want, false) else { return true };
            if seen & HEAD_WAITING != 0 {
                let looks = if Self::scales() { P::tuning::<Tuning>().barred_looks } else { 0 };
                if want.mode != Mode::Reader || barred >= looks {
                    return false;
                }
                barred += 1;
            }
            // With an empty queue, a writer that finds readers had better keep newcomers out than hope for a
            // gap between them.
            let to_bar = want.mode != Mode::Reader && seen & WRITER == 0 && self.head.load(Relaxed) == 0;
            if to_bar || self.is_displaced(seen) || want.expired::<P>() {
                return false;
            }
            if !budget.pass(P::tuning::<Tuning>().turns_a_look) {
                return false;
            }
        }
    }

    /// Whether there is a writer inside that does not run.
    fn is_displaced(&self, seen: u32) -> bool {
        if seen & WRITER == 0 {
            return false;
        }
        let owner = self.owner.load(Relaxed);
        owner & QUIET == 0 && P::running(owner) == Running::No
    }

    fn queue(&self, want: Want<'_>, held: &Held<P>) -> bool {
        let node = held.node();
        node.set_priority();
        let shares = want.mode == Mode::Reader;
        count::<P>(if shares { Event::ReaderQueued } else { Event::WriterQueued });
        wait_lock::lock::<P>(&self.wait_lock);
        list::push::<P>(self.list(want.mode), held.id);
        // A reader that finds a writer inside is one of those that come after that.
        let writing = u32::from(self.word.load(Relaxed) & WRITER != 0);
        node.phase().store(self.phase.load(Relaxed).wrapping_sub(writing), Relaxed);
        let urgent = node.priority.load(Relaxed) != 0;
        let head = self.head.load(Relaxed) == 0 || urgent && self.goes_before(want.mode, held.id);
        if head {
            self.head.store(held.id.raw(), Relaxed);
        }
        node.state.store(if head { state::HEAD } else { state::IDLE }, Relaxed);
        wait_lock::unlock::<P>(&self.wait_lock);

        let entered = (head || self.await_headship(want, node)) && self.enter_as_head(want, held);

        let wake = self.guarded(|| self.withdraw(want, held.id, entered));
        node.state.store(state::IDLE, Relaxed);
        Called([wake, None]).wake();
        if !entered {
            count::<P>(Event::QueueLeft);
        }
        entered
    }

    /// PRIORITY: a real-time thread is in its list. Whether it is to be the head, instead of one that sleeps.
    /// Under the wait lock.
    #[cold]
    fn goes_before(&self, mode: Mode, id: NodeId) -> bool {
        let list = self.list(mode);
        let node = id.get::<P>();
        let Some(next) = list::following::<P>(list, id) else { return false };
        // A waiter that it passes waits for no other phase than it would have: the first reader is always of
        // the earliest phase.
        node.phase().store(next.get::<P>().phase().load(Relaxed), Relaxed);
        // Partner of the head's, as it falls asleep: of two read-modify-writes of one word the later one's
        // thread sees what the other's did before. Release: our place in the list. Acquire: that it sleeps.
        self.word.fetch_or(0, AcqRel);
        // A head behind several others was awake when the first of those came: it will see to it.
        list::first::<P>(list) == Some(id)
            && self.head.load(Relaxed) == next.raw()
            && next.get::<P>().state.load(Relaxed) == state::SLEEPING
    }

    /// PRIORITY: the head is about to sleep, and is not the first of its list any more. That one is to be the
    /// head instead.
    #[cold]
    fn step_down(&self, mode: Mode, held: &Held<P>) {
        let wake = self.guarded(|| {
            let first = list::first::<P>(self.list(mode)).filter(|first| *first != held.id);
            let is_head = self.head.load(Relaxed) == held.id.raw();
            // If it has been called, it is to try.
            let first = first.filter(|_| is_head && held.node().state.load(Relaxed) == state::SLEEPING)?;
            self.head.store(first.raw(), Relaxed);
            self.rouse_head(first.get())
        });
        Called([wake, None]).wake();
    }

    /// Whether a thread that has said that it sleeps, and was not called, is the head still. If so, it is
    /// awake again.
    fn is_head_still(&self, held: &Held<P>) -> bool {
        self.guarded(|| {
            let is_head = self.head.load(Relaxed) == held.id.raw();
            if is_head {
                held.node().state.store(state::HEAD, Relaxed);
            }
            is_head
        })
    }

    fn guarded<T>(&self, act: impl FnOnce() -> T) -> T {
        wait_lock::under::<P, T>(&self.wait_lock, act)
    }

    /// Waits to be the queue head. False if the wait was given up; it may be the head by then.
    fn await_headship(&self, want: Want<'_>, node: &Node<P>) -> bool {
        let mut budget = P::Spin::fresh();
        // The lock's line is for those that may enter: a look at it now and then, for a writer that does not
        // run.
        let apart = LOOKS_FROM_THE_QUEUE * P::tuning::<Tuning>().turns_a_look;
        let mut turn = 0_u32;
        // Acquire: partner of the release in `rouse`.
        while node.state.load(Acquire) == state::IDLE {
            if turn.is_multiple_of(apart) && self.is_displaced(self.word.load(Relaxed)) || !budget.spin() {
                break;
            }
            turn = turn.wrapping_add(1);
        }
        if node.state.compare_exchange(state::IDLE, state::SLEEPING, Release, Acquire).is_err() {
            return true;
        }
        count::<P>(Event::QueueSleep);
        self.sleep(want, node)
    }

    /// Sleeps until it is called. False if the wait was given up.
    fn sleep(&self, want: Want<'_>, node: &Node<P>) -> bool {
        // Acquire: partner of the release in `rouse`.
        while node.state.load(Acquire) == state::SLEEPING {
            if P::wait(&node.state, state::SLEEPING, want.deadline.into()) == Waited::TimedOut {
                return false;
            }
        }
        true
    }

    /// Tries for the lock as the queue head. False if the wait was given up.
    fn enter_as_head(&self, want: Want<'_>, held: &Held<P>) -> bool {
        let node = held.node();
        let mut vain = 0;
        loop {
            // It runs: no thread need yield to it.
            self.lift(WAKE_IN_FLIGHT);
            let mut budget = P::Spin::fresh();
            loop {
                let Err(seen) = self.enter(want, true) else { return true };
                if seen & HEAD_WAITING == 0 && self.bars(want, seen, vain) {
                    // Relaxed: it carries nothing.
                    self.word.fetch_or(HEAD_WAITING, Relaxed);
                    count::<P>(Event::Barring);
                }
                if self.is_displaced(seen) || !budget.spin() {
                    break;
                }
            }
            if want.expired::<P>() {
                return false;
            }
            // The first time others may pass: one of the readers inside may have lost its CPU, and a thread
            // that has one had better use it than wait with us.
            let briefly = vain == 0 && want.preference == Preference::PhaseFair && want.mode != Mode::Reader;
            if briefly {
                self.word.fetch_and(!HEAD_WAITING, Relaxed);
            }
            node.state.store(state::SLEEPING, Relaxed);
            // DUTY. Release: our waker finds that we sleep. Acquire: `entered` may be true of what it
            // returns.
            let seen = self.word.fetch_or(PARKED, AcqRel);
            if want.entered(seen, true).is_none() && !want.is_to_drain(seen) {
                count::<P>(Event::HeadSleep);
                // PRIORITY.
                if self.list(want.mode).load(Relaxed) != held.id.raw() {
                    self.step_down(want.mode, held);
                }
                if briefly {
                    P::wait(&node.state, state::SLEEPING, LOOK_AFTER);
                } else if !self.sleep(want, node) {
                    return false;
                }
            }
            // PRIORITY: it was not woken, so others may have gone before it meanwhile; then it waits to be
            // woken.
            if node.state.load(Acquire) == state::SLEEPING
                && !self.is_head_still(held)
                && !self.sleep(want, node)
            {
                return false;
            }
            vain = vain.saturating_add(1);
        }
    }

    /// Whether the head keeps others out: a writer the readers, and any head that has waited in vain for too
    /// long.
    fn bars(&self, want: Want<'_>, seen: u32, vain: u32) -> bool {
        let sharing = want.mode == Mode::Writer && seen & WRITER == 0;
        sharing && want.preference != Preference::ReaderPreferring
            || vain >= P::tuning::<Tuning>().handoff_after
    }

    fn list(&self, mode: Mode) -> &P::U32 {
        match mode {
            Mode::Reader => &self.readers,
            Mode::Upgradable | Mode::Writer => &self.writers,
        }
    }

    /// Takes a waiter out of the queue, and passes headship on if it has that. Returns whom to wake. Under
    /// the wait lock.
    fn withdraw(&self, want: Want<'_>, id: NodeId, entered: bool) -> Option<&'static Node<P>> {
        list::remove::<P>(self.list(want.mode), id);
        if self.head.load(Relaxed) != id.raw() {
            return None;
        }
        // A thread that has entered cleared both as it did so, awake; and no thread wakes a head that is
        // awake.
        if !entered {
            self.lift(HEAD_WAITING | WAKE_IN_FLIGHT);
        }
        let wrote = entered && want.mode == Mode::Writer;
        if wrote {
            self.phase.store(self.phase.load(Relaxed).wrapping_add(1), Relaxed);
        }
        let next = self.next(want.preference, wrote);
        self.head.store(next.map_or(0, |(id, _)| id.raw()), Relaxed);
        let (id, mode) = next?;
        let node = id.get::<P>();
        // It could do nothing yet: the thread that lets it in wakes it.
        let waits =
            wrote || entered && mode != Mode::Reader && want.preference == Preference::ReaderPreferring;
        if waits && node.state.compare_exchange(state::IDLE, state::HEAD, Release, Relaxed).is_err() {
            // DUTY, for it. No thread can have left it the lock since it fell asleep: we are inside, and look
            // at the word as we leave.
            self.word.fetch_or(PARKED, AcqRel);
            return None;
        }
        if waits { None } else { self.rouse_head(node) }
    }

    /// The next head, after a writer has entered, or another thread. Under the wait lock.
    fn next(&self, preference: Preference, wrote: bool) -> Option<(NodeId, Mode)> {
        let reader = list::first::<P>(&self.readers).map(|id| (id, Mode::Reader));
        let writer = list::first::<P>(&self.writers).map(|id| (id, Mode::Writer));
        let readers_first = match preference {
            Preference::ReaderPreferring => true,
            Preference::WriterPreferring => false,
            // Of the readers, those that came before the last writer left.
            Preference::PhaseFair => {
                wrote
                    || reader.is_some_and(|(id, _)| {
                        id.get::<P>().phase().load(Relaxed) != self.phase.load(Relaxed)
                    })
            }
        };
        if readers_first { reader.or(writer) } else { writer.or(reader) }
    }

    /// Makes a waiter look again, or makes it the head. Returns it if it sleeps, and the caller has to wake
    /// it. Under the wait lock.
    fn rouse(node: &'static Node<P>) -> Option<&'static Node<P>> {
        (node.state.swap(state::HEAD, Release) == state::SLEEPING).then_some(node)
    }

    /// As [`Self::rouse`], of the queue head.
    fn rouse_head(&self, node: &'static Node<P>) -> Option<&'static Node<P>> {
        if node.state.load(Relaxed) == state::SLEEPING {
            // Before it looks, and clears it. Relaxed: it carries nothing.
            self.word.fetch_or(WAKE_IN_FLIGHT, Relaxed);
        }
        Self::rouse(node)
    }

    /// Clears bits that carry nothing. A thread sees those that it has set, and under the wait lock those
    /// that were set there.
    fn lift(&self, bits: u32) {
        if self.word.load(Relaxed) & bits != 0 {
            self.word.fetch_and(!bits, Relaxed);
        }
    }

    /// Makes the threads look again of which `PARKED` speaks.
    fn call(&self) -> Called<P> {
        self.renew();
        wait_lock::lock::<P>(&self.wait_lock);
        // Acquire: partner of the release that set it. What it published before is there.
        self.word.fetch_and(!PARKED, Acquire);
        let sleeper = |word: &P::U32| NodeId::from_raw(word.load(Relaxed)).map(NodeId::get);
        let head = sleeper(&self.head).and_then(|node| self.rouse_head(node));
        let upgrader = sleeper(&self.upgrader).and_then(Self::rouse);
        wait_lock::unlock::<P>(&self.wait_lock);
        Called([head, upgrader])
    }

    /// Gives up `take` of the word for `put`. False, and nothing is given up, if that is a reader and there
    /// is none in the word.
    #[cold]
    #[inline(never)]
    fn leave(&self, take: u32, put: u32) -> bool {
        let mut called = Called::<P>::default();
        let mut seen = self.word.load(Relaxed);
        loop {
            if take == 1 && seen & READERS == 0 {
                // The reader is in the table, or another has left for it.
                called.wake();
                return false;
            }
            let left = seen - take + put;
            // A reader that leaves others behind can let in only the upgrader.
            let lets_in = take != 1 || left & READERS <= u32::from(left & UPGRADING != 0);
            if seen & PARKED != 0 && lets_in {
                // The earlier ones, if a thread fell asleep again in between.
                core::mem::replace(&mut called, self.call()).wake();
                seen = self.word.load(Relaxed);
                continue;
            }
            // LAST TOUCH.
            match self.word.compare_exchange(seen, left, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        called.wake();
        if seen & WAKE_IN_FLIGHT != 0 && put == 0 {
            Self::yield_slice();
        }
        true
    }

    /// Yields to the queue head that has no CPU yet, if the calling thread, which has left, has been at it
    /// for long.
    fn yield_slice() {
        let Some(index) = P::current() else { return };
        let record = P::record(index);
        let Tuning { leavings_a_slice_check, slice, .. } = P::tuning();
        if record.leaves_often(leavings_a_slice_check) && record.ends_slice(slice) {
            record.rests();
            P::yield_now();
        }
    }

    /// FORKS.
    #[inline]
    fn renew(&self) {
        wait_lock::renew::<P>(&self.wait_lock, 0, || {
            for word in [&self.head, &self.readers, &self.writers, &self.upgrader] {
                word.store(0, Relaxed);
            }
            self.word.fetch_and(!(HEAD_WAITING | PARKED | WAKE_IN_FLIGHT | UPGRADING), Relaxed);
            // Who drained it is not here: to be done from the start.
            let _ =
                self.word.update(Relaxed, |seen| (seen & DRAINING != 0).then_some(seen & !DRAINING | BIASED));
        });
    }
}

/// Sleepers that have been told to look again and are still to be woken: the queue head, and the one that
/// upgrades.
#[must_use]
struct Called<P: Platform>([Option<&'static Node<P>>; 2]);

impl<P: Platform> Default for Called<P> {
    fn default() -> Self {
        Called([None, None])
    }
}

impl<P: Platform> Called<P> {
    fn wake(self) {
        for node in self.0.into_iter().flatten() {
            P::wake(&node.state, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(mode: Mode, preference: Preference) -> Want<'static> {
        Want { mode, preference, deadline: None }
    }

    #[test]
    fn who_excludes_whom() {
        use Preference::*;
        for preference in [PhaseFair, ReaderPreferring, WriterPreferring] {
            let [reader, upgradable, writer] =
                [Mode::Reader, Mode::Upgradable, Mode::Writer].map(|mode| want(mode, preference));
            for head in [false, true] {
                assert_eq!(reader.entered(0, head), Some(1));
                assert_eq!(reader.entered(1 | UPGRADABLE, head), Some(2 | UPGRADABLE));
                assert_eq!(reader.entered(WRITER, head), None);
                assert_eq!(reader.entered(FULL, head), None);
                assert_eq!(reader.entered(1 | UPGRADING, head).is_some(), preference == ReaderPreferring);
                assert_eq!(upgradable.entered(1, head), Some(2 | UPGRADABLE));
                assert_eq!(upgradable.entered(1 | UPGRADABLE, head), None);
                assert_eq!(writer.entered(0, head), Some(WRITER));
                assert_eq!(writer.entered(1, head), None);
                assert_eq!(writer.entered(HEAD_WAITING | PARKED, head), head.then_some(WRITER));
            }
            assert_eq!(reader.entered(HEAD_WAITING, false).is_some(), preference == ReaderPreferring);
            assert_eq!(reader.entered(1 | PARKED | HEAD_WAITING, true), Some(2));
        }
    }

    #[test]
    fn a_sleeping_upgrader_is_not_forgotten_when_the_head_enters() {
        let reader = want(Mode::Reader, Preference::ReaderPreferring);
        let word = 2 | UPGRADABLE | UPGRADING | PARKED;
        assert_eq!(reader.entered(word, true), Some(word + 1));
    }
}
