//! A forked child keeps what its only thread held at the fork.
//!
//! The list of that is in the parent's file, which the parent goes on to write to. So the thread that forks
//! makes a copy in memory of the process's own before it does, and the child takes it from there when it makes
//! its own file. What other threads held stays with threads that the child does not have. Locks that
//! processes share stay the parent's alone ([`LockKind::is_inherited`]).

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use super::super::map::Map;
use super::super::sys::{self, Name};
use super::{held, locks, log};
use crate::layout::{self, Held, ON_STACK, Record, SHORT_LIST, meta_kind};
use crate::snapshot::LockKind;

/// As many threads may fork at a time and be seen.
const AT_ONCE: usize = 4;

/// Of what other threads hold so much is kept.
const OTHERS: usize = 512;

/// The copies.
pub(in crate::writer) struct Fork {
    /// What threads held that did not fork, just before the last fork.
    others: [Other; OTHERS],
    others_len: AtomicU32,
    copies: [Copy; AT_ONCE],
    /// In a child: one more than the number of the copy that is the child's, until it is taken.
    mine: AtomicU32,
    /// The child's thread.
    thread: AtomicU64,
}

/// A lock that a thread held which the child does not have.
struct Other {
    word: AtomicU32,
    /// The serial of the thread.
    thread: AtomicU32,
    stack: AtomicU32,
    mode: AtomicU32,
    /// Its id; 0 once it is named in the child's log.
    tid: AtomicU32,
    name: [AtomicU64; 2],
}

impl Other {
    const fn none() -> Other {
        Other {
            word: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            stack: AtomicU32::new(0),
            mode: AtomicU32::new(0),
            tid: AtomicU32::new(0),
            name: [const { AtomicU64::new(0) }; 2],
        }
    }
}

struct Copy {
    /// Of the thread with this record; null if the copy is nobody's.
    record: AtomicPtr<u8>,
    len: AtomicU32,
    held: [Held; SHORT_LIST],
}

impl Copy {
    const fn none() -> Copy {
        Copy {
            record: AtomicPtr::new(core::ptr::null_mut()),
            len: AtomicU32::new(0),
            held: [const { Held::new() }; SHORT_LIST],
        }
    }
}

impl Fork {
    pub(in crate::writer) const fn new() -> Fork {
        Fork {
            others: [const { Other::none() }; OTHERS],
            others_len: AtomicU32::new(0),
            copies: [const { Copy::none() }; AT_ONCE],
            mine: AtomicU32::new(0),
            thread: AtomicU64::new(0),
        }
    }

    /// Before a fork, by the thread with this record.
    pub(in crate::writer) fn prepare(&self, map: Map, record: &'static Record) {
        let own = core::ptr::from_ref(record).cast_mut().cast::<u8>();
        let free = self.copies.iter().find(|copy| {
            copy.record.load(Relaxed) == own
                || copy.record.compare_exchange(core::ptr::null_mut(), own, AcqRel, Relaxed).is_ok()
        });
        let Some(copy) = free else { return };
        let list = held::list(map, record);
        let used = list.iter().filter(|held| is_inherited(map, held.word.load(Relaxed)));
        let mut len = 0;
        for (from, to) in used.zip(&copy.held) {
            held::copy(from, to);
            len += 1;
        }
        copy.len.store(len, Release);
    }

    /// Before a fork: keeps what all others hold than the thread that forks, which has this record or
    /// none. Of two threads that fork at once, each child finds what one of them saw, and looks whether it has it
    /// itself.
    pub(in crate::writer) fn keep_others(&self, map: Map, own: *const Record) {
        let others = super::records(map)
            .filter(|record| record.state.load(Acquire) == layout::HELD && !core::ptr::eq(*record, own))
            .flat_map(|record| held::list(map, record).iter().map(move |held| (record, held)))
            .filter(|(_, held)| is_inherited(map, held.word.load(Acquire)));
        let mut len = 0;
        let mut named: (u32, Name) = (0, Name::default());
        for ((record, held), to) in others.zip(&self.others) {
            let tid = record.tid.load(Relaxed);
            if named.0 != tid {
                named = (tid, sys::name_of_thread(tid));
            }
            to.tid.store(tid, Relaxed);
            to.name.iter().zip(named.1).for_each(|(half, new)| half.store(new, Relaxed));
            to.thread.store(record.checked().serial.load(Relaxed), Relaxed);
            to.stack.store(held.stack.load(Relaxed), Relaxed);
            to.mode.store(held::mode(held), Relaxed);
            to.word.store(held.word.load(Relaxed), Relaxed);
            len += 1;
        }
        self.others_len.store(len, Release);
    }

    /// Who held this lock at the fork that this process comes from, and was not the thread that forked: its
    /// serial, its stack, and whether it was a reader.
    pub(in crate::writer) fn other(&self, word: u32) -> Option<(u32, u32, bool)> {
        let all = &self.others[..self.others_len.load(Acquire) as usize];
        let other = all.iter().find(|other| other.word.load(Relaxed) == word)?;
        let mode = super::Mode::from_byte(other.mode.load(Relaxed) as u8);
        let reads = matches!(mode, super::Mode::Read | super::Mode::FairRead);
        Some((other.thread.load(Relaxed), other.stack.load(Relaxed), reads))
    }

    /// A thread has this lock in this mode: if it is one of a child, the lock was free for that, or has become so.
    #[inline(always)]
    pub(in crate::writer) fn is_had(&self, map: Map, word: u32, mode: super::Mode) {
        if self.others_len.load(Relaxed) != 0 {
            self.forget(map, word, mode);
        }
    }

    #[cold]
    fn forget(&self, map: Map, word: u32, mode: super::Mode) {
        if map.header().first_serial.load(Relaxed) <= 1 {
            // Of a process that is about to fork.
            return;
        }
        let all = &self.others[..self.others_len.load(Acquire) as usize];
        for other in all.iter().filter(|other| other.word.load(Relaxed) == word) {
            // A reader comes in beside readers, which stay.
            let held = super::Mode::from_byte(other.mode.load(Relaxed) as u8);
            if mode == super::Mode::Exclusive || held == super::Mode::Exclusive {
                other.word.store(0, Relaxed);
            }
        }
    }

    /// Logs, in the child whose file this is, how the thread was called that held this lock at the fork.
    pub(in crate::writer) fn mention(&self, map: Map, word: u32) {
        let all = &self.others[..self.others_len.load(Acquire) as usize];
        let Some(other) = all.iter().find(|other| other.word.load(Relaxed) == word) else { return };
        let tid = other.tid.swap(0, Relaxed);
        if tid != 0 {
            let name = [0, 1].map(|half| other.name[half].load(Relaxed));
            log::is_called(map, (other.thread.load(Relaxed), tid), name);
        }
    }

    /// After it, in the parent.
    pub(in crate::writer) fn done(&self, record: *mut u8) {
        self.others_len.store(0, Relaxed);
        for copy in &self.copies {
            if copy.record.load(Relaxed) == record {
                copy.record.store(core::ptr::null_mut(), Release);
            }
        }
    }

    /// After it, in the child, whose thread had this record.
    pub(in crate::writer) fn in_child(&self, record: *mut u8) {
        let mine = self.copies.iter().position(|copy| copy.record.load(Acquire) == record);
        self.mine.store(mine.map_or(0, |mine| mine as u32 + 1), Relaxed);
        self.thread.store(this_thread(), Relaxed);
    }
}

/// Whether a child has what is held of the lock with this word; 0 is none.
fn is_inherited(map: Map, word: u32) -> bool {
    word != 0
        && locks::by_word(map, word)
            .is_some_and(|known| LockKind::from_byte(meta_kind(known.slot.meta.load(Relaxed))).is_inherited())
}

pub(in crate::writer) fn this_thread() -> u64 {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as u64 }
}

/// In a forked child's new file: its parent's locks, and serials of its own.
pub(in crate::writer) fn carry_over(from: Map, to: Map) {
    let (old, new) = (from.header(), to.header());
    let first = old.next_serial.load(Acquire).max(1);
    new.first_serial.store(first, Relaxed);
    new.next_serial.store(first, Relaxed);
    locks::carry_over(from, to);
}

/// The thread has just got this record. If it is the one that was forked, it holds what it held.
pub(in crate::writer) fn inherit(fork: &Fork, map: Map, record: &'static Record) {
    let mine = fork.mine.load(Relaxed);
    if mine == 0 || fork.thread.load(Relaxed) != this_thread() {
        return;
    }
    fork.mine.store(0, Relaxed);
    let copy = &fork.copies[mine as usize - 1];
    let serial = record.checked().serial.load(Relaxed);
    for from in &copy.held[..copy.len.load(Relaxed) as usize] {
        let word = from.word.load(Relaxed);
        let Some(known) = locks::by_word(map, word) else { continue };
        let new = held::New {
            word,
            address: from.address.load(Relaxed),
            class: known.class(),
            stack: from.stack.load(Relaxed),
            mode: super::Mode::from_byte(held::mode(from) as u8),
            tried: false,
            on_stack: false,
        };
        if held::push(map, record, &new) {
            if let Some(held) = held::find(map, record, word) {
                held.how.store(from.how.load(Relaxed) & !ON_STACK, Relaxed);
            }
            if !held::is_read(from) {
                known.slot.holder.store(serial, Relaxed);
            }
        }
    }
    for copy in &fork.copies {
        copy.record.store(core::ptr::null_mut(), Relaxed);
    }
}
