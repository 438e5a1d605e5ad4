//! From the file of a recorded process to what its threads did in each stretch.

use std::collections::{BTreeMap, HashSet};
use std::mem::{offset_of, size_of};
use std::path::Path;

use crate::layout::{self, Chunk, Header, PAGE, Traced};
use crate::reader::Reader;
use crate::snapshot::Error;

/// A stretch: all that each thread did with locks for a while.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stretch {
    /// `CLOCK_MONOTONIC` at its begin, in nanoseconds.
    pub began_ns: u64,
    /// At its end; earlier than was planned if there was no more room.
    pub until_ns: u64,
    /// Each thread that did something.
    pub threads: Vec<Life>,
}

/// What a thread did in a stretch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Life {
    /// The place of its record in the file: [`ThreadStats::record`](crate::ThreadStats::record).
    pub record: u32,
    /// Its id.
    pub tid: u32,
    /// In their order.
    pub events: Vec<Event>,
}

/// Something that a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// What.
    pub what: What,
    /// With which lock: [`LockStats::slot`](crate::LockStats::slot). 0 where that is not known, or it was
    /// none.
    pub lock: u32,
    /// Where, by a return address; 0 where that is not known.
    pub place: u64,
}

/// See [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It acquired the lock without waiting.
    Acquired {
        /// It would not have waited.
        tried: bool,
    },
    /// It began to wait for it.
    Waits,
    /// It had waited, and has it.
    AcquiredAfter,
    /// It had waited, and has not.
    GaveUp,
    /// It was about to release it.
    Released,
    /// It began to wait for what is not acquired.
    Blocks,
    /// That wait was over.
    Unblocked {
        /// Because its time was up.
        timed_out: bool,
    },
    /// It gives its CPU to others that are ready; it goes on with [`What::Unblocked`].
    Yields,
    /// It was about to wake those who wait for the condition variable or the semaphore.
    Wakes {
        /// All, or one.
        all: bool,
    },
    /// What the event before was about ended now, and took longer than usual: a call that woke another
    /// thread, or the writing down.
    Ended,
    /// It looked at its clock of CPU time after a while without events, or at first.
    Cpu {
        /// What it said, in nanoseconds: it counts by microseconds.
        ns: u64,
        /// How often the thread had given up its CPU by itself.
        gave_up: u32,
        /// The CPU that it ran on.
        on: Option<u32>,
        /// How long a turn of [`compute`](crate::speed::compute) took there, in picoseconds, if that was
        /// measured.
        turn_ps: Option<u32>,
    },
}

/// What a file has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// The stretches, in their order.
    pub stretches: Vec<Stretch>,
    /// Whether the room for them was used up before the process ended.
    pub is_full: bool,
}

/// Reads what a recorded process's threads did.
///
/// # Errors
/// As [`read`](crate::read).
pub fn read_stretches(path: &Path) -> Result<Recorded, Error> {
    let reader = Reader::open(path)?;
    let header = |at: usize| reader.header.u32(at);
    let clock = reader.clock();
    let count = header(offset_of!(Header, stretch)).min(layout::STRETCHES);
    let slots = reader.block(u64::from(header(offset_of!(Header, stretches))) * PAGE, PAGE);
    let mut stretches: Vec<Stretch> = Vec::new();
    for at in 0..count as usize * usize::from(slots.is_some()) {
        let slot =
            |field: usize| slots.as_ref().map_or(0, |s| s.u64(at * size_of::<layout::Stretch>() + field));
        stretches.push(Stretch {
            began_ns: clock.moment(slot(offset_of!(layout::Stretch, began))),
            until_ns: clock.moment(slot(offset_of!(layout::Stretch, until))),
            threads: Vec::new(),
        });
    }
    let mut lives: BTreeMap<(u32, u32, u32), Vec<Event>> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut page = header(offset_of!(Header, trace_newest));
    while page != 0 && seen.insert(page) {
        let Some(block) = reader.block(u64::from(page) * PAGE, layout::TRACE_PAGES * PAGE) else { break };
        page = block.u32(offset_of!(Chunk, previous));
        let used = (block.u32(offset_of!(Chunk, used)) as usize).min(layout::TRACED);
        let event = |at: usize| {
            let begin = offset_of!(Chunk, events) + at * size_of::<Traced>();
            let what = block.u32(begin + offset_of!(Traced, what));
            let more = block.u64(begin + offset_of!(Traced, more));
            let lock = block.u32(begin + offset_of!(Traced, lock));
            let (kind, above) = (what & 0xff, what >> 8);
            let (of, place) = if kind == layout::TRACE_CPU { (0, 0) } else { (lock, more) };
            Some(Event {
                at_ns: clock.moment(block.u64(begin + offset_of!(Traced, time))),
                what: match kind {
                    layout::TRACE_ACQUIRED => What::Acquired { tried: above != 0 },
                    layout::TRACE_WAITS => What::Waits,
                    layout::TRACE_ACQUIRED_AFTER => What::AcquiredAfter,
                    layout::TRACE_GAVE_UP => What::GaveUp,
                    layout::TRACE_RELEASED => What::Released,
                    layout::TRACE_BLOCKS => What::Blocks,
                    layout::TRACE_UNBLOCKED => What::Unblocked { timed_out: above != 0 },
                    layout::TRACE_YIELDS => What::Yields,
                    layout::TRACE_ENDED => What::Ended,
                    layout::TRACE_WAKES => What::Wakes { all: above != 0 },
                    layout::TRACE_CPU => What::Cpu {
                        ns: more,
                        gave_up: above,
                        on: (lock % (1 << layout::TRACE_CPU_BITS)).checked_sub(1),
                        turn_ps: Some(lock >> layout::TRACE_CPU_BITS).filter(|ps| *ps != 0),
                    },
                    _ => return None,
                },
                lock: of,
                place,
            })
        };
        let of = (
            block.u32(offset_of!(Chunk, stretch)),
            block.u32(offset_of!(Chunk, record)),
            block.u32(offset_of!(Chunk, tid)),
        );
        lives.entry(of).or_default().extend((0..used).filter_map(event));
    }
    for ((stretch, record, tid), mut events) in lives {
        // Chunks come newest first.
        events.sort_by_key(|event| event.at_ns);
        if let Some(stretch) = (stretch as usize).checked_sub(1).and_then(|at| stretches.get_mut(at)) {
            stretch.threads.push(Life { record, tid, events });
        }
    }
    let (used, room) = (header(offset_of!(Header, trace_chunks)), header(offset_of!(Header, trace_room)));
    let is_full = room != 0 && (used >= room || count == layout::STRETCHES);
    Ok(Recorded { stretches, is_full })
}
