//! What a run found, all of it.

use super::blind::Blind;
use super::finding::Finding;
use super::kinds::Kind;

/// A run.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) command: Vec<String>,
    /// Whose locks they are.
    pub(super) lock: String,
    pub(super) rwlock: String,
    /// How the program ended.
    pub(super) ending: String,
    pub(super) wall_ns: u64,
    /// In the order in which they were found, those that are suppressed left out.
    pub(super) findings: Vec<Finding>,
    /// How many were, by the name of the stanza.
    pub(super) suppressed: Vec<(String, u64)>,
    pub(super) seen: Seen,
    /// What was not, in words.
    pub(super) unseen: Vec<String>,
    /// The processes whose locks are not all checked.
    pub(super) blind: Vec<Blind>,
    pub(super) no_room: NoRoom,
    /// Whether the program was ended because of a deadlock.
    pub(super) ended_it: bool,
}

/// What was looked at.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(super) struct Seen {
    pub(super) processes: u64,
    pub(super) threads: u64,
    /// Locks and the like that were used.
    pub(super) locks: u64,
    /// Locks that were taken while others were held, or the other way round.
    pub(super) nested_locks: u64,
    /// Pairs of locks of which one was taken while the other was held.
    pub(super) orders: u64,
    /// The same, of sorts of locks.
    pub(super) orders_of_classes: u64,
}

/// What found no room, over all processes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(super) struct NoRoom {
    /// Events of the log.
    pub(super) events: u64,
    /// Times that an order of two locks was met that found no room in the process's table.
    pub(super) edges: u64,
    /// Orders of two sorts of locks, in the process's table.
    pub(super) pairs: u64,
    /// Passes along an order with other locks held than before, beyond what the command keeps of one order.
    pub(super) guard_sets: u64,
    /// Findings, in the process's table.
    pub(super) findings: u64,
    /// Orders of two locks of one sort, beyond those that are kept.
    pub(super) within: u64,
    /// Orders with more common locks than are noted.
    pub(super) guards: u64,
    /// Uses of locks by a signal handler that interrupted the recorder.
    pub(super) operations: u64,
    /// Locks.
    pub(super) locks: u64,
    /// Holds.
    pub(super) holds: u64,
    /// Searches for cycles that were not brought to an end.
    pub(super) searches: u64,
    /// Cycles of one sort of locks that were found and not told.
    pub(super) alike: u64,
}

impl NoRoom {
    pub(super) fn add(&mut self, other: &NoRoom) {
        let NoRoom {
            events,
            edges,
            pairs,
            guard_sets,
            findings,
            within,
            guards,
            operations,
            locks,
            holds,
            searches,
            alike,
        } = other;
        self.events += events;
        self.edges += edges;
        self.pairs += pairs;
        self.guard_sets += guard_sets;
        self.findings += findings;
        self.locks += locks;
        self.holds += holds;
        self.within += within;
        self.guards += guards;
        self.operations += operations;
        self.searches += searches;
        self.alike += alike;
    }

    /// What can be missing among the findings, and why: how often, what, and what comes of that.
    fn gaps(&self) -> impl Iterator<Item = (u64, &'static str, &'static str)> {
        [
            (
                self.edges,
                "passes along orders of two locks found no room in the table of orders (--max-orders)",
                "cycles through those orders are not found",
            ),
            (
                self.guard_sets,
                "sets of locks that were held with an order found no room (--max-guard-sets)",
                "cycles that need one of those are not found",
            ),
            (
                self.pairs,
                "orders of two sorts of locks found no room in the process's file",
                "cycles through them are not found",
            ),
            (
                self.within,
                "orders of two locks of one sort are beyond the 65536 that are kept of a sort",
                "cycles through them are not found",
            ),
            (
                self.events,
                "events found no room in the log, as the program was too quick",
                "findings can be missing",
            ),
            (self.findings, "findings found no room in the process's file", "there are more than are told"),
            (
                self.locks,
                "uses of locks found no room in the table of locks, which has 1048576 places",
                "nothing is known of those locks",
            ),
            (self.holds, "holds found no room in a thread's list", "they count as not held"),
            (self.searches, "searches for cycles were not brought to an end", "longer cycles can be missing"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
    }

    /// Why findings can be missing, for the verdict; `None` if none can be.
    pub(super) fn verdict(&self) -> Option<String> {
        let mut gaps = self.gaps();
        let (count, what, _) = gaps.next()?;
        let more = if gaps.next().is_some() { ", and more" } else { "" };
        Some(format!("findings can be missing: {count} {what}{more}"))
    }

    /// What it means, a sentence each.
    pub(super) fn in_words(&self) -> Vec<String> {
        let remarks = [
            (
                self.guards,
                "times a thread held more locks than the 8 that are noted with an order",
                "a finding can be in vain there",
            ),
            (
                self.operations,
                "uses of locks by signal handlers came while the recorder was at work",
                "they were not seen",
            ),
            (self.alike, "further cycles in locks of one sort are at the same lines", "they are not told"),
        ];
        self.gaps()
            .chain(remarks.into_iter().filter(|(count, ..)| *count > 0))
            .map(|(count, what, so)| format!("{count} {what}: {so}"))
            .collect()
    }
}

impl Report {
    /// Whether nothing was found and a process has locks that are not checked.
    pub(super) fn is_blind(&self) -> bool {
        self.findings.is_empty() && !self.blind.is_empty()
    }

    /// How many of each kind, most important first.
    pub(super) fn by_kind(&self) -> Vec<(Kind, u64)> {
        let count = |kind: Kind| self.findings.iter().filter(|finding| finding.kind == kind).count() as u64;
        Kind::all().map(|kind| (kind, count(kind))).filter(|(_, count)| *count > 0).collect()
    }

    /// How many findings were suppressed.
    pub(super) fn suppressed(&self) -> u64 {
        self.suppressed.iter().map(|(_, count)| count).sum()
    }
}
