//! The search for cycles through one edge.
//!
//! Paths from the edge's head back to its tail are tried in the order of their lengths, depth first, and no
//! deeper than the length in question (iterative deepening; how far a node is from the tail at least is known
//! from a search backward, which goes on by a layer with each length). Along a path, the rules are kept: a
//! step that cannot be taken together with those before it is not taken. So no path is longer than there are
//! threads, and a path goes no further than to where a cycle that is known lies within it.

use std::rc::Rc;

use poundlock_statfile::check::{LockId, Mode, Serial};

use crate::evidence::{Contact, Graph, Group, Life, Tables, Traffic};
use crate::known::{Known, Verdict};
use crate::matching::Matching;
use crate::numbers::Map;
use crate::{Cycle, Evidence, Limits, Writer};

/// Of what a graph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Locks,
    Classes,
}

/// One search, which may have to be taken up again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) of: Of,
    pub(crate) group: u32,
    /// The thread whose evidence is new; `None`: any.
    pub(crate) thread: Option<Serial>,
    /// How often it was begun.
    pub(crate) tries: u32,
}

/// Marks of nodes, kept from search to search.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// By which search a node was given its distance, and that.
    distance: Vec<(u32, u32)>,
    searches: u32,
    /// Whether a lock is on the path.
    on: Vec<bool>,
    /// How many nodes of a class are on the path.
    class_on: Vec<u32>,
}

pub(crate) struct Search<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) graph: &'a Graph,
    pub(crate) known: &'a mut Known,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) limits: &'a Limits,
    pub(crate) of: Of,
    /// Steps that may be taken yet.
    pub(crate) left: u64,
    /// The component in which the cycles are.
    root: u32,
    /// Whether enough were found among locks of one class, and no more are looked for.
    enough: bool,
    state: State<'a>,
    /// Groups worth trying at an edge of the graph.
    choices: Map<u32, Rc<[u32]>>,
    /// The last layer of nodes whose distance is known, and that distance.
    layer: Vec<u32>,
    depth: u32,
    found: Vec<Cycle>,
}

/// The path so far, and what its threads hold.
#[derive(Default)]
struct State<'a> {
    path: Vec<u32>,
    matching: Matching<'a>,
    /// How many hold a lock, and how many of them exclusively.
    holds: Map<LockId, (u32, u32)>,
    /// Edges of the path at whose ends a writer must wait.
    behind: Vec<usize>,
}

/// A node of the path, with what is next to be tried from there.
struct Frame {
    node: u32,
    link: usize,
    choice: usize,
    life: Life,
    /// The step to here has put an edge into `behind`.
    behind: bool,
}

/// A writer for whom a reader waits.
#[derive(Debug, Clone, Copy)]
enum Chosen {
    /// One that holds nothing: the lock that it writes, and its thread.
    Alone(u32, Serial),
    Group(u32),
}

/// A search ended at a limit.
pub(crate) struct Short;

impl<'a> Search<'a> {
    pub(crate) fn new(
        (tables, graph, known): (&'a Tables, &'a Graph, &'a mut Known),
        scratch: &'a mut Scratch,
        limits: &'a Limits,
        (of, left): (Of, u64),
    ) -> Self {
        let (choices, layer) = (Map::default(), Vec::new());
        let state = State::default();
        Self {
            tables,
            graph,
            known,
            scratch,
            limits,
            of,
            left,
            state,
            choices,
            layer,
            root: 0,
            enough: false,
            depth: 0,
            found: Vec::new(),
        }
    }

    /// The cycles that are possible with `task`, the shortest first; and whether those are all.
    pub(crate) fn run(mut self, task: Task) -> (Vec<Cycle>, u64, Result<(), Short>) {
        let group = &self.tables.groups[task.group as usize];
        let (tail, head) = (self.node(group.from), self.node(group.to));
        self.root = self.graph.components.find(tail);
        // A pass of the thread that says more has taken the place of the one that there was.
        let gone = task.thread.is_some_and(|thread| !group.knows(thread));
        let pointless = gone
            || group.passes.is_empty()
            || tail == head
            || self.graph.components.find(head) != self.root
            || self.is_enough();
        if pointless {
            return (Vec::new(), self.left, Ok(()));
        }
        self.scratch.distance.resize(self.graph.out.len().max(self.scratch.distance.len()), (0, 0));
        self.scratch.on.resize(self.tables.locks.len(), false);
        self.scratch.class_on.resize(self.tables.classes.len(), 0);
        self.scratch.searches += 1;
        let end = self.search(task, group, tail, head);
        (self.found, self.left, end)
    }

    /// Whether all locks here are of one class, and enough cycles among those were found.
    fn is_enough(&self) -> bool {
        let kind = self.graph.components.kind(self.root);
        self.of == Of::Locks && self.known.is_enough(kind, self.limits.cycles_a_class)
    }

    fn node(&self, lock: u32) -> u32 {
        if self.of == Of::Locks { lock } else { self.tables.class_of(lock) }
    }

    fn traffic(&self, node: u32) -> &'a Traffic {
        match self.of {
            Of::Locks => &self.tables.locks[node as usize].traffic,
            Of::Classes => &self.tables.classes[node as usize],
        }
    }

    fn step(&mut self, steps: u64) -> Result<(), Short> {
        self.left = self.left.checked_sub(steps).ok_or(Short)?;
        Ok(())
    }

    fn mark(&mut self, node: u32, on: bool) {
        let class = match self.of {
            Of::Locks => {
                self.scratch.on[node as usize] = on;
                self.tables.class_of(node)
            }
            Of::Classes => node,
        };
        let count = &mut self.scratch.class_on[class as usize];
        *count = if on { *count + 1 } else { *count - 1 };
    }

    /// Whether a cycle that is known, and passes through `node`, lies within the path.
    fn is_covered(&mut self, node: u32) -> Result<bool, Short> {
        let (class, least) = match self.of {
            Of::Locks => (self.tables.class_of(node), Evidence::SameLocks),
            Of::Classes => (node, Evidence::SameClasses),
        };
        let scratch = &*self.scratch;
        let (mut covered, mut looks) =
            self.known.covers_class(class, |class| scratch.class_on[class as usize] > 0, least);
        if !covered && self.of == Of::Locks {
            let (by_locks, more) = self.known.covers_lock(node, |lock| scratch.on[lock as usize]);
            (covered, looks) = (by_locks, looks + more);
        }
        self.step(looks)?;
        Ok(covered)
    }

    fn search(&mut self, task: Task, group: &'a Group, tail: u32, head: u32) -> Result<(), Short> {
        self.mark(tail, true);
        self.mark(head, true);
        let mut frames = Vec::new();
        let result = self.deepen(task, group, (tail, head), &mut frames);
        // Those of the path beyond the first edge, if it ended in its midst.
        for frame in frames.drain(..).skip(1) {
            self.mark(frame.node, false);
        }
        self.mark(head, false);
        self.mark(tail, false);
        result
    }

    fn deepen(
        &mut self,
        task: Task,
        group: &'a Group,
        (tail, head): (u32, u32),
        frames: &mut Vec<Frame>,
    ) -> Result<(), Short> {
        if self.is_covered(tail)? || self.is_covered(head)? {
            return Ok(());
        }
        let life = self.tables.life(group);
        let candidates = match task.thread {
            Some(thread) => group
                .threads
                .iter()
                .position(|&other| other == thread)
                .map_or(&[][..], |at| &group.threads[at..=at]),
            None => &group.threads,
        };
        let possible = self.tables.is_needed(group) && self.tables.alive(life);
        if !possible || !self.enter(task.group, candidates)? {
            return Ok(());
        }
        self.scratch.distance[tail as usize] = (self.scratch.searches, 0);
        self.layer.push(tail);
        let mut length = Some(2);
        while let Some(most) = length {
            while self.depth + 1 < most && !self.layer.is_empty() {
                self.next_layer()?;
            }
            frames.push(Frame { node: head, link: 0, choice: 0, life, behind: false });
            length = self.paths(most, tail, group, frames)?;
        }
        Ok(())
    }

    /// Finds the distances of all nodes that are one edge further from the tail.
    fn next_layer(&mut self) -> Result<(), Short> {
        self.depth += 1;
        for node in std::mem::take(&mut self.layer) {
            for &link in &self.graph.into[node as usize] {
                self.step(1)?;
                let from = self.graph.links[link as usize].from;
                if self.scratch.distance[from as usize].0 != self.scratch.searches
                    && self.graph.components.find(from) == self.root
                {
                    self.scratch.distance[from as usize] = (self.scratch.searches, self.depth);
                    self.layer.push(from);
                }
            }
        }
        Ok(())
    }

    /// How many edges it is from `node` to the tail at least; `None` if it does not get there.
    fn distance(&self, node: u32) -> Option<u32> {
        match self.scratch.distance[node as usize] {
            (search, distance) if search == self.scratch.searches => Some(distance),
            _ if self.layer.is_empty() => None,
            _ => Some(self.depth + 1),
        }
    }

    /// Follows all paths that make cycles of up to `most` edges, and looks at those that have as many. The
    /// answer is the least length that a longer cycle can have.
    fn paths(
        &mut self,
        most: u32,
        tail: u32,
        start: &'a Group,
        frames: &mut Vec<Frame>,
    ) -> Result<Option<u32>, Short> {
        let mut longer: Option<u32> = None;
        while let Some(frame) = frames.last() {
            let (node, life, choice) = (frame.node, frame.life, frame.choice);
            let Some(&number) = self.graph.out[node as usize].get(frame.link) else {
                let done = frames.pop();
                if let Some(done) = done.filter(|_| !frames.is_empty()) {
                    self.mark(done.node, false);
                    self.leave(done.behind);
                }
                continue;
            };
            let to = self.graph.links[number as usize].to;
            let mut skip = false;
            if choice == 0 {
                self.step(1)?;
                skip = to != tail && self.is_on(to) || self.graph.components.find(to) != self.root;
                if !skip {
                    // The first edge, those of the frames, the one to `to`, and what is left from there.
                    let length = self.distance(to).map(|left| frames.len() as u32 + 1 + left);
                    let later =
                        length.filter(|&length| length > most && longer.is_none_or(|longer| length < longer));
                    if let Some(length) = later.filter(|&length| length as usize <= self.longest()) {
                        let choices = self.choices(number)?;
                        for &next in &*choices {
                            if self.enters(next, node, life)?.is_some() {
                                self.leave(false);
                                longer = Some(length);
                                break;
                            }
                        }
                    }
                    // Shorter cycles have been looked at.
                    skip = length.is_none_or(|length| length > most || to == tail && length < most);
                }
                if !skip && to != tail {
                    self.mark(to, true);
                    let covered = self.is_covered(to);
                    self.mark(to, false);
                    skip = covered?;
                }
            }
            let choices = if skip { None } else { self.choices(number)?.get(choice).copied() };
            let Some(frame) = frames.last_mut() else { break };
            let Some(next) = choices else {
                (frame.link, frame.choice) = (frame.link + 1, 0);
                continue;
            };
            frame.choice += 1;
            let group = &self.tables.groups[next as usize];
            let Some((life, behind)) = self.enters(next, node, life)? else { continue };
            if behind {
                self.state.behind.push(self.state.path.len() - 2);
            }
            if to != tail {
                self.mark(to, true);
                frames.push(Frame { node: to, link: 0, choice: 0, life, behind });
                continue;
            }
            let closed = self.close(start, group, tail, life)?;
            self.leave(behind);
            if self.enough {
                return Ok(None);
            }
            if closed && self.found.len() >= self.limits.cycles_an_edge {
                return Err(Short);
            }
        }
        Ok(longer)
    }

    /// How many edges a cycle can have: a thread each.
    fn longest(&self) -> usize {
        if self.tables.rules.threads { self.tables.threads } else { usize::MAX }
    }

    /// Goes on from `node` by a step of `next`, if the rules allow it. The answer is between which moments
    /// all locks of the path lived, and whether the step before waits behind a writer.
    fn enters(&mut self, next: u32, node: u32, life: Life) -> Result<Option<(Life, bool)>, Short> {
        let group = &self.tables.groups[next as usize];
        let last = self.state.path.last().copied().unwrap_or_default();
        let asks = self.tables.groups[last as usize].to_mode;
        let Some(behind) = self.waits(asks, group.from_mode, node) else { return Ok(None) };
        let own = self.tables.life(group);
        let life = (life.0.max(own.0), life.1.min(own.1));
        let possible = self.tables.is_needed(group) && self.tables.alive(life);
        let enters = possible && self.enter(next, &group.threads)?;
        Ok(enters.then_some((life, behind)))
    }

    fn is_on(&self, node: u32) -> bool {
        match self.of {
            Of::Locks => self.scratch.on[node as usize],
            Of::Classes => self.scratch.class_on[node as usize] > 0,
        }
    }

    /// Whether who asks at `node` in one mode waits for who holds it in another; if so, whether behind a
    /// writer.
    fn waits(&self, asks: Mode, holds: Mode, node: u32) -> Option<bool> {
        match self.tables.contact(asks, holds) {
            Contact::Blocks => Some(false),
            Contact::BehindWriter if self.traffic(node).is_written() => Some(true),
            Contact::BehindWriter | Contact::Passes => None,
        }
    }

    /// The groups at an edge of the graph, without those that can do no more than others.
    fn choices(&mut self, link: u32) -> Result<Rc<[u32]>, Short> {
        if let Some(choices) = self.choices.get(&link) {
            return Ok(choices.clone());
        }
        let groups = &self.graph.links[link as usize].groups;
        let mut choices: Vec<u32> = Vec::new();
        for &group in groups {
            self.step(1 + choices.len() as u64)?;
            let new = &self.tables.groups[group as usize];
            let covers = |&other: &u32| self.tables.covers(&self.tables.groups[other as usize], new, None);
            if self.of == Of::Locks || !choices.iter().any(covers) {
                choices.push(group);
            }
        }
        let choices: Rc<[u32]> = choices.into();
        self.choices.insert(link, choices.clone());
        Ok(choices)
    }

    /// Adds a step to the path, if its locks can be held beside those that are, by a thread of its own.
    fn enter(&mut self, group: u32, candidates: &'a [Serial]) -> Result<bool, Short> {
        let held = &self.tables.groups[group as usize].held;
        self.step(1 + held.len() as u64)?;
        let entered = self.state.enter(self.tables, group, candidates);
        Ok(entered)
    }

    fn leave(&mut self, behind: bool) {
        if behind {
            self.state.behind.pop();
        }
        self.state.leave(self.tables);
    }

    /// A path has come back to its tail by `last`: takes in the cycle if it is possible and new.
    fn close(&mut self, start: &Group, last: &Group, tail: u32, life: Life) -> Result<bool, Short> {
        let Some(behind) = self.waits(last.to_mode, start.from_mode, tail) else { return Ok(false) };
        if !self.found.is_empty() {
            // What this search has found may lie within the path, too.
            for at in 0..self.state.path.len() {
                let group = &self.tables.groups[self.state.path[at] as usize];
                if self.is_covered(self.node(group.from))? {
                    return Ok(false);
                }
            }
        }
        if behind {
            self.state.behind.push(self.state.path.len() - 1);
        }
        let cycle = self.with_writers(0, life, &mut Vec::new());
        if behind {
            self.state.behind.pop();
        }
        let Some(mut cycle) = cycle? else { return Ok(false) };
        let most = self.limits.cycles_a_class;
        match self.known.insert(self.tables, &cycle.edges, cycle.evidence, most) {
            Verdict::Alike => {
                self.enough = self.is_enough();
                return Ok(false);
            }
            Verdict::Report => {}
            Verdict::Upgrade => cycle.upgraded = true,
        }
        self.found.push(cycle);
        Ok(true)
    }

    /// Finds writers for the readers of the path from number `next` on.
    fn with_writers(
        &mut self,
        next: usize,
        life: Life,
        writers: &mut Vec<Chosen>,
    ) -> Result<Option<Cycle>, Short> {
        let Some(&at) = self.state.behind.get(next) else { return Ok(Some(self.cycle(writers))) };
        let asks = &self.tables.groups[self.state.path[at] as usize];
        let traffic = self.traffic(self.node(asks.to));
        let meet = |own: Life| (life.0.max(own.0), life.1.min(own.1));
        for (number, thread) in &traffic.wrote {
            let (number, thread) = (*number, std::slice::from_ref(thread));
            self.step(1)?;
            let lock = &self.tables.locks[number as usize];
            let life = meet((lock.made, lock.died));
            let threads = if self.tables.rules.threads { thread } else { &[] };
            if self.tables.alive(life) && self.state.matching.push(threads) {
                writers.push(Chosen::Alone(number, thread[0]));
                let cycle = self.with_writers(next + 1, life, writers);
                writers.pop();
                self.state.matching.pop();
                if let Some(cycle) = cycle? {
                    return Ok(Some(cycle));
                }
            }
        }
        for &number in &traffic.writers {
            let group = &self.tables.groups[number as usize];
            let lock = &self.tables.locks[group.to as usize];
            let life = meet((lock.made, lock.died));
            if !group.passes.is_empty() && self.tables.alive(life) && self.enter(number, &group.threads)? {
                writers.push(Chosen::Group(number));
                let cycle = self.with_writers(next + 1, life, writers);
                writers.pop();
                self.state.leave(self.tables);
                if let Some(cycle) = cycle? {
                    return Ok(Some(cycle));
                }
            }
        }
        Ok(None)
    }

    /// The path as a cycle, with the threads that were found for it.
    fn cycle(&self, writers: &[Chosen]) -> Cycle {
        let State { path, matching, behind, .. } = &self.state;
        let own = path.len() - writers.iter().filter(|writer| matches!(writer, Chosen::Group(_))).count();
        let group = |number: u32| &self.tables.groups[number as usize];
        let pass = |number: u32, seat: usize| {
            let group = group(number);
            let chosen = matching.thread(seat).and_then(|thread| group.by(thread));
            let free = || group.passes.iter().find(|pass| !matching.has(pass.thread));
            chosen.or_else(free).unwrap_or(&group.passes[0]).clone()
        };
        let edges: Vec<_> =
            path[..own].iter().enumerate().map(|(seat, &number)| pass(number, seat)).collect();
        let writers = writers.iter().zip(behind).enumerate().map(|(seat, (&writer, &at))| match writer {
            Chosen::Alone(lock, thread) => {
                Writer { at, thread, lock: self.tables.locks[lock as usize].id, edge: None }
            }
            Chosen::Group(number) => {
                let edge = pass(number, own + seat);
                Writer { at, thread: edge.thread, lock: edge.to.held.lock, edge: Some(edge) }
            }
        });
        let writers: Vec<_> = writers.collect();
        let asked = |at: usize| edges[at].to.held.lock;
        let same = (0..own).all(|at| asked(at) == edges[(at + 1) % own].from.held.lock)
            && writers.iter().all(|writer| asked(writer.at) == writer.lock);
        Cycle {
            evidence: if same { Evidence::SameLocks } else { Evidence::SameClasses },
            upgraded: false,
            partial: edges.iter().filter(|edge| edge.more).count() > 1,
            writers,
            edges,
        }
    }
}

impl<'a> State<'a> {
    fn enter(&mut self, tables: &Tables, number: u32, candidates: &'a [Serial]) -> bool {
        let candidates = if tables.rules.threads { candidates } else { &[] };
        let held = &tables.groups[number as usize].held;
        let clash = held.iter().any(|held| {
            let &(all, exclusively) = self.holds.get(&held.lock).unwrap_or(&(0, 0));
            exclusively > 0 || held.mode == Mode::Exclusive && all > 0
        });
        if clash && tables.rules.guards || !self.matching.push(candidates) {
            return false;
        }
        for held in held {
            let (all, exclusively) = self.holds.entry(held.lock).or_default();
            *all += 1;
            *exclusively += u32::from(held.mode == Mode::Exclusive);
        }
        self.path.push(number);
        true
    }

    fn leave(&mut self, tables: &Tables) {
        let Some(number) = self.path.pop() else { return };
        for held in &tables.groups[number as usize].held {
            if let Some((all, exclusively)) = self.holds.get_mut(&held.lock) {
                *all -= 1;
                *exclusively -= u32::from(held.mode == Mode::Exclusive);
            }
        }
        self.matching.pop();
    }
}
