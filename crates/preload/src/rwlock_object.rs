//! Our state inside a `pthread_rwlock_t`.
//!
//! It is 56 bytes, of which glibc's static initialisers set one word, the kind, at offset 48; zero bytes
//! elsewhere are an unlocked lock, for glibc and for us. A lock that processes share has a word set at offset
//! 28, which tells that it is glibc's, whoever initialised it. Both words stay where glibc has them. Over the
//! latter lies the last word of our lock, which is zero in a lock that no thread upgrades, and pthread has no
//! upgrade.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use poundlock_core::platform::Deadline;
use poundlock_core::rwlock::{Preference, RawRwLock};
use poundlock_linux::{Linux, registry};
use poundlock_names::RwLocks;
use poundlock_statfile::LockKind;
use poundlock_statfile::writer::LockRef;

use crate::object::Object;
use crate::stat::{Manner, Mode};
use crate::{mode, stat};

/// A `pthread_rwlock_t`.
#[repr(C)]
pub(crate) struct RwLock {
    /// The lock.
    raw: RawRwLock<Linux>,
    /// The identity of the thread that holds it as the writer, else 0. Written by that thread only. Others
    /// read it to learn that they are not the writer; any value but their own tells them.
    writer: AtomicU32,
    unused: AtomicU32,
    /// Counted programs: the lock's slots in the statistics, for its readers and for its writers. glibc
    /// leaves these bytes alone.
    stat: [AtomicU32; 2],
    /// glibc's kind.
    kind: AtomicU32,
    padding: AtomicU32,
}

// SAFETY: see its fields.
unsafe impl Object for RwLock {}

/// glibc's words, by their offsets: whether processes share it, and who holds it as the writer.
const SHARED: usize = 28;
const GLIBC_WRITER: usize = 24;

const _: () = {
    assert!(size_of::<RwLock>() == 56 && size_of::<libc::pthread_rwlock_t>() == 56);
    // UPGRADER LAST.
    assert!(RawRwLock::<Linux>::UPGRADER_OFFSET == SHARED && offset_of!(RwLock, raw) == 0);
    assert!(offset_of!(RwLock, writer) == 32);
    assert!(offset_of!(RwLock, stat) == 40);
    assert!(offset_of!(RwLock, kind) == 48);
};

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`. All other kinds let readers in, in glibc too.
const PREFER_WRITER: u32 = 2;

/// How a thread holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// As one of its readers.
    Read,
    /// As the writer.
    Write,
}

impl RwLock {
    #[inline(always)]
    fn word(&self, offset: usize) -> u32 {
        self.words()[offset / 4].load(Relaxed)
    }

    /// Whether it is of this process alone: the others are glibc's.
    #[inline(always)]
    pub(crate) fn is_private(&self) -> bool {
        self.word(SHARED) == 0
    }

    /// Whether the calls on it are ours to answer.
    pub(crate) fn is_ours(&self) -> bool {
        mode::rwlocks() != RwLocks::Glibc && self.is_private()
    }

    pub(crate) fn init(&self) {
        self.words().iter().for_each(|word| word.store(0, Relaxed));
        self.raw.forget_readers();
    }

    /// Who comes next: by glibc's kinds, unless the program runs with another preference.
    fn policy(&self) -> Preference {
        if mode::rwlocks() == RwLocks::PhaseFair {
            Preference::PhaseFair
        } else if self.kind.load(Relaxed) == PREFER_WRITER {
            Preference::WriterPreferring
        } else {
            Preference::ReaderPreferring
        }
    }

    /// Acquires it as a reader if that is a single step.
    #[inline(always)]
    pub(crate) fn take_read(&self) -> bool {
        self.raw.take_read()
    }

    /// Acquires it as the writer if that is a single step, and the thread has an identity.
    #[inline(always)]
    pub(crate) fn take_write(&self) -> bool {
        let own = registry::known_identity();
        if own != 0 && self.raw.take_write() {
            self.writer.store(own, Relaxed);
            return true;
        }
        false
    }

    /// Releases it if that is a single step.
    #[inline(always)]
    pub(crate) fn give(&self) -> bool {
        // How the caller holds it, without a look at the word that the next step would have to wait for.
        if self.writer.load(Relaxed) == 0 {
            return self.raw.give_read();
        }
        self.writer.store(0, Relaxed);
        self.raw.give_write()
    }

    pub(crate) fn try_lock(&self, side: Side) -> bool {
        match side {
            Side::Read => self.raw.try_lock_read(self.policy()),
            Side::Write => self.raw.try_lock_write() && self.own(),
        }
    }

    pub(crate) fn lock(&self, side: Side) {
        match side {
            Side::Read => self.raw.lock_read(self.policy()),
            Side::Write => {
                self.raw.lock_write(self.policy());
                self.own();
            }
        }
    }

    pub(crate) fn lock_until(&self, side: Side, deadline: &Deadline) -> bool {
        match side {
            Side::Read => self.raw.lock_read_until(self.policy(), deadline),
            Side::Write => self.raw.lock_write_until(self.policy(), deadline) && self.own(),
        }
    }

    fn own(&self) -> bool {
        self.writer.store(registry::identity(), Relaxed);
        true
    }

    /// Releases it, in the way the caller holds it: a writer is alone. A free one stays free, as with glibc.
    pub(crate) fn unlock(&self) {
        if self.raw.is_write_locked() {
            // Before the release, so that a thread which finds itself here holds it.
            self.writer.store(0, Relaxed);
            self.raw.unlock_write();
        } else {
            self.raw.unlock_read();
        }
    }

    pub(crate) fn is_callers(&self) -> bool {
        self.writer.load(Relaxed) == registry::identity()
    }

    /// How the caller, which holds it, holds it; ours or glibc's.
    pub(crate) fn side(&self, ours: bool) -> Side {
        let writes = if ours { self.raw.is_write_locked() } else { self.word(GLIBC_WRITER) != 0 };
        if writes { Side::Write } else { Side::Read }
    }

    /// Whether its bytes are none that a readers-writer lock has, ours or glibc's.
    pub(crate) fn is_none(&self) -> bool {
        const KINDS: u32 = 3;
        self.kind.load(Relaxed) >= KINDS
            || self.word(SHARED) > 1
            || self.unused.load(Relaxed) != 0
            || self.padding.load(Relaxed) != 0
    }

    /// Whether anybody holds it; ours or glibc's.
    pub(crate) fn is_locked(&self, ours: bool) -> bool {
        if ours {
            return self.raw.is_locked();
        }
        // glibc's count of readers lies above three bits about its phases; a writer leaves its id.
        self.word(0) >> 3 != 0 || self.word(GLIBC_WRITER) != 0
    }

    /// How a thread that asks for it on this side holds it.
    pub(crate) fn manner(&self, side: Side) -> Manner {
        let mode = match side {
            Side::Write => Mode::Exclusive,
            Side::Read if self.is_ours() && self.policy() == Preference::ReaderPreferring => Mode::Read,
            Side::Read if !self.is_ours() && self.kind.load(Relaxed) != PREFER_WRITER => Mode::Read,
            Side::Read => Mode::FairRead,
        };
        Manner { mode, ..Manner::LOCK }
    }

    /// The lock for the statistics, which count its readers and its writers apart.
    pub(crate) fn counted(&self, side: Side) -> LockRef<'_> {
        let address = core::ptr::from_ref(self).addr();
        if !self.is_private() {
            let writers = stat::at(address + LockKind::WRITERS, LockKind::SharedRwWriters);
            return match side {
                Side::Read => {
                    LockRef { writers: Some(writers.word), ..stat::at(address, LockKind::SharedRwReaders) }
                }
                Side::Write => writers,
            };
        }
        self.counted_private(side)
    }

    /// As above, of one that is private, or none.
    pub(crate) fn counted_private(&self, side: Side) -> LockRef<'_> {
        let address = core::ptr::from_ref(self).addr();
        let [readers, writers] = &self.stat;
        match side {
            Side::Read => {
                LockRef { word: readers, address, kind: LockKind::RwReaders, writers: Some(writers) }
            }
            Side::Write => LockRef {
                word: writers,
                address: address + LockKind::WRITERS,
                kind: LockKind::RwWriters,
                writers: None,
            },
        }
    }
}
