//! Orders of locks: which were seen before, and what goes to the log. EDGES in [`layout`].
//!
//! The first question of every acquisition while another lock is held is whether the same thread, or enough
//! others, took these two locks like this before: one hash, and most often one line of the table of edges.
//! What is new there is looked up in the table of pairs, which bounds how much evidence the log gets for one
//! order of two classes. Both tables grow: LEVELS in [`layout`].
//!
//! A thread that holds `n` locks and asks for one more looks `n` edges up. If one of them is new, it goes
//! along its list once for what else is held; each new edge then costs what its event does, however many
//! locks are held.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::super::map::Map;
use super::super::sys;
use super::held;
use super::locks::{self, Known};
use super::log;
use crate::LockKind;
use crate::check::{ClassKey, Mode};
use crate::layout::{
    self, EdgeSlot, FURTHER, GUARDS, Held, LogEdge, LogEnd, Lost, PairSlot, READERS, Record, WINDOW,
    meta_kind,
};

/// A lock that is asked for, or was held before: an end of an edge.
#[derive(Clone, Copy)]
pub(in crate::writer) struct End {
    pub(in crate::writer) known: Known,
    pub(in crate::writer) mode: Mode,
    pub(in crate::writer) stack: u32,
}

/// Both halves of a product, in which each bit of both has its part. Not 0, which is a free slot, nor
/// [`CHANGING`].
#[inline(always)]
fn hash(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd6e8_feb8_6659_fd93);
    (product as u64 ^ (product >> 64) as u64) | 2
}

/// A slot whose lock was dead gets another key just now.
const CHANGING: u64 = 1;

#[inline(always)]
fn of_guard(lock: u32, mode: u32) -> u64 {
    hash(u64::from(lock), u64::from(mode) + 1)
}

#[inline(always)]
fn of_edge(from: u32, to: u32, modes: u32, guards: u64) -> u64 {
    hash(u64::from(from) << 32 | u64::from(to), guards.wrapping_add(u64::from(modes)))
}

/// The thread of this record, which holds what is on its list, asks for `to`.
#[inline(always)]
pub(in crate::writer) fn asks(map: Map, record: &'static Record, to: &End) {
    let list = held::list(map, record);
    let [held] = list else { return asks_holding_many(map, record, to) };
    let (word, mode) = (held.word.load(Relaxed), held::mode(held));
    if word != to.known.word {
        let key = of_edge(word, to.known.word, mode << 8 | to.mode as u32, 0);
        if !is_known(map, key, record.checked().serial.load(Relaxed)) {
            is_new(map, record, held, to, key);
        }
    }
}

#[inline(never)]
fn asks_holding_many(map: Map, record: &'static Record, to: &End) {
    let but = [to.known.word; 2];
    each_edge(map, record, but, guards(held::list(map, record)), to);
}

/// Goes along what the thread holds, but for the locks with the words `but`, and logs each edge from there to
/// `to` that is new. `all` is what [`guards`] says of what is held, but for those that are no guards.
#[inline(always)]
fn each_edge(map: Map, record: &'static Record, but: [u32; 2], all: u64, to: &End) {
    let serial = record.checked().serial.load(Relaxed);
    let mut others = None;
    for held in held::list(map, record) {
        let word = held.word.load(Relaxed);
        if word == 0 || but.contains(&word) {
            continue;
        }
        let mode = held::mode(held);
        let guards = all.wrapping_sub(of_guard(word, mode));
        let key = of_edge(word, to.known.word, mode << 8 | to.mode as u32, guards);
        if !is_known(map, key, serial) {
            let _errno = sys::Errno::keep();
            match held_by(map, record, held) {
                Some(from) => {
                    let all = others.get_or_insert_with(|| Guards::of(map, record, but, None));
                    edge(map, record, &from, to, key, &all.without(held));
                }
                // It is on the list no more.
                None => others = None,
            }
        }
    }
}

/// Of all that is held: what one lock adds can be taken away again.
#[inline(always)]
fn guards(list: &[Held]) -> u64 {
    let of = |held: &Held| match held.word.load(Relaxed) {
        0 => 0,
        word => of_guard(word, held::mode(held)),
    };
    list.iter().fold(0, |sum, held| sum.wrapping_add(of(held)))
}

/// Whether this thread, or enough others, have done this.
#[inline(always)]
fn is_known(map: Map, key: u64, serial: u32) -> bool {
    let Some(window) = map.edges(key) else { return false };
    let slot = &window[(key >> 40) as usize % WINDOW];
    let at_once = slot.key.load(Acquire) == key && slot.threads[0].load(Relaxed) == serial;
    at_once || is_known_further_on(map, window, key, serial)
}

#[inline(never)]
fn is_known_further_on(map: Map, window: &'static [EdgeSlot; WINDOW], key: u64, serial: u32) -> bool {
    find(map, window, key).is_some_and(|slot| {
        let [first, .., last] = &slot.threads;
        first.load(Relaxed) == serial
            || last.load(Relaxed) != 0
            || slot.threads.iter().any(|thread| thread.load(Relaxed) == serial)
    })
}

/// The slot with this key, in any level; `first` is the window in the first one.
#[inline(always)]
fn find<T: Slot>(map: Map, first: &'static [T; WINDOW], key: u64) -> Option<&'static T> {
    let mut window = first;
    let mut further = 0..FURTHER;
    loop {
        for slot in from(window, key) {
            match slot.key().load(Acquire) {
                0 => return None,
                found if found == key => return Some(slot),
                _ => {}
            }
        }
        window = T::further(map, further.next()?, key, false)?;
    }
}

/// The slots of a window, in the order in which one for this key is looked for.
#[inline(always)]
fn from<T>(window: &[T; WINDOW], key: u64) -> impl Iterator<Item = &T> {
    let start = (key >> 40) as usize;
    (0..WINDOW).map(move |step| &window[start.wrapping_add(step) % WINDOW])
}

/// A slot of either table.
trait Slot: Sized + 'static {
    /// The window for a key in the first level, and in one further on.
    fn first(map: Map, key: u64) -> Option<&'static [Self; WINDOW]>;
    fn further(map: Map, level: usize, key: u64, make: bool) -> Option<&'static [Self; WINDOW]>;
    /// How many slots were taken.
    fn taken(map: Map) -> &'static AtomicU32;
    fn key(&self) -> &AtomicU64;
    fn locks(&self) -> [&AtomicU32; 2];
    /// Begins anew, for others.
    fn clear(&self);
    /// Whether such a name is of something that will not come again.
    fn is_over(map: Map, name: u32) -> bool;
}

impl Slot for EdgeSlot {
    #[inline(always)]
    fn first(map: Map, key: u64) -> Option<&'static [Self; WINDOW]> {
        map.edges(key)
    }
    fn further(map: Map, level: usize, key: u64, make: bool) -> Option<&'static [Self; WINDOW]> {
        let header = map.header();
        map.further((&header.edge_levels, level), header.edge_capacity.load(Relaxed), key, make)
    }
    fn taken(map: Map) -> &'static AtomicU32 {
        &map.header().edges
    }
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
    fn locks(&self) -> [&AtomicU32; 2] {
        [&self.from, &self.to]
    }
    fn clear(&self) {
        self.threads.iter().for_each(|thread| thread.store(0, Relaxed));
    }
    fn is_over(map: Map, lock: u32) -> bool {
        lock != 0 && locks::by_word(map, lock).is_none()
    }
}

impl Slot for PairSlot {
    fn first(map: Map, key: u64) -> Option<&'static [Self; WINDOW]> {
        map.pairs(key)
    }
    fn further(map: Map, level: usize, key: u64, make: bool) -> Option<&'static [Self; WINDOW]> {
        let header = map.header();
        map.further((&header.pair_levels, level), header.pair_capacity.load(Relaxed), key, make)
    }
    fn taken(map: Map) -> &'static AtomicU32 {
        &map.header().pairs
    }
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
    fn locks(&self) -> [&AtomicU32; 2] {
        [&self.from, &self.to]
    }
    fn clear(&self) {
        self.threads.iter().for_each(|thread| thread.store(0, Relaxed));
        self.count.store(0, Relaxed);
        self.renewed_at.store(0, Relaxed);
    }
    fn is_over(map: Map, class: u32) -> bool {
        class & ClassKey::BY_STACK == 0 && EdgeSlot::is_over(map, class)
    }
}

/// The slot with this key, and whether it is new: taken from the free ones, or from those of locks that are no
/// more, of which two are looked at in each level. Not more than `limit` are taken from the free ones.
fn claim<T: Slot>(map: Map, key: u64, names: [u32; 2], limit: u32) -> Option<(&'static T, bool)> {
    let mut window = T::first(map, key)?;
    if let Some(slot) = find(map, window, key) {
        return Some((slot, false));
    }
    let name = |slot: &T| {
        for (to, name) in slot.locks().into_iter().zip(names) {
            to.store(name, Relaxed);
        }
    };
    let has_room = T::taken(map).load(Relaxed) < limit;
    let mut further = 0..FURTHER;
    loop {
        for slot in from(window, key) {
            let mut found = slot.key().load(Acquire);
            if found == 0 && has_room {
                match slot.key().compare_exchange(0, key, AcqRel, Acquire) {
                    Ok(_) => {
                        T::taken(map).fetch_add(1, Relaxed);
                        name(slot);
                        return Some((slot, true));
                    }
                    Err(now) => found = now,
                }
            }
            if found == key {
                return Some((slot, false));
            }
        }
        for slot in from(window, key.rotate_left(17)).take(2) {
            let old = slot.key().load(Acquire);
            let over = slot.locks().into_iter().any(|lock| T::is_over(map, lock.load(Relaxed)));
            if old > CHANGING && over && slot.key().compare_exchange(old, CHANGING, AcqRel, Relaxed).is_ok() {
                // A thread that knew the old key may still add itself, if it took a lock that was no more:
                // then one piece of evidence about the new key is missing.
                slot.clear();
                name(slot);
                slot.key().store(key, Release);
                return Some((slot, true));
            }
        }
        window = T::further(map, further.next()?, key, has_room)?;
    }
}

/// Adds the thread to those that were here, if there is room for it. Whether there was, and it is new.
fn note(threads: &[AtomicU32], serial: u32) -> bool {
    for thread in threads {
        let mut found = thread.load(Relaxed);
        if found == 0 {
            match thread.compare_exchange(0, serial, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => found = now,
            }
        }
        if found == serial {
            return false;
        }
    }
    false
}

/// Whether what this pair has of evidence is to become more, by another edge; `within` one class.
fn has_room(map: Map, pair: &PairSlot, within: bool) -> bool {
    let limit = if within { layout::EVIDENCE_WITHIN } else { layout::EVIDENCE };
    let more = |count: u32| (count < limit).then_some(count + 1);
    if pair.count.fetch_update(Relaxed, Relaxed, more).is_ok() {
        return true;
    }
    // Evidence about locks that have died says nothing about those that live.
    let deaths = map.header().deaths.load(Relaxed);
    let renewed_at = pair.renewed_at.load(Relaxed);
    let next = deaths.saturating_mul(2).saturating_add(limit);
    if deaths >= renewed_at.max(limit)
        && pair.renewed_at.compare_exchange(renewed_at, next, Relaxed, Relaxed).is_ok()
    {
        pair.count.store(limit / 2, Relaxed);
        return true;
    }
    if within {
        log::lost(map, Lost::Evidence);
    }
    false
}

/// This thread has not taken `to` like this while it held this, and nothing else.
#[cold]
#[inline(never)]
fn is_new(map: Map, record: &'static Record, held: &'static Held, to: &End, key: u64) {
    let _errno = sys::Errno::keep();
    if let Some(from) = held_by(map, record, held) {
        edge(map, record, &from, to, key, &Guards::NONE);
    }
}

/// What an entry says, if its lock is still the thread's; else it is dropped.
pub(in crate::writer) fn held_by(map: Map, record: &'static Record, held: &'static Held) -> Option<End> {
    let word = held.word.load(Relaxed);
    let known = locks::by_word(map, word).filter(|known| {
        let holder = known.slot.holder.load(Relaxed);
        holder == record.checked().serial.load(Relaxed) || (held::is_read(held) && holder & READERS != 0)
    });
    let Some(known) = known else {
        held::remove(map, record, held);
        return None;
    };
    Some(End { known, mode: mode_of(held), stack: held.stack.load(Relaxed) })
}

fn mode_of(held: &Held) -> Mode {
    Mode::from_byte(held::mode(held) as u8)
}

/// Logs an edge, unless there is evidence enough. `key` is that of the edge.
fn edge(map: Map, record: &'static Record, from: &End, to: &End, key: u64, guards: &Guards) {
    let serial = record.checked().serial.load(Relaxed);
    let most = map.header().order_limit.load(Relaxed);
    let slot = claim::<EdgeSlot>(map, key, [from.known.word, to.known.word], most);
    // A slot that is there was claimed by whoever did this first.
    let first = match slot {
        Some((slot, first)) if note(&slot.threads, serial) => first,
        Some(_) => return,
        // It will not be known next time: the log gets only what is new of the classes.
        None => false,
    };
    let (from_class, to_class) = (from.known.class(), to.known.class());
    let modes = (from.mode as u32) << 8 | to.mode as u32;
    let key = of_edge(from_class, to_class, modes | 1 << 31, guards.classes);
    let Some((pair, _)) = claim::<PairSlot>(map, key, [from_class, to_class], most) else {
        log::lost(map, if slot.is_none() { Lost::Edges } else { Lost::Pairs });
        return;
    };
    let new_thread = note(&pair.threads, serial);
    let within = from_class == to_class;
    let limit = if within { layout::EVIDENCE_WITHIN } else { layout::EVIDENCE };
    let room = if first { has_room(map, pair, within) } else { pair.count.load(Relaxed) < limit };
    if slot.is_none() && !new_thread {
        log::lost(map, Lost::Edges);
        return;
    }
    if !room && !new_thread {
        return;
    }
    let made = [locks::in_edge(from.known), locks::in_edge(to.known)];
    if guards.count > GUARDS {
        log::lost(map, Lost::Guards);
    }
    log::append(map, record, layout::LOG_EDGE, |event| {
        let event = event.edge();
        let kinds = [fill(&event.from, from, from_class, made[0]), fill(&event.to, to, to_class, made[1])];
        event.kinds.store(u32::from(kinds[0]) | u32::from(kinds[1]) << 8, Relaxed);
        guards.store(event, [from.mode as u8, to.mode as u8]);
    });
}

/// Returns the lock's kind.
fn fill(end: &LogEnd, of: &End, class: u32, made: u32) -> u8 {
    let kind = meta_kind(of.known.slot.meta.load(Relaxed));
    end.lock.store(of.known.word, Relaxed);
    end.class.store(class, Relaxed);
    end.stack.store(of.stack, Relaxed);
    end.made.store(made, Relaxed);
    end.address.store(locks::object(of.known.slot.address.load(Relaxed), kind), Relaxed);
    kind
}

/// What else was held when a lock was asked for.
struct Guards {
    /// Those held longest: one more than an event has room for, so that one can be left out.
    kept: [Guard; GUARDS + 1],
    /// How many there are, kept or not.
    count: usize,
    /// Of the classes of all.
    classes: u64,
    /// Of all.
    all: u64,
}

#[derive(Clone, Copy)]
struct Guard {
    sequence: u32,
    word: u32,
    mode: u32,
}

impl Guards {
    const NONE: Guards =
        Guards { kept: [Guard { sequence: 0, word: 0, mode: 0 }; GUARDS + 1], count: 0, classes: 0, all: 0 };

    /// Into an event, with how the locks at its ends are held.
    fn store(&self, event: &LogEdge, modes: [u8; 2]) {
        let named = self.count.min(GUARDS);
        let how = [modes[0], modes[1], named as u8, u8::from(self.count > GUARDS)];
        event.how.store(u32::from_le_bytes(how), Relaxed);
        let mut modes = 0;
        for (n, (place, guard)) in event.guards.iter().zip(&self.kept[..named]).enumerate() {
            place.store(guard.word, Relaxed);
            modes |= guard.mode << (4 * n);
        }
        event.guard_modes.store(modes, Relaxed);
    }

    /// What is on the list but for these two locks; `before` a hold of that number began.
    fn of(map: Map, record: &'static Record, but: [u32; 2], before: Option<u32>) -> Guards {
        let mut guards = Guards::NONE;
        let now = record.checked().sequence.load(Relaxed);
        let age = |sequence: u32| now.wrapping_sub(sequence);
        for held in held::list(map, record) {
            let word = held.word.load(Relaxed);
            let sequence = held.sequence.load(Relaxed);
            let later = before.is_some_and(|before| age(sequence) <= age(before));
            if word == 0 || but.contains(&word) || later {
                continue;
            }
            let guard = Guard { sequence, word, mode: held::mode(held) };
            guards.classes = guards.classes.wrapping_add(of_guard(held.class.load(Relaxed), guard.mode));
            guards.all = guards.all.wrapping_add(of_guard(word, guard.mode));
            // Into its place by age.
            let len = guards.count.min(guards.kept.len());
            let older = |kept: &Guard| age(kept.sequence) < age(sequence);
            let place = guards.kept[..len].iter().position(older).unwrap_or(len);
            guards.count += 1;
            if let Some(last) = guards.kept[place..].len().checked_sub(1) {
                guards.kept.copy_within(place..place + last, place + 1);
                guards.kept[place] = guard;
            }
        }
        guards
    }

    /// The same but for one of them.
    fn without(&self, held: &Held) -> Guards {
        let (word, mode) = (held.word.load(Relaxed), held::mode(held));
        let mut guards = Guards {
            kept: self.kept,
            count: self.count - 1,
            classes: self.classes.wrapping_sub(of_guard(held.class.load(Relaxed), mode)),
            all: self.all.wrapping_sub(of_guard(word, mode)),
        };
        if let Some(place) = guards.kept.iter().position(|kept| kept.word == word) {
            guards.kept.copy_within(place + 1.., place);
        }
        guards
    }
}

/// A thread waits for a condition variable while it holds locks: it will take `mutex` again while it holds
/// what it holds now.
pub(in crate::writer) fn waits(
    map: Map,
    record: &'static Record,
    condition: &End,
    mutex: u32,
    again: Option<&End>,
) {
    let list = held::list(map, record);
    let is_mutex = |held: &&Held| held.word.load(Relaxed) == mutex;
    let without = list.iter().rev().find(is_mutex).map_or(0, |held| of_guard(mutex, held::mode(held)));
    let all = guards(list).wrapping_sub(without);
    for to in [Some(condition), again].into_iter().flatten() {
        each_edge(map, record, [mutex; 2], all, to);
    }
}

/// The thread wakes those who wait for a condition variable with the mutex of this word, and holds other locks:
/// who holds one of those while it waits to be woken, waits for this thread, which had to take it first.
///
/// That is so only if no other thread may wake them without that lock; so the log also gets what sets of locks
/// were held at a signal.
pub(in crate::writer) fn wakes(map: Map, record: &'static Record, condition: &End, mutex: u32) {
    let flags = condition.known.slot.meta.load(Relaxed);
    if flags & layout::SIGNALLED_FREELY != 0 {
        return;
    }
    let all = Guards::of(map, record, [mutex, condition.known.word], None);
    if all.count == 0 {
        let before = locks::flag(condition.known, layout::SIGNALLED_FREELY);
        if before.is_some_and(|before| before & layout::SIGNALLED_HOLDING != 0) {
            signalled(map, record, condition, &all);
        }
        return;
    }
    let serial = record.checked().serial.load(Relaxed);
    let key = of_edge(condition.known.word, 0, 0, all.all);
    if !is_known(map, key, serial) {
        let _errno = sys::Errno::keep();
        let most = map.header().order_limit.load(Relaxed);
        let slot = claim::<EdgeSlot>(map, key, [condition.known.word; 2], most);
        locks::flag(condition.known, layout::SIGNALLED_HOLDING);
        // Without room for the set in the table, it is said again.
        if slot.is_none_or(|(slot, first)| note(&slot.threads, serial) && first) && all.count <= GUARDS {
            signalled(map, record, condition, &all);
        }
    }
    for held in held::list(map, record) {
        let word = held.word.load(Relaxed);
        if word == 0 || word == mutex {
            continue;
        }
        // What was held before this lock follows from all that is held now: so what is known costs a look.
        let modes = (Mode::Condition as u32) << 8 | held::mode(held);
        let key = of_edge(condition.known.word, word, modes, all.all);
        if is_known(map, key, serial) {
            continue;
        }
        let _errno = sys::Errno::keep();
        let before = held.sequence.load(Relaxed);
        if let Some(to) = held_by(map, record, held) {
            let guards = Guards::of(map, record, [word, condition.known.word], Some(before));
            edge(map, record, condition, &to, key, &guards);
        }
    }
}

#[cold]
fn signalled(map: Map, record: &'static Record, condition: &End, held: &Guards) {
    let made = locks::in_edge(condition.known);
    log::append(map, record, layout::LOG_SIGNALLED, |event| {
        let event = event.edge();
        let kind = fill(&event.from, condition, condition.known.class(), made);
        event.kinds.store(kind.into(), Relaxed);
        held.store(event, [condition.mode as u8, 0]);
    });
}

/// The thread, which holds nothing, writes under a readers-writer lock.
#[inline(always)]
pub(in crate::writer) fn writes(map: Map, record: &'static Record, lock: &End) {
    let key = of_edge(0, lock.known.word, lock.mode as u32, 0);
    if !is_known(map, key, record.checked().serial.load(Relaxed)) {
        writes_first(map, record, lock, key);
    }
}

#[cold]
#[inline(never)]
fn writes_first(map: Map, record: &'static Record, lock: &End, key: u64) {
    let _errno = sys::Errno::keep();
    let serial = record.checked().serial.load(Relaxed);
    let most = map.header().order_limit.load(Relaxed);
    let Some((slot, _)) = claim::<EdgeSlot>(map, key, [0, lock.known.word], most) else {
        log::lost(map, Lost::Edges);
        return;
    };
    if note(&slot.threads, serial) {
        let made = locks::in_edge(lock.known);
        let meta = lock.known.slot.meta.load(Relaxed);
        log::append(map, record, layout::LOG_WROTE, |event| {
            locks::about(event, lock.known.word, lock.known.class(), lock.known.slot, meta);
            event.lock().made.store(made, Relaxed);
        });
    }
}

/// Whether this is found for the first time: `what`, about this class, at this place and another.
pub(in crate::writer) fn is_first_finding(map: Map, what: u8, class: u32, stacks: [u32; 2]) -> bool {
    let key = hash(
        u64::from(what) << 32 | u64::from(class) | 1 << 63,
        u64::from(stacks[0]) << 32 | u64::from(stacks[1]),
    );
    // Not of a lock: never over.
    match claim::<PairSlot>(map, key, [ClassKey::BY_STACK; 2], u32::MAX) {
        Some((_, first)) => first,
        None => {
            log::lost(map, Lost::Findings);
            false
        }
    }
}

/// Whether threads write under locks of this kind apart from reading.
pub(in crate::writer) fn has_readers(kind: LockKind) -> bool {
    matches!(kind, LockKind::RwWriters | LockKind::SharedRwWriters)
}
