//! The threads that have used a slow path, each with a compact index and a record that is never unmapped.
//!
//! A thread registers when it first needs a record or an identity, and says nothing when it ends: locks must
//! work in the last destructor of a dying thread. Records of dead threads are found when the registry would
//! otherwise grow, by asking the kernel for their thread ids, and recycled. So indices stay below twice the
//! number of threads that were alive at one time (and 64), and a registration costs an amortised handful of
//! system calls.
//!
//! An **identity** is `generation << 22 | index + 1`. The index is unique among living threads; the
//! generation, counted up when a record is recycled, tells a thread from the dead ones before it, so that a
//! recursive mutex that a thread left locked does not pass for the next thread's.
//!
//! Everything here is lock-free, because a signal handler may register the thread that it interrupted in the
//! middle of registering: then one of the two records is lost until the thread ends.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use poundlock_core::node::Record;

use crate::futex::keeping_errno;
use crate::platform::Linux;
use crate::{cpu, epoch, memory, tls};

const INDEX_BITS: u32 = 22;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
const PER_CHUNK: u32 = 512;
/// Linux allows 2^22 threads; one index is lost to zero.
const INDICES: u32 = INDEX_MASK;
const CHUNKS: usize = (INDICES / PER_CHUNK) as usize + 1;
/// Below this the registry grows without looking for the dead.
const FEW: u32 = 64;

struct Entry {
    record: Record<Linux>,
    /// The kernel's id of the thread; 0 if the entry is free.
    thread: AtomicU32,
    /// The thread's `pthread_t`.
    handle: AtomicUsize,
    generation: AtomicU32,
    /// The epoch in which `thread` is a thread of this process.
    epoch: AtomicU32,
    /// The next free entry's index plus one.
    next_free: AtomicU32,
    /// What the thread uses that somebody else may want to give back: see [`crate::sem`]. Written by the thread only.
    marks: [AtomicUsize; MARKS],
}

/// How deep in nested signal handlers a thread can still say what it uses.
pub(crate) const MARKS: usize = 4;

/// Arrays of entries, mapped when first needed and then kept. Zero bytes are free entries.
static TABLE: [AtomicPtr<Entry>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
/// Indices given out at least once.
static HIGH: AtomicU32 = AtomicU32::new(0);
/// When `HIGH` reaches this, look for the dead first.
static LOOK_AT: AtomicU32 = AtomicU32::new(FEW);
/// Free entries: a count against reuse in the upper half, the first one's index plus one in the lower.
static FREE: AtomicU64 = AtomicU64::new(0);

/// The calling thread's identity, unique among living threads; 0 if indices have run out. Registers the
/// thread on first use. Async-signal-safe.
#[inline(always)]
pub fn identity() -> u32 {
    match tls::identity() {
        0 => register(),
        identity => identity,
    }
}

/// [`identity`] of a thread that has one already; else 0, without a call.
#[inline(always)]
pub fn known_identity() -> u32 {
    tls::identity()
}

/// The calling thread's index. Slow paths only.
pub(crate) fn index() -> Option<u32> {
    let index = (identity() & INDEX_MASK).checked_sub(1)?;
    let entry = entry(index);
    let epoch = epoch::current();
    if entry.epoch.load(Relaxed) != epoch {
        adopt(entry, epoch);
    }
    Some(index)
}

/// The record with an index that was given out.
#[inline]
pub(crate) fn record(index: u32) -> &'static Record<Linux> {
    &entry(index).record
}

/// The calling thread's marks; `None` if indices have run out.
#[inline(always)]
pub(crate) fn marks() -> Option<&'static [AtomicUsize; MARKS]> {
    let index = (identity() & INDEX_MASK).checked_sub(1)?;
    Some(&entry(index).marks)
}

/// Whether some thread's mark holds this.
pub(crate) fn is_marked(value: usize) -> bool {
    (0..HIGH.load(Acquire).min(INDICES))
        .filter_map(try_entry)
        .any(|entry| entry.marks.iter().any(|mark| mark.load(Acquire) == value))
}

/// Clears the marks of all threads but the calling one. In a forked child, where those do not exist.
pub(crate) fn clear_other_marks() {
    let own = (tls::identity() & INDEX_MASK).checked_sub(1);
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index).filter(|_| Some(index) != own) else { continue };
        for mark in &entry.marks {
            mark.store(0, Relaxed);
        }
    }
}

/// Tells the registry that the process is a forked child, whose only thread is the caller: everybody else's
/// record is free. Not needed for safety: without it, the parent's records are never recycled in the child.
pub fn forked() {
    epoch::forked();
    let epoch = epoch::current();
    let own = (tls::identity() & INDEX_MASK).checked_sub(1);
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index) else { continue };
        if Some(index) == own {
            adopt(entry, epoch);
        } else if entry.thread.swap(0, Relaxed) != 0 {
            push(index);
        }
    }
}

/// Makes every registered thread with this `pthread_t` look, wherever it waits on a condition variable, whether
/// it is to be cancelled. Call it after the request was made.
pub fn cancel(handle: usize) {
    // SeqCst fence, partner of the one in `register`: either the thread is found here, or its own test for
    // cancellation, which it makes after it has registered, sees the request.
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index) else { continue };
        if entry.thread.load(Relaxed) != 0 && entry.handle.load(Relaxed) == handle {
            entry.record.cancel();
        }
    }
}

#[inline]
fn entry(index: u32) -> &'static Entry {
    let chunk = TABLE[(index / PER_CHUNK) as usize].load(Acquire);
    // SAFETY: an index is given out only after its chunk was mapped, and chunks are never unmapped.
    unsafe { &*chunk.add((index % PER_CHUNK) as usize) }
}

/// The entry, if its chunk is mapped already.
fn try_entry(index: u32) -> Option<&'static Entry> {
    if TABLE[(index / PER_CHUNK) as usize].load(Acquire).is_null() { None } else { Some(entry(index)) }
}

/// The thread of the entry is the calling one, in this process.
fn adopt(entry: &Entry, epoch: u32) {
    entry.thread.store(thread_id(), Relaxed);
    entry.epoch.store(epoch, Relaxed);
}

#[cold]
#[inline(never)]
fn register() -> u32 {
    let epoch = epoch::current();
    let Some(index) = allocate() else { return 0 };
    let entry = entry(index);
    entry.record.renew();
    // The entry's last thread may have ended in the middle of something.
    for mark in &entry.marks {
        mark.store(0, Relaxed);
    }
    let generation = entry.generation.fetch_add(1, Relaxed);
    // SAFETY: takes no arguments.
    entry.handle.store(unsafe { libc::pthread_self() } as usize, Relaxed);
    entry.epoch.store(epoch, Relaxed);
    entry.thread.store(thread_id(), Release);
    // The identity's top bits are the generation's low ones.
    let identity = generation << INDEX_BITS | (index + 1);
    tls::set_identity(identity);
    // Partner of the fence in `cancel`.
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    identity
}

fn allocate() -> Option<u32> {
    if let Some(index) = pop() {
        return Some(index);
    }
    let high = HIGH.load(Relaxed);
    if high == 0 {
        cpu::init();
    }
    if high >= LOOK_AT.load(Relaxed) {
        let living = bury();
        LOOK_AT.store(living.saturating_mul(2).max(FEW), Relaxed);
        if let Some(index) = pop() {
            return Some(index);
        }
    }
    // Not a bare addition, so that failures do not count up for ever.
    let mut index = HIGH.load(Relaxed);
    loop {
        if index >= INDICES || !map(index / PER_CHUNK) {
            return None;
        }
        match HIGH.compare_exchange(index, index + 1, AcqRel, Relaxed) {
            Ok(_) => return Some(index),
            Err(now) => index = now,
        }
    }
}

/// Frees the entries of threads that have ended. Returns how many live.
fn bury() -> u32 {
    let epoch = epoch::current();
    // SAFETY: takes no arguments.
    let process = unsafe { libc::getpid() };
    let mut living = 0;
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index) else { continue };
        let thread = entry.thread.load(Acquire);
        if thread == 0 {
            continue;
        }
        // In another epoch the id is a thread of another process; its thread will say which it is now.
        if entry.epoch.load(Relaxed) == epoch && !alive(process, thread) {
            if entry.thread.compare_exchange(thread, 0, AcqRel, Relaxed).is_ok() {
                push(index);
            }
        } else {
            living += 1;
        }
    }
    living
}

fn alive(process: libc::pid_t, thread: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody; the call only checks.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) }) != Err(libc::ESRCH)
}

fn thread_id() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Maps a chunk if it is not yet.
fn map(chunk: u32) -> bool {
    let slot = &TABLE[chunk as usize];
    if !slot.load(Acquire).is_null() {
        return true;
    }
    let size = size_of::<[MaybeUninit<Entry>; PER_CHUNK as usize]>();
    let Some(fresh) = memory::map(size, false) else { return false };
    if slot.compare_exchange(ptr::null_mut(), fresh, Release, Relaxed).is_err() {
        // SAFETY: our own mapping, which nobody else has seen.
        unsafe { memory::unmap(fresh, size) };
    }
    true
}

fn push(index: u32) {
    let mut seen = FREE.load(Relaxed);
    loop {
        entry(index).next_free.store(seen as u32, Relaxed);
        let next = (seen >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
        match FREE.compare_exchange(seen, next, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

fn pop() -> Option<u32> {
    let mut seen = FREE.load(Acquire);
    loop {
        let index = (seen as u32).checked_sub(1)?;
        let after = entry(index).next_free.load(Relaxed);
        // The count in the upper half makes this fail if the entry was taken and freed in between.
        let next = (seen >> 32).wrapping_add(1) << 32 | u64::from(after);
        match FREE.compare_exchange(seen, next, Acquire, Acquire) {
            Ok(_) => return Some(index),
            Err(now) => seen = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HIGH, INDEX_MASK, identity};
    use std::collections::HashSet;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, Barrier};

    #[test]
    fn living_threads_differ_and_the_dead_are_recycled() {
        const TOGETHER: usize = 8;
        for _ in 0..500 {
            let barrier = Arc::new(Barrier::new(TOGETHER));
            let threads: Vec<_> = (0..TOGETHER)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    std::thread::spawn(move || {
                        let own = identity();
                        barrier.wait();
                        assert_eq!(own, identity());
                        own & INDEX_MASK
                    })
                })
                .collect();
            let indices: HashSet<u32> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert_eq!(indices.len(), TOGETHER);
            assert!(!indices.contains(&0));
        }
        // 4,000 threads have lived, a dozen at a time; a thread that has been joined may take the kernel a
        // moment to forget.
        assert!(HIGH.load(Relaxed) <= 256, "{} indices in use", HIGH.load(Relaxed));
    }
}
