//! The trait, on Linux.

use poundlock_core::events::Event;
use poundlock_core::node::Record;
use poundlock_core::platform::{Deadline, Platform, Running, Tuning, Waited};
use poundlock_core::qspin::hash::Line;

use crate::atomic::{U32, Usize};
use crate::{cpu, epoch, events, futex, hash, registry, rseq, spin, tls};

/// Linux threads. Needs x86-64 or aarch64; uses glibc's restartable-sequences area (2.35) and single-thread
/// flag (2.32) where they are.
#[derive(Clone, Copy, Debug)]
pub struct Linux;

impl Platform for Linux {
    type U32 = U32;
    type Usize = Usize;
    type Spin = spin::Turns;

    const TUNING: Tuning = Tuning {
        // With a queue of spinners a woken sleeper is served among the first few; one that was not after
        // this many wake-ups has met with something else.
        handoff_after: 16,
        // A wake-up under oversubscription costs the CPUs some 10 microseconds: two switches and the cold
        // caches. One in 256 unlocks keeps that below a few per cent of critical sections of a microsecond,
        // and still serves a sleeper every fraction of a millisecond.
        passes_before_wake: 256,
        // A critical section of a few dozen instructions is over by then, and its lock changes hands by one
        // read-modify-write rather than three; two threads at such sections get a third more through. It costs order
        // only among threads that come within that time.
        glances: 4,
        // A look takes the line from the owner, who is about to write to it several times: with a look a turn two threads
        // that take turns at it get a third to a half as much through.
        turns_a_look: 16,
        // A third or so of a time slice: who sleeps before its slice is over is not preempted, and gets a CPU at once when it is
        // woken, whatever else runs there. A relief costs the CPUs some ten microseconds.
        stint: 500_000,
        // 32: a look at the clock takes as long as a short critical section.
        owners_a_stint_check: 5,
        // 256 turns: a few microseconds.
        longest_interval: 8,
        // Some ten microseconds of patience.
        looks_in_vain: 3,
        // A trial lasts some tenths of a millisecond; the waits between two of them, a few.
        waits_a_trial: 32,
        // A microsecond or so: shorter waits cost little.
        spun_before_trial: 64,
        // Long enough for a critical section of 20 microseconds, which is not much longer than what a sleep and a wake-up
        // would leave the mutex idle.
        spins_for_hand_over: 3,
    };

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
