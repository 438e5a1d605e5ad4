//! The platform's atomics: those of the language.

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::Ordering;

use poundlock_core::platform::Split;

poundlock_core::native_atomics! {
    /// A 32-bit atomic.
    pub U32(AtomicU32): u32;
    /// A pointer-sized atomic.
    pub Usize(AtomicUsize): usize;
}

/// # Narrow accesses
///
/// The language's memory model knows no race between accesses of different sizes to one word. The processor
/// does: on x86-64 a byte or halfword access changes its own bits and leaves the others, in one step, with
/// the ordering of a full access: stores are releases and locked instructions order everything. So each
/// operation is an instruction whose effect on the word is that of one atomic read-modify-write of the 32
/// bits; that is what its assembly block means in the language. Elsewhere it is that read-modify-write:
/// aarch64 has the instructions too, but there a narrow store between another thread's load-exclusive and
/// store-exclusive of the word costs more than it saves.
#[cfg(target_arch = "x86_64")]
impl Split for U32 {
    #[inline(always)]
    fn store_low_byte(&self, value: u8, order: Ordering) {
        debug_assert!(matches!(order, Ordering::Relaxed | Ordering::Release));
        // SAFETY: writes a byte of our own word, atomically as described above. Not `nomem`, so that the
        // compiler moves no access across it.
        unsafe {
            core::arch::asm!(
                "mov byte ptr [{word}], {value}",
                word = in(reg) self.0.as_ptr(),
                value = in(reg_byte) value,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn compare_exchange_low_byte(
        &self,
        current: u8,
        new: u8,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<u8, u8> {
        let seen: u8;
        // SAFETY: as above; a locked instruction.
        unsafe {
            core::arch::asm!(
                "lock cmpxchg byte ptr [{word}], {new}",
                word = in(reg) self.0.as_ptr(),
                new = in(reg_byte) new,
                inout("al") current => seen,
                options(nostack),
            );
        }
        if seen == current { Ok(seen) } else { Err(seen) }
    }

    #[inline(always)]
    fn store_low_half(&self, value: u16, order: Ordering) {
        debug_assert!(matches!(order, Ordering::Relaxed | Ordering::Release));
        // SAFETY: as in `store_low_byte`.
        unsafe {
            core::arch::asm!(
                "mov word ptr [{word}], {value:x}",
                word = in(reg) self.0.as_ptr(),
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    fn swap_high_half(&self, value: u16, _order: Ordering) -> u16 {
        let before: u16;
        // SAFETY: as above; an exchange with memory is locked.
        unsafe {
            core::arch::asm!(
                "xchg word ptr [{word} + 2], {value:x}",
                word = in(reg) self.0.as_ptr(),
                value = inout(reg) value => before,
                options(nostack, preserves_flags),
            );
        }
        before
    }

    // The two that follow look at the low byte by itself. A locked instruction that reads more bytes than the
    // last store to them wrote, or a plain look that does, waits until that store is in the cache: three
    // nanoseconds on AMD's Zen 4, for a lock that its last holder takes again at once.

    #[inline(always)]
    fn take_low_byte(&self, idle: u32, held: u8) -> bool {
        // SAFETY: reads a byte and a half of our own word, each atomically as described above.
        unsafe {
            core::arch::asm!(
                "cmp byte ptr [{word} + 1], {next}",
                "jne {no}",
                "cmp word ptr [{word} + 2], {high:x}",
                "jne {no}",
                word = in(reg) self.0.as_ptr(),
                next = in(reg_byte) (idle >> 8) as u8,
                high = in(reg) idle >> 16,
                no = label { return false },
                options(nostack),
            );
        }
        self.compare_exchange_low_byte(idle as u8, held, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn release_low_byte(&self, expected: u16) -> bool {
        // SAFETY: reads two bytes of our own word and writes the first, each atomically as described above;
        // on x86-64 a plain store is a release.
        unsafe {
            core::arch::asm!(
                "cmp byte ptr [{word}], {low}",
                "jne {no}",
                "cmp byte ptr [{word} + 1], {next}",
                "jne {no}",
                "mov byte ptr [{word}], 0",
                word = in(reg) self.0.as_ptr(),
                low = in(reg_byte) expected as u8,
                next = in(reg_byte) (expected >> 8) as u8,
                no = label { return false },
                options(nostack),
            );
        }
        true
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Split for U32 {}

#[cfg(test)]
mod tests {
    use super::U32;
    use poundlock_core::platform::{Atomic, Split};
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

    #[test]
    fn narrow_accesses_leave_the_other_bits() {
        let word = U32::new(0x1234_5678);
        word.store_low_byte(0xab, Release);
        assert_eq!(word.load(Relaxed), 0x1234_56ab);
        word.store_low_half(0xcdef, Relaxed);
        assert_eq!(word.load(Relaxed), 0x1234_cdef);
        assert_eq!(word.swap_high_half(0x9876, AcqRel), 0x1234);
        assert_eq!(word.load(Relaxed), 0x9876_cdef);
        assert_eq!(word.compare_exchange_low_byte(0xee, 1, AcqRel, Acquire), Err(0xef));
        assert_eq!(word.compare_exchange_low_byte(0xef, 1, AcqRel, Acquire), Ok(0xef));
        assert_eq!(word.load(Relaxed), 0x9876_cd01);
    }

    #[test]
    fn a_take_looks_at_the_whole_word() {
        for busy in [0x0000_8001, 0x0000_8100, 0x0001_8000, 0x8000_8000] {
            let word = U32::new(busy);
            assert!(!word.take_low_byte(0x8000, 1));
            assert_eq!(word.load(Relaxed), busy);
        }
        let word = U32::new(0x8000);
        assert!(word.take_low_byte(0x8000, 1));
        assert_eq!(word.load(Relaxed), 0x8001);
    }

    #[test]
    fn a_plain_release_looks_first() {
        let word = U32::new(0x9876_8101);
        assert!(!word.release_low_byte(0x8102));
        assert!(!word.release_low_byte(0x8001));
        assert_eq!(word.load(Relaxed), 0x9876_8101);
        assert!(word.release_low_byte(0x8101));
        assert_eq!(word.load(Relaxed), 0x9876_8100);
    }
}
