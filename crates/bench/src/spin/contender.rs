//! Who takes part.

use poundlock_core::qspin::Form as Kind;
use poundlock_names::Named;
use serde::{Deserialize, Serialize};

use crate::contender::chosen_by_name;

/// A spinlock, or what spinlocks are read against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Contender {
    /// A compare-and-swap and a store: the floor. Nobody can wait for it.
    Bare,
    /// The C library's `pthread_spin_*`.
    PthreadSpin,
    /// The preload library's `pthread_spin_*`, on this form.
    Preloaded(Kind),
    /// A form of the queue spinlock as a Rust program has it.
    Rust(Kind),
    /// The same in the layout for many threads.
    Large(Kind),
    /// **Baseline.** The ticket lock.
    Ticket,
    /// **Baseline.** Test-and-set.
    TestAndSet,
    /// **Baseline.** Test-and-test-and-set with back-off.
    BackOff,
    /// **Baseline.** Plain MCS.
    Mcs,
    /// The C library's default mutex.
    Glibc,
}

impl Contender {
    /// The native form, which the targets for threads with a CPU each are about.
    pub const NATIVE: Contender = Contender::Rust(Kind::Native);
    /// The paravirtual form, which the targets for more threads than CPUs are about.
    pub const PARAVIRTUAL: Contender = Contender::Rust(Kind::Paravirtual);

    /// Everybody.
    pub fn all() -> Vec<Contender> {
        use Contender::*;
        let rust = Kind::ALL.map(Rust).into_iter().rev();
        let preloaded = Kind::ALL.map(Preloaded).into_iter().rev();
        let large = [Kind::Native, Kind::Paravirtual].map(Large);
        [Bare, PthreadSpin, Ticket, Mcs, TestAndSet, BackOff, Glibc]
            .into_iter()
            .chain(rust)
            .chain(large)
            .chain(preloaded)
            .collect()
    }

    /// Those that every ratio needs.
    const REFERENCES: [Contender; 5] = [Self::Bare, Self::PthreadSpin, Self::Ticket, Self::Mcs, Self::Glibc];

    /// The name as people type it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "cas+store",
            Self::PthreadSpin => "pthread_spin",
            Self::Preloaded(Kind::Native) => "preload-qspin",
            Self::Preloaded(Kind::Virtual) => "preload-qspin-virt",
            Self::Preloaded(Kind::Paravirtual) => "preload-qspin-pv",
            Self::Rust(kind) => kind.name(),
            Self::Large(Kind::Native) => "qspin-large",
            Self::Large(Kind::Virtual) => "qspin-virt-large",
            Self::Large(Kind::Paravirtual) => "qspin-pv-large",
            Self::Ticket => "ticket",
            Self::TestAndSet => "test-and-set",
            Self::BackOff => "back-off",
            Self::Mcs => "mcs",
            Self::Glibc => "glibc",
        }
    }

    /// Whether it is one of ours.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Rust(_) | Self::Large(_) | Self::Preloaded(_))
    }

    /// What the preload library is told to use, if this needs it.
    pub(super) fn preloaded(self) -> Option<&'static str> {
        match self {
            Self::Preloaded(kind) => Some(kind.name()),
            _ => None,
        }
    }

    /// Whether threads can wait for it.
    pub(super) const fn waits(self) -> bool {
        !matches!(self, Self::Bare)
    }
}

chosen_by_name!(Contender, "spinlock");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_contender() {
        for contender in Contender::all() {
            assert_eq!(Contender::parse(contender.name()).unwrap(), contender);
            let json = serde_json::to_string(&contender).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender);
        }
        let error = Contender::parse("any-negative").unwrap_err().to_string();
        assert!(error.contains("'any-negative'") && error.contains("qspin-pv"), "{error}");
    }

    #[test]
    fn the_references_are_always_there_once() {
        let some = Contender::with_references(&[Contender::NATIVE, Contender::Ticket, Contender::NATIVE]);
        assert_eq!(some.iter().filter(|&&who| who == Contender::NATIVE).count(), 1);
        assert_eq!(some.len(), Contender::REFERENCES.len() + 1);
        assert_eq!(Contender::with_references(&[]), Contender::all());
    }
}
