//! The list of locks that a thread holds: HELD-LIST in [`layout`].
//!
//! Entries never move, so that the command can name one and say which hold of it is meant. A freed entry below
//! others is used again before the list becomes longer.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::super::map::Map;
use super::super::sys;
use super::log;
use crate::check::Mode;
use crate::layout::{self, DEPTH, Held, Lost, ON_STACK, PAGE, Record, SHORT_LIST, TRIED};

/// The entries of the record's list that may be in use; some have no word.
#[inline(always)]
pub(in crate::writer) fn list(map: Map, record: &'static Record) -> &'static [Held] {
    all(map, record, record.checked().held_len.load(Relaxed))
}

#[inline(always)]
fn all(map: Map, record: &'static Record, len: u32) -> &'static [Held] {
    let checked = record.checked();
    let offset = checked.held_offset.load(Relaxed);
    let first = if offset == 0 {
        checked.held.as_ptr()
    } else {
        // SAFETY: where `grow` has put it.
        unsafe { map.base().add(offset as usize).cast::<Held>() }
    };
    // SAFETY: as long as the capacity, which the length does not exceed.
    unsafe { core::slice::from_raw_parts(first, len as usize) }
}

/// How the entry's lock is held.
#[inline(always)]
pub(in crate::writer) fn mode(held: &Held) -> u32 {
    held.how.load(Relaxed) & 0xff
}

/// Whether the entry is of a reader.
#[inline(always)]
pub(in crate::writer) fn is_read(held: &Held) -> bool {
    mode(held) == Mode::Read as u32 || mode(held) == Mode::FairRead as u32
}

/// The entry of this lock, the latest first.
#[inline(always)]
pub(in crate::writer) fn find(map: Map, record: &'static Record, word: u32) -> Option<&'static Held> {
    list(map, record).iter().rev().find(|held| held.word.load(Relaxed) == word)
}

/// What an entry is to say.
#[derive(Clone, Copy)]
pub(in crate::writer) struct New {
    pub(in crate::writer) word: u32,
    pub(in crate::writer) address: u64,
    pub(in crate::writer) class: u32,
    pub(in crate::writer) stack: u32,
    pub(in crate::writer) mode: Mode,
    pub(in crate::writer) tried: bool,
    pub(in crate::writer) on_stack: bool,
}

/// Adds an entry. Whether there was room for it.
#[inline(always)]
pub(in crate::writer) fn push(map: Map, record: &'static Record, new: &New) -> bool {
    let checked = record.checked();
    let (len, count) = (checked.held_len.load(Relaxed), checked.held_count.load(Relaxed));
    let Some(place) = (if count == len && len < checked.held_capacity.load(Relaxed) {
        Some(len)
    } else {
        place(map, record, len, count)
    }) else {
        return false;
    };
    let held = &all(map, record, place + 1)[place as usize];
    let sequence = checked.sequence.load(Relaxed).wrapping_add(1);
    checked.sequence.store(sequence, Relaxed);
    let flags = if new.tried { TRIED } else { 0 } | if new.on_stack { ON_STACK } else { 0 };
    held.how.store(new.mode as u32 | flags, Relaxed);
    held.stack.store(new.stack, Relaxed);
    held.class.store(new.class, Relaxed);
    held.address.store(new.address, Relaxed);
    held.sequence.store(sequence, Relaxed);
    // Release: who sees the word sees the rest.
    held.word.store(new.word, Release);
    checked.held_count.store(count + 1, Relaxed);
    if new.on_stack {
        checked.on_stack.store(checked.on_stack.load(Relaxed) + 1, Relaxed);
    }
    if place == len {
        checked.held_len.store(len + 1, Release);
    }
    true
}

/// A free entry below the others, or one more.
#[cold]
#[inline(never)]
fn place(map: Map, record: &'static Record, len: u32, count: u32) -> Option<u32> {
    if count < len {
        let free = list(map, record).iter().position(|held| held.word.load(Relaxed) == 0);
        if let Some(free) = free {
            return Some(free as u32);
        }
    }
    (len < record.checked().held_capacity.load(Relaxed) || grow(map, record)).then_some(len)
}

/// Takes an entry off the list.
#[inline(always)]
pub(in crate::writer) fn remove(map: Map, record: &'static Record, held: &Held) {
    let checked = record.checked();
    if held.how.load(Relaxed) & ON_STACK != 0 {
        leaves_the_stack(record, held);
    }
    held.word.store(0, Release);
    let count = checked.held_count.load(Relaxed);
    checked.held_count.store(count.saturating_sub(1), Relaxed);
    let list = list(map, record);
    let used = list.iter().rposition(|held| held.word.load(Relaxed) != 0).map_or(0, |last| last + 1);
    checked.held_len.store(used as u32, Relaxed);
}

/// The lock of this entry, which has the mark, is not one in a frame that may be left; or it is no more.
#[cold]
pub(in crate::writer) fn leaves_the_stack(record: &Record, held: &Held) {
    held.how.store(held.how.load(Relaxed) & !ON_STACK, Relaxed);
    let on_stack = &record.checked().on_stack;
    on_stack.store(on_stack.load(Relaxed).saturating_sub(1), Relaxed);
}

/// Forgets all.
pub(in crate::writer) fn clear(map: Map, record: &'static Record) {
    for held in list(map, record) {
        held.word.store(0, Relaxed);
    }
    record.checked().held_len.store(0, Relaxed);
    record.checked().held_count.store(0, Relaxed);
    record.checked().on_stack.store(0, Relaxed);
}

/// Four times as much room. The short list stays as it is.
fn grow(map: Map, record: &'static Record) -> bool {
    const MOST: u32 = 1 << 20;
    let _errno = sys::Errno::keep();
    let checked = record.checked();
    let (len, capacity) = (checked.held_len.load(Relaxed), checked.held_capacity.load(Relaxed));
    let larger = capacity * 4;
    let pages = (u64::from(larger) * size_of::<Held>() as u64).div_ceil(PAGE);
    let Some(offset) = (larger <= MOST).then(|| map.allocate(pages)).flatten() else {
        log::lost(map, Lost::Holds);
        return false;
    };
    // SAFETY: just allocated, zero bytes, which are free entries.
    let new = unsafe {
        core::slice::from_raw_parts(map.base().add(offset as usize).cast::<Held>(), larger as usize)
    };
    for (to, from) in new.iter().zip(all(map, record, len)) {
        copy(from, to);
    }
    checked.held_offset.store(offset, Release);
    checked.held_capacity.store(larger, Relaxed);
    true
}

/// Makes one entry like another, but for what the command has asked.
pub(in crate::writer) fn copy(from: &Held, to: &Held) {
    to.how.store(from.how.load(Relaxed), Relaxed);
    to.stack.store(from.stack.load(Relaxed), Relaxed);
    to.class.store(from.class.load(Relaxed), Relaxed);
    to.address.store(from.address.load(Relaxed), Relaxed);
    to.sequence.store(from.sequence.load(Relaxed), Relaxed);
    to.watch.store(from.watch.load(Relaxed), Relaxed);
    to.word.store(from.word.load(Relaxed), Release);
}

/// One more hold of a lock that readers may take again, or one less. Whether it is still held.
pub(in crate::writer) fn deepen(held: &Held) {
    let how = held.how.load(Relaxed);
    held.how.store(how.saturating_add(DEPTH), Relaxed);
}

/// Takes back one hold of several. Whether there were several.
#[inline(always)]
pub(in crate::writer) fn raise(held: &Held) -> bool {
    let how = held.how.load(Relaxed);
    if how < DEPTH {
        return false;
    }
    held.how.store(how - DEPTH, Relaxed);
    true
}

const _: () = assert!(SHORT_LIST > 0 && layout::SHORT_LIST < u32::MAX as usize);
