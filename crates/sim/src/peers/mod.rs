//! Locks of others, from their papers, in our own words: what ours are compared with on machines that are not
//! there.
//!
//! Each has what its figures come from: the words that its threads share, and the order in which they touch
//! them. What none of them has: deadlines, condition variables, kinds, forks, signal handlers, and the
//! orderings that other machines than the simulated one would need.

mod cna;
mod cohort;
pub(crate) mod glibc;
pub(crate) mod glibc_condvar;
pub(crate) mod glibc_rwlock;
mod mcs_park;
mod nodes;
mod rust_std;
mod shfllock;

use crate::Alone;
use crate::locks::{Lock, Make};

fn alone<L: Lock + Default>() -> Box<dyn Lock> {
    Box::<Alone<L>>::default()
}

/// Those whose waiters spin for ever.
pub(crate) const SPINLOCKS: [(&str, Make); 2] = [
    ("cna", alone::<cna::Cna<{ cna::KEPT }, { cna::UNSPLIT }>>),
    ("cohort", alone::<cohort::Cohort<{ cohort::BATCH }>>),
];

/// Those whose waiters sleep.
pub(crate) const MUTEXES: [(&str, Make); 4] = [
    ("glibc", alone::<glibc::Glibc>),
    ("rust-std", alone::<rust_std::RustStd>),
    ("mcs-park", alone::<mcs_park::McsPark>),
    ("shfllock", alone::<shfllock::Shfllock<{ shfllock::BATCH }>>),
];

/// Locks whose constants make rare paths common: for the checker alone.
pub(crate) const RARE: [(&str, Make); 4] = [
    ("cna:3", alone::<cna::Cna<3, 1>>),
    ("cna:1", alone::<cna::Cna<1, 0>>),
    ("cohort:2", alone::<cohort::Cohort<2>>),
    ("shfllock:3", alone::<shfllock::Shfllock<3>>),
];
