//! What a recorder does: it turns what threads do with locks into edges. A model, by the plainest means.

use std::collections::HashMap;
use std::sync::Arc;

use poundlock_order::{Cycle, Order};
use poundlock_statfile::check::{ClassKey, Edge, End, Held, LockId, Mode, Serial};

/// Something that a thread does with a lock. Each is at a moment: its place in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Make(LockId, ClassKey),
    Destroy(LockId),
    Take {
        lock: LockId,
        mode: Mode,
        tries: bool,
    },
    Release(LockId),
    /// A wait for a condition variable.
    Wait(LockId),
    Signal(LockId),
}

pub(crate) type Trace = Vec<(Serial, Op)>;

/// Threads that a recorder tells apart at one edge.
const THREADS: usize = 4;

#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) order: Order,
    pub(crate) found: Vec<Cycle>,
    /// Whether an edge is given to the graph each time, not only when it is new.
    pub(crate) repeats: bool,
    classes: HashMap<LockId, (ClassKey, u64)>,
    held: HashMap<Serial, Vec<(Held, bool)>>,
    seen: HashMap<(Held, Held, Vec<Held>), Vec<Serial>>,
    stacks: u64,
}

impl Recorder {
    pub(crate) fn new(order: Order, repeats: bool) -> Self {
        Self { order, repeats, ..Self::default() }
    }

    pub(crate) fn run(&mut self, trace: &Trace) {
        for (moment, &(thread, op)) in trace.iter().enumerate() {
            self.step(moment as u64, thread, op);
        }
    }

    /// Tells the graph of all signals of a trace.
    pub(crate) fn tell_signals(&mut self, trace: &Trace) {
        let mut held: HashMap<Serial, Vec<Held>> = HashMap::new();
        for &(thread, op) in trace {
            let own = held.entry(thread).or_default();
            match op {
                Op::Take { lock, mode, .. } => own.push(Held { lock, mode }),
                Op::Release(lock) => own.retain(|held| held.lock != lock),
                Op::Signal(lock) => self.order.signalled(lock, own),
                Op::Make(..) | Op::Destroy(_) | Op::Wait(_) => {}
            }
        }
    }

    fn step(&mut self, moment: u64, thread: Serial, op: Op) {
        let held = self.held.entry(thread).or_default().clone();
        let holds: Vec<Held> = held.iter().map(|(held, _)| *held).collect();
        match op {
            Op::Make(lock, class) => {
                self.classes.insert(lock, (class, moment));
            }
            Op::Destroy(lock) => self.order.died(lock, moment),
            Op::Take { lock, mode, tries } => {
                let to = Held { lock, mode };
                if !tries {
                    self.edges(thread, &holds, to);
                    if holds.is_empty() && mode == Mode::Exclusive {
                        let found = {
                            let (class, made) = self.classes[&lock];
                            self.order.wrote(thread, lock, class, made)
                        };
                        self.found.extend(found);
                    }
                }
                self.held.entry(thread).or_default().push((to, tries));
            }
            Op::Release(lock) => self.held.entry(thread).or_default().retain(|(held, _)| held.lock != lock),
            Op::Wait(lock) => self.edges(thread, &holds, Held { lock, mode: Mode::Condition }),
            Op::Signal(lock) => {
                for (at, &(to, tries)) in held.iter().enumerate() {
                    if !tries {
                        self.edge(thread, Held { lock, mode: Mode::Condition }, to, holds[..at].to_vec());
                    }
                }
            }
        }
    }

    fn edges(&mut self, thread: Serial, holds: &[Held], to: Held) {
        for &from in holds {
            let guards = holds.iter().copied().filter(|held| *held != from).collect();
            self.edge(thread, from, to, guards);
        }
    }

    fn edge(&mut self, thread: Serial, from: Held, to: Held, guards: Vec<Held>) {
        let mut set = guards.clone();
        set.sort_by_key(|held| held.lock);
        let seen = self.seen.entry((from, to, set)).or_default();
        if !self.repeats && (seen.contains(&thread) || seen.len() > THREADS) {
            return;
        }
        seen.push(thread);
        let mut end = |held: Held| {
            self.stacks += 1;
            let (class, made) = self.classes[&held.lock];
            End { held, class, stack: Arc::new([self.stacks]), made }
        };
        let edge = Edge { thread, from: end(from), to: end(to), guards, more: false };
        let found = self.order.add(Arc::new(edge), (0, 0));
        self.found.extend(found);
    }
}
