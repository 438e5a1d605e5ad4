//! Locks that are held for long, by looks from outside: a hold is the same one as long as its number is.

use std::collections::HashMap;

use poundlock_statfile::check::{LockId, Serial};
use poundlock_statfile::{LiveThread, LockKind};

use crate::observe::calls;
use crate::observe::proc::Seen;

use super::feed::{Feed, Hold};

/// A hold, by its thread's record, its lock and its number.
type Which = (usize, LockId, u32);

/// A hold that has lasted for longer than is wished.
#[derive(Debug, Clone)]
pub(super) struct Long {
    pub(super) serial: Serial,
    pub(super) hold: Hold,
    /// For how long it has been held, at least.
    pub(super) for_ns: u64,
    /// The call in which its holder slept for all of that time; `None` if there was none.
    pub(super) call: Option<String>,
}

/// What earlier looks have seen of a process.
#[derive(Debug, Default)]
pub(super) struct Holds {
    known: HashMap<Which, Known>,
}

#[derive(Debug)]
struct Known {
    since: u64,
    last: u64,
    serial: Serial,
    hold: Hold,
    /// In which call its holder has slept since when.
    asleep: Option<(String, u64)>,
    watched: bool,
    told: bool,
}

impl Holds {
    /// Looks at what threads hold. `state` says what a thread does, by its id in the process's own namespace.
    pub(super) fn look(
        &mut self,
        feed: &Feed,
        threads: &[LiveThread],
        now: u64,
        limit_ns: u64,
        state: &dyn Fn(u32) -> Seen,
    ) -> Vec<Long> {
        let mut long = Vec::new();
        for thread in threads {
            let holds = feed.holds(thread.record);
            // Only whoever has had a lock at the look before as well is worth a look at what it does.
            let known =
                holds.iter().any(|hold| self.known.contains_key(&(thread.record, hold.lock, hold.sequence)));
            let call = if known { call(feed, thread, state) } else { None };
            for hold in holds {
                let which = (thread.record, hold.lock, hold.sequence);
                let known = self.known.entry(which).or_insert_with(|| Known {
                    since: now,
                    last: now,
                    serial: feed.serial(thread.record),
                    hold: hold.clone(),
                    asleep: None,
                    watched: false,
                    told: false,
                });
                known.last = now;
                if 2 * (now - known.since) >= limit_ns && !known.watched {
                    known.watched = feed.watch(&hold);
                }
                long.extend(known.look(call.as_deref(), now, limit_ns));
            }
        }
        // Those that are over are told if they have lasted, too.
        self.known.retain(|_, known| known.last == now || known.watched);
        long
    }

    /// A hold that was asked about is over: for how long it was held at least, and it, if it has not been told.
    pub(super) fn let_go(
        &mut self,
        (serial, lock, sequence): (Serial, LockId, u32),
        now: u64,
        limit_ns: u64,
    ) -> Option<(u64, Option<Long>)> {
        let of = |(which, known): &(&Which, &Known)| {
            known.serial == serial && which.1 == lock && which.2 == sequence
        };
        let which = *self.known.iter().find(of)?.0;
        let known = self.known.remove(&which)?;
        let for_ns = known.last.max(known.since) - known.since;
        let long = (!known.told && now - known.since >= limit_ns && for_ns >= limit_ns).then_some(Long {
            serial,
            hold: known.hold,
            for_ns,
            call: None,
        });
        Some((for_ns, long))
    }
}

impl Known {
    /// Whether it is to be told now. Of a holder that sleeps is waited whether it does so for long enough.
    fn look(&mut self, call: Option<&str>, now: u64, limit_ns: u64) -> Option<Long> {
        match (&self.asleep, call) {
            (Some((before, _)), Some(call)) if before == call => {}
            (_, call) => self.asleep = call.map(|call| (call.to_owned(), now)),
        }
        let for_ns = now - self.since;
        if self.told || for_ns < limit_ns {
            return None;
        }
        let asleep = self.asleep.as_ref();
        if asleep.is_some_and(|(_, since)| now - since < limit_ns) {
            return None;
        }
        self.told = true;
        let call = asleep.map(|(call, _)| call.clone());
        Some(Long { serial: self.serial, hold: self.hold.clone(), for_ns, call })
    }
}

/// The call in which a thread sleeps, if it is one that waits for time, for input or for other threads. Waits for
/// locks are none.
fn call(feed: &Feed, thread: &LiveThread, state: &dyn Fn(u32) -> Seen) -> Option<String> {
    let wait = feed.wait(thread.record);
    if let Some(wait) = wait {
        return match wait.kind {
            LockKind::Condition => Some("a wait for a condition variable".to_owned()),
            LockKind::Barrier => Some("a wait for a barrier".to_owned()),
            LockKind::Semaphore => Some("a wait for a semaphore".to_owned()),
            LockKind::Join => Some("a wait for the end of a thread".to_owned()),
            _ => None,
        };
    }
    match state(thread.tid) {
        Seen::Call(call) if call.waits_for_futex() => Some("a wait for a futex".to_owned()),
        Seen::Call(call) => Some(format!("{}()", calls::name(call.number))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use poundlock_statfile::check::Mode;

    use super::*;

    fn known() -> Known {
        let hold = Hold::of(1, Mode::Exclusive, 7);
        Known { since: 1000, last: 1000, serial: Serial(3), hold, asleep: None, watched: true, told: false }
    }

    #[test]
    fn a_hold_is_told_once() {
        let mut known = known();
        assert!(known.look(None, 1050, 100).is_none());
        let long = known.look(None, 1100, 100).expect("long enough");
        assert_eq!((long.for_ns, long.call), (100, None));
        assert!(known.look(None, 1200, 100).is_none());
    }

    #[test]
    fn a_sleep_counts_if_it_is_as_long_itself() {
        let mut sleeper = known();
        assert!(sleeper.look(Some("read()"), 1050, 100).is_none());
        assert!(sleeper.look(Some("read()"), 1120, 100).is_none());
        assert_eq!(
            sleeper.look(Some("read()"), 1150, 100).and_then(|long| long.call).as_deref(),
            Some("read()")
        );
        // One that woke up in between has slept, but not for that long.
        let mut waker = known();
        assert!(waker.look(Some("read()"), 1050, 100).is_none());
        assert!(waker.look(Some("write()"), 1120, 100).is_none());
        assert_eq!(waker.look(None, 1130, 100).map(|long| long.call), Some(None));
    }

    #[test]
    fn one_that_ended_before_it_was_told_is_told_by_its_end() {
        let mut holds = Holds::default();
        let mut over = known();
        over.last = 1150;
        holds.known.insert((0, LockId(1), 7), over);
        assert!(holds.let_go((Serial(3), LockId(1), 8), 1200, 100).is_none());
        let (for_ns, long) = holds.let_go((Serial(3), LockId(1), 7), 1200, 100).expect("known");
        assert!(for_ns == 150 && long.is_some());
        assert!(holds.let_go((Serial(3), LockId(1), 7), 1200, 100).is_none());
    }
}
