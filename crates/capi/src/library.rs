//! What makes it a library of its own, to which there is no Rust program around.

use core::arch::global_asm;
use core::panic::PanicInfo;

/// Runs when the library is loaded, or the program starts. Everything also works before it has run.
extern "C" fn start() {
    poundlock_linux::init();
    // SAFETY: registers a function that stays loaded: the library is linked so that it cannot be unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

extern "C" fn forked() {
    poundlock_linux::registry::forked();
}

/// The dynamic linker, or the program's start-up code, calls what it finds in this section.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Nothing panics; should something, it goes no further.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

extern "C" fn personality() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

// The compiler's own library was compiled to unwind and names a function for it, which it never calls here. Weak, for programs that
// hold Rust's standard library as well.
global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    ".set rust_eh_personality, {personality}",
    personality = sym personality,
);
