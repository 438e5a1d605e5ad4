//! Who holds what and waits for what, at one moment.

use std::collections::HashMap;

use poundlock_statfile::{Live, LiveHold, LiveThread};

use super::outcome::{Graph, Inside, Place};
use crate::observe::cycles::cycles;

/// Pages of entries that are looked through for all that threads hold. Beyond that only the locks are looked
/// for that somebody waits for.
const PAGES: usize = 1 << 14;

impl Graph {
    /// Adds another process's.
    pub(super) fn add(&mut self, other: Graph) {
        let first = self.threads.len();
        self.threads.extend(other.threads);
        let moved = other.cycles.into_iter().map(|cycle| cycle.into_iter().map(|n| n + first).collect());
        self.cycles.extend(moved);
    }
}

/// The graph of a process whose threads are these. Without their names.
pub(super) fn of(live: &Live, threads: &[LiveThread], pid: u32, now: u64) -> Graph {
    let acquired = |tag| live.lock(tag).is_some_and(|lock| lock.kind.is_acquired());
    // Who has each lock that somebody waits for: positions in `threads`.
    let mut holders: HashMap<u64, Vec<(usize, LiveHold)>> = HashMap::new();
    for wait in threads.iter().filter_map(|thread| thread.wait).filter(|wait| acquired(wait.tag)) {
        holders.entry(wait.tag).or_insert_with(|| {
            let of_tag = |tag: u64| {
                let hold = move |(n, thread): (usize, &LiveThread)| Some((n, live.hold(thread.record, tag)?));
                threads.iter().enumerate().filter_map(hold)
            };
            live.held_as(wait.tag).into_iter().flatten().flat_map(of_tag).collect()
        });
    }
    let all = live.chunks().saturating_mul(threads.len()) <= PAGES;
    let holds: Vec<Vec<LiveHold>> = threads
        .iter()
        .enumerate()
        .map(|(n, thread)| {
            if all {
                return live.holds(thread.record);
            }
            let mut holds: Vec<LiveHold> = holders
                .values()
                .flatten()
                .filter(|(holder, _)| *holder == n)
                .map(|(_, hold)| *hold)
                .collect();
            holds.dedup_by_key(|hold| hold.tag);
            holds
        })
        .collect();

    let mut graph = Graph::default();
    // From positions in `threads` to those in the graph.
    let mut places: HashMap<usize, usize> = HashMap::new();
    for (n, thread) in threads.iter().enumerate() {
        let held = &holds[n];
        if held.is_empty() && !thread.wait.is_some_and(|wait| acquired(wait.tag)) {
            continue;
        }
        places.insert(n, graph.threads.len());
        graph.threads.push(Inside {
            pid,
            start_ns: live.start_ns(),
            tid: thread.tid,
            waits_for: thread.wait.and_then(|wait| place(live, wait.tag, Some(wait.began), threads, now)),
            holds: held.iter().filter_map(|hold| place(live, hold.tag, hold.began, threads, now)).collect(),
            ..Inside::default()
        });
    }
    let edges: Vec<Vec<(usize, LiveHold)>> = threads
        .iter()
        .map(|thread| thread.wait.and_then(|wait| holders.get(&wait.tag)).cloned().unwrap_or_default())
        .collect();
    for cycle in cycles(&edges) {
        // All of it was true at one moment if all of it is true still.
        let holds_of = |n: usize, by: usize| edges[n].iter().find(|(holder, _)| *holder == by);
        let next = |place: usize| cycle[(place + 1) % cycle.len()];
        let stands = cycle.iter().enumerate().all(|(place, &n)| {
            live.wait(threads[n].record) == threads[n].wait
                && holds_of(n, next(place)).is_some_and(|(_, hold)| live.still_holds(hold))
        });
        let cycle: Option<Vec<usize>> = cycle.iter().map(|n| places.get(n).copied()).collect();
        graph.cycles.extend(cycle.filter(|_| stands));
    }
    graph
}

/// A lock that has been held, or waited for, since `began`. A hold that was not timed has lasted for as long
/// as anybody has waited for it.
fn place(live: &Live, tag: u64, began: Option<u64>, threads: &[LiveThread], now: u64) -> Option<Place> {
    let lock = live.lock(tag)?;
    let since = |ticks: u64| now.saturating_sub(live.moment(ticks));
    let waits = threads.iter().filter_map(|thread| thread.wait).filter(|wait| wait.tag == tag);
    let for_ns = began.map(since).or_else(|| waits.map(|wait| since(wait.began)).max());
    Some(Place {
        address: lock.address,
        kind: lock.kind.to_string(),
        for_ns: for_ns.unwrap_or(0),
        at_least: began.is_none(),
    })
}
