//! The calling thread's few words, one load away.
//!
//! A shared library's thread-locals are reached through a function call in the general model; a lock cannot
//! afford that. These live in a block of their own in the initial-exec model, whose offset from the thread
//! pointer the dynamic linker fixes at start-up. The compiler offers no stable way to choose the model, so
//! the block and its access are a few lines of assembly.
//!
//! Zero bytes are the state of a thread that has not used a lock. A forked child's only thread keeps its
//! block.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// The block. Only its own thread accesses it. But signal handlers on that thread may do so at any point, so
/// its words are atomic. They cost what plain ones do.
#[repr(C)]
struct Block {
    /// The thread's identity, 0 before it is first asked for: see [`crate::registry`].
    identity: AtomicU32,
    /// The index of the thread's entry in the registry plus one, 0 while it has none.
    place: AtomicU32,
    /// A word for the user of this crate: see [`stat`].
    stat: AtomicPtr<u8>,
    /// See [`kept`].
    kept: AtomicUsize,
    kept_place: AtomicU32,
}

global_asm!(
    ".pushsection .tbss.poundlock_thread,\"awT\",@nobits",
    ".globl poundlock_thread",
    ".hidden poundlock_thread",
    ".type poundlock_thread, @object",
    ".size poundlock_thread, 32",
    ".balign 16",
    "poundlock_thread:",
    ".zero 32",
    ".popsection",
);

/// Words of the process that fast paths read, written once or twice. A shared library reaches a static of
/// another crate through the global offset table; these are one instruction away, as the block is.
#[repr(C)]
pub(crate) struct Words {
    /// Offset of the restartable-sequences area from the thread pointer; 0 if there is none, or none known.
    pub(crate) rseq: AtomicIsize,
    /// The same, but only once [`crate::rseq::release`] may store.
    pub(crate) release: AtomicIsize,
    /// Whether there has been a second thread.
    pub(crate) multi: AtomicBool,
}

global_asm!(
    ".pushsection .bss.poundlock_words,\"aw\",@nobits",
    ".globl poundlock_words",
    ".hidden poundlock_words",
    ".type poundlock_words, @object",
    ".size poundlock_words, 24",
    ".balign 64",
    "poundlock_words:",
    ".zero 64",
    ".popsection",
);

const _: () = assert!(size_of::<Words>() == 24);

#[inline(always)]
pub(crate) fn words() -> &'static Words {
    let words: *const Words;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes an address.
    unsafe {
        asm!(
            "lea {words}, [rip + poundlock_words]",
            words = out(reg) words,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: computes an address.
    unsafe {
        asm!(
            "adrp {words}, poundlock_words",
            "add {words}, {words}, :lo12:poundlock_words",
            words = out(reg) words,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    // SAFETY: the object above: zero bytes, aligned, never unmapped before the code that gets here.
    unsafe { &*words }
}

const _: () = assert!(size_of::<Block>() == 32);

/// The calling thread's block. Not to be kept: the thread may end.
#[inline(always)]
fn block<'a>() -> &'a Block {
    let block: *const Block;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the offset from the GOT and the thread pointer; touches neither stack nor flags' users.
    unsafe {
        asm!(
            "mov {block}, qword ptr fs:[0]",
            "add {block}, qword ptr [rip + poundlock_thread@GOTTPOFF]",
            block = out(reg) block,
            options(pure, readonly, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the offset from the GOT and the thread pointer; touches neither stack nor flags.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:poundlock_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:poundlock_thread]",
            "mrs {block}, tpidr_el0",
            "add {block}, {block}, {offset}",
            offset = out(reg) _,
            block = out(reg) block,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!("poundlock-linux knows the thread-local storage of x86-64 and aarch64");
    // SAFETY: mapped as long as its thread runs, aligned, and zero at first.
    unsafe { &*block }
}

/// The calling thread's identity; 0 if it has none yet.
#[inline(always)]
pub(crate) fn identity() -> u32 {
    block().identity.load(Relaxed)
}

/// Sets the identity unless there is one; returns what it is.
pub(crate) fn set_identity(identity: u32) -> u32 {
    block().identity.compare_exchange(0, identity, Relaxed, Relaxed).err().unwrap_or(identity)
}

/// The calling thread's place in the registry; 0 if it has none.
#[inline(always)]
pub(crate) fn place() -> u32 {
    block().place.load(Relaxed)
}

/// Sets the place unless there is one.
///
/// # Errors
/// What it is already.
pub(crate) fn set_place(place: u32) -> Result<(), u32> {
    block().place.compare_exchange(0, place, Relaxed, Relaxed).map(drop)
}

/// A pointer that the user of this crate may keep per thread; null in a new thread. Async-signal-safe.
#[inline(always)]
pub fn stat() -> *mut u8 {
    block().stat.load(Relaxed)
}

/// Sets what [`stat`] returns. Async-signal-safe.
#[inline(always)]
pub fn set_stat(pointer: *mut u8) {
    block().stat.store(pointer, Relaxed);
}

/// See [`Platform::kept`](poundlock_core::Platform::kept).
#[inline(always)]
pub(crate) fn kept() -> (usize, u32) {
    let block = block();
    (block.kept.load(Relaxed), block.kept_place.load(Relaxed))
}

/// See [`Platform::keep`](poundlock_core::Platform::keep).
pub(crate) fn keep(mutex: usize, place: u32) {
    let block = block();
    block.kept.store(mutex, Relaxed);
    block.kept_place.store(place, Relaxed);
}

/// Whether the process has a single thread. Once it had more, the answer stays false: glibc's word is two
/// dependent loads away, which a multi-threaded program would pay for between its atomics.
#[inline(always)]
pub(crate) fn single_threaded() -> bool {
    let multi = &words().multi;
    // Relaxed: a thread that reads an old value goes on to ask glibc.
    if multi.load(Relaxed) {
        return false;
    }
    let single = libc_single_threaded();
    if !single {
        multi.store(true, Relaxed);
    }
    single
}

/// glibc's word (`__libc_single_threaded`, glibc 2.32); false where there is none.
#[inline(always)]
fn libc_single_threaded() -> bool {
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    {
        let address: *const u8;
        // SAFETY: reads an address from the GOT; 0 if the symbol is nowhere defined, since it is weak.
        unsafe {
            asm!(
                ".weak __libc_single_threaded",
                "mov {address}, qword ptr [rip + __libc_single_threaded@GOTPCREL]",
                address = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        // SAFETY: glibc's one-byte variable, written only while no other thread exists.
        !address.is_null() && unsafe { address.read_volatile() } != 0
    }
    #[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
    false
}

/// glibc's restartable-sequences area (glibc 2.35): the CPU that the calling thread runs on, one load away.
/// `None` if there is none.
#[inline(always)]
pub(crate) fn rseq_cpu(offset: isize) -> i32 {
    #[cfg(target_arch = "x86_64")]
    {
        let cpu: i32;
        // SAFETY: `offset` is `__rseq_offset`, so the word is the `cpu_id` of this thread's area, which the
        // kernel keeps current.
        unsafe {
            asm!(
                "mov {cpu:e}, dword ptr fs:[{offset} + 4]",
                offset = in(reg) offset,
                cpu = out(reg) cpu,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu
    }
    #[cfg(target_arch = "aarch64")]
    {
        let cpu: i32;
        // SAFETY: as above.
        unsafe {
            asm!(
                "mrs {tp}, tpidr_el0",
                "add {tp}, {tp}, {offset}",
                "ldr {cpu:w}, [{tp}, #4]",
                tp = out(reg) _,
                offset = in(reg) offset,
                cpu = out(reg) cpu,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu
    }
}
