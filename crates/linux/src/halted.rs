//! Where the paravirtual spinlock finds its halted queue heads: the memory of the lock hash.
//!
//! A line for every index that a lock word can name, mapped when the first waiter halts. The kernel provides
//! pages only where it is used, and wipes them in a forked child, whose parent's waiters do not exist there.

use poundlock_core::qspin::hash::Line;
use poundlock_core::qspin::{Large, Layout};

use crate::memory::Table;
use crate::platform::Linux;

const LINES: usize = (Large::INDICES as usize).next_power_of_two();

static TABLE: Table<Line<Linux>> = Table::new();

#[inline]
pub(crate) fn lines() -> Option<&'static [Line<Linux>]> {
    // SAFETY: zero bytes are empty lines.
    unsafe { TABLE.get(LINES) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_stays() {
        let lines = super::lines().unwrap();
        assert!(lines.len().is_power_of_two());
        assert!(core::ptr::eq(lines, super::lines().unwrap()));
    }
}
