//! The machine, as far as the choice of a spinlock depends on it.

use poundlock_core::qspin::{Environment, Form, choose};

/// The form of the queue spinlock for this process: asked once, when it starts.
///
/// Nobody can tell at its start how many threads a process will have, so there may always be more than CPUs;
/// and Linux can always halt a thread and kick it, unless the memory for the lock hash is refused. So without
/// being told this chooses [`Form::Paravirtual`], and [`Form::Virtual`] where that is refused.
/// [`Form::Native`] is for those who know that each of their threads has a CPU to itself, and has to be asked
/// for.
pub fn spinlock() -> Form {
    choose(Environment {
        hypervisor: hypervisor(),
        cpus: crate::cpu::allowed() as u32,
        threads: u32::MAX,
        can_halt: crate::halted::lines().is_some(),
    })
}

/// Whether the processor says that it is a virtual machine's. False where it does not say.
pub fn hypervisor() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // CPUID leaf 1, ECX bit 31: 0 on every real processor, set by hypervisors. SAFETY: every x86-64
        // processor has the instruction, and the leaf. Later compilers know that it is safe.
        #[allow(unused_unsafe)]
        let leaf = unsafe { core::arch::x86_64::__cpuid(1) };
        leaf.ecx >> 31 != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
mod tests {
    use poundlock_core::qspin::Form;

    #[test]
    fn an_oversubscribed_program_gets_the_form_that_halts() {
        assert_eq!(super::spinlock(), Form::Paravirtual);
    }
}
