//! What is in a report, and what is reported beside cycles.

use std::sync::Arc;

use poundlock_order::{Cycle, Evidence, Order};
use poundlock_statfile::check::{ClassKey, Edge, End, Held, LockId, Mode, Serial};

const MANY: ClassKey = ClassKey(ClassKey::BY_STACK);

/// A lock that is a class of its own.
fn alone(lock: u32) -> (u32, ClassKey) {
    (lock, ClassKey(lock))
}

fn edge(thread: u32, from: (u32, ClassKey), to: (u32, ClassKey)) -> Arc<Edge> {
    let end = |(lock, class): (u32, ClassKey)| End {
        held: Held { lock: LockId(lock), mode: Mode::Exclusive },
        class,
        stack: Arc::new([u64::from(lock)]),
        made: 0,
    };
    Arc::new(Edge { thread: Serial(thread), from: end(from), to: end(to), guards: Vec::new(), more: false })
}

fn add(order: &mut Order, edges: &[Arc<Edge>]) -> Vec<Cycle> {
    edges.iter().flat_map(|edge| order.add(edge.clone(), (0, 0))).collect()
}

#[test]
fn a_cycle_begins_where_it_ends_and_is_reported_once() {
    let mut order = Order::new();
    let edges = [edge(1, alone(1), alone(2)), edge(2, alone(2), alone(3)), edge(3, alone(3), alone(1))];
    let found = add(&mut order, &edges);
    assert_eq!(found.len(), 1);
    let cycle = &found[0];
    assert_eq!((cycle.evidence, cycle.upgraded, cycle.partial), (Evidence::SameLocks, false, false));
    assert_eq!(cycle.key(), [1, 2, 3].map(ClassKey));
    let threads: Vec<_> = cycle.edges.iter().map(|edge| edge.thread.0).collect();
    assert_eq!(threads, [3, 1, 2]);
    assert!(add(&mut order, &edges).is_empty());
    assert!(add(&mut order, &[edge(4, alone(1), alone(2))]).is_empty());
}

#[test]
fn a_second_thread_makes_a_known_edge_part_of_a_cycle() {
    let mut order = Order::new();
    assert!(add(&mut order, &[edge(1, alone(1), alone(2)), edge(1, alone(2), alone(1))]).is_empty());
    assert_eq!(add(&mut order, &[edge(2, alone(1), alone(2))]).len(), 1);
}

#[test]
fn classes_are_upgraded_once() {
    let (other, a, b) = (ClassKey(ClassKey::BY_STACK | 1), 10, 20);
    let mut order = Order::new();
    let found = add(&mut order, &[edge(1, (a, MANY), (b, other)), edge(2, (b + 1, other), (a + 1, MANY))]);
    assert_eq!((found.len(), found[0].evidence), (1, Evidence::SameClasses));
    let found = add(&mut order, &[edge(2, (b, other), (a, MANY))]);
    assert_eq!((found.len(), found[0].evidence, found[0].upgraded), (1, Evidence::SameLocks, true));
    assert!(add(&mut order, &[edge(1, (a + 1, MANY), (b + 1, other))]).is_empty());
}

#[test]
fn a_fingerprint_is_the_same_wherever_the_cycle_begins() {
    let edges = [edge(1, alone(1), alone(2)), edge(2, alone(2), alone(3)), edge(3, alone(3), alone(1))];
    let fingerprint = |turn: usize, offset: u32| {
        let mut edges = edges.clone();
        edges.rotate_left(turn);
        let found = add(&mut Order::new(), &edges);
        found[0].fingerprint(|edge| format!("takes {}", edge.to.held.lock.0 + offset))
    };
    assert_eq!(fingerprint(0, 0).len(), 16);
    assert_eq!(fingerprint(0, 0), fingerprint(1, 0));
    assert_eq!(fingerprint(0, 0), fingerprint(2, 0));
    assert_ne!(fingerprint(0, 0), fingerprint(0, 1));
}

#[test]
fn locks_that_are_not_known_may_be_common() {
    let more =
        |thread, from, to| Arc::new(Edge { more: true, ..(*edge(thread, alone(from), alone(to))).clone() });
    let found = add(&mut Order::new(), &[more(1, 1, 2), edge(2, alone(2), alone(1))]);
    assert!(!found[0].partial);
    let found = add(&mut Order::new(), &[more(1, 1, 2), more(2, 2, 1)]);
    assert!(found[0].partial);
}

#[test]
fn a_class_is_nested_both_ways_without_an_order() {
    let mut order = Order::new();
    let up = edge(1, (1, MANY), (2, MANY));
    let down = edge(1, (4, MANY), (3, MANY));
    order.add(up.clone(), (0x1000, 0x2000));
    order.add(edge(1, (2, MANY), (5, MANY)), (0, 0));
    assert!(order.take_nestings().is_empty());
    assert!(order.add(down.clone(), (0x4000, 0x3000)).is_empty());
    let found = order.take_nestings();
    assert_eq!((found.len(), found[0].class), (1, MANY));
    assert_eq!((&found[0].one, &found[0].other), (&up, &Some(down)));
    order.add(edge(1, (6, MANY), (5, MANY)), (0x6000, 0x5000));
    assert!(order.take_nestings().is_empty());
}

#[test]
fn a_declared_order_holds_in_place_of_addresses() {
    let mut order = Order::new();
    for (lock, place) in [(1, 10), (2, 20), (3, 30)] {
        order.placed(LockId(lock), place);
    }
    order.add(edge(1, (1, MANY), (2, MANY)), (0x1000, 0x2000));
    order.add(edge(1, (2, MANY), (3, MANY)), (0x2000, 0x0500));
    assert!(order.take_nestings().is_empty());
    order.add(edge(1, (3, MANY), (1, MANY)), (0x0500, 0x1000));
    let found = order.take_nestings();
    assert_eq!((found.len(), found[0].one.from.held.lock, &found[0].other), (1, LockId(3), &None));
}

#[test]
fn a_condition_that_is_signalled_without_the_lock_waits_for_nobody() {
    let held = |lock, mode| Held { lock: LockId(lock), mode };
    let through = |free: bool| {
        let mut order = Order::new();
        let (mut waits, mut signals) =
            ((*edge(1, alone(1), alone(9))).clone(), (*edge(2, alone(9), alone(1))).clone());
        waits.to.held.mode = Mode::Condition;
        signals.from.held.mode = Mode::Condition;
        order.signalled(LockId(9), &[held(1, Mode::Exclusive), held(5, Mode::Exclusive)]);
        if free {
            order.signalled(LockId(9), &[held(5, Mode::Exclusive)]);
        }
        add(&mut order, &[Arc::new(waits), Arc::new(signals)]).len()
    };
    assert_eq!((through(false), through(true)), (1, 0));
}
