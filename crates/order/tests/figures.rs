//! Edges in orders that are hard to keep: what it costs, in steps, which are the same on each
//! machine.
//! `cargo test --profile suite -p poundlock-order --test figures -- --nocapture --test-threads 1` prints
//! seconds too.

use std::sync::Arc;

use poundlock_order::{Cycle, Evidence, Limits, Order, Statistics};
use poundlock_statfile::check::{ClassKey, Edge, End, Held, LockId, Mode, Serial};

const EDGES: u32 = 100_000;
/// In an order that is to be kept: the bound is of a power of their number, and each says as much.
const INSERTED: u32 = 25_000;

/// An order of insertion may cost 4 * m^1.5 steps: the algorithm's bound, and its constant. (All need far
/// less.)
fn order_bound(edges: u64) -> u64 {
    4 * edges * edges.isqrt()
}

fn class(lock: u32) -> ClassKey {
    ClassKey(lock)
}

/// Everything is in one class.
fn one_class(_: u32) -> ClassKey {
    ClassKey(ClassKey::BY_STACK)
}

/// How long this thread has run, in nanoseconds.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

fn seconds(begin: u64) -> f64 {
    (on_cpu() - begin) as f64 / 1e9
}

struct Run {
    order: Order,
    cycles: Vec<Cycle>,
}

impl Run {
    /// Puts these in: thread, lock held, lock asked for, a lock held beside it.
    fn of(
        name: &str,
        class: fn(u32) -> ClassKey,
        edges: impl Iterator<Item = (u32, u32, u32, Option<u32>)>,
    ) -> Self {
        let nothing: Arc<[u64]> = Arc::new([]);
        let end = |lock: u32| End {
            held: Held { lock: LockId(lock), mode: Mode::Exclusive },
            class: class(lock),
            stack: nothing.clone(),
            made: 0,
        };
        let edges: Vec<_> = edges
            .map(|(thread, from, to, guard)| {
                let guards = guard.map(|lock| Held { lock: LockId(lock), mode: Mode::Exclusive });
                let guards = guards.into_iter().collect();
                let (from, to) = (end(from), end(to));
                Arc::new(Edge { thread: Serial(thread), from, to, guards, more: false })
            })
            .collect();
        let count = edges.len();
        let begin = on_cpu();
        let mut run = Run { order: Order::new(), cycles: Vec::new() };
        for edge in edges {
            let found = run.order.add(edge, (0, 0));
            run.cycles.extend(found);
        }
        let seconds = seconds(begin);
        let Statistics { steps, order_steps, pending, given_up, edges, .. } = run.order.statistics();
        println!(
            "{name:40} {count:6} passes, {edges:6} edges: {seconds:.3} s, {order_steps:9} steps for the \
             order, {steps:9} for cycles, {} found, {pending} searches not finished, {given_up} given up",
            run.cycles.len(),
        );
        let limits = Limits::default();
        assert!(order_steps <= order_bound(edges as u64), "{name}: {order_steps} steps for the order");
        assert!(steps <= limits.steps_saved + limits.steps_an_edge * count as u64, "{name}: {steps} steps");
        run
    }

    fn without_cycles(name: &str, pairs: Vec<(u32, u32)>) {
        let run = Run::of(name, class, pairs.iter().enumerate().map(|(at, &(a, b))| (at as u32, a, b, None)));
        let statistics = run.order.statistics();
        assert_eq!((run.cycles.len(), statistics.steps, statistics.pending), (0, 0, 0), "{name}");
    }
}

/// Pairs that rise, without repeats.
fn rising(random: &mut fastrand::Rng, edges: u32, nodes: u32, span: u32) -> Vec<(u32, u32)> {
    let mut pairs = std::collections::BTreeSet::new();
    while pairs.len() < edges as usize {
        let a = random.u32(0..nodes - 1);
        pairs.insert((a, random.u32(a + 1..nodes.min(a + 1 + span))));
    }
    pairs.into_iter().collect()
}

#[test]
fn orders_of_insertion() {
    let mut random = fastrand::Rng::with_seed(1);
    for (nodes, span) in [(1_000, 1_000), (10_000, 10_000), (50_000, 50_000), (20_000, 30)] {
        let mut pairs = rising(&mut random, INSERTED, nodes, span);
        Run::without_cycles(&format!("{nodes} locks, span {span}, forward"), pairs.clone());
        pairs.reverse();
        Run::without_cycles(&format!("{nodes} locks, span {span}, backward"), pairs.clone());
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.1));
        Run::without_cycles(&format!("{nodes} locks, span {span}, backward by heads"), pairs.clone());
        random.shuffle(&mut pairs);
        Run::without_cycles(&format!("{nodes} locks, span {span}, shuffled"), pairs);
    }
    let mut chain: Vec<_> = (0..INSERTED).map(|at| (at, at + 1)).collect();
    Run::without_cycles("chain, forward", chain.clone());
    chain.reverse();
    Run::without_cycles("chain, backward", chain.clone());
    random.shuffle(&mut chain);
    Run::without_cycles("chain, shuffled", chain.clone());
    // Even edges first, so that the odd ones join chains that lie the wrong way round.
    let by_halves =
        |at: u32| if at < INSERTED / 2 { 2 * (INSERTED / 2 - 1 - at) } else { 2 * (at - INSERTED / 2) + 1 };
    Run::without_cycles(
        "chain, halves",
        (0..INSERTED).map(|at| (by_halves(at), by_halves(at) + 1)).collect(),
    );

    let half = INSERTED / 2;
    let to_hub = (1..=half).map(|at| (at, 0));
    let from_hub = (1..=half).map(|at| (0, half + at));
    Run::without_cycles("hub, in, out", to_hub.clone().chain(from_hub.clone()).collect());
    Run::without_cycles("hub, out, in", from_hub.clone().chain(to_hub.clone()).collect());
    Run::without_cycles("hub, in and out in turn", to_hub.zip(from_hub).flat_map(|(a, b)| [a, b]).collect());

    // Each lock of one side before each of the other, seen in the order that moves most.
    let side = INSERTED.isqrt();
    let all = |a: u32| (0..side).map(move |b| (a, side + b));
    Run::without_cycles("two sides", (0..side).rev().flat_map(all).collect());
    let chains = (1..side).flat_map(|at| [(at - 1, at), (side + at - 1, side + at)]);
    let joins = (0..side).flat_map(|a| (0..side).map(move |b| (a, side + side - 1 - b)));
    Run::without_cycles("two chains, joined end to begin", chains.chain(joins).collect());
}

#[test]
fn one_thread_in_all_orders() {
    let mut random = fastrand::Rng::with_seed(2);
    let edges = (0..EDGES).map(|_| (1, random.u32(0..5_000), random.u32(0..5_000), None));
    let run = Run::of("one thread, all orders", class, edges);
    assert_eq!((run.cycles.len(), run.order.statistics().pending), (0, 0));
}

#[test]
fn all_orders_below_one_lock() {
    let mut random = fastrand::Rng::with_seed(3);
    let edges = (0..EDGES).map(|_| (random.u32(0..50), random.u32(1..5_000), random.u32(1..5_000), Some(0)));
    let run = Run::of("50 threads, all orders, one lock above", class, edges);
    assert_eq!((run.cycles.len(), run.order.statistics().pending), (0, 0));
}

#[test]
fn all_orders() {
    let mut random = fastrand::Rng::with_seed(4);
    let edges = (0..EDGES).map(|_| (random.u32(0..50), random.u32(0..5_000), random.u32(0..5_000), None));
    let mut run = Run::of("50 threads, all orders", class, edges);
    assert!(!run.cycles.is_empty());
    // There are more cycles than anyone wants to read. What was not looked at is said.
    assert!(run.order.statistics().pending > 0);
    let begin = on_cpu();
    let more = run.order.search_more(1 << 22);
    println!("{:40} {} more in {:.3} s", "", more.len(), seconds(begin));
}

#[test]
fn two_threads_in_all_orders() {
    let mut random = fastrand::Rng::with_seed(5);
    let edges = (0..EDGES).map(|_| (random.u32(0..2), random.u32(0..400), random.u32(0..400), None));
    let run = Run::of("2 threads, all orders of 400", class, edges);
    assert!(run.cycles.iter().all(|cycle| cycle.edges.len() == 2));
}

#[test]
fn accounts_of_a_bank() {
    let mut random = fastrand::Rng::with_seed(6);
    let edges = (0..EDGES).map(|_| (random.u32(0..50), random.u32(0..1_000), random.u32(0..1_000), None));
    let mut run = Run::of("one class of 1000, all orders", one_class, edges);
    // All are at the same place of the program.
    assert_eq!(run.cycles.len(), 1);
    assert_eq!(run.cycles[0].evidence, Evidence::SameLocks);
    // Enough were found; searches that were not finished before have nothing left to do.
    assert!(run.order.statistics().alike >= 100);
    assert!(run.order.search_more(1 << 22).is_empty());
    assert_eq!(run.order.statistics().pending, 0);
}

#[test]
fn ten_thousand_philosophers() {
    let count = 10_000;
    let edges = |at: u32| (at, at, (at + 1) % count, None);
    let run = Run::of("10,000 philosophers", one_class, (0..count).map(edges));
    assert_eq!(run.cycles.len(), 1);
    assert_eq!(run.cycles[0].edges.len(), count as usize);
    let run = Run::of("10,000 philosophers, of classes", class, (0..count).rev().map(edges));
    assert_eq!((run.cycles.len(), run.order.statistics().pending), (1, 0));
}

#[test]
fn more_paths_than_can_be_followed() {
    // Forty layers of five locks, each before all of the next layer, and the last before one of the first:
    // 5^39 cycles. None is possible, since who comes to the last layer holds a lock that those hold, too, who
    // leave it.
    let (layers, width, gate) = (40, 5, 1_000);
    let inner = (1..layers).flat_map(|layer| {
        let guard = (layer == layers - 1).then_some(gate);
        (0..width * width)
            .map(move |at| (layer, (layer - 1) * width + at % width, layer * width + at / width, guard))
    });
    let last = (0..width).map(|at| (layers, (layers - 1) * width + at, 0, Some(gate)));
    let mut run = Run::of("5^39 paths", class, inner.chain(last));
    assert_eq!(run.cycles.len(), 0);
    assert!(run.order.statistics().pending > 0);
    let mut calls = 0;
    while run.order.statistics().pending > 0 {
        assert!(run.order.search_more(1 << 20).is_empty());
        calls += 1;
        assert!(calls < 10_000, "the search goes on for ever");
    }
    let statistics = run.order.statistics();
    println!("{:40} {} steps until {} searches were given up", "", statistics.steps, statistics.given_up);
    assert!(statistics.given_up > 0);
}

#[test]
fn what_is_known_costs_no_search() {
    let mut random = fastrand::Rng::with_seed(7);
    let pairs = rising(&mut random, EDGES, 1_000, 1_000);
    let passes = |_: u32| pairs.iter().map(|&(a, b)| (1, a, b, None));
    let run = Run::of("100,000 edges 10 times", class, (0..10).flat_map(passes));
    let statistics = run.order.statistics();
    assert_eq!((statistics.evidence, statistics.known), (u64::from(EDGES), 9 * u64::from(EDGES)));
    assert_eq!(statistics.steps, 0);
}
