//! By what threads sleep and are woken.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A semaphore array, or what it is read against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Mechanism {
    /// The kernel's System V semaphores: the reference of every ratio.
    Kernel,
    /// Our arrays as the kernel's were: sleepers are tried again from the start, and woken inside the lock.
    Before,
    /// Our arrays: one pass over the sleepers, who are woken after the lock is released.
    After,
    /// The same with the lock on a cache line that it shares with what is often read and written.
    SharedLine,
    /// The same, but a call that finds the lock taken leaves its operations to whoever holds it.
    Combining,
    /// A futex for each thread, and a system call for each wake-up.
    Futex,
    /// No wake-up at all: threads sleep for a while and look.
    Nanosleep,
}

impl Mechanism {
    /// Everybody, the reference first.
    pub const ALL: [Mechanism; 7] = [
        Self::Kernel,
        Self::Before,
        Self::After,
        Self::SharedLine,
        Self::Combining,
        Self::Futex,
        Self::Nanosleep,
    ];

    /// Our default, which the targets are about.
    pub const DEFAULT: Mechanism = Mechanism::After;

    /// The name as people type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Before => "before",
            Self::After => "after",
            Self::SharedLine => "shared-line",
            Self::Combining => "combining",
            Self::Futex => "futex",
            Self::Nanosleep => "nanosleep",
        }
    }

    /// In words, as the source's program says what it uses.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Kernel => "ipc sem operations",
            Self::Before => "Poundlock's sem operations, before",
            Self::After => "Poundlock's sem operations, after",
            Self::SharedLine => "Poundlock's sem operations, after, on a shared line",
            Self::Combining => "Poundlock's sem operations, combining",
            Self::Futex => "futexes",
            Self::Nanosleep => "nanosleep",
        }
    }

    /// The mechanism of that name, or of the number that it has in the source's program.
    ///
    /// # Errors
    /// If there is none; the message lists those there are.
    pub fn parse(name: &str) -> Result<Mechanism> {
        match name {
            "0" => return Ok(Self::Kernel),
            "1" => return Ok(Self::Nanosleep),
            "2" => return Ok(Self::Futex),
            _ => {}
        }
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Options(format!(
                "no mechanism is called '{name}'; there are {names}, and the numbers 0, 1 and 2 for kernel, nanosleep \
                 and futex"
            ))
        })
    }

    /// Whether it is an array of semaphores.
    pub const fn is_array(self) -> bool {
        !matches!(self, Self::Futex | Self::Nanosleep)
    }

    /// Whether the array is one of ours.
    pub const fn is_ours(self) -> bool {
        self.is_array() && !matches!(self, Self::Kernel)
    }

    /// `wanted` and the reference, without repeats; everybody if `wanted` is empty.
    pub(super) fn with_reference(wanted: &[Mechanism]) -> Vec<Mechanism> {
        let taking_part = |one: &Mechanism| wanted.is_empty() || wanted.contains(one) || *one == Self::Kernel;
        Self::ALL.into_iter().filter(taking_part).collect()
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Mechanism> for &'static str {
    fn from(mechanism: Mechanism) -> &'static str {
        mechanism.name()
    }
}

impl TryFrom<String> for Mechanism {
    type Error = Error;

    fn try_from(name: String) -> Result<Mechanism> {
        Mechanism::parse(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_the_sources_numbers_parse() {
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::parse(mechanism.name()).unwrap(), mechanism);
            let json = serde_json::to_string(&mechanism).unwrap();
            assert_eq!(serde_json::from_str::<Mechanism>(&json).unwrap(), mechanism);
        }
        let numbered = ["0", "1", "2"].map(|number| Mechanism::parse(number).unwrap());
        assert_eq!(numbered, [Mechanism::Kernel, Mechanism::Nanosleep, Mechanism::Futex]);
        let error = Mechanism::parse("3").unwrap_err().to_string();
        assert!(error.contains("'3'") && error.contains("shared-line"), "{error}");
    }

    #[test]
    fn the_reference_is_always_there_once() {
        let some = Mechanism::with_reference(&[Mechanism::Futex, Mechanism::Kernel, Mechanism::Futex]);
        assert_eq!(some, [Mechanism::Kernel, Mechanism::Futex]);
        assert_eq!(Mechanism::with_reference(&[]), Mechanism::ALL);
    }
}
