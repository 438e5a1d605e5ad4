//! Our state inside the program's objects.
//!
//! A `pthread_mutex_t` is 40 bytes (on aarch64 8 more, which nobody uses), of which glibc's static
//! initialisers set one word, the kind, at offset 16; zero bytes elsewhere are an unlocked mutex, for glibc and
//! for us. Its kind stays where glibc has it, so that functions which we do not export
//! (`pthread_mutex_consistent`, `pthread_mutex_getprioceiling`, ...) still understand the object.
//!
//! A `pthread_cond_t` is 48 bytes, zero in the static initialiser. Our words are at its start, and a mark is
//! in its last word, which glibc uses last of all: see [`Cond`].

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use poundlock_core::adaptive::RawAdaptive;
use poundlock_core::condvar::{RawCondvar, Requeued, Target};
use poundlock_core::handoff::RawHandoff;
use poundlock_core::platform::Deadline;
use poundlock_core::poundlock::RawPoundlock;
use poundlock_linux::{Linux, registry};
use poundlock_statfile::LockKind;
use poundlock_statfile::check::Wrong;
use poundlock_statfile::writer::LockRef;

use crate::mode::{self, Chosen, Sort};
use crate::stat;

/// An object of the program's.
///
/// # Safety
/// It is made of 32-bit atomics.
pub(crate) unsafe trait Object: Sized {
    #[inline(always)]
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: the implementation's.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>() / 4) }
    }
}

// SAFETY: see their fields.
unsafe impl Object for Mutex {}
// SAFETY: as above.
unsafe impl Object for Cond {}

/// A `pthread_mutex_t` (and a `mtx_t`).
#[repr(C)]
pub(crate) struct Mutex {
    /// Recursive and error-checking ones: the identity of the thread that holds it, else 0. Written by that
    /// thread only. Others read it to learn that they are not the owner; any value but their own tells them.
    pub(crate) owner: AtomicU32,
    /// Recursive ones: how often the owner has it. Accessed by the owner only.
    pub(crate) depth: AtomicU32,
    /// Counted programs on our locks: the lock's slot in the statistics.
    stat: AtomicU32,
    /// How many threads wait on a condition variable with it, or are about to take it again afterwards.
    /// Changed by its holder. A forked child has its parent's count, as it has glibc's count of users, which
    /// lies here.
    pub(crate) waiters: AtomicU32,
    /// glibc's kind: type, flags, all ones once destroyed.
    kind: AtomicU32,
    /// The lock, if it is the adaptive one. Otherwise ([`mode::sort`]) the same bytes are a [`RawPoundlock`]
    /// or a [`RawHandoff`].
    pub(crate) raw: RawAdaptive<Linux>,
}

const _: () = {
    assert!(size_of::<Mutex>() == 40);
    assert!(size_of::<libc::pthread_mutex_t>() == if cfg!(target_arch = "aarch64") { 48 } else { 40 });
    assert!(core::mem::offset_of!(Mutex, kind) == 16);
    assert!(core::mem::offset_of!(Mutex, raw) == 20);
    assert!(size_of::<RawHandoff<Linux>>() == size_of::<RawAdaptive<Linux>>());
    assert!(size_of::<RawPoundlock<Linux>>() == size_of::<RawAdaptive<Linux>>());
    assert!(align_of::<RawPoundlock<Linux>>() <= align_of::<RawAdaptive<Linux>>());
    assert!(align_of::<RawHandoff<Linux>>() <= align_of::<RawAdaptive<Linux>>());
};

/// What a mutex is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No checks (also glibc's adaptive kind: ours all are).
    Plain,
    /// `PTHREAD_MUTEX_RECURSIVE`.
    Recursive,
    /// `PTHREAD_MUTEX_ERRORCHECK`.
    ErrorCheck,
    /// glibc's: robust, priority-inheriting, priority-protected, process-shared, destroyed, or unknown.
    Foreign,
}

impl Kind {
    /// Whether ours know who has it.
    #[inline(always)]
    pub(crate) fn has_owner(self) -> bool {
        matches!(self, Kind::Recursive | Kind::ErrorCheck)
    }
}

/// The bits of a kind that concern hardware lock elision only.
const ELISION: u32 = 0x300;
const RECURSIVE: u32 = libc::PTHREAD_MUTEX_RECURSIVE as u32;
const ERROR_CHECK: u32 = libc::PTHREAD_MUTEX_ERRORCHECK as u32;
/// `PTHREAD_MUTEX_ADAPTIVE_NP`.
const ADAPTIVE: u32 = 3;
const _: () = assert!(RECURSIVE | ERROR_CHECK == ADAPTIVE);
/// glibc's bits for foreign mutexes.
const ROBUST: u32 = 0x10;
const INHERITS: u32 = 0x20;
const PROTECTS: u32 = 0x40;
/// What glibc leaves in a destroyed mutex.
const DESTROYED: u32 = u32::MAX;

impl Mutex {
    #[inline(always)]
    pub(crate) fn handoff(&self) -> &RawHandoff<Linux> {
        // SAFETY: bytes of the object, as many and as aligned, made of 32-bit atomics, which any bytes are; a
        // process takes them for one of the three locks from its first call to its last.
        unsafe { &*core::ptr::from_ref(&self.raw).cast() }
    }

    #[inline(always)]
    pub(crate) fn poundlock(&self) -> &RawPoundlock<Linux> {
        // SAFETY: as above.
        unsafe { &*core::ptr::from_ref(&self.raw).cast() }
    }

    #[inline]
    pub(crate) fn lock(&self) {
        match mode::sort() {
            Sort::Adaptive | Sort::Glibc => self.raw.lock::<Chosen>(),
            Sort::Poundlock => self.poundlock().lock(),
            Sort::Handoff => self.handoff().lock::<Chosen>(),
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        match mode::sort() {
            Sort::Adaptive | Sort::Glibc => self.raw.try_lock(),
            Sort::Poundlock => self.poundlock().try_lock(),
            Sort::Handoff => self.handoff().try_lock(),
        }
    }

    pub(crate) fn lock_until(&self, deadline: &Deadline) -> bool {
        match mode::sort() {
            Sort::Adaptive | Sort::Glibc => self.raw.lock_until::<Chosen>(deadline).is_ok(),
            Sort::Poundlock => self.poundlock().lock_until(deadline).is_ok(),
            Sort::Handoff => self.handoff().lock_until::<Chosen>(deadline),
        }
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        match mode::sort() {
            Sort::Adaptive | Sort::Glibc => self.raw.unlock::<Chosen>(),
            Sort::Poundlock => self.poundlock().unlock(),
            Sort::Handoff => self.handoff().unlock(),
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        match mode::sort() {
            Sort::Adaptive | Sort::Glibc => self.raw.is_locked(),
            Sort::Poundlock => self.poundlock().is_locked(),
            Sort::Handoff => self.handoff().is_locked(),
        }
    }

    /// The lock as a condition variable needs it.
    pub(crate) fn target(&self) -> Target<'_, Linux> {
        match mode::sort() {
            Sort::Adaptive | Sort::Glibc => Target::Adaptive(&self.raw),
            Sort::Poundlock => Target::Poundlock(self.poundlock().words()),
            Sort::Handoff => Target::Handoff(self.handoff()),
        }
    }

    /// Completes the acquisition of [`Mutex::target`].
    pub(crate) fn acquire_requeued(&self, waiter: Requeued) {
        match mode::sort() {
            Sort::Adaptive | Sort::Glibc => waiter.lock::<Linux, Chosen>(&self.raw),
            Sort::Poundlock => waiter.barge(self.poundlock()),
            Sort::Handoff => waiter.receive(self.handoff()),
        }
    }

    /// Of a mutex that knows its owner, after its acquisition: the caller has it, once.
    #[inline(always)]
    pub(crate) fn own(&self, own: u32) {
        self.owner.store(own, Relaxed);
        self.depth.store(1, Relaxed);
    }

    /// Whether it is of the kind that has no checks, as all are but those that a program initialised
    /// statically as another: the fast paths' question. Else [`Mutex::kind`] tells.
    #[inline(always)]
    pub(crate) fn is_default(&self) -> bool {
        self.kind.load(Relaxed) == 0
    }

    /// Whether it is of the kind that has no checks, whatever elision's bits are.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.kind.load(Relaxed) & !ELISION == 0
    }

    #[inline(always)]
    pub(crate) fn is_native(&self) -> bool {
        self.kind.load(Relaxed) & !(ELISION | RECURSIVE | ERROR_CHECK) == 0
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self.kind.load(Relaxed) & !ELISION {
            0 | ADAPTIVE => Kind::Plain,
            RECURSIVE => Kind::Recursive,
            ERROR_CHECK => Kind::ErrorCheck,
            _ => Kind::Foreign,
        }
    }

    /// Whether the calls on it are ours to answer.
    pub(crate) fn is_ours(&self) -> bool {
        !crate::mode::get().glibc() && self.kind() != Kind::Foreign
    }

    pub(crate) fn init(&self, recursive: bool) {
        self.words().iter().for_each(|word| word.store(0, Relaxed));
        self.kind.store(if recursive { RECURSIVE } else { 0 }, Relaxed);
    }

    /// Of one that glibc has initialised: makes a mutex without checks the default one, which fast paths look
    /// for first. glibc marks those of `PTHREAD_MUTEX_NORMAL`, for elision; and ours are all adaptive.
    pub(crate) fn simplify(&self) {
        if self.kind() == Kind::Plain {
            self.kind.store(0, Relaxed);
        }
    }

    /// Makes every later call on it an error, as glibc does.
    pub(crate) fn destroy(&self) {
        self.kind.store(DESTROYED, Relaxed);
    }

    /// What is wrong with its bytes, if they are none that a mutex has, ours or glibc's.
    #[inline]
    pub(crate) fn wrong(&self, glibc: bool) -> Option<Wrong> {
        /// glibc's bit for mutexes that processes share.
        const SHARED: u32 = 0x80;
        /// Above these bits a mutex that is protected by a priority has that.
        const CEILING: u32 = 0xfff8_0000;
        let kind = self.kind.load(Relaxed);
        if kind == DESTROYED {
            return Some(Wrong::Destroyed);
        }
        let ceiling = if kind & PROTECTS != 0 { CEILING } else { 0 };
        let odd = if kind & !(ADAPTIVE | ROBUST | INHERITS | PROTECTS | SHARED | ELISION | ceiling) != 0 {
            true
        } else if self.kind() != Kind::Plain {
            false
        } else if glibc {
            // A lock word, and a depth, which it does not use.
            self.words()[0].load(Relaxed) > 2 || self.words()[1].load(Relaxed) != 0
        } else {
            self.owner.load(Relaxed) != 0 || self.depth.load(Relaxed) != 0
        };
        odd.then_some(Wrong::Uninitialised)
    }

    /// As [`Mutex::is_locked`], of one that is glibc's, and not foreign.
    pub(crate) fn is_glibc_locked(&self) -> bool {
        self.words()[0].load(Relaxed) != 0
    }

    /// Whether the caller has it, of the kinds that know.
    pub(crate) fn is_callers(&self, glibc: bool) -> bool {
        if glibc {
            // SAFETY: always succeeds.
            let own = unsafe { libc::syscall(libc::SYS_gettid) };
            return self.words()[2].load(Relaxed) == own as u32;
        }
        self.owner.load(Relaxed) == registry::identity()
    }

    /// Whether a thread that has it may ask for it: it gets it again, or an error.
    pub(crate) fn allows_relock(&self) -> bool {
        let kind = self.kind.load(Relaxed);
        matches!(kind & ADAPTIVE, RECURSIVE | ERROR_CHECK) || kind & ROBUST != 0
    }

    /// Whether the caller, who holds it, holds it once. glibc counts a recursive mutex's depth where we do.
    pub(crate) fn is_outermost(&self) -> bool {
        self.kind() != Kind::Recursive || self.depth.load(Relaxed) == 1
    }

    /// The lock for the statistics, ours or glibc's. Its slot lies in ours where glibc keeps the owner's
    /// thread id, in glibc's in the links of the list of robust mutexes, which it does not use for others: in
    /// the first one, which is more often in the cache line of the lock.
    pub(crate) fn counted(&self, glibc: bool) -> LockRef<'_> {
        let word = if glibc { &self.words()[6] } else { &self.stat };
        LockRef { word, address: core::ptr::from_ref(self).addr(), kind: LockKind::Mutex, writers: None }
    }

    /// A foreign mutex for the statistics.
    pub(crate) fn counted_foreign(&self) -> LockRef<'static> {
        stat::at(core::ptr::from_ref(self).addr(), self.foreign_kind())
    }

    /// What sort of foreign mutex it is: the rarest of its properties.
    pub(crate) fn foreign_kind(&self) -> LockKind {
        let kind = self.kind.load(Relaxed);
        if kind & ROBUST != 0 {
            LockKind::RobustMutex
        } else if kind & (INHERITS | PROTECTS) != 0 {
            LockKind::PriorityMutex
        } else {
            LockKind::SharedMutex
        }
    }

    /// Whether an acquisition of this robust mutex is likely to wait: its first word has the owner's thread
    /// id, and a bit if that has died.
    pub(crate) fn would_wait(&self) -> bool {
        const OWNER_DIED: u32 = 1 << 30;
        const THREAD: u32 = OWNER_DIED - 1;
        let word = self.words()[0].load(Relaxed);
        if word & OWNER_DIED != 0 || word & THREAD == 0 {
            return false;
        }
        // SAFETY: always succeeds.
        let own = unsafe { libc::syscall(libc::SYS_gettid) };
        word & THREAD != own as u32
    }

    /// As [`Mutex::is_outermost`], of a foreign one, whose depth lies at the same place.
    pub(crate) fn is_outermost_foreign(&self) -> bool {
        self.kind.load(Relaxed) & ADAPTIVE != RECURSIVE || self.depth.load(Relaxed) == 1
    }
}

/// A `pthread_cond_t` (and a `cnd_t`): ours if its mark says so, unused if it is all zero, else glibc's.
///
/// That changes only in a wait, whose caller holds the mutex, and only without waiters: see [`crate::cond`].
/// Our words lie where glibc counts the waiters that have ever come. The words in which it looks for present
/// waiters, wherever this version of it has them, stay zero in ours. So a call of glibc's on one of ours,
/// from a thread that saw it before it was marked, finds no waiter and does nothing.
#[repr(C)]
pub(crate) struct Cond {
    /// The condition variable.
    pub(crate) raw: RawCondvar<Linux>,
    _zero: [AtomicU32; 9],
    mark: AtomicU32,
}

const _: () = {
    assert!(size_of::<Cond>() == 48 && size_of::<libc::pthread_cond_t>() == 48);
    assert!(core::mem::offset_of!(Cond, mark) == 44);
};

/// In the mark of ours. glibc counts signals in that word, two a signal, and resets it.
const OURS: u32 = 0x504c_4b00;
/// The mark of one that was destroyed, under check, whosever it was. Then the first word has its word in the
/// statistics.
const BURIED: u32 = 0x504c_4bd0;
/// In the mark of ours: the clock of timed waits is the monotonic one.
const MONOTONIC: u32 = 1;

impl Cond {
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        // Acquire, partner of the release in `init`: a signal without the mutex may come at any time, and must
        // not take what glibc had in our words for a list of waiters.
        self.mark.load(Acquire) & !MONOTONIC == OURS
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.words().iter().all(|word| word.load(Relaxed) == 0)
    }

    /// It was destroyed, and this was its word in the statistics.
    pub(crate) fn bury(&self, word: u32) {
        self.clear();
        self.words()[0].store(word, Relaxed);
        self.mark.store(BURIED, Relaxed);
    }

    /// Its word in the statistics, if it was destroyed and is not another one by now.
    pub(crate) fn buried(&self) -> Option<&AtomicU32> {
        (self.mark.load(Relaxed) == BURIED).then(|| &self.words()[0])
    }

    /// Whether its bytes are none that a condition variable has, ours or glibc's: in the latter the words from
    /// the fifth to the eighth count waiters and signals, in any version. Those that gave up are taken from a
    /// count before they are added to it.
    pub(crate) fn is_none(&self) -> bool {
        const MOST: u32 = 1 << 26;
        let count = MOST..MOST.wrapping_neg();
        !self.is_ours() && self.words()[4..8].iter().any(|word| count.contains(&word.load(Relaxed)))
    }

    /// Whether its timed waits use the monotonic clock; ours only.
    pub(crate) fn is_monotonic(&self) -> bool {
        self.mark.load(Relaxed) & MONOTONIC != 0
    }

    /// Makes it ours, unused.
    pub(crate) fn init(&self, monotonic: bool) {
        self.clear();
        self.mark.store(OURS | u32::from(monotonic), Release);
    }

    pub(crate) fn clear(&self) {
        self.words().iter().rev().for_each(|word| word.store(0, Relaxed));
    }

    pub(crate) fn word(&self, offset: usize) -> u32 {
        self.words().get(offset / 4).map_or(0, |word| word.load(Relaxed))
    }
}
