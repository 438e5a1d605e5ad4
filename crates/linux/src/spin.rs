//! How long to spin: about as long as a sleep and a wake-up take.
//!
//! Spinning for the cost of the alternative is at most twice as bad as knowing the future (Karlin et al.,
//! SODA 1990). The cost of one turn of a spin loop differs tenfold between processors, so it is measured
//! once, when a thread first has to wait.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use poundlock_core::platform::Spin;

/// A futex sleep and wake-up across two CPUs, with the scheduler's share: 5 to 50 microseconds on machines of
/// the last ten years, the upper end in virtual machines whose CPUs halt when idle.
const SLEEP_AND_WAKE_NS: u64 = 20_000;

/// Turns in the budget, plus one; 0 before it is measured.
static BUDGET: AtomicU32 = AtomicU32::new(0);

/// A number of turns.
#[derive(Debug)]
pub struct Turns(u32);

impl Spin for Turns {
    #[inline(always)]
    fn spin(&mut self) -> bool {
        if self.0 == 0 {
            return false;
        }
        self.0 -= 1;
        core::hint::spin_loop();
        true
    }

    #[inline]
    fn cut(&mut self, of_256: u32) {
        self.0 = (u64::from(self.0) * u64::from(of_256) / 256) as u32;
    }
}

/// A fresh budget.
#[inline]
pub(crate) fn budget() -> Turns {
    match BUDGET.load(Relaxed) {
        0 => Turns(measure()),
        turns => Turns(turns - 1),
    }
}

/// What wake-ups have taken of late, in nanoseconds.
static WAKE_NS: AtomicU32 = AtomicU32::new(SLEEP_AND_WAKE_NS as u32);
/// What takes longer was not a wake-up but a wait for a CPU, which spinning would only prolong.
const LONGEST_WAKE_NS: u64 = 100_000;

/// See [`Platform::woke`](poundlock_core::Platform::woke).
pub(crate) fn woke(nanoseconds: u64) {
    if nanoseconds <= LONGEST_WAKE_NS {
        let before = WAKE_NS.load(Relaxed);
        // A moving average over sixteen; of two threads that do this at once one is forgotten.
        WAKE_NS.store(before - before / 16 + nanoseconds as u32 / 16, Relaxed);
    }
}

/// See [`Platform::spin_measured`](poundlock_core::Platform::spin_measured).
pub(crate) fn measured() -> Turns {
    let Turns(turns) = budget();
    Turns((u64::from(turns) * u64::from(WAKE_NS.load(Relaxed)) / SLEEP_AND_WAKE_NS) as u32)
}

#[cold]
fn measure() -> u32 {
    const TURNS: u64 = 100;
    let turns = if crate::cpu::allowed() < 2 {
        0
    } else {
        // The least of three, so that a preemption does not pass for a slow processor.
        let took = (0..3)
            .map(|_| {
                let begin = crate::futex::nanoseconds();
                let mut turns = Turns(TURNS as u32);
                while core::hint::black_box(&mut turns).spin() {}
                crate::futex::nanoseconds().saturating_sub(begin)
            })
            .min()
            .unwrap_or(0);
        (SLEEP_AND_WAKE_NS * TURNS / took.max(1)).clamp(50, 1_000_000) as u32
    };
    BUDGET.store(turns + 1, Relaxed);
    turns
}

/// See [`Platform::give_way`](poundlock_core::Platform::give_way).
pub(crate) fn give_way() {
    // SAFETY: takes no arguments.
    let _ = crate::futex::keeping_errno(|| unsafe { libc::syscall(libc::SYS_sched_yield) });
}

/// See [`Platform::stall`](poundlock_core::Platform::stall).
pub(crate) fn stall(round: u32) {
    const SPINS: u32 = 100;
    const YIELDS: u32 = 200;
    match round {
        0..SPINS => core::hint::spin_loop(),
        SPINS..YIELDS => give_way(),
        // A real-time thread yields only to its equals: sleep, so that anybody can run.
        _ => nap(),
    }
}

/// See [`Platform::nap`](poundlock_core::Platform::nap). The kernel adds as much again, so that it can wake several at once.
pub(crate) fn nap() {
    let nap = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    // SAFETY: reads one timespec. The bare system call is not a cancellation point.
    let _ = crate::futex::keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_nanosleep, &raw const nap, core::ptr::null::<libc::timespec>())
    });
}

#[cfg(test)]
mod tests {
    use poundlock_core::platform::Spin;

    #[test]
    fn wake_ups_are_learnt_and_waits_for_a_cpu_are_not() {
        use super::{LONGEST_WAKE_NS, Relaxed, WAKE_NS, woke};
        for _ in 0..1000 {
            woke(3_000);
        }
        assert!((2_900..=3_100).contains(&WAKE_NS.load(Relaxed)));
        let before = WAKE_NS.load(Relaxed);
        woke(LONGEST_WAKE_NS + 1);
        assert_eq!(WAKE_NS.load(Relaxed), before);
    }

    #[test]
    fn a_budget_ends() {
        let mut budget = super::budget();
        let mut turns = 0u32;
        while budget.spin() {
            turns += 1;
        }
        assert!(turns <= 1_000_000);
        assert!(!budget.spin());
        assert_eq!(turns == 0, crate::cpu::allowed() < 2);
    }
}
