//! CPU work of a known length: what threads do inside and outside their critical sections.
//!
//! A loop that reads the clock until time is up does no work: a thread that was preempted in it finds its
//! section over when it comes back, which hides the very cost that a lock pays for a displaced holder. So the
//! work is a chain of dependent multiplications whose length was measured, once, for all contenders.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

use crate::clock;

/// Does `steps` dependent steps. Each needs the one before, so neither a wider nor a cleverer CPU shortens
/// the chain. No steps cost no call.
#[inline(always)]
pub(crate) fn work(steps: u64) {
    if steps > 0 {
        chain(steps);
    }
}

#[inline(never)]
fn chain(steps: u64) {
    let mut value = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..steps {
        value = (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    black_box(value);
}

/// How long a step of `work` takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Nanoseconds a step.
    pub ns_per_step: f64,
}

/// Samples taken by [`Calibration::measure`].
const SAMPLES: usize = 300;
/// Steps in a sample: near 50 microseconds, so that most samples run undisturbed even on a busy machine.
const STEPS: u64 = 32_000;

impl Calibration {
    /// Measures on the calling thread; takes some 15 ms.
    pub fn measure() -> Calibration {
        work(STEPS);
        let samples = (0..SAMPLES)
            .map(|_| {
                let start = clock::now_ns();
                work(STEPS);
                clock::now_ns() - start
            })
            .collect();
        Self::from_samples(samples, STEPS)
    }

    /// What undisturbed samples say. Interrupts and preemption only ever lengthen a sample, so the truth lies
    /// at the short end; the very shortest may be a fluke of the clock, hence the tenth percentile.
    fn from_samples(mut samples: Vec<u64>, steps: u64) -> Calibration {
        samples.sort_unstable();
        Calibration { ns_per_step: samples[samples.len() / 10] as f64 / steps as f64 }
    }

    /// The number of steps that takes `microseconds`.
    pub fn steps(&self, microseconds: f64) -> u64 {
        (microseconds * 1000.0 / self.ns_per_step).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_samples_do_not_count() {
        // Most samples were preempted; a fifth ran free.
        let mut samples = vec![1_000_000; 80];
        samples.extend([5_000; 20]);
        assert_eq!(Calibration::from_samples(samples, 1000), Calibration { ns_per_step: 5.0 });
    }

    #[test]
    fn steps_of_a_duration() {
        let calibration = Calibration { ns_per_step: 1.25 };
        assert_eq!(calibration.steps(2.0), 1600);
        assert_eq!(calibration.steps(0.0), 0);
    }

    #[test]
    fn the_chain_cannot_be_skipped() {
        // Only a lower bound, which nothing that disturbs the machine can break. Were the loop folded or
        // dropped, a step would cost next to nothing. A multiplication has a latency of at least 2 cycles on
        // any CPU, and none runs at 20 GHz.
        let measured = Calibration::measure().ns_per_step;
        assert!(measured > 0.1, "a step takes {measured} ns");
    }
}
