//! Strongly connected components of a graph that grows by an arc at a time, and an order of them.
//!
//! Two nodes of one component are on a cycle together, so an arc whose ends are in different components closes none.
//! The components are kept in an order in which each arc rises: by level, and by index within a level. An arc that
//! rises already costs nothing. Another one costs two searches, both within the nodes between its ends: backward
//! from its tail within the tail's level, over at most `sqrt(arcs)` arcs, and forward from its head, over nodes that
//! rise by a level or more. Nodes that were found get new places: those of the backward search, then those of the
//! forward search, before all others of their level. This is the algorithm for sparse graphs of M. Bender,
//! J. Fineman, S. Gilbert and R. Tarjan, "A New Approach to Incremental Cycle Detection and Related Problems"
//! (ACM Transactions on Algorithms, 2016): m arcs cost O(m^1.5) steps in all, whatever their order.
//!
//! A cycle is contracted to one node of the order, so that the order remains one and says all that there is to know:
//! LEVELS. No arc falls in level, and one within a level rises in index.
//! SAME. For each arc within a level, the list `same` of its head has its tail. It may have others, too, that have
//! left the level or have become the same component: they are dropped when they are met.
//! WHOLE. All nodes of a cycle are in one level when it is contracted, and no other node lies on a path between two of
//! them: the component that takes their place keeps LEVELS with any index between what reaches it and the rest.
//!
//! Proof: here. Stress: the tests below, against reachability by brute force.

/// The least number of arcs that a search backward may follow. Tests have every search cut short now and then.
const LEAST: u64 = if cfg!(test) { 1 } else { 8 };

/// A kind of components whose nodes are of several kinds.
pub(crate) const MIXED: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Components {
    parent: Vec<u32>,
    /// Nodes in the component, of its representative.
    size: Vec<u32>,
    level: Vec<u32>,
    index: Vec<i64>,
    /// Heads of arcs. Those within the component are dropped when they are met.
    out: Vec<Vec<u32>>,
    /// Tails of arcs from the same level.
    same: Vec<Vec<u32>>,
    /// What the nodes of the component are, if all are the same.
    kind: Vec<u32>,
    /// The search that has last found the node, backward and forward.
    back: Vec<u32>,
    forth: Vec<u32>,
    searches: u32,
    first: i64,
    last: i64,
    arcs: u64,
    steps: u64,
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
        let node = self.parent.len() as u32;
        self.parent.push(node);
        self.size.push(1);
        self.level.push(1);
        // At the end: an arc from an older node to this one rises.
        self.last += 1;
        self.index.push(self.last);
        self.out.push(Vec::new());
        self.same.push(Vec::new());
        self.kind.push(kind);
        self.back.push(0);
        self.forth.push(0);
        node
    }

    /// The representative of the component of `node`.
    pub(crate) fn find(&self, mut node: u32) -> u32 {
        // Not deeper than the logarithm of the size: the smaller component goes below the larger one.
        while self.parent[node as usize] != node {
            node = self.parent[node as usize];
        }
        node
    }

    /// Whether there is a cycle through both, or they are the same.
    pub(crate) fn joined(&self, a: u32, b: u32) -> bool {
        self.find(a) == self.find(b)
    }

    /// What the nodes of the component of `node` are; [`MIXED`] if not all are the same.
    pub(crate) fn kind(&self, node: u32) -> u32 {
        self.kind[self.find(node) as usize]
    }

    /// Steps that all insertions took.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    fn before(&self, a: u32, b: u32) -> bool {
        let place = |node: u32| (self.level[node as usize], self.index[node as usize]);
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
        let level = self.level[tail as usize];
        let back = self.search_back(tail, self.arcs.isqrt().max(LEAST));
        let mut cycle = false;
        let mut forth = Vec::new();
        if back.complete && self.level[head as usize] == level {
            cycle = self.back[head as usize] == self.searches;
        } else {
            let to = if back.complete { level } else { level + 1 };
            forth = self.search_forth(head, to);
            cycle |= if back.complete {
                back.order.iter().any(|&node| self.forth[node as usize] == self.searches)
            } else {
                self.forth[tail as usize] == self.searches
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
        self.out[tail as usize].push(head);
        if self.level[tail as usize] == self.level[head as usize] {
            self.same[head as usize].push(tail);
        }
    }

    /// What reaches `from` within its level, over at most `most` arcs.
    fn search_back(&mut self, from: u32, most: u64) -> Closure {
        self.searches += 1;
        let mut found = Closure { order: Vec::new(), arcs: Vec::new(), complete: true };
        self.back[from as usize] = self.searches;
        let mut stack = vec![(from, 0)];
        while let Some((head, next)) = stack.last_mut() {
            let head = *head;
            let Some(&tail) = self.same[head as usize].get(*next) else {
                found.order.push(head);
                stack.pop();
                continue;
            };
            self.steps += 1;
            let tail = self.find(tail);
            if tail == head || self.level[tail as usize] != self.level[head as usize] {
                self.same[head as usize].swap_remove(*next);
                continue;
            }
            *next += 1;
            if found.arcs.len() as u64 == most {
                found.complete = false;
                break;
            }
            found.arcs.push((tail, head));
            if self.back[tail as usize] != self.searches {
                self.back[tail as usize] = self.searches;
                stack.push((tail, 0));
            }
        }
        found
    }

    /// Raises `from` to a level, and with it all that must not be lower. These in their order; what they meet in
    /// that level is marked, too.
    fn search_forth(&mut self, from: u32, level: u32) -> Vec<u32> {
        let mut order = Vec::new();
        self.raise(from, level);
        let mut stack = vec![(from, 0)];
        while let Some((tail, next)) = stack.last_mut() {
            let tail = *tail;
            let Some(&head) = self.out[tail as usize].get(*next) else {
                order.push(tail);
                stack.pop();
                continue;
            };
            self.steps += 1;
            let head = self.find(head);
            if head == tail {
                self.out[tail as usize].swap_remove(*next);
                continue;
            }
            *next += 1;
            if self.level[head as usize] < level {
                self.raise(head, level);
                stack.push((head, 0));
            }
            if self.level[head as usize] == level {
                self.same[head as usize].push(tail);
                self.forth[head as usize] = self.searches;
            }
        }
        order.reverse();
        order
    }

    fn raise(&mut self, node: u32, level: u32) {
        self.level[node as usize] = level;
        self.same[node as usize].clear();
        self.forth[node as usize] = self.searches;
    }

    /// Makes one component of all that is on a cycle with a new arc. `raised` is what has changed its level.
    fn contract(&mut self, tail: u32, head: u32, raised: &[u32]) {
        // All of the cycle is in the tail's level now. What reaches the tail there: it, and what comes before it.
        let back = self.search_back(tail, u64::MAX);
        let mut arcs = back.arcs;
        arcs.sort_unstable();
        let mut members = vec![head];
        self.forth[head as usize] = self.searches;
        let mut next = 0;
        while let Some(&node) = members.get(next) {
            next += 1;
            let begin = arcs.partition_point(|arc| arc.0 < node);
            for &(_, to) in arcs[begin..].iter().take_while(|arc| arc.0 == node) {
                self.steps += 1;
                if self.forth[to as usize] != self.searches {
                    self.forth[to as usize] = self.searches;
                    members.push(to);
                }
            }
        }
        let member = |node: &u32| self.forth[*node as usize] == self.searches;
        let before = back.order.iter().copied().filter(|node| !member(node));
        let after = raised.iter().copied().filter(|node| !member(node));
        let (before, after): (Vec<u32>, Vec<u32>) = (before.collect(), after.collect());
        let whole = members.into_iter().reduce(|a, b| self.unite(a, b)).unwrap_or(head);
        self.place_first(before.into_iter().chain([whole]).chain(after).collect());
    }

    fn unite(&mut self, a: u32, b: u32) -> u32 {
        let (kept, gone) = if self.size[a as usize] >= self.size[b as usize] { (a, b) } else { (b, a) };
        self.parent[gone as usize] = kept;
        self.size[kept as usize] += self.size[gone as usize];
        if self.kind[kept as usize] != self.kind[gone as usize] {
            self.kind[kept as usize] = MIXED;
        }
        for lists in [&mut self.out, &mut self.same] {
            let mut more = std::mem::take(&mut lists[gone as usize]);
            let list = &mut lists[kept as usize];
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
            self.index[node as usize] = self.first;
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
                            components.joined(x as u32, y as u32),
                            joined,
                            "seed {seed}: {x}, {y}, {arcs:?}"
                        );
                    }
                    let of = (0..nodes).filter(|&y| components.joined(x as u32, y as u32));
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
