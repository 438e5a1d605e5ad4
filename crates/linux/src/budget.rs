//! Spin budgets: about as long as a sleep and a wake-up take. And what a thread does that waits for another's
//! few instructions.
//!
//! Spinning for the cost of the alternative is at most twice as bad as knowing the future (Karlin et al.,
//! SODA 1990). The length of a pause differs a hundredfold between processors, so it is measured once, when a
//! thread first has to wait.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use poundlock_core::platform::Spin;

/// A futex sleep and wake-up across two CPUs, with the scheduler's share: 5 to 50 microseconds on machines of
/// the last ten years, the upper end in virtual machines whose CPUs halt when idle.
const SLEEP_AND_WAKE_NS: u64 = 20_000;

/// The nominal length of a turn: about a pause on most processors. The locks' tuning counts in turns.
const TURN_NS: u64 = 10;

/// The measured pace, as [`Pace::to_word`] has it; 0 before it is measured.
static PACE: AtomicU64 = AtomicU64::new(0);

/// How turns come from pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// The turns that take about as long as a sleep and a wake-up; none where spinning cannot help.
    turns: u32,
    /// How many pauses one step is: more than one where a pause is shorter than a turn.
    pauses: u16,
    /// How many turns one step is: more than one where a pause is longer.
    stride: u16,
}

impl Pace {
    /// The pace at which that many pauses take that long.
    fn new(pauses: u64, took_ns: u64) -> Pace {
        let took = took_ns.max(1);
        let rounded = |of: u64, by: u64| ((of + by / 2) / by).clamp(1, 1000) as u16;
        let a_step = rounded(TURN_NS * pauses, took);
        let stride = rounded(took, TURN_NS * pauses);
        let turns = SLEEP_AND_WAKE_NS * pauses * u64::from(stride) / (took * u64::from(a_step));
        Pace { turns: turns.clamp(50, 100_000) as u32, pauses: a_step, stride }
    }

    /// The pace where no other thread runs while one spins.
    const NONE: Pace = Pace { turns: 0, pauses: 1, stride: 1 };

    fn of(word: u64) -> Pace {
        Pace { turns: word as u32, pauses: (word >> 32) as u16, stride: (word >> 48) as u16 }
    }

    /// Not 0: a step has a pause.
    fn to_word(self) -> u64 {
        u64::from(self.turns) | u64::from(self.pauses) << 32 | u64::from(self.stride) << 48
    }
}

/// A number of turns.
#[derive(Debug)]
pub struct Turns {
    left: u32,
    pace: Pace,
}

impl Spin for Turns {
    #[inline]
    fn fresh() -> Self {
        let pace = match PACE.load(Relaxed) {
            0 => measure(),
            word => Pace::of(word),
        };
        Turns { left: pace.turns, pace }
    }

    fn measured() -> Self {
        let Turns { left, pace } = Turns::fresh();
        let left = u64::from(left) * u64::from(WAKE_NS.load(Relaxed)) / SLEEP_AND_WAKE_NS;
        Turns { left: left as u32, pace }
    }

    fn woke(nanoseconds: u64) {
        if nanoseconds <= LONGEST_WAKE_NS {
            let before = WAKE_NS.load(Relaxed);
            // A moving average over sixteen. If two threads do this at once, one value is lost.
            WAKE_NS.store(before - before / 16 + nanoseconds as u32 / 16, Relaxed);
        }
    }

    #[inline(always)]
    fn spin(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left = self.left.saturating_sub(u32::from(self.pace.stride));
        for _ in 0..self.pace.pauses {
            core::hint::spin_loop();
        }
        true
    }

    #[inline]
    fn pass(&mut self, turns: u32) -> bool {
        let mut passed = 0;
        while passed < turns {
            if !self.spin() {
                return false;
            }
            passed += u32::from(self.pace.stride);
        }
        true
    }

    #[inline]
    fn cut(&mut self, of_256: u32) {
        self.left = (u64::from(self.left) * u64::from(of_256) / 256) as u32;
    }
}

/// How long wake-ups have taken lately, in nanoseconds.
static WAKE_NS: AtomicU32 = AtomicU32::new(SLEEP_AND_WAKE_NS as u32);
/// A longer time was not a wake-up but a wait for a CPU, which spinning would only prolong.
const LONGEST_WAKE_NS: u64 = 100_000;

#[cold]
fn measure() -> Pace {
    const PAUSES: u64 = 100;
    let pace = if crate::cpu::allowed() < 2 {
        Pace::NONE
    } else {
        // The least of three, so that a preemption does not pass for a slow processor.
        let took = (0..3)
            .map(|_| {
                let begin = crate::futex::nanoseconds();
                for _ in 0..PAUSES {
                    core::hint::spin_loop();
                }
                crate::futex::nanoseconds().saturating_sub(begin)
            })
            .min()
            .unwrap_or(0);
        Pace::new(PAUSES, took)
    };
    PACE.store(pace.to_word(), Relaxed);
    pace
}

pub(crate) fn yield_now() {
    // SAFETY: takes no arguments.
    let _ = crate::futex::keeping_errno(|| unsafe { libc::syscall(libc::SYS_sched_yield) });
}

pub(crate) fn stall(round: u32) {
    const SPINS: u32 = 100;
    const YIELDS: u32 = 200;
    /// This many sleeps of each length; lengths double, up to a millisecond and a half.
    const A_LENGTH: u32 = 16;
    const LONGEST: u32 = 5;
    /// The kernel adds as much again, so that it can wake several at once.
    const SHORTEST_NS: u32 = 50_000;
    match round {
        0..SPINS => core::hint::spin_loop(),
        SPINS..YIELDS => yield_now(),
        // A real-time thread yields only to its equals: sleep, so that any thread can run. A waiter that
        // counts its turns sleeps longer the longer it has waited: it waits for more than a few instructions,
        // and others may do the same.
        u32::MAX => sleep(SHORTEST_NS),
        _ => sleep(SHORTEST_NS << ((round - YIELDS) / A_LENGTH).min(LONGEST)),
    }
}

fn sleep(nanoseconds: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.into() };
    // SAFETY: reads one timespec. The bare system call is not a cancellation point.
    let _ = crate::futex::keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_nanosleep, &raw const time, core::ptr::null::<libc::timespec>())
    });
}

#[cfg(test)]
mod tests {
    use poundlock_core::platform::Spin;

    #[test]
    fn wake_ups_are_learnt_and_waits_for_a_cpu_are_not() {
        use super::{LONGEST_WAKE_NS, Relaxed, Turns, WAKE_NS};
        for _ in 0..1000 {
            Turns::woke(3_000);
        }
        assert!((2_900..=3_100).contains(&WAKE_NS.load(Relaxed)));
        let before = WAKE_NS.load(Relaxed);
        Turns::woke(LONGEST_WAKE_NS + 1);
        assert_eq!(WAKE_NS.load(Relaxed), before);
    }

    #[test]
    fn a_turn_takes_as_long_whatever_a_pause_takes() {
        use super::{Pace, TURN_NS, Turns};
        // Nanoseconds that a hundred pauses take: from a yield that does nothing to a hypervisor that
        // intercepts it.
        for took in [60, 100, 300, 700, 1_100, 1_600, 4_300, 7_000, 50_000] {
            let pace = Pace::new(100, took);
            assert_eq!(Pace::of(pace.to_word()), pace);
            let ns = |pauses: u32| f64::from(pauses) * took as f64 / 100.0;
            let mut steps = 0;
            let mut budget = Turns { left: pace.turns, pace };
            while budget.spin() {
                steps += 1;
            }
            let whole = ns(steps * u32::from(pace.pauses));
            assert!((15_000.0..=25_000.0).contains(&whole), "{took}: {whole}");
            let mut budget = Turns { left: pace.turns, pace };
            assert!(budget.pass(256));
            let part = whole * f64::from(pace.turns - budget.left) / f64::from(pace.turns);
            let wanted = 256.0 * TURN_NS as f64;
            assert!((0.6 * wanted..=1.6 * wanted).contains(&part), "{took}: {part}");
        }
    }

    #[test]
    fn a_pace_is_sane_whatever_was_measured() {
        use super::Pace;
        for took in [0, 1, 10_000_000, u64::MAX / 1_000] {
            let pace = Pace::new(100, took);
            assert!(pace.pauses > 0 && pace.stride > 0 && pace.turns >= 50, "{took}: {pace:?}");
        }
    }

    #[test]
    fn a_budget_ends() {
        let mut budget = super::Turns::fresh();
        let mut turns = 0u32;
        while budget.spin() {
            turns += 1;
        }
        assert!(turns <= 100_000);
        assert!(!budget.spin());
        assert_eq!(turns == 0, crate::cpu::allowed() < 2);
    }
}
