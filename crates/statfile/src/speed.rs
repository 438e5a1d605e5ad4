//! How fast a CPU is at the moment: one whose core another thread has, too, does half as much, and the other
//! may be of another virtual machine, so that nothing else tells.

use core::arch::asm;

/// Turns of a loop of arithmetic that fills a core's units, and touches no memory: 0.7 ns each where the core
/// has nothing else to do, on a Xeon of 2023, and up to twice that beside another thread. Async-signal-safe.
#[inline(never)]
pub fn compute(turns: u32) {
    let (mut a, mut b, mut c, mut d) = (1_u64, 2_u64, 3_u64, 4_u64);
    for turn in 0..u64::from(turns) {
        a = a.wrapping_add(turn ^ b);
        b = b.wrapping_add(turn);
        c = c.wrapping_add(turn ^ d);
        d = d.wrapping_add(turn);
        // SAFETY: no instruction. The numbers are in registers here, so that no turn is left out.
        unsafe {
            asm!(
                "/* {0} {1} {2} {3} */",
                inout(reg) a,
                inout(reg) b,
                inout(reg) c,
                inout(reg) d,
                options(nomem, nostack, preserves_flags)
            );
        }
    }
}
