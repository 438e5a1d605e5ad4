//! Where readers of readers-writer locks enter that meet with others at the lock: 33 KB of the library, zero
//! bytes, of which the kernel provides pages as they are used.
//!
//! A forked child has its parent's. The readers that are there stay, as those do that are counted in a lock.

use poundlock_core::rwlock::readers::{Line, Table};

use crate::platform::Linux;

/// A line for each of so many threads; those beyond share them. As many as there are records in the library.
const LINES: usize = 512;

pub(crate) static TABLE: Table<Linux, [Line<Linux>; LINES]> = Table::new();

const _: () = assert!(size_of_val(&TABLE) == (LINES + 1) * 64);
