//! Ticks of a file on `CLOCK_MONOTONIC`.

use std::mem::offset_of;

use crate::layout::{CLOCK_COUNTER, Header};

/// Ticks to nanoseconds, by the pairs of the two clocks that the process has left. Without a second pair,
/// which it leaves within some 30 ms, a tick passes for a nanosecond.
pub(crate) struct Clock {
    pub(crate) start_ticks: u64,
    pub(crate) start_ns: u64,
    pub(crate) ticks: u64,
    pub(crate) ns: u64,
}

impl Clock {
    /// Of a header whose fields are read by these, at their offsets.
    pub(crate) fn of(u32_at: impl Fn(usize) -> u32, u64_at: impl Fn(usize) -> u64) -> Clock {
        let pair = |at: usize| (u64_at(at), u64_at(at + 8));
        let (start_ticks, start_ns) = pair(offset_of!(Header, start));
        let mut clock = Clock { start_ticks, start_ns, ticks: 1, ns: 1 };
        if u32_at(offset_of!(Header, clock)) == CLOCK_COUNTER {
            let last = u32_at(offset_of!(Header, later_count)).wrapping_sub(1) % 2;
            let (ticks, ns) = pair(offset_of!(Header, later) + 16 * last as usize);
            if ticks > start_ticks && ns > start_ns {
                clock.ticks = ticks - start_ticks;
                clock.ns = ns - start_ns;
            }
        }
        clock
    }

    /// How long these ticks last.
    pub(crate) fn span(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * u128::from(self.ns) / u128::from(self.ticks.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The ticks that last as long.
    pub(crate) fn ticks(&self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.ticks) / u128::from(self.ns.max(1));
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// When it was.
    pub(crate) fn moment(&self, ticks: u64) -> u64 {
        match ticks.checked_sub(self.start_ticks) {
            Some(after) => self.start_ns.saturating_add(self.span(after)),
            None => self.start_ns.saturating_sub(self.span(self.start_ticks - ticks)),
        }
    }
}
