//! Semaphore arrays: which ones the process used, and the figures of those that it removed.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::map::Map;
use crate::ArrayEnd;
use crate::layout::ArraySlot;

/// How far from its own place an array may lie.
const REACH: u32 = 64;

/// The slot of the array with this id, claimed now if there is none yet.
pub(super) fn slot(map: Map, id: u32) -> Option<&'static ArraySlot> {
    let header = map.header();
    let reach = REACH.min(header.array_capacity.load(Relaxed));
    let place = id.wrapping_mul(0x9e37_79b9) >> 16;
    for step in 0..reach {
        let Some(slot) = map.array(place.wrapping_add(step)) else { break };
        match slot.id.load(Relaxed) {
            0 => match slot.id.compare_exchange(0, id, AcqRel, Acquire) {
                Ok(_) => {
                    header.arrays.fetch_add(1, Relaxed);
                    return Some(slot);
                }
                Err(other) if other == id => return Some(slot),
                Err(_) => {}
            },
            other if other == id => return Some(slot),
            _ => {}
        }
    }
    header.arrays_dropped.store(1, Relaxed);
    None
}

pub(super) fn removed(map: Map, id: u32, end: &ArrayEnd) {
    let Some(slot) = slot(map, id) else { return };
    slot.key.store(end.key as u32, Relaxed);
    slot.semaphores.store(end.semaphores, Relaxed);
    slot.variant.store(end.variant, Relaxed);
    for (to, from) in slot.figures.iter().zip(end.figures) {
        to.store(from, Relaxed);
    }
    // Release: for a reader that looks on while the process lives.
    slot.removed.store(1, Release);
}
