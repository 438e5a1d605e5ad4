//! Locks in signal handlers: the rule that the kernel's lock validator has for interrupts.
//!
//! A lock that a handler waits for must not be one that the interrupted thread holds: that thread goes on only
//! after the handler. If it does hold it, that is certain. Else it may: if a handler of some signal takes a
//! lock of some class, and a lock of that class is taken elsewhere by a thread for which the signal is open. So
//! there is a table of classes, with the signals in whose handlers, and those with which open, a lock was taken.
//!
//! Which signals are open the kernel must be asked, a system call. It is asked where a thread takes a lock of a
//! class in a way that is new, and for classes that a handler has taken. In a program without handlers nothing
//! is asked. Signals that the kernel sends to a thread for what that itself does (a fault, a write to a pipe
//! without a reader) do not come at any time: of those only what is certain is said. So is nothing of a try.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::super::{CallSite, Host, Recorder};
use super::orders::End;
use super::{Finding, Stay, found, serial};
use crate::check::{DIRECT, OUTSIDE, Serial, Wrong};
use crate::layout::Held;

/// The signal handler that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted {
    /// The signal.
    pub signal: u32,
    /// The number of the thread's last hold before: see [`Recorder::last_hold`].
    pub last_hold: u32,
    /// The signal came because of what the thread did.
    pub by_itself: bool,
}

/// A class that was taken in a handler, or by a thread for which signals with handlers were open.
struct Class {
    /// 0 in a free place.
    class: AtomicU32,
    /// Where a handler first took it, and by which thread;
    within_stack: AtomicU32,
    within_thread: AtomicU32,
    /// where it was taken while signals were open,
    outside_stack: AtomicU32,
    outside_thread: AtomicU32,
    _pad: u32,
    /// The signals of those handlers, a bit each; the one of `within_stack` is the lowest.
    within: AtomicU64,
    /// All that were open somewhere,
    outside: AtomicU64,
    /// and those that were open at the place.
    at_place: AtomicU64,
    /// Those of which it was said.
    said: AtomicU64,
}

const CLASSES: usize = 1 << 12;
const PROBES: usize = 8;

static TABLE: [Class; CLASSES] = [const {
    Class {
        class: AtomicU32::new(0),
        within_stack: AtomicU32::new(0),
        within_thread: AtomicU32::new(0),
        outside_stack: AtomicU32::new(0),
        outside_thread: AtomicU32::new(0),
        _pad: 0,
        within: AtomicU64::new(0),
        outside: AtomicU64::new(0),
        at_place: AtomicU64::new(0),
        said: AtomicU64::new(0),
    }
}; CLASSES];

/// Whether a handler has taken a lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// In which ways threads have taken locks, as far as there is room to remember it: class, stack and thread.
static WAYS: [AtomicU64; 1 << 13] = [const { AtomicU64::new(0) }; 1 << 13];

/// Whether threads have taken locks in this way, which is known from then on. Each pair of places has the last two
/// that belong there.
fn is_known_way(way: u64) -> bool {
    let first = (way >> 51) as usize & !1;
    let last = WAYS[first].load(Relaxed);
    if last == way || WAYS[first + 1].load(Relaxed) == way {
        return true;
    }
    WAYS[first + 1].store(last, Relaxed);
    WAYS[first].store(way, Relaxed);
    false
}

fn hash(a: u64) -> u64 {
    let a = (a ^ a >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (a ^ a >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The place of a class; a new one if it has none and `new`. `None` without room.
fn place(class: u32, new: bool) -> Option<&'static Class> {
    let first = (hash(class.into()) >> 40) as usize;
    (0..PROBES).find_map(|step| {
        let place = &TABLE[(first + step) % CLASSES];
        match place.class.load(Acquire) {
            found if found == class => Some(place),
            0 if new => {
                let mine = place.class.compare_exchange(0, class, AcqRel, Acquire);
                (mine.is_ok() || mine == Err(class)).then_some(place)
            }
            _ => None,
        }
    })
}

const fn bit(signal: u32) -> u64 {
    1 << (signal.wrapping_sub(1) & 63)
}

/// The signals, a bit each, that have a place of their own in what is said.
fn lowest(signals: u64) -> u32 {
    signals.trailing_zeros() + 1
}

impl<H: Host> Recorder<H> {
    /// The thread takes a lock, and does not only try to; it may be in a handler, or signals may have some.
    #[inline(always)]
    pub(super) fn signals(&'static self, stay: &Stay<H>, end: &End, site: CallSite) {
        if H::interrupted() || H::handled_signals() != 0 {
            self.by_signals(stay, end, site);
        }
    }

    #[cold]
    #[inline(never)]
    fn by_signals(&'static self, stay: &Stay<H>, end: &End, site: CallSite) {
        let class = end.known.class();
        let now = if H::interrupted() { H::handler(site.sp) } else { None };
        match now {
            Some(handler) if handler.by_itself => {}
            Some(handler) => self.within(stay, end, class, handler.signal),
            None => self.outside(stay, end, class),
        }
    }

    /// In a handler of this signal.
    fn within(&'static self, stay: &Stay<H>, end: &End, class: u32, signal: u32) {
        let Some(place) = place(class, true) else { return };
        if place.within.load(Relaxed) & bit(signal) == 0 {
            if place.within.load(Relaxed) == 0 {
                place.within_stack.store(end.stack, Relaxed);
                place.within_thread.store(serial(stay.record).0, Relaxed);
            }
            // Release: who sees the bit sees the place. The other side looks after a store of its own as well.
            place.within.fetch_or(bit(signal), AcqRel);
            ANY.store(true, Release);
        }
        let new = place.outside.load(Acquire) & bit(signal) & !place.said.load(Relaxed);
        if new != 0 && place.said.fetch_or(new, Relaxed) & new == 0 {
            let shown = place.at_place.load(Relaxed) & new != 0;
            let finding = Finding {
                other_stack: if shown { place.outside_stack.load(Relaxed) } else { 0 },
                other_thread: shown.then(|| Serial(place.outside_thread.load(Relaxed))),
                number: signal.into(),
                ..Finding::about(Wrong::Handler, end.known, end.stack)
            };
            found(stay.map, stay.record, &finding);
        }
    }

    /// Elsewhere.
    fn outside(&'static self, stay: &Stay<H>, end: &End, class: u32) {
        let known = if ANY.load(Acquire) { place(class, false) } else { None };
        let taken_within =
            known.is_some_and(|known| known.within.load(Relaxed) & !known.outside.load(Relaxed) != 0);
        let thread = serial(stay.record).0;
        let way = hash(hash(u64::from(class) << 32 | u64::from(end.stack)) ^ u64::from(thread)) | 1;
        if is_known_way(way) && !taken_within {
            return;
        }
        let open = H::handled_signals() & !H::blocked_signals();
        if open == 0 {
            return;
        }
        let Some(place) = place(class, true) else { return };
        let before = place.outside.load(Relaxed);
        if open & !before != 0 {
            // The place is that of the signals that were open there.
            if before == 0 || open & before == before {
                place.outside_stack.store(end.stack, Relaxed);
                place.outside_thread.store(thread, Relaxed);
                place.at_place.store(open, Relaxed);
            }
            place.outside.fetch_or(open, AcqRel);
        }
        let within = place.within.load(Acquire);
        let new = within & open & !place.said.load(Relaxed);
        if new != 0 && place.said.fetch_or(new, Relaxed) & new == 0 {
            let finding = Finding {
                other_stack: place.within_stack.load(Relaxed),
                other_thread: Some(Serial(place.within_thread.load(Relaxed))),
                number: u64::from(lowest(new)) | OUTSIDE,
                ..Finding::about(Wrong::Handler, end.known, end.stack)
            };
            found(stay.map, stay.record, &finding);
        }
    }

    /// The thread waits for a lock that it has. Whether it is in a handler, and had it before: then it is said.
    pub(super) fn waits_for_what_was_interrupted(
        &'static self,
        stay: &Stay<H>,
        held: &Held,
        end: &End,
        site: CallSite,
    ) -> bool {
        if !H::interrupted() {
            return false;
        }
        let Some(handler) = H::handler(site.sp) else { return false };
        let since = held.sequence.load(Relaxed).wrapping_sub(handler.last_hold);
        // Of a later number: taken by the handler itself.
        if (1..1 << 31).contains(&since) {
            return false;
        }
        let finding = Finding {
            other_stack: held.stack.load(Relaxed),
            other_thread: Some(serial(stay.record)),
            number: u64::from(handler.signal) | DIRECT,
            ..Finding::about(Wrong::Handler, end.known, end.stack)
        };
        found(stay.map, stay.record, &finding);
        true
    }

    /// The number of the last hold that the calling thread began: for signal handlers.
    pub fn last_hold(&'static self) -> u32 {
        self.attached().map_or(0, |record| record.checked().sequence.load(Relaxed))
    }
}

const _: () = assert!(CLASSES.is_power_of_two());
