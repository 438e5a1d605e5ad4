//! Textbook spinlocks: **baselines**, to read the figures of the other locks against. Nothing here is meant
//! for use.
//!
//! Nothing that is shipped contains them. None of them knows about preemption, forks or memory that is freed;
//! waiters spin for ever.

#![no_std]

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use poundlock_core::Platform;
use poundlock_core::node::{Held, NodeId, state};
use poundlock_core::platform::Atomic;

/// A baseline: what the benchmarks ask of it.
pub trait Spinlock: Default + Send + Sync {
    /// What the holder keeps until it releases.
    type Token;

    /// Acquires the lock, spinning as long as it takes. The last release happens before the return.
    fn lock(&self) -> Self::Token;

    /// Releases the lock, which the caller has acquired with this token.
    fn unlock(&self, token: Self::Token);
}

/// **Baseline.** Test-and-set: every waiter exchanges, all the time.
pub struct TestAndSet<P: Platform> {
    held: P::U32,
}

impl<P: Platform> Default for TestAndSet<P> {
    fn default() -> Self {
        TestAndSet { held: P::U32::new(0) }
    }
}

impl<P: Platform> Spinlock for TestAndSet<P> {
    type Token = ();

    #[inline]
    fn lock(&self) {
        while self.held.swap(1, Acquire) != 0 {
            P::relax();
        }
    }

    #[inline]
    fn unlock(&self, (): ()) {
        self.held.store(0, Release);
    }
}

/// **Baseline.** Test-and-test-and-set with exponential back-off (Anderson, IEEE TPDS 1990).
pub struct BackOff<P: Platform> {
    held: P::U32,
}

impl<P: Platform> BackOff<P> {
    /// The longest pause, in turns of a spin loop: some ten times what a cache line takes across a socket.
    const LONGEST: u32 = 1024;
}

impl<P: Platform> Default for BackOff<P> {
    fn default() -> Self {
        BackOff { held: P::U32::new(0) }
    }
}

impl<P: Platform> Spinlock for BackOff<P> {
    type Token = ();

    #[inline]
    fn lock(&self) {
        let mut pause = 1;
        while self.held.load(Relaxed) != 0 || self.held.swap(1, Acquire) != 0 {
            for _ in 0..pause {
                P::stall(0);
            }
            pause = (pause * 2).min(Self::LONGEST);
        }
    }

    #[inline]
    fn unlock(&self, (): ()) {
        self.held.store(0, Release);
    }
}

/// **Baseline.** The ticket lock: first come, first served, all spinning on one word (Reed and Kanodia, CACM
/// 1979; Linux before the queue spinlock).
pub struct Ticket<P: Platform> {
    next: P::U32,
    serving: P::U32,
}

impl<P: Platform> Default for Ticket<P> {
    fn default() -> Self {
        Ticket { next: P::U32::new(0), serving: P::U32::new(0) }
    }
}

impl<P: Platform> Spinlock for Ticket<P> {
    type Token = ();

    #[inline]
    fn lock(&self) {
        // Relaxed: the acquisition is the load below.
        let own = self.next.fetch_add(1, Relaxed);
        while self.serving.load(Acquire) != own {
            P::relax();
        }
    }

    #[inline]
    fn unlock(&self, (): ()) {
        // Only the holder writes it.
        let own = self.serving.load(Relaxed);
        self.serving.store(own.wrapping_add(1), Release);
    }
}

/// **Baseline.** The MCS lock: a queue, each waiter spinning on a cache line of its own (Mellor-Crummey and
/// Scott, ACM TOCS 1991).
pub struct Mcs<P: Platform> {
    tail: P::U32,
}

/// The holder's node.
pub struct McsToken<P: Platform>(Held<P>);

impl<P: Platform> Default for Mcs<P> {
    fn default() -> Self {
        Mcs { tail: P::U32::new(0) }
    }
}

impl<P: Platform> Spinlock for Mcs<P> {
    type Token = McsToken<P>;

    #[inline]
    fn lock(&self) -> McsToken<P> {
        let held = loop {
            if let Some(held) = Held::<P>::take() {
                break held;
            }
            P::relax();
        };
        let node = held.node();
        node.next().store(0, Relaxed);
        node.state().store(state::IDLE, Relaxed);
        // Release: the node is whole before anyone finds it. Acquire: so is the one in front, and if there is
        // none, the last holder has released.
        if let Some(front) = NodeId::from_raw(self.tail.swap(held.id.raw(), AcqRel)) {
            front.get::<P>().next().store(held.id.raw(), Release);
            while node.state().load(Acquire) != state::HEAD {
                P::relax();
            }
        }
        McsToken(held)
    }

    #[inline]
    fn unlock(&self, token: McsToken<P>) {
        let McsToken(held) = token;
        loop {
            if let Some(next) = NodeId::from_raw(held.node().next().load(Acquire)) {
                next.get::<P>().state().store(state::HEAD, Release);
                return;
            }
            let own = held.id.raw();
            if self.tail.load(Relaxed) == own && self.tail.compare_exchange(own, 0, Release, Relaxed).is_ok()
            {
                return;
            }
            P::relax();
        }
    }
}
