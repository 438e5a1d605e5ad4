//! Threads that wait for each other now, by looks from outside at who waits for what and who has it.
//!
//! Followed are waits for locks, to whoever holds them; of readers that wait for readers, to the writer that
//! waits between them; waits for the end of a thread, to that thread; and for semaphores that count as locks.
//! Waits for semaphores of arrays are in [`super::arrays`]. A thread that was woken from its wait for a
//! condition variable waits for the mutex, which is seen where that is the C library's; before, it can be
//! woken by anybody, so that it ends a chain, as does one at a barrier. Only where every thread of the
//! process waits, all of them without a limit on the time, there is nobody left to do so. A thread that waits
//! for a lock which an ended thread left locked will never get it, whatever others do.
//!
//! What is seen is true at one moment: each wait was there at two looks, and was the same one (its beginning tells),
//! and each hold is the same before and after the second. So all of them were there at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use poundlock_statfile::check::{Mode, Serial};
use poundlock_statfile::{LiveThread, LockKind};

use crate::observe::cycles::cycles;
use crate::observe::proc::Seen;

use super::feed::{Feed, Hold, Wait};

/// How long a cycle lasts before it is told: waits with a limit on their time can be in one for a moment.
pub(super) const LASTS_NS: u64 = 20_000_000;
/// How long all threads of a process wait before that is told.
const EVERYONE_NS: u64 = 500_000_000;
/// As many threads are taken into a picture.
const MOST: usize = 4096;

/// A thread that has been in one wait for two looks.
#[derive(Debug, Clone)]
pub(super) struct Party {
    pub(super) record: usize,
    pub(super) tid: u32,
    pub(super) serial: Serial,
    pub(super) wait: Wait,
    pub(super) stack: Arc<[u64]>,
    /// What it holds: where the program has that, and the hold.
    pub(super) holds: Vec<(u64, Hold)>,
    /// It has been woken from its wait for a condition variable, and waits for the mutex that lies there.
    pub(super) relocks: Option<u64>,
    /// The thread whose end it waits for, by its id.
    pub(super) joins: Option<u32>,
}

/// Threads of which none can go on.
#[derive(Debug, Clone)]
pub(super) struct Deadlock {
    /// Each waits for the next, and the last for the first, unless it is about everyone.
    pub(super) parties: Vec<Party>,
    /// All threads of the process wait, and nobody is left to wake one.
    pub(super) everyone: bool,
    /// The thread that ended and left the lock locked for which all parties wait, and its hold.
    pub(super) left: Option<(Serial, Hold)>,
}

/// What earlier looks have seen of a process.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The beginning of each thread's wait, by record.
    before: HashMap<usize, u64>,
    /// Cycles that have been seen once, and when.
    candidates: HashMap<Key, u64>,
    told: HashSet<Key>,
    /// Whom the last look has seen in the wait of the one before.
    pub(super) parties: Vec<Party>,
}

/// The waits of a deadlock, each by its record and its beginning.
type Key = Vec<(usize, u64)>;

fn key(parties: &[Party]) -> Key {
    let mut key: Key = parties.iter().map(|party| (party.record, party.wait.began)).collect();
    key.sort_unstable();
    key
}

/// As others come to wait for what an ended thread left, that is no new deadlock. No record has this number.
fn key_of_left((serial, hold): &(Serial, Hold)) -> Key {
    vec![(usize::MAX, u64::from(serial.0) << 32 | u64::from(hold.sequence))]
}

/// The threads that wait for what ended threads left locked: all those that wait for one lock together. Whose
/// that was, `left_by` says.
fn left_locked(
    parties: &[Party],
    left_by: impl Fn(&Party) -> Option<(Serial, Hold)>,
) -> impl Iterator<Item = Deadlock> {
    let mut found: Vec<Deadlock> = Vec::new();
    for party in parties.iter().filter(|party| !gives_up(party)) {
        let Some((serial, hold)) = left_by(party) else { continue };
        let same = |deadlock: &&mut Deadlock| {
            let left = deadlock.left.as_ref();
            left.is_some_and(|(of, left)| (*of, left.sequence) == (serial, hold.sequence))
        };
        match found.iter_mut().find(same) {
            Some(deadlock) => deadlock.parties.push(party.clone()),
            None => found.push(Deadlock {
                parties: vec![party.clone()],
                everyone: false,
                left: Some((serial, hold)),
            }),
        }
    }
    found.into_iter()
}

impl Waits {
    /// Looks at the threads of a process. `state` says what a thread does, by its id in the process's own
    /// namespace; `tasks` how many threads there are.
    pub(super) fn look(
        &mut self,
        feed: &Feed,
        threads: &[LiveThread],
        now: u64,
        state: &dyn Fn(u32) -> Seen,
        tasks: &dyn Fn() -> Option<usize>,
    ) -> Vec<Deadlock> {
        self.parties = self.stuck(feed, threads, state);
        let parties = &self.parties;
        if parties.is_empty() {
            self.candidates.clear();
            return Vec::new();
        }
        let mut seen: Vec<Deadlock> = cycles(&edges(parties))
            .into_iter()
            .map(|cycle| cycle.into_iter().map(|n| parties[n].clone()).collect::<Vec<_>>())
            .filter(|cycle| cycle.iter().all(|party| !gives_up(party) && stands(feed, party)))
            .map(|parties| Deadlock { parties, everyone: false, left: None })
            .collect();
        seen.extend(left_locked(parties, |party| feed.left_by(&party.wait, threads)));
        if seen.is_empty()
            && parties.len() == threads.len()
            && is_everyone(parties, state)
            && tasks() == Some(parties.len())
        {
            seen.push(Deadlock { parties: parties.clone(), everyone: true, left: None });
        }
        let mut candidates = HashMap::new();
        let mut lasting = Vec::new();
        for deadlock in seen {
            let key = deadlock.left.as_ref().map_or_else(|| key(&deadlock.parties), key_of_left);
            if self.told.contains(&key) {
                continue;
            }
            let since = self.candidates.get(&key).copied().unwrap_or(now);
            if now - since
                >= if deadlock.everyone || deadlock.left.is_some() { EVERYONE_NS } else { LASTS_NS }
            {
                self.told.insert(key);
                lasting.push(deadlock);
            } else {
                candidates.insert(key, since);
            }
        }
        self.candidates = candidates;
        lasting
    }

    /// The threads that are in the wait in which they were at the last look.
    fn stuck(&mut self, feed: &Feed, threads: &[LiveThread], state: &dyn Fn(u32) -> Seen) -> Vec<Party> {
        let before = std::mem::take(&mut self.before);
        let waits = threads.iter().filter_map(|thread| Some((thread, thread.wait?.began)));
        self.before = waits.clone().map(|(thread, began)| (thread.record, began)).collect();
        let same = waits.filter(|(thread, began)| before.get(&thread.record) == Some(began));
        let of_pthread = |pthread: u64| {
            threads.iter().find(|thread| feed.pthread(thread.record) == pthread).map(|thread| thread.tid)
        };
        same.take(MOST)
            .filter_map(|(thread, began)| {
                let wait = feed.wait(thread.record).filter(|wait| wait.began == began)?;
                let holds = feed.holds(thread.record).into_iter();
                let holds =
                    holds.filter_map(|hold| Some((feed.describe(hold.lock)?.address, hold))).collect();
                let joins = match wait.kind {
                    LockKind::Join => wait.joins.and_then(of_pthread).or_else(|| joined(state(thread.tid))),
                    _ => None,
                };
                let relocks = if wait.kind == LockKind::Condition { word(state(thread.tid)) } else { None };
                Some(Party {
                    record: thread.record,
                    tid: thread.tid,
                    serial: feed.serial(thread.record),
                    wait,
                    stack: feed.wait_stack(thread.record),
                    holds,
                    relocks: relocks.filter(|word| *word != wait.address),
                    joins,
                })
            })
            .collect()
    }
}

/// The word that is waited for in this call: that of one of the C library's mutexes is its first.
fn word(seen: Seen) -> Option<u64> {
    match seen {
        Seen::Call(call) if call.waits_for_futex() => Some(call.arguments[0]),
        _ => None,
    }
}

/// The thread whose end is waited for in this call: the C library has a joiner wait on a word that has its id.
fn joined(seen: Seen) -> Option<u32> {
    match seen {
        Seen::Call(call) if call.waits_for_futex() => u32::try_from(call.arguments[2]).ok(),
        _ => None,
    }
}

/// Whether its wait ends by itself. One that was woken from its wait for a condition variable has nothing left of
/// the time, and waits for the mutex as long as that takes. The system call says nothing: locks of ours wait with a
/// limit even where they never give up.
pub(super) fn gives_up(party: &Party) -> bool {
    party.wait.timed && party.relocks.is_none()
}

/// Whether it waits to read.
fn reads(wait: &Wait) -> bool {
    matches!(wait.mode, Mode::Read | Mode::FairRead)
}

/// Whom each of the threads waits for, of those that wait themselves.
pub(super) fn edges(parties: &[Party]) -> Vec<Vec<(usize, ())>> {
    let mut holders: HashMap<u64, Vec<(usize, Mode)>> = HashMap::new();
    let mut writers: HashMap<u64, Vec<usize>> = HashMap::new();
    let by_tid: HashMap<u32, usize> = parties.iter().enumerate().map(|(n, party)| (party.tid, n)).collect();
    for (n, party) in parties.iter().enumerate() {
        for (address, hold) in &party.holds {
            holders.entry(*address).or_default().push((n, hold.mode));
        }
        if party.wait.mode == Mode::Exclusive {
            writers.entry(party.wait.address).or_default().push(n);
        }
    }
    let of = |(n, party): (usize, &Party)| -> Vec<(usize, ())> {
        let address = party.wait.address;
        let held = holders.get(&address).map_or(&[][..], Vec::as_slice);
        let mut next: Vec<usize> = match party.wait.kind {
            LockKind::Join => party.joins.and_then(|tid| by_tid.get(&tid).copied()).into_iter().collect(),
            LockKind::Condition => {
                let held = party.relocks.and_then(|mutex| holders.get(&mutex));
                held.into_iter().flatten().map(|(n, _)| *n).collect()
            }
            // Who holds a semaphore of an array, the array says: see `arrays`.
            LockKind::Barrier | LockKind::Futex | LockKind::Array => Vec::new(),
            _ if reads(&party.wait) => {
                let exclusive = held.iter().filter(|(_, mode)| *mode == Mode::Exclusive).map(|(n, _)| *n);
                let mut next: Vec<usize> = exclusive.collect();
                if next.is_empty() {
                    let waiting = writers.get(&address).into_iter().flatten().copied();
                    next.extend(waiting.filter(|&writer| writer != n));
                }
                next
            }
            _ => held.iter().map(|(n, _)| *n).collect(),
        };
        next.dedup();
        next.into_iter().map(|n| (n, ())).collect()
    };
    parties.iter().enumerate().map(of).collect()
}

/// Whether it waits as it did, and holds what it held.
pub(super) fn stands(feed: &Feed, party: &Party) -> bool {
    let now = feed.holds(party.record);
    feed.wait(party.record).is_some_and(|wait| wait.began == party.wait.began)
        && party.holds.iter().all(|(_, hold)| {
            now.iter().any(|other| (other.lock, other.sequence) == (hold.lock, hold.sequence))
        })
}

/// Whether all of these wait for each other or for a word from each other, with no limit on the time, and nobody
/// outside of the process can give it.
fn is_everyone(parties: &[Party], state: &dyn Fn(u32) -> Seen) -> bool {
    let alone = |party: &Party| {
        let private = !matches!(
            party.wait.kind,
            LockKind::SharedMutex
                | LockKind::RobustMutex
                | LockKind::SharedRwReaders
                | LockKind::SharedRwWriters
                | LockKind::Semaphore
                | LockKind::Futex
                | LockKind::Array
        );
        let unlimited = match state(party.tid) {
            Seen::Call(call) => {
                let [_, operation, _, limit, ..] = call.arguments;
                let is_private =
                    operation & libc::FUTEX_PRIVATE_FLAG as u64 != 0 || party.wait.kind == LockKind::Join;
                call.number == libc::SYS_futex && call.waits_for_futex() && limit == 0 && is_private
            }
            _ => false,
        };
        private && unlimited && !gives_up(party)
    };
    parties.iter().all(alone)
}

#[cfg(test)]
pub(super) mod tests {
    use poundlock_statfile::check::LockId;

    use super::*;
    use crate::observe::calls::Call;

    /// A thread that waits for `address`, and holds these.
    pub(in crate::check) fn party(tid: u32, kind: LockKind, address: u64, holds: &[(u64, Mode)]) -> Party {
        let hold = |&(address, mode)| (address, Hold::of(address as u32, mode, 1));
        let (kind, mode) = match kind {
            LockKind::RwReaders => (LockKind::RwWriters, Mode::FairRead),
            kind => (kind, Mode::Exclusive),
        };
        Party {
            record: tid as usize,
            tid,
            serial: Serial(tid),
            wait: Wait {
                lock: LockId(address as u32),
                kind,
                mode,
                address,
                began: 1,
                tag: address << 32,
                timed: false,
                joins: None,
            },
            stack: Arc::default(),
            holds: holds.iter().map(hold).collect(),
            relocks: None,
            joins: (kind == LockKind::Join).then_some(address as u32),
        }
    }

    fn found(parties: &[Party]) -> Vec<Vec<usize>> {
        cycles(&edges(parties))
    }

    const MUTEX: LockKind = LockKind::Mutex;
    const ALONE: Mode = Mode::Exclusive;

    #[test]
    fn two_orders_meet() {
        assert_eq!(found(&[party(1, MUTEX, 8, &[(9, ALONE)]), party(2, MUTEX, 9, &[(8, ALONE)])]), [[0, 1]]);
        assert!(found(&[party(1, MUTEX, 8, &[(9, ALONE)]), party(2, MUTEX, 7, &[(8, ALONE)])]).is_empty());
    }

    #[test]
    fn a_thread_can_wait_for_itself() {
        assert_eq!(found(&[party(1, MUTEX, 8, &[(8, ALONE)])]), [[0]]);
        // One that reads and wants to write.
        assert_eq!(found(&[party(1, LockKind::RwWriters, 8, &[(8, Mode::Read)])]), [[0]]);
    }

    #[test]
    fn readers_wait_for_writers_and_for_those_that_wait() {
        let reads = (8, Mode::FairRead);
        // It reads, a writer waits, and it reads again behind that.
        let both = [party(1, LockKind::RwReaders, 8, &[reads]), party(2, LockKind::RwWriters, 8, &[])];
        assert_eq!(found(&both), [[0, 1]]);
        // A reader does not wait for readers.
        assert!(found(&both[..1]).is_empty());
        let writer = party(2, MUTEX, 9, &[(8, ALONE)]);
        assert_eq!(found(&[party(1, LockKind::RwReaders, 8, &[(9, ALONE)]), writer]), [[0, 1]]);
    }

    #[test]
    fn joins_lead_to_their_thread() {
        let joiner = party(1, LockKind::Join, 2, &[(8, ALONE)]);
        assert_eq!(found(&[joiner.clone(), party(2, MUTEX, 8, &[])]), [[0, 1]]);
        assert!(found(&[joiner, party(3, MUTEX, 8, &[])]).is_empty());
    }

    #[test]
    fn all_that_wait_for_what_an_ended_thread_left_are_one_deadlock() {
        let mut timed = party(4, MUTEX, 8, &[]);
        timed.wait.timed = true;
        let all = [party(1, MUTEX, 8, &[]), party(2, MUTEX, 9, &[]), party(3, MUTEX, 8, &[]), timed];
        let left_by = |party: &Party| (party.wait.address == 8).then(|| (Serial(7), Hold::of(8, ALONE, 1)));
        let found: Vec<Deadlock> = left_locked(&all, left_by).collect();
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(one.parties.iter().map(|party| party.tid).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(one.left.as_ref().map(|(serial, _)| *serial), Some(Serial(7)));
    }

    #[test]
    fn what_anybody_can_end_ends_a_chain() {
        let waiter = party(1, LockKind::Condition, 8, &[(9, ALONE)]);
        assert!(found(&[waiter, party(2, MUTEX, 9, &[(8, ALONE)])]).is_empty());
    }

    #[test]
    fn a_thread_that_was_woken_waits_for_its_mutex() {
        let mut woken = party(1, LockKind::Condition, 8, &[(9, ALONE)]);
        woken.relocks = Some(7);
        assert_eq!(found(&[woken, party(2, MUTEX, 9, &[(7, ALONE)])]), [[0, 1]]);
    }

    #[test]
    fn a_wait_with_a_limit_is_given_up() {
        let mut waiter = party(1, MUTEX, 8, &[]);
        assert!(!gives_up(&waiter));
        waiter.wait.timed = true;
        assert!(gives_up(&waiter));
        let mut woken = party(1, LockKind::Condition, 8, &[]);
        woken.wait.timed = true;
        assert!(gives_up(&woken));
        woken.relocks = Some(7);
        assert!(!gives_up(&woken));
    }

    #[test]
    fn everyone_is_everyone_without_a_limit() {
        let asleep = |limit: u64, operation: libc::c_int| {
            let arguments = [0x1000, operation as u64, 0, limit, 0, 0];
            move |_: u32| Seen::Call(Call { number: libc::SYS_futex, arguments })
        };
        let private = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let waiter = [party(1, LockKind::Condition, 8, &[])];
        assert!(is_everyone(&waiter, &asleep(0, private)));
        assert!(
            !is_everyone(&waiter, &asleep(0x2000, private))
                && !is_everyone(&waiter, &asleep(0, libc::FUTEX_WAIT))
        );
        assert!(!is_everyone(&waiter, &|_| Seen::Ready));
        assert!(!is_everyone(&[party(1, LockKind::Semaphore, 8, &[])], &asleep(0, private)));
        assert_eq!(joined(asleep(0, private)(1)), Some(0));
    }
}
