//! The constants of all policies together: for checkers, which make rare paths common, and for simulated
//! kernels.

use core::any::Any;

use crate::platform::Tunable;
use crate::{adaptive, handoff, poundlock, qspin, rwlock};

/// The constants of each lock.
#[derive(Clone, Copy, Debug)]
pub struct Tunings {
    /// Of [`poundlock::Learning`].
    pub poundlock: poundlock::Tuning,
    /// Of [`adaptive::RawAdaptive`].
    pub adaptive: adaptive::Tuning,
    /// Of [`handoff::RawHandoff`].
    pub handoff: handoff::Tuning,
    /// Of [`rwlock::RawRwLock`].
    pub rwlock: rwlock::Tuning,
    /// Of [`qspin::RawSpin`].
    pub qspin: qspin::Tuning,
}

impl Tunings {
    /// The usual ones.
    pub const USER_SPACE: Tunings = Tunings {
        poundlock: Tunable::USER_SPACE,
        adaptive: Tunable::USER_SPACE,
        handoff: Tunable::USER_SPACE,
        rwlock: Tunable::USER_SPACE,
        qspin: Tunable::USER_SPACE,
    };

    /// What [`Platform::tuning`](crate::Platform::tuning) returns where these are in force.
    #[inline]
    pub fn of<T: Tunable>(&self) -> T {
        let all: [&dyn Any; 5] = [&self.poundlock, &self.adaptive, &self.handoff, &self.rwlock, &self.qspin];
        all.into_iter().find_map(<dyn Any>::downcast_ref).copied().unwrap_or(T::USER_SPACE)
    }
}

#[cfg(test)]
mod tests {
    use super::Tunings;

    #[test]
    fn each_lock_finds_its_own() {
        let mut tunings = Tunings::USER_SPACE;
        tunings.qspin.handoff_after = 17;
        tunings.adaptive.handoff_after = 18;
        assert_eq!(tunings.of::<crate::qspin::Tuning>().handoff_after, 17);
        assert_eq!(tunings.of::<crate::adaptive::Tuning>().handoff_after, 18);
    }
}
