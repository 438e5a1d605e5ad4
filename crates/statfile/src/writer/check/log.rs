//! The log of events, which the command follows: LOG in [`layout`].
//!
//! Each event has its thread's name. One with nothing but a name comes before what speaks of another thread, and at the
//! end of a thread that has another name by then: so that who has ended has a name, however soon the command looks.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::super::map::Map;
use super::super::sys::{self, Name};
use crate::layout::{self, LogSlot, Lost, Record};

/// The number of the next event: a clock that orders births, deaths and edges.
pub(in crate::writer) fn moment(map: Map) -> u32 {
    u32::try_from(map.header().next_event.load(Acquire)).unwrap_or(u32::MAX)
}

/// Appends an event of the thread that has this record; `fill` says what it is, but for its head. Whether
/// there was room.
pub(in crate::writer) fn append(map: Map, record: &Record, kind: u32, fill: impl FnOnce(&LogSlot)) -> bool {
    let checked = record.checked();
    if checked.name[0].load(Relaxed) == 0 {
        checked.named.store(1, Relaxed);
        keep(record, sys::thread_name());
    }
    write(map, thread(record), name(record), kind, fill)
}

/// The serial of the thread that has this record, and its id.
fn thread(record: &Record) -> (u32, u32) {
    (record.checked().serial.load(Relaxed), record.tid.load(Relaxed))
}

/// The name by which it has logged last.
fn name(record: &Record) -> Name {
    [0, 1].map(|half| record.checked().name[half].load(Relaxed))
}

fn keep(record: &Record, name: Name) {
    record.checked().name.iter().zip(name).for_each(|(half, new)| half.store(new, Relaxed));
}

/// An event is to speak of another thread, which has this record.
#[cold]
pub(in crate::writer) fn mention(map: Map, other: &Record) {
    if other.checked().named.swap(1, Relaxed) == 0 {
        let (serial, tid) = thread(other);
        is_called(map, (serial, tid), sys::name_of_thread(tid));
    }
}

/// The thread of this record, which is the calling one, ends.
pub(in crate::writer) fn ends(map: Map, record: &Record) {
    if record.checked().named.load(Relaxed) != 0 {
        let last = sys::thread_name();
        if last != name(record) {
            keep(record, last);
            is_called(map, thread(record), last);
        }
    }
}

/// Logs the name of a thread, of which this is the serial and the id.
#[cold]
pub(in crate::writer) fn is_called(map: Map, thread: (u32, u32), name: Name) {
    if name != [0; 2] {
        write(map, thread, name, layout::LOG_NAMED, |_| {});
    }
}

fn write(map: Map, (serial, tid): (u32, u32), name: Name, kind: u32, fill: impl FnOnce(&LogSlot)) -> bool {
    let header = map.header();
    let capacity = u64::from(header.log_capacity.load(Relaxed));
    let take = || {
        let taken = header.next_event.fetch_update(AcqRel, Acquire, |next| {
            // Acquire: the command has read what the slot had.
            let waiting = next.wrapping_sub(header.consumed.load(Acquire));
            // Memory first, number second: so every number that is given out becomes an event.
            (waiting < capacity && map.log(next).is_some()).then_some(next + 1)
        });
        taken.ok().and_then(|number| Some((number, map.log(number)?)))
    };
    let mut taken = take();
    while taken.is_none() && has_made_room(map) {
        taken = take();
    }
    let Some((number, slot)) = taken else {
        lost(map, Lost::Events);
        return false;
    };
    slot.head.kind.store(kind, Relaxed);
    slot.head.thread.store(serial, Relaxed);
    slot.head.tid.store(tid, Relaxed);
    slot.name.iter().zip(name).for_each(|(half, new)| half.store(new, Relaxed));
    fill(slot);
    // Release: whoever sees the number sees the event.
    slot.head.ready.store((number as u32).wrapping_add(1), Release);
    true
}

/// Waits until the command has read more of the log, which is full. `false` if it reads nothing, or if the
/// log is not what is full. LOG in [`layout`] says how long.
#[cold]
fn has_made_room(map: Map) -> bool {
    let header = map.header();
    let consumed = header.consumed.load(Relaxed);
    let waiting = header.next_event.load(Relaxed).wrapping_sub(consumed);
    let is_full = waiting >= u64::from(header.log_capacity.load(Relaxed));
    if !is_full || consumed == 0 || header.stalled.load(Relaxed) == consumed + 1 {
        return false;
    }
    for _ in 0..layout::PATIENCE_MS {
        sys::pause(1_000_000);
        if header.consumed.load(Relaxed) != consumed {
            return true;
        }
    }
    header.stalled.store(consumed + 1, Relaxed);
    false
}

/// Counts what found no room.
#[cold]
pub(in crate::writer) fn lost(map: Map, what: Lost) {
    map.header().lost[what as usize].fetch_add(1, Relaxed);
}
