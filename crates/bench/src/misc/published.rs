//! The source's figures.

use serde::Serialize;

/// What the source measured with a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Threads, each on a CPU of its own.
    pub threads: usize,
    /// Nanoseconds without spinning.
    pub without_ns: f64,
    /// Nanoseconds with a fixed number of turns before a thread queues.
    pub with_ns: f64,
}

/// OSv's misc-mutex, incrementing threads, on 4 CPUs. From Nadav Har'El, "RFC: Mutex with spinning", osv-dev, 2014.
///
/// The benchmark divides the time of the run by the increments of *one* thread, while all threads make as many. So
/// with n threads these are n times the time that passes from one acquisition to the next.
pub const PUBLISHED: [Published; 2] = [
    Published { threads: 2, without_ns: 800.0, with_ns: 33.0 },
    Published { threads: 4, without_ns: 1800.0, with_ns: 153.0 },
];
