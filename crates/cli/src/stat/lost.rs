//! What *lost* is, in every view: waiting for locks as a share of the time in which threads had something to
//! do.
//!
//! A thread has something to do while it lives, less three parts:
//!
//! 1. idle time: a second or more (or all its life) in which it was asleep for nine tenths, nearly all of that
//!    for conditions, semaphores, joins, futexes or requests, and waited for no lock;
//! 2. sleep between requests, in calls that wait for others or for a time
//!    ([`Times::for_events_ns`](super::sampler::Times));
//! 3. sleep in which nobody looked at it.
//!
//! The sampler measures all three. Where it has seen less than nine tenths of the threads' lives (short runs,
//! `--read`), the first part is known of whole lives alone, from what threads have recorded of their waits.
//!
//! Only what is acquired can be lost for, so that the shares of all rows add up to the whole share, which is
//! 1 at most.

use poundlock_statfile::LockKind;

use super::report::ratio;
use super::sampler::Times;

/// The time of the threads of a report, of a look of `top`, or of anything else that has shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    /// Waiting for locks.
    pub(crate) lost_ns: u64,
    /// The time in which threads had something to do, `lost_ns` included.
    pub(crate) busy_ns: u64,
    /// Whether the sampler has measured that, of all threads; else it is of those that have records.
    pub(crate) is_sampled: bool,
}

/// What a thread has recorded of its waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) lived_ns: u64,
    pub(crate) lock_wait_ns: u64,
    /// Waits for what is no lock.
    pub(crate) other_wait_ns: u64,
}

impl Recorded {
    fn idle_ns(&self) -> u64 {
        let is_idle = self.lock_wait_ns == 0 && self.other_wait_ns / 9 >= self.lived_ns / 10;
        if is_idle { self.other_wait_ns } else { 0 }
    }
}

impl ThreadTime {
    /// Of threads that lived for `lived_ns` together, and waited `lost_ns` of that for locks; `times` is what
    /// the sampler found.
    pub(crate) fn new(
        lost_ns: u64,
        lived_ns: u64,
        recorded: impl IntoIterator<Item = Recorded>,
        times: Option<&Times>,
    ) -> ThreadTime {
        let seen = times.filter(|times| times.lived_ns > 0 && times.lived_ns >= lived_ns / 10 * 9);
        let busy_ns = seen.map_or_else(
            || {
                let idle: u64 = recorded.into_iter().map(|thread| thread.idle_ns()).sum();
                lived_ns.saturating_sub(idle)
            },
            Times::busy_ns,
        );
        // The sampler estimates, and the recorder measures: who waited for a lock had something to do.
        ThreadTime { lost_ns, busy_ns: busy_ns.max(lost_ns), is_sampled: seen.is_some() }
    }

    /// The share that was lost.
    pub(crate) fn lost(&self) -> f64 {
        ratio(self.lost_ns, self.busy_ns)
    }

    /// The share that was lost for locks of a kind; `None` of what is no lock.
    pub(crate) fn share(&self, kind: LockKind, wait_ns: u64) -> Option<f64> {
        kind.is_acquired().then(|| ratio(wait_ns, self.busy_ns))
    }

    /// Whether a wait for anything takes this share of the time or more, so that it is worth a closer look.
    pub(crate) fn matters(&self, wait_ns: u64, share: f64) -> bool {
        ratio(wait_ns, self.busy_ns) >= share
    }
}

/// A share that is lost, in a table; of what is no lock there is none.
pub(crate) fn cell(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), super::text::percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::sampler::{Estimate, Sleep};

    const MS: u64 = 1_000_000;

    #[test]
    fn threads_that_wait_for_conditions_have_something_to_do_unless_they_are_idle() {
        let times = Times {
            lived_ns: 1000 * MS,
            running_ns: 200 * MS,
            ready_ns: Some(100 * MS),
            asleep: [
                (Sleep::Lock, Estimate { ns: 100 * MS, samples: 10 }),
                (Sleep::Condition, Estimate { ns: 200 * MS, samples: 20 }),
                (Sleep::Call("epoll_wait".to_owned()), Estimate { ns: 50 * MS, samples: 5 }),
            ]
            .into(),
            idle: [(Sleep::Condition, Estimate { ns: 300 * MS, samples: 30 })].into(),
            for_events_ns: 50 * MS,
            unknown_ns: 50 * MS,
            ..Times::default()
        };
        let time = ThreadTime::new(120 * MS, 1000 * MS, [], Some(&times));
        assert_eq!(time, ThreadTime { lost_ns: 120 * MS, busy_ns: 600 * MS, is_sampled: true });
        assert_eq!(time.share(LockKind::Mutex, 60 * MS), Some(0.1));
        assert_eq!(time.share(LockKind::Condition, 60 * MS), None);
        // A sampler that saw half of it only says nothing of the rest.
        let idle = Recorded { lived_ns: 1000 * MS, lock_wait_ns: 0, other_wait_ns: 950 * MS };
        let waits = Recorded { lived_ns: 1000 * MS, lock_wait_ns: MS, other_wait_ns: 950 * MS };
        let time = ThreadTime::new(MS, 2000 * MS, [idle, waits], Some(&times));
        assert_eq!(time.busy_ns, 1050 * MS);
    }

    #[test]
    fn nothing_is_more_than_all_of_it() {
        let times = Times { lived_ns: 10 * MS, ..Times::default() };
        let time = ThreadTime::new(30 * MS, 10 * MS, [], Some(&times));
        assert_eq!((time.lost(), time.share(LockKind::Mutex, 30 * MS)), (1.0, Some(1.0)));
        assert_eq!(ThreadTime::default().lost(), 0.0);
    }
}
