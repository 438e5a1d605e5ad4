//! What the choice of a spinlock's form depends on.

use poundlock_core::qspin::Form;

/// The form of the queue spinlock for this process: asked once, when it starts.
///
/// How many threads a process will have is unknown at its start, so there may always be more than CPUs. Linux
/// can always halt a thread and kick it, unless the memory for the lock hash is refused. So by default this
/// chooses [`Form::Paravirtual`], and [`Form::Virtual`] where that is refused. [`Form::Native`] is for
/// programs whose threads have a CPU each, and has to be asked for.
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
