//! Scalable lock algorithms, written once against a small [`Platform`] trait.
//!
//! The same source runs on Linux threads (`poundlock-linux`), under the loom model checker
//! (`poundlock-model`), and wherever else the trait is implemented. Nothing here allocates, panics, uses a
//! global, or knows Linux.
//!
//! * [`poundlock`]: the default mutex, which a thread that finds it free takes, with one waiter awake; and
//!   its policies.
//! * [`adaptive`]: the queued adaptive mutex, in four variants.
//! * [`waiting`]: what waits: the part that these and the readers-writer lock share, and its proof.
//! * [`condvar`]: the condition variable that requeues its waiters to the mutex instead of waking them all.
//! * [`qspin`]: the 4-byte queue spinlock: native, virtual and paravirtual.
//! * [`handoff`]: the mutex without an inner lock, which passes from owner to waiter.
//! * [`rwlock`]: the queued readers-writer lock, with three preferences.
//! * [`semarray`]: System V semaphore arrays in memory that processes share.
//! * [`mcs`]: the MCS queue of spinners that a waiter may leave.
//! * [`queue`]: the MCS queue along which a mutex goes from owner to owner.
//! * [`mpsc`]: a queue of waiters with many producers and one consumer.
//! * [`platform`], [`atomic`], [`record`], [`node`]: the machine, its atomics, the records through which
//!   threads wait, and how a thread takes its nodes.
//! * [`events`]: what happens in the slow paths, for programs that count it.
#![no_std]

pub mod adaptive;
pub mod atomic;
pub mod condvar;
pub mod events;
pub mod handoff;
#[cfg(test)]
mod headers;
pub mod mcs;
pub mod mpsc;
pub mod node;
pub mod platform;
pub mod poundlock;
pub mod qspin;
pub mod queue;
pub mod record;
pub mod rwlock;
pub mod semarray;
#[cfg(test)]
mod testing;
pub mod tunings;
pub mod waiting;

pub use platform::Platform;
