//! From the standard library's times to deadlines.

use std::time::Instant;

use poundlock_core::platform::Deadline;
pub(crate) use poundlock_linux::time::after;

pub(crate) fn at(instant: Instant) -> Deadline {
    after(instant.saturating_duration_since(Instant::now()))
}
