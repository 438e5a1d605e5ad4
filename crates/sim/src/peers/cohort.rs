//! A cohort lock, C-TKT-MCS: Dice, Marathe and Shavit, "Lock Cohorting: A General Technique for Designing
//! NUMA Locks" (PPoPP 2012). One ticket lock for all, and an MCS lock for each node of memory. The owner
//! holds both, and passes both to the next waiter of its node, up to a bound; then, or if there is none, it
//! releases the ticket lock, and after that its node's.
//!
//! Left out: the forms with time-outs. Waiters spin for ever.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::Ordering::Relaxed;

use poundlock_core::platform::{Atomic, Platform};

use super::nodes::{Nodes, mine};
use crate::Alone;
use crate::atomic::U32;
use crate::locks::Lock;
use crate::platform::Sim;

/// How often the lock stays on a node in a row: the paper's bound.
pub(super) const BATCH: u32 = 64;

const WAITS: u32 = 0;
/// Has its node's lock, and has to get the one of all nodes.
const LOCAL: u32 = 1;
/// Has both.
const BOTH: u32 = 2;

#[derive(Default)]
struct Node {
    next: U32,
    state: U32,
}

#[derive(Default)]
struct Local {
    tail: Alone<U32>,
    /// How often both were passed on in a row. The owner's, beside nothing that waiters look at.
    passed: Alone<U32>,
}

#[derive(Default)]
struct Global {
    next: Alone<U32>,
    serving: Alone<U32>,
}

/// See the module's documentation.
pub(super) struct Cohort<const BATCH: u32> {
    global: Global,
    locals: OnceCell<Box<[Local]>>,
    nodes: Nodes<Node>,
    /// Where the owner queued: it keeps that, and may have gone elsewhere.
    home: Cell<usize>,
}

impl<const BATCH: u32> Default for Cohort<BATCH> {
    fn default() -> Self {
        Cohort {
            global: Global::default(),
            locals: OnceCell::new(),
            nodes: Nodes::default(),
            home: Cell::new(0),
        }
    }
}

impl<const BATCH: u32> Cohort<BATCH> {
    fn local(&self, home: usize) -> &Local {
        let all = || (0..Sim::nodes()).map(|_| Local::default()).collect();
        &self.locals.get_or_init(all)[home]
    }

    /// Gets its node's lock; whether the other one came with it.
    fn lock_local(&self, local: &Local) -> bool {
        let me = mine();
        let node = self.nodes.get(me);
        node.next.store(0, Relaxed);
        node.state.store(WAITS, Relaxed);
        let front = local.tail.0.swap(me, Relaxed);
        if front == 0 {
            return false;
        }
        self.nodes.get(front).next.store(me, Relaxed);
        loop {
            match node.state.load(Relaxed) {
                WAITS => Sim::relax(),
                state => return state == BOTH,
            }
        }
    }

    fn unlock_local(&self, local: &Local) {
        let me = mine();
        let node = self.nodes.get(me);
        if node.next.load(Relaxed) == 0 && local.tail.0.compare_exchange(me, 0, Relaxed, Relaxed).is_ok() {
            return;
        }
        loop {
            match node.next.load(Relaxed) {
                0 => Sim::relax(),
                next => return self.nodes.get(next).state.store(LOCAL, Relaxed),
            }
        }
    }
}

impl<const BATCH: u32> Lock for Cohort<BATCH> {
    fn lock(&self) {
        let home = Sim::node() as usize;
        let local = self.local(home);
        if !self.lock_local(local) {
            let ticket = self.global.next.0.fetch_add(1, Relaxed);
            while self.global.serving.0.load(Relaxed) != ticket {
                Sim::relax();
            }
            local.passed.0.store(0, Relaxed);
        }
        self.home.set(home);
    }

    fn unlock(&self) {
        let local = self.local(self.home.get());
        let next = self.nodes.get(mine()).next.load(Relaxed);
        let passed = local.passed.0.load(Relaxed);
        if next != 0 && passed < BATCH {
            local.passed.0.store(passed + 1, Relaxed);
            self.nodes.get(next).state.store(BOTH, Relaxed);
            return;
        }
        let served = self.global.serving.0.load(Relaxed);
        self.global.serving.0.store(served.wrapping_add(1), Relaxed);
        self.unlock_local(local);
    }

    fn is_free(&self) -> bool {
        let Global { next, serving } = &self.global;
        let mut locals = self.locals.get().into_iter().flatten();
        next.0.peek() == serving.0.peek() && locals.all(|local| local.tail.0.peek() == 0)
    }
}
