//! Semaphore arrays with System V semantics, in memory that processes share.
//!
//! The semantics are those of `semop(2)` and `semctl(2)`: up to 500 operations on one array are applied all
//! or none, a caller sleeps until they can be, and adjustments undo what a process did when it ends.
//!
//! An array is a slice of words ([`Layout`]), addressed by offset, so that every process may map it where it
//! likes. Everything in it is changed under the array's lock, whose word names the process that holds it. The
//! proof names the invariants that the sources cite: JOURNAL, TAKE OVER, RUNNABLE, ONE WAKER, LOOKING and
//! SENTINEL.
//!
//! Proof: docs/SEMARRAY.md
//! Models: crates/model/tests/models/semarray.rs, crates/model/tests/semarray/main.rs
//! Stress: tests/dropin/semarray_crash.c, tests/dropin/semarray_differ.c, crates/torture/csrc/arrays.c

mod audit;
mod host;
mod journal;
mod layout;
mod lock;
mod queue;
mod recover;
mod sleep;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use audit::Audit;
pub use host::{Host, Process, Word};
pub use layout::Layout;
use layout::{semaphore, undo};
use lock::Locked;
use queue::Operations;

use crate::events::Observer;
use crate::platform::Atomic;

/// Semaphores that an array may have.
pub const MOST_SEMAPHORES: u32 = 32_000;
/// Operations in one call.
pub const MOST_OPERATIONS: usize = 500;
/// The greatest value of a semaphore, and of an adjustment.
pub const MOST_VALUE: u32 = 32_767;

/// One operation on one semaphore; laid out as C's `struct sembuf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Op {
    /// Which semaphore.
    pub num: u16,
    /// What is added to its value; 0 waits until that is 0.
    pub change: i16,
    /// [`Op::NOWAIT`], [`Op::UNDO`].
    pub flags: i16,
}

impl Op {
    /// If this operation would have to wait, the call fails instead.
    pub const NOWAIT: i16 = 0o4000;
    /// The change is undone when the process ends.
    pub const UNDO: i16 = 0x1000;
}

/// Why a call failed. In brackets, what System V calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No semaphore has that number (EFBIG).
    TooFar,
    /// It would have had to wait, or waited for as long as it may (EAGAIN).
    WouldBlock,
    /// The array was removed while the caller slept (EIDRM).
    Removed,
    /// A signal handler ran (EINTR); or the caller is a handler that interrupted a call of its own thread on
    /// this array.
    Interrupted,
    /// A value or an adjustment would leave its range (ERANGE).
    Range,
    /// No memory for a sleeper or an adjustment (ENOMEM).
    NoMemory,
    /// The table of processes or that of adjustments is full (ENOSPC).
    NoSpace,
    /// The array was removed before the call (EINVAL).
    Gone,
    /// A number or value that makes no sense (EINVAL).
    Invalid,
}

/// How an array works. Users choose it (`POUNDLOCK_SEMAPHORES=ours,combining`), and every process that opens
/// an array must be able to work as its maker chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Scheme {
    /// One pass, wake-ups after the lock, the lock on its own cache line.
    #[default]
    After = 0,
    /// Starts again after every sleeper that could proceed, wakes inside the lock, shares the lock's line.
    Before = 1,
    /// As `After`, but a thread that finds the lock taken leaves its request in a list that the holder
    /// serves.
    Combining = 2,
    /// As `After`, with the lock on the line that every operation writes.
    SharedLine = 3,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Scheme; 4] = [Self::After, Self::Before, Self::Combining, Self::SharedLine];

    /// The name by which people choose it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::After => "after",
            Self::Before => "before",
            Self::Combining => "combining",
            Self::SharedLine => "shared-line",
        }
    }

    /// The scheme of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    const fn shares_line(self) -> bool {
        matches!(self, Self::Before | Self::SharedLine)
    }
}

/// An array's owner, and its rights. Kept here, judged elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The key under which it was made; 0: private.
    pub key: i32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its maker.
    pub cuid: u32,
    /// Its maker's group.
    pub cgid: u32,
    /// Permission bits.
    pub mode: u32,
}

/// When an array was last used: seconds of wall-clock time, 0 for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Operations.
    pub operated: u64,
    /// Values or settings set.
    pub changed: u64,
}

/// What happened to an array's lock, as the statistics of the series of 2010 tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Nanoseconds since the array was made.
    pub lifetime_ns: u64,
    /// Acquisitions of the lock that found it free.
    pub free: u64,
    /// ... that did not.
    pub contended: u64,
    /// Nanoseconds that those spun.
    pub spun_ns: u64,
    /// How many of those slept.
    pub slept: u64,
    /// Calls that slept for their semaphores.
    pub sleeps: u64,
    /// Sleepers woken.
    pub wakes: u64,
    /// Requests that the holder of the lock served for others (combining).
    pub served: u64,
    /// Locks taken over from processes that were gone.
    pub recoveries: u64,
}

/// An array: a view of its memory.
pub struct Array<'a, H: Host> {
    words: &'a [Word<H>],
    layout: Layout,
    scheme: Scheme,
}

impl<H: Host> Clone for Array<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Array<'_, H> {}

impl<'a, H: Host> Array<'a, H> {
    /// Makes an array of `semaphores` zeros (1 to [`MOST_SEMAPHORES`]) in memory of [`Layout::words`] words,
    /// whose [`Layout::initial`] ones are there, and zero; no other process uses it yet.
    ///
    /// `None`: the number or the length does not fit.
    pub fn format(
        words: &'a [Word<H>],
        semaphores: u32,
        scheme: Scheme,
        settings: &Settings,
    ) -> Option<Self> {
        let layout = Layout::new(semaphores, scheme);
        if semaphores == 0 || semaphores > MOST_SEMAPHORES || words.len() < layout.words() {
            return None;
        }
        let array = Self { words, layout, scheme };
        let now = H::Platform::now();
        for (at, value) in [
            (layout::VERSION, layout::VERSION_VALUE),
            (layout::SEMAPHORES, semaphores),
            (layout::SCHEME, scheme as u32),
            (layout::KEY, settings.key.cast_unsigned()),
            (layout::CUID, settings.cuid),
            (layout::CGID, settings.cgid),
            (layout::UID, settings.uid),
            (layout::GID, settings.gid),
            (layout::MODE, settings.mode),
        ] {
            array.at(at).store(value, Relaxed);
        }
        array.store_wide(layout::BORN, now);
        array.store_wide(layout::CHANGED, H::seconds());
        // Release: a process that sees the magic number sees the rest.
        array.at(layout::MAGIC).store(layout::MAGIC_VALUE, Release);
        Some(array)
    }

    /// The array in this memory; `None` if it is none of this version, or the memory is too short.
    pub fn open(words: &'a [Word<H>]) -> Option<Self> {
        let semaphores = words.get(layout::SEMAPHORES)?;
        if words.get(layout::MAGIC)?.load(Acquire) != layout::MAGIC_VALUE
            || words.get(layout::VERSION)?.load(Relaxed) != layout::VERSION_VALUE
        {
            return None;
        }
        let semaphores = semaphores.load(Relaxed);
        let scheme = words.get(layout::SCHEME)?.load(Relaxed);
        let scheme = Scheme::ALL.into_iter().find(|known| *known as u32 == scheme)?;
        let layout = Layout::new(semaphores, scheme);
        let fits = (1..=MOST_SEMAPHORES).contains(&semaphores) && words.len() >= layout.words();
        fits.then_some(Self { words, layout, scheme })
    }

    /// How many semaphores it has.
    pub fn semaphores(&self) -> u32 {
        self.layout.semaphores as u32
    }

    /// How it works.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Applies the operations, all or none, and sleeps until that is possible: for `patience` nanoseconds, or
    /// for as long as it takes. First come, first served among those that can be served.
    ///
    /// What an operation that changes a semaphore did happens before the return of the calls that it let
    /// proceed. Not async-signal-safe with respect to itself: a handler that interrupted the same thread in a
    /// call on the same array may get [`Error::Interrupted`] at once.
    ///
    /// # Errors
    /// All but [`Error::Invalid`], which is returned for no operations at all or more than
    /// [`MOST_OPERATIONS`].
    pub fn operate(&self, operations: &[Op], patience: Option<u64>) -> Result<(), Error> {
        if operations.is_empty() || operations.len() > MOST_OPERATIONS {
            return Err(Error::Invalid);
        }
        if operations.iter().any(|operation| usize::from(operation.num) >= self.layout.semaphores) {
            return Err(Error::TooFar);
        }
        if self.scheme == Scheme::Combining {
            return self.operate_combining(operations, patience);
        }
        let locked = self.lock()?;
        self.operate_locked(locked, operations, patience)
    }

    /// Calls `each` with every semaphore's number and value, at one moment: under the lock, so it must be
    /// short and not use the array.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::NoSpace`], [`Error::Interrupted`].
    pub fn values(&self, mut each: impl FnMut(u32, u32)) -> Result<(), Error> {
        self.under_lock(|locked| {
            for num in 0..self.layout.semaphores {
                each(num as u32, locked.value(num));
            }
            Ok(())
        })
    }

    /// A semaphore's value.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that there is not, and those of [`Array::values`].
    pub fn value(&self, num: u32) -> Result<u32, Error> {
        self.of_semaphore(num, |locked, num| locked.value(num))
    }

    /// The process that last used a semaphore; 0 for none.
    ///
    /// # Errors
    /// As [`Array::value`].
    pub fn last_process(&self, num: u32) -> Result<u32, Error> {
        self.of_semaphore(num, |locked, num| locked.load(queue::semaphore_at(num) + semaphore::PROCESS))
    }

    /// How many sleep because a semaphore's value is too small.
    ///
    /// # Errors
    /// As [`Array::value`].
    pub fn waiting_for_increase(&self, num: u32) -> Result<u32, Error> {
        self.of_semaphore(num, |locked, num| locked.count_sleepers(num, false))
    }

    /// How many sleep because a semaphore is not zero.
    ///
    /// # Errors
    /// As [`Array::value`].
    pub fn waiting_for_zero(&self, num: u32) -> Result<u32, Error> {
        self.of_semaphore(num, |locked, num| locked.count_sleepers(num, true))
    }

    /// Sets a semaphore and forgets all adjustments of it.
    ///
    /// # Errors
    /// [`Error::Range`] for a value above [`MOST_VALUE`], and those of [`Array::value`].
    pub fn set_value(&self, num: u32, value: u32) -> Result<(), Error> {
        if num as usize >= self.layout.semaphores {
            return Err(Error::Invalid);
        }
        if value > MOST_VALUE {
            return Err(Error::Range);
        }
        self.under_lock(|locked| {
            locked.at(layout::STAGED_VALUE).store(value, Release);
            locked.set_staged(num + 1);
            Ok(())
        })
    }

    /// Sets every semaphore to what `value` says for its number, and forgets all adjustments. `value` is
    /// called under the lock.
    ///
    /// # Errors
    /// [`Error::Range`] if a value is above [`MOST_VALUE`]; then nothing is set. And those of
    /// [`Array::values`].
    pub fn set_values(&self, mut value: impl FnMut(u32) -> u32) -> Result<(), Error> {
        if !self.provide(self.layout.staging, self.layout.semaphores) {
            return Err(Error::NoMemory);
        }
        self.under_lock(|locked| {
            for num in 0..self.layout.semaphores {
                let value = value(num as u32);
                if value > MOST_VALUE {
                    return Err(Error::Range);
                }
                locked.at(self.layout.staging + num).store(value, Release);
            }
            locked.set_staged(layout::STAGED_ALL);
            Ok(())
        })
    }

    /// Whose it is.
    pub fn settings(&self) -> Settings {
        Settings {
            key: self.load(layout::KEY).cast_signed(),
            uid: self.load(layout::UID),
            gid: self.load(layout::GID),
            cuid: self.load(layout::CUID),
            cgid: self.load(layout::CGID),
            mode: self.load(layout::MODE),
        }
    }

    /// A number that changes with every [`Array::set`].
    pub fn settings_count(&self) -> u32 {
        self.at(layout::SETTINGS).load(Acquire)
    }

    /// Gives it another owner and mode.
    ///
    /// # Errors
    /// Those of [`Array::values`].
    pub fn set(&self, uid: u32, gid: u32, mode: u32) -> Result<(), Error> {
        self.under_lock(|locked| {
            locked.set(layout::UID, uid);
            locked.set(layout::GID, gid);
            locked.set(layout::MODE, mode);
            locked.set(layout::SETTINGS, locked.load(layout::SETTINGS).wrapping_add(1));
            locked.commit();
            self.store_wide(layout::CHANGED, H::seconds());
            Ok(())
        })
    }

    /// When it was last used.
    pub fn times(&self) -> Times {
        Times { operated: self.load_wide(layout::OPERATED), changed: self.load_wide(layout::CHANGED) }
    }

    /// Removes the array: every sleeper wakes and finds it gone. The memory stays until no process uses it
    /// any more.
    ///
    /// # Errors
    /// Those of [`Array::values`].
    pub fn remove(&self) -> Result<Report, Error> {
        self.under_lock(|locked| {
            // One store commits; a process that takes over goes on from there.
            locked.at(layout::REMOVED).store(1, Release);
            locked.refuse_everybody();
            Ok(self.report())
        })
    }

    /// Whether it has been removed.
    pub fn is_removed(&self) -> bool {
        self.at(layout::REMOVED).load(Acquire) != 0
    }

    /// The statistics of its lock. Not of one moment if others use it meanwhile.
    pub fn report(&self) -> Report {
        Report {
            lifetime_ns: H::Platform::now().saturating_sub(self.load_wide(layout::BORN)),
            free: self.load_wide(layout::FREE),
            contended: self.load_wide(layout::CONTENDED),
            spun_ns: self.load_wide(layout::SPUN),
            slept: self.load_wide(layout::SLEPT),
            sleeps: self.load_wide(layout::SLEEPS),
            wakes: self.load_wide(layout::WAKES),
            served: self.load_wide(layout::SERVED),
            recoveries: u64::from(self.load(layout::RECOVERIES)),
        }
    }

    /// How many sleep at the array, for any reason.
    pub fn sleepers(&self) -> u32 {
        self.load(layout::SLEEPERS)
    }

    /// Calls `each` with the number of every process whose end would give back what it has taken from a semaphore, and
    /// how much that is. For who looks on: without the lock, so of a change that is under way a part may be seen.
    pub fn holders(&self, num: u32, mut each: impl FnMut(u32, u32)) {
        if num as usize >= self.layout.semaphores {
            return;
        }
        for index in 0..self.load(layout::UNDO_HIGH).min(self.layout.undo_count as u32) {
            let slot = self.undo_slot(index);
            let taken = self.load(slot + undo::ADJUSTMENTS + num as usize).cast_signed();
            if taken > 0 && self.load(slot + undo::OWNER) != 0 {
                each(self.load(slot + undo::PROCESS), taken.unsigned_abs());
            }
        }
    }

    /// That process is gone: drops its sleepers, applies its adjustments, and takes the lock from it.
    /// Harmless if there is nothing to do, or if it was done; also on a removed array.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Interrupted`]: nothing was done.
    pub fn reap(&self, slot: u32) -> Result<(), Error> {
        let locked = self.lock()?;
        locked.reap(slot);
        locked.release();
        Ok(())
    }

    /// The calling process ends in order: applies its adjustments now. Not if threads of it sleep here, which
    /// end with it and are to get nothing of what it gives back: then it is left to be found gone.
    ///
    /// # Errors
    /// As [`Array::reap`].
    pub fn leave(&self) -> Result<(), Error> {
        let locked = self.lock()?;
        let slot = locked.me.slot;
        if !locked.has_sleepers(slot) {
            locked.apply_adjustments(slot);
        }
        locked.release();
        Ok(())
    }

    fn of_semaphore(&self, num: u32, ask: impl FnOnce(&Locked<'_, H>, usize) -> u32) -> Result<u32, Error> {
        if num as usize >= self.layout.semaphores {
            return Err(Error::Invalid);
        }
        self.under_lock(|locked| Ok(ask(locked, num as usize)))
    }

    /// Calls `work` with the lock held and the dead reaped, unless the array was removed.
    fn under_lock<T>(&self, work: impl FnOnce(&Locked<'_, H>) -> Result<T, Error>) -> Result<T, Error> {
        let locked = self.lock()?;
        let result = if locked.load(layout::REMOVED) != 0 {
            Err(Error::Gone)
        } else {
            locked.reap_dead();
            work(&locked)
        };
        locked.release();
        result
    }

    /// The word there. An offset beyond the end, which only a process that overwrote the array can have
    /// caused, is another word of it.
    #[inline(always)]
    fn at(&self, offset: usize) -> &Word<H> {
        let offset = if offset < self.words.len() { offset } else { layout::LARGE_HIGH };
        // SAFETY: `format` and `open` have found at least `Layout::words` words, more than the constant.
        unsafe { self.words.get_unchecked(offset) }
    }

    #[inline(always)]
    fn load(&self, at: usize) -> u32 {
        self.at(at).load(Relaxed)
    }

    /// See [`Host::provide`].
    fn provide(&self, first: usize, count: usize) -> bool {
        self.words.get(first..first + count).is_some_and(H::provide)
    }

    /// Two words as one number, the low half first. Written under the lock only.
    fn load_wide(&self, at: usize) -> u64 {
        u64::from(self.load(at)) | u64::from(self.load(at + 1)) << 32
    }

    /// Writes what [`Self::load_wide`] reads. Under the lock.
    fn store_wide(&self, at: usize, value: u64) {
        self.at(at).store(value as u32, Relaxed);
        let high = (value >> 32) as u32;
        if self.load(at + 1) != high {
            self.at(at + 1).store(high, Relaxed);
        }
    }

    /// Adds to a counter. Under the lock.
    #[inline]
    fn add_wide(&self, at: usize, value: u64) {
        self.store_wide(at, self.load_wide(at).wrapping_add(value));
    }
}

impl Operations for [Op] {
    fn count(&self) -> usize {
        self.len()
    }
    fn get(&self, index: usize) -> Op {
        <[Op]>::get(self, index).copied().unwrap_or_default()
    }
}
