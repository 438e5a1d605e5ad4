//! Memory that a caller points to: EFAULT rather than a fault, as the kernel has it.
//!
//! A page is tested once, by a system call that touches it and fails with EFAULT if it cannot, and then
//! remembered. So a caller that unmaps memory and passes a pointer to it later gets a signal, not an error
//! number. The alternative is a system call for each operation.
//!
//! * To read: `rt_sigprocmask` with an invalid `how` reads eight bytes, and then fails with EINVAL.
//! * To write: the futex operation that adds bits to a second word, with none to add, is an atomic
//!   read-modify-write of one aligned word that leaves it as it is.
//!
//! Both exist on every kernel, and no filter of system calls can forbid them to a program that uses glibc.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use poundlock_linux::parts::keeping_errno;

/// The smallest page: each of these is tested, whatever the real size is.
const PAGE: usize = 4096;
/// Pages remembered. Callers keep their operations on their stack or in a static; a thread has one or two of
/// these.
const REMEMBERED: usize = 64;

/// Pages that could be read, by the low bits of their number: the page's address + 1, or 0.
static READABLE: [AtomicUsize; REMEMBERED] = [const { AtomicUsize::new(0) }; REMEMBERED];

/// Whether that many bytes there can be read.
#[inline(always)]
pub(crate) fn readable(address: usize, bytes: usize) -> bool {
    let first = address & !(PAGE - 1);
    let last = address.wrapping_add(bytes).wrapping_sub(1) & !(PAGE - 1);
    (first == last && known(first)) || readable_slow(address, bytes)
}

#[inline(always)]
fn known(page: usize) -> bool {
    READABLE[page / PAGE % REMEMBERED].load(Relaxed) == page + 1
}

#[cold]
#[inline(never)]
fn readable_slow(address: usize, bytes: usize) -> bool {
    pages(address, bytes).is_some_and(|mut pages| {
        pages.all(|page| {
            let readable = known(page) || test_read(page);
            if readable {
                READABLE[page / PAGE % REMEMBERED].store(page + 1, Relaxed);
            }
            readable
        })
    })
}

/// Whether that many bytes there can be written. Never remembered: a page may be made read-only, as in a
/// forked child's copy of a file.
pub(crate) fn writable(address: usize, bytes: usize) -> bool {
    pages(address, bytes).is_some_and(|mut pages| pages.all(touch))
}

/// The pages of a range; `None` if it wraps around the end of the address space.
fn pages(address: usize, bytes: usize) -> Option<impl Iterator<Item = usize>> {
    let end = address.checked_add(bytes)?;
    Some((address & !(PAGE - 1)..end).step_by(PAGE))
}

fn test_read(page: usize) -> bool {
    const NO_SUCH_HOW: c_int = -1;
    // Not the first bytes: a null pointer would mean that there is no set to read.
    let within = page + 8;
    // SAFETY: the kernel reads eight bytes if it can, and changes nothing.
    let tested = keeping_errno(|| unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, NO_SUCH_HOW, within, core::ptr::null_mut::<u64>(), 8)
    });
    tested != Err(libc::EFAULT)
}

/// Makes sure that the page at this address can be written, by doing so without a change. False: it cannot,
/// because there is none, it is read-only, or there is no memory for it.
pub(crate) fn touch(page: usize) -> bool {
    // "Or with 0, and wake those who wait on the second word if it was less than -2048": usually no thread is
    // woken, and if one is, that is a spurious wake-up, which every waiter has to expect.
    const OR_ZERO: u32 = (libc::FUTEX_OP_OR as u32) << 28 | (libc::FUTEX_OP_CMP_LT as u32) << 24 | 0x800;
    // Without waiters.
    let own = 0u32;
    // SAFETY: the first word is ours; the second is changed by the kernel, atomically, to what it was.
    let touched = keeping_errno(|| unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0usize,
            page,
            OR_ZERO,
        )
    });
    touched.is_ok()
}

/// Reads a value from a caller's memory.
///
/// # Safety
/// What is there, if it can be read, is bytes; any bytes are a `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Result<T, c_int> {
    if !readable(from.addr(), size_of::<T>()) {
        return Err(libc::EFAULT);
    }
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: it can be read; another thread that writes it now makes bytes of it, which are a `T`, by the
    // caller's word.
    unsafe {
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), size_of::<T>());
        Ok(value.assume_init())
    }
}

/// Writes a value to a caller's memory.
///
/// # Safety
/// That memory, if it can be written, is the caller's to be written.
pub(crate) unsafe fn write<T: Copy>(to: *mut T, value: &T) -> Result<(), c_int> {
    if !writable(to.addr(), size_of::<T>()) {
        return Err(libc::EFAULT);
    }
    // SAFETY: it can be written, and is the caller's.
    unsafe {
        core::ptr::copy_nonoverlapping(core::ptr::from_ref(value).cast::<u8>(), to.cast(), size_of::<T>())
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Three pages, the middle one without access.
    fn pages_with_a_hole() -> usize {
        // SAFETY: a new mapping.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                3 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: a page of it.
        assert_eq!(unsafe { libc::mprotect(memory.byte_add(PAGE), PAGE, libc::PROT_NONE) }, 0);
        memory.expose_provenance()
    }

    #[test]
    fn what_cannot_be_read_is_a_fault() {
        let base = pages_with_a_hole();
        assert!(readable(base, 6));
        assert!(readable(base, PAGE));
        assert!(!readable(base + PAGE - 2, 6));
        assert!(!readable(base + PAGE, 1));
        assert!(!readable(base, 3 * PAGE));
        assert!(readable(base + 2 * PAGE, PAGE));
        // Twice: the second answer is the remembered one.
        assert!(readable(base, 6) && readable(base + 2 * PAGE, 6));
        for wild in [0, 8, usize::MAX - 3, usize::MAX, 1 << 62, 0xdead_0000_0000_0000] {
            assert!(!readable(wild, 6), "{wild:#x}");
            assert!(!writable(wild, 6), "{wild:#x}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_a_fault() {
        let base = pages_with_a_hole();
        assert!(writable(base, PAGE));
        assert!(!writable(base + PAGE - 1, 2));
        let third = ptr::with_exposed_provenance_mut(base + 2 * PAGE);
        // SAFETY: a page that no other thread uses.
        assert_eq!(unsafe { libc::mprotect(third, PAGE, libc::PROT_READ) }, 0);
        assert!(!writable(base + 2 * PAGE, 1));
        assert!(readable(base + 2 * PAGE, 1));
    }

    #[test]
    fn values_are_copied_whatever_their_alignment() {
        let mut bytes = [0u8; 9];
        let to: *mut u64 = bytes[1..].as_mut_ptr().cast();
        // SAFETY: eight bytes of ours.
        unsafe {
            assert_eq!(write(to, &0x0102_0304_0506_0708), Ok(()));
            assert_eq!(read(to), Ok(0x0102_0304_0506_0708));
            assert_eq!(read(ptr::null::<u64>()), Err(libc::EFAULT));
            assert_eq!(write(ptr::null_mut::<u64>(), &1), Err(libc::EFAULT));
        }
        assert_eq!(bytes[0], 0);
    }

    #[test]
    fn touching_changes_nothing_and_reaches_lazy_pages() {
        let base = pages_with_a_hole();
        let word = ptr::with_exposed_provenance_mut::<u32>(base);
        // SAFETY: the first page.
        unsafe { *word = 0x8000_0001 };
        assert!(touch(base));
        // SAFETY: as above.
        assert_eq!(unsafe { *word }, 0x8000_0001);
        assert!(touch(base + 2 * PAGE));
        assert!(!touch(base + PAGE));
    }
}
