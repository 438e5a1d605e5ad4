//! Locks for Linux that stay fast when threads outnumber CPUs.
//!
//! | type | what it is | size |
//! | --- | --- | --- |
//! | [`Mutex`] | a thread that finds it free takes it; one waiter is awake | 20 bytes |
//! | [`FairMutex`], [`ReentrantMutex`] | passed from owner to waiter, in order | 20 bytes, and more to know the owner |
//! | [`SpinLock`] | a queue spinlock whose waiters halt when they would only be in the way | 4 bytes |
//! | [`RwLock`] | readers and writers in turn, or either first | 32 bytes |
//! | [`Condvar`] | requeues its waiters to the mutex, where each unlock wakes one | 8 bytes |
//! | [`SemaphoreSet`] | semaphores that are taken several at a time, by threads or by processes | |
//!
//! All are made in constants, need no initialisation and no allocation, have no poisoning, and work in a
//! forked child. Do not lock one in a signal handler that may have interrupted its holder. They are built for
//! x86-64 and aarch64.
//!
//! A module that is linked with them can be unloaded once no thread is in it. Where the kernel does not wipe
//! memory in forked children (before Linux 4.14, or with a filter that refuses `madvise`), make children by
//! `fork`.
//!
//! ```
//! use poundlock::Mutex;
//!
//! static TOTAL: Mutex<u64> = Mutex::new(0);
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| *TOTAL.lock() += 1);
//!     }
//! });
//! assert_eq!(*TOTAL.lock(), 4);
//! ```
//!
//! # From parking_lot, or anything else on `lock_api`
//!
//! The types are [`lock_api`]'s on raw locks of ours, so their methods are those of parking_lot's types of
//! the same names: replace `use parking_lot::` by `use poundlock::`. Missing are `unlock_fair` and `bump` of
//! [`Mutex`] and [`RwLock`]: [`FairMutex`] is always fair, and a `RwLock` takes turns by itself. Your types
//! that are generic over [`lock_api::RawMutex`] take [`RawMutex`], [`RawFairMutex`] or [`RawSpinLock`].
//!
//! # Features
//!
//! * `stats`: a program under `poundlock stat` has its locks of these types in the table, beside those of the
//!   C library, and `poundlock check` finds deadlocks and misuse of them. Costs 4 bytes a lock, and a load and a
//!   branch an operation; without it nothing is seen. The examples `order` and `order-ok` are for `check`.
//! * `send_guard`: guards can be sent to other threads, and the lock released there.

pub use lock_api;

mod condvar;
mod mutex;
mod raw;
mod reentrant;
mod rwlock;
mod semaphores;
mod spin;
mod stats;
mod time;

pub use condvar::{Condvar, WaitTimeoutResult, Waitable};
pub use mutex::{
    ArcMutexGuard, FairMutex, FairMutexGuard, MappedFairMutexGuard, MappedMutexGuard, Mutex, MutexGuard,
    RawFairMutex, RawMutex,
};
pub use reentrant::{
    ArcReentrantMutexGuard, MappedReentrantMutexGuard, RawThreadId, ReentrantMutex, ReentrantMutexGuard,
};
pub use rwlock::{
    ArcRwLockReadGuard, ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard, MappedRwLockReadGuard,
    MappedRwLockWriteGuard, PhaseFair, Policy, RawRwLock, ReaderPreferring, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard, WriterPreferring,
};
pub use semaphores::{Key, Operation, Permit, SemaphoreSet};
pub use spin::{
    ArcSpinLockGuard, Halting, MappedSpinLockGuard, RawSpinLock, SpinLock, SpinLockGuard, Spinning, Waiting,
};

/// Whether a guard may be sent to another thread: only with the feature `send_guard`.
#[cfg(feature = "send_guard")]
pub type GuardMarker = lock_api::GuardSend;

/// Whether a guard may be sent to another thread: only with the feature `send_guard`.
#[cfg(not(feature = "send_guard"))]
pub type GuardMarker = lock_api::GuardNoSend;
