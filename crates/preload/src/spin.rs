//! `pthread_spin_*`.
//!
//! A `pthread_spinlock_t` is 4 bytes and has no static initialiser, so `pthread_spin_init` decides whose it is: one for
//! this process alone becomes a queue spinlock, with a mark in its word; one that processes share stays glibc's, because
//! a queue's tail names threads of one process, and because the others may not run on this library.
//!
//! On x86-64 glibc's word is 1 when free, and 0 or a small negative number when held: it counts down once an attempt. Ours
//! has [`OURS`] set and never a tail of all ones, so neither is ever taken for the other. The fast paths need no look: ours
//! changes a word only if that bears the mark.

use core::ffi::c_int;

use libc::{EBUSY, pthread_spinlock_t};
use poundlock_core::qspin::{RawSpin, Small};
use poundlock_linux::Linux;

use crate::mode::{self, Chosen};
use crate::real;

/// The bit by which our words are known, in the layout's bits for its user.
const OURS: u32 = 1 << 15;

/// A `pthread_spinlock_t`.
type Spin = RawSpin<Linux, Small, OURS>;

const _: () = assert!(size_of::<Spin>() == size_of::<pthread_spinlock_t>());

/// # Safety
/// `lock` points to a `pthread_spinlock_t` that lives for `'a` as far as the caller's use of it goes.
#[inline(always)]
unsafe fn at<'a>(lock: *mut pthread_spinlock_t) -> &'a Spin {
    // SAFETY: the caller's; any bytes are a valid lock, of whomever.
    unsafe { &*lock.cast() }
}

/// Whether a word is ours.
const fn is_ours(word: u32) -> bool {
    word & OURS != 0 && word >> 16 != 0xffff
}

const _: () = {
    // glibc's: free, held, and with as many attempts under way as it can have threads.
    assert!(!is_ours(1) && !is_ours(0) && !is_ours(u32::MAX) && !is_ours(0xffff_0000));
    assert!(is_ours(OURS) && is_ours(OURS | 1));
};

/// Initialises a spinlock.
///
/// # Safety
/// As C's function of that name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_init(lock: *mut pthread_spinlock_t, shared: c_int) -> c_int {
    if shared != libc::PTHREAD_PROCESS_PRIVATE || !mode::spinlocks_are_ours() {
        // SAFETY: the caller's memory.
        return unsafe { real::pthread_spin_init(lock, shared) };
    }
    // SAFETY: the caller's memory for a spinlock.
    unsafe { at(lock) }.init();
    0
}

/// Destroys a spinlock.
///
/// # Safety
/// As C's function of that name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_destroy(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's spinlock.
    if is_ours(unsafe { at(lock) }.word()) {
        return 0;
    }
    // SAFETY: as above.
    unsafe { real::pthread_spin_destroy(lock) }
}

/// Acquires a spinlock.
///
/// # Safety
/// As C's function of that name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_lock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's spinlock.
    if unsafe { at(lock) }.take() {
        return 0;
    }
    // SAFETY: as above.
    unsafe { lock_other(lock) }
}

#[cold]
#[inline(never)]
unsafe fn lock_other(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's spinlock.
    let object = unsafe { at(lock) };
    if is_ours(object.word()) {
        object.lock_slow::<Chosen>();
        return 0;
    }
    // SAFETY: as above.
    unsafe { real::pthread_spin_lock(lock) }
}

/// Acquires a spinlock if it is free.
///
/// # Safety
/// As C's function of that name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's spinlock.
    let object = unsafe { at(lock) };
    if object.take() {
        return 0;
    }
    if is_ours(object.word()) {
        return if object.try_lock::<Chosen>() { 0 } else { EBUSY };
    }
    // SAFETY: as above.
    unsafe { real::pthread_spin_trylock(lock) }
}

/// Releases a spinlock.
///
/// # Safety
/// As C's function of that name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's spinlock.
    if unsafe { at(lock) }.release() {
        return 0;
    }
    // SAFETY: as above.
    unsafe { unlock_other(lock) }
}

#[inline(never)]
unsafe fn unlock_other(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's spinlock.
    let object = unsafe { at(lock) };
    if is_ours(object.word()) {
        object.unlock::<Chosen>();
        return 0;
    }
    // SAFETY: as above.
    unsafe { real::pthread_spin_unlock(lock) }
}
