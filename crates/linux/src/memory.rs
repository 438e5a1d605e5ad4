//! Memory from the kernel: private, zero bytes, provided page by page where it is used.

use core::ptr;

use crate::futex::keeping_errno;

/// Maps so many bytes; `None` if the kernel refuses. With `wiped`, a forked child finds zero bytes there
/// again, or else there is no mapping. Async-signal-safe.
pub(crate) fn map<T>(bytes: usize, wiped: bool) -> Option<*mut T> {
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

/// Gives back what [`map`] gave, which nobody else has seen.
///
/// # Safety
/// The mapping is of so many bytes, and not used any more.
pub(crate) unsafe fn unmap<T>(memory: *mut T, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { libc::munmap(memory.cast(), bytes) };
}
