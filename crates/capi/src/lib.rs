//! Poundlock's locks for C and C++: `poundlock.h`, `poundlock.hpp`, `libpoundlock.so` and `libpoundlock.a`.
//!
//! Not for use from Rust, which has the crate `poundlock`. [cargo-c](https://github.com/lu-zero/cargo-c)
//! builds and installs the libraries, and has cbindgen make the header of this source; the documentation of
//! the functions is written for that header. `include/poundlock.hpp` is a layer over the header.
//!
//! This crate translates calling conventions and decides nothing about locking. Its locks are words whose
//! zero bytes are unlocked locks of `poundlock-core`. Nothing here allocates, panics or unwinds. There is no
//! standard library in it, so that a program that is linked statically needs nothing but C's.

#![no_std]
#![allow(non_camel_case_types, reason = "C's names")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the documentation is C's; what all pointers have to point to is said once, at the top of the \
        header"
)]

/// `raw`: the lock in an object of C's, which is words of the same number and alignment.
macro_rules! object {
    ($visibility:vis $object:ty: $lock:ty) => {
        const _: () = assert!(size_of::<$object>() == size_of::<$lock>());
        const _: () = assert!(align_of::<$object>() == align_of::<$lock>());

        /// # Safety
        /// It points to an object of C's, for as long as the result is used.
        #[inline(always)]
        $visibility unsafe fn raw<'a>(object: *mut $object) -> &'a $lock {
            // SAFETY: the caller's; any bytes are a lock.
            unsafe { &*object.cast() }
        }
    };
}
use object;

pub mod cond;
pub mod mutex;
pub mod recursive;
pub mod rwlock;
mod seen;
pub mod semset;
pub mod spinlock;
mod time;

#[cfg(cargo_c)]
mod library;
