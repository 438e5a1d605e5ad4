//! Readers-writer locks under their driver.

use poundlock_core::platform::Deadline;
use poundlock_core::rwlock::{Preference, RawRwLock};
use poundlock_names::Named;

use crate::Alone;
use crate::platform::Sim;

/// A readers-writer lock under its driver.
pub struct RwLock {
    lock: Alone<RawRwLock<Sim>>,
    policy: Preference,
}

impl RwLock {
    /// A new lock of this name, if there is one.
    pub fn make(name: &str) -> Option<RwLock> {
        Some(RwLock { lock: Alone(RawRwLock::new()), policy: Preference::parse(name)? })
    }

    /// The lock itself.
    pub(crate) fn raw(&self) -> &RawRwLock<Sim> {
        &self.lock.0
    }

    /// As a reader; false if it gave up.
    pub(crate) fn read(&self, deadline: Option<&Deadline>) -> bool {
        let (lock, policy) = (self.raw(), self.policy);
        within(deadline, || lock.lock_read(policy), |deadline| lock.lock_read_until(policy, deadline))
    }

    /// As the writer; false if it gave up.
    pub(crate) fn write(&self, deadline: Option<&Deadline>) -> bool {
        let (lock, policy) = (self.raw(), self.policy);
        within(deadline, || lock.lock_write(policy), |deadline| lock.lock_write_until(policy, deadline))
    }

    /// As the upgradable reader; false if it gave up.
    pub(crate) fn look(&self, deadline: Option<&Deadline>) -> bool {
        let (lock, policy) = (self.raw(), self.policy);
        within(
            deadline,
            || lock.lock_upgradable(policy),
            |deadline| lock.lock_upgradable_until(policy, deadline),
        )
    }

    /// From the upgradable reader to the writer; false if it gave up.
    pub(crate) fn upgrade(&self, deadline: Option<&Deadline>) -> bool {
        let lock = self.raw();
        within(deadline, || lock.upgrade(), |deadline| lock.upgrade_until(deadline))
    }
}

/// With a deadline, if there is one.
fn within(deadline: Option<&Deadline>, always: impl FnOnce(), until: impl FnOnce(&Deadline) -> bool) -> bool {
    match deadline {
        None => {
            always();
            true
        }
        Some(deadline) => until(deadline),
    }
}
