//! Threads, of one process or of several, that wait for each other through semaphore arrays of ours.
//!
//! An array says which processes have taken from a semaphore with `SEM_UNDO`: those hold it. Each of their threads
//! could give it back. So a thread that waits for a semaphore waits for ever if whoever holds it is a process that is
//! followed here, of which every thread waits for ever. Who takes without `SEM_UNDO` is not known, nor is who holds an
//! array of the kernel's, which names the last process that used a semaphore and no other.
//!
//! Processes that only wait for more of the same semaphore hold nothing back: they are taken for consumers, whom a
//! producer serves.
//!
//! What is seen is true at one moment, as in [`super::deadlock`]: a thread that is in one wait at two looks has
//! given nothing back in between. What arrays say is asked at the later look.

use std::collections::{HashMap, HashSet};

use poundlock_statfile::LockKind;

use crate::observe::cycles::cycles;

use super::deadlock::{LASTS_NS, Party, edges, gives_up};

/// The threads of a process that wait, and were in the same waits before.
pub(super) struct Waiting<'p> {
    pub(super) pid: u32,
    pub(super) parties: &'p [Party],
    /// No thread of the process does anything else.
    pub(super) all: bool,
}

/// A thread: the place of its process, and its own among the parties of that.
pub(super) type Place = (usize, usize);

/// What has to be for a wait never to end.
enum Needs {
    /// One of these waits for ever.
    Any(Vec<usize>),
    /// Each of these holders does, with all of its threads. Empty: somebody else may hold it.
    Every(Vec<Vec<usize>>),
}

/// Cycles that lead through arrays. `holders` says which processes have taken from a semaphore of an array.
pub(super) fn deadlocks(
    processes: &[Waiting<'_>],
    holders: &dyn Fn(u32, u16) -> Vec<u32>,
) -> Vec<Vec<Place>> {
    let places: Vec<Place> = (0..)
        .zip(processes)
        .flat_map(|(process, waiting)| (0..waiting.parties.len()).map(move |party| (process, party)))
        .collect();
    let party = |n: usize| &processes[places[n].0].parties[places[n].1];
    let mut first = 0;
    let mut of_process: Vec<Vec<usize>> = Vec::new();
    let mut needs: Vec<Needs> = Vec::new();
    for waiting in processes {
        let nodes = first..first + waiting.parties.len();
        let within = edges(waiting.parties);
        needs.extend(
            within.into_iter().map(|to| Needs::Any(to.into_iter().map(|(n, ())| first + n).collect())),
        );
        first = nodes.end;
        of_process.push(nodes.collect());
    }
    for (n, needs) in needs.iter_mut().enumerate() {
        let wait = &party(n).wait;
        if gives_up(party(n)) {
            *needs = Needs::Any(Vec::new());
        } else if wait.kind == LockKind::Array {
            let (id, number) = LockKind::of_array(wait.address);
            let groups = holders(id, number).into_iter().map(|pid| {
                let process = processes.iter().position(|waiting| waiting.pid == pid && waiting.all)?;
                let others = |&n: &usize| party(n).wait.address != wait.address;
                of_process[process].iter().any(others).then(|| of_process[process].clone())
            });
            *needs = Needs::Every(groups.collect::<Option<_>>().unwrap_or_default());
        }
    }
    let stuck = for_ever(&needs);
    let next = |n: usize| -> Vec<(usize, ())> {
        let to: Vec<usize> = match &needs[n] {
            _ if !stuck[n] => Vec::new(),
            Needs::Any(to) => to.iter().copied().filter(|&to| stuck[to]).collect(),
            Needs::Every(groups) => {
                let others: Vec<usize> = groups
                    .iter()
                    .flatten()
                    .copied()
                    .filter(|&to| party(to).wait.address != party(n).wait.address)
                    .collect();
                // Who waits for the end of one of them says less than that one.
                let ends = |&to: &usize| party(to).wait.kind == LockKind::Join;
                let busy: Vec<usize> = others.iter().copied().filter(|to| !ends(to)).collect();
                if busy.is_empty() { others } else { busy }
            }
        };
        to.into_iter().map(|to| (to, ())).collect()
    };
    let graph: Vec<Vec<(usize, ())>> = (0..places.len()).map(next).collect();
    let through_arrays = |cycle: &Vec<usize>| cycle.iter().any(|&n| party(n).wait.kind == LockKind::Array);
    let found = cycles(&graph).into_iter().filter(through_arrays);
    found.map(|cycle| cycle.into_iter().map(|n| places[n]).collect()).collect()
}

/// Which of the waits never end: the most that can be true of all together.
fn for_ever(needs: &[Needs]) -> Vec<bool> {
    let mut stuck = vec![true; needs.len()];
    loop {
        let stands = |n: usize| match &needs[n] {
            Needs::Any(to) => to.iter().any(|&to| stuck[to]),
            Needs::Every(groups) => !groups.is_empty() && groups.iter().flatten().all(|&to| stuck[to]),
        };
        let ends: Vec<usize> = (0..needs.len()).filter(|&n| stuck[n] && !stands(n)).collect();
        if ends.is_empty() {
            return stuck;
        }
        ends.into_iter().for_each(|n| stuck[n] = false);
    }
}

/// A deadlock: the number of each process, and the record and the beginning of each wait.
pub(super) type Key = Vec<(usize, usize, u64)>;

/// What has been seen before.
#[derive(Debug, Default)]
pub(super) struct Before {
    candidates: HashMap<Key, u64>,
    told: HashSet<Key>,
}

impl Before {
    /// Those of these that last, and were not told.
    pub(super) fn lasting<T>(&mut self, seen: Vec<(Key, T)>, now: u64) -> Vec<T> {
        let before = std::mem::take(&mut self.candidates);
        let mut lasting = Vec::new();
        for (mut key, deadlock) in seen {
            key.sort_unstable();
            if self.told.contains(&key) {
                continue;
            }
            let since = before.get(&key).copied().unwrap_or(now);
            if now - since >= LASTS_NS {
                self.told.insert(key);
                lasting.push(deadlock);
            } else {
                self.candidates.insert(key, since);
            }
        }
        lasting
    }
}

#[cfg(test)]
mod tests {
    use poundlock_statfile::check::Mode;

    use super::super::deadlock::tests::party;
    use super::*;

    const ARRAY: u32 = 1 << 30 | 5;

    fn waits_for(tid: u32, number: u16) -> Party {
        party(tid, LockKind::Array, LockKind::in_array(ARRAY, number), &[])
    }

    /// By the process of each thread. Semaphore `n` is held by the processes of `held[n]`.
    fn found(processes: &[(u32, bool, Vec<Party>)], held: &[&[u32]]) -> Vec<Vec<Place>> {
        let waiting: Vec<Waiting<'_>> =
            processes.iter().map(|(pid, all, parties)| Waiting { pid: *pid, parties, all: *all }).collect();
        deadlocks(&waiting, &|id, number| {
            assert_eq!(id, ARRAY);
            held[usize::from(number)].to_vec()
        })
    }

    #[test]
    fn processes_wait_for_each_other() {
        let both = [(10, true, vec![waits_for(10, 1)]), (20, true, vec![waits_for(20, 0)])];
        assert_eq!(found(&both, &[&[10], &[20]]), [[(0, 0), (1, 0)]]);
        // Of one of them another thread runs.
        let runs = [(10, true, vec![waits_for(10, 1)]), (20, false, vec![waits_for(20, 0)])];
        assert!(found(&runs, &[&[10], &[20]]).is_empty());
        // Nobody is known to hold it; or a process that is not followed holds it, too.
        assert!(found(&both, &[&[10], &[]]).is_empty());
        assert!(found(&both, &[&[10], &[20, 30]]).is_empty());
    }

    #[test]
    fn all_holders_have_to_wait() {
        let three = |last| {
            [
                (10, true, vec![waits_for(10, 1)]),
                (20, true, vec![waits_for(20, 0)]),
                (30, true, vec![waits_for(30, last)]),
            ]
        };
        // Two hold semaphore 1; the third waits for what nobody holds.
        assert!(found(&three(2), &[&[10], &[20, 30], &[]]).is_empty());
        assert!(!found(&three(0), &[&[10], &[20, 30], &[]]).is_empty());
    }

    #[test]
    fn consumers_are_served_by_others() {
        let one = [(10, true, vec![waits_for(10, 0)])];
        assert!(found(&one, &[&[10]]).is_empty());
        let two = [(10, true, vec![waits_for(10, 0)]), (20, true, vec![waits_for(20, 0)])];
        assert!(found(&two, &[&[10, 20]]).is_empty());
    }

    #[test]
    fn threads_of_one_process_and_other_locks() {
        let holds = |mut party: Party, address| {
            party.holds =
                super::super::deadlock::tests::party(1, LockKind::Mutex, 1, &[(address, Mode::Exclusive)])
                    .holds;
            party
        };
        // The main thread waits for the end of one that waits for the semaphore, which its process holds; the
        // other one waits for the mutex of the first.
        let threads = vec![
            party(10, LockKind::Join, 11, &[]),
            holds(waits_for(11, 0), 8),
            party(12, LockKind::Mutex, 8, &[]),
        ];
        assert_eq!(found(&[(10, true, threads.clone())], &[&[10]]), [[(0, 1), (0, 2)]]);
        assert!(found(&[(10, false, threads.clone())], &[&[10]]).is_empty());
        // One of them gives up.
        let mut gives_up = threads;
        gives_up[2].wait.timed = true;
        assert!(found(&[(10, true, gives_up)], &[&[10]]).is_empty());
    }

    #[test]
    fn what_passes_is_not_told_and_what_lasts_is_told_once() {
        let mut before = Before::default();
        let key = vec![(0, 1, 2)];
        assert!(before.lasting(vec![(key.clone(), ())], 0).is_empty());
        assert!(before.lasting::<()>(Vec::new(), LASTS_NS / 2).is_empty());
        assert!(before.lasting(vec![(key.clone(), ())], LASTS_NS).is_empty());
        assert_eq!(before.lasting(vec![(key.clone(), ())], 2 * LASTS_NS).len(), 1);
        assert!(before.lasting(vec![(key, ())], 4 * LASTS_NS).is_empty());
    }
}
