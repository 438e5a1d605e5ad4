//! glibc's condition variable (glibc 2.36, `nptl/pthread_cond_wait.c` and `pthread_cond_common.c`).
//!
//! Those who wait are in one of two groups. A signal goes to the elder group; newcomers join the younger one,
//! so that they cannot take a signal which was meant for those before them. When all of the elder group have
//! been signalled, and a signal comes, the group is closed, whoever still refers to it is waited for, and the
//! younger one becomes the elder. Signals are counted in a futex of each group.
//!
//! A thread that has waited acquires the mutex as if others slept, as it does not know: so it releases it by
//! a call.
//!
//! Left out: deadlines and cancellation, which would take a waiter out of its group; broadcasts; clocks.

use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform, Until};

use super::glibc::{Drepper, Glibc};
use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::Sim;

/// In a group's signals: it is closed. Each signal counts for two.
const CLOSED: u32 = 1;
const SIGNAL: u32 = 2;
/// In a group's references: somebody waits for the last to go. Each counts for two.
const WANTED: u32 = 1;
const REFERENCE: u32 = 2;

#[derive(Default)]
struct Group {
    /// How many threads look at its signals.
    references: U32,
    /// How many of its threads have not been signalled.
    left: U32,
    signals: U32,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct GlibcCondvar {
    /// The number of the next one to wait, times two, and which group it will be in.
    next: U32,
    /// The number of the first one in the elder group, times two, and which group is the younger.
    first: U32,
    groups: [Group; 2],
    /// How many threads the elder group was made of.
    elders: U32,
    guard: Drepper,
    waiting: U32,
}

impl GlibcCondvar {
    /// Releases the mutex and waits for a signal. The caller then acquires the mutex again, as contended.
    pub(crate) fn wait(&self, mutex: &Glibc) {
        let joined = self.next.fetch_add(2, Relaxed);
        let (number, own) = (joined >> 1, (joined & 1) as usize);
        let group = &self.groups[own];
        self.waiting.fetch_add(1, Relaxed);
        mutex.unlock();
        self.sleep(number, own, group);
        self.waiting.fetch_add(1_u32.wrapping_neg(), Relaxed);
    }

    /// Returns with a signal of the group taken, or when the group is closed.
    fn sleep(&self, number: u32, own: usize, group: &Group) {
        let is_over = |first: u32| number < first >> 1;
        let mut signals = group.signals.load(Relaxed);
        loop {
            if signals & CLOSED != 0 {
                return;
            }
            if signals == 0 {
                group.references.fetch_add(REFERENCE, Relaxed);
                let closed = group.signals.load(Relaxed) & CLOSED != 0 || is_over(self.first.load(Relaxed));
                if !closed {
                    Sim::wait(&group.signals, 0, Until::Woken);
                }
                group.leave();
                if closed {
                    return;
                }
                signals = group.signals.load(Relaxed);
                continue;
            }
            match group.signals.compare_exchange(signals, signals - SIGNAL, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => signals = now,
            }
        }
        // The group was closed meanwhile and is the elder one again: the signal was for another thread.
        let first = self.first.load(Relaxed);
        if is_over(first) && (first & 1) as usize != own {
            let mut signals = group.signals.load(Relaxed);
            while self.first.load(Relaxed) == first {
                let given = signals & CLOSED != 0
                    || match group.signals.compare_exchange(signals, signals + SIGNAL, Relaxed, Relaxed) {
                        Ok(_) => true,
                        Err(now) => {
                            signals = now;
                            false
                        }
                    };
                if given {
                    Sim::wake(&group.signals, 1);
                    break;
                }
            }
        }
    }

    /// Lets one thread go on that waits, if one does.
    pub(crate) fn signal(&self) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        self.guard.acquire();
        let next = self.next.load(Relaxed);
        let mut elder = (next & 1 ^ 1) as usize;
        let signalled =
            self.groups[elder].left.load(Relaxed) != 0 || self.change_places(next >> 1, &mut elder);
        let group = &self.groups[elder];
        if signalled {
            group.signals.fetch_add(SIGNAL, Relaxed);
            group.left.store(group.left.load(Relaxed) - 1, Relaxed);
        }
        self.guard.release();
        if signalled {
            Sim::wake(&group.signals, 1);
        }
    }

    /// The younger group becomes the elder, if it has a thread; whether it has.
    fn change_places(&self, next: u32, elder: &mut usize) -> bool {
        let (first, elders) = (self.first.load(Relaxed), self.elders.load(Relaxed));
        let younger_from = (first >> 1) + elders;
        if next == younger_from {
            return false;
        }
        let group = &self.groups[*elder];
        group.signals.fetch_or(CLOSED, Relaxed);
        let mut references = group.references.fetch_or(0, Relaxed);
        while references >= REFERENCE {
            references = group.references.fetch_or(WANTED, Relaxed);
            if references >= REFERENCE {
                Sim::wait(&group.references, references | WANTED, Until::Woken);
                references = group.references.load(Relaxed);
            }
        }
        self.first.store(younger_from << 1 | *elder as u32, Relaxed);
        group.signals.store(0, Relaxed);
        // Nobody else changes which group newcomers join.
        let turn = if *elder == 0 { 1_u32.wrapping_neg() } else { 1 };
        let next = self.next.fetch_add(turn, Relaxed) >> 1;
        *elder ^= 1;
        let elders = next - younger_from;
        self.elders.store(elders, Relaxed);
        self.groups[*elder].left.store(elders, Relaxed);
        elders != 0
    }
}

impl Group {
    /// The caller refers to it no more.
    fn leave(&self) {
        let before = self.references.fetch_add(REFERENCE.wrapping_neg(), Relaxed);
        if before == REFERENCE | WANTED {
            self.references.fetch_and(!WANTED, Relaxed);
            Sim::wake(&self.references, u32::MAX);
        }
    }
}
