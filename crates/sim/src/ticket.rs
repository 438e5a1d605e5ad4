//! The halting ticket lock that Linux's guests had before the queue spinlock. The guests' tables compare with
//! it.
//!
//! Not a lock of ours. A waiter spins for its turn, for a budget; then it says that it halts, marks the lock,
//! and halts. A release of a marked lock looks for the waiter whose turn it is now, and kicks it if it has
//! halted. Turns are kept: the next waiter gets the lock, running or not. The mark goes when a thread
//! acquires the lock with no waiter behind it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use poundlock_core::platform::{Atomic, Platform, Spin, Until};

use crate::Alone;
use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::{Budget, Sim};

/// In `serving`: a waiter may have halted.
const MARK: u32 = 1;
/// The next ticket.
const STEP: u32 = 2;

/// Waiters that have halted, by ticket. If there are more than places, they share them: a kick then wakes one
/// too many.
const PLACES: usize = 256;

#[derive(Default)]
struct Words {
    next: U32,
    serving: U32,
}

/// See the module's documentation.
pub(crate) struct HaltingTicket {
    words: Words,
    /// The ticket for which its owner has halted, and one; or nothing.
    halted: Box<[Alone<U32>]>,
}

impl Default for HaltingTicket {
    fn default() -> Self {
        HaltingTicket { words: Words::default(), halted: (0..PLACES).map(|_| Alone::default()).collect() }
    }
}

impl HaltingTicket {
    fn place(&self, ticket: u32) -> &U32 {
        &self.halted[(ticket / STEP) as usize % PLACES].0
    }

    fn is_served(&self, ticket: u32) -> bool {
        self.words.serving.load(Acquire) & !MARK == ticket
    }

    /// Halts until kicked, unless its turn has come.
    fn halt(&self, ticket: u32) {
        let place = self.place(ticket);
        let sign = ticket + 1;
        place.store(sign, Relaxed);
        // A read-modify-write, as is the release: one of them sees the other.
        if self.words.serving.fetch_or(MARK, AcqRel) & !MARK != ticket {
            Sim::wait(place, sign, Until::Woken);
        }
    }
}

impl Lock for HaltingTicket {
    fn lock(&self) {
        let ticket = self.words.next.fetch_add(STEP, Relaxed);
        let mut budget = Budget::fresh();
        while !self.is_served(ticket) {
            if !budget.spin() {
                self.halt(ticket);
                budget = Budget::fresh();
            }
        }
        if self.words.serving.load(Relaxed) & MARK != 0
            && self.words.next.load(Relaxed) == ticket.wrapping_add(STEP)
        {
            self.words.serving.fetch_and(!MARK, Relaxed);
            // A waiter may have come, and marked it, in between.
            if self.words.next.load(Relaxed) != ticket.wrapping_add(STEP) {
                self.words.serving.fetch_or(MARK, Relaxed);
            }
        }
    }

    fn unlock(&self) {
        let served = self.words.serving.fetch_add(STEP, Release);
        if served & MARK == 0 {
            return;
        }
        let next = (served & !MARK).wrapping_add(STEP);
        let place = self.place(next);
        if place.load(Relaxed) != 0 {
            place.store(0, Relaxed);
            Sim::wake(place, u32::MAX);
        }
    }

    fn is_free(&self) -> bool {
        self.words.serving.peek() & !MARK == self.words.next.peek()
    }
}
