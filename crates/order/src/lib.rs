//! The order in which threads take locks, and the cycles in it that can become deadlocks.
//!
//! A thread that asks for lock `b` while it holds lock `a` is evidence of an edge from `a` to `b`. Threads that are
//! at the edges of a cycle at one time, each at another, wait for each other for ever. [`Order`] is told of each
//! edge when it is first seen, and answers with the cycles that have become possible by it.
//!
//! There are two graphs, of locks and of classes of locks. A cycle of locks is evidence of the best kind: each lock
//! at which two edges meet is one lock ([`Evidence::SameLocks`]). A cycle of classes says that locks of the same
//! sorts were taken in both orders ([`Evidence::SameClasses`]), as the Linux kernel's lockdep has it. Locks of one
//! class are told apart: only a cycle of locks counts among them.
//!
//! A cycle is reported if all of its threads can be at their edges at once ([`Rules`]), and if no smaller one among
//! the same locks is known. The bound on the search is in [`Limits`]; [`Statistics`] say where it was met.

#![forbid(unsafe_code)]

use std::sync::Arc;

use poundlock_statfile::check::{ClassKey, Edge, LockId, Serial};

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
    /// What each thread did: each edge begins where the one before ends, the first where the last ends. Each is by
    /// another thread, unless more threads were seen at it than are remembered.
    pub edges: Vec<Arc<Edge>>,
    /// Threads that must wait to write so that readers wait for each other; none if no reader waits for readers.
    pub writers: Vec<Writer>,
}

/// A thread that waits to write between two readers.
#[derive(Debug, Clone)]
pub struct Writer {
    /// It waits for the lock that edge number `at` of the cycle asks for.
    pub at: usize,
    /// The thread.
    pub thread: Serial,
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
    /// Cycles through several locks of one class, in each set of classes.
    pub cycles_a_class: usize,
    /// Sets of other locks that are remembered of one pair of locks.
    pub guards_a_pair: usize,
    /// Searches that were not finished and wait for [`Order::search_more`].
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps_an_edge: 256,
            steps_saved: 1 << 22,
            cycles_an_edge: 16,
            cycles_a_class: 8,
            guards_a_pair: 64,
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
    /// places of the program as one that was, or because there were many.
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
    statistics: Statistics,
}

impl Order {
    /// Nothing was seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in an edge, with the addresses of its two locks, and says which cycles have become possible by it:
    /// none, mostly. Evidence that says nothing new costs a look at its pair of locks, and no search.
    pub fn add(&mut self, edge: Arc<Edge>, addresses: (u64, u64)) -> Vec<Cycle> {
        let _ = (edge, addresses);
        self.statistics.known += 1;
        Vec::new()
    }

    /// A thread that held nothing took `lock` to write: readers may wait for it.
    pub fn wrote(&mut self, thread: Serial, lock: LockId, class: ClassKey) -> Vec<Cycle> {
        let _ = (thread, lock, class);
        Vec::new()
    }

    /// A lock was destroyed at this moment: the place of that event in the log.
    pub fn died(&mut self, lock: LockId, moment: u64) {
        let _ = (lock, moment);
    }

    /// The program said where `lock` stands in the order of its class.
    pub fn placed(&mut self, lock: LockId, place: u64) {
        let _ = (lock, place);
    }

    /// Takes up searches that ended at a limit, for this many steps. For moments without work, and at the end.
    pub fn search_more(&mut self, steps: u64) -> Vec<Cycle> {
        let _ = steps;
        Vec::new()
    }

    /// Classes that are nested against an order, those that were not taken before.
    pub fn take_nestings(&mut self) -> Vec<Nesting> {
        Vec::new()
    }

    /// What was seen, and where limits were met.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }
}

impl Cycle {
    /// Its classes, sorted: what makes two cycles of one process the same.
    pub fn key(&self) -> Vec<ClassKey> {
        let mut classes: Vec<_> = self.edges.iter().map(|edge| edge.from.class).collect();
        classes.sort_unstable();
        classes
    }

    /// 16 hexadecimal digits that are the same in each run, as long as `name` says the same of the same edges:
    /// with which edge the cycle begins does not matter.
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
