//! What a recorded process's threads do with locks, written down in stretches: TRACE in [`layout`].
//!
//! The fast paths know nothing of it. A thread that looks at the clock by chance, or for another reason,
//! looks for a stretch as well; in one, whatever is written down has the next acquisition and each release
//! look. One that uses locks rarely looks each time, so that no stretch misses it.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::map::Map;
use super::{clock, sys};
use crate::layout::{self, Chunk, INDEX_MASK, Record, TRACED, Tracer};
use crate::speed;

/// How long the first stretches are.
const LENGTH_NS: u64 = 10_000_000;
/// From the begin of one to that of the next, in lengths.
const EVERY: u64 = 10;
/// After this number, they are twice as long, and come half as often.
const ALIKE: u32 = 8;
/// A part of the room for each.
const SHARE: u32 = 64;
/// A thread that has done nothing with locks for so long may have been without a CPU.
const LONG_NS: u64 = 20_000;
/// A release or a signal that takes longer called the kernel.
const CALL_NS: u64 = 150;

/// Something that the calling thread, which has this record, did with the lock of this word.
#[inline(always)]
pub(super) fn note(map: Map, record: &Record, what: u32, word: u32, more: u64) {
    if map.header().trace_room.load(Relaxed) != 0 {
        note_it(map, record, what, word, more);
    }
}

/// As [`note`], of what happens too often, and with a lock held, for a look at the clock each time: stretches
/// begin with other events. Whether its end may be one, too.
#[inline(always)]
pub(super) fn note_in_stretch(map: Map, record: &Record, what: u32, word: u32, more: u64) -> bool {
    let wanted = is_in_stretch(map);
    if wanted {
        note_it(map, record, what, word, more);
    }
    wanted
}

/// What the thread's last event was about is over. If it took long, it was a call to the kernel.
pub(super) fn ended(map: Map, record: &Record) {
    let page = record.tracer.load(Relaxed);
    if page == 0 {
        return;
    }
    // SAFETY: the record's tracer.
    let tracer = unsafe { map.tracer(page) };
    let now = clock::ticks(record.clock.load(Relaxed));
    let took = clock::span(map, now.saturating_sub(tracer.last.load(Relaxed)));
    if took < CALL_NS || tracer.busy.load(Relaxed) != 0 {
        return;
    }
    tracer.busy.store(1, Relaxed);
    tracer.last.store(now, Relaxed);
    let stretch = stretch(map, now);
    // It may have begun before the stretch.
    if stretch != 0
        && last_chunk(map, tracer, stretch).is_some()
        && let Some((chunk, _)) = chunk(map, record, tracer, stretch, now)
    {
        append(chunk, now, layout::TRACE_ENDED, 0, 0);
        if took >= LONG_NS {
            // It may have been without a CPU meanwhile.
            append_cpu(chunk, now, 0);
            append(chunk, clock::ticks(record.clock.load(Relaxed)), layout::TRACE_ENDED, 0, 0);
        }
    }
    tracer.busy.store(0, Relaxed);
}

/// As [`note`] if it `begins` stretches, else as [`note_in_stretch`]; and the next acquisition of the thread
/// begins some, too, if there is one or it comes late.
#[inline(always)]
pub(super) fn note_acquired(map: Map, record: &Record, what: u32, word: u32, pc: usize, begins: bool) {
    let header = map.header();
    let wanted = if begins { header.trace_room.load(Relaxed) != 0 } else { is_in_stretch(map) };
    if wanted && note_it(map, record, what, word, pc as u64) {
        record.until_sample.store(0, Relaxed);
    }
}

/// Whether there is a stretch, or has been one, and nobody has looked at the clock since.
#[inline(always)]
pub(super) fn is_in_stretch(map: Map) -> bool {
    map.header().stretch_until.load(Relaxed) != 0
}

/// The record has a new thread.
pub(super) fn begins(map: Map, record: &Record) {
    let page = record.tracer.load(Relaxed);
    if page != 0 {
        // SAFETY: the record's tracer.
        let tracer = unsafe { map.tracer(page) };
        tracer.chunk.store(0, Relaxed);
        tracer.busy.store(0, Relaxed);
    }
}

/// In a stretch, has the thread's next acquisition come here. Whether it should outside of one, too.
#[cold]
#[inline(never)]
fn note_it(map: Map, record: &Record, what: u32, word: u32, more: u64) -> bool {
    let now = clock::ticks(record.clock.load(Relaxed));
    let Some(tracer) = tracer(map, record) else { return false };
    // A signal handler came in between.
    if tracer.busy.load(Relaxed) != 0 {
        return true;
    }
    tracer.busy.store(1, Relaxed);
    let passed = now.saturating_sub(tracer.last.load(Relaxed));
    tracer.last.store(now, Relaxed);
    let is_late = clock::span(map, passed) >= LONG_NS;
    let stretch = stretch(map, now);
    if stretch == 0 {
        tracer.chunk.store(0, Relaxed);
    } else if let Some((chunk, is_new)) = chunk(map, record, tracer, stretch, now) {
        if is_late || is_new {
            append_cpu(chunk, now, if is_new { turn_ps(map, record) } else { 0 });
        }
        append(chunk, now, what, word & INDEX_MASK, more);
        if is_late || is_new {
            // What that took is not the program's.
            append(chunk, clock::ticks(record.clock.load(Relaxed)), layout::TRACE_ENDED, 0, 0);
        }
    }
    tracer.busy.store(0, Relaxed);
    if stretch != 0 {
        // Its next acquisition is part of the stretch, also where the last one came before.
        record.until_sample.store(0, Relaxed);
    }
    is_late
}

fn tracer(map: Map, record: &Record) -> Option<&'static Tracer> {
    let mut page = record.tracer.load(Relaxed);
    if page == 0 {
        page = (map.allocate(1)? / layout::PAGE) as u32;
        record.tracer.store(page, Relaxed);
    }
    // SAFETY: zero bytes, a whole page, allocated for this.
    Some(unsafe { map.tracer(page) })
}

/// The number of the stretch that goes on, or begins; 0 if none does.
fn stretch(map: Map, now: u64) -> u32 {
    let header = map.header();
    // Acquire: its number is there.
    let until = header.stretch_until.load(Acquire);
    if now < until {
        return header.stretch.load(Relaxed);
    }
    if until != 0 {
        // Unless the next one has begun meanwhile.
        _ = header.stretch_until.compare_exchange(until, 0, Relaxed, Relaxed);
    }
    if now < header.stretch_next.load(Relaxed) || header.stretch_busy.swap(1, Acquire) != 0 {
        return 0;
    }
    let begun = if now >= header.stretch_next.load(Relaxed) { begin(map, now) } else { None };
    header.stretch_busy.store(0, Release);
    begun.unwrap_or(0)
}

fn begin(map: Map, now: u64) -> Option<u32> {
    let header = map.header();
    let number = header.stretch.load(Relaxed) + 1;
    let (used, room) = (header.trace_chunks.load(Relaxed), header.trace_room.load(Relaxed));
    if number > layout::STRETCHES || used >= room {
        header.stretch_next.store(u64::MAX, Relaxed);
        return None;
    }
    let mut page = header.stretches.load(Relaxed);
    if page == 0 {
        page = (map.allocate(1)? / layout::PAGE) as u32;
        header.stretches.store(page, Release);
    }
    let length = clock::ticks_of(map, LENGTH_NS) << ((number - 1) / ALIKE);
    // SAFETY: allocated for them.
    let slot = &unsafe { map.stretches(page) }[number as usize - 1];
    slot.began.store(now, Relaxed);
    slot.until.store(now + length, Relaxed);
    header.stretch.store(number, Relaxed);
    header.stretch_room.store(used.saturating_add(room.div_ceil(SHARE)).min(room), Relaxed);
    header.stretch_next.store(now + length * EVERY, Relaxed);
    // Release: all the above belongs to it.
    header.stretch_until.store(now + length, Release);
    Some(number)
}

/// What the thread writes into, if that is of this stretch.
fn last_chunk(map: Map, tracer: &Tracer, stretch: u32) -> Option<&'static Chunk> {
    let page = tracer.chunk.load(Relaxed);
    // SAFETY: a chunk's page.
    let chunk = (page != 0).then(|| unsafe { map.chunk(page) });
    chunk.filter(|chunk| chunk.stretch.load(Relaxed) == stretch)
}

/// The thread's chunk in this stretch, with room for three events, and whether it is new. Without room the
/// stretch is over.
fn chunk(
    map: Map,
    record: &Record,
    tracer: &Tracer,
    stretch: u32,
    now: u64,
) -> Option<(&'static Chunk, bool)> {
    let fits = |chunk: &&Chunk| chunk.used.load(Relaxed) as usize + 3 <= TRACED;
    if let Some(chunk) = last_chunk(map, tracer, stretch).filter(fits) {
        return Some((chunk, false));
    }
    let header = map.header();
    let has_room = |used: u32| (used < header.stretch_room.load(Relaxed)).then_some(used + 1);
    let page = match header.trace_chunks.fetch_update(Relaxed, Relaxed, has_room) {
        Ok(_) => map.allocate(layout::TRACE_PAGES).map(|offset| (offset / layout::PAGE) as u32),
        Err(_) => None,
    };
    let Some(page) = page else {
        // For all threads: what one does alone tells nothing.
        header.stretch_until.store(now, Relaxed);
        // SAFETY: allocated before the stretch began.
        let slots = unsafe { map.stretches(header.stretches.load(Acquire)) };
        slots[stretch as usize - 1].until.fetch_min(now, Relaxed);
        return None;
    };
    // SAFETY: zero bytes, allocated for this.
    let chunk = unsafe { map.chunk(page) };
    chunk.record.store(record.page.load(Relaxed), Relaxed);
    chunk.tid.store(record.tid.load(Relaxed), Relaxed);
    chunk.stretch.store(stretch, Relaxed);
    tracer.chunk.store(page, Relaxed);
    let _ = header.trace_newest.fetch_update(AcqRel, Acquire, |newest| {
        chunk.previous.store(newest, Relaxed);
        Some(page)
    });
    Some((chunk, true))
}

/// How long a turn of [`speed::compute`] takes now: the least of some, in picoseconds. That takes
/// two microseconds or more.
fn turn_ps(map: Map, record: &Record) -> u32 {
    const TIMES: u32 = 3;
    const TURNS: u32 = 1000;
    let now = || clock::ticks(record.clock.load(Relaxed));
    let once = |_| {
        let begun = now();
        speed::compute(TURNS);
        clock::span(map, 1000 * now().saturating_sub(begun)) / u64::from(TURNS)
    };
    (0..TIMES)
        .map(once)
        .filter(|ps| *ps > 0)
        .min()
        .unwrap_or(0)
        .min(u64::from(u32::MAX >> layout::TRACE_CPU_BITS)) as u32
}

/// The CPU time that the thread has had, and its CPU.
fn append_cpu(chunk: &Chunk, now: u64, turn_ps: u32) {
    let (cpu_ns, gave_up) = sys::cpu_time();
    let cpu = sys::cpu().map_or(0, |cpu| cpu + 1) | turn_ps << layout::TRACE_CPU_BITS;
    append(chunk, now, layout::TRACE_CPU | (gave_up.min(0xff_ffff) as u32) << 8, cpu, cpu_ns);
}

fn append(chunk: &Chunk, now: u64, what: u32, lock: u32, more: u64) {
    let used = chunk.used.load(Relaxed);
    let Some(event) = chunk.events.get(used as usize) else { return };
    event.time.store(now, Relaxed);
    event.what.store(what, Relaxed);
    event.lock.store(lock, Relaxed);
    event.more.store(more, Relaxed);
    // Release: whoever sees the number sees the event.
    chunk.used.store(used + 1, Release);
}
