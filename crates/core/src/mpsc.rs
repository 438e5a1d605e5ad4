//! A queue of waiters: many threads add, one takes out.
//!
//! As in OSv's lock-free mutex (after Gidenstam and Papatriantafilou, LFTHREADS, 2007): a stack on which any
//! thread pushes, and a list in order of arrival that only the consumer sees; when its list is empty the
//! consumer takes the whole stack and turns it round. Pushing is one compare-and-swap, taking out amortised
//! less than one exchange.
//!
//! The stack's word has room for a **token**, a bit that may be set only while the queue is empty. So "the
//! queue is empty: leave this for the next" is one step, and so is "take it, or else queue".
//!
//! # The words
//!
//! | bits of `push` | what | who changes it |
//! | --- | --- | --- |
//! | 31 | the token | set: the consumer; cleared: the thread that takes it |
//! | 25 to 30 | the low bits of the [`Platform::epoch`] of the last use | [`Queue::renew`] |
//! | 0 to 24 | the [`Waiter`] pushed last; 0: none; all ones: being cleared | the pusher; the consumer |
//!
//! `pop` is the first node of the consumer's list; 0: empty. Only the consumer changes it.
//!
//! Of the waiters that are on the stack when it is turned round, real-time threads come first, by priority
//! ([`Platform::priority`]). None goes before one that is in the consumer's list already, so a waiter is
//! overtaken by those of at most one stack.
//!
//! # Invariants
//!
//! * **TOKEN.** The token is set only while both lists are empty, and no thread pushes while it is set.
//! * **ONE CONSUMER.** [`Queue::pop`] and [`Queue::leave_token`] are called by one thread at a time; the user
//!   says by what right.
//! * **LAST TOUCH.** A successful [`Queue::leave_token`] is the consumer's last access to the queue.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::atomic::zeroed;
use crate::node::Waiter;
use crate::platform::{Atomic, Platform};
use crate::waiting::stall_until;

const TOKEN: u32 = 1 << 31;
const LINK: u32 = (1 << 25) - 1;
const EPOCH: u32 = !(TOKEN | LINK);
/// In place of a link: the words are being cleared.
const CLEARING: u32 = LINK;

/// The queue: 8 bytes, zero when empty.
#[repr(C)]
pub struct Queue<P: Platform> {
    push: P::U32,
    pop: P::U32,
}

zeroed! { Queue<P: Platform>: [push pop] }

impl<P: Platform> Queue<P> {
    /// Whether there is a token, as seen without taking it.
    #[inline]
    pub fn has_token(&self) -> bool {
        self.push.load(Relaxed) & TOKEN != 0
    }

    /// Whether a waiter has queued, as seen at this moment.
    #[inline]
    pub fn is_occupied(&self) -> bool {
        let seen = self.push.load(Relaxed) & LINK;
        seen != 0 && seen != CLEARING || self.pop.load(Relaxed) != 0
    }

    /// Takes the token, if it is there. True synchronises with the [`Queue::leave_token`] that left it.
    pub fn take_token(&self) -> bool {
        self.push.update(Acquire, |seen| (seen & TOKEN != 0).then_some(seen & !TOKEN)).is_ok()
    }

    /// Adds a waiter at the end, or takes the token if there is one. False if it took the token; synchronises
    /// as [`Queue::take_token`] then.
    pub fn push_or_take_token(&self, waiter: Waiter) -> bool {
        let node = waiter.get::<P>();
        // Release: the node is whole before the consumer finds it. Acquire: partner of the token's release.
        let before = self.push.update(AcqRel, |seen| {
            if seen & TOKEN != 0 {
                return Some(seen & !TOKEN);
            }
            node.after.store(seen & LINK, Relaxed);
            Some(seen & !LINK | waiter.raw())
        });
        before.is_ok_and(|before| before & TOKEN == 0)
    }

    /// Takes out the first waiter. The consumer only.
    pub fn pop(&self) -> Option<Waiter> {
        let first = match Waiter::from_raw(self.pop.load(Relaxed)) {
            Some(first) => first,
            None => self.turn_round()?,
        };
        self.pop.store(first.get::<P>().after.load(Relaxed), Relaxed);
        Some(first)
    }

    /// Takes the whole stack and links it the other way. Returns the waiter that was pushed first.
    fn turn_round(&self) -> Option<Waiter> {
        if self.push.load(Relaxed) & LINK == 0 {
            return None;
        }
        // Acquire: the nodes, as their threads have left them. TOKEN: it is not set, since the stack is not
        // empty.
        let mut next = Waiter::from_raw(self.push.fetch_and(!LINK, Acquire) & LINK);
        let mut first = None;
        while let Some(waiter) = next {
            let node = waiter.get::<P>();
            next = Waiter::from_raw(node.after.load(Relaxed));
            // Before all that came later, but for those that are more urgent.
            let (mut before, mut after) = (None, first);
            while let Some(other) = after.map(Waiter::get::<P>)
                && other.priority.load(Relaxed) > node.priority.load(Relaxed)
            {
                before = Some(other);
                after = Waiter::from_raw(other.after.load(Relaxed));
            }
            node.after.store(after.map_or(0, Waiter::raw), Relaxed);
            match before {
                Some(other) => other.after.store(waiter.raw(), Relaxed),
                None => first = Some(waiter),
            }
        }
        first
    }

    /// Leaves the token for the next to come, if the queue is empty. The consumer only, whose role ends with
    /// true.
    pub fn leave_token(&self) -> bool {
        let seen = self.push.load(Relaxed);
        // Release: what the consumer did happens before whatever the token's taker does.
        seen & LINK == 0
            && self.pop.load(Relaxed) == 0
            && self.push.compare_exchange(seen, seen | TOKEN, Release, Relaxed).is_ok()
    }

    /// In a forked child: drops the waiters, which do not exist there; the token stays. Call it before the
    /// other functions.
    #[inline]
    pub fn renew(&self) {
        let epoch = P::epoch() << EPOCH.trailing_zeros() & EPOCH;
        // Acquire: partner of the release below; a thread that sees the epoch sees `pop` cleared.
        let seen = self.push.load(Acquire);
        if seen & EPOCH != epoch || seen & LINK == CLEARING {
            self.renew_slow(epoch);
        }
    }

    #[cold]
    fn renew_slow(&self, epoch: u32) {
        stall_until::<P, ()>(|| {
            let seen = self.push.load(Acquire);
            if seen & EPOCH == epoch && seen & LINK != CLEARING {
                return Some(());
            }
            let claim = seen & TOKEN | epoch | CLEARING;
            if seen & EPOCH == epoch || self.push.compare_exchange(seen, claim, Acquire, Relaxed).is_err() {
                return None;
            }
            self.pop.store(0, Relaxed);
            // CLEARING is all ones of the field.
            self.push.fetch_and(!LINK, Release);
            Some(())
        });
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::VecDeque;
    use std::vec::Vec;

    use super::{Queue, Relaxed, Waiter};
    use crate::platform::Atomic;
    use crate::testing::{Lists, Numbers};

    #[test]
    fn the_more_urgent_of_a_stack_come_first_and_equals_in_the_order_of_their_coming() {
        for seed in 1..500 {
            let mut numbers = Numbers(seed);
            let priorities = 1 + numbers.below(4);
            let queue = Queue::<Lists>::default();
            // In the order in which they are taken out; and those on the stack.
            let (mut turned, mut stack) = (VecDeque::new(), Vec::new());
            // Spare nodes, which no other test has.
            let spares = (0..32).flat_map(|record| (5..9).map(move |place| record * 8 + place));
            let mut idle: VecDeque<Waiter> = spares.filter_map(Waiter::from_raw).collect();
            for _ in 0..300 {
                if numbers.below(2) == 0 {
                    if turned.is_empty() {
                        stack.sort_by_key(|&(_, priority)| core::cmp::Reverse(priority));
                        turned.extend(stack.drain(..).map(|(waiter, _)| waiter));
                    }
                    let expected: Option<Waiter> = turned.pop_front();
                    assert_eq!(queue.pop(), expected, "seed {seed}");
                    idle.extend(expected);
                } else if let Some(waiter) = idle.pop_front() {
                    let priority = numbers.below(priorities);
                    waiter.get::<Lists>().priority.store(priority, Relaxed);
                    assert!(queue.push_or_take_token(waiter));
                    stack.push((waiter, priority));
                }
            }
        }
    }
}
