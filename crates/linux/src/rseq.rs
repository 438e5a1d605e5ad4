//! Releasing a lock by a plain store, with restartable sequences.
//!
//! "If no thread may sleep here, store 0" has to be one step with respect to a thread that is about to sleep.
//! Otherwise the sleeper could announce itself between the look and the store, and never be woken. A
//! restartable sequence makes it one: the kernel sends a thread that was interrupted in the middle
//! (preempted, migrated, or signalled) back to its beginning, and `membarrier` (`PRIVATE_EXPEDITED_RSEQ`,
//! Linux 5.10) does that to every thread of the process at once. So after [`fence`] every look at the wait
//! lock has been followed by its store or is made again. The store costs a nanosecond, a locked instruction
//! five; the system call is made once in the life of a lock, when a thread first sleeps in it.
//!
//! It needs glibc 2.35, which registers the area in which a thread names its sequence. Where it or the system
//! call is missing, [`release`] returns false and nothing is lost but time.
//!
//! A program that later forbids itself the system call gets an error from it here, and sleeps with a time
//! limit from then on ([`crate::futex`]); a program whose own filter kills it for the call is beyond help.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

use poundlock_core::platform::Atomic;

use crate::atomic::U32;
use crate::futex::keeping_errno;
use crate::tls::words;

/// Whether [`fence`] has failed, so that sleepers must look now and then.
static BROKEN: AtomicBool = AtomicBool::new(false);

const EXPEDITED: libc::c_long = 1 << 7;
const REGISTER: libc::c_long = 1 << 8;

/// The system call of that name.
///
/// # Errors
/// The kernel's error number.
pub fn membarrier(command: libc::c_long) -> Result<libc::c_long, libc::c_int> {
    // SAFETY: the call touches no memory of ours.
    keeping_errno(|| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })
}

/// To be called once the area is known to be registered.
pub(crate) fn init() {
    if membarrier(REGISTER).is_ok() && membarrier(EXPEDITED).is_ok() {
        // Set once, before which no thread can be in a sequence of ours.
        words().release.store(words().rseq.load(Relaxed), SeqCst);
    }
}

pub(crate) fn fence() {
    // The caller's announcement, a sequentially consistent read-modify-write, comes before this load. If it
    // reads 0, a thread that reads the offset comes later, and so does its look at the wait lock, which the
    // announcement has changed.
    if words().release.load(SeqCst) == 0 {
        return;
    }
    // A forked child may have to register anew.
    if membarrier(EXPEDITED).is_err() && (membarrier(REGISTER).is_err() || membarrier(EXPEDITED).is_err()) {
        BROKEN.store(true, SeqCst);
    }
}

/// Whether a wake-up may be lost.
#[inline]
pub(crate) fn broken() -> bool {
    BROKEN.load(Relaxed)
}

/// A restartable sequence: `$look` (instructions that jump to `5f` if there is to be no store, upon which the
/// calling function returns false) and then `$store`, its last instruction and only side effect; with
/// operands for both, and a register `{zero}`. It is not begun in a thread that has no area: [`init`] has not
/// found one, or the CPU in it is negative.
///
/// Both ways out take the descriptor's address out of the area again. The kernel would do that only when it
/// next interrupts the thread, for which it reads the descriptor; and by then the module may have been
/// unloaded, a plugin that is linked with this crate or with the static library.
///
/// # Safety
/// The sequence may be started over at any point before the store.
#[cfg(target_arch = "x86_64")]
macro_rules! sequence {
    (look: $($look:literal),+; store: $store:literal; $($operands:tt)*) => {
        // The abort handler is preceded by the signature with which glibc registers, as the operand of an
        // instruction that traps.
        core::arch::asm!(
            "mov {offset}, qword ptr [rip + poundlock_words + {release}]",
            "test {offset}, {offset}",
            "jz {no}",
            "cmp dword ptr fs:[{offset} + 4], {zero:e}",
            "jl {no}",
            "2:",
            "lea {at}, [rip + 77f]",
            "mov qword ptr fs:[{offset} + 8], {at}",
            "3:",
            $($look,)+
            $store,
            "4:",
            "mov qword ptr fs:[{offset} + 8], {zero}",
            ".pushsection .data.rel.ro.poundlock_rseq,\"aw\",@progbits",
            ".balign 32",
            "77:",
            ".long 0, 0",
            ".quad 3b, 4b - 3b, 6f",
            ".popsection",
            ".pushsection .text.poundlock_rseq,\"ax\",@progbits",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "6:",
            "jmp 2b",
            "5:",
            "mov qword ptr fs:[{offset} + 8], {zero}",
            "jmp {no}",
            ".popsection",
            at = out(reg) _,
            offset = out(reg) _,
            // Shorter than an immediate 0 at each place. So the release is two cache lines with its caller.
            zero = in(reg) 0_u64,
            release = const core::mem::offset_of!(crate::tls::Words, release),
            no = label { return false },
            $($operands)*
            options(nostack),
        )
    };
}

/// The same on aarch64, where `{at}` is free for the look's use. The look comes after the load of the offset, as
/// [`fence`] has to rely on, because its address depends on that: by `{after}`, which is 0. (An acquire load would
/// wait for the last release, which is a `stlr`.)
#[cfg(target_arch = "aarch64")]
macro_rules! sequence {
    (look: $($look:literal),+; store: $store:literal; $($operands:tt)*) => {
        core::arch::asm!(
            "adrp {at}, poundlock_words",
            "ldr {at}, [{at}, :lo12:poundlock_words + {release}]",
            "cbz {at}, {no}",
            "eor {after}, {at}, {at}",
            "mrs {area}, tpidr_el0",
            "add {area}, {area}, {at}",
            "ldr {at:w}, [{area}, #4]",
            "tbnz {at:w}, #31, {no}",
            "2:",
            "adrp {at}, 77f",
            "add {at}, {at}, :lo12:77f",
            "str {at}, [{area}, #8]",
            "3:",
            $($look,)+
            $store,
            "4:",
            "str xzr, [{area}, #8]",
            ".pushsection .data.rel.ro.poundlock_rseq,\"aw\"",
            ".balign 32",
            "77:",
            ".long 0, 0",
            ".quad 3b, 4b - 3b, 6f",
            ".popsection",
            // In the same section: a conditional branch goes no further than a megabyte.
            ".subsection 1",
            // glibc's signature here is an instruction that traps.
            ".inst 0xd428bc00",
            "6:",
            "b 2b",
            "5:",
            "str xzr, [{area}, #8]",
            "b {no}",
            ".previous",
            at = out(reg) _,
            area = out(reg) _,
            after = out(reg) _,
            release = const core::mem::offset_of!(crate::tls::Words, release),
            no = label { return false },
            $($operands)*
            options(nostack),
        )
    };
}

#[inline(always)]
pub(crate) fn release(count: &U32, unless: &U32) -> bool {
    // Where it is in vain, the sequence is not worth beginning.
    if unless.load(Relaxed) != 0 {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: before the store nothing has an effect. On x86-64 a plain store is a release.
    unsafe {
        sequence! {
            look: "cmp dword ptr [{unless}], {zero:e}", "jne 5f";
            store: "mov dword ptr [{count}], {zero:e}";
            unless = in(reg) unless,
            count = in(reg) count,
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: before the store nothing has an effect.
    unsafe {
        sequence! {
            look: "ldr {at:w}, [{unless}, {after}]", "cbnz {at:w}, 5f";
            store: "stlr wzr, [{count}]";
            unless = in(reg) unless,
            count = in(reg) count,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{fence, release};
    use crate::atomic::U32;
    use poundlock_core::platform::Atomic;
    use std::sync::atomic::Ordering::{Relaxed, SeqCst};

    #[test]
    fn stores_unless_guarded() {
        crate::init();
        let (count, unless) = (U32::new(3), U32::new(0));
        let able = release(&count, &unless);
        assert_eq!(count.load(Relaxed), if able { 0 } else { 3 });
        unless.store(1, Relaxed);
        count.store(7, Relaxed);
        assert!(!release(&count, &unless));
        assert_eq!(count.load(Relaxed), 7);
    }

    #[test]
    fn a_forked_child_can_fence() {
        crate::init();
        // SAFETY: the child makes system calls only, and exits.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            fence();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(super::broken())) };
        }
        let mut status = 0;
        // SAFETY: waits for our child and writes its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// The promise of `fence`: a store that is seen after it was made by a look before it.
    #[test]
    fn nothing_is_stored_after_a_fence() {
        crate::init();
        for _ in 0..200 {
            let (count, unless) = (U32::new(0), U32::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while unless.load(Relaxed) == 0 {
                        count.store(1, Relaxed);
                        release(&count, &unless);
                    }
                });
                unless.fetch_or(1, SeqCst);
                fence();
                // The other thread may still store a 1 once, but no 0 over it.
                count.swap(2, SeqCst);
                for _ in 0..1000 {
                    assert_ne!(count.load(Relaxed), 0);
                    std::hint::spin_loop();
                }
            });
        }
    }
}
