//! The calls that give memory back, watched in a process under check: what is freed must hold no lock that is
//! held or waited for, and the locks in it are no more.
//!
//! In every other process each is one jump to the next function of its name: glibc's, or that of an allocator
//! that was preloaded behind this library. An allocator that comes before us, linked with the program or
//! preloaded first, has functions of its own, which are called in place of ours: then nothing is seen, and the
//! program works as ever. `operator delete` comes through `free`.
//!
//! The next functions are found at the first call, which may come from another library's constructor, from an
//! allocator that the dynamic linker has called, or from a process with one thread that has not yet a
//! thread-local word of ours. [`scope::next`] allocates nothing. Up to this library's own constructor nothing is
//! looked at.
//!
//! How large a block is, the allocator says, by the `malloc_usable_size` in the object that has the next
//! `free`. If it has none, a block counts as long as it is to its first lock: only one at its beginning is
//! found.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Relaxed, Release},
};

use poundlock_statfile::writer::memory::{self, Locks};

use crate::stat::{CallSite, RECORDER};
use crate::{check, mode, scope};

/// Where an exported function leads: first to what finds the next one of its name, then to that, or to ours.
#[repr(C)]
struct Way {
    to: AtomicPtr<c_void>,
    /// The next one; null before it is known.
    next: AtomicPtr<c_void>,
    name: &'static core::ffi::CStr,
    /// The one in a process under check,
    checked: *const c_void,
    /// and what there is if no other library has one.
    without: *const c_void,
}

// SAFETY: addresses of functions.
unsafe impl Sync for Way {}

impl Way {
    /// Before the constructor: leads to the next function.
    extern "C" fn find(&'static self) {
        let next = self.next();
        let to = self.to.load(Relaxed);
        if to != self.checked.cast_mut() {
            // Release: partner of the acquire in `jump_by!`. Fails if the constructor was quicker.
            let _ = self.to.compare_exchange(to, next, Release, Relaxed);
        }
    }

    /// In the constructor.
    fn start(&self, checked: bool) {
        let next = self.next();
        self.to.store(if checked { self.checked.cast_mut() } else { next }, Release);
    }

    #[inline]
    fn next(&self) -> *mut c_void {
        let known = self.next.load(Relaxed);
        if known.is_null() { self.look() } else { known }
    }

    #[cold]
    fn look(&self) -> *mut c_void {
        let found = scope::next(self.name).map_or(ptr::null_mut(), |(function, _)| function);
        let next = if found.is_null() { self.without.cast_mut() } else { found };
        self.next.store(next, Relaxed);
        next
    }
}

macro_rules! ways {
    ($($name:ident($count:tt), $checked:path, $without:path;)*) => {
        #[expect(non_upper_case_globals, reason = "each is named after its function")]
        mod ways {
            use super::{AtomicPtr, Way, ptr};
            $(
            pub(super) static $name: Way = Way {
                to: AtomicPtr::new(super::first::$name as *mut _),
                next: AtomicPtr::new(ptr::null_mut()),
                name: match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name without its zero"),
                },
                checked: super::checked::$name as *const _,
                without: $without as *const _,
            };
            )*
        }

        mod first {
            use super::{Way, ways};
            $(
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name() {
                crate::arch::find_and_jump_by!(ways::$name, Way::find)
            }
            )*
        }

        mod checked {
            $(
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name() {
                crate::arch::go_on!($count, $checked)
            }
            )*
        }

        $(
        #[doc = concat!("The next `", stringify!($name), "`, which may be watched.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            crate::arch::jump_by!(ways::$name)
        }
        )*

        /// From here on the calls lead to where they should.
        pub(crate) fn start() {
            let checked = mode::get().counted() && check::is_on();
            if checked {
                find_size();
            }
            $(ways::$name.start(checked);)*
        }
    };
}

ways! {
    free(1), super::free_checked, super::free_nothing;
    realloc(2), super::realloc_checked, super::reallocate_nothing;
    reallocarray(3), super::reallocarray_checked, super::reallocate_nothing;
    munmap(2), super::munmap_checked, super::munmap_by_kernel;
    mremap(5), super::mremap_checked, super::mremap_by_kernel;
}

/// The allocator's `malloc_usable_size`; null if it has none.
static SIZE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

fn find_size() {
    let (free, size) = (scope::next(c"free"), scope::next(c"malloc_usable_size"));
    if let (Some((_, of_free)), Some((size, of_size))) = (free, size)
        && ptr::eq(of_free, of_size)
    {
        SIZE.store(size, Relaxed);
    }
}

/// The end of an allocated block.
#[inline]
fn end_of(block: usize) -> usize {
    let size = SIZE.load(Relaxed);
    let size = if size.is_null() {
        1
    } else {
        // SAFETY: the allocator's function of this type; the caller's block is one of its.
        unsafe {
            let size: unsafe extern "C" fn(usize) -> usize = mem::transmute(size);
            size(block)
        }
    };
    block.saturating_add(size)
}

extern "C" fn free_checked(block: usize, pc: usize, sp: usize) {
    if block != 0 {
        let end = end_of(block);
        if memory::may_have_locks(block, end) {
            RECORDER.freed(block, end, CallSite { pc, sp });
        }
    }
    // SAFETY: the function of this name; the block is the caller's.
    unsafe {
        let free: unsafe extern "C" fn(usize) = mem::transmute(ways::free.next());
        free(block);
    }
}

extern "C" fn realloc_checked(block: usize, size: usize, pc: usize, sp: usize) -> usize {
    again(block, size, CallSite { pc, sp }, || {
        // SAFETY: as above.
        unsafe {
            let realloc: unsafe extern "C" fn(usize, usize) -> usize = mem::transmute(ways::realloc.next());
            realloc(block, size)
        }
    })
}

extern "C" fn reallocarray_checked(block: usize, count: usize, each: usize, pc: usize, sp: usize) -> usize {
    again(block, count.saturating_mul(each), CallSite { pc, sp }, || {
        // SAFETY: as above.
        unsafe {
            let realloc: unsafe extern "C" fn(usize, usize, usize) -> usize =
                mem::transmute(ways::reallocarray.next());
            realloc(block, count, each)
        }
    })
}

/// Reallocates a block. Where its locks are is asked before: afterwards others may be there.
#[inline]
fn again(block: usize, size: usize, site: CallSite, reallocate: impl FnOnce() -> usize) -> usize {
    if block == 0 {
        return reallocate();
    }
    let end = end_of(block);
    if !memory::may_have_locks(block, end) {
        return reallocate();
    }
    let locks = RECORDER.locks_in(block, end);
    let new = reallocate();
    if new != 0 && new != block {
        moved(&locks, site, block, end);
    } else if new == block || size == 0 {
        // Smaller in its place, or freed.
        moved(&locks, site, if new == 0 { block } else { block.saturating_add(size) }, end);
    }
    new
}

/// These locks, as far as they lie from `start` to `end`, are no more.
#[cold]
fn moved(locks: &Locks, site: CallSite, start: usize, end: usize) {
    RECORDER.gone(locks, start, end, site);
}

extern "C" fn munmap_checked(start: usize, size: usize, pc: usize, sp: usize) -> c_int {
    if memory::may_have_locks(start, start.saturating_add(size)) {
        RECORDER.freed(start, start.saturating_add(size), CallSite { pc, sp });
    }
    // SAFETY: the function of this name; the mapping is the caller's.
    unsafe {
        let munmap: unsafe extern "C" fn(usize, usize) -> c_int = mem::transmute(ways::munmap.next());
        munmap(start, size)
    }
}

extern "C" fn mremap_checked(
    start: usize,
    old_size: usize,
    new_size: usize,
    flags: c_int,
    target: usize,
    pc: usize,
    sp: usize,
) -> usize {
    let end = start.saturating_add(old_size);
    let call = || {
        // SAFETY: the function of this name, which takes a fifth argument by its flags.
        unsafe {
            let mremap: unsafe extern "C" fn(usize, usize, usize, c_int, ...) -> usize =
                mem::transmute(ways::mremap.next());
            mremap(start, old_size, new_size, flags, target)
        }
    };
    // Without an old size it makes a second mapping, and takes none away; with `MREMAP_DONTUNMAP` what was
    // there is empty.
    if old_size == 0 || !memory::may_have_locks(start, end) {
        return call();
    }
    let locks = RECORDER.locks_in(start, end);
    let new = call();
    if new == usize::MAX {
        return new;
    }
    let site = CallSite { pc, sp };
    moved(&locks, site, if new == start { start.saturating_add(new_size) } else { start }, end);
    new
}

extern "C" fn free_nothing() {}

extern "C" fn reallocate_nothing() -> *mut c_void {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

extern "C" fn munmap_by_kernel(start: usize, size: usize) -> c_int {
    // SAFETY: the caller's mapping.
    unsafe { libc::syscall(libc::SYS_munmap, start, size) as c_int }
}

extern "C" fn mremap_by_kernel(start: usize, old: usize, new: usize, flags: c_int, target: usize) -> usize {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_mremap, start, old, new, flags, target) as usize }
}

const _: () = assert!(mem::offset_of!(Way, to) == 0);
