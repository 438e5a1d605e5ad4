//! Changes that any process can roll back that finds their author dead (JOURNAL).
//!
//! The stores are in this order for the compiler because all are releases. A reader of a dead process's
//! journal needs no more: [`Host::gone`](super::Host::gone) orders the process's stores before the look.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::Host;
use super::layout::{JOURNAL, JOURNAL_ENTRIES, JOURNAL_LENGTH};
use super::lock::Locked;
use crate::platform::Atomic;

impl<H: Host> Locked<'_, H> {
    /// Changes a word, so that it can be rolled back until [`Self::commit`].
    #[inline]
    pub(super) fn set(&self, at: usize, value: u32) {
        let word = self.at(at);
        let old = word.load(Relaxed);
        if old == value {
            return;
        }
        let length = self.load(JOURNAL_LENGTH);
        debug_assert!((length as usize) < JOURNAL_ENTRIES, "a transaction without bounds");
        let entry = JOURNAL + 2 * (length as usize % JOURNAL_ENTRIES);
        self.at(entry).store(at as u32, Release);
        self.at(entry + 1).store(old, Release);
        self.at(JOURNAL_LENGTH).store(length + 1, Release);
        word.store(value, Release);
    }

    /// Makes the changes since the last commit final.
    #[inline]
    pub(super) fn commit(&self) {
        self.at(JOURNAL_LENGTH).store(0, Release);
    }

    /// Takes back the changes since the last commit. If it is interrupted for ever, the next one does the
    /// same again.
    pub(super) fn roll_back(&self) {
        let length = (self.load(JOURNAL_LENGTH) as usize).min(JOURNAL_ENTRIES);
        for entry in (0..length).rev() {
            let at = self.load(JOURNAL + 2 * entry) as usize;
            self.at(at).store(self.load(JOURNAL + 2 * entry + 1), Release);
        }
        self.commit();
    }
}
