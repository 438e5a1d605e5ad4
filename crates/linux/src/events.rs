//! Where lock events go: to the sink that was installed.

use core::ptr;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use poundlock_core::events::Event;

/// Takes an event. The thread to which it happens calls it, in slow paths, perhaps in a signal handler that
/// interrupted another call of it. The second argument is 1, or a duration in nanoseconds.
pub type Sink = fn(Event, u64);

/// The [`Sink`]; null while no program counts.
static SINK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Sends every event of this process from now on to `sink`. It must be async-signal-safe, and use no lock of
/// this crate.
pub fn send_to(sink: Sink) {
    // Release: the sink's data was made before.
    SINK.store(sink as *mut (), Release);
}

#[inline(always)]
pub(crate) fn counting() -> bool {
    !SINK.load(Acquire).is_null()
}

#[cold]
pub(crate) fn count(event: Event, amount: u64) {
    let sink = SINK.load(Acquire);
    if !sink.is_null() {
        // SAFETY: nothing but a `Sink` was ever stored there.
        let sink: Sink = unsafe { core::mem::transmute(sink) };
        sink(event, amount);
    }
}
