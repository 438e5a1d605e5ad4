//! What threads that take turns get done.

use serde::Serialize;

use crate::stats::jain;
use crate::worker::turns;

/// A contender with a number of threads, in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Acquisitions.
    pub acquisitions: f64,
    /// Acquisitions a second.
    pub throughput: f64,
    /// Jain's index of the threads' acquisitions.
    pub jain: f64,
    /// The share of the threads that never acquired the lock.
    pub unserved: f64,
    /// CPU nanoseconds, of all threads together, for each acquisition.
    pub cpu_ns: f64,
    /// Times a thread gave up its CPU, for each acquisition.
    pub voluntary: f64,
    /// Times a thread was made to give up its CPU, for each acquisition.
    pub involuntary: f64,
    /// The share of the CPUs that other processes had meanwhile.
    pub others: Option<f64>,
}

impl Sample {
    /// What a worker measured; `None` if nobody acquired the lock.
    pub(crate) fn of(answer: &turns::Answer) -> Option<Sample> {
        let acquisitions = answer.counts.iter().sum::<u64>() as f64;
        let unserved = answer.counts.iter().filter(|&&count| count == 0).count();
        Some(Sample {
            acquisitions,
            throughput: acquisitions * 1e9 / answer.elapsed_ns as f64,
            jain: jain(&answer.counts)?,
            unserved: unserved as f64 / answer.counts.len() as f64,
            cpu_ns: answer.cpu_ns as f64 / acquisitions,
            voluntary: answer.voluntary_switches as f64 / acquisitions,
            involuntary: answer.involuntary_switches as f64 / acquisitions,
            others: answer.others,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_what_all_threads_did() {
        let answer = turns::Answer {
            elapsed_ns: 500_000_000,
            counts: vec![300, 100, 0, 0],
            cpu_ns: 800_000_000,
            voluntary_switches: 40,
            involuntary_switches: 4,
            others: Some(0.1),
            unfinished: 0,
            gaps: None,
        };
        let sample = Sample::of(&answer).unwrap();
        assert_eq!((sample.acquisitions, sample.throughput), (400.0, 800.0));
        assert_eq!(sample.cpu_ns, 2_000_000.0);
        assert_eq!((sample.voluntary, sample.involuntary), (0.1, 0.01));
        assert_eq!(sample.jain, 160_000.0 / (4.0 * 100_000.0));
        assert_eq!(sample.unserved, 0.5);
    }
}
