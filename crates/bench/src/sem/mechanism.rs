//! By what threads sleep and are woken.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Serialize};

/// A semaphore array, or what it is read against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

    /// The name as people type it, and what the source's program says that it uses.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Kernel => ("kernel", "ipc sem operations"),
            Self::Before => ("before", "Poundlock's sem operations, before"),
            Self::After => ("after", "Poundlock's sem operations, after"),
            Self::SharedLine => ("shared-line", "Poundlock's sem operations, after, on a shared line"),
            Self::Combining => ("combining", "Poundlock's sem operations, combining"),
            Self::Futex => ("futex", "futexes"),
            Self::Nanosleep => ("nanosleep", "nanosleep"),
        }
    }

    /// The name as people type it.
    pub const fn name(self) -> &'static str {
        self.names().0
    }

    /// In words, as the source's program says what it uses.
    pub const fn words(self) -> &'static str {
        self.names().1
    }

    /// Whether it is an array of semaphores.
    pub const fn is_array(self) -> bool {
        !matches!(self, Self::Futex | Self::Nanosleep)
    }

    /// Whether the array is one of ours.
    pub const fn is_ours(self) -> bool {
        self.is_array() && !matches!(self, Self::Kernel)
    }
}

/// By its name, or by the number that it has in the source's program.
impl ValueEnum for Mechanism {
    fn value_variants<'a>() -> &'a [Mechanism] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let number = match self {
            Self::Kernel => Some("0"),
            Self::Nanosleep => Some("1"),
            Self::Futex => Some("2"),
            _ => None,
        };
        Some(PossibleValue::new(self.name()).aliases(number))
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_the_sources_numbers_are_understood() {
        let typed = |text: &str| Mechanism::from_str(text, false).unwrap();
        for mechanism in Mechanism::ALL {
            assert_eq!(typed(mechanism.name()), mechanism);
            assert_eq!(serde_json::to_value(mechanism).unwrap(), mechanism.name());
        }
        assert_eq!(["0", "1", "2"].map(typed), [Mechanism::Kernel, Mechanism::Nanosleep, Mechanism::Futex]);
    }
}
