//! The trait, on Linux.

use poundlock_core::events::Event;
use poundlock_core::node::Record;
use poundlock_core::platform::{Deadline, Platform, Running, Tuning, Waited};
use poundlock_core::qspin::hash::Line;

use crate::atomic::{U32, Usize};
use crate::{cpu, epoch, events, futex, hash, priority, registry, rseq, spin, tls};

/// Linux threads. Needs x86-64 or aarch64; uses glibc's restartable-sequences area (2.35) and single-thread
/// flag (2.32) where they are.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Platform for Linux {
    type U32 = U32;
    type Usize = Usize;
    type Spin = spin::Turns;

    #[inline(always)]
    fn tuning() -> Tuning {
        Tuning::USER_SPACE
    }

    #[inline]
    fn spin() -> spin::Turns {
        spin::budget()
    }

    fn spin_measured() -> spin::Turns {
        spin::measured()
    }

    fn woke(nanoseconds: u64) {
        spin::woke(nanoseconds);
    }

    #[inline(always)]
    fn relax() {
        core::hint::spin_loop();
    }

    fn stall(round: u32) {
        spin::stall(round);
    }

    fn give_way() {
        spin::give_way();
    }

    fn nap() {
        spin::nap();
    }

    fn wait(word: &U32, expected: u32, deadline: Option<&Deadline>) -> Waited {
        futex::wait(word, expected, deadline)
    }

    fn patrol(word: &U32, expected: u32) -> Waited {
        futex::patrol(word, expected)
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
    fn identity() -> u32 {
        registry::identity()
    }

    fn priority() -> u32 {
        // Nobody queues without a record.
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

    /// Who published the CPU that we are on does not run there: we do. Elsewhere nothing is known. The
    /// other may have moved since; then a sleep was in vain.
    #[inline]
    fn running(tag: u32) -> Running {
        if tag != 0 && tag == cpu::tag() { Running::No } else { Running::Unknown }
    }

    #[inline]
    fn epoch() -> u32 {
        epoch::current()
    }

    #[inline(always)]
    fn release(count: &U32, guard: &U32) -> bool {
        rseq::release(count, guard)
    }

    fn expel() {
        rseq::expel();
    }

    fn lock_hash() -> Option<&'static [Line<Linux>]> {
        hash::lines()
    }

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

    #[inline(always)]
    fn single_threaded() -> bool {
        tls::single_threaded()
    }
}
