//! What is known of each pair of locks, and the rules by which threads can be at several edges at once.

use std::sync::Arc;

use poundlock_statfile::check::{ClassKey, Edge, Held, LockId, Mode, Serial};

use crate::Rules;
use crate::components::Components;
use crate::numbers::Map;

/// From the moment at which something was made to that at which it died.
pub(crate) type Life = (u64, u64);

/// Threads that are remembered of one piece of evidence. Where there are more, there is always another.
const THREADS: usize = 4;

/// Threads that were at one edge in one way: with the same modes, and the same other locks held.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) from_mode: Mode,
    pub(crate) to_mode: Mode,
    /// All that is held meanwhile, `from` among it: sorted.
    pub(crate) held: Box<[Held]>,
    /// What each thread did; one more than are remembered if there were many.
    pub(crate) passes: Vec<Arc<Edge>>,
    /// The threads to choose from; none if there were many.
    pub(crate) threads: Vec<Serial>,
}

impl Group {
    pub(crate) fn many(&self) -> bool {
        self.passes.len() > THREADS
    }

    pub(crate) fn by(&self, thread: Serial) -> Option<&Arc<Edge>> {
        self.passes.iter().find(|pass| pass.thread == thread)
    }

    /// Whether another thread need not be remembered: it was seen, or there are many.
    pub(crate) fn knows(&self, thread: Serial) -> bool {
        self.many() || self.by(thread).is_some()
    }

    /// Takes in a pass of a further thread.
    pub(crate) fn push(&mut self, pass: Arc<Edge>) {
        self.threads.push(pass.thread);
        self.passes.push(pass);
        if self.many() {
            self.threads.clear();
        }
    }

    /// Forgets what a thread did.
    pub(crate) fn forget(&mut self, thread: Serial) {
        self.passes.retain(|pass| pass.thread != thread);
        self.threads.retain(|&other| other != thread);
    }

    pub(crate) fn same_modes(&self, other: &Group) -> bool {
        self.from_mode == other.from_mode && self.to_mode == other.to_mode
    }
}

/// What a thread holds at an edge.
pub(crate) fn held(edge: &Edge) -> Box<[Held]> {
    let all = edge.guards.iter().copied().chain([edge.from.held]);
    let mut held: Vec<Held> = all.filter(|held| held.mode != Mode::Condition).collect();
    // Of one that is held twice, the stronger hold comes first and stays.
    held.sort_unstable_by_key(|held| (held.lock, held.mode as u8));
    held.dedup_by_key(|held| held.lock);
    held.into()
}

/// Whether every lock of `less` is in `more`, held as strongly there. Both are sorted.
pub(crate) fn within(less: &[Held], more: &[Held]) -> bool {
    let mut more = more.iter();
    less.iter().all(|held| {
        let Some(same) = more.find(|other| other.lock >= held.lock) else { return false };
        same.lock == held.lock && (same.mode == Mode::Exclusive || held.mode != Mode::Exclusive)
    })
}

#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) id: LockId,
    pub(crate) class: u32,
    pub(crate) made: u64,
    pub(crate) died: u64,
    pub(crate) traffic: Traffic,
}

/// Who writes a lock, or locks of a class, and which readers wait behind those who do.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Threads that write and hold nothing.
    pub(crate) wrote: Vec<(u32, Serial)>,
    /// Groups of those that hold something.
    pub(crate) writers: Vec<u32>,
    /// Groups of readers that wait behind writers.
    pub(crate) readers: Vec<u32>,
}

impl Traffic {
    pub(crate) fn is_written(&self) -> bool {
        !self.wrote.is_empty() || !self.writers.is_empty()
    }
}

/// All that was seen.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) rules: Rules,
    pub(crate) locks: Vec<Lock>,
    /// What each class has.
    pub(crate) classes: Vec<Traffic>,
    pub(crate) groups: Vec<Group>,
    /// How many threads there are at least; the greatest number if there may be any number.
    pub(crate) threads: usize,
    lock_index: Map<LockId, u32>,
    class_index: Map<ClassKey, u32>,
    /// By condition variable: the locks that were held whenever it was signalled.
    signals: Map<LockId, Vec<LockId>>,
    /// Locks that were held beside the first of two.
    pub(crate) guards: Map<LockId, ()>,
}

/// How one edge's demand meets the next one's hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contact {
    /// It waits.
    Blocks,
    /// It waits if a writer waits, too.
    BehindWriter,
    /// It does not wait.
    Passes,
}

impl Tables {
    pub(crate) fn known(&self, lock: LockId) -> Option<u32> {
        self.lock_index.get(&lock).copied()
    }

    /// The number of a lock, and whether it is new.
    pub(crate) fn lock(&mut self, id: LockId, class: ClassKey) -> (u32, bool) {
        if let Some(lock) = self.known(id) {
            return (lock, false);
        }
        let classes = self.classes.len() as u32;
        let class = *self.class_index.entry(class).or_insert_with(|| {
            self.classes.push(Traffic::default());
            classes
        });
        let lock = self.locks.len() as u32;
        let traffic = Traffic::default();
        self.locks.push(Lock { id, class, made: 0, died: u64::MAX, traffic });
        self.lock_index.insert(id, lock);
        (lock, true)
    }

    pub(crate) fn class_of(&self, lock: u32) -> u32 {
        self.locks[lock as usize].class
    }

    /// A condition variable was signalled while these were held.
    pub(crate) fn signalled(&mut self, condition: LockId, held: &[Held]) {
        let all = || held.iter().map(|held| held.lock).collect();
        let always = self.signals.entry(condition).or_insert_with(all);
        always.retain(|&lock| held.iter().any(|held| held.lock == lock));
    }

    /// Whether who waits for a condition variable waits for this: it is not if others signal it without the
    /// lock.
    pub(crate) fn is_needed(&self, group: &Group) -> bool {
        let id = |lock: u32| self.locks[lock as usize].id;
        group.from_mode != Mode::Condition
            || self.signals.get(&id(group.from)).is_none_or(|always| always.contains(&id(group.to)))
    }

    /// Between which moments both locks of a group lived.
    pub(crate) fn life(&self, group: &Group) -> Life {
        let (from, to) = (&self.locks[group.from as usize], &self.locks[group.to as usize]);
        (from.made.max(to.made), from.died.min(to.died))
    }

    /// Whether a life that both have is not empty.
    pub(crate) fn alive(&self, (made, died): Life) -> bool {
        made <= died || !self.rules.lifetimes
    }

    /// Whether a thread that asks in one mode waits for one that holds in another.
    pub(crate) fn contact(&self, asks: Mode, holds: Mode) -> Contact {
        use Mode::{Condition, Exclusive, FairRead, Read};
        if !self.rules.modes {
            return Contact::Blocks;
        }
        match (asks, holds) {
            (Condition, Condition)
            | (Exclusive, Exclusive | Read | FairRead)
            | (Read | FairRead, Exclusive) => Contact::Blocks,
            (FairRead, Read | FairRead) => Contact::BehindWriter,
            (Read, Read | FairRead) | (Condition, _) | (_, Condition) => Contact::Passes,
        }
    }

    /// Whether cycles of classes with `thread` in `group` are all possible with `other`, too, which is of the
    /// same classes; `None`: with any of its threads.
    pub(crate) fn covers(&self, other: &Group, group: &Group, thread: Option<Serial>) -> bool {
        let from = self.locks[group.from as usize].id;
        let other_from = self.locks[other.from as usize].id;
        let (made, died) = self.life(group);
        let (other_made, other_died) = self.life(other);
        let all = |held: &Held| held.lock == other_from || within(std::slice::from_ref(held), &group.held);
        let threads = match thread {
            _ if other.many() => true,
            Some(thread) => other.by(thread).is_some(),
            None => !group.many() && group.passes.iter().all(|pass| other.by(pass.thread).is_some()),
        };
        threads
            && other.same_modes(group)
            && self.is_needed(other)
            && (from == other_from || !self.guards.contains_key(&other_from))
            && (other_made <= made && other_died >= died || !self.rules.lifetimes)
            && other.held.iter().all(all)
    }
}

/// A graph: of locks, or of classes.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    index: Map<(u32, u32), u32>,
    pub(crate) links: Vec<Link>,
    pub(crate) out: Vec<Vec<u32>>,
    pub(crate) into: Vec<Vec<u32>>,
    pub(crate) components: Components,
}

/// An edge of a graph, with all groups that were at it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) groups: Vec<u32>,
}

impl Graph {
    pub(crate) fn add_node(&mut self, kind: u32) {
        self.components.add(kind);
        self.out.push(Vec::new());
        self.into.push(Vec::new());
    }

    /// The edge between two nodes, which is made if there is none.
    pub(crate) fn link(&mut self, from: u32, to: u32) -> u32 {
        let next = self.links.len() as u32;
        let link = *self.index.entry((from, to)).or_insert(next);
        if link == next {
            self.links.push(Link { from, to, groups: Vec::new() });
            self.out[from as usize].push(link);
            self.into[to as usize].push(link);
            self.components.insert(from, to);
        }
        link
    }
}
