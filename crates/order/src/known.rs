//! Cycles that were found, so that none is reported twice, and none that has a smaller one in it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use poundlock_statfile::check::Edge;

use crate::Evidence;
use crate::evidence::Tables;
use crate::numbers::Map;

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Sets of classes, each of which occurs once in its cycle.
    classes: Vec<(Vec<u32>, Evidence)>,
    class_index: BTreeMap<Vec<u32>, usize>,
    of_class: Map<u32, Vec<usize>>,
    /// Locks of the cycles that pass through several locks of some class.
    locks: Vec<Vec<u32>>,
    of_lock: Map<u32, Vec<usize>>,
    /// What those have in common.
    sorts: HashMap<Vec<u32>, Sort>,
    pub(crate) alike: u64,
}

/// Cycles through the same classes, and several locks of some of them.
#[derive(Debug, Default)]
struct Sort {
    found: usize,
    reported: usize,
    /// At which places of the program their edges are.
    places: HashSet<u64>,
}

/// What is to be done about a cycle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is new.
    Report,
    /// It is new that it is the same locks.
    Upgrade,
    /// There is one like it.
    Alike,
}

impl Known {
    /// Whether a cycle that is known, of this evidence at least, lies within nodes of which `class` is one.
    /// The second number is how many were looked at.
    pub(crate) fn covers_class(&self, class: u32, on: impl Fn(u32) -> bool, least: Evidence) -> (bool, u64) {
        let Some(sets) = self.of_class.get(&class) else { return (false, 0) };
        let mut looks = 0;
        let covered = sets.iter().any(|&set| {
            looks += 1;
            let (set, evidence) = &self.classes[set];
            *evidence >= least && set.iter().all(|&class| on(class))
        });
        (covered, looks)
    }

    /// The same of locks, for the cycles that pass through several locks of a class.
    pub(crate) fn covers_lock(&self, lock: u32, on: impl Fn(u32) -> bool) -> (bool, u64) {
        let Some(sets) = self.of_lock.get(&lock) else { return (false, 0) };
        let mut looks = 0;
        let covered = sets.iter().any(|&set| {
            looks += 1;
            self.locks[set].iter().all(|&lock| on(lock))
        });
        (covered, looks)
    }

    /// Whether enough cycles among locks of `class` alone were found, if `most` are to be reported.
    pub(crate) fn is_enough(&self, class: u32, most: usize) -> bool {
        self.sorts
            .get([class].as_slice())
            .is_some_and(|sort| sort.reported >= most || sort.found >= most.saturating_mul(16))
    }

    /// Takes in a cycle that nothing known covers.
    pub(crate) fn insert(
        &mut self,
        tables: &Tables,
        edges: &[Arc<Edge>],
        evidence: Evidence,
        most: usize,
    ) -> Verdict {
        let mut locks: Vec<u32> = edges.iter().filter_map(|edge| tables.known(edge.from.held.lock)).collect();
        let mut classes: Vec<u32> = locks.iter().map(|&lock| tables.class_of(lock)).collect();
        classes.sort_unstable();
        classes.dedup();
        if classes.len() == edges.len() {
            if let Some(&at) = self.class_index.get(&classes) {
                let before = std::mem::replace(&mut self.classes[at].1, evidence);
                return if before < evidence { Verdict::Upgrade } else { Verdict::Alike };
            }
            let at = self.classes.len();
            classes.iter().for_each(|&class| self.of_class.entry(class).or_default().push(at));
            self.class_index.insert(classes.clone(), at);
            self.classes.push((classes, evidence));
            return Verdict::Report;
        }
        locks.sort_unstable();
        let at = self.locks.len();
        locks.iter().for_each(|&lock| self.of_lock.entry(lock).or_default().push(at));
        self.locks.push(locks);
        let sort = self.sorts.entry(classes).or_default();
        sort.found += 1;
        if sort.reported >= most || !sort.places.insert(places(edges)) {
            self.alike += 1;
            return Verdict::Alike;
        }
        sort.reported += 1;
        Verdict::Report
    }
}

/// Where the program takes the locks of a cycle, as a number.
fn places(edges: &[Arc<Edge>]) -> u64 {
    let mut places: Vec<_> = edges.iter().map(|edge| (&edge.from.stack, &edge.to.stack)).collect();
    places.sort_unstable();
    places.dedup();
    let mut hasher = DefaultHasher::new();
    places.hash(&mut hasher);
    hasher.finish()
}
