//! A number that a forked child does not share with its parent.
//!
//! It lies in a page that the kernel wipes in a child (`MADV_WIPEONFORK`, Linux 4.14), however it was forked:
//! zero there means that this process has not chosen its number yet. Where the kernel refuses, [`forked`] has
//! to be called in the child; the C library's `fork` does that. (The process's number would not do: a child
//! of `vfork` has another, and uses its parent's memory.)

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// The page's word: the process's number plus one, or 0 if it has none yet.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Whether the kernel does not wipe it.
static KEPT: AtomicBool = AtomicBool::new(false);
/// Used if no page can be mapped.
static STAND_IN: AtomicU32 = AtomicU32::new(0);
/// The last number chosen by this process or an ancestor, plus one.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Numbers stay below this.
const LIMIT: u32 = (1 << 27) - 1;

/// See [`Platform::epoch`](poundlock_core::Platform::epoch).
#[inline]
pub fn current() -> u32 {
    let word = WORD.load(Acquire);
    if !word.is_null() {
        // SAFETY: a word in a page that is never unmapped, or the static.
        let value = unsafe { &*word }.load(Relaxed);
        if value != 0 {
            return value - 1;
        }
    }
    choose()
}

/// Starts a new epoch. Call it in a forked child.
pub(crate) fn forked() {
    let word = WORD.load(Acquire);
    if KEPT.load(Relaxed) && !word.is_null() {
        // SAFETY: as in `current`.
        unsafe { &*word }.store(0, Relaxed);
    }
}

#[cold]
fn choose() -> u32 {
    let word = word();
    loop {
        let value = word.load(Acquire);
        if value != 0 {
            return value - 1;
        }
        let last = LAST.load(Relaxed);
        let next = if last >= LIMIT { 1 } else { last + 1 };
        // Before the word, so that a child forked in between does not choose the same number.
        LAST.store(next, Relaxed);
        // A thread that loses this race takes the winner's number.
        let _ = word.compare_exchange(0, next, Release, Relaxed);
    }
}

fn word() -> &'static AtomicU32 {
    let known = WORD.load(Acquire);
    if !known.is_null() {
        // SAFETY: as in `current`.
        return unsafe { &*known };
    }
    let size = 4096;
    let page = crate::memory::map(size, true).or_else(|| {
        KEPT.store(true, Relaxed);
        crate::memory::map(size, false)
    });
    let fresh = page.unwrap_or(ptr::from_ref(&STAND_IN).cast_mut());
    match WORD.compare_exchange(ptr::null_mut(), fresh, Release, Acquire) {
        // SAFETY: as in `current`.
        Ok(_) => unsafe { &*fresh },
        Err(first) => {
            if let Some(page) = page {
                // SAFETY: our own page, which no other thread has seen.
                unsafe { crate::memory::unmap(page, size) };
            }
            // SAFETY: as in `current`.
            unsafe { &*first }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::current;

    #[test]
    fn a_forked_child_has_a_number_of_its_own() {
        let before = current();
        // SAFETY: the child only reads memory and exits.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let own = current();
            let stable = own == current();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(own == before || !stable)) };
        }
        let mut status = 0;
        // SAFETY: waits for our child and writes its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(current(), before);
    }
}
