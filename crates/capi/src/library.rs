//! What it needs to be a library without a Rust program around it.

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;

use poundlock_linux::statistics::Statistics;

/// Runs when the library is loaded, or the program starts. Everything also works before it has run.
extern "C" fn start() {
    match linked_rseq() {
        // SAFETY: glibc's.
        Some((offset, size)) => unsafe { poundlock_linux::init_with_rseq(offset, size) },
        None => poundlock_linux::init(),
    }
    // SAFETY: what has that name is such a table, in a library that stays.
    unsafe { crate::seen::look(statistics()) };
}

/// The table of the preloaded library, if there is one: see [`SYMBOL`](poundlock_linux::statistics::SYMBOL).
fn statistics() -> *const Statistics {
    let table: *const Statistics;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads an address from the GOT; 0 for a symbol that is nowhere defined, since it is weak.
    unsafe {
        asm!(
            ".weak poundlock_statistics",
            "mov {table}, qword ptr [rip + poundlock_statistics@GOTPCREL]",
            table = out(reg) table,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            ".weak poundlock_statistics",
            "adrp {table}, :got:poundlock_statistics",
            "ldr {table}, [{table}, :got_lo12:poundlock_statistics]",
            table = out(reg) table,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    table
}

/// glibc's `__rseq_offset` and `__rseq_size`, which came with glibc 2.35, where the program is linked with a
/// glibc that has them. Our shared library has to work with an older one: there `build.rs` has the linker
/// take both for 0.
fn linked_rseq() -> Option<(isize, u32)> {
    let (offset, size): (*const isize, *const u32);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads two addresses from the GOT; 0 for a symbol that is nowhere defined, since they are weak.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "adrp {offset}, :got:__rseq_offset",
            "ldr {offset}, [{offset}, :got_lo12:__rseq_offset]",
            "adrp {size}, :got:__rseq_size",
            "ldr {size}, [{size}, :got_lo12:__rseq_size]",
            offset = out(reg) offset,
            size = out(reg) size,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // What the linker took for 0 is 0, or where the library begins: ld makes a relocation of the GOT's entry.
    if offset.is_null() || size.is_null() || offset.addr() == size.addr() {
        return None;
    }
    // SAFETY: glibc's constants of these types.
    Some(unsafe { (*offset, *size) })
}

/// The dynamic linker, or the program's start-up code, calls what it finds in this section.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Nothing panics. If something does, it ends here.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

extern "C" fn personality() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

// The compiler's own library was compiled to unwind and names a function for it, which it never calls here.
// Weak, for programs that hold Rust's standard library as well.
global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    ".set rust_eh_personality, {personality}",
    personality = sym personality,
);
