//! The log of events, which the command follows: LOG in [`layout`].

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::super::map::Map;
use crate::layout::{LogSlot, Lost, Record};

/// The number of the next event: a clock that orders births, deaths and edges.
pub(in crate::writer) fn moment(map: Map) -> u32 {
    u32::try_from(map.header().next_event.load(Acquire)).unwrap_or(u32::MAX)
}

/// Appends an event of the thread that has this record; `fill` says what it is, but for its head. Whether
/// there was room.
pub(in crate::writer) fn append(map: Map, record: &Record, kind: u32, fill: impl FnOnce(&LogSlot)) -> bool {
    let header = map.header();
    let capacity = u64::from(header.log_capacity.load(Relaxed));
    let taken = header.next_event.fetch_update(AcqRel, Acquire, |next| {
        // Acquire: the command has read what the slot had.
        let waiting = next.wrapping_sub(header.consumed.load(Acquire));
        // Memory first, number second: so every number that is given out becomes an event.
        (waiting < capacity && map.log(next).is_some()).then_some(next + 1)
    });
    let Some((number, slot)) = taken.ok().and_then(|number| Some((number, map.log(number)?))) else {
        lost(map, Lost::Events);
        return false;
    };
    slot.head.kind.store(kind, Relaxed);
    slot.head.thread.store(record.checked().serial.load(Relaxed), Relaxed);
    slot.head.tid.store(record.tid.load(Relaxed), Relaxed);
    fill(slot);
    // Release: whoever sees the number sees the event.
    slot.head.ready.store((number as u32).wrapping_add(1), Release);
    true
}

/// Counts what found no room.
#[cold]
pub(in crate::writer) fn lost(map: Map, what: Lost) {
    map.header().lost[what as usize].fetch_add(1, Relaxed);
}
