//! The threads that have used a slow path, each with a compact index and a record that is never unmapped.
//!
//! A thread registers when it first needs a record or an identity. It does not sign off when it ends: locks
//! must work in the last destructor of a dying thread. Records of dead threads are found when the registry
//! would otherwise grow, by asking the kernel for their thread ids, and recycled. So indices stay below twice
//! the number of threads that were alive at one time (and 64), and a registration costs an amortised handful
//! of system calls.
//!
//! An **identity** is `generation << 22 | index + 1`, without its highest bit. The index is unique among
//! living threads; the generation, counted up when a record is recycled, tells a thread from the dead ones
//! before it, so that a recursive mutex which a dead thread left locked is not taken for the next thread's.
//!
//! # Without memory
//!
//! The first records are part of the program. A thread without one, because indices have run out or nothing
//! can be mapped, still has an identity: the kernel's id of the thread, with the highest bit set and some
//! bits of the epoch, since a forked child's thread keeps its identity but not its id. It waits without a
//! record, by trying now and then, and each time asks for one again.
//!
//! # Signals
//!
//! All of this is lock-free, because a signal handler may register the thread that it interrupted in the
//! middle of registering. The first of the two registers the thread, and the other gives its record back.

use core::mem::{MaybeUninit, offset_of};
use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use poundlock_core::node::Record;
use poundlock_core::record::Places;

use crate::futex::{self, keeping_errno};
use crate::platform::Linux;
use crate::{cpu, epoch, memory, tls};

const INDEX_BITS: u32 = 22;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;
/// In an identity: it is the kernel's id of a thread that has no record.
const KERNELS: u32 = 1 << 31;
const PER_CHUNK: u32 = 512;
/// Linux allows 2^22 threads; one index is lost to zero.
const INDICES: u32 = INDEX_MASK;
const CHUNKS: usize = (INDICES / PER_CHUNK) as usize + 1;
/// Below this the registry grows without looking for the dead.
const FEW: u32 = 64;

struct Entry {
    record: Record<Linux>,
    /// The kernel's id of the thread, 0 if the entry is free; and in the upper half how many threads have had
    /// the entry, since the kernel gives ids again.
    holder: AtomicU64,
    /// The thread's `pthread_t`.
    handle: AtomicUsize,
    /// The epoch in which `holder` is a thread of this process.
    epoch: AtomicU32,
    /// The next free entry's index plus one.
    next_free: AtomicU32,
    /// What the thread uses that another thread may want to give back: see `poundlock-semarray`. Written by
    /// the thread only.
    marks: [AtomicUsize; MARKS],
}

/// How deep in nested signal handlers a thread can still note what it uses.
pub const MARKS: usize = 4;

/// Arrays of entries, made when first needed and then kept. Zero bytes are free entries.
static TABLE: [AtomicPtr<Entry>; CHUNKS] = [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS];
/// The first of them. The others are mapped.
static FIRST: MaybeUninit<[Entry; PER_CHUNK as usize]> = MaybeUninit::zeroed();
/// Indices given out at least once.
static HIGH: AtomicU32 = AtomicU32::new(0);
/// When `HIGH` reaches this, look for the dead first.
static LOOK_AT: AtomicU32 = AtomicU32::new(FEW);
/// Free entries: a count against reuse in the upper half, the first one's index plus one in the lower.
static FREE: AtomicU64 = AtomicU64::new(0);

/// Where an observer of the process's memory finds the registry: `poundlock who` reads it in another process,
/// or in its core file. Its first fields say whether the reader knows the others.
#[repr(C)]
#[derive(Debug)]
pub struct Layout {
    /// [`Layout::MAGIC`].
    pub magic: u64,
    /// Its size in bytes, which any change of it changes.
    pub size: u32,
    /// From one entry to the next, in bytes.
    pub entry_size: u32,
    /// Entries in an array of them.
    pub per_chunk: u32,
    /// In an entry, in bytes: the record.
    pub record: u32,
    /// In an entry, in bytes: the kernel's id of its thread.
    pub holder: u32,
    /// In a record.
    pub places: Places,
    /// How many bits of an identity are the entry's index plus one.
    pub index_bits: u32,
    /// In an identity: the other bits have the kernel's id of the thread.
    pub kernels: u32,
    /// The addresses of the arrays of entries.
    pub table: *const (),
    /// How many entries have ever been used.
    pub high: *const (),
}

impl Layout {
    /// What [`Layout::magic`] is.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"PNDLAYO1");
}

// SAFETY: its pointers are to words that are atomic, and nothing here follows them.
unsafe impl Sync for Layout {}

/// This process's [`Layout`].
pub static LAYOUT: Layout = Layout {
    magic: Layout::MAGIC,
    size: size_of::<Layout>() as u32,
    entry_size: size_of::<Entry>() as u32,
    per_chunk: PER_CHUNK,
    record: offset_of!(Entry, record) as u32,
    holder: offset_of!(Entry, holder) as u32,
    places: Record::<Linux>::PLACES,
    index_bits: INDEX_BITS,
    kernels: KERNELS,
    table: (&raw const TABLE).cast(),
    high: (&raw const HIGH).cast(),
};

/// The calling thread's identity, unique among living threads and never 0. Registers the
/// thread on first use. Async-signal-safe.
#[inline(always)]
pub fn identity() -> u32 {
    match tls::identity() {
        0 => identify(),
        identity => identity,
    }
}

/// [`identity`] of a thread that has one already; else 0, without a call.
#[inline(always)]
pub fn known_identity() -> u32 {
    tls::identity()
}

/// Gives the calling thread a record, if there is one, so that [`cancel`] finds it.
pub fn register() {
    let _ = place();
}

/// The calling thread's index; `None` if there is no record for it, now. Slow paths only.
pub(crate) fn index() -> Option<u32> {
    let index = place()?;
    let entry = entry(index);
    let epoch = epoch::current();
    if entry.epoch.load(Relaxed) != epoch {
        entry.adopt(epoch);
    }
    Some(index)
}

/// [`index`], which may be another process's still.
#[inline(always)]
fn place() -> Option<u32> {
    match tls::place() {
        0 => enlist(),
        place => Some(place - 1),
    }
}

#[inline]
pub(crate) fn record(index: u32) -> &'static Record<Linux> {
    &entry(index).record
}

/// The calling thread's marks; `None` if it has no record.
#[inline(always)]
pub fn marks() -> Option<&'static [AtomicUsize; MARKS]> {
    Some(&entry(place()?).marks)
}

/// Whether some thread's mark holds this.
pub fn is_marked(value: usize) -> bool {
    (0..HIGH.load(Acquire).min(INDICES))
        .filter_map(try_entry)
        .any(|entry| entry.marks.iter().any(|mark| mark.load(Acquire) == value))
}

/// Clears the marks of all threads but the calling one. For a forked child, in which those do not exist.
pub fn clear_other_marks() {
    let own = tls::place().checked_sub(1);
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index).filter(|_| Some(index) != own) else { continue };
        for mark in &entry.marks {
            mark.store(0, Relaxed);
        }
    }
}

/// The C library calls the functions in this section when the program starts, or the module is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = follow_forks;

/// In this file, whose code every lock needs, so that no linker leaves it out. The C library forgets the
/// handler when it unloads the module.
extern "C" fn follow_forks() {
    extern "C" fn in_child() {
        forked();
    }
    // SAFETY: a function of this module.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Tells the registry that the process is a forked child, whose only thread is the caller: all other records
/// are free. Not needed after `fork`. In a child that was made in another way the parent's records are never
/// recycled without it. Where the kernel does not wipe pages (Linux before 4.14, or a filter that refuses
/// `madvise`), that child's locks may wait for threads of the parent.
pub fn forked() {
    epoch::forked();
    let epoch = epoch::current();
    let own = tls::place().checked_sub(1);
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index) else { continue };
        if Some(index) == own {
            entry.adopt(epoch);
        // Of this epoch: registered by a signal handler just now.
        } else if entry.epoch.load(Relaxed) != epoch && entry.release(entry.holder.load(Relaxed)) {
            push(index);
        }
    }
}

/// Makes every registered thread with this `pthread_t` look, wherever it waits on a condition variable,
/// whether it is to be cancelled. Call it after the request was made.
pub fn cancel(handle: usize) {
    // SeqCst fence, partner of the one in `enlist`: either the thread is found here, or its own test for
    // cancellation, which it makes after it has registered, sees the request.
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index) else { continue };
        if entry.holder.load(Relaxed) as u32 != 0 && entry.handle.load(Relaxed) == handle {
            entry.record.cancel();
        }
    }
}

#[inline]
fn entry(index: u32) -> &'static Entry {
    let chunk = TABLE[(index / PER_CHUNK) as usize].load(Acquire);
    // SAFETY: an index is given out only after its chunk was there, and chunks stay.
    unsafe { &*chunk.add((index % PER_CHUNK) as usize) }
}

fn try_entry(index: u32) -> Option<&'static Entry> {
    if TABLE[(index / PER_CHUNK) as usize].load(Acquire).is_null() { None } else { Some(entry(index)) }
}

impl Entry {
    /// The entry, which is the caller's alone, becomes the calling thread's.
    fn take(&self, epoch: u32) {
        self.record.renew();
        // The entry's last thread may have ended in the middle of something.
        for mark in &self.marks {
            mark.store(0, Relaxed);
        }
        // SAFETY: takes no arguments.
        self.handle.store(unsafe { libc::pthread_self() } as usize, Relaxed);
        self.epoch.store(epoch, Relaxed);
        let holders = (self.holder.load(Relaxed) >> 32).wrapping_add(1);
        self.holder.store(holders << 32 | u64::from(thread_id()), Release);
    }

    /// The entry is the calling thread's already, in this process too.
    fn adopt(&self, epoch: u32) {
        let holders = self.holder.load(Relaxed) >> 32;
        self.holder.store(holders << 32 | u64::from(thread_id()), Relaxed);
        // Release: a thread that sees the epoch sees the holder, or fails to release the entry.
        self.epoch.store(epoch, Release);
    }

    /// Takes the entry from the thread that was seen to hold it, unless it is free by now, or another
    /// thread's, which may have the same id. The caller has it then.
    fn release(&self, seen: u64) -> bool {
        let free = seen >> 32 << 32;
        seen != free && self.holder.compare_exchange(seen, free, AcqRel, Relaxed).is_ok()
    }
}

/// Gives the calling thread, which has none, an entry; returns its index.
#[cold]
#[inline(never)]
fn enlist() -> Option<u32> {
    let index = allocate()?;
    let entry = entry(index);
    entry.take(epoch::current());
    let own = match tls::set_place(index + 1) {
        Ok(()) => index,
        Err(first) => {
            // By a signal handler that ran meanwhile.
            if entry.release(entry.holder.load(Relaxed)) {
                push(index);
            }
            first - 1
        }
    };
    // Partner of the fence in `cancel`.
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    Some(own)
}

/// Gives the calling thread, which has none, an identity.
#[cold]
#[inline(never)]
fn identify() -> u32 {
    let identity = match place() {
        Some(index) => {
            // The same for as long as the thread has the entry, and so the same for every asker.
            let holders = (entry(index).holder.load(Relaxed) >> 32) as u32;
            (holders << INDEX_BITS) & !KERNELS | (index + 1)
        }
        None => KERNELS | (epoch::current() << INDEX_BITS) | thread_id() & INDEX_MASK,
    };
    tls::set_identity(identity)
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
        let living = reap(alive);
        LOOK_AT.store(living.saturating_mul(2).max(FEW), Relaxed);
        if let Some(index) = pop() {
            return Some(index);
        }
    }
    // Not a bare addition, so that failures do not count up for ever.
    let mut index = HIGH.load(Relaxed);
    loop {
        if index >= INDICES || !provide(index / PER_CHUNK) {
            return last_resort();
        }
        match HIGH.compare_exchange(index, index + 1, AcqRel, Relaxed) {
            Ok(_) => return Some(index),
            Err(now) => index = now,
        }
    }
}

/// The registry cannot grow: finds the entry of a thread that has ended, if there is one. Each wait of a
/// thread without a record calls this, so looks are limited.
#[cold]
fn last_resort() -> Option<u32> {
    const NANOSECONDS: u64 = 10_000_000;
    static LOOKED: AtomicU64 = AtomicU64::new(0);
    let now = futex::nanoseconds();
    let last = LOOKED.load(Relaxed);
    let due = now.saturating_sub(last) >= NANOSECONDS;
    if due && LOOKED.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
        reap(alive);
    }
    pop()
}

/// Frees the entries of threads that have ended, which `alive` says of a thread of a process. Returns how
/// many live.
fn reap(alive: impl Fn(libc::pid_t, u32) -> bool) -> u32 {
    let epoch = epoch::current();
    // SAFETY: takes no arguments.
    let process = unsafe { libc::getpid() };
    let mut living = 0;
    for index in 0..HIGH.load(Relaxed).min(INDICES) {
        let Some(entry) = try_entry(index) else { continue };
        let holder = entry.holder.load(Acquire);
        let thread = holder as u32;
        if thread == 0 {
            continue;
        }
        // In another epoch the id is a thread of another process; its thread will say which it is now.
        if entry.epoch.load(Acquire) == epoch && !alive(process, thread) {
            if entry.release(holder) {
                push(index);
            }
        } else {
            living += 1;
        }
    }
    living
}

fn alive(process: libc::pid_t, thread: u32) -> bool {
    // SAFETY: signal 0 only checks; nothing is sent.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) }) != Err(libc::ESRCH)
}

fn thread_id() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

fn provide(chunk: u32) -> bool {
    let slot = &TABLE[chunk as usize];
    if !slot.load(Acquire).is_null() {
        return true;
    }
    let first = chunk == 0;
    let size = size_of_val(&FIRST);
    let fresh =
        if first { Some(FIRST.as_ptr().cast::<Entry>().cast_mut()) } else { memory::map(size, false) };
    let Some(fresh) = fresh else { return false };
    if slot.compare_exchange(ptr::null_mut(), fresh, Release, Relaxed).is_err() && !first {
        // SAFETY: our own mapping, which no other thread has seen.
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
    use super::{HIGH, INDEX_MASK, allocate, entry, identity, push, reap, thread_id};
    use std::collections::HashSet;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::{Arc, Barrier, mpsc};

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

    /// The kernel gives a thread's id to another one, which may have got the entry while a thread was looking
    /// whether the first is alive.
    #[test]
    fn a_late_look_does_not_free_the_entry_of_another_thread_with_the_same_id() {
        let (tell, told) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            let _ = ends.recv();
        });
        // Of a thread that lives and has no entry, so that no other look finds this one dead.
        let id = told.recv().unwrap();
        let index = allocate().unwrap();
        let entry = entry(index);
        let [first, second] = [7, 8].map(|holders: u64| holders << 32 | u64::from(id));
        entry.epoch.store(crate::epoch::current(), Relaxed);
        entry.holder.store(first, Relaxed);
        reap(|_, asked| {
            if asked == id {
                assert_eq!(entry.holder.swap(second, Relaxed), first);
            }
            asked != id
        });
        assert_eq!(entry.holder.load(Relaxed), second);
        drop(end);
        thread.join().unwrap();
        // Unless another thread has looked since then.
        if entry.release(second) {
            push(index);
        }
    }
}
