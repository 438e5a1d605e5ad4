//! The trait, on Linux.

use poundlock_core::atomic::Atomics;
use poundlock_core::events::{Event, Observer};
use poundlock_core::handoff::Identity;
use poundlock_core::platform::{Deadline, Platform, Running, Until, Waited};
use poundlock_core::qspin::Halting;
use poundlock_core::qspin::hash::Line;
use poundlock_core::record::{Record, Side};

use crate::atomic::{U32, Usize};
use crate::{budget, cpu, epoch, events, futex, halted, node, priority, registry, rseq, sides, tls};

/// Linux threads. Needs x86-64 or aarch64; uses glibc's restartable-sequences area (2.35) and single-thread
/// flag (2.32) where they are.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Atomics for Linux {
    type U32 = U32;
    type Usize = Usize;
}

impl Observer for Linux {
    #[inline(always)]
    fn counting() -> bool {
        events::counting()
    }

    fn count(event: Event, amount: u64) {
        events::count(event, amount);
    }

    fn now() -> u64 {
        futex::nanoseconds()
    }
}

impl Identity for Linux {
    #[inline(always)]
    fn identity() -> u32 {
        registry::identity()
    }
}

impl Halting for Linux {
    fn lock_hash() -> Option<&'static [Line<Linux>]> {
        halted::lines()
    }
}

impl Platform for Linux {
    type Spin = budget::Turns;

    #[inline(always)]
    fn relax() {
        core::hint::spin_loop();
    }

    fn stall(round: u32) {
        budget::stall(round);
    }

    fn yield_now() {
        budget::yield_now();
    }

    fn wait(word: &U32, expected: u32, until: Until<'_>) -> Waited {
        futex::wait(word, expected, until)
    }

    fn wake(word: *const U32, count: u32) {
        futex::wake(word, count);
    }

    fn expired(deadline: &Deadline) -> bool {
        futex::expired(deadline)
    }

    fn current() -> Option<u32> {
        registry::index()
    }

    #[inline(always)]
    fn kept() -> usize {
        tls::kept()
    }

    fn kept_place() -> u32 {
        tls::kept_place()
    }

    fn keep(mutex: usize, place: u32) {
        tls::keep(mutex, place);
    }

    fn sides() -> &'static [Side<Linux>] {
        sides::all()
    }

    fn priority() -> u32 {
        // No thread queues without a record.
        registry::index().map_or(0, |index| priority::of(registry::record(index).priority()))
    }

    #[inline]
    fn record(index: u32) -> &'static Record<Linux> {
        registry::record(index)
    }

    #[inline(always)]
    fn tag() -> u32 {
        cpu::tag()
    }

    /// A thread that published the CPU that we are on does not run there: we do. Elsewhere nothing is known.
    /// The other may have moved since; then a sleep was in vain.
    #[inline]
    fn running(tag: u32) -> Running {
        if tag != 0 && tag == cpu::tag() { Running::No } else { Running::Unknown }
    }

    fn cpus() -> u32 {
        node::cpus()
    }

    #[inline]
    fn nodes() -> u32 {
        node::nodes()
    }

    fn node() -> u32 {
        node::current()
    }

    #[inline]
    fn epoch() -> u32 {
        epoch::current()
    }

    #[inline(always)]
    fn release(word: &U32, unless: &U32) -> bool {
        rseq::release(word, unless)
    }

    fn fence() {
        rseq::fence();
    }

    #[inline(always)]
    fn single_threaded() -> bool {
        tls::single_threaded()
    }
}
