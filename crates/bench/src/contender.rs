//! Who takes part: a C ABI and a kind of mutex, under one name.

use std::fmt;

use poundlock_names::LockName;
use serde::{Serialize, Serializer};

use crate::error::{Error, Result};

/// What the benchmarks' own contenders have in common: an enum with `all()`, `name()` and `REFERENCES`, chosen by name. `$what` says
/// what somebody chose who named none of them.
macro_rules! chosen_by_name {
    ($contender:ty, $what:literal) => {
        impl $contender {
            /// `wanted` and the references, without repeats; everybody if `wanted` is empty.
            pub(super) fn with_references(wanted: &[Self]) -> Vec<Self> {
                let taking_part =
                    |who: &Self| wanted.is_empty() || wanted.contains(who) || Self::REFERENCES.contains(who);
                Self::all().into_iter().filter(taking_part).collect()
            }

            /// The contender of that name.
            ///
            /// # Errors
            /// If there is none; the message lists those there are.
            pub fn parse(name: &str) -> $crate::error::Result<Self> {
                Self::all().into_iter().find(|contender| contender.name() == name).ok_or_else(|| {
                    let names: Vec<_> = Self::all().into_iter().map(Self::name).collect();
                    $crate::error::Error::Options(format!(
                        concat!("no ", $what, " is called '{}'; there are {}"),
                        name,
                        names.join(", ")
                    ))
                })
            }
        }

        impl std::fmt::Display for $contender {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl From<$contender> for &'static str {
            fn from(contender: $contender) -> &'static str {
                contender.name()
            }
        }

        impl TryFrom<String> for $contender {
            type Error = $crate::error::Error;

            fn try_from(name: String) -> $crate::error::Result<Self> {
                Self::parse(&name)
            }
        }
    };
}

pub(crate) use chosen_by_name;

/// A lock as a program meets it: `pthread_mutex_*` of some library on some kind of mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The C library's default mutex: the reference of every ratio.
    Glibc,
    /// The C library's adaptive mutex, which spins before it sleeps.
    GlibcAdaptive,
    /// One of ours, through the preload library's symbols.
    Poundlock(LockName),
}

impl Contender {
    /// Everybody, the reference first.
    pub fn all() -> Vec<Contender> {
        let ours = LockName::ALL.into_iter().filter(|&lock| lock != LockName::Glibc);
        [Self::Glibc, Self::GlibcAdaptive].into_iter().chain(ours.map(Self::Poundlock)).collect()
    }

    /// Those that are measured if nobody is named: all but the variations of one lock.
    pub fn usual() -> Vec<Contender> {
        let varies =
            |contender: &Contender| matches!(contender, Self::Poundlock(lock) if lock.is_variation());
        Self::all().into_iter().filter(|contender| !varies(contender)).collect()
    }

    /// Our own default lock, which the targets are about.
    pub const DEFAULT: Contender = Contender::Poundlock(LockName::DEFAULT);

    /// The name as people type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Glibc => "glibc",
            Self::GlibcAdaptive => "glibc-adaptive",
            Self::Poundlock(lock) => lock.name(),
        }
    }

    /// The contender of that name.
    ///
    /// # Errors
    /// If there is none; the message lists those there are.
    pub fn parse(name: &str) -> Result<Contender> {
        Self::all().into_iter().find(|contender| contender.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::all().into_iter().map(Self::name).collect();
            Error::Options(format!("no lock is called '{name}'; there are {}", names.join(", ")))
        })
    }

    /// Whether it is one of ours, and so needs the preload library.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Poundlock(_))
    }

    /// `wanted` without repeats and with the reference in front; the usual ones if `wanted` is empty.
    pub(crate) fn with_reference(wanted: &[Contender]) -> Vec<Contender> {
        if wanted.is_empty() {
            return Self::usual();
        }
        let mut all = vec![Self::Glibc];
        for &contender in wanted {
            if !all.contains(&contender) {
                all.push(contender);
            }
        }
        all
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Contender {
    type Err = Error;

    fn from_str(name: &str) -> Result<Contender> {
        Contender::parse(name)
    }
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_contender() {
        for contender in Contender::all() {
            assert_eq!(Contender::parse(contender.name()).unwrap(), contender);
        }
        let error = Contender::parse("qspin").unwrap_err().to_string();
        assert!(error.contains("'qspin'") && error.contains("glibc-adaptive"), "{error}");
    }

    #[test]
    fn the_reference_is_always_there_once() {
        let ours = Contender::DEFAULT;
        assert_eq!(Contender::with_reference(&[ours]), [Contender::Glibc, ours]);
        assert_eq!(Contender::with_reference(&[ours, Contender::Glibc, ours]), [Contender::Glibc, ours]);
        assert_eq!(Contender::with_reference(&[]), Contender::usual());
        assert!(Contender::usual().contains(&Contender::DEFAULT));
    }
}
