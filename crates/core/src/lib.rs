//! Scalable lock algorithms, written once against a small [`Platform`] trait.
//!
//! The same source runs on Linux threads (`poundlock-linux`), under the loom model checker
//! (`poundlock-model`), and wherever else somebody implements the trait. Nothing here allocates, panics,
//! uses a global, or knows Linux.
//!
//! * [`barging`]: the mutex that whoever finds it free takes, with one waiter awake.
//! * [`mutex`]: the queued adaptive mutex, in four variants.
//! * [`condvar`]: the condition variable that moves its waiters to the mutex instead of waking them all.
//! * [`qspin`]: the 4-byte queue spinlock: native, virtual and paravirtual.
//! * [`handoff`]: the mutex without an inner lock, which passes from owner to waiter.
//! * [`rwlock`]: the queued readers-writer lock, in three policies.
//! * [`semarray`]: System V semaphore arrays in memory that processes share.
//! * [`baseline`]: textbook spinlocks, to read figures against.
//! * [`mcs`]: the MCS queue of spinners that a waiter may leave.
//! * [`mpsc`]: a queue of waiters with many producers and one consumer.
//! * [`events`]: what happens in the slow paths, for those who count it.
//! * [`node`]: the type-stable records through which threads wait.
//! * [`names`]: the names by which people choose a lock.
#![no_std]

pub mod barging;
pub mod baseline;
mod bitlock;
pub mod condvar;
pub mod events;
pub mod handoff;
pub mod mcs;
pub mod mpsc;
pub mod mutex;
pub mod names;
pub mod node;
pub mod platform;
pub mod qspin;
pub mod rwlock;
pub mod semarray;
#[cfg(test)]
mod testing;

pub use platform::Platform;
