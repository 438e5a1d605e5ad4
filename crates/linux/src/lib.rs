//! Poundlock's [`Platform`](poundlock_core::Platform) on Linux threads: futexes, a registry of threads, and
//! the CPU that a thread runs on, as evidence that another does not run.
//!
//! ```
//! use poundlock_core::adaptive::{AnyNegative, RawAdaptive};
//! use poundlock_linux::Linux;
//!
//! static MUTEX: RawAdaptive<Linux> = RawAdaptive::new();
//! MUTEX.lock::<AnyNegative>();
//! assert!(!MUTEX.try_lock());
//! MUTEX.unlock::<AnyNegative>();
//! ```

// So that a C library of the locks needs nothing but the C library.
#![cfg_attr(not(test), no_std)]

mod atomic;
mod budget;
mod cpu;
mod epoch;
pub mod events;
mod futex;
mod halted;
pub mod machine;
mod memory;
mod node;
mod platform;
mod priority;
pub mod registry;
mod rseq;
mod sides;
pub mod statistics;
pub mod time;
pub mod tls;

/// For `poundlock-semarray` only, which also uses the marks of [`registry`].
#[doc(hidden)]
pub mod parts {
    pub use crate::atomic::U32;
    pub use crate::cpu::{init as init_cpu, tag};
    pub use crate::epoch::current as epoch;
    pub use crate::futex::{in_nanoseconds, keeping_errno, now};
    pub use crate::memory::{map, unmap};
    pub use crate::rseq::membarrier;
}

pub use platform::Linux;
pub use priority::scheduling_changed;

/// Examines the machine: the restartable-sequences area, the nodes of its memory, the cost of spinning.
/// Otherwise the first thread that has to wait does. Calling it again is harmless.
pub fn init() {
    cpu::init();
    node::init();
    let _ = <budget::Turns as poundlock_core::platform::Spin>::fresh();
    let _ = <Linux as poundlock_core::Platform>::epoch();
}

/// As [`init`], with the values of glibc's `__rseq_offset` and `__rseq_size`, for programs that know them:
/// without a dynamic linker [`init`] finds neither.
///
/// # Safety
/// The values are glibc's.
pub unsafe fn init_with_rseq(offset: isize, size: u32) {
    cpu::use_area(offset, size);
    init();
}
