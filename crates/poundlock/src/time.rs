//! From the standard library's times to deadlines.

use std::time::{Duration, Instant};

use poundlock_core::platform::Deadline;

/// So long from now. A time that no clock will show is never.
pub(crate) fn after(timeout: Duration) -> Deadline {
    poundlock_linux::after(timeout)
}

/// Then.
pub(crate) fn at(instant: Instant) -> Deadline {
    after(instant.saturating_duration_since(Instant::now()))
}
