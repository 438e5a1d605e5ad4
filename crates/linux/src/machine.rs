//! What the choice of a spinlock's form depends on.

use poundlock_core::qspin::Form;

/// The form of the queue spinlock for this process: asked once, when it starts.
///
/// How many threads a process will have is unknown at its start, so there may always be more than CPUs. Linux
/// can always halt a thread and kick it, unless the memory for the lock hash is refused. So by default this
/// chooses [`Form::ParavirtualNuma`] on a machine with several nodes of memory, [`Form::Paravirtual`] on
/// others, and [`Form::Virtual`] where that memory is refused. [`Form::Native`] and [`Form::NativeNuma`] are
/// for programs whose threads have a CPU each, and have to be asked for.
pub fn spinlock() -> Form {
    crate::node::init();
    if crate::halted::lines().is_none() {
        Form::Virtual
    } else if crate::node::nodes() > 1 {
        Form::ParavirtualNuma
    } else {
        Form::Paravirtual
    }
}

#[cfg(test)]
mod tests {
    use poundlock_core::qspin::Form;

    #[test]
    fn an_oversubscribed_program_gets_a_form_that_halts() {
        let several = crate::node::nodes() > 1;
        let form = if several { Form::ParavirtualNuma } else { Form::Paravirtual };
        assert_eq!(super::spinlock(), form);
    }
}
