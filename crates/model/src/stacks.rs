//! Stacks that are used again.
//!
//! loom runs every thread of every execution on a stack of its own, which its coroutines map and unmap, tens
//! of thousands of times a second. The faults on the fresh pages, and unmapping them on one CPU while the
//! other runs models in the same address space, took more time than the models. So this crate's `mmap` and
//! `munmap`, which come before the C library's wherever it is linked, keep a few stacks for the next
//! execution on the same thread; all else goes to the kernel.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_STACK, PROT_READ, PROT_WRITE, off_t, size_t};

/// As many as a model has threads.
const KEPT: usize = 8;

#[derive(PartialEq, Eq)]
struct Stack {
    at: usize,
    length: usize,
}

/// A thread's stacks.
struct Stacks {
    /// Mapped here, and not unmapped since.
    used: Vec<Stack>,
    /// Unmapped by their users, but still there.
    kept: Vec<Stack>,
}

thread_local! {
    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks { used: Vec::new(), kept: Vec::new() }) };
}

impl Stacks {
    fn map(&mut self, length: usize) -> Option<*mut c_void> {
        let place = self.kept.iter().position(|stack| stack.length == length)?;
        let stack = self.kept.swap_remove(place);
        let at = stack.at;
        self.used.push(stack);
        Some(std::ptr::with_exposed_provenance_mut(at))
    }

    /// Whether it was one of the stacks, and is kept.
    fn unmap(&mut self, stack: &Stack) -> bool {
        let Some(place) = self.used.iter().position(|used| used == stack) else { return false };
        let stack = self.used.swap_remove(place);
        let room = self.kept.len() < KEPT;
        if room {
            self.kept.push(stack);
        }
        room
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        for stack in &self.kept {
            // SAFETY: whoever used it has unmapped it, as far as they know.
            unsafe { libc::syscall(libc::SYS_munmap, stack.at, stack.length) };
        }
    }
}

/// The C library's `mmap`, but that the memory of a stack may have been used before.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let is_stack = at.is_null()
        && protection == PROT_READ | PROT_WRITE
        && flags == MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK
        && file == -1;
    // Of a thread that is about to end, there are no stacks any more.
    if is_stack && let Ok(Some(stack)) = STACKS.try_with(|stacks| stacks.borrow_mut().map(length)) {
        return stack;
    }
    // SAFETY: the caller's arguments.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, at, length, protection, flags, file, offset) };
    let mapped = std::ptr::with_exposed_provenance_mut(mapped as usize);
    if is_stack && mapped != libc::MAP_FAILED {
        let stack = Stack { at: mapped.expose_provenance(), length };
        // Not noted, it is unmapped for good.
        let _ = STACKS.try_with(|stacks| stacks.borrow_mut().used.push(stack));
    }
    mapped
}

/// The C library's `munmap`, but that the memory of a stack may stay.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, length: size_t) -> c_int {
    let stack = Stack { at: at.expose_provenance(), length };
    if STACKS.try_with(|stacks| stacks.borrow_mut().unmap(&stack)).unwrap_or(false) {
        return 0;
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_munmap, at, length) as c_int }
}
