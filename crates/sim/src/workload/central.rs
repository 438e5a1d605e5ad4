//! The readers-writer spinlock of Linux before its queue: one word that readers count themselves in.
//!
//! A workload's object, not a lock of ours. A thread that finds it taken takes back what it has added and
//! looks, with all others, until it is free. Readers pass writers, and all of them move the word's line.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use poundlock_core::platform::{Atomic, Platform};

use crate::atomic::U32;
use crate::platform::Sim;

/// A writer, or a thread that tries to be one. The bits below are readers.
const WRITER: u32 = 1 << 16;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Central(U32);

impl Central {
    pub(super) fn read(&self) {
        while self.0.fetch_add(1, Acquire) >= WRITER {
            self.0.fetch_add(1_u32.wrapping_neg(), Relaxed);
            while self.0.load(Relaxed) >= WRITER {
                Sim::relax();
            }
        }
    }

    pub(super) fn done_reading(&self) {
        self.0.fetch_add(1_u32.wrapping_neg(), Release);
    }

    pub(super) fn write(&self) {
        while self.0.fetch_add(WRITER, Acquire) != 0 {
            self.0.fetch_add(WRITER.wrapping_neg(), Relaxed);
            while self.0.load(Relaxed) != 0 {
                Sim::relax();
            }
        }
    }

    pub(super) fn done_writing(&self) {
        self.0.fetch_add(WRITER.wrapping_neg(), Release);
    }
}
