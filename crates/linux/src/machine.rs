//! The machine, as far as the choice of a spinlock depends on it.

use poundlock_core::qspin::Form;

/// The form of the queue spinlock for this process: asked once, when it starts.
///
/// Nobody can tell at its start how many threads a process will have, so there may always be more than CPUs;
/// and Linux can always halt a thread and kick it, unless the memory for the lock hash is refused. So without
/// being told this chooses [`Form::Paravirtual`], and [`Form::Virtual`] where that is refused.
/// [`Form::Native`] is for those who know that each of their threads has a CPU to itself, and has to be asked
/// for.
pub fn spinlock() -> Form {
    if crate::halted::lines().is_some() { Form::Paravirtual } else { Form::Virtual }
}

#[cfg(test)]
mod tests {
    use poundlock_core::qspin::Form;

    #[test]
    fn an_oversubscribed_program_gets_the_form_that_halts() {
        assert_eq!(super::spinlock(), Form::Paravirtual);
    }
}
