//! Thread records: taken by a thread at its first use of a lock, handed on at its end.
//!
//! ENDED. A thread that ends while it holds locks leaves its record as it is, so that its holds are told from
//! those of living threads. [`ENDED_RECORDS`] such records are kept: the next one takes the place of the
//! oldest, whose holds are forgotten. A hold of an ended thread is over when another thread releases the
//! lock, or has it alone after a wait.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::map::Map;
use super::{add, clock, sys};
use crate::layout::{
    self, CHUNK_ENTRIES, CHUNK_PAGES, ENDED, ENDED_RECORDS, Entry, Events, FREE, HELD, Holds, MARK, PAGE,
    Record, SMALL_DIRECTORY,
};
use crate::{LockKind, writer::LockRef};

/// A record for the calling thread; a used one if there is any. Its figures go on from where they are: they
/// are sums over all holders.
pub(super) fn take(map: Map) -> Option<&'static Record> {
    let header = map.header();
    let next = |head: u64| {
        let page = head as u32;
        // SAFETY: the list holds pages of records, and records stay records.
        let next = (page != 0).then(|| unsafe { map.record(page) }.next_free.load(Relaxed))?;
        Some(((head >> 32).wrapping_add(1) << 32) | u64::from(next))
    };
    let record = match header.free_records.fetch_update(AcqRel, Acquire, next) {
        // SAFETY: as above; and now it is ours.
        Ok(head) => unsafe { map.record(head as u32) },
        Err(_) => make(map)?,
    };
    let now = clock::ticks(header.clock.load(Relaxed));
    record.started.store(now, Relaxed);
    record.last_seen.store(now, Relaxed);
    record.wait_began.store(0, Relaxed);
    record.endings.store(0, Relaxed);
    record.busy.store(0, Relaxed);
    record.woken_by.store(0, Relaxed);
    record.nested.store(0, Relaxed);
    record.held.store(0, Relaxed);
    super::trace::begins(map, record);
    record.tid.store(sys::tid(), Relaxed);
    if header.check.load(Relaxed) != 0 {
        let checked = record.checked();
        checked.serial.store(header.next_serial.fetch_add(1, Relaxed), Relaxed);
        checked.thread.store(super::check::this_thread(), Relaxed);
        checked.had.iter().for_each(|had| had.store(0, Relaxed));
        checked.named.store(0, Relaxed);
        checked.name.iter().for_each(|half| half.store(0, Relaxed));
    }
    record.state.store(HELD, Relaxed);
    Some(record)
}

fn make(map: Map) -> Option<&'static Record> {
    let header = map.header();
    let page = (map.allocate(1)? / PAGE) as u32;
    // SAFETY: zero bytes, whole pages: an empty record.
    let record = unsafe { map.record(page) };
    let chunks = header.lock_capacity.load(Relaxed).div_ceil(CHUNK_ENTRIES);
    record.base.store(map.base() as u64, Relaxed);
    record.directory.store(record.small_directory.as_ptr() as u64, Relaxed);
    if header.check.load(Relaxed) != 0 {
        record.checked().held_capacity.store(layout::SHORT_LIST as u32, Relaxed);
    } else {
        record.directory_len.store(chunks.min(SMALL_DIRECTORY as u32), Relaxed);
    }
    record.clock.store(header.clock.load(Relaxed), Relaxed);
    record.page.store(page, Relaxed);
    // Any value; differs from record to record.
    record.random.store(u64::from(page).wrapping_mul(0x9e37_79b9_7f4a_7c15), Relaxed);
    let _ = header.records.fetch_update(AcqRel, Acquire, |head| {
        record.next.store(head, Relaxed);
        Some(page)
    });
    Some(record)
}

/// Hands `record` back, or keeps it (ENDED): its thread ends.
pub(super) fn give_back(map: Map, record: &'static Record) {
    let header = map.header();
    let now = clock::ticks(header.clock.load(Relaxed));
    // It was cancelled while it waited.
    super::blocking::end_shown(map, record, now, false);
    let holds =
        if header.check.load(Relaxed) != 0 { super::check::ends(map, record) } else { holds_on(map, record) };
    let lived = now.saturating_sub(record.started.load(Relaxed));
    header.ended_ticks.fetch_add(lived, Relaxed);
    if !holds {
        return hand_on(map, record);
    }
    let name = sys::thread_name();
    record.name.iter().zip(name).for_each(|(to, half)| to.store(half, Relaxed));
    record.ended.store(now, Relaxed);
    // Release: for a reader that finds the record in this state.
    record.state.store(ENDED, Release);
    let place = header.ended_count.fetch_add(1, Relaxed) as usize % ENDED_RECORDS;
    let oldest = header.ended[place].swap(record.page.load(Relaxed), AcqRel);
    if oldest != 0 {
        // SAFETY: a page of a record, which is now in no list.
        let oldest = unsafe { map.record(oldest) };
        if header.check.load(Relaxed) != 0 {
            super::check::forget_holds(map, oldest);
        } else {
            forget_holds(map, oldest, |_| true);
        }
        hand_on(map, oldest);
    }
}

/// To the next thread that needs a record.
fn hand_on(map: Map, record: &Record) {
    let header = map.header();
    record.state.store(FREE, Relaxed);
    let page = record.page.load(Relaxed);
    // Release: the next holder sees all that this one wrote.
    let _ = header.free_records.fetch_update(AcqRel, Acquire, |head| {
        record.next_free.store(head as u32, Relaxed);
        Some(((head >> 32).wrapping_add(1) << 32) | u64::from(page))
    });
}

/// The record notes the beginning of a hold.
#[inline(always)]
pub(super) fn hold_begins(record: &Record, entry: &Entry, start: u64) {
    let is_new = entry.hold_start.load(Relaxed) == 0;
    record.held.store(record.held.load(Relaxed).wrapping_add(is_new.into()), Relaxed);
    entry.hold_start.store(start, Relaxed);
}

/// The record notes the end of a hold; when the hold began, 0 if there was none.
#[inline(always)]
pub(super) fn hold_ends(record: &Record, entry: &Entry) -> u64 {
    let start = entry.hold_start.load(Relaxed);
    record.held.store(record.held.load(Relaxed).wrapping_sub((start != 0).into()), Relaxed);
    entry.hold_start.store(0, Relaxed);
    start
}

/// Whether the ending thread holds a lock that is still there. The kernel passes robust mutexes on.
fn holds_on(map: Map, record: &Record) -> bool {
    let passes = |entry: &Entry| {
        let tag = entry.tag.load(Relaxed);
        let word = (tag >> 32) as u32;
        let slot = map.lock(word & layout::INDEX_MASK);
        let meta = slot.map_or(0, |slot| slot.meta.load(Relaxed));
        layout::meta_state(meta) != layout::LIVE
            || layout::word_of(word & layout::INDEX_MASK, meta) != word
            || layout::meta_kind(meta) == LockKind::RobustMutex as u8
    };
    forget_holds(map, record, passes);
    record.held.load(Relaxed) != 0
}

/// Forgets the holds that `is_over` says of. Those of locks without an entry of their own are not known
/// apart.
fn forget_holds(map: Map, record: &Record, is_over: impl Fn(&Entry) -> bool) {
    hold_ends(record, &record.overflow);
    let mut left = record.held.load(Relaxed);
    for chunk in 0..record.directory_len.load(Relaxed) {
        for index in chunk * CHUNK_ENTRIES..(chunk + 1) * CHUNK_ENTRIES {
            if left == 0 {
                return;
            }
            let Some(entry) = entry_at(map, record, index) else { break };
            if entry.hold_start.load(Relaxed) != 0 {
                left -= 1;
                if is_over(entry) {
                    hold_ends(record, entry);
                }
            }
        }
    }
    // A signal handler that left by a jump has miscounted.
    record.held.store(record.held.load(Relaxed).wrapping_sub(left), Relaxed);
}

/// The calling thread has the lock, or releases it: no ended thread holds it alone (ENDED). `of`: the ended
/// thread that is meant, where several can hold the lock.
pub(super) fn ended_let_go(map: Map, lock: LockRef<'_>, of: Option<u32>) {
    let header = map.header();
    if header.ended_count.load(Relaxed) == 0 || (lock.writers.is_some() && of.is_none()) {
        return;
    }
    let word = lock.word.load(Relaxed) & !MARK;
    let tag = layout::tag(word, lock.address as u64);
    for page in header.ended.iter().map(|page| page.load(Acquire)).filter(|&page| page != 0) {
        // SAFETY: a page of a record, and records stay records.
        let record = unsafe { map.record(page) };
        let chunk = (word & layout::INDEX_MASK) / CHUNK_ENTRIES;
        if record.state.load(Acquire) == ENDED
            && of.is_none_or(|tid| record.tid.load(Relaxed) == tid)
            && chunk < record.directory_len.load(Relaxed)
            && let Some(entry) = entry_at(map, record, word & layout::INDEX_MASK)
            && entry.tag.load(Relaxed) == tag
        {
            hold_ends(record, entry);
        }
    }
}

/// The entry of the lock that `word` and `address` have been found to name, made ready for it. `None` without
/// memory.
pub(super) fn entry(map: Map, record: &Record, word: u32, address: u64) -> Option<&'static Entry> {
    let index = word & layout::INDEX_MASK;
    let chunk = index / CHUNK_ENTRIES;
    if chunk >= record.directory_len.load(Relaxed) {
        grow_directory(map, record)?;
    }
    // SAFETY: the record's directory, of that length.
    let directory = unsafe {
        core::slice::from_raw_parts(
            record.directory.load(Relaxed) as *const core::sync::atomic::AtomicU32,
            record.directory_len.load(Relaxed) as usize,
        )
    };
    let place = directory.get(chunk as usize)?;
    if place.load(Relaxed) == 0 {
        place.store((map.allocate(CHUNK_PAGES)? / PAGE) as u32, Relaxed);
    }
    let entry = entry_at(map, record, index)?;
    let tag = layout::tag(word, address);
    let old = entry.tag.load(Relaxed);
    if old != tag {
        if old != 0 {
            recycle(record, entry);
        }
        entry.tag.store(tag, Relaxed);
    }
    Some(entry)
}

/// The record's entry of this index, whatever lock it is about. Its chunk is within the directory.
pub(super) fn entry_at(map: Map, record: &Record, index: u32) -> Option<&'static Entry> {
    let directory = record.directory.load(Relaxed) as *const core::sync::atomic::AtomicU32;
    // SAFETY: within the directory; pages in it are chunks.
    unsafe {
        let page = (*directory.add((index / CHUNK_ENTRIES) as usize)).load(Relaxed);
        let chunk = map.base().add(page as usize * PAGE as usize).cast::<Entry>();
        (page != 0).then(|| &*chunk.add((index % CHUNK_ENTRIES) as usize))
    }
}

/// The record's events. `None` without memory. May interrupt itself, in a signal handler: then a page is
/// wasted.
pub(super) fn events(map: Map, record: &Record) -> Option<&'static Events> {
    let mut page = record.events.load(Acquire);
    if page == 0 {
        let fresh = (map.allocate(1)? / PAGE) as u32;
        page = match record.events.compare_exchange(0, fresh, AcqRel, Acquire) {
            Ok(_) => fresh,
            Err(other) => other,
        };
    }
    // SAFETY: zero bytes, a whole page, allocated for this.
    Some(unsafe { map.events(page) })
}

/// The timed holds of an entry of this record.
pub(super) fn holds<'a>(record: &'a Record, entry: &'a Entry) -> &'a Holds {
    if core::ptr::eq(entry, &raw const record.overflow) {
        return &record.overflow_holds;
    }
    // SAFETY: any other entry is one of a chunk, whose second page is of `Holds`, as large as entries.
    unsafe { &*core::ptr::from_ref(entry).byte_add(PAGE as usize).cast() }
}

/// RECYCLE. A process that is killed in the middle loses the figures on the way; they are those of one lock
/// that is gone and that nobody waited for.
fn recycle(record: &Record, entry: &Entry) {
    let (from, sum) = (holds(record, entry), &record.recycled_holds);
    add(&record.recycled.acquisitions, entry.acquisitions.swap(0, Relaxed));
    add(&sum.total, from.total.swap(0, Relaxed));
    super::raise(&sum.max, from.max.swap(0, Relaxed));
    // Estimates of other locks' holds say nothing of one lock: how many were timed, and how long those were,
    // is kept.
    let squares = f64::from_bits(from.squares.swap(0, Relaxed));
    let sum_of_squares = f64::from_bits(sum.squares.load(Relaxed)) + squares;
    sum.squares.store(sum_of_squares.to_bits(), Relaxed);
    // All as picked ones: there may be any number of first ones.
    let samples = from.samples.swap(0, Relaxed);
    let timed = (samples >> layout::FIRST_BITS) + (samples & ((1 << layout::FIRST_BITS) - 1));
    add(&sum.total, f32::from_bits(from.first_total.swap(0, Relaxed)) as u64);
    let sum_of_samples =
        sum.samples.load(Relaxed).saturating_add(timed.saturating_mul(1 << layout::FIRST_BITS));
    sum.samples.store(sum_of_samples, Relaxed);
    entry.site.store(0, Relaxed);
    hold_ends(record, entry);
}

/// From the directory in the record's page to one for all locks there can be.
fn grow_directory(map: Map, record: &Record) -> Option<()> {
    let chunks = map.header().lock_capacity.load(Relaxed).div_ceil(CHUNK_ENTRIES);
    if record.directory_len.load(Relaxed) >= chunks {
        return None;
    }
    let offset = map.allocate((u64::from(chunks) * 4).div_ceil(PAGE))?;
    // SAFETY: just allocated.
    let large = unsafe { map.words(offset, chunks as usize) };
    for (to, from) in large.iter().zip(&record.small_directory) {
        to.store(from.load(Relaxed), Relaxed);
    }
    record.directory_offset.store(offset, Relaxed);
    record.directory.store(large.as_ptr() as u64, Relaxed);
    // Last: a signal handler in between goes by the old length, which is good for both. The compiler must not
    // turn the two round, which `Release` on the second sees to.
    record.directory_len.store(chunks, core::sync::atomic::Ordering::Release);
    Some(())
}
