//! glibc's readers-writer lock of the default kind, which prefers readers (glibc 2.41,
//! `nptl/pthread_rwlock_common.c`): one word says how many readers there are or wait, whether a writer has
//! the right to write next, and whose phase it is, readers' or the writer's. Two more are futexes: one on
//! which whoever waits for the other phase sleeps, and one for further writers. Nobody spins.
//!
//! Who ends a phase hands it over: the last reader to the writer that has the right, a writer to all readers
//! that have come. A writer without readers leaves the phase as it is, and whoever comes first has it.
//!
//! It has the write of the writer's thread, which lies in the line. Left out: the kinds that prefer writers,
//! deadlines, and tries.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Until};

use crate::atomic::U32;
use crate::platform::Sim;

/// In `readers`: it is the writer's phase.
const WRITES: u32 = 1;
/// A writer has the right to write, now or when the readers' phase ends.
const CLAIMED: u32 = 2;
const READER: u32 = 4;

/// In a futex: somebody may sleep there.
const USED: u32 = 2;
/// In `phase`, the writer's phase; in `writers`, that a writer has the right.
const TAKEN: u32 = 1;

/// See the module's documentation.
#[derive(Default)]
pub struct GlibcRwLock {
    readers: U32,
    phase: U32,
    writers: U32,
    writer: U32,
}

impl GlibcRwLock {
    /// As one of several readers.
    pub fn read(&self) {
        let mut seen = self.readers.fetch_add(READER, Relaxed) + READER;
        if seen & WRITES == 0 {
            return;
        }
        while seen & (WRITES | CLAIMED) == WRITES {
            match self.readers.compare_exchange(seen, seen ^ WRITES, Relaxed, Relaxed) {
                Ok(_) => {
                    if self.phase.swap(0, Relaxed) & USED != 0 {
                        Sim::wake(&self.phase, u32::MAX);
                    }
                    return;
                }
                Err(now) => seen = now,
            }
        }
        self.sleep_until_phase(0);
    }

    /// Ends what [`GlibcRwLock::read`] began.
    pub fn unlock_read(&self) {
        let mut seen = self.readers.load(Relaxed);
        let ends = loop {
            let left = seen - READER;
            let ends = left < READER && left & CLAIMED != 0;
            let next = if ends { left | WRITES } else { left };
            match self.readers.compare_exchange(seen, next, Relaxed, Relaxed) {
                Ok(_) => break ends,
                Err(now) => seen = now,
            }
        };
        if ends && self.phase.swap(TAKEN, Relaxed) & USED != 0 {
            Sim::wake(&self.phase, u32::MAX);
        }
    }

    /// As the writer.
    pub fn write(&self) {
        let mut seen = self.readers.fetch_or(CLAIMED, Relaxed);
        if seen & CLAIMED != 0 {
            // Another one has the right. It may have to share the futex, so it wakes the next of them.
            let mut used = 0;
            loop {
                if seen & CLAIMED == 0 {
                    match self.readers.compare_exchange(seen, seen | CLAIMED, Relaxed, Relaxed) {
                        Ok(_) => break,
                        Err(now) => seen = now,
                    }
                    continue;
                }
                let futex = self.writers.load(Relaxed);
                if futex & TAKEN != 0 && (futex & USED != 0 || self.is_used(&self.writers, futex)) {
                    Sim::wait(&self.writers, TAKEN | USED, Until::Woken);
                    used = USED;
                }
                seen = self.readers.load(Relaxed);
            }
            self.writers.store(TAKEN | used, Relaxed);
            seen |= CLAIMED;
        } else {
            self.writers.store(TAKEN, Relaxed);
        }
        loop {
            if seen & WRITES != 0 {
                break;
            }
            if seen >= READER {
                self.sleep_until_phase(TAKEN);
                break;
            }
            match self.readers.compare_exchange(seen, seen | WRITES, Relaxed, Relaxed) {
                Ok(_) => {
                    self.phase.store(TAKEN, Relaxed);
                    break;
                }
                Err(now) => seen = now,
            }
        }
        self.writer.store(1 + Sim::current().unwrap_or(0), Relaxed);
    }

    /// Ends what [`GlibcRwLock::write`] began.
    pub fn unlock_write(&self) {
        self.writer.store(0, Relaxed);
        let others = self.writers.swap(0, Relaxed) & USED != 0;
        let mut seen = self.readers.load(Relaxed);
        loop {
            let phase = if seen >= READER { WRITES } else { 0 };
            match self.readers.compare_exchange(seen, (seen ^ CLAIMED) ^ phase, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        if seen >= READER && self.phase.swap(0, Relaxed) & USED != 0 {
            Sim::wake(&self.phase, u32::MAX);
        }
        if others {
            Sim::wake(&self.writers, 1);
        }
    }

    /// Whether the futex, in which nobody slept, says now that somebody may.
    fn is_used(&self, futex: &U32, seen: u32) -> bool {
        futex.compare_exchange(seen, seen | USED, Relaxed, Relaxed).is_ok()
    }

    /// Sleeps until it is the writer's phase (`TAKEN`) or the readers' (0). The phase is changed before its
    /// futex is, so the futex is looked at once more by whoever has seen the phase.
    fn sleep_until_phase(&self, wanted: u32) {
        let other = wanted ^ TAKEN;
        let mut is_ready = false;
        loop {
            loop {
                let futex = self.phase.load(Relaxed);
                if futex & TAKEN != other {
                    break;
                }
                if futex & USED != 0 || self.is_used(&self.phase, futex) {
                    Sim::wait(&self.phase, other | USED, Until::Woken);
                }
            }
            if is_ready {
                return;
            }
            is_ready = (self.readers.load(Relaxed) & WRITES != 0) == (wanted == TAKEN);
        }
    }
}
