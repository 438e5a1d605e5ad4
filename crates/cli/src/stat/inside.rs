//! Threads that were inside locks when the figures were read: who holds what since when, who waits for what,
//! and who waits for each other.

use std::collections::HashMap;

use poundlock_statfile::{LockKind, LockStats, Snapshot};
use serde::Serialize;

use super::holders::sleeping;
use super::report::side;
use super::sampler::{Graph, Sleep};
use super::text::duration;
use crate::observe::symbols::Space;
use crate::output::counted;

/// Waits shorter than this are what locks are for: a process may end, or be looked at, in the middle of one.
const LONG_NS: u64 = 100_000_000;

/// As many threads are described; the JSON has all.
const SHOWN: usize = 12;

/// A thread that waits for a lock, or holds one that somebody waits for.
#[derive(Serialize)]
pub(super) struct Thread {
    pid: u32,
    tid: u32,
    /// Its name, if the sampler knows it; else empty.
    name: String,
    /// What it sleeps in, if that was seen.
    asleep: Option<Sleep>,
    /// What it waits for.
    waits_for: Option<Place>,
    /// What it holds.
    holds: Vec<Place>,
    /// The threads that hold what it waits for: indices into the list.
    held_by: Vec<usize>,
}

/// A lock that a thread waits for or holds.
#[derive(Serialize)]
struct Place {
    lock: String,
    /// For how long; `None` if that was not looked at.
    for_ns: Option<u64>,
    /// From where; empty if unknown.
    at: String,
    #[serde(skip)]
    address: u64,
}

impl Place {
    fn at_line(&self) -> String {
        if self.at.is_empty() { String::new() } else { format!(" at {}", self.at) }
    }
}

/// Where the locks were made that threads of a process are inside, by address.
pub(super) struct Made(HashMap<u64, Vec<u64>>);

impl Made {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let waits = snapshot.records.iter().filter_map(|record| record.waits.as_ref());
        let holds = snapshot.records.iter().flat_map(|record| &record.holds);
        let addresses = waits.map(|wait| wait.address).chain(holds.map(|hold| hold.address));
        Made(addresses.map(|address| (address, Vec::new())).collect())
    }

    pub(super) fn note(&mut self, lock: &LockStats) {
        if let Some(stack) = self.0.get_mut(&lock.address) {
            *stack = lock.created_at.to_vec();
        }
    }
}

/// All of them.
#[derive(Default, Serialize)]
pub(super) struct Inside {
    pub(super) threads: Vec<Thread>,
    /// Threads of which each waits for the next, and the last for the first: indices into the list.
    pub(super) cycles: Vec<Vec<usize>>,
}

impl Inside {
    /// Adds a process, as of `now_ns`.
    pub(super) fn add(&mut self, snapshot: &Snapshot, made: &Made, space: &Space, now_ns: u64) {
        let base = self.threads.len();
        let name = |address: u64, kind: LockKind| {
            let object = object(address, kind);
            let named = space.variable(object).map(|variable| variable.name);
            let made = || {
                let stack = made.0.get(&address)?;
                let frames: Vec<_> = stack.iter().flat_map(|&at| space.call(at).to_vec()).collect();
                let own = frames.iter().find(|frame| !frame.is_plumbing).or(frames.first())?;
                Some(format!("the {kind} made in {}", own.text))
            };
            let name = named.or_else(made).unwrap_or_else(|| format!("{kind} {object:#x}"));
            match side(kind) {
                Some(side) => format!("{name}, {side}"),
                None => name,
            }
        };
        let at = |stack: &[u64]| {
            let frames: Vec<_> = stack.iter().flat_map(|&address| space.call(address).to_vec()).collect();
            let own = frames.iter().find(|frame| !frame.is_plumbing).or(frames.first());
            own.map(|frame| frame.text.clone()).unwrap_or_default()
        };
        let since = |ns: u64| now_ns.saturating_sub(ns);
        let waiting: Vec<u64> = snapshot
            .records
            .iter()
            .filter(|record| record.lives)
            .filter_map(|record| record.waits.as_ref().filter(|wait| wait.kind.is_acquired()))
            .map(|wait| object(wait.address, wait.kind))
            .collect();
        for record in snapshot.records.iter().filter(|record| record.lives) {
            let waits = record.waits.as_ref().filter(|wait| wait.kind.is_acquired());
            let holds: Vec<Place> = record
                .holds
                .iter()
                .filter(|hold| waits.is_some() || waiting.contains(&object(hold.address, hold.kind)))
                .map(|hold| Place {
                    lock: name(hold.address, hold.kind),
                    for_ns: hold.since_ns.map(since),
                    at: if hold.acquired_at == 0 { String::new() } else { at(&[hold.acquired_at]) },
                    address: object(hold.address, hold.kind),
                })
                .collect();
            if waits.is_none() && holds.is_empty() {
                continue;
            }
            let waits_for = waits.map(|wait| Place {
                lock: name(wait.address, wait.kind),
                for_ns: Some(since(wait.since_ns)),
                at: at(&wait.stack),
                address: object(wait.address, wait.kind),
            });
            self.threads.push(Thread {
                pid: snapshot.pid,
                tid: record.tid,
                name: String::new(),
                asleep: None,
                waits_for,
                holds,
                held_by: Vec::new(),
            });
        }
        let mut holders: HashMap<u64, Vec<usize>> = HashMap::new();
        for (index, thread) in self.threads.iter().enumerate().skip(base) {
            for hold in &thread.holds {
                holders.entry(hold.address).or_default().push(index);
            }
        }
        for thread in &mut self.threads[base..] {
            let waits = thread.waits_for.as_ref().map(|place| place.address);
            thread.held_by = waits.and_then(|address| holders.get(&address).cloned()).unwrap_or_default();
        }
        self.find_cycles(base);
    }

    /// Adds what the sampler knows of the threads.
    pub(super) fn know(&mut self, graph: &Graph) {
        for seen in &graph.threads {
            let same = |thread: &&mut Thread| (thread.pid, thread.tid) == (seen.pid, seen.tid);
            if let Some(thread) = self.threads.iter_mut().find(same) {
                thread.name.clone_from(&seen.name);
                thread.asleep.clone_from(&seen.asleep);
            }
        }
    }

    /// Who waits for whom, from each thread that nobody waits for: where that leads through two locks or
    /// more, and to an end.
    fn chains(&self) -> Vec<String> {
        let mut heads = vec![true; self.threads.len()];
        self.threads.iter().flat_map(|thread| &thread.held_by).for_each(|&holder| heads[holder] = false);
        let mut chains = Vec::new();
        for (head, _) in heads.iter().enumerate().filter(|(_, is_head)| **is_head) {
            let mut path = vec![head];
            while let Some(&next) = self.threads[path[path.len() - 1]].held_by.first()
                && !path.contains(&next)
            {
                path.push(next);
            }
            let [waits @ .., last] = &path[..] else { continue };
            if waits.len() < 2 || !self.threads[*last].held_by.is_empty() {
                continue;
            }
            let links: Vec<String> = waits
                .iter()
                .filter_map(|&index| self.threads[index].waits_for.as_ref().map(|place| (index, place)))
                .map(|(index, place)| {
                    format!("{} waits for {}{}", self.who(index), place.lock, place.at_line())
                })
                .collect();
            let end = self.threads[*last].asleep.as_ref();
            let end = end.map_or_else(
                || "does not wait for a lock".to_owned(),
                |what| format!("is {}", sleeping(what)),
            );
            chains.push(format!(
                "  {}, whose holder {} {end}",
                links.join(", whose holder "),
                self.who(*last)
            ));
        }
        chains
    }

    fn who(&self, index: usize) -> String {
        let thread = &self.threads[index];
        let name = if thread.name.is_empty() { String::new() } else { format!(" ({})", thread.name) };
        format!("thread {}{name}", thread.tid)
    }

    /// A thread that waits waits for every holder: a circle along first holders is one.
    fn find_cycles(&mut self, base: usize) {
        let next = |index: usize| self.threads[index].held_by.first().copied();
        let mut known = vec![0; self.threads.len()];
        for start in base..self.threads.len() {
            let (mut at, mut path) = (Some(start), Vec::new());
            while let Some(index) = at.filter(|&index| known[index] == 0) {
                known[index] = start + 1;
                path.push(index);
                at = next(index);
            }
            if let Some(index) = at
                && known[index] == start + 1
                && let Some(from) = path.iter().position(|&of| of == index)
            {
                self.cycles.push(path[from..].to_vec());
            }
        }
    }

    /// Whether there is something to say: a cycle, or a wait that takes long.
    pub(super) fn matters(&self) -> bool {
        let long = |thread: &Thread| {
            thread.waits_for.as_ref().is_some_and(|place| place.for_ns.is_some_and(|ns| ns >= LONG_NS))
        };
        !self.cycles.is_empty() || self.threads.iter().any(long)
    }

    /// The threads that wait for each other, in one sentence each; then all of them.
    pub(super) fn write(&self, when: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let who = |index: usize| self.who(index);
        for cycle in &self.cycles {
            let mut text = if cycle.len() == 1 {
                "DEADLOCK: a thread waits for a lock that it holds:".to_owned()
            } else {
                format!("DEADLOCK: {} wait for each other:", counted(cycle.len() as u64, "thread"))
            };
            for (place, &index) in cycle.iter().enumerate() {
                let next = cycle[(place + 1) % cycle.len()];
                let lock = self.threads[index].waits_for.as_ref().map_or("a lock", |place| &place.lock);
                text += &if place == 0 {
                    format!(" {} for {lock}, held by {}", who(index), who(next))
                } else {
                    format!(", which waits for {lock}, held by {}", who(next))
                };
            }
            lines.push(text);
        }
        let waiting = self.threads.iter().filter(|thread| thread.waits_for.is_some()).count();
        lines.push(format!(
            "{when}, {} waiting for locks:",
            match waiting {
                1 => "1 thread was".to_owned(),
                n => format!("{n} threads were"),
            }
        ));
        let since = |place: &Place| place.for_ns.map_or(String::new(), |ns| format!(" for {}", duration(ns)));
        lines.extend(self.chains().into_iter().take(SHOWN));
        for (index, thread) in self.threads.iter().enumerate().take(SHOWN) {
            let mut text = format!("  {} of process {}", who(index), thread.pid);
            let mut parts = Vec::new();
            if let Some(place) = &thread.waits_for {
                let by: Vec<String> = thread.held_by.iter().map(|&index| who(index)).collect();
                let by = if by.is_empty() { String::new() } else { format!(", held by {}", by.join(", ")) };
                parts.push(format!("waits{} for {}{}{by}", since(place), place.lock, place.at_line()));
            }
            for place in &thread.holds {
                let taken =
                    if place.at.is_empty() { String::new() } else { format!(", taken at {}", place.at) };
                parts.push(format!("holds {}{}{taken}", place.lock, since(place)));
            }
            text += " ";
            text += &parts.join("; ");
            lines.push(text);
        }
        if self.threads.len() > SHOWN {
            lines.push(format!("  and {}", counted((self.threads.len() - SHOWN) as u64, "more thread")));
        }
        lines
    }
}

/// The lock as the program knows it: a readers-writer lock is counted in two places.
fn object(address: u64, kind: LockKind) -> u64 {
    match kind {
        LockKind::RwWriters | LockKind::SharedRwWriters => address.saturating_sub(LockKind::WRITERS as u64),
        _ => address,
    }
}
