//! The place of a lock in the statistics of `poundlock stat`, with the feature `stats`; otherwise nothing.

/// What a lock is called in the statistics.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Mutex,
    Spinlock,
    Reader,
    Writer,
}

/// Beside each lock.
#[derive(Default)]
pub(crate) struct Slot {}

impl Slot {
    pub(crate) const NEW: Slot = Slot {};

    /// Acquires by `wait`; `at_once` is the same without waiting.
    #[inline(always)]
    pub(crate) fn acquire(
        &self,
        _kind: Kind,
        _at_once: impl FnOnce() -> bool,
        wait: impl FnOnce() -> bool,
    ) -> bool {
        wait()
    }

    /// Acquires by `at_once`, or not.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, _kind: Kind, at_once: impl FnOnce() -> bool) -> bool {
        at_once()
    }

    /// Has been acquired, by other means.
    #[inline(always)]
    pub(crate) fn acquired(&self, _kind: Kind) {}

    /// Is held as another kind from now on.
    #[inline(always)]
    pub(crate) fn changed(&self, _from: Kind, _to: Kind) {}

    /// About to release.
    #[inline(always)]
    pub(crate) fn release(&self, _kind: Kind) {}
}
