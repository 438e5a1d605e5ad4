//! The source's figures.

use serde::Serialize;

/// What the source measured on one side of its series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Turns of the main thread that woke somebody.
    pub main_burns: u64,
    /// Wake-ups served.
    pub worker_burns: u64,
    /// Those of the thread with the fewest.
    pub worker_min: u64,
    /// Those of the thread with the most.
    pub worker_max: u64,
    /// The mean over the threads.
    pub worker_avg: u64,
    /// Seconds of the run.
    pub seconds: u64,
    /// Wake-ups served a second.
    pub burns_per_second: u64,
    /// Ticks of the time stamp counter in the array's lifetime.
    pub lifetime_ticks: u64,
    /// Times the array's lock was free.
    pub free: u64,
    /// Times it was not.
    pub contended: u64,
    /// Ticks spent waiting for it.
    pub wait_ticks: u64,
    /// The same for each time that it was not free.
    pub wait_avg_ticks: u64,
    /// Thousandths of all CPUs' time.
    pub permille: u64,
}

/// `sembench -t 250 -w 64 -o 0 -r 30 -b` on a 4-core AMD Phenom, before the series and after it. From Manfred
/// Spraul, "[RFC PATCH 0/3] ipc/sem.c: Optimization for reducing spinlock contention", linux-kernel, 2010.
pub const PUBLISHED: [Published; 2] = [
    Published {
        main_burns: 2_194_274,
        worker_burns: 6_352_691,
        worker_min: 21_505,
        worker_max: 29_230,
        worker_avg: 25_410,
        seconds: 30,
        burns_per_second: 211_756,
        lifetime_ticks: 58_573_142_769,
        free: 745_344,
        contended: 7_801_967,
        wait_ticks: 110_278_262_115,
        wait_avg_ticks: 14_134,
        permille: 470,
    },
    Published {
        main_burns: 112_890,
        worker_burns: 7_084_335,
        worker_min: 27_869,
        worker_max: 28_769,
        worker_avg: 28_337,
        seconds: 30,
        burns_per_second: 236_144,
        lifetime_ticks: 59_518_717_621,
        free: 6_704_845,
        contended: 490_448,
        wait_ticks: 2_625_106_215,
        wait_avg_ticks: 5_352,
        permille: 11,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_agree_with_each_other() {
        for published in PUBLISHED {
            assert_eq!(published.worker_burns / 250, published.worker_avg);
            assert_eq!(published.wait_ticks / published.contended, published.wait_avg_ticks);
            // The benchmark counted whole seconds only.
            assert_eq!(published.worker_burns / published.seconds, published.burns_per_second);
            // Of 4 CPUs.
            assert_eq!(published.wait_ticks * 1000 / (published.lifetime_ticks * 4), published.permille);
        }
    }
}
