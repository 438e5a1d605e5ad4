//! `pthread_spin_*`.
//!
//! A `pthread_spinlock_t` is 4 bytes and has no static initialiser, so `pthread_spin_init` decides whose it
//! is: one for this process alone becomes a queue spinlock, with a mark in its word; one that processes share
//! stays glibc's, because a queue's tail names threads of one process, and because the others may not run on
//! this library.
//!
//! On x86-64 glibc's word is 1 when free, and 0 or a small negative number when held: it counts down once an
//! attempt. On aarch64 it is 0 when free and 1 when held. Ours has [`OURS`] set and never a tail of all ones,
//! so neither is ever taken for the other. The fast paths need no look: ours changes a word only if that
//! bears the mark.
//!
//! # Counted ones
//!
//! In a program whose locks are counted, ours bear a second mark, [`COUNTED`], which sends them past the fast
//! paths. So the fast paths are the same instructions whether there is something to count or not. The 4 bytes
//! have no room for the lock's slot in the statistics; it is in a table by the lock's address
//! ([`stat::at`]), which is looked up once in every call. glibc's are counted in the same way, and
//! their words left alone. A counted acquisition tries first; if that fails, it is a wait.

use core::ffi::c_int;
use core::hint::black_box;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{EBUSY, pthread_spinlock_t};
use poundlock_core::qspin::{RawSpin, Small};
use poundlock_linux::Linux;
use poundlock_statfile::check::Wrong;

use crate::entry::{export, with_call_site};
use crate::mode::{self, Chosen};
use crate::stat::{self, CallSite, LockKind, LockRef, Manner};
use crate::{check, real};

/// The bit that marks our words, one of the layout's bits for its user.
const OURS: u32 = 1 << 15;
/// In ours: the program's locks are counted. Another of those bits.
const COUNTED: u32 = 1 << 10;

/// The word of one that was destroyed, under check: none of ours, and none of glibc's with as many attempts
/// under way as there can be threads.
const BURIED: u32 = 0xffff_0000 | COUNTED;

/// A `pthread_spinlock_t`.
pub(crate) type Spin = RawSpin<Linux, Small, OURS>;
/// One in a program whose locks are counted.
type CountedSpin = RawSpin<Linux, Small, { OURS | COUNTED }>;

const _: () = assert!(size_of::<Spin>() == size_of::<pthread_spinlock_t>());

/// The same, as one that is counted.
fn as_counted(lock: &Spin) -> &CountedSpin {
    // SAFETY: the same bytes; the mark is not in them.
    unsafe { &*ptr::from_ref(lock).cast() }
}

const fn is_ours(word: u32) -> bool {
    word & OURS != 0 && word >> 16 != 0xffff
}

const _: () = {
    // glibc's: free, held, and with as many attempts under way as it can have threads.
    assert!(!is_ours(1) && !is_ours(0) && !is_ours(u32::MAX) && !is_ours(0xffff_0000));
    assert!(!is_ours(BURIED) && BURIED & (OURS | 0xff) == 0);
    assert!(is_ours(OURS) && is_ours(OURS | 1) && is_ours(OURS | COUNTED));
};

export! {
    pthread_spin_init(&Spin, c_int) -> init;
    pthread_spin_destroy(&Spin) -> destroy;
}

extern "C" fn init(lock: &Spin, shared: c_int, address: usize, stack: usize) -> c_int {
    let counted = mode::get().counted();
    if shared != libc::PTHREAD_PROCESS_PRIVATE || !mode::spinlocks_are_ours() {
        // SAFETY: the caller's memory.
        let result = unsafe { real::pthread_spin_init(lock, shared) };
        if result != 0 {
            return result;
        }
    } else if counted {
        as_counted(lock).init();
    } else {
        lock.init();
    }
    if counted {
        let site = CallSite { pc: address, sp: stack };
        stat::created_at(ptr::from_ref(lock).addr(), LockKind::Spinlock, site);
    }
    0
}

extern "C" fn destroy(lock: &Spin, pc: usize, sp: usize) -> c_int {
    if mode::get().counted() {
        let site = CallSite { pc, sp };
        if check::is_on() {
            dig_up(lock, site);
        }
        stat::destroyed_at(ptr::from_ref(lock).addr(), LockKind::Spinlock, site);
    }
    if is_ours(lock.word()) {
        if check::is_on() {
            // SAFETY: the caller's spinlock, which is a word of this type.
            unsafe { (*ptr::from_ref(lock).cast::<AtomicU32>()).store(BURIED, Relaxed) };
        }
        return 0;
    }
    // SAFETY: the caller's spinlock.
    unsafe { real::pthread_spin_destroy(lock) }
}

poundlock_linux::cache_lines! { ".text.poundlock_spin_lock" ".text.poundlock_spin_unlock" }

#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poundlock_spin_lock")]
pub(crate) extern "C" fn pthread_spin_lock(lock: &Spin) -> c_int {
    // No look at the mode: a word with our mark was initialised after it was known, and so was the form.
    if !mode::spinlocks_halt() {
        return lock_whole(lock);
    }
    if lock.take_paravirtual() { 0 } else { lock_slowly(lock) }
}

/// Of another form than the paravirtual one, or one of glibc's.
#[inline(never)]
extern "C" fn lock_whole(lock: &Spin) -> c_int {
    if lock.take() { 0 } else { lock_slowly(lock) }
}

with_call_site! {
    lock_slowly(&Spin) -> lock_other;
    try_lock_slowly(&Spin) -> try_lock_other;
    unlock_slowly(&Spin) -> unlock_other;
}

/// Any spinlock, after the fast path. Of one that is counted, without a stack frame.
extern "C" fn lock_other(lock: &Spin, address: usize, stack: usize) -> c_int {
    let counted = at_once(lock);
    let place = counted.and_then(|counted| stat::RECORDER.place(counted));
    if !take_counted(lock) {
        return lock_whatever(lock, address, stack);
    }
    match counted {
        Some(counted) if stat::RECORDER.acquired_at(place, counted, address) => 0,
        Some(LockRef { word, .. }) if check::is_on() => lock_under_check(lock, address, stack, word),
        _ => count_acquired(lock, address, stack),
    }
}

/// One of ours has been taken, of which this is the word.
#[inline(never)]
extern "C" fn lock_under_check(lock: &Spin, pc: usize, sp: usize, word: &AtomicU32) -> c_int {
    stat::RECORDER.acquired_checked(with_word(lock, word), CallSite { pc, sp }, Manner::LOCK);
    black_box(0)
}

/// One of ours is held, of which this is the word.
#[inline(never)]
extern "C" fn unlock_under_check(lock: &Spin, pc: usize, sp: usize, word: &AtomicU32) -> c_int {
    stat::RECORDER.released_checked(with_word(lock, word), CallSite { pc, sp });
    if as_counted(lock).release() { 0 } else { unlock_again(lock) }
}

fn with_word<'a>(lock: &Spin, word: &'a AtomicU32) -> LockRef<'a> {
    LockRef { word, address: ptr::from_ref(lock).addr(), kind: LockKind::Spinlock, writers: None }
}

#[inline(never)]
extern "C" fn count_acquired(lock: &Spin, pc: usize, sp: usize) -> c_int {
    stat::RECORDER.acquired(for_statistics(lock), CallSite { pc, sp }, Manner::LOCK);
    black_box(0)
}

#[inline(never)]
extern "C" fn lock_whatever(lock: &Spin, address: usize, stack: usize) -> c_int {
    let word = lock.word();
    if is_ours(word) && word & COUNTED == 0 {
        lock.lock_slow::<Chosen>();
        return 0;
    }
    lock_counted(lock, CallSite { pc: address, sp: stack })
}

#[inline(always)]
fn is_counted(lock: &Spin) -> bool {
    let word = lock.word();
    is_ours(word) && word & COUNTED != 0
}

/// The fast path of a counted one, which no other lock's word lets pass. No look at the whole word before: it
/// would wait for the last release, of which the store is narrower.
#[inline(always)]
fn take_counted(lock: &Spin) -> bool {
    let lock = as_counted(lock);
    if mode::spinlocks_halt() { lock.take_paravirtual() } else { lock.take() }
}

/// As [`for_statistics`], if that takes no call.
#[inline(always)]
fn at_once(lock: &Spin) -> Option<LockRef<'static>> {
    stat::at_once(ptr::from_ref(lock).addr(), LockKind::Spinlock)
}

/// Under check: one that was destroyed is used. That is said, and it is one again.
#[cold]
#[inline(never)]
fn dig_up(lock: &Spin, site: CallSite) {
    if lock.word() == BURIED {
        let counted = for_statistics(lock);
        stat::RECORDER.refused(counted, site, Some(Wrong::Destroyed), false);
        if !stat::is_others(counted.word) {
            counted.word.store(0, Relaxed);
        }
        as_counted(lock).init();
    }
}

/// One of glibc's, or one that is counted.
#[cold]
#[inline(never)]
fn lock_counted(lock: &Spin, site: CallSite) -> c_int {
    if !mode::get().counted() {
        return acquire(lock);
    }
    if check::is_on() {
        dig_up(lock, site);
    }
    let counted = for_statistics(lock);
    let result = try_acquire(lock);
    if result == 0 {
        stat::RECORDER.acquired(counted, site, Manner::LOCK);
    }
    if result != EBUSY {
        return result;
    }
    let wait = stat::RECORDER.wait_begin(counted, site, Manner::LOCK);
    let result = acquire(lock);
    match result {
        0 => stat::RECORDER.acquired_after_wait(counted, wait, site, Manner::LOCK),
        // Refused at once: no wait at all.
        _ => drop(wait),
    }
    result
}

fn for_statistics(lock: &Spin) -> LockRef<'static> {
    stat::at(ptr::from_ref(lock).addr(), LockKind::Spinlock)
}

/// Whether nobody has it, whosever it is.
fn is_free(lock: &Spin) -> bool {
    const FREE: u32 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };
    let word = lock.word();
    if is_ours(word) { !as_counted(lock).is_locked() } else { word == FREE }
}

/// Waits for one of glibc's, or one that is counted.
fn acquire(lock: &Spin) -> c_int {
    let object = as_counted(lock);
    if is_ours(object.word()) {
        object.lock::<Chosen>();
        return 0;
    }
    // SAFETY: the caller's spinlock.
    unsafe { real::pthread_spin_lock(lock) }
}

/// As [`acquire`], but only if it is free.
fn try_acquire(lock: &Spin) -> c_int {
    let object = as_counted(lock);
    if is_ours(object.word()) {
        return if object.try_lock::<Chosen>() { 0 } else { EBUSY };
    }
    // SAFETY: the caller's spinlock.
    unsafe { real::pthread_spin_trylock(lock) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pthread_spin_trylock(lock: &Spin) -> c_int {
    let taken = if mode::spinlocks_halt() { lock.take_paravirtual() } else { lock.take() };
    if taken { 0 } else { try_lock_slowly(lock) }
}

extern "C" fn try_lock_other(lock: &Spin, pc: usize, sp: usize) -> c_int {
    let word = lock.word();
    if is_ours(word) && word & COUNTED == 0 {
        return if lock.try_lock::<Chosen>() { 0 } else { EBUSY };
    }
    if check::is_on() {
        dig_up(lock, CallSite { pc, sp });
    }
    let result = try_acquire(lock);
    if result == 0 && mode::get().counted() {
        stat::RECORDER.acquired(for_statistics(lock), CallSite { pc, sp }, Manner::TRY);
    }
    result
}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.poundlock_spin_unlock")]
pub(crate) extern "C" fn pthread_spin_unlock(lock: &Spin) -> c_int {
    if lock.release() { 0 } else { unlock_slowly(lock) }
}

/// Any spinlock, after the fast path. Of one that is counted, without a stack frame.
extern "C" fn unlock_other(lock: &Spin, pc: usize, sp: usize) -> c_int {
    match at_once(lock) {
        // Before the release: afterwards the lock may be gone.
        Some(counted) if is_counted(lock) && stat::RECORDER.released_at_once(counted) => {
            if as_counted(lock).release() { 0 } else { unlock_again(lock) }
        }
        Some(LockRef { word, .. }) if check::is_on() && is_counted(lock) && as_counted(lock).is_locked() => {
            unlock_under_check(lock, pc, sp, word)
        }
        _ => unlock_whatever(lock, pc, sp),
    }
}

#[inline(never)]
extern "C" fn unlock_again(lock: &Spin) -> c_int {
    as_counted(lock).unlock::<Chosen>();
    black_box(0)
}

#[inline(never)]
extern "C" fn unlock_whatever(lock: &Spin, pc: usize, sp: usize) -> c_int {
    if check::is_on() {
        dig_up(lock, CallSite { pc, sp });
    }
    let word = lock.word();
    if is_ours(word) && word & COUNTED == 0 {
        lock.unlock::<Chosen>();
        return 0;
    }
    if mode::get().counted() {
        let (counted, site) = (for_statistics(lock), CallSite { pc, sp });
        if check::is_on() && is_free(lock) {
            stat::RECORDER.released_free(counted, site);
            return 0;
        }
        stat::RECORDER.released(counted, site);
    }
    if is_ours(word) {
        return unlock_again(lock);
    }
    // SAFETY: the caller's spinlock.
    unsafe { real::pthread_spin_unlock(lock) }
}
