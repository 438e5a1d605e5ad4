//! The one list of lock names: what `--lock` takes and `poundlock locks` prints.

/// A lock that a program can be run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LockName {
    /// [`crate::mutex::Baseline`]
    Baseline = 0,
    /// [`crate::mutex::FewerAtomics`]
    FewerAtomics = 1,
    /// [`crate::mutex::McsQueue`]
    McsQueue = 2,
    /// [`crate::mutex::AnyNegative`]
    AnyNegative = 3,
    /// The program's own locks, unchanged: for measuring them.
    Glibc = 4,
}

impl LockName {
    /// Every lock, in the order in which they are listed.
    pub const ALL: [LockName; 5] =
        [Self::AnyNegative, Self::McsQueue, Self::FewerAtomics, Self::Baseline, Self::Glibc];

    /// The lock that is used when none is named.
    pub const DEFAULT: LockName = Self::AnyNegative;

    /// The name as people type it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::FewerAtomics => "fewer-atomics",
            Self::McsQueue => "mcs-queue",
            Self::AnyNegative => "any-negative",
            Self::Glibc => "glibc",
        }
    }

    /// One line on what the lock is.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Baseline => "adaptive mutex; every spinner competes, exchanges unconditionally",
            Self::FewerAtomics => "baseline that reads the count before each exchange",
            Self::McsQueue => "fewer-atomics with its spinners in an MCS queue: one competes at a time",
            Self::AnyNegative => "mcs-queue that takes any negative count as a sign of waiters",
            Self::Glibc => "the program's own locks, unchanged (for stat, bench and torture)",
        }
    }

    /// The lock of that name.
    pub fn parse(name: &str) -> Option<LockName> {
        Self::ALL.into_iter().find(|lock| lock.name() == name)
    }
}

impl core::fmt::Display for LockName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::LockName;

    #[test]
    fn every_name_parses_to_its_lock() {
        for lock in LockName::ALL {
            assert_eq!(LockName::parse(lock.name()), Some(lock));
        }
        assert_eq!(LockName::parse("Baseline"), None);
        assert_eq!(LockName::parse(""), None);
    }
}
