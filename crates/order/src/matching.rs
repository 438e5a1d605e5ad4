//! Distinct threads for the edges of a cycle: a system of distinct representatives, an edge at a time.

use std::collections::VecDeque;

use poundlock_statfile::check::Serial;

use crate::numbers::Map;

#[derive(Debug, Default)]
pub(crate) struct Matching<'a> {
    seats: Vec<Seat<'a>>,
    /// Whose seat it is.
    owners: Map<Serial, usize>,
    /// Seats, and what they had before.
    trail: Vec<(usize, Option<Serial>)>,
}

#[derive(Debug)]
struct Seat<'a> {
    candidates: &'a [Serial],
    taken: Option<Serial>,
    /// The length of the trail before it came.
    mark: usize,
}

impl<'a> Matching<'a> {
    /// A further edge, at which these threads were seen; none if there were enough that any other will do.
    /// False if there are not enough threads for all: the edge is not taken in then.
    pub(crate) fn push(&mut self, candidates: &'a [Serial]) -> bool {
        let seat = self.seats.len();
        let free = candidates.is_empty();
        self.seats.push(Seat { candidates, taken: None, mark: self.trail.len() });
        if free || self.augment(seat) {
            return true;
        }
        self.seats.pop();
        false
    }

    /// Takes back the last edge, and what it changed.
    pub(crate) fn pop(&mut self) {
        let Some(last) = self.seats.last() else { return };
        let changed = self.trail.split_off(last.mark);
        for &(seat, _) in &changed {
            if let Some(thread) = self.seats[seat].taken {
                self.owners.remove(&thread);
            }
        }
        // A seat changes once in an augmentation.
        for (seat, before) in changed {
            self.seats[seat].taken = before;
            if let Some(thread) = before {
                self.owners.insert(thread, seat);
            }
        }
        self.seats.pop();
    }

    /// The thread of an edge; `None` if it had no candidates.
    pub(crate) fn thread(&self, seat: usize) -> Option<Serial> {
        self.seats[seat].taken
    }

    /// Whether a thread is at some edge.
    pub(crate) fn has(&self, thread: Serial) -> bool {
        self.owners.contains_key(&thread)
    }

    /// Finds a thread for `new` along an alternating path, the shortest.
    fn augment(&mut self, new: usize) -> bool {
        if let Some(&thread) =
            self.seats[new].candidates.iter().find(|thread| !self.owners.contains_key(thread))
        {
            self.seat(new, thread);
            return true;
        }
        let mut reached: Map<Serial, usize> = Map::default();
        let mut queue = VecDeque::from([new]);
        let mut thread = 'search: loop {
            let Some(seat) = queue.pop_front() else { return false };
            for &thread in self.seats[seat].candidates {
                if reached.contains_key(&thread) {
                    continue;
                }
                reached.insert(thread, seat);
                match self.owners.get(&thread) {
                    Some(&owner) => queue.push_back(owner),
                    None => break 'search thread,
                }
            }
        };
        loop {
            match self.seat(reached[&thread], thread) {
                Some(before) => thread = before,
                None => return true,
            }
        }
    }

    /// Gives a seat to a thread; the one that it had.
    fn seat(&mut self, seat: usize, thread: Serial) -> Option<Serial> {
        let before = self.seats[seat].taken.replace(thread);
        self.owners.insert(thread, seat);
        self.trail.push((seat, before));
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn possible(sets: &[Vec<Serial>], used: &mut Vec<Serial>) -> bool {
        let Some((first, rest)) = sets.split_first() else { return true };
        first.is_empty() && possible(rest, used)
            || first.iter().any(|&thread| {
                if used.contains(&thread) {
                    return false;
                }
                used.push(thread);
                let found = possible(rest, used);
                used.pop();
                found
            })
    }

    #[test]
    fn there_are_threads_for_all_edges_if_brute_force_finds_some() {
        for seed in 0..3000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let all: Vec<Vec<Serial>> = (0..40)
                .map(|_| {
                    let mut set: Vec<_> = (0..random.u32(0..4)).map(|_| Serial(random.u32(0..6))).collect();
                    set.dedup();
                    set
                })
                .collect();
            let mut matching = Matching::default();
            let mut sets: Vec<Vec<Serial>> = Vec::new();
            for set in &all {
                if random.u8(0..4) == 0 && !sets.is_empty() {
                    sets.pop();
                    matching.pop();
                } else {
                    sets.push(set.clone());
                    if !matching.push(set) {
                        assert!(!possible(&sets, &mut Vec::new()), "seed {seed}: {sets:?}");
                        sets.pop();
                    }
                }
                let taken: Vec<_> = (0..sets.len()).map(|seat| matching.thread(seat)).collect();
                for (seat, thread) in taken.iter().enumerate() {
                    assert_eq!(thread.is_none(), sets[seat].is_empty(), "seed {seed}");
                    let Some(thread) = thread else { continue };
                    assert!(sets[seat].contains(thread) && matching.has(*thread), "seed {seed}");
                    assert_eq!(
                        taken.iter().filter(|other| **other == Some(*thread)).count(),
                        1,
                        "seed {seed}"
                    );
                }
            }
        }
    }
}
