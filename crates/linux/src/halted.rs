//! Where the paravirtual spinlock finds its halted queue heads: the memory of the lock hash.
//!
//! A line for every index that a lock word can name, mapped when the first waiter halts. The kernel provides
//! pages only where it is used, and wipes them in a forked child, whose parent's waiters do not exist there.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use poundlock_core::qspin::hash::Line;
use poundlock_core::qspin::{Large, Layout};

use crate::memory;
use crate::platform::Linux;

const LINES: usize = (Large::INDICES as usize).next_power_of_two();

static TABLE: AtomicPtr<Line<Linux>> = AtomicPtr::new(ptr::null_mut());
/// The kernel refused it.
static ABSENT: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn lines() -> Option<&'static [Line<Linux>]> {
    let known = TABLE.load(Acquire);
    if !known.is_null() {
        // SAFETY: that many lines, of zero bytes at first, which are empty ones; never unmapped.
        return Some(unsafe { core::slice::from_raw_parts(known, LINES) });
    }
    map()
}

#[cold]
fn map() -> Option<&'static [Line<Linux>]> {
    if ABSENT.load(Relaxed) {
        return None;
    }
    let size = LINES * size_of::<Line<Linux>>();
    let Some(fresh) = memory::map(size, true) else {
        ABSENT.store(true, Relaxed);
        return None;
    };
    if TABLE.compare_exchange(ptr::null_mut(), fresh, Release, Relaxed).is_err() {
        // SAFETY: our own mapping, which no other thread has seen.
        unsafe { memory::unmap(fresh, size) };
    }
    lines()
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
