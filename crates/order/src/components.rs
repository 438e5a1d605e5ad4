//! Strongly connected components of a graph that grows by an arc at a time, and an order of them.
//!
//! Two nodes of one component are on a cycle together, so an arc whose ends are in different components
//! closes none. The components are kept in an order in which each arc rises: by level, and by index within a
//! level. An arc that rises already costs nothing. Another one costs two searches, both within the nodes
//! between its ends: backward from its tail within the tail's level, over at most `sqrt(arcs)` arcs, and
//! forward from its head, over nodes that rise by a level or more. Nodes that were found get new places:
//! those of the backward search, then those of the forward search, before all others of their level. This is
//! the algorithm for sparse graphs of M. Bender, J. Fineman, S. Gilbert and R. Tarjan, "A New Approach to
//! Incremental Cycle Detection and Related Problems" (ACM Transactions on Algorithms, 2016): m arcs cost
//! O(m^1.5) steps in all, whatever their order.
//!
//! A cycle is contracted to one node of the order, so that the order remains one and says all that there is
//! to know:
//! LEVELS. No arc falls in level, and one within a level rises in index.
//! SAME. For each arc within a level, the list `same` of its head has its tail. It may have others, too, that
//! have left the level or have become the same component: they are dropped when they are met.
//! WHOLE. All nodes of a cycle are in one level when it is contracted, and no other node lies on a path
//! between two of them: the component that takes their place keeps LEVELS with any index between what reaches
//! it and the rest.
//!
//! Proof: here. Stress: the tests below, against reachability by brute force.

/// The least number of arcs that a search backward may follow. Tests have every search cut short now and
/// then.
const LEAST: u64 = if cfg!(test) { 1 } else { 8 };

/// A kind of components whose nodes are of several kinds.
pub(crate) const MIXED: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Components {
    nodes: Vec<Node>,
    searches: u32,
    /// The index that was given last at the front of some level, and at the end of the first.
    first: i64,
    last: i64,
    arcs: u64,
    steps: u64,
}

/// A node, and the component of which it is the representative.
#[derive(Debug)]
struct Node {
    parent: u32,
    /// Nodes in the component.
    size: u32,
    level: u32,
    /// What the nodes of the component are, if all are the same.
    kind: u32,
    /// The search that has last found it, backward and forward.
    back: u32,
    forth: u32,
    index: i64,
    /// Heads of arcs. Those within the component are dropped when they are met.
    out: Vec<u32>,
    /// Tails of arcs from the same level.
    same: Vec<u32>,
}

/// What a search backward found.
struct Closure {
    /// Tails before heads.
    order: Vec<u32>,
    arcs: Vec<(u32, u32)>,
    complete: bool,
}

impl Components {
    /// A new node, of this kind, alone.
    pub(crate) fn add(&mut self, kind: u32) -> u32 {
        let node = self.nodes.len() as u32;
        // At the end: an arc from an older node to this one rises.
        self.last += 1;
        self.nodes.push(Node {
            parent: node,
            size: 1,
            level: 1,
            kind,
            back: 0,
            forth: 0,
            index: self.last,
            out: Vec::new(),
            same: Vec::new(),
        });
        node
    }

    /// The representative of the component of `node`.
    pub(crate) fn find(&self, mut node: u32) -> u32 {
        // Not deeper than the logarithm of the size: the smaller component goes below the larger one.
        while self.nodes[node as usize].parent != node {
            node = self.nodes[node as usize].parent;
        }
        node
    }

    /// What the nodes of the component of `node` are; [`MIXED`] if not all are the same.
    pub(crate) fn kind(&self, node: u32) -> u32 {
        self.nodes[self.find(node) as usize].kind
    }

    /// Steps that all insertions took.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    fn before(&self, a: u32, b: u32) -> bool {
        let place = |node: u32| (self.nodes[node as usize].level, self.nodes[node as usize].index);
        place(a) < place(b)
    }

    /// Takes in an arc that is new.
    pub(crate) fn insert(&mut self, tail: u32, head: u32) {
        let (tail, head) = (self.find(tail), self.find(head));
        self.steps += 1;
        if tail == head {
            return;
        }
        self.arcs += 1;
        if self.before(tail, head) {
            self.attach(tail, head);
            return;
        }
        let level = self.nodes[tail as usize].level;
        let back = self.search_back(tail, self.arcs.isqrt().max(LEAST));
        let mut cycle = false;
        let mut forth = Vec::new();
        if back.complete && self.nodes[head as usize].level == level {
            cycle = self.nodes[head as usize].back == self.searches;
        } else {
            let to = if back.complete { level } else { level + 1 };
            forth = self.search_forth(head, to);
            cycle |= if back.complete {
                back.order.iter().any(|&node| self.nodes[node as usize].forth == self.searches)
            } else {
                self.nodes[tail as usize].forth == self.searches
            };
        }
        if cycle {
            self.contract(tail, head, &forth);
        } else {
            if back.complete {
                self.place_first(back.order.iter().copied().chain(forth.iter().copied()).collect());
            } else {
                self.place_first(forth);
            }
            self.attach(tail, head);
        }
    }

    fn attach(&mut self, tail: u32, head: u32) {
        self.nodes[tail as usize].out.push(head);
        if self.nodes[tail as usize].level == self.nodes[head as usize].level {
            self.nodes[head as usize].same.push(tail);
        }
    }

    /// What reaches `from` within its level, over at most `most` arcs.
    fn search_back(&mut self, from: u32, most: u64) -> Closure {
        self.searches += 1;
        let mut found = Closure { order: Vec::new(), arcs: Vec::new(), complete: true };
        self.nodes[from as usize].back = self.searches;
        let mut stack = vec![(from, 0)];
        while let Some((head, next)) = stack.last_mut() {
            let head = *head;
            let Some(&tail) = self.nodes[head as usize].same.get(*next) else {
                found.order.push(head);
                stack.pop();
                continue;
            };
            self.steps += 1;
            let tail = self.find(tail);
            if tail == head || self.nodes[tail as usize].level != self.nodes[head as usize].level {
                self.nodes[head as usize].same.swap_remove(*next);
                continue;
            }
            *next += 1;
            if found.arcs.len() as u64 == most {
                found.complete = false;
                break;
            }
            found.arcs.push((tail, head));
            if self.nodes[tail as usize].back != self.searches {
                self.nodes[tail as usize].back = self.searches;
                stack.push((tail, 0));
            }
        }
        found
    }

    /// Raises `from` to a level, and with it all that must not be lower. These in their order; what they meet
    /// in that level is marked, too.
    fn search_forth(&mut self, from: u32, level: u32) -> Vec<u32> {
        let mut order = Vec::new();
        self.raise(from, level);
        let mut stack = vec![(from, 0)];
        while let Some((tail, next)) = stack.last_mut() {
            let tail = *tail;
            let Some(&head) = self.nodes[tail as usize].out.get(*next) else {
                order.push(tail);
                stack.pop();
                continue;
            };
            self.steps += 1;
            let head = self.find(head);
            if head == tail {
                self.nodes[tail as usize].out.swap_remove(*next);
                continue;
            }
            *next += 1;
            if self.nodes[head as usize].level < level {
                self.raise(head, level);
                stack.push((head, 0));
            }
            if self.nodes[head as usize].level == level {
                self.nodes[head as usize].same.push(tail);
                self.nodes[head as usize].forth = self.searches;
            }
        }
        order.reverse();
        order
    }

    fn raise(&mut self, node: u32, level: u32) {
        self.nodes[node as usize].level = level;
        self.nodes[node as usize].same.clear();
        self.nodes[node as usize].forth = self.searches;
    }

    /// Makes one component of all that is on a cycle with a new arc. `raised` is what has changed its level.
    fn contract(&mut self, tail: u32, head: u32, raised: &[u32]) {
        // All of the cycle is in the tail's level now. What reaches the tail there: it, and what comes before
        // it.
        let back = self.search_back(tail, u64::MAX);
        let mut arcs = back.arcs;
        arcs.sort_unstable();
        let mut members = vec![head];
        self.nodes[head as usize].forth = self.searches;
        let mut next = 0;
        while let Some(&node) = members.get(next) {
            next += 1;
            let begin = arcs.partition_point(|arc| arc.0 < node);
            for &(_, to) in arcs[begin..].iter().take_while(|arc| arc.0 == node) {
                self.steps += 1;
                if self.nodes[to as usize].forth != self.searches {
                    self.nodes[to as usize].forth = self.searches;
                    members.push(to);
                }
            }
        }
        let member = |node: &u32| self.nodes[*node as usize].forth == self.searches;
        let before = back.order.iter().copied().filter(|node| !member(node));
        let after = raised.iter().copied().filter(|node| !member(node));
        let (before, after): (Vec<u32>, Vec<u32>) = (before.collect(), after.collect());
        let whole = members.into_iter().reduce(|a, b| self.unite(a, b)).unwrap_or(head);
        self.place_first(before.into_iter().chain([whole]).chain(after).collect());
    }

    fn unite(&mut self, a: u32, b: u32) -> u32 {
        let (kept, gone) =
            if self.nodes[a as usize].size >= self.nodes[b as usize].size { (a, b) } else { (b, a) };
        self.nodes[gone as usize].parent = kept;
        self.nodes[kept as usize].size += self.nodes[gone as usize].size;
        if self.nodes[kept as usize].kind != self.nodes[gone as usize].kind {
            self.nodes[kept as usize].kind = MIXED;
        }
        let (out, same) = (
            std::mem::take(&mut self.nodes[gone as usize].out),
            std::mem::take(&mut self.nodes[gone as usize].same),
        );
        let into = &mut self.nodes[kept as usize];
        for (list, mut more) in [(&mut into.out, out), (&mut into.same, same)] {
            if more.len() > list.len() {
                std::mem::swap(&mut more, list);
            }
            self.steps += more.len() as u64;
            list.append(&mut more);
        }
        kept
    }

    /// Puts these before all others of their level, in this order.
    fn place_first(&mut self, order: Vec<u32>) {
        for &node in order.iter().rev() {
            self.first -= 1;
            self.nodes[node as usize].index = self.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What reaches what, by brute force.
    struct Reach(Vec<Vec<bool>>);

    impl Reach {
        fn insert(&mut self, tail: usize, head: usize) {
            for from in 0..self.0.len() {
                if from == tail || self.0[from][tail] {
                    for to in 0..self.0.len() {
                        let reached = to == head || self.0[head][to];
                        self.0[from][to] |= reached;
                    }
                }
            }
        }
    }

    #[test]
    fn components_and_order_are_right_after_each_arc() {
        for seed in 0..3000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let nodes = random.usize(2..14);
            let kinds: Vec<u32> = (0..nodes).map(|_| random.u32(0..2)).collect();
            let mut components = Components::default();
            kinds.iter().for_each(|&kind| {
                components.add(kind);
            });
            let mut reach = Reach(vec![vec![false; nodes]; nodes]);
            let mut arcs = Vec::new();
            // Mostly upward, so that there is something to order before all is one.
            let against = random.usize(1..20);
            // So that searches are cut short at different lengths.
            components.arcs = random.u64(0..30);
            for _ in 0..random.usize(1..60) {
                let (mut a, mut b) = (random.usize(0..nodes), random.usize(0..nodes));
                if a > b && random.usize(0..against) != 0 {
                    (a, b) = (b, a);
                }
                if seed % 2 == 0 {
                    (a, b) = (nodes - 1 - a, nodes - 1 - b);
                }
                if a == b || arcs.contains(&(a, b)) {
                    continue;
                }
                arcs.push((a, b));
                reach.insert(a, b);
                components.insert(a as u32, b as u32);
                for x in 0..nodes {
                    for y in 0..nodes {
                        let joined = x == y || reach.0[x][y] && reach.0[y][x];
                        assert_eq!(
                            (components.find(x as u32) == components.find(y as u32)),
                            joined,
                            "seed {seed}: {x}, {y}, {arcs:?}"
                        );
                    }
                    let of = (0..nodes).filter(|&y| components.find(x as u32) == components.find(y as u32));
                    let mut found: Vec<_> = of.map(|y| kinds[y]).collect();
                    found.dedup();
                    let kind = if found.len() == 1 { found[0] } else { MIXED };
                    assert_eq!(components.kind(x as u32), kind, "seed {seed}");
                }
                for &(x, y) in &arcs {
                    let (x, y) = (components.find(x as u32), components.find(y as u32));
                    assert!(x == y || components.before(x, y), "seed {seed}: {x} before {y}, {arcs:?}");
                }
            }
        }
    }
}
