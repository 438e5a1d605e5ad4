//! Lock benchmarks: every contender through one interface, in one run, against glibc.
//!
//! * [`uncontended`]: what a lock costs that nobody contends for.
//! * [`handover`]: throughput of threads that take turns.
//! * [`spin`]: spinlocks, alone, between two threads, and with more threads than CPUs.
//! * [`rwlock`]: readers-writer locks, alone, and with threads of which some write.
//! * [`misc`]: mutexes and spinlocks in OSv's benchmark of mutexes, beside its published figures.
//! * [`sem`]: semaphore arrays in the benchmark of the kernel's, beside its published figures.
//! * [`startup`]: what it costs a program to start on our locks.
//! * [`check`]: what `poundlock check` costs the program that it looks at, and what helgrind costs.
//! * [`stat`]: what `poundlock stat` costs the program that it measures, and its report.
//! * [`grid`]: the locks that people use, ours among them, at every point of a grid of threads and work.
//! * [`floor`]: what no lock can undercut on this machine, and what the driver adds to every lock.
//! * [`page`]: the results of the grid as a page for a browser.
//! * [`figures`]: all of them, as one page.
//!
//! Each measurement runs in a process of its own, which is this executable again ([`worker::serve`]): the
//! preload library chooses its lock once a process. The processes of all contenders take turns, in rounds and
//! in random order, so that whatever disturbs the machine disturbs everybody; ratios are taken inside a
//! round. A measurement that could not mean what it says is an error and not a figure: a lock that does not
//! exclude, a library that leaves the calls to glibc, statistics that were not on.

mod affinity;
mod contender;
mod error;
mod launch;
mod work;

pub mod check;
pub mod figures;
pub mod floor;
pub mod grid;
pub mod handover;
pub mod misc;
pub mod page;
pub mod plan;
pub mod plot;
pub mod programs;
pub mod progress;
pub mod report;
pub mod rwlock;
pub mod sem;
pub mod spin;
pub mod startup;
pub mod stat;
pub mod uncontended;
pub mod worker;

use poundlock_measure::clock;

pub use error::{Error, Result};
pub use launch::Context;
pub use poundlock_measure::{Machine, Others, Summary, Usage, jain};
pub use work::Calibration;
