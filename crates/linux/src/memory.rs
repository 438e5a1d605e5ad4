//! Memory from the kernel: private, zero bytes, provided page by page where it is used.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::futex::keeping_errno;

/// Maps that many bytes; `None` if the kernel refuses. With `wiped`, a forked child finds zero bytes there
/// again; if the kernel cannot do that, it is `None` too. Async-signal-safe.
pub fn map<T>(bytes: usize, wiped: bool) -> Option<*mut T> {
    let address = keeping_errno(|| {
        // SAFETY: a new private mapping, at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
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
        if wiped && unsafe { libc::madvise(memory, bytes, libc::MADV_WIPEONFORK) } != 0 {
            // SAFETY: as above; nobody else has seen it.
            unsafe { libc::munmap(memory, bytes) };
            return -1;
        }
        memory.expose_provenance() as libc::c_long
    });
    address.ok().map(|address| ptr::with_exposed_provenance_mut(address as usize))
}

/// Gives back what [`map`] gave, which no other thread has seen.
///
/// # Safety
/// The mapping is of that many bytes, and not used any more.
pub unsafe fn unmap<T>(memory: *mut T, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { libc::munmap(memory.cast(), bytes) };
}

/// A table that is mapped when it is first used, of zero bytes, also in a forked child. It is never unmapped.
pub(crate) struct Table<T> {
    first: AtomicPtr<T>,
    /// The kernel refused it.
    absent: AtomicBool,
}

impl<T: Sync> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        Table { first: AtomicPtr::new(ptr::null_mut()), absent: AtomicBool::new(false) }
    }

    /// The table; `None` if the kernel refuses it. Async-signal-safe.
    ///
    /// # Safety
    /// Zero bytes are a valid `T`, and `length` is the same in each call.
    #[inline]
    pub(crate) unsafe fn get(&self, length: usize) -> Option<&'static [T]> {
        let first = self.first.load(Acquire);
        let first = if first.is_null() { self.map(length)? } else { first };
        // SAFETY: that many, of zero bytes at first; never unmapped.
        Some(unsafe { core::slice::from_raw_parts(first, length) })
    }

    #[cold]
    fn map(&self, length: usize) -> Option<*mut T> {
        if self.absent.load(Relaxed) {
            return None;
        }
        let size = length * size_of::<T>();
        let Some(fresh) = map(size, true) else {
            self.absent.store(true, Relaxed);
            return None;
        };
        match self.first.compare_exchange(ptr::null_mut(), fresh, Release, Acquire) {
            Ok(_) => Some(fresh),
            Err(known) => {
                // SAFETY: our own mapping, which no other thread has seen.
                unsafe { unmap(fresh, size) };
                Some(known)
            }
        }
    }
}
