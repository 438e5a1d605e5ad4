//! The order in which threads take locks, and the cycles in it that can become deadlocks.
//!
//! A thread that asks for lock `b` while it holds lock `a` is evidence of an edge from `a` to `b`. Threads
//! that are at the edges of a cycle at one time, each at another, wait for each other for ever. [`Order`] is
//! told of each edge when it is first seen, and answers with the cycles that have become possible by it.
//!
//! There are two graphs, of locks and of classes of locks. A cycle of locks is evidence of the best kind:
//! each lock at which two edges meet is one lock ([`Evidence::SameLocks`]). A cycle of classes says that
//! locks of the same sorts were taken in both orders ([`Evidence::SameClasses`]), as the Linux kernel's
//! lockdep has it. Locks of one class are told apart: only a cycle of locks counts among them.
//!
//! A cycle is reported if all of its threads can be at their edges at once ([`Rules`]), and if no smaller one
//! among the same locks is known. The bound on the search is in [`Limits`]; [`Statistics`] say where it was
//! met.

#![forbid(unsafe_code)]

mod components;
mod evidence;
mod known;
mod matching;
mod numbers;
mod search;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use poundlock_statfile::check::{ClassKey, Edge, Held, LockId, Mode, Serial};

use evidence::{Graph, Group, Tables, within};
use known::Known;
use search::{Of, Scratch, Search, Task};

/// How sure it is that the locks of a cycle are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Evidence {
    /// Where two edges meet, their locks are of one class, somewhere not the same one.
    SameClasses,
    /// Where two edges meet, it is one lock.
    SameLocks,
}

/// Locks that threads take in an order that goes round.
#[derive(Debug, Clone)]
pub struct Cycle {
    /// Whether it is the same locks.
    pub evidence: Evidence,
    /// The same classes have been reported before, by evidence of classes alone.
    pub upgraded: bool,
    /// Two threads at least held more locks than are noted: one of those may be a common one that rules the
    /// cycle out.
    pub partial: bool,
    /// What each thread did: each edge begins where the one before ends, the first where the last ends. Each
    /// is by another thread, unless more threads were seen at it than are remembered.
    pub edges: Vec<Arc<Edge>>,
    /// Threads that must wait to write so that readers wait for each other; none if no reader waits for
    /// readers.
    pub writers: Vec<Writer>,
}

/// A thread that waits to write between two readers.
#[derive(Debug, Clone)]
pub struct Writer {
    /// It waits for the lock that edge number `at` of the cycle asks for.
    pub at: usize,
    /// The thread.
    pub thread: Serial,
    /// The lock that it writes: of the same class at least as the one that the edge asks for.
    pub lock: LockId,
    /// What it did; `None` if it held nothing.
    pub edge: Option<Arc<Edge>>,
}

/// A class whose locks are taken inside of each other against an order.
#[derive(Debug, Clone)]
pub struct Nesting {
    /// The class.
    pub class: ClassKey,
    /// Up in addresses; or against the places that the program gave.
    pub one: Arc<Edge>,
    /// Down in addresses; `None` if `one` is against the places that the program gave.
    pub other: Option<Arc<Edge>>,
}

/// How far a search goes. A step is a look at one edge, or one piece of evidence.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Steps that each new piece of evidence adds to what searches may take.
    pub steps_an_edge: u64,
    /// Steps that can be saved up, which is what there is at the beginning.
    pub steps_saved: u64,
    /// Cycles that one new piece of evidence may bring to light.
    pub cycles_an_edge: usize,
    /// Cycles through several locks of one class that are reported, in each set of classes. Locks of a class
    /// among which 16 times as many were found are not searched any more.
    pub cycles_a_class: usize,
    /// Sets of other locks that are remembered of one pair of locks.
    pub guards_a_pair: usize,
    /// Searches that were not finished and wait for [`Order::search_more`].
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps_an_edge: 128,
            steps_saved: 1 << 22,
            cycles_an_edge: 16,
            cycles_a_class: 8,
            guards_a_pair: 1024,
            pending: 1 << 16,
        }
    }
}

/// What was seen, and where limits were met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Locks that are at an end of an edge.
    pub locks: usize,
    /// Their classes.
    pub classes: usize,
    /// Pairs of locks of which one was taken while the other was held.
    pub edges: usize,
    /// The same, of classes.
    pub class_edges: usize,
    /// Pieces of evidence that said something new.
    pub evidence: u64,
    /// Pieces of evidence that said nothing new.
    pub known: u64,
    /// Steps that searches for cycles took.
    pub steps: u64,
    /// Steps that it took to keep the order.
    pub order_steps: u64,
    /// Searches that ended at a limit and wait for [`Order::search_more`].
    pub pending: usize,
    /// Searches that ended at a limit and are not taken up again: "not searched further".
    pub given_up: u64,
    /// Cycles through several locks of a class that were found and not reported, because they are at the same
    /// places of the program as one that was, or because there were many. There may be more.
    pub alike: u64,
    /// Pieces of evidence for which there was no room.
    pub no_room: u64,
}

/// Rules that can be left out, so that tests can show that each is needed.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The edges of a cycle are by different threads.
    pub threads: bool,
    /// No two edges hold one lock of which one holds it exclusively.
    pub guards: bool,
    /// All locks of a cycle lived at one time.
    pub lifetimes: bool,
    /// Readers do not wait for readers, unless a writer waits.
    pub modes: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { threads: true, guards: true, lifetimes: true, modes: true }
    }
}

/// The order of one process's locks.
#[derive(Debug, Default)]
pub struct Order {
    limits: Limits,
    tables: Tables,
    locks: Graph,
    classes: Graph,
    known: Known,
    scratch: Scratch,
    pending: VecDeque<Task>,
    /// Steps that may be taken at once.
    allowance: u64,
    threads: HashSet<Serial>,
    places: HashMap<LockId, u64>,
    /// By class: the first edge up in addresses, the first one down, and whether it was said.
    nested: Vec<Nested>,
    nestings: Vec<Nesting>,
    statistics: Statistics,
}

#[derive(Debug, Default, Clone)]
struct Nested {
    up: Option<Arc<Edge>>,
    down: Option<Arc<Edge>>,
    said: bool,
}

/// Of the steps that were saved up, one search may take this number at once.
const AT_ONCE: u64 = 1 << 18;

/// A search that is taken up again may take this number of steps, each time twice as many.
const AGAIN: u64 = 1 << 14;

/// How often a search is begun at most: a million steps, the last time.
const TRIES: u32 = 7;

impl Order {
    /// Nothing was seen yet.
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    /// The same, with other limits than the usual ones.
    pub fn with_limits(limits: Limits) -> Self {
        Self { limits, allowance: limits.steps_saved, ..Self::default() }
    }

    /// The same, with a rule left out.
    #[doc(hidden)]
    pub fn with_rules(limits: Limits, rules: Rules) -> Self {
        let mut order = Self::with_limits(limits);
        order.tables.rules = rules;
        order
    }

    /// Takes in an edge, with the addresses of its two locks (0 if unknown), and says which cycles have
    /// become possible by it: none, mostly. Evidence that says nothing new costs a look at its pair of locks,
    /// and no search.
    pub fn add(&mut self, edge: Arc<Edge>, addresses: (u64, u64)) -> Vec<Cycle> {
        if edge.from.held.lock == edge.to.held.lock {
            self.statistics.known += 1;
            return Vec::new();
        }
        let (from, to) =
            (self.lock(edge.from.held.lock, edge.from.class), self.lock(edge.to.held.lock, edge.to.class));
        self.meet(edge.thread);
        self.made(from, edge.from.made);
        self.made(to, edge.to.made);
        let (from_class, to_class) = (self.tables.class_of(from), self.tables.class_of(to));
        if from_class == to_class {
            self.nest(&edge, from_class, addresses);
        }
        let pair = self.locks.link(from, to);
        let class_pair = (from_class != to_class).then(|| self.classes.link(from_class, to_class));
        let Some(group) = self.take(&edge, (from, to), pair, class_pair) else { return Vec::new() };
        self.statistics.evidence += 1;
        self.allowance = (self.allowance + self.limits.steps_an_edge).min(self.limits.steps_saved);

        let many = self.tables.groups[group as usize].many();
        if many {
            // Those that the recorder has left out since may be others.
            self.tables.threads = usize::MAX;
        }
        let thread = (!many).then_some(edge.thread);
        let mut tasks = vec![(Of::Locks, group, thread)];
        if class_pair.is_some_and(|pair| self.is_new_to_classes(pair, group, thread)) {
            tasks.push((Of::Classes, group, thread));
        }
        if edge.to.held.mode == Mode::Exclusive && edge.from.held.mode != Mode::Condition {
            self.behind(to, &mut tasks);
        }
        self.search_all(tasks)
    }

    /// A thread that held nothing took `lock` to write, which was made at that moment: readers may wait for
    /// it.
    pub fn wrote(&mut self, thread: Serial, lock: LockId, class: ClassKey, made: u64) -> Vec<Cycle> {
        let lock = self.lock(lock, class);
        self.made(lock, made);
        self.meet(thread);
        let traffic = &mut self.tables.locks[lock as usize].traffic;
        if traffic.wrote.contains(&(lock, thread)) {
            self.statistics.known += 1;
            return Vec::new();
        }
        traffic.wrote.push((lock, thread));
        let class = self.tables.class_of(lock);
        self.tables.classes[class as usize].wrote.push((lock, thread));
        self.statistics.evidence += 1;
        self.allowance = (self.allowance + self.limits.steps_an_edge).min(self.limits.steps_saved);
        let mut tasks = Vec::new();
        self.behind(lock, &mut tasks);
        self.search_all(tasks)
    }

    /// A condition variable was signalled while these locks were held. A thread that waits for it waits for
    /// those alone that are held at each signal; if no signal was told, it is enough that some signaller
    /// holds a lock.
    pub fn signalled(&mut self, condition: LockId, held: &[Held]) {
        self.tables.signalled(condition, held);
    }

    /// A lock was destroyed at this moment: the place of that event in the log.
    pub fn died(&mut self, lock: LockId, moment: u64) {
        if let Some(lock) = self.tables.known(lock) {
            let died = &mut self.tables.locks[lock as usize].died;
            *died = moment.min(*died);
        }
    }

    /// The program said where `lock` stands in the order of its class.
    pub fn placed(&mut self, lock: LockId, place: u64) {
        self.places.insert(lock, place);
    }

    /// Takes up searches that ended at a limit, until they have taken this many steps; the last may take up
    /// to a million more. For moments without work, and at the end.
    pub fn search_more(&mut self, mut steps: u64) -> Vec<Cycle> {
        let mut found = Vec::new();
        while steps > 0 {
            let Some(task) = self.pending.pop_front() else { break };
            let slice = AGAIN << task.tries;
            let left = self.search(task, slice, &mut found);
            steps = steps.saturating_sub(slice - left);
        }
        found
    }

    /// Classes that are nested against an order, those that were not taken before.
    pub fn take_nestings(&mut self) -> Vec<Nesting> {
        std::mem::take(&mut self.nestings)
    }

    /// What was seen, and where limits were met.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            locks: self.tables.locks.len(),
            classes: self.tables.classes.len(),
            edges: self.locks.links.len(),
            class_edges: self.classes.links.len(),
            order_steps: self.locks.components.steps() + self.classes.components.steps(),
            pending: self.pending.len(),
            alike: self.known.alike,
            ..self.statistics
        }
    }

    fn meet(&mut self, thread: Serial) {
        if self.threads.insert(thread) {
            self.tables.threads = self.tables.threads.saturating_add(1);
        }
    }

    /// The moment is 0 where the recorder could not tell any more.
    fn made(&mut self, lock: u32, moment: u64) {
        let made = &mut self.tables.locks[lock as usize].made;
        *made = moment.max(*made);
    }

    fn lock(&mut self, id: LockId, class: ClassKey) -> u32 {
        let (lock, new) = self.tables.lock(id, class);
        if new {
            let class = self.tables.class_of(lock);
            self.locks.add_node(class);
            if class as usize == self.nested.len() {
                self.classes.add_node(class);
                self.nested.push(Nested::default());
            }
        }
        lock
    }

    /// Takes in a thread's pass along an edge, if it says something new; the group to which it belongs.
    fn take(
        &mut self,
        edge: &Arc<Edge>,
        (from, to): (u32, u32),
        pair: u32,
        class_pair: Option<u32>,
    ) -> Option<u32> {
        let group = Group {
            from,
            to,
            from_mode: edge.from.held.mode,
            to_mode: edge.to.held.mode,
            held: evidence::held(edge),
            passes: vec![edge.clone()],
            threads: vec![edge.thread],
        };
        let groups = &self.locks.links[pair as usize].groups;
        let mut same = None;
        for &number in groups {
            let other = &self.tables.groups[number as usize];
            if other.same_modes(&group) && within(&other.held, &group.held) {
                if other.knows(edge.thread) {
                    self.statistics.known += 1;
                    return None;
                }
                if other.held == group.held {
                    same = Some(number);
                }
            }
        }
        if same.is_none() && groups.len() >= self.limits.guards_a_pair {
            self.statistics.no_room += 1;
            return None;
        }
        // This thread's passes with more locks held say nothing any more.
        let mut empty = Vec::new();
        for &number in groups {
            let other = &mut self.tables.groups[number as usize];
            if other.same_modes(&group) && !other.many() && within(&group.held, &other.held) {
                other.forget(edge.thread);
                if other.passes.is_empty() && same != Some(number) {
                    empty.push(number);
                }
            }
        }
        for number in empty {
            let links = [
                Some(&mut self.locks.links[pair as usize]),
                class_pair.map(|pair| &mut self.classes.links[pair as usize]),
            ];
            links.into_iter().flatten().for_each(|link| link.groups.retain(|&other| other != number));
        }
        if let Some(number) = same {
            self.tables.groups[number as usize].push(edge.clone());
            return Some(number);
        }
        let number = self.tables.groups.len() as u32;
        self.locks.links[pair as usize].groups.push(number);
        if let Some(pair) = class_pair {
            self.classes.links[pair as usize].groups.push(number);
        }
        let guards = group.held.iter().map(|held| held.lock).filter(|&lock| lock != edge.from.held.lock);
        self.tables.guards.extend(guards.map(|lock| (lock, ())));
        let class = self.tables.class_of(to);
        for traffic in [&mut self.tables.locks[to as usize].traffic, &mut self.tables.classes[class as usize]]
        {
            match group.to_mode {
                // When a signaller took what it holds, there was evidence of its own.
                Mode::Exclusive if group.from_mode != Mode::Condition => traffic.writers.push(number),
                Mode::FairRead => traffic.readers.push(number),
                Mode::Exclusive | Mode::Read | Mode::Condition => {}
            }
        }
        self.tables.groups.push(group);
        Some(number)
    }

    /// Whether cycles of classes may have become possible by `thread` in `group`.
    fn is_new_to_classes(&self, pair: u32, group: u32, thread: Option<Serial>) -> bool {
        let new = &self.tables.groups[group as usize];
        let others = self.classes.links[pair as usize].groups.iter().filter(|&&other| other != group);
        !others
            .map(|&other| &self.tables.groups[other as usize])
            .any(|other| self.tables.covers(other, new, thread))
    }

    /// `lock` has a new writer: searches for cycles in which a reader waits behind it.
    fn behind(&self, lock: u32, tasks: &mut Vec<(Of, u32, Option<Serial>)>) {
        let class = self.tables.class_of(lock);
        let readers = &self.tables.locks[lock as usize].traffic.readers;
        tasks.extend(readers.iter().map(|&group| (Of::Locks, group, None)));
        let readers = &self.tables.classes[class as usize].readers;
        tasks.extend(readers.iter().map(|&group| (Of::Classes, group, None)));
    }

    fn search_all(&mut self, tasks: Vec<(Of, u32, Option<Serial>)>) -> Vec<Cycle> {
        let mut found = Vec::new();
        for (of, group, thread) in tasks {
            let slice = self.allowance.min(AT_ONCE);
            let left = self.search(Task { of, group, thread, tries: 0 }, slice, &mut found);
            self.allowance -= slice - left;
        }
        found
    }

    /// Searches, and keeps what is left to do for later. The answer is how many steps are left.
    fn search(&mut self, mut task: Task, slice: u64, found: &mut Vec<Cycle>) -> u64 {
        let graph = if task.of == Of::Locks { &self.locks } else { &self.classes };
        let about = (&self.tables, graph, &mut self.known);
        let search = Search::new(about, &mut self.scratch, &self.limits, (task.of, slice));
        let (mut cycles, left, end) = search.run(task);
        let brought = !cycles.is_empty();
        found.append(&mut cycles);
        self.statistics.steps += slice - left;
        if end.is_err() {
            // One that brings cycles to light goes on as it began.
            task.tries += u32::from(!brought);
            if task.tries < TRIES && self.pending.len() < self.limits.pending {
                self.pending.push_back(task);
            } else {
                self.statistics.given_up += 1;
            }
        }
        left
    }

    /// Looks at the order of two locks of one class.
    fn nest(&mut self, edge: &Arc<Edge>, class: u32, addresses: (u64, u64)) {
        let places = (self.places.get(&edge.from.held.lock), self.places.get(&edge.to.held.lock));
        let nested = &mut self.nested[class as usize];
        if nested.said {
            return;
        }
        let found = match places {
            (Some(from), Some(to)) => (from >= to).then(|| (edge.clone(), None)),
            _ if addresses.0 == 0 || addresses.1 == 0 => None,
            _ => {
                let way = if addresses.0 < addresses.1 { &mut nested.up } else { &mut nested.down };
                way.get_or_insert_with(|| edge.clone());
                nested.up.clone().zip(nested.down.clone()).map(|(up, down)| (up, Some(down)))
            }
        };
        if let Some((one, other)) = found {
            nested.said = true;
            self.nestings.push(Nesting { class: edge.from.class, one, other });
        }
    }
}

impl Cycle {
    /// Its classes, sorted: what makes two cycles of one process the same.
    pub fn key(&self) -> Vec<ClassKey> {
        let mut classes: Vec<_> = self.edges.iter().map(|edge| edge.from.class).collect();
        classes.sort_unstable();
        classes
    }

    /// 16 hexadecimal digits that are the same in each run, as long as `name` says the same of the same
    /// edges: with which edge the cycle begins does not matter.
    pub fn fingerprint(&self, name: impl Fn(&Edge) -> String) -> String {
        let names: Vec<String> = self.edges.iter().map(|edge| name(edge)).collect();
        let turned = |by: usize| names[by..].iter().chain(&names[..by]);
        let first = (0..names.len()).min_by(|&a, &b| turned(a).cmp(turned(b))).unwrap_or(0);
        let bytes = turned(first).flat_map(|name| name.bytes().chain([0]));
        // FNV-1a, whose result is the same everywhere.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}
