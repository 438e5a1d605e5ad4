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
use core::sync::atomic::{
    AtomicIsize, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, Release},
};

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
    /// What stands for a restartable-sequences area where there is none: the CPU before number 0.
    no_cpu: AtomicU32,
}

global_asm!(
    ".pushsection .tdata.poundlock_thread,\"awT\",@progbits",
    ".globl poundlock_thread",
    ".hidden poundlock_thread",
    ".type poundlock_thread, @object",
    ".size poundlock_thread, 32",
    ".balign 16",
    "poundlock_thread:",
    ".zero 28",
    ".long -1",
    ".popsection",
);

/// Has these sections begin with a cache line: for functions of one section each, which then lie in as few
/// lines as they can wherever the linker puts them. Else any change elsewhere moves them, at up to a
/// nanosecond a call.
#[macro_export]
macro_rules! cache_lines {
    ($($section:literal)*) => {
        ::core::arch::global_asm!($(concat!(
            ".pushsection ", $section, ", \"ax\", @progbits\n.p2align 6\n.popsection"
        )),*);
    };
}

/// Words of the process that fast paths read, written once or twice. A shared library reaches a static of
/// another crate through the global offset table; these are one instruction away, as the block is.
#[repr(C)]
pub(crate) struct Words {
    /// Offset of the restartable-sequences area from the thread pointer; 0 if there is none, or none known.
    pub(crate) rseq: AtomicIsize,
    /// The same, but only once [`crate::rseq::release`] may store.
    pub(crate) release: AtomicIsize,
    /// Offset of the word that [`area_tag`] reads, once [`AREA`] is in `process`.
    area: AtomicIsize,
    /// [`SEVERAL_THREADS`], [`AREA`], and what the user of this crate has chosen: see [`process`].
    pub(crate) process: AtomicU8,
}

global_asm!(
    ".pushsection .bss.poundlock_words,\"aw\",@nobits",
    ".globl poundlock_words",
    ".hidden poundlock_words",
    ".type poundlock_words, @object",
    ".size poundlock_words, 32",
    ".balign 64",
    "poundlock_words:",
    ".zero 64",
    ".popsection",
);

const _: () = assert!(size_of::<Words>() == 32);

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
    #[cfg(target_arch = "x86_64")]
    {
        const { assert!(core::mem::offset_of!(Block, identity) == 0) };
        let identity: u32;
        // Without the block's address, which is a load of its own. SAFETY: reads the block's first word.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + poundlock_thread@GOTTPOFF]",
                "mov {identity:e}, dword ptr fs:[{at}]",
                at = out(reg) _,
                identity = out(reg) identity,
                options(readonly, nostack, preserves_flags),
            );
        }
        identity
    }
    #[cfg(not(target_arch = "x86_64"))]
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
pub(crate) fn kept() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let kept: usize;
        // As in `identity`. SAFETY: reads a word of the block.
        unsafe {
            asm!(
                "mov {kept}, qword ptr [rip + poundlock_thread@GOTTPOFF]",
                "mov {kept}, qword ptr fs:[{kept} + {at}]",
                kept = out(reg) kept,
                at = const core::mem::offset_of!(Block, kept),
                options(readonly, nostack, preserves_flags),
            );
        }
        kept
    }
    #[cfg(not(target_arch = "x86_64"))]
    block().kept.load(Relaxed)
}

/// See [`Platform::kept_place`](poundlock_core::Platform::kept_place).
pub(crate) fn kept_place() -> u32 {
    block().kept_place.load(Relaxed)
}

/// See [`Platform::keep`](poundlock_core::Platform::keep).
pub(crate) fn keep(mutex: usize, place: u32) {
    let block = block();
    block.kept.store(mutex, Relaxed);
    block.kept_place.store(place, Relaxed);
}

/// In [`process`]: there has been a second thread. Set by the first lock call that finds out; stays set.
pub const SEVERAL_THREADS: u8 = 1;

/// In [`process`]: [`area_tag`] may be asked. Set by [`crate::cpu::init`]; stays set.
pub const AREA: u8 = 1 << 7;

/// What fast paths ask about the process, in one byte: [`SEVERAL_THREADS`], [`AREA`], and between them what
/// [`choose`] was told, 0 before. So one comparison tells all. Acquire: who sees the choice sees what was
/// stored before it.
#[inline(always)]
pub fn process() -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        let process: u32;
        // In one instruction. Not `nomem`: later accesses stay after it, as every load on x86-64 is an
        // acquire. SAFETY: reads a byte of the object.
        unsafe {
            asm!(
                "movzx {process:e}, byte ptr [rip + poundlock_words + {at}]",
                process = out(reg) process,
                at = const core::mem::offset_of!(Words, process),
                options(nostack, preserves_flags),
            );
        }
        process as u8
    }
    #[cfg(not(target_arch = "x86_64"))]
    words().process.load(core::sync::atomic::Ordering::Acquire)
}

/// Whether there has been a second thread, [`area_tag`] may be asked, and nothing was chosen: the first question
/// of fast paths that have no other.
#[inline(always)]
pub fn is_usual() -> bool {
    process() == SEVERAL_THREADS | AREA
}

/// Keeps a number below 64, other than 0, for the user of this crate: see [`process`]. Once for the process;
/// calling it again with the same number is harmless. Async-signal-safe.
pub fn choose(choice: u8) {
    words().process.fetch_or(choice << 1, Release);
}

/// Whether the process has a single thread. Once it had more, the answer stays false: glibc's word is two
/// dependent loads away, which a multi-threaded program would pay for between its atomics.
#[inline(always)]
pub(crate) fn single_threaded() -> bool {
    let process = &words().process;
    // Relaxed: a thread that reads an old value goes on to ask glibc.
    if process.load(Relaxed) & SEVERAL_THREADS != 0 {
        return false;
    }
    let word = single_threaded_word();
    // SAFETY: as in `libc_single_threaded`.
    let single = !word.is_null() && unsafe { word.read_volatile() != 0 };
    if !single {
        process.fetch_or(SEVERAL_THREADS, Relaxed);
    }
    single
}

/// glibc's word (`__libc_single_threaded`, glibc 2.32), for a caller that has seen [`AREA`] and not
/// [`SEVERAL_THREADS`]: whether there is no second thread.
#[inline(always)]
pub fn libc_single_threaded() -> bool {
    // SAFETY: glibc's one-byte variable, written only while no other thread exists. Where there is none,
    // `AREA` comes with `SEVERAL_THREADS`.
    unsafe { single_threaded_word().read_volatile() != 0 }
}

/// Where glibc says whether there is no second thread; null if nowhere.
#[inline(always)]
fn single_threaded_word() -> *const u8 {
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
        address
    }
    #[cfg(all(target_arch = "aarch64", target_env = "gnu"))]
    {
        let address: *const u8;
        // SAFETY: as above.
        unsafe {
            asm!(
                ".weak __libc_single_threaded",
                "adrp {address}, :got:__libc_single_threaded",
                "ldr {address}, [{address}, :got_lo12:__libc_single_threaded]",
                address = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }
    #[cfg(not(target_env = "gnu"))]
    core::ptr::null()
}

/// [`area_tag`] may be asked from now on. `known`: it reads the area at [`Words::rseq`], where every CPU's
/// number is in bounds; else it says that none is known. The first call counts.
pub(crate) fn allow_area_tag(known: bool) {
    let words = words();
    if words.area.load(Relaxed) != 0 {
        return;
    }
    let offset = if known {
        words.rseq.load(Relaxed)
    } else {
        (&raw const block().no_cpu).addr().wrapping_sub(thread_pointer()) as isize
    };
    words.area.store(offset, Relaxed);
    // `libc_single_threaded` does not look whether glibc says it.
    let several = if single_threaded_word().is_null() { SEVERAL_THREADS } else { 0 };
    words.process.fetch_or(AREA | several, Release);
}

fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the thread pointer, which on x86-64 is in the memory that it points to.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}

/// As [`crate::cpu::tag`], but for a caller that has seen [`AREA`] in [`process`], and without a test whether
/// there is an area. Below [`TAG_LIMIT`](poundlock_core::poundlock::TAG_LIMIT).
#[inline(always)]
pub fn area_tag() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let cpu: u32;
        // SAFETY: reads a word of the object; and, as whoever sets `AREA` has set that before, one of this
        // thread's area or block.
        unsafe {
            asm!(
                "mov {offset}, qword ptr [rip + poundlock_words + {at}]",
                "mov {cpu:e}, dword ptr fs:[{offset}]",
                at = const core::mem::offset_of!(Words, area),
                offset = out(reg) _,
                cpu = out(reg) cpu,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu.wrapping_add(1)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // SAFETY: as above: it lies at that offset from the thread pointer.
        let word: &AtomicU32 = unsafe {
            &*core::ptr::with_exposed_provenance(
                thread_pointer().wrapping_add_signed(words().area.load(Relaxed)),
            )
        };
        word.load(Relaxed).wrapping_add(1)
    }
}

/// The CPU that the calling thread runs on, plus one, from glibc's restartable-sequences area (glibc 2.35);
/// 0 if none is known.
///
/// It is the area's `cpu_id_start`, which is a CPU's number always, 0 in a thread for which the area is not
/// registered. glibc registers it for all its threads or for none.
#[inline(always)]
pub(crate) fn rseq_tag() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let offset: isize;
        // SAFETY: reads a word of the object.
        unsafe {
            asm!(
                "mov {offset}, qword ptr [rip + poundlock_words + {at}]",
                offset = out(reg) offset,
                at = const core::mem::offset_of!(Words, rseq),
                options(readonly, nostack, preserves_flags),
            );
        }
        if offset == 0 {
            return 0;
        }
        let cpu: u32;
        // SAFETY: the offset is `__rseq_offset`, so the word is the first one of this thread's area, which
        // the kernel keeps current.
        unsafe {
            asm!(
                "mov {cpu:e}, dword ptr fs:[{offset}]",
                offset = in(reg) offset,
                cpu = out(reg) cpu,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu + 1
    }
    #[cfg(target_arch = "aarch64")]
    {
        let offset = words().rseq.load(Relaxed);
        if offset == 0 {
            return 0;
        }
        let cpu: u32;
        // SAFETY: as above.
        unsafe {
            asm!(
                "mrs {tp}, tpidr_el0",
                "ldr {cpu:w}, [{tp}, {offset}]",
                tp = out(reg) _,
                offset = in(reg) offset,
                cpu = out(reg) cpu,
                options(readonly, nostack, preserves_flags),
            );
        }
        cpu + 1
    }
}
