//! The lock table of a process under check: from a lock's word and address to its slot.
//!
//! # Life of a slot
//!
//! ```text
//! EMPTY --assign--> LIVE --retire--> DEAD --assign to another lock--> LIVE   next generation
//! ```
//!
//! Nothing comes to life again, and a slot is not used beyond its last generation: ONE-LIFE. So a lock that is
//! destroyed and made again, or whose memory is, has another word each time. The free list has the slots that
//! are DEAD; who takes one off it has it alone.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::super::map::{Map, Options};
use super::super::{LockRef, memory, modules, sys};
use super::log;
use crate::LockKind;
use crate::check::ClassKey;
use crate::layout::{
    self, CheckSlot, DEAD, FLAGS, IN_EDGE, INDEX_MASK, LIVE, Record, meta, meta_generation, meta_kind,
    meta_state, word_of,
};

/// A lock whose slot is its own.
#[derive(Clone, Copy)]
pub(in crate::writer) struct Known {
    pub(in crate::writer) word: u32,
    pub(in crate::writer) slot: &'static CheckSlot,
}

impl Known {
    /// Whether it is a semaphore that is used as a lock.
    pub(in crate::writer) fn is_semaphore_lock(self) -> bool {
        self.slot.meta.load(Relaxed) & layout::IS_LOCK != 0
    }

    /// What it is.
    pub(in crate::writer) fn kind(self) -> LockKind {
        LockKind::from_byte(meta_kind(self.slot.meta.load(Relaxed)))
    }

    /// Its class: see [`ClassKey`].
    #[inline(always)]
    pub(in crate::writer) fn class(self) -> u32 {
        match self.slot.stack.load(Relaxed) {
            0 => self.word,
            stack => ClassKey::BY_STACK | stack,
        }
    }
}

/// The lock, if its word is that of its slot.
#[inline(always)]
pub(in crate::writer) fn find(map: Map, lock: LockRef<'_>) -> Option<Known> {
    let word = lock.word.load(Relaxed);
    let slot = map.check_lock(word & INDEX_MASK)?;
    let live = meta(LIVE, lock.kind as u8, word >> layout::INDEX_BITS);
    let is_its_own =
        slot.meta.load(Acquire) & !FLAGS == live && slot.address.load(Relaxed) == lock.address as u64;
    is_its_own.then_some(Known { word, slot })
}

/// The slot of a lock with this word that lives.
pub(in crate::writer) fn by_word(map: Map, word: u32) -> Option<Known> {
    let slot = map.check_lock(word & INDEX_MASK)?;
    let now = slot.meta.load(Acquire);
    (meta_state(now) == LIVE && word_of(word & INDEX_MASK, now) == word).then_some(Known { word, slot })
}

/// The lock, which gets a slot if it has none. `None` if there is no room, or the lock's word changes under us.
#[inline(always)]
pub(in crate::writer) fn get(
    map: Map,
    record: &'static Record,
    lock: LockRef<'_>,
    options: &Options,
) -> Option<Known> {
    find(map, lock).or_else(|| enter(map, record, lock, options))
}

#[cold]
#[inline(never)]
fn enter(map: Map, record: &'static Record, lock: LockRef<'_>, options: &Options) -> Option<Known> {
    let _errno = sys::Errno::keep();
    let seen = lock.word.load(Relaxed);
    if seen == layout::OVERFLOW {
        return None;
    }
    let Some(known) = assign(map, lock, 0, options) else {
        let _ = lock.word.compare_exchange(seen, layout::OVERFLOW, Relaxed, Relaxed);
        return None;
    };
    if lock.word.compare_exchange(seen, known.word, AcqRel, Acquire).is_err() {
        // Another thread was first.
        retire(map, record, known, 0);
        return find(map, lock);
    }
    settle(map, record, lock, known);
    modules::want(map, lock.address as u64);
    Some(known)
}

/// A lock is initialised, by a call with this stack; its word has any value. `before` is asked about what was
/// at its address and had not been destroyed.
pub(in crate::writer) fn created(
    map: Map,
    record: &'static Record,
    lock: LockRef<'_>,
    stack: u32,
    options: &Options,
    before: impl FnMut(Known),
) {
    at_address(map, lock.address as u64).for_each(before);
    let known = assign(map, lock, stack, options);
    lock.word.store(known.map_or(layout::OVERFLOW, |known| known.word), Relaxed);
    if let Some(known) = known {
        settle(map, record, lock, known);
    }
}

/// The lock of this slot is no more: it was destroyed at a place with this stack, 0 if by no call. Its word
/// stays: so a later use is known for what it is.
pub(in crate::writer) fn retire(map: Map, record: &'static Record, known: Known, stack: u32) {
    let Known { word, slot } = known;
    let mut old = slot.meta.load(Acquire);
    loop {
        if meta_state(old) != LIVE || word_of(word & INDEX_MASK, old) != word {
            return;
        }
        let dead = meta(DEAD, meta_kind(old), meta_generation(old));
        match slot.meta.compare_exchange(old, dead, AcqRel, Acquire) {
            Ok(_) => break,
            Err(now) => old = now,
        }
    }
    let address = slot.address.load(Relaxed);
    memory::remove(address);
    // Before the slot is on the free list: from there it may become another lock's.
    unpublish(map, address, word & INDEX_MASK);
    slot.holder.store(stack, Relaxed);
    if old & IN_EDGE != 0 {
        map.header().deaths.fetch_add(1, Relaxed);
        let class = known.class();
        log::append(map, record, layout::LOG_DIED, |event| about(event, word, class, slot, old));
    }
    if meta_generation(old) != layout::GENERATION_MASK {
        push(map, word & INDEX_MASK, slot);
    }
}

/// Fills an event about a lock.
pub(in crate::writer) fn about(event: &layout::LogSlot, word: u32, class: u32, slot: &CheckSlot, meta: u64) {
    let event = event.lock();
    event.lock.store(word, Relaxed);
    event.kind.store(meta_kind(meta).into(), Relaxed);
    event.address.store(object(slot.address.load(Relaxed), meta_kind(meta)), Relaxed);
    event.class.store(class, Relaxed);
}

/// Where the object is whose lock has this address and kind: see [`LockKind::WRITERS`].
pub(in crate::writer) fn object(address: u64, kind: u8) -> u64 {
    match LockKind::from_byte(kind) {
        LockKind::RwWriters | LockKind::SharedRwWriters => address.wrapping_sub(LockKind::WRITERS as u64),
        _ => address,
    }
}

/// Notes that the lock is part of an edge in the log, so that its end will be too. The moment at which it was
/// made; 0 if it is no more.
pub(in crate::writer) fn in_edge(known: Known) -> u32 {
    let made = known.slot.made.load(Relaxed);
    flag(known, IN_EDGE).map_or(0, |_| made)
}

/// Takes one of [`FLAGS`] back.
pub(in crate::writer) fn unflag(known: Known, flag: u64) {
    let _ = known.slot.meta.fetch_update(AcqRel, Acquire, |old| {
        let same = meta_state(old) == LIVE && word_of(known.word & INDEX_MASK, old) == known.word;
        same.then_some(old & !flag)
    });
}

/// Sets one of [`FLAGS`]. What was set before; `None` if the lock is no more.
pub(in crate::writer) fn flag(known: Known, flag: u64) -> Option<u64> {
    let mut old = known.slot.meta.load(Acquire);
    loop {
        if meta_state(old) != LIVE || word_of(known.word & INDEX_MASK, old) != known.word {
            return None;
        }
        if old & flag != 0 {
            return Some(old & FLAGS);
        }
        match known.slot.meta.compare_exchange(old, old | flag, AcqRel, Acquire) {
            Ok(_) => return Some(old & FLAGS),
            Err(now) => old = now,
        }
    }
}

/// The next slot on the free list lies where a lock that lives has the moment at which it was made.
fn push(map: Map, index: u32, slot: &CheckSlot) {
    let list = &map.header().free_locks;
    let _ = list.fetch_update(AcqRel, Acquire, |head| {
        slot.made.store(head as u32, Relaxed);
        Some(((head >> 32).wrapping_add(1) << 32) | u64::from(index))
    });
}

fn pop(map: Map) -> Option<(u32, &'static CheckSlot)> {
    let list = &map.header().free_locks;
    // A slot that another thread takes meanwhile has something else there; then the count has changed too.
    let next = |head: u64| {
        let slot = map.check_lock(head as u32)?;
        Some(((head >> 32).wrapping_add(1) << 32) | u64::from(slot.made.load(Relaxed)))
    };
    let index = list.fetch_update(AcqRel, Acquire, next).ok()? as u32;
    map.check_lock(index).map(|slot| (index, slot))
}

/// A slot for the lock. `None` without room.
fn assign(map: Map, lock: LockRef<'_>, stack: u32, options: &Options) -> Option<Known> {
    let header = map.header();
    let reused = || {
        let (index, slot) = pop(map)?;
        Some((index, slot, meta_generation(slot.meta.load(Acquire)) + 1))
    };
    let fresh = || {
        let index = map.take_number(
            &header.next_lock,
            header.lock_capacity.load(Relaxed),
            &header.locks_backed,
            header.lock_offset.load(Relaxed),
            size_of::<CheckSlot>(),
        )?;
        map.check_lock(index).map(|slot| (index, slot, 0))
    };
    let many = header.next_lock.load(Relaxed) >= options.recycle_after;
    let found = if many { reused().or_else(fresh) } else { fresh().or_else(reused) };
    let Some((index, slot, generation)) = found else {
        header.overflow_locks.fetch_add(1, Relaxed);
        return None;
    };
    slot.address.store(lock.address as u64, Relaxed);
    slot.stack.store(stack, Relaxed);
    slot.holder.store(0, Relaxed);
    slot.waiters.store(0, Relaxed);
    slot.made.store(log::moment(map), Relaxed);
    let live = meta(LIVE, lock.kind as u8, generation);
    // Release: whoever sees it LIVE sees the rest.
    slot.meta.store(live, Release);
    memory::add(lock.address as u64);
    Some(Known { word: word_of(index, live), slot })
}

/// The locks at this address that live, as far as its bucket knows.
pub(in crate::writer) fn at_address(map: Map, address: u64) -> impl Iterator<Item = Known> {
    let places = map.places(address).into_iter().flatten();
    let tag = layout::place_tag(address);
    places
        .filter(move |place| place.load(Relaxed) >> layout::INDEX_BITS == tag)
        .filter_map(move |place| live(map, place.load(Acquire) & INDEX_MASK))
        .filter(move |known| known.slot.address.load(Relaxed) == address)
}

/// The lock of this slot, if it lives.
fn live(map: Map, index: u32) -> Option<Known> {
    let slot = map.check_lock(index)?;
    let meta = slot.meta.load(Acquire);
    (meta_state(meta) == LIVE).then(|| Known { word: word_of(index, meta), slot })
}

/// Passes each lock from `start` to `end` that lives to `act`, which may retire it. Returns how many words of
/// counters, buckets and slots that took.
///
/// The walk goes over the memory or over the table of locks, whichever is shorter: a program may give back
/// terabytes of addresses at once, of which it used few.
pub(in crate::writer) fn within(map: Map, start: usize, end: usize, mut act: impl FnMut(Known)) -> usize {
    let mut steps = 0;
    let used = map.header().next_lock.load(Acquire);
    let lies_there = |known: &Known| (start as u64..end as u64).contains(&known.slot.address.load(Relaxed));
    if memory::words(start, end) > used as usize {
        let all = (layout::FIRST_LOCK..used).filter_map(|index| live(map, index));
        all.filter(lies_there).for_each(act);
        return used as usize;
    }
    let mut looked_at = 0;
    for granule in memory::granules(start, end, &mut steps) {
        looked_at += 1;
        let tag = layout::place_tag(granule as u64) >> layout::WITHIN_BITS;
        for place in map.places(granule as u64).into_iter().flatten() {
            let place = place.load(Acquire);
            if place != 0 && place >> (layout::INDEX_BITS + layout::WITHIN_BITS) == tag {
                looked_at += 1;
                live(map, place & INDEX_MASK).filter(lies_there).into_iter().for_each(&mut act);
            }
        }
    }
    steps + looked_at
}

/// What else was at the lock's address is no more; and the lock can be found by it. A full bucket forgets one,
/// whose end then goes unseen.
fn settle(map: Map, record: &'static Record, lock: LockRef<'_>, known: Known) {
    for other in at_address(map, lock.address as u64) {
        if other.word != known.word {
            retire(map, record, other, 0);
        }
    }
    publish(map, lock.address as u64, known);
}

/// A place in the bucket, free or of a lock that is no more, gets the lock's index; [`unpublish`] takes it
/// back.
fn publish(map: Map, address: u64, known: Known) {
    let index = known.word & INDEX_MASK;
    let new = layout::place(address, index);
    let Some(places) = map.places(address) else { return };
    if places.iter().any(|place| place.load(Relaxed) == new) {
        return;
    }
    // Release, here and below: partner of the acquire of who finds the lock there.
    if places.iter().any(|place| place.compare_exchange(0, new, Release, Relaxed).is_ok()) {
        return;
    }
    let unused = places.iter().find(|place| live(map, place.load(Relaxed) & INDEX_MASK).is_none());
    unused.unwrap_or(&places[index as usize % layout::PLACES]).store(new, Release);
}

fn unpublish(map: Map, address: u64, index: u32) {
    let old = layout::place(address, index);
    let mut places = map.places(address).into_iter().flatten();
    if let Some(place) = places.find(|place| place.load(Relaxed) == old) {
        // Another thread may have put another lock there.
        let _ = place.compare_exchange(old, 0, Relaxed, Relaxed);
    }
}

/// In a forked child: its parent's locks. The parent may go on meanwhile, so a slot may be read half changed;
/// then the child's lock finds that its slot is not its own, and gets another. Who held a lock at the fork is
/// known by a serial that no thread of the child has.
pub(in crate::writer) fn carry_over(from: Map, to: Map) {
    let (old, new) = (from.header(), to.header());
    let count = old.next_lock.load(Acquire).min(new.lock_capacity.load(Relaxed));
    for index in layout::FIRST_LOCK..count {
        let Some(source) = from.check_lock(index) else { break };
        let taken = to.take_number(
            &new.next_lock,
            new.lock_capacity.load(Relaxed),
            &new.locks_backed,
            new.lock_offset.load(Relaxed),
            size_of::<CheckSlot>(),
        );
        let Some(slot) = taken.and_then(|index| to.check_lock(index)) else { break };
        let state = source.meta.load(Acquire) & (!FLAGS | layout::IS_LOCK);
        slot.address.store(source.address.load(Relaxed), Relaxed);
        slot.stack.store(source.stack.load(Relaxed), Relaxed);
        let kind = LockKind::from_byte(meta_kind(state));
        let holder = if kind.is_inherited() { source.holder.load(Relaxed) } else { 0 };
        slot.holder.store(holder, Relaxed);
        if meta_state(state) == LIVE {
            slot.meta.store(state, Release);
            publish(to, slot.address.load(Relaxed), Known { word: word_of(index, state), slot });
        } else {
            // What is EMPTY may be LIVE in the parent in a moment: its word is used up here.
            slot.meta.store(meta(DEAD, meta_kind(state), meta_generation(state)), Release);
            if meta_generation(state) != layout::GENERATION_MASK {
                push(to, index, slot);
            }
        }
    }
}
