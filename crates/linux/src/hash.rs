//! The lock hash's memory.
//!
//! A line for every index that a lock word can name, mapped when the first waiter halts. The kernel provides pages only
//! where it is used, and wipes them in a forked child, whose parent's waiters do not exist there.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use poundlock_core::qspin::hash::Line;
use poundlock_core::qspin::{Large, Layout};

use crate::futex::keeping_errno;
use crate::platform::Linux;

const LINES: usize = (Large::INDICES as usize).next_power_of_two();

static TABLE: AtomicPtr<Line<Linux>> = AtomicPtr::new(ptr::null_mut());
/// It is not to be had.
static ABSENT: AtomicBool = AtomicBool::new(false);

/// See [`Platform::lock_hash`](poundlock_core::Platform::lock_hash).
#[inline]
pub(crate) fn lines() -> Option<&'static [Line<Linux>]> {
    let known = TABLE.load(Acquire);
    if !known.is_null() {
        // SAFETY: so many lines, of zero bytes at first, which are empty ones; never unmapped.
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
    let fresh = keeping_errno(|| {
        // SAFETY: a new private mapping, at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return -1;
        }
        // SAFETY: the mapping just made.
        if unsafe { libc::madvise(memory, size, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: as above; nobody else has seen it.
            unsafe { libc::munmap(memory, size) };
            return -1;
        }
        memory.expose_provenance() as libc::c_long
    });
    let Ok(address) = fresh else {
        ABSENT.store(true, Relaxed);
        return None;
    };
    let fresh: *mut Line<Linux> = ptr::with_exposed_provenance_mut(address as usize);
    if TABLE.compare_exchange(ptr::null_mut(), fresh, Release, Relaxed).is_err() {
        // SAFETY: our own mapping, which nobody else has seen.
        unsafe { libc::munmap(fresh.cast(), size) };
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
