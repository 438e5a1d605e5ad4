//! Random programs: what the graph reports, piece by piece, must be what a plain program finds that looks at
//! the whole trace and tries all sets of edges.

use std::collections::{BTreeSet, HashMap, HashSet};

use poundlock_order::{Cycle, Evidence, Limits, Order, Rules};
use poundlock_statfile::check::{ClassKey, Held, LockId, Mode, Serial};

use super::recorder::{Op, Recorder, Trace};
use super::seeds;

/// A random program's run. No thread takes what it could not have then.
fn program(seed: u64) -> Trace {
    let mut random = fastrand::Rng::with_seed(seed);
    let threads: Vec<_> = (0..random.u32(1..6)).map(Serial).collect();
    let slots = random.usize(2..7);
    let sorts = random.u32(1..7);
    // What a slot's locks are: their class (none: each its own), how they are read, whether they are
    // conditions.
    let kinds: Vec<_> = (0..slots)
        .map(|_| {
            let class = (random.u8(0..3) != 0).then(|| ClassKey(ClassKey::BY_STACK | random.u32(0..sorts)));
            let read = [None, None, Some(Mode::Read), Some(Mode::FairRead)][random.usize(0..4)];
            (class, read, random.u8(0..8) == 0)
        })
        .collect();
    let (tries, deaths) = (random.u8(0..4), random.u8(0..3));
    let deep = random.usize(2..5);
    let mut next = 0;
    let mut trace = Vec::new();
    let mut make = |slot: usize, trace: &mut Trace| {
        next += 1;
        let lock = LockId(next);
        trace.push((Serial(0), Op::Make(lock, kinds[slot].0.unwrap_or(ClassKey(next)))));
        lock
    };
    let mut locks: Vec<_> = (0..slots).map(|slot| make(slot, &mut trace)).collect();
    let mut held: HashMap<Serial, Vec<Held>> = HashMap::new();
    for _ in 0..random.usize(10..80) {
        let thread = threads[random.usize(0..threads.len())];
        let slot = random.usize(0..slots);
        let lock = locks[slot];
        let (_, read, condition) = kinds[slot];
        let in_use: Vec<Held> = held.values().flatten().copied().filter(|held| held.lock == lock).collect();
        let own = held.entry(thread).or_default();
        if condition {
            trace.push((thread, if random.bool() { Op::Wait(lock) } else { Op::Signal(lock) }));
        } else if deaths > 0 && random.u8(0..20) < deaths && in_use.is_empty() {
            trace.push((thread, Op::Destroy(lock)));
            locks[slot] = make(slot, &mut trace);
        } else if own.len() >= deep || !own.is_empty() && random.u8(0..3) == 0 {
            let gone = own.remove(random.usize(0..own.len()));
            trace.push((thread, Op::Release(gone.lock)));
        } else {
            let mode = read.filter(|_| random.u8(0..3) != 0).unwrap_or(Mode::Exclusive);
            let free = in_use.iter().all(|held| held.mode != Mode::Exclusive && mode != Mode::Exclusive);
            if free && own.iter().all(|held| held.lock != lock) {
                own.push(Held { lock, mode });
                trace.push((thread, Op::Take { lock, mode, tries: random.u8(0..10) < tries }));
            }
        }
    }
    trace
}

/// A thread that could wait: it asks for a lock while it holds others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Stand {
    thread: Serial,
    /// One of those that it holds, or what it alone would signal; none of a writer that is no edge.
    from: Option<Held>,
    to: Held,
    held: Vec<Held>,
}

/// What all threads of a trace ever did, and when each lock lived.
#[derive(Default)]
struct Whole {
    stands: Vec<Stand>,
    writers: Vec<Stand>,
    /// By condition variable: what was held at each signal.
    signals: HashMap<LockId, Vec<HashSet<LockId>>>,
    /// Whether those count.
    by_signals: bool,
    lives: HashMap<LockId, (usize, usize)>,
    classes: HashMap<LockId, ClassKey>,
}

impl Whole {
    fn of(trace: &Trace) -> Self {
        let mut whole = Whole::default();
        let mut all: HashMap<Serial, Vec<(Held, bool)>> = HashMap::new();
        for (moment, &(thread, op)) in trace.iter().enumerate() {
            let own = all.entry(thread).or_default();
            let held: Vec<Held> = own.iter().map(|(held, _)| *held).collect();
            match op {
                Op::Make(lock, class) => {
                    whole.lives.insert(lock, (moment, usize::MAX));
                    whole.classes.insert(lock, class);
                }
                Op::Destroy(lock) => {
                    whole.lives.entry(lock).and_modify(|life| life.1 = moment).or_default().1 = moment
                }
                Op::Take { lock, mode, tries } => {
                    let to = Held { lock, mode };
                    if !tries {
                        for &from in &held {
                            whole.stands.push(Stand { thread, from: Some(from), to, held: held.clone() });
                        }
                        if mode == Mode::Exclusive {
                            whole.writers.push(Stand { thread, from: None, to, held });
                        }
                    }
                    own.push((to, tries));
                }
                Op::Release(lock) => own.retain(|(held, _)| held.lock != lock),
                Op::Wait(lock) => {
                    let to = Held { lock, mode: Mode::Condition };
                    for &from in &held {
                        whole.stands.push(Stand { thread, from: Some(from), to, held: held.clone() });
                    }
                }
                Op::Signal(lock) => {
                    let with = held.iter().map(|held| held.lock).collect();
                    whole.signals.entry(lock).or_default().push(with);
                    for (at, &(to, tries)) in own.iter().enumerate() {
                        if !tries {
                            let from = Some(Held { lock, mode: Mode::Condition });
                            whole.stands.push(Stand { thread, from, to, held: held[..at].to_vec() });
                        }
                    }
                }
            }
        }
        let mut seen = HashSet::new();
        whole.stands.retain(|stand| seen.insert(stand.clone()));
        seen.clear();
        whole.writers.retain(|stand| seen.insert(stand.clone()));
        whole
    }

    /// The sets of locks of all possible cycles of locks, and the sets of classes of those of classes.
    fn cycles(&self) -> (BTreeSet<Vec<LockId>>, BTreeSet<Vec<ClassKey>>) {
        let (mut locks, mut classes) = (BTreeSet::new(), BTreeSet::new());
        for first in &self.stands {
            self.extend(&mut vec![first], &|held| u64::from(held.lock.0), &mut |path| {
                locks.insert(sorted(path.iter().filter_map(|stand| stand.from).map(|held| held.lock)));
            });
            let class = |held: Held| u64::from(self.classes[&held.lock].0);
            self.extend(&mut vec![first], &class, &mut |path| {
                classes.insert(sorted(
                    path.iter().filter_map(|stand| stand.from).map(|held| self.classes[&held.lock]),
                ));
            });
        }
        (locks, classes)
    }

    /// Calls `found` with each possible cycle that begins with `path`, whose nodes are what `node` says of
    /// locks.
    fn extend<'a>(
        &'a self,
        path: &mut Vec<&'a Stand>,
        node: &dyn Fn(Held) -> u64,
        found: &mut dyn FnMut(&[&'a Stand]),
    ) {
        let from = |stand: &Stand| stand.from.map(node);
        let last = path[path.len() - 1];
        if from(last) == Some(node(last.to)) {
            return;
        }
        if Some(node(last.to)) == from(path[0]) {
            if self.possible(path, node) {
                found(path);
            }
            return;
        }
        for next in &self.stands {
            let fits =
                from(next) == Some(node(last.to)) && path.iter().all(|stand| stand.thread != next.thread);
            if fits && path.iter().all(|stand| from(stand) != from(next)) {
                path.push(next);
                self.extend(path, node, found);
                path.pop();
            }
        }
    }

    /// Whether a condition variable is signalled without the lock that one of these would need to signal it.
    fn is_signalled_without(&self, path: &[&Stand]) -> bool {
        self.by_signals
            && path.iter().any(|stand| {
                let signals = stand.from.and_then(|from| self.signals.get(&from.lock));
                signals.is_some_and(|signals| signals.iter().any(|with| !with.contains(&stand.to.lock)))
            })
    }

    /// Whether threads can be at all of these at once, each waiting for the next, with writers where they are
    /// needed.
    fn possible(&self, path: &[&Stand], node: &dyn Fn(Held) -> u64) -> bool {
        if self.is_signalled_without(path) {
            return false;
        }
        let mut between = Vec::new();
        for (at, stand) in path.iter().enumerate() {
            let Some(holds) = path[(at + 1) % path.len()].from else { return false };
            match (stand.to.mode, holds.mode) {
                (Mode::Condition, Mode::Condition) => {}
                (Mode::Condition, _) | (_, Mode::Condition) => return false,
                (Mode::Exclusive, _) | (_, Mode::Exclusive) => {}
                (Mode::FairRead, _) => between.push(node(stand.to)),
                (Mode::Read, _) => return false,
            }
        }
        self.with_writers(&mut path.to_vec(), &between, node)
    }

    fn with_writers<'a>(
        &'a self,
        all: &mut Vec<&'a Stand>,
        between: &[u64],
        node: &dyn Fn(Held) -> u64,
    ) -> bool {
        let Some((&first, rest)) = between.split_first() else { return self.together(all) };
        self.writers.iter().filter(|writer| node(writer.to) == first).any(|writer| {
            all.push(writer);
            let found = self.with_writers(all, rest, node);
            all.pop();
            found
        })
    }

    /// Whether threads can be at all of these at once.
    fn together(&self, all: &[&Stand]) -> bool {
        let pairs = || all.iter().enumerate().flat_map(|(at, a)| all[at + 1..].iter().map(move |b| (*a, *b)));
        let threads = pairs().all(|(a, b)| a.thread != b.thread);
        let guards = pairs().all(|(a, b)| {
            let mut both = a.held.iter().flat_map(|x| b.held.iter().map(move |y| (x, y)));
            both.all(|(x, y)| x.lock != y.lock || x.mode != Mode::Exclusive && y.mode != Mode::Exclusive)
        });
        // A writer that holds several locks waits at one edge for each of them; whether one of them could
        // have been there is asked of the edge.
        let locks = all
            .iter()
            .flat_map(|stand| stand.from.iter().chain([&stand.to]))
            .map(|held| self.lives[&held.lock]);
        let (made, died) = locks.fold((0, usize::MAX), |all, life| (all.0.max(life.0), all.1.min(life.1)));
        threads && guards && made <= died
    }
}

fn show(cycle: &Cycle) -> String {
    let lock = |held: Held| format!("{} {:?}", held.lock.0, held.mode);
    let edges = cycle.edges.iter().map(|edge| {
        let guards: Vec<_> = edge.guards.iter().map(|&held| lock(held)).collect();
        format!(
            "{}: {} -> {} ({})",
            edge.thread.0,
            lock(edge.from.held),
            lock(edge.to.held),
            guards.join(", ")
        )
    });
    let edges: Vec<_> = edges.collect();
    format!("{:?} {} writers {:?}", cycle.evidence, edges.join("; "), cycle.writers)
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort();
    items
}

fn locks_of(cycle: &Cycle) -> Vec<LockId> {
    sorted(cycle.edges.iter().map(|edge| edge.from.held.lock))
}

fn within<T: PartialEq>(less: &[T], more: &[T]) -> bool {
    less.iter().all(|item| more.contains(item))
}

/// Whether each class occurs once.
fn is_plain(cycle: &Cycle) -> bool {
    let key = cycle.key();
    key.windows(2).all(|pair| pair[0] != pair[1])
}

/// Whether the one cycle makes the other not worth a report.
fn covers(known: &Cycle, locks: &[LockId], classes: &[ClassKey], evidence: Evidence) -> bool {
    known.evidence >= evidence
        && if is_plain(known) {
            within(&known.key(), classes)
        } else {
            evidence == Evidence::SameLocks && within(&locks_of(known), locks)
        }
}

/// What is wrong with what was found.
fn compare(trace: &Trace, found: &[Cycle], at_once: bool, by_signals: bool) -> Result<usize, String> {
    let whole = Whole { by_signals, ..Whole::of(trace) };
    let (locks, classes) = whole.cycles();
    let classes_of = |locks: &[LockId]| sorted(locks.iter().map(|lock| whole.classes[lock]));
    for (at, cycle) in found.iter().enumerate() {
        let possible = match cycle.evidence {
            Evidence::SameLocks => locks.contains(&locks_of(cycle)),
            Evidence::SameClasses => classes.contains(&cycle.key()),
        };
        if !possible {
            return Err(format!("is not possible: {}", show(cycle)));
        }
        for (edge, next) in cycle.edges.iter().zip(cycle.edges.iter().cycle().skip(1)) {
            let meet = match cycle.evidence {
                Evidence::SameLocks => edge.to.held.lock == next.from.held.lock,
                Evidence::SameClasses => edge.to.class == next.from.class,
            };
            if !meet {
                return Err(format!("is no cycle: {}", show(cycle)));
            }
        }
        let threads = cycle
            .edges
            .iter()
            .map(|edge| edge.thread)
            .chain(cycle.writers.iter().map(|writer| writer.thread));
        let threads = sorted(threads);
        if threads.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("has a thread twice: {}", show(cycle)));
        }
        let same =
            |other: &&Cycle| other.key() == cycle.key() && is_plain(other) && other.evidence < cycle.evidence;
        if is_plain(cycle) && cycle.upgraded != found[..at].iter().any(|other| same(&other)) {
            return Err(format!("is an upgrade or none: {}", show(cycle)));
        }
        let before = |known: &Cycle| covers(known, &locks_of(cycle), &cycle.key(), cycle.evidence);
        if at_once && found[..at].iter().any(before) {
            return Err(format!("was known: {}", show(cycle)));
        }
    }
    for set in &locks {
        let known = |cycle: &Cycle| covers(cycle, set, &classes_of(set), Evidence::SameLocks);
        if !found.iter().any(known) {
            return Err(format!("a cycle of the locks {set:?} was missed"));
        }
    }
    for set in &classes {
        let known = |cycle: &Cycle| covers(cycle, &[], set, Evidence::SameClasses);
        if !found.iter().any(known) {
            return Err(format!("a cycle of the classes {set:?} was missed"));
        }
    }
    Ok(locks.len() + classes.len())
}

fn all() -> Limits {
    Limits { cycles_an_edge: 1 << 20, cycles_a_class: 1 << 20, guards_a_pair: 1 << 20, ..Limits::default() }
}

/// Runs a program; all that is found of it, and what is wrong with that.
fn one(seed: u64, limits: Limits, rules: Rules) -> Result<usize, String> {
    let trace = program(seed);
    let mut recorder = Recorder::new(Order::with_rules(limits, rules), seed.is_multiple_of(3));
    let by_signals = seed.is_multiple_of(2);
    if by_signals {
        // What is known of all signals at the end is known from the beginning: else a cycle is reported that
        // a later signal shows to be none.
        recorder.tell_signals(&trace);
    }
    recorder.run(&trace);
    let at_once = recorder.order.statistics().pending == 0;
    while recorder.order.statistics().pending > 0 {
        let more = recorder.order.search_more(1000);
        recorder.found.extend(more);
    }
    let statistics = recorder.order.statistics();
    assert_eq!((statistics.given_up, statistics.no_room, statistics.alike), (0, 0, 0), "seed {seed}");
    compare(&trace, &recorder.found, at_once, by_signals)
}

fn lines(trace: &Trace) -> String {
    trace.iter().enumerate().map(|(at, (thread, op))| format!("{at}: {} {op:?}\n", thread.0)).collect()
}

#[test]
fn what_is_reported_is_what_is_possible() {
    let mut cycles = 0;
    for seed in seeds(6000) {
        match one(seed, all(), Rules::default()) {
            Ok(found) => cycles += usize::from(found > 0),
            Err(wrong) => panic!("seed {seed}: {wrong}\n{}", lines(&program(seed))),
        }
    }
    println!("{cycles} programs with cycles");
    assert!(cycles > 0 || seeds(6000).count() < 100, "no program has a cycle");
}

#[test]
fn searches_that_are_cut_short_find_the_same_later() {
    for seed in seeds(6000).take(2000) {
        let limits = Limits { steps_an_edge: 3, steps_saved: 10, cycles_an_edge: 1, ..all() };
        if let Err(wrong) = one(seed, limits, Rules::default()) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

/// Without this rule, some program among a few hundred must show it.
fn must_fail_without(rules: Rules) {
    let failed = (0..1000).find(|&seed| one(seed, all(), rules).is_err());
    let seed = failed.expect("no program shows that a rule is missing");
    println!("seed {seed}: {}", one(seed, all(), rules).unwrap_err());
}

#[test]
fn a_missing_rule_of_threads_is_found() {
    must_fail_without(Rules { threads: false, ..Rules::default() });
}

#[test]
fn a_missing_rule_of_guards_is_found() {
    must_fail_without(Rules { guards: false, ..Rules::default() });
}

#[test]
fn a_missing_rule_of_lifetimes_is_found() {
    must_fail_without(Rules { lifetimes: false, ..Rules::default() });
}

#[test]
fn a_missing_rule_of_modes_is_found() {
    must_fail_without(Rules { modes: false, ..Rules::default() });
}
