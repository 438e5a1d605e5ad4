//! Readers-writer locks under their driver.

use poundlock_core::platform::Deadline;
use poundlock_core::rwlock::{Policy, RawRwLock};

use crate::Alone;
use crate::platform::Sim;

/// A readers-writer lock under its driver.
pub struct RwLock {
    lock: Alone<RawRwLock<Sim>>,
    policy: Policy,
}

/// The names of all, each for a policy.
pub(crate) const NAMES: [(&str, Policy); 3] = [
    ("rw-phase-fair", Policy::PhaseFair),
    ("rw-reader-preferring", Policy::ReaderPreferring),
    ("rw-writer-preferring", Policy::WriterPreferring),
];

impl RwLock {
    /// A new one, if this is one's name.
    pub fn make(name: &str) -> Option<RwLock> {
        let (_, policy) = NAMES.into_iter().find(|(known, _)| *known == name)?;
        Some(RwLock { lock: Alone(RawRwLock::new()), policy })
    }

    /// The lock itself.
    pub(crate) fn raw(&self) -> &RawRwLock<Sim> {
        &self.lock.0
    }

    /// Who goes first.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// As a reader; false if it gave up.
    pub(crate) fn read(&self, deadline: Option<&Deadline>) -> bool {
        match deadline {
            None => {
                self.raw().lock_read(self.policy);
                true
            }
            Some(deadline) => self.raw().lock_read_until(self.policy, deadline),
        }
    }

    /// As the writer; false if it gave up.
    pub(crate) fn write(&self, deadline: Option<&Deadline>) -> bool {
        match deadline {
            None => {
                self.raw().lock_write(self.policy);
                true
            }
            Some(deadline) => self.raw().lock_write_until(self.policy, deadline),
        }
    }

    /// As the upgradable reader; false if it gave up.
    pub(crate) fn look(&self, deadline: Option<&Deadline>) -> bool {
        match deadline {
            None => {
                self.raw().lock_upgradable(self.policy);
                true
            }
            Some(deadline) => self.raw().lock_upgradable_until(self.policy, deadline),
        }
    }

    /// From the upgradable reader to the writer; false if it gave up.
    pub(crate) fn upgrade(&self, deadline: Option<&Deadline>) -> bool {
        match deadline {
            None => {
                self.raw().upgrade();
                true
            }
            Some(deadline) => self.raw().upgrade_until(deadline),
        }
    }
}
