//! The lock table: from a lock's word and address to its slot.
//!
//! # Life of a slot
//!
//! ```text
//! EMPTY --assign--> LIVE --destroyed--> DEAD --assign, same address and stack--> LIVE   same generation
//!                                        |
//!                                        +--assign to another lock, from the free list--> LIVE   next one
//! ```
//!
//! Locks at one address that were initialised from one place are one lock to a reader of the report, so a
//! program that makes and destroys mutexes in a loop, or places zeroed ones at one address again and again
//! (`std::mutex` needs no call for either), stays in one slot. Others are found a slot on the free list,
//! which holds those that are DEAD and that nobody waited for; `listed` keeps a slot from being on it twice,
//! and being on it means nothing until the change from DEAD to LIVE has been won.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::LockRef;
use super::map::{Map, Options};
use crate::layout::{
    self, DEAD, LIVE, LockSlot, MARK, meta, meta_generation, meta_kind, meta_state, word_of,
};

/// The word of `lock` without its mark, once its slot is known to be its own; [`layout::OVERFLOW`] if there
/// is no room.
pub(super) fn word(map: Map, lock: LockRef<'_>, options: &Options) -> u32 {
    let seen = lock.word.load(Relaxed);
    let claim = seen & !MARK;
    if claim == layout::OVERFLOW || holds(map, claim, lock) {
        return claim;
    }
    let word = assign(map, lock, 0, options);
    match lock.word.compare_exchange(seen, word, AcqRel, Acquire).map_err(|other| other & !MARK) {
        Ok(_) => {
            publish(map, lock, word);
            word
        }
        // Another thread was first. What it stored is right unless the lock's memory is being overwritten.
        Err(other) if other == layout::OVERFLOW || holds(map, other, lock) => {
            if other != word {
                abandon(map, word);
            }
            other
        }
        Err(_) => word,
    }
}

/// A lock is initialised, by a call with this stack; its word has any value.
pub(super) fn created(map: Map, lock: LockRef<'_>, stack: u32, options: &Options) {
    let word = assign(map, lock, stack, options);
    lock.word.store(word, Relaxed);
    publish(map, lock, word);
}

/// The lock is no more. Its word is left zero.
pub(super) fn destroyed(map: Map, lock: LockRef<'_>) {
    let claim = lock.word.swap(0, Relaxed) & !MARK;
    let index = claim & layout::INDEX_MASK;
    if let Some(slot) = map.lock(index) {
        let old = slot.meta.load(Acquire);
        // A copy of another lock's word is not that lock.
        if word_of(index, old) == claim && slot.address.load(Relaxed) == lock.address as u64 {
            retire(map, index, slot, old);
        }
    }
}

/// Whether `claim` is the word of the lock.
fn holds(map: Map, claim: u32, lock: LockRef<'_>) -> bool {
    let index = claim & layout::INDEX_MASK;
    let Some(slot) = map.lock(index) else { return false };
    let old = slot.meta.load(Acquire);
    if word_of(index, old) != claim
        || slot.address.load(Relaxed) != lock.address as u64
        || meta_kind(old) != lock.kind as u8
    {
        return false;
    }
    match meta_state(old) {
        LIVE => true,
        // Used after its destruction, or destroyed by the parent while a forked child copied the table.
        DEAD => revive(slot, old, meta_generation(old)),
        _ => false,
    }
}

fn revive(slot: &LockSlot, old: u64, generation: u32) -> bool {
    let new = meta(LIVE, meta_kind(old), generation);
    slot.meta.compare_exchange(old, new, AcqRel, Acquire).is_ok()
}

/// LIVE to DEAD, and onto the free list if the slot may change its instance (WAITED).
fn retire(map: Map, index: u32, slot: &LockSlot, old: u64) {
    let dead = meta(DEAD, meta_kind(old), meta_generation(old));
    if meta_state(old) == LIVE
        && slot.meta.compare_exchange(old, dead, AcqRel, Acquire).is_ok()
        && slot.waited.load(Acquire) == 0
        && slot.listed.swap(1, AcqRel) == 0
    {
        push(map, index, slot);
    }
}

fn push(map: Map, index: u32, slot: &LockSlot) {
    let list = &map.header().free_locks;
    let _ = list.fetch_update(AcqRel, Acquire, |head| {
        slot.next.store(head as u32, Relaxed);
        Some(((head >> 32).wrapping_add(1) << 32) | u64::from(index))
    });
}

fn pop(map: Map) -> Option<(u32, &'static LockSlot)> {
    let list = &map.header().free_locks;
    let next = |head: u64| {
        let slot = map.lock(head as u32)?;
        Some(((head >> 32).wrapping_add(1) << 32) | u64::from(slot.next.load(Relaxed)))
    };
    let index = list.fetch_update(AcqRel, Acquire, next).ok()? as u32;
    map.lock(index).map(|slot| (index, slot))
}

/// A slot on the free list that is still DEAD becomes EMPTY, that is ours, with the next generation.
fn reuse(map: Map) -> Option<(u32, &'static LockSlot, u32)> {
    loop {
        let (index, slot) = pop(map)?;
        slot.listed.store(0, Release);
        let old = slot.meta.load(Acquire);
        if meta_state(old) != DEAD || slot.waited.load(Acquire) != 0 {
            continue;
        }
        let generation = (meta_generation(old) + 1) & layout::GENERATION_MASK;
        let ours = meta(layout::EMPTY, 0, generation);
        if slot.meta.compare_exchange(old, ours, AcqRel, Acquire).is_ok() {
            return Some((index, slot, generation));
        }
    }
}

/// A slot for the lock: the word that names it.
fn assign(map: Map, lock: LockRef<'_>, stack: u32, options: &Options) -> u32 {
    if let Some(word) = same_as_before(map, lock, stack) {
        return word;
    }
    let header = map.header();
    let fresh = || {
        let index = map.take_number(
            &header.next_lock,
            header.lock_capacity.load(Relaxed),
            &header.locks_backed,
            header.lock_offset.load(Relaxed),
            size_of::<LockSlot>(),
        )?;
        map.lock(index).map(|slot| (index, slot, 0))
    };
    let many = header.next_lock.load(Relaxed) >= options.recycle_after;
    let found = if many { reuse(map).or_else(fresh) } else { fresh().or_else(|| reuse(map)) };
    let Some((index, slot, generation)) = found else {
        header.overflow_locks.fetch_add(1, Relaxed);
        return layout::OVERFLOW;
    };
    slot.address.store(lock.address as u64, Relaxed);
    slot.stack.store(stack, Relaxed);
    let live = meta(LIVE, lock.kind as u8, generation);
    // Release: whoever sees it LIVE sees its address.
    slot.meta.store(live, Release);
    word_of(index, live)
}

/// The slot that already stands for a lock of this kind, at this address, initialised there. What else was at
/// the address has ceased to exist.
fn same_as_before(map: Map, lock: LockRef<'_>, stack: u32) -> Option<u32> {
    let mut found = None;
    for (index, slot) in at_address(map, lock.address as u64) {
        let old = slot.meta.load(Acquire);
        // Read after `meta`: if the slot changed its instance in between, the change of `meta` below fails or
        // was not needed.
        let same = slot.stack.load(Relaxed) == stack && meta_kind(old) == lock.kind as u8;
        match meta_state(old) {
            LIVE if same => found = Some(word_of(index, old)),
            DEAD if same && revive(slot, old, meta_generation(old)) => found = Some(word_of(index, old)),
            LIVE => retire(map, index, slot, old),
            _ => {}
        }
    }
    found
}

fn at_address(map: Map, address: u64) -> impl Iterator<Item = (u32, &'static LockSlot)> {
    map.bucket(address).into_iter().flatten().filter_map(move |word| {
        let index = word.load(Acquire);
        let slot = map.lock(index)?;
        (slot.address.load(Relaxed) == address).then_some((index, slot))
    })
}

/// Makes the slot findable by address. The buckets are a hint: one that is full forgets a lock, which costs
/// that lock a new slot when its memory is initialised again.
pub(super) fn publish(map: Map, lock: LockRef<'_>, word: u32) {
    let index = word & layout::INDEX_MASK;
    let Some(bucket) = map.bucket(lock.address as u64) else { return };
    if index == layout::OVERFLOW || bucket.iter().any(|place| place.load(Relaxed) == index) {
        return;
    }
    let unused = |place: &&AtomicU32| {
        let other = map.lock(place.load(Relaxed));
        other.is_none_or(|slot| meta_state(slot.meta.load(Relaxed)) == layout::EMPTY)
    };
    let of_this_address = |place: &&AtomicU32| {
        map.lock(place.load(Relaxed)).is_some_and(|slot| slot.address.load(Relaxed) == lock.address as u64)
    };
    let place = bucket.iter().find(of_this_address).or_else(|| bucket.iter().find(unused));
    place.unwrap_or(&bucket[index as usize % 4]).store(index, Release);
}

/// Gives back a slot that never came to stand for anything.
fn abandon(map: Map, word: u32) {
    let index = word & layout::INDEX_MASK;
    if let Some(slot) = map.lock(index) {
        retire(map, index, slot, slot.meta.load(Acquire));
    }
}

/// Marks that somebody waits for the lock in this slot (WAITED).
pub(super) fn waited(map: Map, word: u32) {
    if let Some(slot) = map.lock(word & layout::INDEX_MASK)
        && slot.waited.load(Relaxed) == 0
    {
        slot.waited.store(1, Release);
    }
}

/// In a forked child: its parent's locks, without their figures. The parent may go on meanwhile, so a slot
/// may be read half changed; then the child's lock finds that its slot is not its own, and gets another.
pub(super) fn carry_over(from: Map, to: Map) {
    let (old, new) = (from.header(), to.header());
    let count = old.next_lock.load(Acquire).min(new.lock_capacity.load(Relaxed));
    for index in layout::FIRST_LOCK..count {
        let Some(source) = from.lock(index) else { break };
        let taken = to.take_number(
            &new.next_lock,
            new.lock_capacity.load(Relaxed),
            &new.locks_backed,
            new.lock_offset.load(Relaxed),
            size_of::<LockSlot>(),
        );
        let Some(slot) = taken.and_then(|index| to.lock(index)) else { break };
        let state = source.meta.load(Acquire);
        slot.address.store(source.address.load(Relaxed), Relaxed);
        slot.stack.store(source.stack.load(Relaxed), Relaxed);
        if meta_state(state) == LIVE {
            slot.meta.store(state, Release);
            let word = AtomicU32::new(0);
            let lock = LockRef {
                word: &word,
                address: slot.address.load(Relaxed) as usize,
                kind: crate::LockKind::from_byte(meta_kind(state)),
                writers: None,
            };
            publish(to, lock, word_of(index, state));
        } else {
            // Not LIVE in the child either, until it proves to be.
            slot.meta.store(meta(DEAD, meta_kind(state), meta_generation(state)), Release);
            slot.listed.store(1, Relaxed);
            push(to, index, slot);
        }
    }
}
