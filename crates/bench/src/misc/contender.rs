//! Who takes part.

use poundlock_core::qspin::Form as Kind;
use poundlock_names::{LockName, Named};
use serde::{Deserialize, Serialize};

use crate::contender::chosen_by_name;

/// A mutex or a spinlock, or what they are read against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Contender {
    /// A compare-and-swap and an exchange: the floor. Nobody can wait for it.
    Bare,
    /// The C library's default mutex.
    Glibc,
    /// The C library's adaptive mutex.
    GlibcAdaptive,
    /// The C library's recursive mutex.
    GlibcRecursive,
    /// The C library's `pthread_spin_*`.
    PthreadSpin,
    /// One of our mutexes as a Rust program has it.
    Mutex(OurMutex),
    /// The recursive hand-off mutex, with the policy of [`LockName::Handoff`].
    Recursive,
    /// A form of the queue spinlock as a Rust program has it.
    Spin(Kind),
}

/// A [`LockName`] other than glibc's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OurMutex(LockName);

impl OurMutex {
    /// Which lock.
    pub const fn lock(self) -> LockName {
        self.0
    }
}

impl Contender {
    /// The hand-off mutex with the policy that it has if none is named.
    pub const HANDOFF: Contender = Contender::Mutex(OurMutex(LockName::Handoff));
    /// The same without spinning.
    pub const HANDOFF_NONE: Contender = Contender::Mutex(OurMutex(LockName::HandoffNone));
    /// The queue spinlock for threads with a CPU each.
    pub const QSPIN: Contender = Contender::Spin(Kind::Native);

    /// Everybody.
    pub fn all() -> Vec<Contender> {
        use Contender::*;
        let mutexes = LockName::ALL.into_iter().filter(|&lock| lock != LockName::Glibc);
        let spinlocks = Kind::ALL.into_iter().rev().map(Spin);
        [Bare, Glibc, GlibcAdaptive, GlibcRecursive, PthreadSpin]
            .into_iter()
            .chain(mutexes.map(|lock| Mutex(OurMutex(lock))))
            .chain([Recursive])
            .chain(spinlocks)
            .collect()
    }

    /// Those that every ratio needs.
    const REFERENCES: [Contender; 5] =
        [Self::Bare, Self::Glibc, Self::HANDOFF_NONE, Self::HANDOFF, Self::QSPIN];

    /// The name as people type it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "cas+exchange",
            Self::Glibc => "glibc",
            Self::GlibcAdaptive => "glibc-adaptive",
            Self::GlibcRecursive => "glibc-recursive",
            Self::PthreadSpin => "pthread_spin",
            Self::Mutex(mutex) => mutex.0.name(),
            Self::Recursive => "handoff-recursive",
            Self::Spin(kind) => kind.name(),
        }
    }

    /// Whether it is the hand-off mutex, with whatever policy.
    pub const fn is_policy(self) -> bool {
        match self {
            Self::Mutex(mutex) => mutex.0.spinning().is_some(),
            _ => false,
        }
    }

    /// Whether threads can wait for it.
    pub(crate) const fn waits(self) -> bool {
        !matches!(self, Self::Bare)
    }

    /// Whether they sleep when they have waited for long.
    pub(crate) const fn sleeps(self) -> bool {
        !matches!(self, Self::Bare | Self::PthreadSpin | Self::Spin(Kind::Native | Kind::Virtual))
    }

    /// Whether its owner can acquire it again.
    pub(crate) const fn is_recursive(self) -> bool {
        matches!(self, Self::GlibcRecursive | Self::Recursive)
    }
}

chosen_by_name!(Contender, "lock");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_contender() {
        let all = Contender::all();
        for &contender in &all {
            assert_eq!(Contender::parse(contender.name()).unwrap(), contender);
            let json = serde_json::to_string(&contender).unwrap();
            assert_eq!(serde_json::from_str::<Contender>(&json).unwrap(), contender);
        }
        for lock in LockName::ALL {
            assert!(all.iter().any(|contender| contender.name() == lock.name()), "{lock} does not take part");
        }
        let error = Contender::parse("ticket").unwrap_err().to_string();
        assert!(error.contains("'ticket'") && error.contains("handoff:none"), "{error}");
    }

    #[test]
    fn the_references_are_always_there_once() {
        let some =
            Contender::with_references(&[Contender::Recursive, Contender::HANDOFF, Contender::Recursive]);
        assert_eq!(some.iter().filter(|&&who| who == Contender::Recursive).count(), 1);
        assert_eq!(some.len(), Contender::REFERENCES.len() + 1);
        assert_eq!(Contender::with_references(&[]), Contender::all());
    }

    #[test]
    fn every_policy_is_one() {
        let policies = Contender::all().into_iter().filter(|contender| contender.is_policy()).count();
        assert_eq!(policies, LockName::ALL.into_iter().filter(|lock| lock.spinning().is_some()).count());
        assert!(Contender::HANDOFF.is_policy() && !Contender::Recursive.is_policy());
    }
}
